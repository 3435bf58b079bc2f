"""`decode` and `tables` under Spark: records of a DataFrame, and the tables of a micro-batch."""

from collections import Counter
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

import ticdc_source
from examples.local_kafka import LocalKafka, create_topic, produce
from tests.corpus.test_corpus import options_of, quoted
from tests.spark.conftest import MakeStream, MakeTopic
from tests.spark.streams import failure_of, write
from tests.support.captured import load
from tests.support.messages import TSO, Message, canal, watermark
from tests.support.truth import tables_with_rows
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.table_name import TableName

pytestmark = pytest.mark.filterwarnings("ignore:The messages of .*:UserWarning")

ADD = "ALTER TABLE b ADD COLUMN note VARCHAR(10)"
SLOW = pytest.mark.slow("each micro-batch takes some seconds")


def row(table: str, number: int, commit_ts: int, **more: str) -> Message:
    types = {"id": "int", **dict.fromkeys(more, "varchar(10)")}
    cells = {"id": str(number), **more}
    return canal(
        "INSERT", [cells], None, types, database="shop", table=table, pkNames=["id"], _tidb={"commitTs": commit_ts}
    )


def ddl(table: str, query: str, commit_ts: int, kind: str = "ALTER") -> Message:
    return canal(kind, None, None, None, database="shop", table=table, isDdl=True, sql=query,
                 _tidb={"commitTs": commit_ts})  # fmt: skip


@pytest.fixture
def records(spark: SparkSession, servers: str) -> Any:
    """A function that reads a topic as records."""

    def read(topic: str) -> DataFrame:
        reader = spark.read.format("ticdc").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
        return reader.option("outputFormat", "record").load()

    return read


@pytest.mark.parametrize("scenario", [
    "open-protocol.default",
    *(pytest.param(name, marks=pytest.mark.long("the same with another protocol"))
        for name in ("canal-json.tidb-extension", "debezium.default")),
])  # fmt: skip
def test_decode_equals_the_source(
    spark: SparkSession, servers: str, topic: MakeTopic, records: Any, scenario: str
) -> None:
    """The rows and the schema that decode gives for records are those of the source, metadata included."""
    captured = load(f"{scenario}.types")
    name = topic(len(captured.partitions))
    produce(servers, name, [
        (partition, record.key, record.value, [("h", b"1")], None)
        for partition, all_ in captured.partitions.items() for record in all_
    ])  # fmt: skip
    database, table = next(name for name in tables_with_rows(captured) if name[1] == "t_all")
    options = {"tables": quoted(database, table), "includeMetadata": "all", "includeHeaders": "true",
               **options_of(captured)}  # fmt: skip
    reader = spark.read.format("ticdc").option("kafka.bootstrap.servers", servers).option("subscribe", name)

    expected = reader.options(**options).load()
    found = ticdc_source.decode(records(name), **options)

    assert found.schema == expected.schema == ticdc_source.infer_schema(records(name), **options)
    order = ["_partition", "_offset", "_sequence.index", "_sequence.rank"]
    assert found.orderBy(order).toArrow().equals(expected.orderBy(order).toArrow())
    assert found.count() > 10
    unseen = cast(DataFrame, Unseen(records(name)))
    planned = ticdc_source.decode(unseen, found.schema, **options, protocol=captured.header["protocol"])
    assert planned.schema == found.schema
    assert planned.orderBy(order).toArrow().equals(found.orderBy(order).toArrow())


class Unseen:
    """A frame that nothing may analyse, as in the query function of a declarative pipeline."""

    def __init__(self, frame: DataFrame) -> None:
        self.select = frame.select

    @property
    def columns(self) -> list[str]:
        raise AnalysisException("ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION")


def test_nothing_need_be_analysed_once_schema_and_protocol_are_given(spark: SparkSession) -> None:
    """Columns may have other names and types, and metadata that no column tells is NULL."""
    key, value = row("a", 7, TSO)
    schema = ticdc_source.infer_schema(
        spark.createDataFrame([(key, value)], "key binary, value binary"), includeMetadata="kafka"
    )
    named = ("decode(_value, 'UTF-8') AS VALUE", "3 AS _offset", "1700000000123L AS timestamp", "1 AS x")
    records = spark.createDataFrame([(value,)], "_value binary").selectExpr(*named)

    def read(frame: DataFrame) -> list[Row]:
        options = {"protocol": "canal-json", "includeMetadata": "kafka"}
        return ticdc_source.decode(cast(DataFrame, Unseen(frame)), schema, **options).collect()

    (found,) = read(records)
    assert (found["id"], found["_offset"], found["_sequence"]["offset"]) == (7, 3, 3)
    assert found["_timestamp"] == datetime(2023, 11, 14, 22, 13, 20, 123000)  # noqa: DTZ001 (Spark's, in UTC)
    assert (found["_topic"], found["_partition"], found["_sequence"]["partition"]) == (None, None, None)
    with pytest.raises(PySparkException, match="SchemaError: The DataFrame has no column `value`"):
        read(spark.sql("SELECT 1 AS offset"))
    with pytest.raises(PySparkException, match="SchemaError: Column offset has the type double"):
        read(spark.sql("SELECT 'x' AS value, 7D AS offset"))


