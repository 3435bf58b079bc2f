"""A stream goes on while brokers of its cluster die, restart, or are all away.

One stream, started once, runs through all faults of this file; meanwhile a producer goes on writing.
"""

import json
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kafka import KafkaAdminClient, KafkaProducer
from pyspark.sql import SparkSession

from examples.local_kafka import LocalKafkaCluster, create_topic
from tests.sources.kafka.test_cluster import frozen, killed
from tests.spark.restarts import Child, Query, State, offset_of
from tests.spark.streams import written_files
from tests.support.captured import Captured, Record, whole
from tests.support.captured import load as load_capture

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),  # one cluster for the whole file
    pytest.mark.long("three brokers, and a stream in its own JVM"),
]

KILLS = int(os.environ.get("TICDC_KILLS", "2"))
BATCHES = 20  # micro-batches between two kills, where what a stream uses is measured
AWAY_SECONDS = float(os.environ.get("TICDC_AWAY_SECONDS", "6"))
SESSION_SECONDS = 3.0
LONGEST = 240.0  # seconds until something has happened that takes less than 10 on two idle cores
# All brokers are away for longer than a batch read would wait, and a broker is frozen for longer than a request would:
# with TICDC_AWAY_SECONDS=120 with the options' defaults.
PATIENCE = {} if AWAY_SECONDS > 30 else {"kafka.default.api.timeout.ms": "5000", "kafka.request.timeout.ms": "5000"}

CAPTURE = "stream.canal-json.tidb-extension"
PARTITIONS = 3
AT_FIRST = 1000  # records a partition, which are there when the stream starts
TABLE = {"tables": "shop.orders"}


class Writer(threading.Thread):
    """Writes captured records to a topic, over and over and a few at a time, until the end."""

    def __init__(self, servers: str, topic: str, records: Mapping[int, list[Record]]) -> None:
        super().__init__(daemon=True)
        self._topic = topic
        self._records = records
        # It outlives what the stream outlives, and repeats a record without writing it twice (enable.idempotence).
        self._producer = KafkaProducer(bootstrap_servers=servers, delivery_timeout_ms=600_000, metrics_enabled=False)
        self._sent: dict[int, list[Any]] = {partition: [] for partition in records}
        self._writes, self._ends = threading.Lock(), threading.Event()

    def send(self, count: int) -> None:
        """Send the next records of each partition; two threads do, one after the other."""
        with self._writes:
            for partition, records in self._records.items():
                sent = self._sent[partition]
                for _ in range(count):
                    record = records[len(sent) % len(records)]
                    sent.append(self._producer.send(self._topic, record.value, record.key, [], partition))

    def run(self) -> None:
        """Send until the end."""
        while not self._ends.wait(0.1):
            self.send(1)

    def counts(self) -> dict[int, int]:
        return {partition: len(sent) for partition, sent in self._sent.items()}

    @contextmanager
    def paused(self) -> Iterator[dict[int, list[Record]]]:
        """Send nothing while the block runs, which gets each partition's records in the order of their offsets."""
        with self._writes:
            self._producer.flush(LONGEST)
            for sent in self._sent.values():
                assert [future.get(timeout=0).offset for future in sent] == list(range(len(sent)))
            yield {
                partition: [records[number % len(records)] for number in range(len(self._sent[partition]))]
                for partition, records in self._records.items()
            }

    def end(self) -> None:
        """End."""
        self._ends.set()
        self.join(LONGEST)
        self._producer.close(timeout=10)


