"""Fixtures for tests of streams."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tests.fixtures import Kafka
from tests.spark.streams import Stream

MakeStream: TypeAlias = Callable[..., Stream]
MakeTopic: TypeAlias = Callable[..., str]


@pytest.fixture
def servers(broker: Kafka) -> str:
    """The address of the broker."""
    return broker.bootstrap_servers


@pytest.fixture
def stream(spark: SparkSession, broker: Kafka, tmp_path: Path) -> Iterator[MakeStream]:
    """A function that returns a stream of a topic with options and a schema; its queries end with the test."""
    made: list[Stream] = []

    def make(topic: str | None, schema: StructType | str | None = None, **options: object) -> Stream:
        given = {"kafka.bootstrap.servers": broker.bootstrap_servers} | ({"subscribe": topic} if topic else {})
        given |= {name.replace("__", "."): str(value) for name, value in options.items()}
        reader = spark.readStream.format("ticdc").options(**given)
        frame = (reader.schema(schema) if schema else reader).load()
        made.append(Stream(spark, frame, tmp_path / f"stream-{len(made)}"))
        return made[-1]

    yield make
    for one in made:
        for query in one.started:
            query.stop()
