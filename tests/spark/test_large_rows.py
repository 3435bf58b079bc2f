"""Workers read the claim-check files of rows that are too large for Kafka."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from examples.local_kafka import produce
from tests.fixtures import Kafka
from tests.support.captured import load

SCENARIOS = [
    "canal-json.claim-check-raw-value.snappy.large",
    pytest.param("open-protocol.claim-check.lz4.large", marks=pytest.mark.slow("the same with another protocol")),
]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_workers_read_the_files(
    scenario: str, spark: SparkSession, broker: Kafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    """Spark returns the rows of the core; without the folder of the files, the error names the option."""
    captured = load(scenario)
    for file, content in captured.files.items():
        (tmp_path / file).write_bytes(content)
    name = topic(len(captured.partitions))
    produce(
        broker.bootstrap_servers,
        name,
        [
            (partition, record.key, record.value, [], None)
            for partition, records in captured.partitions.items()
            for record in records
        ],
    )
    reader = spark.read.format("ticdc").options(
        **{"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": name}
    )

    expected = captured.read(claimCheckLocation=str(tmp_path))
    found = reader.option("claimCheckLocation", str(tmp_path)).load()

    assert found.columns == expected.column_names
    order = ("_sequence.partition", "_sequence.offset", "_sequence.index", "_sequence.rank")
    given = found.orderBy(*order).select("_change_type", "tenant", "name", "body", "raw", "n").toArrow().to_pylist()
    assert given == sorted_rows(expected.to_pylist(), list(given[0]))
    broken = spark.read.format("ticdc").options(
        **{"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": name}
    )
    with pytest.raises(PySparkException, match="set 'claimCheckLocation'"):
        broken.load().collect()


def sorted_rows(rows: list[dict[str, object]], names: list[str]) -> list[dict[str, object]]:
    """Return some columns of rows, in the order of `_sequence`."""

    def position(row: dict[str, object]) -> tuple[int, ...]:
        sequence = row["_sequence"]
        assert isinstance(sequence, dict)
        return tuple(sequence[part] for part in ("partition", "offset", "index", "rank"))

    return [{name: row[name] for name in names} for row in sorted(rows, key=position)]