def test_bad_frames_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """A DataFrame without messages, or with a column of another type, is an error that names the column."""
    with pytest.raises(ticdc_source.errors.SchemaError, match="infer_schema"):
        ticdc_source.decode(spark.readStream.schema("value binary").parquet(str(tmp_path)), tables="a.b")
    with pytest.raises(ticdc_source.errors.SchemaError, match="no column `value`"):
        ticdc_source.decode(spark.range(1), tables="a.b")
    with pytest.raises(ticdc_source.errors.SchemaError, match="Column value has the type bigint"):
        ticdc_source.decode(spark.range(1).withColumnRenamed("id", "value"), tables="a.b")
    with pytest.raises(ticdc_source.errors.SchemaError, match="Column offset has the type string"):
        ticdc_source.decode(spark.sql("SELECT 'x' AS value, 'y' AS offset"), tables="a.b")


class Sync:
    """A stream whose micro-batches are split into tables; it collects what they have.

    Attributes:
        batches: for each micro-batch, its number, its resolved ts, and the ids of each table.
    """

    def __init__(self, folder: Path, **how: Any) -> None:
        self.state = ticdc_source.SyncState(str(folder / "state"))
        self.how = how
        self.batches: list[tuple[int, int | None, dict[str, list[int]]]] = []
        self.ddl: list[list[str]] = []
        self.errors: list[dict[str, str]] = []
        self.fails_after = -1

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Take a micro-batch."""
        found = ticdc_source.tables(batch, state=self.state, batch_id=batch_id, **self.how)
        ids = {name: sorted(each.id for each in self.rows(frame)) for name, frame in found.items()}
        self.batches.append((batch_id, found.resolved_ts, ids))
        self.ddl.append([event.query for events in found.ddl.values() for event in events])
        self.errors.append({name: str(error) for name, error in found.errors.items()})
        if batch_id == self.fails_after:
            raise RuntimeError("on purpose")

    def rows(self, frame: DataFrame) -> list[Row]:
        return frame.collect() if "id" in frame.columns else []


def test_the_records_of_each_task_tell_types(spark: SparkSession) -> None:
    messages = [row("a", 1, TSO), row("a", 2, TSO + 1, note="x"), row("b", 3, TSO + 2), row("a", 4, TSO + 3, more="y")]
    frame = spark.createDataFrame(messages, "key binary, value binary").repartition(4)

    with ticdc_source.tables(frame) as changes:
        columns = {name: {*each.columns} & {"id", "note", "more"} for name, each in changes.items()}

    assert columns == {"shop.a": {"id", "note", "more"}, "shop.b": {"id"}}


def test_the_records_of_a_micro_batch_are_those_of_the_topic(servers: str, topic: MakeTopic, records: Any) -> None:
    """Packed in fewer rows, they come back as `outputFormat=record` gives them, all or those of some tables."""
    name = topic(2)
    write(servers, name, *(row("ab"[number % 2], number, TSO + number) for number in range(30)), watermark(TSO + 5))
    write(servers, name, row("a", 40, TSO), ddl("b", ADD, TSO + 4), (b"k", b"broken"), partition=1)
    place = ["_topic", "_partition", "_offset"]
    expected = records(name).orderBy(place).collect()

    with pytest.warns(UserWarning, match="it does not begin like JSON"):
        changes = ticdc_source.tables(records(name), mode="DROPMALFORMED")
    with changes:
        every = changes.records().drop("_held").orderBy(place).collect()
        some = changes.records(sf.array_contains("_tables", "shop.b")).drop("_held").orderBy(place).collect()

    assert every == expected
    assert some == [each for each in expected if "shop.b" in each["_tables"]]
    assert len(some) == 16


@pytest.mark.slow("runs a stream")
@pytest.mark.parametrize("schema", [None, ticdc_source.packed_schema()], ids=["records", "packed"])
def test_a_micro_batch_is_split_into_typed_tables(
    servers: str, topic: MakeTopic, stream: MakeStream, tmp_path: Path, schema: StructType | None
) -> None:
    """Each micro-batch gives the changes of each of its tables, new tables and new columns included."""
    name = topic(2)
    write(servers, name, row("a", 1, TSO), row("b", 2, TSO + 1), row("c", 3, TSO))
    made = stream(name, schema, outputFormat="record", startingOffsets="earliest")
    sync = Sync(tmp_path, tables="shop.a, shop.b")
    made.start(sync, availableNow=True).awaitTermination()
    write(servers, name, row("a", 4, TSO + 2), row("a", 5, TSO + 3, note="x"), row("a", 6, TSO + 4), partition=1)
    made.start(sync, availableNow=True).awaitTermination()

    assert [ids for _, _, ids in sync.batches] == [{"shop.a": [1], "shop.b": [2]}, {"shop.a": [4, 5, 6]}]
    assert [number for number, _, _ in sync.batches] == [0, 1]


@SLOW
def test_resolved_changes_wait_for_all_partitions(
    servers: str, topic: MakeTopic, stream: MakeStream, tmp_path: Path
) -> None:
    """With consistency=resolved a change comes once, when the watermarks of all topic partitions have passed it.

    A micro-batch that fails after its tables were read gives the same changes, DDL and resolved ts when repeated.
    """
    name = topic(2)
    made = stream(name, outputFormat="record", startingOffsets="earliest")
    sync = Sync(tmp_path, consistency="resolved", tables="shop.*")
    steps: list[tuple[list[Message], list[Message]]] = [
        ([row("a", 1, TSO + 1), watermark(TSO + 5)], [row("a", 2, TSO + 2)]),  # partition 1 has no watermark
        ([row("a", 3, TSO + 9)], [ddl("b", ADD, TSO + 4), row("b", 4, TSO + 4, note="x"), watermark(TSO + 3)]),
        ([watermark(TSO + 4)], [watermark(TSO + 20)]),  # TiCDC has restarted: a smaller watermark
        ([watermark(TSO + 30)], [row("a", 5, TSO + 40)]),
    ]
    for first, second in steps:
        write(servers, name, *first)
        write(servers, name, *second, partition=1)
        with pytest.warns(UserWarning, match="1 of 2 topic partitions") if not sync.batches else _quiet():
            if len(sync.batches) == 2:
                sync.fails_after = 2
                assert "on purpose" in failure_of(made.start(sync, availableNow=True))
                sync.fails_after = -1
            made.start(sync, availableNow=True).awaitTermination()

    assert sync.batches == [
        (0, None, {}),
        (1, TSO + 3, {"shop.a": [1, 2]}),
        *[(2, TSO + 5, {"shop.b": [4]})] * 2,
        (3, TSO + 20, {"shop.a": [3]}),
    ]
    assert sync.ddl == [[], [], [ADD], [ADD], []]


class _quiet:  # noqa: N801 (as contextlib's)
    def __enter__(self) -> None:
        """Expect nothing."""

    def __exit__(self, *_: object) -> None:
        """Expect nothing."""


@SLOW
def test_a_table_that_cannot_be_read_is_left_out(
    servers: str, topic: MakeTopic, stream: MakeStream, tmp_path: Path
) -> None:
    """With on_table_error="skip" a table with a bad value is reported and stays out; the others go on."""
    name = topic(1)
    write(servers, name, row("a", 1, TSO), canal("INSERT", [{"id": "no number"}], None, {"id": "int"},
                                                     database="shop", table="b", _tidb={"commitTs": TSO}))  # fmt: skip
    made = stream(name, outputFormat="record", startingOffsets="earliest")
    sync = Sync(tmp_path, on_table_error="skip")
    with pytest.warns(UserWarning, match=r"table shop\.b is left out"):
        made.start(sync, availableNow=True).awaitTermination()
    write(servers, name, row("a", 2, TSO), row("b", 3, TSO))
    made.start(sync, availableNow=True).awaitTermination()

    assert [ids for _, _, ids in sync.batches] == [{"shop.a": [1]}, {"shop.a": [2]}]
    assert "no number" in sync.errors[0]["shop.b"]
    assert "has been left out since micro-batch 0" in sync.errors[1]["shop.b"]

    failing = Sync(tmp_path / "other")
    assert "no number" in failure_of(stream(name, outputFormat="record", startingOffsets="earliest").start(failing))


@SLOW
def test_a_state_of_another_stream_is_refused(
    servers: str, topic: MakeTopic, stream: MakeStream, tmp_path: Path, records: Any
) -> None:
    """A SyncState that lacks the micro-batch before is an error: silently it would forget watermarks and DDL."""
    name = topic(1)
    write(servers, name, row("a", 1, TSO))
    state = ticdc_source.SyncState(str(tmp_path / "state"))
    with pytest.raises(ticdc_source.errors.CheckpointError, match="micro-batch 6"):
        ticdc_source.tables(records(name), state=state, batch_id=7)
    ticdc_source.tables(records(name), state=state, batch_id=0).close()
    with pytest.raises(ticdc_source.errors.CheckpointError, match="holds that of micro-batch 0"):
        ticdc_source.tables(records(name), state=state, batch_id=4)
    with pytest.raises(ticdc_source.errors.OptionError, match="batch_id"):
        ticdc_source.tables(records(name), state=state)
    with pytest.raises(ticdc_source.errors.OptionError, match="SyncState"):
        ticdc_source.tables(records(name), consistency="resolved")
    with pytest.raises(ticdc_source.errors.SchemaError, match="foreachBatch"):
        ticdc_source.tables(stream(name, outputFormat="record").frame)


def test_drop_database_reaches_tables_known_from_elsewhere(spark: SparkSession) -> None:
    """DROP DATABASE comes for a table of which only `known_ddl` tells, as for one with earlier rows."""
    known = DDLEvent(position=0, index=0, commit_ts=TSO, table=TableName("shop", "a"),
                     query="CREATE TABLE a (id INT PRIMARY KEY)", type="create table")  # fmt: skip
    message = ddl("", "DROP DATABASE shop", TSO + 1, "DDATABASE")
    frame = spark.createDataFrame([message], "key binary, value binary")
    with ticdc_source.tables(frame, known_ddl={"shop.a": (known,)}) as changes:
        reached = {name: [event.query for event in events] for name, events in changes.ddl.items()}

    assert reached == {key: ["DROP DATABASE shop"] for key in ("database shop", "shop.a")}


@pytest.mark.long("a broker of its own, and a query for each of 200 tables")
@pytest.mark.timeout(1800)  # a minute on two idle cores
def test_two_hundred_tables_cost_one_fetch(spark: SparkSession, tmp_path: Path) -> None:
    """By the broker's own counter, reading 200 tables of a topic sends the topic once, and a little for inference."""
    tables, rows, size = 200, 60, 4000
    with LocalKafka(jmx=True) as kafka:
        create_topic(kafka.bootstrap_servers, "many", 2)
        for partition in range(2):
            write(kafka.bootstrap_servers, "many", *(
                row(f"t{number}", line, TSO + line, filler="x" * size)
                for line in range(partition, rows, 2) for number in range(tables)
            ), partition=partition)  # fmt: skip
        reader = spark.readStream.format("ticdc").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        stream = reader.option("subscribe", "many").option("startingOffsets", "earliest")
        counts: Counter[str] = Counter()

        def split(batch: DataFrame, _: int) -> None:
            with ticdc_source.tables(batch, tables="shop.*") as found:
                named = [changes.select("id", sf.lit(name).alias("name")) for name, changes in found.items()]
                for first in range(0, tables, 20):  # few jobs: each costs its start
                    some = reduce(DataFrame.union, named[first : first + 20])
                    counts.update({each["name"]: each["count"] for each in some.groupBy("name").count().collect()})

        written = bytes_of(spark, kafka, "BytesInPerSec")
        query = stream.option("outputFormat", "record").load().writeStream.foreachBatch(split)
        query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
        sent = bytes_of(spark, kafka, "BytesOutPerSec")

    print(f"written {written:,} bytes, sent {sent:,} bytes")  # noqa: T201
    assert counts == {f"shop.t{number}": rows for number in range(tables)}
    assert written > tables * rows * size
    assert sent < 1.25 * written


def bytes_of(spark: SparkSession, kafka: LocalKafka, counter: str) -> int:
    jvm = spark._jvm
    assert jvm is not None
    url = jvm.javax.management.remote.JMXServiceURL(f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{kafka.jmx_port}/jmxrmi")
    connector = jvm.javax.management.remote.JMXConnectorFactory.connect(url)
    try:
        name = jvm.javax.management.ObjectName(f"kafka.server:type=BrokerTopicMetrics,name={counter},topic=many")
        return int(connector.getMBeanServerConnection().getAttribute(name, "Count"))
    finally:
        connector.close()
