"""What tests of streams share."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from pyspark.sql import SparkSession

from tests.conftest import Kafka
from tests.spark.streams import Stream

MakeStream: TypeAlias = Callable[..., Stream]
MakeTopic: TypeAlias = Callable[..., str]


@pytest.fixture
def servers(broker: Kafka) -> str:
    """Where the session's broker is."""
    return broker.bootstrap_servers


@pytest.fixture
def stream(spark: SparkSession, broker: Kafka, tmp_path: Path) -> Iterator[MakeStream]:
    """A function that makes a stream of a topic, with options and a schema of one's own; all queries end."""
    made: list[Stream] = []

    def make(topic: str, schema: str | None = None, **options: object) -> Stream:
        given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
        given |= {name.replace("__", "."): str(value) for name, value in options.items()}
        reader = spark.readStream.format("ticdc").options(**given)
        frame = (reader.schema(schema) if schema else reader).load()
        made.append(Stream(spark, frame, tmp_path / f"stream-{len(made)}"))
        return made[-1]

    yield make
    for one in made:
        for query in one.started:
            query.stop()
