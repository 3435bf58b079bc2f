"""Batch jobs one after another over a topic that grows (docs/guides/repeated-batches.md)."""

import random
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field

import pytest
from kafka import KafkaAdminClient, TopicPartition
from pyspark.sql import SparkSession

from examples.local_kafka import produce
from tests.spark.conftest import MakeTopic
from tests.support.messages import TSO, Message, canal, watermark
from ticdc_source.errors import DataLossError, OptionError
from ticdc_source.options.options import Options
from ticdc_source.planning.batch_reads import commit_range, complete_until
from ticdc_source.sources.kafka import KafkaCluster

SEED = 20261122
PARTITIONS = 3
JOBS = 6
SECOND = 1000 << 18
KEEP = {"retention.ms": "-1"}  # the records' times are fixed, and grow old
Written = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes]], int]


def insert(number: int, commit_ts: int, table: str = "t") -> Message:
    """Make an insert of row `number`."""
    return canal("INSERT", [{"id": str(number)}], None, {"id": "int"}, table=table, _tidb={"commitTs": commit_ts})


@dataclass
class Changefeed:
    """TiCDC, as Kafka sees it: partitions are written at different speeds, and messages are repeated after restarts.

    Attributes:
        commits: the commit-ts of each row, by its number, oldest first; two rows share one.
        sent: how many of its rows each topic partition has.
        written: the rows of each topic partition, in the order of their offsets.
        clock_ms: how much TiCDC's clock is behind TiDB's.
    """

    chance: random.Random
    commits: dict[int, int] = field(default_factory=dict)
    sent: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    written: list[list[int | None]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    clock_ms: int = 20_000

    def commit(self, rows: int) -> None:
        """Commit transactions of two rows, some seconds apart."""
        last = max(self.commits.values(), default=TSO)
        for number in range(len(self.commits), len(self.commits) + rows):
            last += 0 if number % 2 else self.chance.randrange(1, 20 * SECOND)
            self.commits[number] = last

    def deliver(self) -> list[Written]:
        """Return the records that come next: of each partition some rows, after them the watermark they permit."""
        records = []
        for partition in range(PARTITIONS):
            own = [number for number in self.commits if number % 7 % PARTITIONS == partition]
            start = self.sent[partition]
            again = self.chance.choice((0, 0, 9))  # a restart: from an older checkpoint
            end = self.chance.randint(start + (len(own) - start) // 3, len(own))
            rows = own[max(0, start - again) : end]
            records += [self._record(partition, insert(row, self.commits[row]), self.commits[row]) for row in rows]
            self.sent[partition] = end
            mark = self.commits[own[end]] - 1 if end < len(own) else max(self.commits.values()) + 1
            records.append(self._record(partition, watermark(mark), mark))
            self.written[partition] += [*rows, None]
        return records

    def _record(self, partition: int, message: Message, ts: int) -> Written:
        """Give a message the earliest times that it may have: soon after its commit, by a clock that is behind."""
        return partition, *message, [], (ts >> 18) + self.chance.randrange(5000) - self.clock_ms


@pytest.mark.slow("six batch jobs")
def test_jobs_one_after_another_read_each_commit_once(spark: SparkSession, servers: str, topic: MakeTopic) -> None:
    """Over partitions of different speeds, repeated messages and a clock that is behind, no row is lost or doubled.

    No job after the first reads from the earliest offsets. To go on where the last job ended would lose rows.
    """
    name, feed = topic(PARTITIONS, KEEP), Changefeed(random.Random(SEED))
    options = {"kafka.bootstrap.servers": servers, "subscribe": name, "tables": "test.t"}
    since, found, lost_by_offsets = None, Counter[tuple[int, int]](), 0

    for job in range(JOBS):
        feed.commit(100)
        produce(servers, name, feed.deliver())
        until = complete_until(options, since=since)
        limits = commit_range(since, until)
        schema = spark.read.format("ticdc").options(**options).load().schema
        frame = spark.read.format("ticdc").options(**options, **limits).schema(schema).load()
        rows = [(row["id"], row["_commit_version"]) for row in frame.collect()]
        assert set(rows) == {(number, ts) for number, ts in feed.commits.items() if (since or 0) <= ts < until}, (
            f"seed {SEED}, job {job}: [{since}, {until})"
        )
        found.update(set(rows))
        with KafkaCluster(Options.of({**options, **limits})) as cluster:
            starts = [one.start for one in cluster.resolve_ranges()]
        assert (min(starts) > 0) == (job > 0), f"seed {SEED}, job {job}: {starts}"
        read = [number for numbers in feed.written for number in numbers if number is not None]
        lost_by_offsets += sum(feed.commits[number] >= until for number in read)
        assert since is None or until > since
        since = until

    assert max(found.values()) == 1
    assert len(found) > 400
    assert lost_by_offsets > 0
    assert any(len(numbers) > len(set(numbers)) + JOBS for numbers in feed.written), "no message was repeated"


@pytest.mark.slow("several batch jobs")
def test_a_job_without_rows_and_a_job_that_is_repeated(spark: SparkSession, servers: str, topic: MakeTopic) -> None:
    """A job in which nothing was committed gives no rows, and a repeated job gives the same rows as before."""
    name = topic(1, KEEP)
    options = {"kafka.bootstrap.servers": servers, "subscribe": name, "tables": "test.t"}
    at = {number: TSO + number * 600 * SECOND for number in range(5)}

    def write(message: Message, number: int) -> None:
        produce(servers, name, [(0, *message, [], (at[number] >> 18) + 1)])

    def read(since: int | None, until: int) -> list[int]:
        schema = spark.read.format("ticdc").options(**options).load().schema
        frame = spark.read.format("ticdc").options(**options, **commit_range(since, until)).schema(schema).load()
        return sorted(row["id"] for row in frame.collect())

    write(insert(0, at[0]), 0)
    write(watermark(at[1]), 1)
    first = complete_until(options)
    assert (first, read(None, first)) == (at[1], [0])
    assert complete_until(options, since=first) == first
    assert read(first, first) == []
    write(insert(7, at[1] + 1, "other"), 1)
    write(watermark(at[2]), 2)
    second = complete_until(options, since=first)
    assert (second, read(first, second)) == (at[2], [])
    write(insert(1, at[2]), 2)
    write(insert(2, at[3]), 3)
    write(watermark(at[3]), 3)
    third = complete_until(options, since=second)
    write(insert(3, at[3] + 1), 3)
    write(watermark(at[4]), 4)
    assert (third, read(second, third), read(second, third)) == (at[3], [1], [1])


@pytest.mark.broker
def test_deleted_records_are_data_loss(servers: str, topic: MakeTopic) -> None:
    """If Kafka deleted records that may be newer than the last job's end, the error says so before anything is read."""
    name = topic(1, KEEP)
    options = {"kafka.bootstrap.servers": servers, "subscribe": name}
    at = [TSO + number * 600 * SECOND for number in range(4)]
    produce(servers, name, [(0, *watermark(ts), [], ts >> 18) for ts in at])
    assert complete_until(options, since=at[1]) == at[3]

    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        admin.delete_records({TopicPartition(name, 0): 2})

    with pytest.raises(DataLossError, match=rf"deleted records of {name}-0 \(first offset 2\).* Take a snapshot"):
        complete_until(options, since=at[1])
    with pytest.warns(UserWarning, match="Data has been lost"):
        assert complete_until({**options, "failOnDataLoss": "false"}, since=at[1]) == at[3]
    assert complete_until(options) == at[3]


def test_the_options_of_a_job() -> None:
    """A job starts at the records that are a minute older than its first commit, and ends below its last."""
    since, until = TSO, TSO + SECOND

    assert commit_range(since, until) == {
        "startingTimestamp": str((TSO >> 18) - 60_000),
        "startingOffsetsByTimestampStrategy": "latest",
        "startingCommitTs": str(since),
        "endingCommitTs": str(until),
    }
    assert commit_range(None, until) == {"startingOffsets": "earliest", "endingCommitTs": str(until)}
    with pytest.raises(OptionError, match="cannot end before the one that precedes it"):
        commit_range(until, since)
    with pytest.raises(OptionError, match="'endingCommitTs' cannot be used with complete_until"):
        complete_until({"kafka.bootstrap.servers": "x:1", "subscribe": "t", "endingCommitTs": "resolved"})
