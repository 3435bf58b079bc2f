"""Executors that die while they read, and tasks that Spark runs twice at a time, give each row once."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from pyspark.sql import SparkSession

from examples.local_kafka import LocalKafka, create_topic
from tests.fixtures import PRELOAD
from tests.spark.standalone import HOST, Cluster, cluster, descendants
from tests.spark.streams import write_rows
from tests.support.paths import ROOT
from tests.support.proxy import CountingProxy, counted_kafka

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow("a cluster of six JVMs")]

# Spark does not run a task twice at a time on one host.
HOSTS = (HOST, "127.0.0.2")
EXECUTOR = "CoarseGrainedExecutorBackend"
PATH = os.pathsep.join([str(PRELOAD), str(ROOT)])
CLIENT = "counted-executor"
ROWS = range(2000)
BYTES = 20_000  # of a partition's 120,000 are sent before the answers are held back
TURNS = 1 if int(os.environ.get("TICDC_KILLS", "0")) < 20 else 5  # how often each executor is killed

LONGEST = 400  # seconds until something has happened; an executor is there in 5 on two idle cores

Counted: TypeAlias = tuple[LocalKafka, CountingProxy]


class Job:
    """A driver on the cluster, `attempts_job.py`, and where it writes."""

    def __init__(self, running: Cluster, servers: str, folder: Path) -> None:
        self.folder = folder
        self._cluster = running
        with (folder / "driver.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.attempts_job", running.master, servers, "t", str(folder)],
                cwd=ROOT,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": HOST, "PYTHONPATH": PATH},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._expect("ready")

    def begin(self, how: str, name: str) -> None:
        """Start a step."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{how} {name}\n")
        self._process.stdin.flush()

    def finish(self, name: str) -> Path:
        """Wait until a step is done, and return the folder of its files."""
        self._expect(f"done {name}")
        return self.folder / name

    def until(self, reached: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds, as long as the driver runs."""
        deadline = time.monotonic() + LONGEST
        while not reached():
            assert self._process.poll() is None, self._log
            assert time.monotonic() < deadline, f"not reached in {LONGEST} s: {what}\n{self._log}"
            time.sleep(0.02)

    def executors(self) -> dict[int, int]:
        family = descendants(self._cluster.processes)
        command = ["ps", "-A", "-ww", "-o", "pid=,ppid=,args="]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        rows = [line.split(None, 2) for line in listed.splitlines() if EXECUTOR in line]
        return {int(pid): int(parent) for pid, parent, _ in rows if int(pid) in family}

    def end(self) -> None:
        """End the driver."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(LONGEST)
        finally:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()

    def _expect(self, line: str) -> None:
        assert self._process.stdout is not None
        found = self._process.stdout.readline().strip()
        assert found == line, self._log

    @property
    def _log(self) -> str:
        return (self.folder / "driver.log").read_text(errors="replace")[-20_000:]


@pytest.fixture(scope="module")
def counted() -> Iterator[Counted]:
    """A broker with a topic `t` of four partitions, and the proxy before it."""
    with counted_kafka() as (kafka, proxy):
        create_topic(kafka.bootstrap_servers, "t", 4)
        for begin in ROWS[:: len(ROWS) // 5]:  # five record batches in each partition: a fetch has one or two of them
            write_rows(kafka.bootstrap_servers, "t", *ROWS[begin : begin + len(ROWS) // 5], partitions=4)
        yield kafka, proxy


@pytest.fixture(scope="module")
def job(counted: Counted, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """A driver on a cluster of two workers."""
    folder = tmp_path_factory.mktemp("attempts")
    with cluster(folder, HOSTS, PYTHONPATH=PATH) as running:
        one = Job(running, counted[0].bootstrap_servers, folder)
        try:
            yield one
        finally:
            counted[1].release()
            one.end()


def attempts(folder: Path) -> list[int]:
    """Return which attempt each task was that has read its range to the end, from the metrics of a step."""
    files = [path for path in Path(f"{folder}-metrics").rglob("*") if path.is_file()]
    lines = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    return [line["attempt"] for line in lines if line.get("rows")]


def ids(spark: SparkSession, folder: Path) -> list[int]:
    return [row["id"] for row in spark.read.parquet(str(folder)).orderBy("id").collect()]


@pytest.mark.parametrize("how", ["batch", pytest.param("stream", marks=pytest.mark.long("as a batch, once more"))])
def test_executors_killed_one_by_one(spark: SparkSession, counted: Counted, job: Job, how: str) -> None:
    """Each executor is killed with SIGKILL in the midst of a range; Spark replaces it, and each row is there once."""
    _, proxy = counted

    def reading() -> int:
        return sum(one.is_open for one in proxy.held())

    with proxy.holding(CLIENT, after=BYTES):
        job.begin(how, f"killed-{how}")
        job.until(lambda: reading() == 2, "both executors read")
        killed = []
        for worker in list(job.executors().values()) * TURNS:
            (executor,) = (pid for pid, parent in job.executors().items() if parent == worker)
            os.kill(executor, signal.SIGKILL)
            killed.append(executor)
            job.until(lambda: reading() == 1, "the connections of a killed executor are closed")
            job.until(lambda: reading() == 2, "another executor reads in its place")
    folder = job.finish(f"killed-{how}")

    assert len(set(killed)) == 2 * TURNS
    assert max(attempts(folder)) >= 1
    assert ids(spark, folder) == list(ROWS)


@pytest.mark.parametrize("how", [pytest.param("batch", marks=pytest.mark.long("as in a stream")), "stream"])
def test_a_task_that_runs_twice(spark: SparkSession, counted: Counted, job: Job, how: str) -> None:
    """If a copy of a slow task overtakes it, each row is there once, and the connection of the slow task is closed."""
    _, proxy = counted
    with proxy.holding(CLIENT, after=BYTES, most=1):
        job.begin(how, f"twice-{how}")

        folder = job.finish(f"twice-{how}")

        assert proxy.held()
        assert 1 in attempts(folder)
        assert ids(spark, folder) == list(ROWS)
        is_closed = "the connection of the task that lost is closed"
        job.until(lambda: not any(one.is_open for one in proxy.held()), is_closed)
