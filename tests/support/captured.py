"""Captured messages in place of Kafka: read them through the core, without Kafka and without Spark."""

import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tests.support.corpus import scenario
from tests.support.registry import registry_options
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.options.topics import TopicPartition
from ticdc_source.pipeline.context import BatchScope, ReadContext
from ticdc_source.pipeline.read import read
from ticdc_source.pipeline.record_frames import RECORD
from ticdc_source.pipeline.spec import ReadSpec, read_spec
from ticdc_source.planning.ddl_copies import by_topic
from ticdc_source.planning.inference import Sample, find_protocol, take_sample
from ticdc_source.planning.load import schema_of_ranges
from ticdc_source.planning.read_context import context_of_sample, context_of_schema
from ticdc_source.sources.chunk import Chunk

TOPIC = "captured"
FIRST_TIME = 1_700_000_000_000  # of a record, in milliseconds; that of the next is one more

# Returns how many records the next chunk gets.
Sizes = Callable[[], int]


def whole() -> int:
    """Return more than any range holds: everything comes in one chunk."""
    return 1 << 30


def single() -> int:
    """Return 1: each chunk has one record."""
    return 1


def random_sizes(seed: int) -> Sizes:
    chooser = random.Random(seed)
    return lambda: chooser.choice((1, 2, 3, 7, 50, 333, 700))


@dataclass
class Record:
    """A Kafka record, its truth, and for each of its events whether it was too large for Kafka."""

    key: bytes | None
    value: bytes | None
    truth: Mapping[str, Any] = field(default_factory=dict)
    large: tuple[bool, ...] = ()


@dataclass
class Captured:
    """Messages by topic partition, and the header of their file."""

    header: Mapping[str, Any]
    partitions: dict[int, list[Record]]
    files: Mapping[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, *messages: tuple[bytes | None, bytes | None]) -> "Captured":
        return cls({}, {0: [Record(key, value) for key, value in messages]})

    def only(self, database: str, table: str) -> "Captured":
        """Return the records about one table: its rows, its DDL, and DDL of no table; offsets begin at 0 again."""
        name = (database, table)
        return replace(
            self,
            partitions={
                partition: [record for record in records if _is_about(record, name)]
                for partition, records in self.partitions.items()
            },
        )

    def around_ddl(self, count: int) -> "Captured":
        """Return, of each partition, `count` records before and after the commit of each DDL; offsets begin at 0."""
        changes = {
            record.truth["commit_ts"]
            for records in self.partitions.values()
            for record in records
            if record.truth["op"] == "ddl"
        }
        partitions = {}
        for partition, records in self.partitions.items():
            commits = [events_of(record.truth)[0]["commit_ts"] for record in records]
            centers = [next((n for n, commit in enumerate(commits) if commit >= change), -count) for change in changes]
            kept = {offset for center in centers for offset in range(center - count, center + count)}
            partitions[partition] = [record for offset, record in enumerate(records) if offset in kept]
        return replace(self, partitions=partitions)

    def ranges(self) -> list[OffsetRange]:
        return [OffsetRange(TOPIC, partition, 0, len(records)) for partition, records in self.partitions.items()]

    def fetch(self, offset_range: OffsetRange, sizes: Sizes = whole) -> Iterator[Chunk]:
        start = offset_range.start
        while start < offset_range.end:
            end = min(start + sizes(), offset_range.end)
            records = self.partitions[offset_range.partition][start:end]
            yield Chunk(
                TOPIC,
                offset_range.partition,
                list(range(start, end)),
                [FIRST_TIME + offset for offset in range(start, end)],
                [record.key for record in records],
                [record.value for record in records],
            )
            start = end

    def options(self, **options: str) -> Options:
        return make_options(**{**registry_options(self.header), **options})

    def schema(self, **options: str) -> pa.Schema:
        return schema_of_ranges(self.ranges(), self.fetch, self.options(**options))

    def read(self, *, sizes: Sizes = whole, schema: pa.Schema | None = None, **options: str) -> pa.Table:
        parsed = self.options(**options)
        schema = self.schema(**options) if schema is None else schema
        context = self.context(schema, parsed)
        batches = [
            batch
            for offset_range in self.ranges()
            for batch in read(self.fetch(offset_range, sizes), self.spec(schema, parsed, context, offset_range))
        ]
        return pa.Table.from_batches(batches, schema)

    def context(self, schema: pa.Schema, options: Options) -> ReadContext:
        if options.output_format == "record":
            return ReadContext(protocol=find_protocol(self.ranges(), self.fetch, options))
        if options.output_format != "event":
            context = context_of_schema(schema, options)
            assert context is not None
            return context
        return context_of_sample(self.sample(options))

    def sample(self, options: Options) -> Sample:
        found = take_sample(self.ranges(), self.fetch, options)
        assert found is not None
        return found

    def spec(self, schema: pa.Schema, options: Options, context: ReadContext, offset_range: OffsetRange) -> ReadSpec:
        """Return the spec of a range; of DDL that every partition has, only the lowest partition keeps it."""
        copies = by_topic((TopicPartition(offset_range.topic, partition) for partition in self.partitions), {})
        return read_spec(schema, options, context, BatchScope(ddl_copies=copies))


