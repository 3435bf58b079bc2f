"""The example scripts, over the bundled messages of TiCDC: what they keep is what SQL says."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from examples import stream_to_table
from examples.data import PROTOCOLS, Message, read_messages, read_truth
from examples.demo.added_columns import added_columns
from examples.demo.compare import compare
from examples.demo.pipeline import current_rows, fill_added_columns
from examples.local_kafka import produce
from tests.conftest import ROOT, Kafka

pytestmark = [pytest.mark.broker, pytest.mark.spark]

TABLE = "shop.orders"
KEYS = ["order_id"]
OWN_JVM = pytest.mark.slow("a JVM for each run of a script")
COPIES = pytest.mark.slow("reads a whole stream several times")
SECONDS = 300  # for a script; 12 on two cores that have nothing else to do


class Feed:
    """A protocol's messages, and the topic that they are written to, a part at a time."""

    def __init__(self, broker: Kafka, topic: str, protocol: str) -> None:
        self.topic = topic
        self.messages = read_messages(protocol)
        self.bootstrap = broker.bootstrap_servers
        self.added = [column for column in added_columns(protocol, self.messages) if column.table == TABLE]
        self._written = 0

    def write(self, part: float = 1.0) -> None:
        """Write messages until so many of all are there; a column is added in the middle of them."""
        end = int(len(self.messages) * part)
        self._write(self.messages[self._written : end])
        self._written = end

    def repeat(self, part: float) -> None:
        """Write the first messages once more, as TiCDC may."""
        self._write(self.messages[: int(len(self.messages) * part)])

    def _write(self, messages: Iterable[Message]) -> None:
        produce(self.bootstrap, self.topic, [(*message, [], None) for message in messages])

    def check(self, rows: DataFrame) -> None:
        """Compare rows with those that SQL had in the end, every column of every row."""
        truth = read_truth()[TABLE]
        comparison = compare(truth, fill_added_columns(rows, self.added).toArrow())
        assert (comparison.rows, comparison.differences) == (len(truth.rows), [])


@pytest.fixture
def feed(broker: Kafka, topic: Callable[..., str]) -> Callable[[str], Feed]:
    """A function that gives the feed of a protocol, of which nothing is written yet."""
    return lambda protocol: Feed(broker, topic(3), protocol)


def run(script: str, feed: Feed, folder: Path) -> str:
    """Run an example as a user does, and return what it printed."""
    (folder / "here").mkdir(exist_ok=True)
    given = {"bootstrap": feed.bootstrap, "topic": feed.topic, "table": TABLE}
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


def copy(spark: SparkSession, feed: Feed, folder: Path) -> DataFrame:
    """Run the stream into a table in this process, and return the table."""
    changes = stream_to_table.read_changes(spark, feed.bootstrap, feed.topic, TABLE)
    assert [field.name for field in changes.schema if field.metadata.get("ticdc.key")] == KEYS
    writer = changes.writeStream.foreachBatch(stream_to_table.merge_into(str(folder / "output"), KEYS))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    return stream_to_table.rows(spark, str(folder / "output"))


@OWN_JVM
def test_a_log_of_changes(spark: SparkSession, feed: Callable[[str], Feed], tmp_path: Path) -> None:
    """Two runs of stream_to_parquet keep every image exactly once, and with the column that was added in between."""
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
    changes.check(current_rows(log))


@OWN_JVM
def test_a_copy_of_a_table(feed: Callable[[str], Feed], tmp_path: Path) -> None:
    """stream_to_table says how many rows the copy has, which are as many as SQL has."""
    changes = feed("open-protocol")
    changes.write()

    assert run("stream_to_table", changes, tmp_path) == "shop.orders, keyed by order_id: 1817 rows\n"


@COPIES
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_copy_goes_on(spark: SparkSession, feed: Callable[[str], Feed], tmp_path: Path, protocol: str) -> None:
    """A copy made in several runs, a column added and old changes repeated in between, is what SQL has."""
    changes = feed(protocol)
    changes.write(0.4)
    assert "channel" not in copy(spark, changes, tmp_path).columns
    changes.write()
    changes.check(copy(spark, changes, tmp_path))
    changes.repeat(0.4)
    changes.check(copy(spark, changes, tmp_path))


@COPIES
def test_a_copy_whose_maker_is_killed(
    spark: SparkSession, feed: Callable[[str], Feed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A micro-batch that comes again changes nothing, wherever its first time ended."""
    changes = feed("canal-json")
    changes.write(0.4)
    before = copy(spark, changes, tmp_path).count()
    changes.write()

    def killed(*_: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(stream_to_table, "make_current", killed)  # a version is written, and not yet current
        with pytest.raises(StreamingQueryException):
            copy(spark, changes, tmp_path)
    assert stream_to_table.rows(spark, str(tmp_path / "output")).count() == before
    with monkeypatch.context() as patch:
        patch.setattr("examples.stream_to_table.shutil.rmtree", killed)  # it is current, and Spark does not know
        with pytest.raises(StreamingQueryException):
            copy(spark, changes, tmp_path)
    changes.check(copy(spark, changes, tmp_path))
    assert len(list((tmp_path / "output").glob("version-*"))) == 2


@COPIES
def test_a_copy_in_any_order(spark: SparkSession, feed: Callable[[str], Feed], tmp_path: Path) -> None:
    """Micro-batches merged last first, and some of them twice, come to the same."""
    changes = feed("canal-json")
    changes.write()
    options = {"kafka.bootstrap.servers": changes.bootstrap, "subscribe": changes.topic, "tables": TABLE}
    sent = spark.read.format("ticdc").options(**options).load().where("_change_type <> 'update_preimage'").cache()
    middle = sent.approxQuantile("_commit_version", [0.5], 0.0)[0]
    halves = [sent.where(f"_commit_version {side} {middle:.0f}") for side in ("<", ">=")]

    merge = stream_to_table.merge_into(str(tmp_path), KEYS)
    for number, half in enumerate((halves[1], halves[0], halves[1], halves[0])):
        assert half.count() > 1000
        merge(half, number)
    changes.check(stream_to_table.rows(spark, str(tmp_path)))
    sent.unpersist()
