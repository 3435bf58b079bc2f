"""The example scripts, run on the demo's messages, keep the rows that SQL has."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from examples import stream_to_parquet
from examples.data import Message, read_messages, read_truth
from examples.demo.added_columns import added_columns
from examples.demo.compare import compare
from examples.demo.pipeline import current_rows, fill_added_columns
from examples.local_kafka import produce
from tests.fixtures import Kafka
from tests.support import parquet_copy
from tests.support.paths import ROOT

pytestmark = [pytest.mark.broker, pytest.mark.spark]

TABLE = "shop.orders"
KEYS = ["order_id"]
SECONDS = 300  # for a script; it takes 12 on two idle cores


class Feed:
    """The messages of a protocol, and a topic that they are written to in parts."""

    def __init__(self, broker: Kafka, topic: str, protocol: str) -> None:
        self.topic = topic
        self.messages = read_messages(protocol)
        self.bootstrap = broker.bootstrap_servers
        self.added = [column for column in added_columns(protocol, self.messages) if column.table == TABLE]
        self._written = 0

    def write(self, part: float = 1.0) -> None:
        """Write messages until a part of them is in the topic; a column is added in the middle."""
        end = int(len(self.messages) * part)
        self._write(self.messages[self._written : end])
        self._written = end

    def _write(self, messages: Iterable[Message]) -> None:
        produce(self.bootstrap, self.topic, [(*message, [], None) for message in messages])

    def check(self, rows: DataFrame) -> None:
        truth = read_truth()[TABLE]
        comparison = compare(truth, fill_added_columns(rows, self.added).toArrow())
        assert (comparison.rows, comparison.differences) == (len(truth.rows), [])


@pytest.fixture
def feed(broker: Kafka, topic: Callable[..., str]) -> Callable[[str], Feed]:
    """A function that returns the feed of a protocol with an empty topic."""
    return lambda protocol: Feed(broker, topic(3), protocol)


def run(script: str, feed: Feed, folder: Path) -> str:
    (folder / "here").mkdir(exist_ok=True)
    given = {"bootstrap": feed.bootstrap, "subscribe": feed.topic, "table": TABLE}
    given |= {"output": str(folder / "output"), "checkpoint": str(folder / "checkpoint")}
    conf = "--conf spark.ui.enabled=false --conf spark.sql.session.timeZone=UTC pyspark-shell"
    done = subprocess.run(
        [sys.executable, "-m", f"examples.{script}", *(f"--{name}={value}" for name, value in given.items())],
        cwd=folder / "here",
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_SUBMIT_ARGS": conf, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long("a JVM for each run of a script")
def test_a_log_of_changes(spark: SparkSession, feed: Callable[[str], Feed], tmp_path: Path) -> None:
    """Two runs of stream_to_parquet keep each message's rows once, and the view has each change once."""
    changes = feed("canal-json")
    changes.write(0.4)
    assert "channel" not in run("stream_to_parquet", changes, tmp_path)
    changes.write()
    printed = run("stream_to_parquet", changes, tmp_path)

    log = spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "output"))
    whole = spark.read.format("ticdc").option("kafka.bootstrap.servers", changes.bootstrap)
    sent = whole.option("subscribe", changes.topic).option("tables", TABLE).load()
    assert "|          delete|  471|" in printed
    assert sorted(log.columns) == sorted(sent.columns)
    assert log.select(sent.columns).exceptAll(sent).count() == 0
    assert log.count() == sent.count()

    counts = {row["_change_type"]: row["count"] for row in log.groupBy("_change_type").count().collect()}
    distinct = stream_to_parquet.distinct_changes(spark, str(tmp_path / "output"))
    once = {row["_change_type"]: row["count"] for row in distinct.groupBy("_change_type").count().collect()}
    truth = read_truth()[TABLE]
    images = ("insert", "update_postimage", "delete")
    assert sum(counts[image] - once[image] for image in images) == truth.repeated > 0
    assert f"|          delete|  {once['delete']}|" in printed
    changes.check(current_rows(log))


@pytest.mark.long("the copy has tests of it")
def test_a_copy_in_any_order(spark: SparkSession, feed: Callable[[str], Feed], tmp_path: Path) -> None:
    """Micro-batches that are merged in reverse order, and the older one twice, give the rows of SQL."""
    changes = feed("canal-json")
    changes.write()
    options = {"kafka.bootstrap.servers": changes.bootstrap, "subscribe": changes.topic, "tables": TABLE}
    sent = spark.read.format("ticdc").options(**options).load().where("_change_type <> 'update_preimage'").cache()
    middle = sent.approxQuantile("_commit_version", [0.5], 0.0)[0]
    halves = [sent.where(f"_commit_version {side} {middle:.0f}") for side in ("<", ">=")]

    merge = parquet_copy.merge_into(str(tmp_path), KEYS)
    for number, half in enumerate((halves[1], halves[0], halves[0])):
        assert half.count() > 1000
        merge(half, number)
    changes.check(parquet_copy.rows(spark, str(tmp_path)))
    sent.unpersist()
