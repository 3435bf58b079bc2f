"""A stream sends few requests on few connections: a proxy before a broker of its own counts them."""

import json
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import IntegerType, StructField, StructType

from examples.local_kafka import LocalKafka, create_topic
from tests.spark.streams import SCHEMA, TYPED, Stream, sizes, wait_for, write_rows
from tests.support.proxy import CountingProxy, counted_kafka
from ticdc_source.options.options import Options
from ticdc_source.sources.kafka import FETCHERS
from ticdc_source.spark.readers import HAS_ADMISSION_CONTROL, StreamReader, new_stream_reader

pytestmark = [pytest.mark.broker, pytest.mark.spark]

DRIVER, EXECUTOR = "counted-driver", "counted-executor"


@pytest.fixture(scope="module")
def counted() -> Iterator[tuple[LocalKafka, CountingProxy]]:
    """A broker and the proxy before it."""
    with counted_kafka() as both:
        yield both


@pytest.mark.slow("watches an idle stream")
def test_an_idle_stream_asks_little_and_batches_share_connections(
    spark: SparkSession, counted: tuple[LocalKafka, CountingProxy], tmp_path: Path
) -> None:
    """An idle stream sends at most 5 requests a second; the next batches are read on the same connections."""
    kafka, proxy = counted
    create_topic(kafka.bootstrap_servers, "idle", 4)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": "idle", "startingOffsets": "earliest"}
    reader = spark.readStream.format("ticdc").options(**options, **TYPED, groupIdPrefix="counted").schema(SCHEMA)
    stream = Stream(spark, reader.load(), tmp_path)
    query = stream.start()
    for number in range(3):
        write_rows(kafka.bootstrap_servers, "idle", *range(8 * number, 8 * number + 8), partitions=4)
        wait_for(query, lambda number=number: sum(sizes(query)) == 8 * number + 8)  # type: ignore[misc]

    begun, since = (proxy.count(DRIVER), proxy.count(EXECUTOR)), time.monotonic()
    time.sleep(4)
    driver, executor, seconds = (
        proxy.count(DRIVER) - begun[0],
        proxy.count(EXECUTOR) - begun[1],
        time.monotonic() - since,
    )
    before = proxy.connections.count(EXECUTOR)
    batches = len(stream.offsets())
    for number in range(3, 6):
        write_rows(kafka.bootstrap_servers, "idle", *range(8 * number, 8 * number + 8), partitions=4)
        wait_for(query, lambda number=number: sum(sizes(query)) == 8 * number + 8)  # type: ignore[misc]

    assert 0 < driver <= 5 * seconds
    assert executor == 0
    assert len(stream.offsets()) - batches >= 3
    assert proxy.connections.count(EXECUTOR) == before


class Driven:
    """A stream reader without Spark, used as Spark's driver and workers use it."""

    def __init__(self, kafka: LocalKafka, topic: str, **options: str) -> None:
        given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic, "groupidprefix": "counted"}
        typed = {name.lower(): value for name, value in {**TYPED, **options}.items()}
        self.reader = new_stream_reader(StructType([StructField("id", IntegerType())]), Options.of({**given, **typed}))

    def next(self, start: dict[str, Any]) -> dict[str, Any]:
        """Plan a micro-batch."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        end: dict[str, Any] = json.loads(json.dumps(self.reader.latestOffset(start, ReadAllAvailable())))
        return end

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
        """Read between two offsets, as the tasks of a worker do."""
        reader: StreamReader = pickle.loads(pickle.dumps(self.reader))  # noqa: S301 (our own)
        tasks: list[InputPartition] = pickle.loads(pickle.dumps(self.reader.partitions(start, end)))  # noqa: S301
        return [number for task in tasks for batch in reader.read(task) for number in batch["id"].to_pylist()]


@pytest.fixture
def driven(counted: tuple[LocalKafka, CountingProxy]) -> Iterator[Callable[..., Driven]]:
    """A function that returns a reader for a topic; all connections are closed after the test."""
    made: list[Driven] = []

    def make(topic: str, **options: str) -> Driven:
        made.append(Driven(counted[0], topic, **options))
        return made[-1]

    FETCHERS.close_all()
    yield make
    for one in made:
        one.reader.stop()
    FETCHERS.close_all()


needs_admission_control = pytest.mark.skipif(not HAS_ADMISSION_CONTROL, reason="PySpark 4.2 and newer")


@needs_admission_control
@pytest.mark.slow("a broker of its own")
def test_a_task_that_is_tried_again_connects_anew(
    counted: tuple[LocalKafka, CountingProxy], driven: Callable[..., Driven], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks of one worker share a connection from batch to batch; the second attempt of a task opens a new one."""
    kafka, proxy = counted
    create_topic(kafka.bootstrap_servers, "again")
    write_rows(kafka.bootstrap_servers, "again", 0, 1)
    one = driven("again", startingOffsets="earliest")
    begun = proxy.connections.count(EXECUTOR)
    seen = []
    offset = one.reader.initialOffset()
    context = object.__new__(TaskContext)
    context._localProperties = {}
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    for context._attemptNumber in (0, 0, 1, 0):
        seen.append((one.read(offset, end := one.next(offset)), proxy.connections.count(EXECUTOR) - begun))

    assert offset != end
    assert seen == [([0, 1], 1), ([0, 1], 1), ([0, 1], 2), ([0, 1], 2)]


@pytest.mark.slow("a broker of its own")
@needs_admission_control
def test_what_is_sent_to_workers_holds_no_connection(
    counted: tuple[LocalKafka, CountingProxy], driven: Callable[..., Driven]
) -> None:
    """Reader and input partitions can be pickled while connected, are small, and the copy opens new connections."""
    kafka, _ = counted
    create_topic(kafka.bootstrap_servers, "pickled", 2)
    write_rows(kafka.bootstrap_servers, "pickled", *range(6), partitions=2)
    one = driven("pickled", startingOffsets="earliest")
    start = one.reader.initialOffset()
    end = one.next(start)
    running = {thread for thread in threading.enumerate() if thread.name.startswith("kafka-io")}

    size = len(pickle.dumps((one.reader, one.reader.partitions(start, end))))
    rows = one.read(start, end)

    assert running
    assert size < 20_000
    assert sorted(rows) == list(range(6))
    assert one.next(end) == end
