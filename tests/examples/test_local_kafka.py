"""The local broker's command, and that it never outlives its owner; other tests stop, freeze and restart one."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from examples.local_kafka.__main__ import run
from tests.support.paths import ROOT

pytestmark = pytest.mark.broker

# Starts a broker, prints its address, and then does what its argument says.
OWNER = """\
import sys, threading
from examples import local_kafka
kafka = getattr(local_kafka, sys.argv[2])()
kafka.start()
processes = [file.read_text().strip() for file in kafka.folder.glob("*.pid")]
print(kafka.folder, kafka.bootstrap_servers, *processes, flush=True)
if sys.argv[1] == "wait":
    threading.Event().wait()
"""


def test_a_command_gets_the_address() -> None:
    """`{}` in a command stands for the address; its exit code is returned, and 127 if there is no such command."""
    says = "import sys; sys.exit(sys.argv[1:] != ['--at=h:1,i:2', 'x'])"

    assert run("h:1,i:2", [sys.executable, "-c", says, "--at={}", "x"]) == 0
    assert run("h:1", [sys.executable, "-c", says, "{}"]) == 1
    assert run("h:1", ["there-is-no-such-command"]) == 127


@pytest.mark.slow("a broker for each end")
@pytest.mark.parametrize(
    ("end", "kind", "count"),
    [
        pytest.param("exit", "LocalKafka", 1, marks=pytest.mark.long("as with SIGKILL")),
        pytest.param("SIGTERM", "LocalKafka", 1, marks=pytest.mark.long("as with SIGKILL")),
        ("SIGKILL", "OldestKafka", 2),
    ],
)
def test_owner_ends(end: str, kind: str, count: int) -> None:
    command = [sys.executable, "-c", OWNER, "leave" if end == "exit" else "wait", kind]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout
        folder, address, *processes = owner.stdout.readline().split()
        assert len(processes) == count
        assert end == "exit" or _listens(address)
        if end != "exit":
            owner.send_signal(signal.Signals[end])

    assert _within(15, lambda: not Path(folder).exists())
    assert _within(15, lambda: not any(_runs(int(pid)) for pid in processes))
    assert _within(15, lambda: not _listens(address))  # its last threads may close the sockets a moment later


@pytest.mark.slow("a broker of its own")
def test_command_line() -> None:
    """`python -m examples.local_kafka` prints the address of its broker, and Ctrl-C stops it."""
    command = [sys.executable, "-m", "examples.local_kafka", "--sasl"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        address = process.stdout.readline().strip()
        assert process.stdout.readline().startswith("SASL: 127.0.0.1:")
        with closing(KafkaAdminClient(bootstrap_servers=address)) as admin:
            assert admin.list_topics() == []
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)

    assert process.returncode == 0
    assert errors == "Ctrl-C stops it\n"
    assert not _listens(address)


def _within(seconds: float, true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _listens(address: str) -> bool:
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
    except OSError:
        return False
    return True


def _runs(pid: int) -> bool:
    """Return whether a process exists; one that has ended and was not waited for does not count."""
    answer = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], check=False, capture_output=True, text=True)
    return answer.stdout.strip()[:1] not in {"", "Z"}