def rows_of(captured: Captured) -> pa.RecordBatch:
    rows = [
        {
            "topic": TOPIC,
            "partition": partition,
            "offset": offset,
            "timestamp": (FIRST_TIME + offset) * 1000,
            "key": record.key,
            "value": record.value,
        }
        for partition, records in captured.partitions.items()
        for offset, record in enumerate(records)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RECORD)


def in_order(table: pa.Table) -> pa.Table:
    sequence = table.column("_sequence").combine_chunks()
    keys = pa.table({name: sequence.field(name) for name in ("partition", "offset", "index", "rank")})
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
    return table.take(order)


def events_of(truth: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return truth["events"] if truth["op"] == "batch" else [truth]


def _is_about(record: Record, name: tuple[str, str]) -> bool:
    wanted = tuple(part.lower() for part in name)  # the DDL of a table may spell it in another case than its rows
    for event in events_of(record.truth):
        pairs = [(event.get(f"{age}schema"), event.get(f"{age}table")) for age in ("", "old_")]
        names = {tuple((part or "").lower() for part in pair) for pair in pairs}
        if wanted in names or (event["op"] == "ddl" and not event.get("table")):
            return True
    return False


def rows(*messages: tuple[bytes | None, bytes | None], **options: str) -> list[dict[str, Any]]:
    """Infer and read (key, value) pairs of one topic partition."""
    found: list[dict[str, Any]] = Captured.of(*messages).read(sizes=whole, schema=None, **options).to_pylist()
    return found


def make_options(**given: str) -> Options:
    names = {name.replace("__", "."): value for name, value in given.items()}
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": TOPIC, **names}
    return Options.of(given, from_kafka=False)  # records may come from files too


@lru_cache(maxsize=4)
def load(name: str) -> Captured:
    found = scenario(name)
    partitions: dict[int, list[Record]] = defaultdict(list)
    header, spelt = found.header, as_spelt if found.header["protocol"] == "avro" else lambda truth: truth
    for line in found.records:
        partitions[line.partition].append(Record(line.key, line.value, spelt(line.truth), line.large))
    return Captured({**header, "tables": spelt(header["tables"])}, dict(partitions), found.files)


_NAMES = ("schema", "table", "name", "old_schema", "old_table")
_NAME_LISTS = ("handle_key", "primary_key")


def as_spelt(truth: Any) -> Any:
    """Return a truth, or the tables of a file, with the names that avro has: it cannot spell others (wire item 122)."""
    if isinstance(truth, list):
        return [as_spelt(each) for each in truth]
    if not isinstance(truth, dict):
        return truth
    return {
        name: sanitized(value)
        if name in _NAMES and isinstance(value, str)
        else [sanitized(each) for each in value]
        if name in _NAME_LISTS
        else as_spelt(value)
        if name in ("columns", "events")
        else value
        for name, value in truth.items()
    }


def sanitized(name: str) -> str:
    """Return a name as Avro can spell it: `SanitizeName` in pingcap/ticdc pkg/sink/codec/common/helper.go."""
    spelt = re.sub("[^A-Za-z0-9_]", "_", name)
    return f"_{spelt}" if spelt[:1].isdigit() else spelt
