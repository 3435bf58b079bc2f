"""`outputFormat` event and envelope, and reads that end at a watermark, through Spark and a real broker."""

import json
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession

from examples.local_kafka import produce
from tests.spark.conftest import MakeStream, MakeTopic
from tests.support.captured import Captured, events_of, load
from tests.support.messages import TSO, canal, open_message, watermark

Read = Callable[..., DataFrame]
OPS = {"insert": "c", "update": "u", "delete": "d"}
ORDER = ("_sequence.partition", "_sequence.offset", "_sequence.index")


@pytest.fixture
def batch(spark: SparkSession, servers: str) -> Read:
    """A function that loads a topic."""

    def read(topic: str, **options: str) -> DataFrame:
        reader = spark.read.format("ticdc").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
        return reader.options(**options).load()

    return read


def write(servers: str, topic: str, captured: Captured) -> None:
    """Write captured messages."""
    produce(servers, topic, [
        (partition, record.key, record.value, [], None)
        for partition, records in captured.partitions.items() for record in records
    ])  # fmt: skip


def test_events_can_be_variants(batch: Read, servers: str, topic: MakeTopic) -> None:
    """With `variantJson`, the documents of events are VARIANT, and missing documents are NULL."""
    name = topic()
    message = canal("INSERT", [{"id": "7", "c": "x"}], None, {"id": "bigint", "c": "varchar"}, _tidb={"commitTs": TSO})
    produce(servers, name, [(0, *message, [], None)])

    frame = batch(name, outputFormat="event", variantJson="true")
    (row,) = frame.selectExpr("before", "variant_get(after, '$.id', 'bigint') id", "to_json(key) key").collect()

    assert (row["before"], row["id"], row["key"]) == (None, 7, '{"id":7}')


# Debezium's documentation, "New Record State Extraction": the transformation ExtractNewRecordState with
# add.fields=op,table,source.ts_ms and delete.handling.mode=rewrite keeps the new row, of a delete the old one, and adds
# these fields. "Message Filtering": the condition `value.op == 'u' && value.before.id == 2`.
NEW_RECORD_STATE = """
    SELECT row.*, op AS __op, source.table AS __table, source.ts_ms AS __source_ts_ms, string(op = 'd') AS __deleted
    FROM (SELECT *, coalesce(after, before) AS row FROM {envelope}) ORDER BY _sequence
"""
FILTER = "SELECT after FROM {envelope} WHERE op = 'u' AND before.id = 2"


@pytest.mark.slow("two Spark queries")
def test_queries_that_were_written_for_debezium_run(
    spark: SparkSession, batch: Read, servers: str, topic: MakeTopic
) -> None:
    """Two transformations of Debezium's documentation, as queries, return what SQL did."""
    name = topic(3)
    captured = load("canal-json.tidb-extension.ops").only("ops", "acct")
    write(servers, name, captured)
    envelope = batch(name, tables="ops.acct", outputFormat="envelope")

    states = spark.sql(NEW_RECORD_STATE, envelope=envelope).collect()
    updated = spark.sql(FILTER, envelope=envelope).collect()

    events = [event for records in captured.partitions.values() for record in records
              for event in events_of(record.truth) if event["op"] in OPS and event["table"] == "acct"]  # fmt: skip
    events.sort(key=lambda event: event["commit_ts"])
    rows = [{column["name"]: column.get("after", column.get("before")) for column in event["columns"]}
            for event in events]  # fmt: skip
    assert [(row["id"], row["__op"], row["__table"], row["__source_ts_ms"], row["__deleted"]) for row in states] == [
        (int(row["id"]), OPS[event["op"]], "acct", event["commit_ts"] >> 18, str(event["op"] == "delete").lower())
        for event, row in zip(events, rows, strict=True)
    ]
    assert len(updated) == sum(
        event["op"] == "update" and row["id"] == "2" for event, row in zip(events, rows, strict=True)
    )


def test_a_batch_ends_at_the_resolved_commit(batch: Read, servers: str, topic: MakeTopic) -> None:
    """`endingCommitTs=resolved` reads everything below the slowest partition's watermark, and nothing else."""
    name = topic(2)
    insert = {n: canal("INSERT", [{"id": str(n)}], None, {"id": "int"}, _tidb={"commitTs": TSO + n}) for n in range(6)}

    for partition, messages in (
        (0, [insert[0], insert[2], watermark(TSO + 4), insert[4]]),
        (1, [insert[1], watermark(TSO + 3), insert[3], insert[5]]),
    ):
        produce(servers, name, [(partition, *message, [], None) for message in messages])

    rows = batch(name, endingCommitTs="resolved").orderBy("id").collect()

    assert [row["id"] for row in rows] == [0, 1, 2]
    rest = batch(name, startingCommitTs=str(TSO + 3)).orderBy("id").collect()
    assert [row["id"] for row in rest] == [3, 4, 5]


@pytest.mark.slow("a batch and a stream, each from many offsets")
def test_each_ddl_of_which_a_read_has_a_copy_comes_once(
    batch: Read, stream: MakeStream, servers: str, topic: MakeTopic
) -> None:
    """A TRUNCATE that only partition 1 has behind its start is a row, and after restarts no DDL event comes twice."""
    name = topic(2)

    def write_ddl(commit_ts: int, query: str, *partitions: int) -> None:
        head = {"ts": commit_ts, "scm": "test", "tbl": "t", "t": 2}
        message = open_message((head, {"q": query, "t": 11}))
        produce(servers, name, [(partition, *message, [], None) for partition in partitions])

    def queries(frame: DataFrame) -> list[str]:
        return sorted(row["ddl_query"] for row in frame.where("_event_type = 'ddl'").collect())

    write_ddl(TSO, "truncate table t", 0, 1)
    write_ddl(TSO + 1, "create table t", 0, 1)
    options = {"outputFormat": "event", "startingOffsets": json.dumps({name: {"0": 1, "1": 0}})}
    one = stream(name, **options)
    read = batch(name, **options)
    assert queries(read) == ["create table t", "truncate table t"]

    one.finish()
    write_ddl(TSO + 2, "drop table t", 1)  # a micro-batch ends before partition 0 has its copy
    one.finish()
    write_ddl(TSO + 2, "drop table t", 0)
    one.finish()

    written = one.spark.read.parquet(str(one.folder / "output"))
    assert queries(written) == ["create table t", "drop table t", "truncate table t"]
    assert all(offset["$ddl"][name].keys() == {"0"} for offset in one.offsets())
