"""The driver learns a read context from messages, also from those before the range, and a stream extends it."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from examples.local_kafka import ExternalKafka, LocalKafka, produce
from tests.support.messages import TSO, Message, canal, debezium, debezium_ddl, declared, dump
from ticdc_source.errors import OptionError, SchemaError
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.options.topics import TopicPartition
from ticdc_source.pipeline.read import read
from ticdc_source.pipeline.spec import read_spec
from ticdc_source.planning.fetchers import driver_fetcher
from ticdc_source.planning.read_context import ContextFinder
from ticdc_source.planning.read_schema import format_schema
from ticdc_source.sources.kafka import KafkaCluster
from ticdc_source.sources.kafka.source import FETCHERS
from ticdc_source.spark.readers import TiCDCReader, read_in_task
from ticdc_source.spark.schema import to_spark

pytestmark = pytest.mark.broker

DDL = debezium_ddl(TSO - 9, "create table t (id int, d date)", [declared("id", "INT"), declared("d", "DATE")])
ROW = debezium("c", None, {"id": 1, "d": 18_000})
MARK = canal("TIDB_WATERMARK", None, None, _tidb={"watermarkTs": TSO})


class Stream:
    """A stream's driver and workers without Spark: each micro-batch is one range of each partition."""

    def __init__(self, servers: str, topic: str, schema: pa.Schema | None = None, **given: str) -> None:
        self.servers, self.topic = servers, topic
        self.options = Options.of({"kafka.bootstrap.servers": servers, "subscribe": topic, **given})
        self.schema = format_schema(self.options) if schema is None else schema
        self.cluster = KafkaCluster(self.options)
        self.contexts = ContextFinder(self.schema, self.options, self.cluster.earliest)
        self.at: dict[TopicPartition, int] = {}

    def write(self, *messages: tuple[int, Message]) -> None:
        produce(self.servers, self.topic, [(partition, *message, [], None) for partition, message in messages])

    def batch(self) -> list[dict[str, Any]]:
        topic_partitions = self.cluster.partitions()
        ends = self.cluster.latest(topic_partitions)
        ranges = [OffsetRange(*each, self.at.get(each, 0), ends[each]) for each in topic_partitions]
        ranges = [offset_range for offset_range in ranges if offset_range.size]
        self.at = ends
        return self.rows(ranges, ends)

    def rows(self, ranges: Sequence[OffsetRange], ends: dict[TopicPartition, int]) -> list[dict[str, Any]]:
        context = self.contexts.find(ranges, ends)
        found: list[dict[str, Any]] = []
        with driver_fetcher(self.options) as fetcher:
            for offset_range in ranges:
                for batch in read(fetcher.fetch(offset_range), read_spec(self.schema, self.options, context)):
                    found += batch.to_pylist()
        return found

    def documents(self) -> list[str | None]:
        return [row["after"] for row in self.batch() if row["_event_type"] == "row"]


Make = Callable[..., Stream]


@pytest.fixture
def stream(broker: LocalKafka | ExternalKafka, topic: Callable[..., str]) -> Iterator[Make]:
    """Return a function that starts a stream on a new topic of two partitions; all are closed after the test."""
    started: list[Stream] = []

    def start(schema: pa.Schema | None = None, **given: str) -> Stream:
        started.append(Stream(broker.bootstrap_servers, topic(2), schema, **given))
        return started[-1]

    yield start
    for each in started:
        each.cluster.close()
    FETCHERS.close_all()  # what reads of this process keep for the next one


OPTIONS = {"outputFormat": "event"}
SHOWN = '{"id":1,"d":"2019-04-14"}'


