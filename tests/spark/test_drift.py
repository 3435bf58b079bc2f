"""Schemas that change, read through Spark and a real broker: drift, rescued data, types from DDL, VARIANT."""

import json
import random
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from tests.fixtures import Kafka
from tests.kernels.test_variants import SEED, random_document
from tests.spark.conftest import MakeStream, MakeTopic
from tests.spark.streams import failure_of, insert, write, write_rows
from tests.support.messages import canal
from ticdc_source.kernels.variants import variant_of

pytestmark = [pytest.mark.spark, pytest.mark.broker]


@pytest.mark.slow("three streams, one after the other")
def test_a_new_column_ends_a_stream_and_its_restart_has_it(stream: MakeStream, servers: str, topic: MakeTopic) -> None:
    """The error for a new column names table, column and offset; the restarted query continues and has it."""
    name = topic()
    write_rows(servers, name, 1, 2)
    first = stream(name, startingOffsets="earliest")
    first.finish()
    write(servers, name, insert(3, note="new"))

    message = failure_of(first.start(availableNow=True))
    again = stream(name, startingOffsets="earliest")
    again.folder = first.folder
    again.finish()

    for part in ("note varchar", "offset=2", "table=test.t", "onSchemaDrift"):
        assert part in message
    assert again.ids() == [1, 2, 3]
    read = again.spark.read.option("mergeSchema", "true").parquet(str(first.folder / "output"))
    assert [row["note"] for row in read.orderBy("id").collect()] == [None, None, "new"]


@pytest.mark.slow("a stream and its restart")
def test_a_stream_that_rescues_continues(stream: MakeStream, servers: str, topic: MakeTopic) -> None:
    """With `onSchemaDrift=rescue`, a new column is in `_rescued_data`."""
    name = topic()
    write_rows(servers, name, 1)
    one = stream(name, startingOffsets="earliest", onSchemaDrift="rescue")
    one.finish()
    write(servers, name, insert(2, note="new"))
    one.finish()

    rows = one.spark.read.parquet(str(one.folder / "output")).orderBy("id").collect()

    assert [row["_rescued_data"] for row in rows] == [None, '{"note":"new"}']


def test_json_columns_as_variants(spark: SparkSession, broker: Kafka, topic: MakeTopic) -> None:
    """Spark's functions read JSON columns as VARIANT; NULL and the row of a bad record are NULL."""
    name = topic()
    documents = ['{"a": {"b": [1.50, "x"]}}', None, "[null]", "{"]
    messages = [
        canal("INSERT", [{"id": str(number), "j": text}], None, {"id": "int", "j": "json"})
        for number, text in enumerate(documents)
    ]
    write(broker.bootstrap_servers, name, *messages)
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": name, "variantJson": "true",
               "mode": "PERMISSIVE"}  # fmt: skip

    frame = spark.read.format("ticdc").options(**options).load()
    found = frame.selectExpr("try_variant_get(j, '$.a.b[0]', 'decimal(9,2)') n", "cast(j as string) t", "j is null m")

    assert frame.schema["j"].dataType.simpleString() == "variant"
    assert [tuple(row) for row in found.collect()] == [
        (Decimal("1.50"), '{"a":{"b":[1.5,"x"]}}', False),
        (None, None, True),
        (None, "[null]", False),
        (None, None, True),
    ]


@pytest.mark.slow("many Spark queries")
def test_a_variant_is_the_bytes_of_parse_json(spark: SparkSession) -> None:
    """A VARIANT has the bytes of `parse_json`, for random documents and for numbers at the limits of types."""
    chooser = random.Random(SEED)
    texts = [json.dumps(random_document(chooser), ensure_ascii=number % 2 == 0) for number in range(300)]
    for bits in (7, 8, 15, 16, 31, 32, 63, 64, 126, 127):
        texts += [str(sign * (1 << bits) + more) for sign in (1, -1) for more in (-1, 0, 1)]
    for digits in (9, 10, 18, 19, 38, 39):
        texts += [f"{'9' * digits}.5", f"-0.{'0' * (digits - 1)}1", f"{'1' * digits}", f"1.{'0' * digits}"]
    texts += ["-0", "-0.0", "0.00", "1e5", "1E-400", "1e400", "0.1e1", json.dumps("x" * 63), json.dumps("x" * 64),
              json.dumps({"b": 1, "a": 2, "é": 3, "😀": 4, "\ufffd": 5}), json.dumps(list(range(256))),
              json.dumps({f"k{n}": n for n in range(70_000)})]  # fmt: skip

    frame = spark.createDataFrame(list(enumerate(texts)), "n int, t string").selectExpr("n", "parse_json(t) v")

    for row in frame.collect():
        assert (bytes(row["v"].value), bytes(row["v"].metadata)) == variant_of(texts[row["n"]]), (SEED, texts[row["n"]])
