"""A Spark cluster of a master and two workers, each a process of its own."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pyspark

HOST = "127.0.0.1"
SPARK = Path(pyspark.__file__).parent
DEPLOY = "org.apache.spark.deploy"
WORKERS = ("worker-1", "worker-2")
SECONDS = 120  # until a process of the cluster is up; it takes 3 on two idle cores


class Cluster(NamedTuple):
    """The master's address, and the processes of the master and the workers."""

    master: str
    processes: list["subprocess.Popen[bytes]"]


def environment(**more: str) -> dict[str, str]:
    hidden = ("PYTHONPATH", "SPARK_CONF_DIR")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    here = {"SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": HOST, "SPARK_DAEMON_MEMORY": "256m"}
    return {**kept, **here, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, **more}


@contextmanager
def daemon(
    folder: Path, up: str, name: str, *arguments: str, host: str = HOST, spark: Path = SPARK, **more: str
) -> Iterator[tuple["subprocess.Popen[bytes]", "re.Match[str]"]]:
    """Run a process of the cluster until the end of the block; the block starts when its log says that it is up."""
    folder.mkdir()
    log = folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [str(spark / "bin" / "spark-class"), f"{DEPLOY}.{name}", "--host", host, "--webui-port", "0", *arguments],
            cwd=folder,
            env=environment(SPARK_HOME=str(spark), **more),
            stdout=file,
            stderr=file,
        )
    try:
        deadline = time.monotonic() + SECONDS
        while not (found := re.search(up, log.read_text(errors="replace"))):
            assert process.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            time.sleep(0.1)
        yield process, found
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def cluster(folder: Path, hosts: Sequence[str] = (HOST, HOST), spark: Path = SPARK, **more: str) -> Iterator[Cluster]:
    """Run a master and two workers with one core each, on free ports."""
    with ExitStack() as stack:
        master, found = stack.enter_context(
            daemon(
                folder / "master",
                r"Starting Spark master at (spark://\S+)",
                "master.Master",
                "--port",
                "0",
                spark=spark,
            )
        )
        started = [master]
        for name, host in zip(WORKERS, hosts, strict=True):
            limits = ("--cores", "1", "--memory", "600m", "--work-dir", str(folder / name / "work"))
            up = "Successfully registered with master"
            running = daemon(folder / name, up, "worker.Worker", *limits, found[1], host=host, spark=spark, **more)
            started += [stack.enter_context(running)[0]]
        yield Cluster(found[1], started)


def processes() -> dict[int, int]:
    command = ["ps", "-A", "-o", "pid=,ppid=,stat="]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = map(str.split, listed.splitlines())
    return {int(pid): int(parent) for pid, parent, state, *_ in rows if not state.startswith("Z")}


def descendants(ancestors: Iterable["subprocess.Popen[bytes]"]) -> set[int]:
    everything = processes()
    first = found = {process.pid for process in ancestors}
    while more := {pid for pid, parent in everything.items() if parent in found} - found:
        found = found | more
    return found - first
