"""avro and debezium-avro in Spark, with a real Kafka and a real schema registry."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

import ticdc_source
from examples.local_kafka import produce
from tests.encoders.avro import Avro, DebeziumAvro
from tests.encoders.tables import Column, Table
from tests.spark.streams import Stream, failure_of
from tests.support.apicurio import moved, running
from tests.support.messages import TSO, Message

pytestmark = pytest.mark.slow("a schema registry in Java")
MakeStream = Callable[..., Stream]
ID, NAME = Column("id", "bigint", nullable=False), Column("name", "varchar(9)", charset="utf8mb4")
AMOUNT = Column("amount", "decimal(10,2)")
ORDERS = Table("shop", "orders", (ID, NAME), ("id",), ("id",))
GROWN = Table("shop", "orders", (ID, NAME, AMOUNT), ("id",), ("id",))
STOCK = Table("shop", "stock", (ID, AMOUNT), ("id",), ("id",))
ENCODERS = {"avro": Avro(extension=True), "debezium-avro": DebeziumAvro(extension=True)}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("registry")) as url:
        yield url


def change(encoder: Any, table: Table, op: str, number: int, **values: str) -> Message:
    """Return a message: an insert with these values, or a delete of a row that had them."""
    side = "before" if op == "delete" else "after"
    columns = [{"name": one.name, "mysql_type": one.mysql_type, side: values.get(one.name)} for one in table.columns]
    event = {"op": op, "schema": table.schema, "table": table.name, "commit_ts": TSO + number, "columns": columns}
    message: Message = encoder.message([event], [table])
    return message


def test_a_stream_of_a_topic_per_table(
    registry: str, stream: MakeStream, topic: Callable[..., str], servers: str
) -> None:
    """Events of all tables come from one pattern of topics; rows of a new schema are read without a restart."""
    encoder, orders, stock = ENCODERS["avro"], topic(1), topic(1)

    def write(name: str, *messages: Message) -> None:
        produce(servers, name, [(0, *moved(message, registry, name), [], None) for message in messages])

    options = {"schema.registry.url": registry, "outputFormat": "event", "startingOffsets": "earliest"}
    write(orders, change(encoder, ORDERS, "insert", 1, id="1", name="é"))
    reader = stream(f"{orders},{stock}", **options)
    reader.finish()
    write(orders, change(encoder, GROWN, "insert", 2, id="2", name="b", amount="1.50"))
    write(stock, change(encoder, STOCK, "insert", 3, id="7", amount="-0.01"))
    write(orders, change(encoder, GROWN, "delete", 4, id="1", name="é"))
    reader.finish()

    rows = reader.spark.read.parquet(str(reader.folder / "output")).orderBy("_table", "_sequence.offset").collect()
    found = [(each["_table"], each["_op"], each["after"]) for each in rows]
    assert found == [
        ("orders", "insert", '{"id":1,"name":"é"}'),
        ("orders", "insert", '{"id":2,"name":"b","amount":1.50}'),
        ("orders", "delete", None),
        ("stock", "insert", '{"id":7,"amount":-0.01}'),
    ]
    assert rows[2]["key"] == '{"id":1}'


@pytest.mark.parametrize("protocol", ENCODERS)
def test_a_batch_read_and_a_dataframe_have_the_same_rows(
    protocol: str, registry: str, spark: SparkSession, topic: Callable[..., str], servers: str
) -> None:
    """`load()`, and `decode` and `tables` of records, give typed rows of both versions of a table."""
    encoder, name = ENCODERS[protocol], topic(1)
    messages = [
        change(encoder, ORDERS, "insert", 1, id="1", name="é"),
        change(encoder, GROWN, "insert", 2, id="2", name="b", amount="1.50"),
    ]
    produce(servers, name, [(0, *moved(message, registry, name), [], None) for message in messages])
    kafka = {"kafka.bootstrap.servers": servers, "subscribe": name}
    where = {"schema.registry.url": registry}

    read = spark.read.format("ticdc").options(**kafka, **where).load()
    records = spark.read.format("ticdc").options(**kafka, **where, outputFormat="record").load()
    decoded = ticdc_source.decode(records, tables="shop.orders", **where)

    expected = [(1, "é", None), (2, "b", "1.50")]
    for frame in (read, decoded):
        rows = frame.orderBy("id").collect()
        assert [(row["id"], row["name"], row["amount"] and str(row["amount"])) for row in rows] == expected
        assert dict(frame.dtypes)["amount"] == "decimal(10,2)"
    with ticdc_source.tables(records, **where) as changes:  # type: ignore[arg-type] # (its options are any others)
        assert list(changes) == ["shop.orders"]
        assert changes["shop.orders"].count() == 2


def test_a_registry_that_stops_ends_the_query(
    stream: MakeStream, topic: Callable[..., str], servers: str, tmp_path: Any
) -> None:
    """The error names the schema and what to check, and comes in bounded time; after a restart nothing is lost."""
    encoder, name = ENCODERS["avro"], topic(1)
    with running(tmp_path) as url:
        first = moved(change(encoder, ORDERS, "insert", 1, id="1", name="a"), url, name)
        second = moved(change(encoder, GROWN, "insert", 2, id="2", name="b", amount="1.50"), url, name)
        produce(servers, name, [(0, *first, [], None)])
        given = {"schema.registry.url": url, "outputFormat": "event", "startingOffsets": "earliest"}
        tries = {"fetchOffset.numRetries": "1", "http.connect.timeout.ms": "500"}
        reader = stream(name, **given, **tries)
        reader.finish()
    produce(servers, name, [(0, *second, [], None)])

    error = failure_of(reader.start(availableNow=True))

    assert "SchemaRegistryUnavailableError: The schema registry has not answered" in error
    assert "ECONNREFUSED" in error
