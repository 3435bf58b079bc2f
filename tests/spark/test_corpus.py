"""Rows of the corpus, read through Spark and a real broker, are the SQL truth."""

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession

from examples.local_kafka import produce
from tests.corpus.test_corpus import differences, options_of, quoted
from tests.spark.conftest import MakeTopic
from tests.support.captured import load
from tests.support.registry import registry_options
from tests.support.truth import tables_with_rows, true_rows
from ticdc_source.protocols import PROTOCOLS

SCENARIOS = [
    "open-protocol.default.types",
    "canal-json.tidb-extension.types",
    "debezium.default.types",
    "simple.json.types",
    "simple.avro.types",
    "avro.include-before-value",
    "debezium-avro.default",
]
OTHERS = (pytest.param(name, marks=pytest.mark.slow("the same with another protocol")) for name in SCENARIOS[1:])
EVERY_TYPE = "t_all"
EVERY_TYPE_IN_AVRO = ("t_int", "t_dec", "t_str", "t_time", "t_enum")


@pytest.mark.parametrize("tables", [EVERY_TYPE, pytest.param("all", marks=pytest.mark.long("33 reads a protocol"))])
@pytest.mark.parametrize("scenario", [SCENARIOS[0], *OTHERS])
def test_rows_are_the_sql_truth(
    spark: SparkSession, servers: str, topic: MakeTopic, scenario: str, tables: str
) -> None:
    """Values of every MySQL type, from messages of each protocol, are in Spark what they are in SQL."""
    captured = load(scenario)
    name = topic(len(captured.partitions))
    produce(servers, name, [
        (partition, record.key, record.value, [], None)
        for partition, records in captured.partitions.items()
        for record in records
    ])  # fmt: skip
    reader = spark.read.format("ticdc").option("kafka.bootstrap.servers", servers).option("subscribe", name)
    reader = reader.options(**registry_options(captured.header))

    compared = 0
    for database, table in tables_with_rows(captured):
        if tables == EVERY_TYPE and table not in (EVERY_TYPE, *EVERY_TYPE_IN_AVRO):
            continue
        frame = reader.options(**options_of(captured)).option("tables", quoted(database, table)).load()
        found = sorted(frame.toArrow().to_pylist(), key=position)
        true = list(true_rows(captured, database, table))
        assert len(found) == len(true)
        for row, truth in zip(found, true, strict=True):
            assert not differences(captured.header, truth, row, Counter()), (table, truth)
        compared += len(found)

    assert compared > 10


def position(row: dict[str, Any]) -> tuple[int, ...]:
    """Return where a row is in its topic: partition, offset, index and rank."""
    sequence: dict[str, int] = row["_sequence"]
    return tuple(sequence[part] for part in ("partition", "offset", "index", "rank"))


def test_every_protocol_has_a_scenario() -> None:
    """Every protocol of topics has a scenario in the list above.

    csv is in files alone (tests/spark/test_files.py), rows of TiDB are in neither (tests/spark/test_snapshot.py).
    """
    assert {scenario.partition(".")[0] for scenario in SCENARIOS} == set(PROTOCOLS) - {"csv", "mysql-rows"}
