"""The batch reader, through Spark and a real broker."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from examples.local_kafka import produce
from tests.fixtures import Kafka
from tests.support.messages import TSO, Message, canal, debezium
from ticdc_source import read_arrow
from ticdc_source.errors import DecodeError

MakeTopic = Callable[..., str]
ID = {"id": "int"}


@pytest.fixture
def load(spark: SparkSession, broker: Kafka) -> Callable[..., DataFrame]:
    """A function that loads a topic with options."""

    def load_topic(topic: str | None, schema: str | None = None, **options: object) -> DataFrame:
        reader = spark.read.format("ticdc").option("kafka.bootstrap.servers", broker.bootstrap_servers)
        if topic is not None:
            reader = reader.option("subscribe", topic)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), str(value))
        return (reader.schema(schema) if schema else reader).load()

    return load_topic


@pytest.fixture
def write(broker: Kafka, topic: MakeTopic) -> Callable[..., str]:
    """A function that writes messages to partition 0 of a new topic and returns its name."""

    def write_topic(*messages: Message, partitions: int = 1, headers: Any = ()) -> str:
        name = topic(partitions)
        produce(
            broker.bootstrap_servers,
            name,
            [(0, key, value, list(headers), 1_700_000_000_123) for key, value in messages],
        )
        return name

    return write_topic


def row(number: int, **more: str | None) -> Message:
    types = {**ID, **dict.fromkeys(more, "varchar")}
    return canal("INSERT", [{"id": str(number), **more}], None, types, _tidb={"commitTs": TSO + number})


def test_rows_of_several_partitions_come_typed(load: Callable[..., DataFrame], broker: Kafka, topic: MakeTopic) -> None:
    """Every record of every partition is read once, with its sequence and commit version."""
    name = topic(3)
    produce(broker.bootstrap_servers, name, [(number % 3, *row(number), [], None) for number in range(30)])

    found = load(name).orderBy("id").collect()

    arrow = load(name).toArrow().sort_by("id")
    with read_arrow({"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": name}) as reader:
        without_spark = reader.read_all().sort_by("id")
    assert (without_spark.schema, without_spark.to_pylist()) == (arrow.schema, arrow.to_pylist())
    produce(broker.bootstrap_servers, name, [(2, None, b"no message", [], None)])
    reader = read_arrow({"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": name})
    for _ in range(2):  # who goes on after an error does not meet an end
        with pytest.raises(DecodeError, match="offset=10"):
            reader.read_all()
    assert [r["id"] for r in found] == list(range(30))
    assert [(r["_sequence"]["partition"], r["_sequence"]["offset"]) for r in found] == [
        (n % 3, n // 3) for n in range(30)
    ]
    assert {r["_commit_version"] for r in found} == {TSO + n for n in range(30)}


def test_metadata_headers_and_prefix(load: Callable[..., DataFrame], write: Callable[..., str]) -> None:
    """includeMetadata, includeHeaders and metadataColumnPrefix add columns with the right values."""
    name = write(row(1), headers=[("h", b"v")])

    frame = load(name, includeMetadata="all", includeHeaders="true", metadataColumnPrefix="cdc_")
    found = frame.collect()[0]

    assert frame.columns == [
        "cdc_change_type", "cdc_commit_version", "cdc_commit_timestamp", "cdc_sequence", "id", "cdc_topic",
        "cdc_partition", "cdc_offset", "cdc_timestamp", "cdc_key", "cdc_database", "cdc_table", "cdc_protocol",
        "cdc_start_ts", "cdc_build_ts", "cdc_cluster_id", "cdc_value", "cdc_headers",
    ]  # fmt: skip
    assert (found["cdc_topic"], found["cdc_database"], found["cdc_table"], found["cdc_protocol"]) == (
        name,
        "test",
        "t",
        "canal-json",
    )
    assert found["cdc_headers"] == [("h", b"v")]
    assert bytes(found["cdc_value"]) == row(1)[1]
    assert found["cdc_cluster_id"] is None


def test_a_schema_of_the_users_own(load: Callable[..., DataFrame], write: Callable[..., str]) -> None:
    """`.schema()` decides columns, order and types; columns that it leaves out are not drift."""
    name = write(row(5, a="x", b="y"))

    found = load(name, "b string, _change_type string, ID bigint").collect()

    assert [tuple(r) for r in found] == [("y", "insert", 5)]


def test_a_users_schema_needs_no_message(load: Callable[..., DataFrame], topic: MakeTopic) -> None:
    """With protocol, table and schema given, an empty topic has no rows and is no error."""
    assert load(topic(), "id int", protocol="canal-json", tables="test.t").collect() == []
    assert load(topic(), "id int").collect() == []


@pytest.mark.slow("some Spark queries")
def test_offsets_and_timestamps(load: Callable[..., DataFrame], broker: Kafka, topic: MakeTopic) -> None:
    """Starting and ending offsets and timestamps limit the range as in Spark's Kafka source."""
    name = topic(1)
    produce(broker.bootstrap_servers, name, [(0, *row(n), [], 1_000 + n) for n in range(10)])

    def ids(**options: object) -> list[int]:
        return [r["id"] for r in load(name, **options).orderBy("id").collect()]

    assert ids(startingOffsets=f'{{"{name}":{{"0":3}}}}', endingOffsets=f'{{"{name}":{{"0":6}}}}') == [3, 4, 5]
    assert ids(startingTimestamp=1_004, endingTimestamp=1_007) == [4, 5, 6]
    assert ids(startingOffsets=f'{{"{name}":{{"0":-2}}}}', endingOffsets=f'{{"{name}":{{"0":-1}}}}') == list(range(10))
    assert load(name, minPartitions=4).rdd.getNumPartitions() == 4
    assert load(name, maxRecordsPerPartition=3).rdd.getNumPartitions() == 4
    assert load(name, maxRecordsPerPartition=3).count() == 10


