"""The local broker works as the other tests, the demo and the benchmarks need it."""

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from examples.local_kafka import KafkaStartError, LocalKafka, Record, produce
from examples.local_kafka.__main__ import run
from tests.fixtures import Kafka
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


@pytest.fixture(scope="module")
def own() -> Iterator[LocalKafka]:
    """A broker that tests may stop, started in a thread that has ended."""
    kafka = LocalKafka(properties={"num.partitions": 3})
    thread = threading.Thread(target=kafka.start)
    thread.start()
    thread.join()
    yield kafka
    kafka.stop()


def test_a_command_gets_the_address() -> None:
    """`{}` in a command stands for the address; its exit code is returned, and 127 if there is no such command."""
    says = "import sys; sys.exit(sys.argv[1:] != ['--at=h:1,i:2', 'x'])"

    assert run("h:1,i:2", [sys.executable, "-c", says, "--at={}", "x"]) == 0
    assert run("h:1", [sys.executable, "-c", says, "{}"]) == 1
    assert run("h:1", ["there-is-no-such-command"]) == 127


def test_records_come_back(broker: Kafka, topic: Callable[..., str]) -> None:
    """Each record has its key, value, headers and timestamp, at the offset that `produce` returned."""
    name = topic(partitions=2)
    records: list[Record] = [
        (0, b"key", b"value", [], 1),
        (1, None, b"no key", [("one", b"1"), ("one", b""), ("two", b"2")], 1_700_000_000_000),
        (0, b"no value", None, [], 253_402_300_799_000),
        (0, None, None, [("neither", b"")], 0),
        (0, b"", b"", [], 5),
    ]

    offsets = produce(broker.bootstrap_servers, name, records)

    assert offsets == [0, 0, 1, 2, 3]
    assert _read(broker, name) == sorted(
        (partition, offset, key, value, list(headers), timestamp)
        for offset, (partition, key, value, headers, timestamp) in zip(offsets, records, strict=True)
    )


def test_transactions(broker: Kafka, topic: Callable[..., str]) -> None:
    """Records of a committed transaction are read; those of an aborted one only as uncommitted records."""
    name = topic()
    produce(broker.bootstrap_servers, name, [(0, None, b"good", [], None)], transaction="commit")
    produce(broker.bootstrap_servers, name, [(0, None, b"bad", [], None)], transaction="abort")
    produce(broker.bootstrap_servers, name, [(0, None, b"plain", [], None)])

    committed = [row[1:4:2] for row in _read(broker, name, isolation_level="read_committed")]
    uncommitted = [row[1:4:2] for row in _read(broker, name, isolation_level="read_uncommitted")]

    assert committed == [(0, b"good"), (4, b"plain")]
    assert uncommitted == [(0, b"good"), (2, b"bad"), (4, b"plain")]


@pytest.mark.slow("restarts a broker")
def test_restart(own: LocalKafka) -> None:
    """A restarted broker is another process with the same address and the same data."""
    produce(own.bootstrap_servers, "restart", [(0, None, b"before", [], None)])
    pid = own.pid

    own.halt()
    assert not _listens(own.bootstrap_servers)
    own.start()
    produce(own.bootstrap_servers, "restart", [(0, None, b"between", [], None)])
    own.restart()

    assert own.pid not in {None, pid}
    assert [row[3] for row in _read(own, "restart")] == [b"before", b"between"]


@pytest.mark.slow("a broker of its own")
def test_pause(own: LocalKafka) -> None:
    """A paused broker accepts connections and does not answer; a resumed one answers."""
    own.pause()
    try:
        assert _listens(own.bootstrap_servers)
        with pytest.raises(KafkaError):
            KafkaAdminClient(bootstrap_servers=own.bootstrap_servers, bootstrap_timeout_ms=1000)
    finally:
        own.resume()

    with closing(KafkaAdminClient(bootstrap_servers=own.bootstrap_servers)) as admin:
        assert len(admin.describe_cluster()["brokers"]) == 1


@pytest.mark.slow("a broker of its own")
def test_stop_leaves_nothing() -> None:
    """After the `with` block there is no process, no folder and no listener, even if the broker was paused."""
    with LocalKafka() as kafka:
        pid, folder = kafka.pid, kafka.folder
        watchdog = kafka._watchdog
        assert pid
        assert folder
        assert folder.exists()
        assert watchdog
        assert _listens(kafka.bootstrap_servers)
        kafka.pause()

    assert not _runs(pid)
    assert watchdog.poll() is not None
    assert not folder.exists()
    assert not _listens(kafka.bootstrap_servers)
    kafka.stop()


@pytest.mark.slow("a broker for each end")
@pytest.mark.parametrize(
    ("end", "kind", "count"),
    [
        pytest.param("exit", "LocalKafka", 1, marks=pytest.mark.long("as with SIGKILL")),
        pytest.param("SIGTERM", "LocalKafka", 1, marks=pytest.mark.long("as with SIGKILL")),
        ("SIGKILL", "LocalKafka", 1),
        ("SIGKILL", "OldestKafka", 2),
    ],
)
def test_owner_ends(end: str, kind: str, count: int) -> None:
    """However the owner ends without `stop()`, it leaves no process and no folder behind."""
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
def test_failed_start() -> None:
    """A broker that cannot start says why with the end of its log, and leaves no folder behind."""
    kafka = LocalKafka(properties={"num.io.threads": "no number"})

    with pytest.raises(KafkaStartError, match=r"num\.io\.threads"):
        kafka.start()
    assert kafka.folder is None
    assert kafka.pid is None


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


@contextmanager
def _consumer(bootstrap_servers: str, **settings: Any) -> Iterator[Any]:
    settings.setdefault("enable_auto_commit", False)
    with closing(KafkaConsumer(bootstrap_servers=bootstrap_servers, **settings)) as consumer:
        yield consumer


def _read(kafka: Kafka, topic: str, **settings: Any) -> list[tuple[Any, ...]]:
    """Return all records of a topic, by partition and offset."""
    rows = []
    with _consumer(kafka.bootstrap_servers, **settings) as consumer:
        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        deadline = time.monotonic() + 60
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            assert time.monotonic() < deadline
            for records in consumer.poll(500).values():
                rows += [(r.partition, r.offset, r.key, r.value, r.headers, r.timestamp) for r in records]
    return sorted(rows, key=lambda row: row[:2])


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
