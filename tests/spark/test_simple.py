"""Streams of simple: versions of a table that the records of a micro-batch do not define."""

from collections.abc import Callable

import pytest

from tests.spark.streams import Stream, write
from tests.support.messages import TSO, Message, simple, simple_definition

MakeStream = Callable[..., Stream]
INT = {"mysqlType": "int", "charset": "binary", "length": 11}


def enum(*labels: str) -> dict[str, object]:
    return {"mysqlType": "enum", "charset": "utf8mb4", "length": 9, "elements": list(labels)}


def row(number: int, label: int, version: int) -> Message:
    return simple(data={"id": str(number), "e": str(label)}, version=version, commitTs=TSO + number)


@pytest.mark.slow("four runs of a stream")
def test_a_stream_finds_versions_in_its_topic(stream: MakeStream, topic: Callable[..., str], servers: str) -> None:
    """Rows have the labels of the version that they name: defined in an earlier micro-batch, or in partition 0 only."""
    name = topic(2)
    first, second, third = TSO - 9, TSO - 5, TSO - 3
    created = simple_definition("CREATE", {"id": INT, "e": enum("a", "b")}, first)
    altered = simple_definition("ALTER", {"id": INT, "e": enum("b", "a")}, second)
    for partition in (0, 1):
        write(servers, name, created, row(1 + partition, 1, first), partition=partition)
    reader = stream(name, startingOffsets="earliest", includeMetadata="kafka")
    reader.finish()
    write(servers, name, altered)
    reader.finish()  # no row names the new version yet

    write(servers, name, row(3, 1, second))
    write(servers, name, row(4, 1, second), partition=1)  # partition 1 has no copy of the ALTER
    reader.finish()
    write(servers, name, row(5, 1, third), simple_definition("BOOTSTRAP", {"id": INT, "e": enum("c")}, third))
    reader.finish()

    rows = reader.spark.read.parquet(str(reader.folder / "output")).select("id", "e").collect()
    assert sorted((each.id, each.e) for each in rows) == [(1, "a"), (2, "a"), (3, "b"), (4, "b"), (5, "c")]