@dataclass
class Running:
    """A stream that runs over a cluster while records are written; and the first test that failed with it."""

    cluster: LocalKafkaCluster
    topic: str
    writer: Writer
    child: Child
    query: Query
    schema: pa.Schema
    failed: str | None = None

    def offsets(self) -> dict[int, int]:
        committed = State.of(self.query.checkpoint).committed
        found = offset_of(self.query.checkpoint, committed)[self.topic] if committed >= 0 else {}
        return {int(partition): offset for partition, offset in found.items()}

    def reach(self, target: Mapping[int, int]) -> None:
        """Wait until the stream has committed these offsets."""

        def has_reached() -> bool:
            assert self.writer.is_alive(), "the producer has failed"
            offsets = self.offsets()
            return all(offsets.get(partition, 0) >= offset for partition, offset in target.items())

        self.child.wait_for(has_reached, seconds=LONGEST)

    def go_on(self) -> None:
        """Wait until records of each partition that are written from now on have come through."""
        self.reach({partition: count + 1 for partition, count in self.writer.counts().items()})

    def check(self) -> int:
        """Compare all rows so far with the truth, and return how many there are."""
        with self.writer.paused() as records:
            self.reach({partition: len(sent) for partition, sent in records.items()})
            expected = Captured({}, records).read(sizes=whole, schema=self.schema, **TABLE)
            files = sorted(written_files(self.query.output))
            found = pa.concat_tables(pq.read_table(path, coerce_int96_timestamp_unit="us") for path in files)
        assert found.column_names == expected.column_names
        assert in_order(found.cast(expected.schema)) == in_order(expected)
        assert "terminated with error" not in self.child.log, self.child.log
        assert "Lost task" not in self.child.log, self.child.log
        return len(found)

    def admin(self) -> Any:
        return closing(KafkaAdminClient(bootstrap_servers=self.cluster.bootstrap_servers))

    def elect_preferred(self) -> dict[int, int]:
        """Let the first replica of each partition lead, and return the leaders."""
        deadline = time.monotonic() + LONGEST
        with self.admin() as admin:
            while True:
                admin.elect_leaders(0, {self.topic: list(range(PARTITIONS))}, raise_errors=False)
                (topic,) = admin.describe_topics([self.topic])
                partitions = topic["partitions"]
                if all(each["leader_id"] == each["replica_nodes"][0] for each in partitions):
                    return {each["partition_index"]: each["leader_id"] for each in partitions}
                assert time.monotonic() < deadline, partitions
                time.sleep(0.2)

    @contextmanager
    def all_away(self) -> Iterator[None]:
        """No broker runs while the block runs."""
        self.cluster.halt()
        try:
            yield
        finally:
            self.cluster.start()


def in_order(table: pa.Table) -> list[dict[str, Any]]:
    def place(row: dict[str, Any]) -> tuple[int, ...]:
        sequence = row["_sequence"]
        return sequence["partition"], sequence["offset"], sequence["index"], sequence["rank"]

    return sorted(table.to_pylist(), key=place)


@pytest.fixture(scope="module")
def one_for_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A running stream."""
    folder = tmp_path_factory.mktemp("faults")
    topic = "tidb-orders"
    with LocalKafkaCluster(session_seconds=SESSION_SECONDS) as cluster:
        create_topic(cluster.bootstrap_servers, topic, PARTITIONS, replicas=3)
        captured = load_capture(CAPTURE).only("shop", "orders").partitions
        records = {partition: list(islice(captured[partition], AT_FIRST)) for partition in range(PARTITIONS)}
        writer = Writer(cluster.bootstrap_servers, topic, records)
        writer.send(AT_FIRST)
        with writer.paused() as written:
            schema = Captured({}, written).schema(**TABLE)
        options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic, **TABLE, **PATIENCE}
        query = Query({**options, "startingOffsets": "earliest"}, str(folder / "query"))
        child = Child([query], folder / "child")
        try:
            child.wait_for(lambda: child.has_started)
            writer.start()
            running = Running(cluster, topic, writer, child, query, schema)
            running.reach(writer.counts())
            yield running
        finally:
            child.kill()
            if writer.ident is not None:
                writer.end()


@pytest.fixture
def running(one_for_all: Running, request: pytest.FixtureRequest) -> Iterator[Running]:
    """The running stream. It is unknown what a failed test has left of it: all that follow fail at once."""
    if one_for_all.failed is not None:
        pytest.fail(f"{one_for_all.failed} has failed with the same stream", pytrace=False)
    failures = request.session.testsfailed
    yield one_for_all
    if request.session.testsfailed > failures:
        one_for_all.failed = request.node.name


def say(text: str) -> None:
    """Print a line of the protocol."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)  # noqa: T201


def test_killed_brokers_end_no_stream(running: Running) -> None:
    """A stream goes on while one broker after the other dies of SIGKILL, each a leader and a follower, and returns."""
    for number in range(KILLS):
        leaders = running.elect_preferred()
        broker = 1 + number % 2
        led = [partition for partition, leader in leaders.items() if leader == broker + 1]
        assert 0 < len(led) < PARTITIONS
        with killed(running.cluster.brokers[broker]):
            began = time.monotonic()
            running.go_on()
            went_on = time.monotonic() - began
        running.go_on()
        rows = running.check()
        say(
            f"kill {number + 1} of {KILLS} (TICDC_KILLS): broker {broker + 1}, leader of partition {led[0]}; all "
            f"partitions went on after {went_on:.1f} s; {rows} rows are the truth"
        )


def test_frozen_brokers_end_no_stream(running: Running) -> None:
    """A stream goes on while a broker, a leader and a follower, accepts connections and answers nothing."""
    freezes = 1 + KILLS // 5
    for number in range(freezes):
        running.elect_preferred()
        broker = running.cluster.brokers[1 + number % 2]
        with frozen(broker):
            began = time.monotonic()
            running.go_on()
            went_on = time.monotonic() - began
        running.go_on()
        rows = running.check()
        say(
            f"freeze {number + 1} of {freezes} (TICDC_KILLS / 5): all partitions went on after {went_on:.1f} s; "
            f"{rows} rows are the truth"
        )


