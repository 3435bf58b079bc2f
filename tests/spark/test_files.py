"""Files of a storage sink in Spark: batches, streams while TiCDC writes, records and their tables."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.streams import Stream
from tests.support.corpus import Scenario, scenario
from tests.support.storage_sink import StorageSink

pytestmark = pytest.mark.filterwarnings("ignore:The messages of .*:UserWarning")


@pytest.fixture(scope="module")
def ops() -> Scenario:
    return scenario("canal-json.tidb-extension.ops")


@pytest.fixture
def sink(ops: Scenario, tmp_path: Path) -> StorageSink:
    return StorageSink(tmp_path / "sink", ops.header["tables"])


@pytest.fixture
def streams() -> Iterator[list[Stream]]:
    """Return a list of streams; their queries end with the test."""
    made: list[Stream] = []
    yield made
    for one in made:
        for query in one.started:
            query.stop()


def stream_of(spark: SparkSession, sink: StorageSink, folder: Path, **options: object) -> Stream:
    reader = spark.readStream.format("ticdc").options(
        outputFormat="event", includeMetadata="kafka", **{k: str(v) for k, v in options.items()}
    )
    return Stream(spark, reader.load(str(sink.folder)), folder)


@pytest.mark.slow("streams")
def test_a_stream_reads_what_ticdc_writes_while_it_runs(
    spark: SparkSession, ops: Scenario, sink: StorageSink, streams: list[Stream], tmp_path: Path
) -> None:
    """Rows and DDL of new tables and versions come exactly once, over restarts and small micro-batches."""
    third = len(ops.records) // 3
    reader = stream_of(spark, sink, tmp_path / "stream", maxOffsetsPerTrigger=7)
    streams.append(reader)

    checkpoints = set()
    for start in range(0, len(ops.records), third):
        sink.write(ops.records[start : start + third])
        reader.finish()
        checkpoints.add((sink.folder / "metadata").read_text() if (sink.folder / "metadata").exists() else None)

    rows = spark.read.parquet(str(tmp_path / "stream" / "output")).collect()
    true = Counter(line.truth["op"] for line in ops.records)
    found = Counter(row["_op"] if row["_event_type"] == "row" else row["_event_type"] for row in rows)
    assert {op: found[op] for op in ("insert", "update", "delete", "ddl")} == {
        op: true[op] for op in ("insert", "update", "delete", "ddl")
    }
    assert len({(row["_topic"], row["_sequence"]) for row in rows}) == len(rows)
    assert found["watermark"] == len(checkpoints - {None}) > 1  # one at the end of a run
    assert max(row["_commit_version"] for row in rows if row["_event_type"] == "watermark") == max(
        line.truth["commit_ts"] for line in ops.records if line.truth["op"] == "watermark"
    )