def test_a_batch_cannot_start_at_latest(load: Callable[..., DataFrame], write: Callable[..., str]) -> None:
    """Options that only a stream supports fail at the action: at load(), Spark does not say that it is a batch."""
    frame = load(write(row(1)), startingOffsets="latest")

    with pytest.raises(PySparkException, match="starting offset can't be latest for batch queries"):
        frame.collect()


def test_a_second_table_behind_the_sample_is_an_error(
    load: Callable[..., DataFrame], write: Callable[..., str]
) -> None:
    """A table that inference did not see is an error: it is neither mixed in nor left out."""
    messages = [row(n) for n in range(40)]
    messages[20] = canal("INSERT", [{"id": "1"}], None, ID, table="late")
    frame = load(write(*messages), inferSchema__maxRecords=4)

    with pytest.raises(PySparkException, match=r"(?s)a second table, test\.late.*offset=20"):
        frame.collect()


@pytest.mark.slow("Spark starts a worker for each failed load")
def test_a_mixed_topic_is_refused(load: Callable[..., DataFrame], write: Callable[..., str]) -> None:
    """The error for two protocols in one topic names both and their addresses."""
    name = write(row(1), debezium("c", None, {"id": 1}))

    with pytest.raises(
        PySparkException, match=r"(?s)more than one protocol: canal-json at .*offset=0; debezium at .*offset=1"
    ):
        load(name)
    with pytest.raises(PySparkException, match=r"(?s)DecodeError.*offset=1"):
        load(name, protocol="canal-json").collect()


def test_bad_records_in_the_three_modes(load: Callable[..., DataFrame], write: Callable[..., str]) -> None:
    """FAILFAST fails with the record's address, PERMISSIVE keeps the record, DROPMALFORMED leaves it out."""
    key, value = row(2)
    name = write(row(1), (key, (value or b"")[:40]), row(3))

    with pytest.raises(PySparkException, match=f"(?s)DecodeError.*topic={name} partition=0 offset=1"):
        load(name).collect()
    kept = load(name, mode="PERMISSIVE", columnNameOfCorruptRecord="bad").orderBy("id").collect()
    assert [(r["id"], r["_change_type"]) for r in kept] == [(None, None), (1, "insert"), (3, "insert")]
    assert '"offset": 1' in kept[0]["bad"]
    assert load(name, mode="DROPMALFORMED").count() == 2