def test_a_rolling_restart_ends_no_stream(running: Running) -> None:
    """A stream goes on while all brokers restart one after the other, the controller too."""
    for broker in running.cluster.brokers:
        broker.restart()
        running.go_on()
    say(f"rolling restart: {running.check()} rows are the truth")


def test_a_stream_outlives_the_absence_of_all_brokers(running: Running) -> None:
    """A stream waits while the whole cluster is away, goes on by itself, and its log has a line now and then."""
    before = len(running.child.log)
    began = time.monotonic()
    with running.all_away():
        time.sleep(AWAY_SECONDS)
    away = time.monotonic() - began
    running.go_on()
    rows = running.check()
    log, seconds = running.child.log[before:], time.monotonic() - began
    say(f"all brokers away for {away:.0f} s (TICDC_AWAY_SECONDS): {rows} rows are the truth; the log meanwhile:\n{log}")
    assert "ECONNREFUSED" in log
    assert re.search("answers after", log)
    assert "Traceback" not in log
    assert log.count("\n") < 20 + seconds


def use(child: Child) -> dict[str, Counter[str]]:
    """Return how many processes of Java and of Python a stream has, and the most KiB, files and threads of one."""
    found = {"java": Counter[str](), "python": Counter[str]()}
    for pid in (child.pid, *child.family()):
        process = Path("/proc") / str(pid)
        with suppress(OSError):  # it has ended
            status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
            files = len(list((process / "fd").iterdir()))
            name = "java" if status["Name"].strip() == "java" else "python"
            memory = int(status.get("VmRSS", "0").split()[0])
            count = found[name]["processes"] + 1
            found[name] |= Counter(memory=memory, files=files, threads=int(status["Threads"]), processes=count)
    return found


# How much more may be used by chance; two pools of Spark's block manager have up to 100 threads, now and then.
SLACK = {
    "java": {"memory": 150_000, "files": 32, "threads": 200, "processes": 0},
    "python": {"memory": 32_000, "files": 16, "threads": 16, "processes": 3},
}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_files_and_threads_stay_flat(running: Running) -> None:
    """What the processes of a stream use does not rise with its micro-batches and with brokers that come and go."""
    used = []
    for _ in range(3):  # the first turn is the start
        for broker in running.cluster.brokers[1:]:
            with killed(broker):
                running.go_on()
            for _ in range(BATCHES):
                running.go_on()
        used.append(use(running.child))
    say(f"Java and Python after three turns of kills: {used}")
    for name, slack in SLACK.items():
        _, before, after = (turn[name] for turn in used)
        assert before["processes"] > 0
        assert not {what: after[what] for what in slack if after[what] > 1.2 * before[what] + slack[what]}, before


@contextmanager
def no_jobs_left(spark: SparkSession) -> Iterator[None]:
    """Cancel the jobs that the block leaves if it fails: its threads would wait for them."""
    try:
        yield
    finally:
        spark.sparkContext.cancelAllJobs()


def test_a_batch_read_outlives_the_leader_it_reads_from(spark: SparkSession, running: Running, tmp_path: Path) -> None:
    """The leader of a partition dies in the middle of a batch read: it returns every row once."""
    leaders = running.elect_preferred()
    with running.writer.paused() as records:
        pass  # what is written from now on is not read
    ends = {str(partition): len(sent) for partition, sent in records.items()}
    options = {
        **running.query.options,
        "endingOffsets": json.dumps({running.topic: ends}),
        "maxRecordsPerPartition": str(sum(map(len, records.values())) // 40),  # so that there are tasks after the kill
        "metricsPath": str(tmp_path),
        "inferSchema.maxRecords": "100000",  # the topic has its captured records over and over: no end has every column
    }
    frame = spark.read.format("ticdc").options(**options).load()
    tasks = frame.rdd.getNumPartitions()
    broker = running.cluster.brokers[max(leaders.values()) - 1]  # not the controller
    with ThreadPoolExecutor(1) as threads, no_jobs_left(spark):
        reading = threads.submit(frame.toArrow)
        while len(list(tmp_path.glob("*"))) < 3:
            assert not reading.done()
            time.sleep(0.01)
        with killed(broker):
            finished = len(list(tmp_path.glob("*")))
            found = reading.result()
    say(f"batch read: a leader died after {finished} of {tasks} tasks; {found.num_rows} rows")
    assert finished < tasks
    expected = Captured({}, records).read(sizes=whole, schema=running.schema, **TABLE)
    assert in_order(found.cast(expected.schema)) == in_order(expected)