@pytest.mark.parametrize("protocol", ["auto", "debezium"])
def test_a_table_made_in_any_micro_batch_has_its_types(stream: Make, protocol: str) -> None:
    """Schema-less debezium has the types of a DDL event that came in an earlier micro-batch than the rows."""
    running = stream(outputFormat="event", protocol=protocol)
    other = debezium("c", None, {"id": 1}, source={"table": "other"})

    running.write((0, other), (1, other))
    assert running.documents() == ['{"id":1}'] * 2
    running.write((0, DDL), (1, DDL))
    assert running.documents() == []
    running.write((0, ROW), (1, ROW))
    assert running.documents() == [SHOWN] * 2


def test_a_stream_that_starts_after_the_ddl_has_its_types(stream: Make) -> None:
    """A stream that starts after a DDL event, as a restart or startingOffsets=latest does, has its types."""
    running = stream(outputFormat="event")
    running.write((0, DDL), (1, DDL), (0, ROW), (1, ROW))
    running.at = running.cluster.latest(running.cluster.partitions())

    running.write((1, ROW))

    assert running.documents() == [SHOWN]


def test_a_batch_that_starts_after_the_ddl_has_its_types(stream: Make) -> None:
    running = stream(outputFormat="event")
    running.write((0, DDL), (1, DDL), (0, ROW), (0, ROW), (1, ROW))
    offsets = json.dumps({running.topic: {"0": 2, "1": 2}})
    options = Options.of({**OPTIONS, "kafka.bootstrap.servers": running.servers, "subscribe": running.topic,
                       "startingOffsets": offsets})  # fmt: skip

    partitions = TiCDCReader(to_spark(running.schema), options).partitions()
    found = [row for partition in partitions for batch in read_in_task(partition, running.schema, options)
             for row in batch.to_pylist()]  # fmt: skip

    assert [row["after"] for row in found] == [SHOWN]


def test_ddl_that_was_not_scanned_is_warned_of(stream: Make) -> None:
    """Records beyond inferSchema.maxScannedRecords are not scanned for DDL, and a warning says so."""
    running = stream(**{"outputFormat": "event", "inferSchema.maxScannedRecords": "1"})
    running.write((0, DDL), (0, ROW), (0, ROW))
    running.at = running.cluster.latest(running.cluster.partitions())
    running.write((0, ROW))

    with pytest.warns(UserWarning, match=r"Not all DDL events were scanned \(inferSchema.maxScannedRecords"):
        assert running.documents() == ['{"id":1,"d":18000}']


def test_tables_are_not_mixed_if_the_first_micro_batch_has_no_row(stream: Make) -> None:
    """A stream with a user's schema and no `tables` reads one table, and a second table is an error."""
    schema = pa.schema([("_change_type", pa.string()), ("id", pa.int32())])
    running = stream(schema, protocol="canal-json")
    rows = [canal("INSERT", [{"id": "1"}], None, {"id": "int"}, table=name) for name in ("t", "u")]

    running.write((0, MARK), (1, MARK))
    with pytest.warns(UserWarning, match="No row among 2 records"):
        assert running.batch() == []
    running.write((0, rows[0]))
    assert [row["id"] for row in running.batch()] == [1]
    running.write((1, rows[1]))
    with pytest.raises(SchemaError, match=r"a second table, test.u, beside test.t"):
        running.batch()

    running = stream(schema, protocol="canal-json")
    running.write((0, MARK))
    with pytest.warns(UserWarning, match="No row among 1 record of"):
        running.batch()
    running.write((0, rows[0]), (1, rows[1]))
    with pytest.raises(OptionError, match="2 tables"):
        running.batch()


def test_a_stream_without_any_record_learns_the_protocol_later(stream: Make) -> None:
    running = stream(outputFormat="event")
    running.write((0, (dump({"payload": {"id": 1}}), None)))
    topic_partitions = running.cluster.partitions()
    ends = running.cluster.latest(topic_partitions)
    assert running.contexts.find([OffsetRange(*topic_partitions[0], 0, 1)], ends).protocol is None
    running.at = ends

    running.write((0, DDL), (0, ROW))

    assert running.documents() == [SHOWN]
