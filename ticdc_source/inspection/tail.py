"""Events of topics as they come, through the pipeline of `outputFormat=event` (`ticdc-source tail`)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pyarrow as pa

from ticdc_source.errors import counted, warn
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.topics import TableFilter, TopicPartition
from ticdc_source.pipeline.context import BatchScope
from ticdc_source.pipeline.read import read
from ticdc_source.pipeline.spec import ReadState, read_spec
from ticdc_source.planning.fetchers import driver_fetcher, search_of
from ticdc_source.planning.load import batch_options, load_schema
from ticdc_source.planning.read_context import ContextFinder
from ticdc_source.protocols.base import Learned
from ticdc_source.protocols.decoding import Decoder, splits_of
from ticdc_source.schema.model import Definitions
from ticdc_source.schema.table_name import TableName
from ticdc_source.sources.chunk import Chunk
from ticdc_source.sources.kafka import KafkaCluster

# What one event has: the columns of outputFormat=event, and where it is.
Event = dict[str, object]

CORRUPT = "_corrupt_record"
_ROUND = 2000  # offsets of a topic partition to read before the events of all are put in order
_PAUSE_S = 0.3  # before looking for new records again


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where to start: one of the three.

    Attributes:
        back: so many records before the end of each topic partition.
        at_ms: the first record at or after this time, in milliseconds since 1970.
    """

    back: int = 0
    at_ms: int | None = None
    earliest: bool = False


class Tail(AbstractContextManager["Tail"]):
    """Reads the events of topics, those of each topic partition in order, and all nearly in the order of commits.

    Attributes:
        binary: the names of the binary columns of each table, as far as messages tell: JSON has base64 of them.
        scanned: the number of records that it has read.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        given = {"mode": "PERMISSIVE", **given, "outputFormat": "event", "includeMetadata": "kafka"}
        self._options = batch_options(given)
        inferred: pa.Schema = load_schema(given)  # of this output it is the same for all topics
        self._schema = inferred if CORRUPT in inferred.names else inferred.append(pa.field(CORRUPT, pa.string()))
        self._cluster = KafkaCluster(self._options)
        self._fetcher = driver_fetcher(self._options)
        self._contexts = ContextFinder(self._schema, self._options, self._cluster.earliest, warns_of_absent=False)
        self._state: ReadState | None = None
        self._described: set[TableName] = set()
        self._has_said_what_is_absent = False
        self._ddl_shown: dict[tuple[object, ...], object] = {}  # the topic partition of each DDL event
        self.scanned = 0
        self.binary: dict[tuple[str, str], set[str]] = {}

    def __exit__(self, *_: object) -> None:
        self._fetcher.close()
        self._cluster.close()

    def events(self, start: Start, *, follow: bool, pause: Callable[[float], object] = time.sleep) -> Iterator[Event]:
        positions = self._starts(start)
        end = self._cluster.latest(positions)
        while True:
            ranges = [
                OffsetRange(*key, begin, min(end[key], begin + _ROUND))
                for key, begin in positions.items()
                if begin < end[key]
            ]
            if ranges:
                yield from self._in_order(ranges, end)
                positions |= {each.topic_partition: each.end for each in ranges}
            else:
                self._say_what_is_absent()
                if not follow:
                    return
                pause(_PAUSE_S)
            if follow:
                end = self._cluster.latest(positions)

    def _say_what_is_absent(self) -> None:
        """Warn at the end of the topics if the wanted tables had no row so far, and others had."""
        wanted = TableFilter(self._options.tables or ())
        if self._has_said_what_is_absent or not self._described or any(map(wanted.matches, self._described)):
            return
        self._has_said_what_is_absent = True
        warn(f"{wanted.without_row(self._described, counted(self.scanned, 'record'))} (--from sets where tail begins)")

    def _starts(self, start: Start) -> dict[TopicPartition, int]:
        ranges = self._cluster.everything()
        if start.at_ms is not None:
            times = {each.topic_partition: start.at_ms for each in ranges}
            return self._cluster.by_timestamp(times, or_latest=True)
        return {
            each.topic_partition: each.start if start.earliest else max(each.start, each.end - start.back)
            for each in ranges
        }

    def _in_order(self, ranges: Sequence[OffsetRange], ends: Mapping[TopicPartition, int]) -> Iterator[Event]:
        """Yield the events of some ranges, merged by their commit-ts; those of each range keep their order."""
        context = self._contexts.find(ranges, ends)
        if context.protocol is None:
            return
        scope = BatchScope(ddl_copies={topic: {} for topic, _ in ends})  # all copies: one process reads them all
        spec = read_spec(self._schema, self._options, context, scope)
        self._state = self._state or ReadState.of(spec)
        self._state.plans.clear()  # DDL may have said more
        learned, search = self._state.learned, search_of(spec.decoder, self._options)
        learned.search, learned.previous = search, search.last_commit_ts
        waiting: list[deque[Event]] = []
        for offset_range in ranges:
            search.around = offset_range
            chunks = self._describing(self._fetcher.fetch(offset_range), spec.decoder, learned.definitions)
            waiting.append(deque(event for batch in read(chunks, spec, self._state) for event in batch.to_pylist()))
        while waiting := [events for events in waiting if events]:
            event = min(waiting, key=lambda events: _commit_ts(events[0])).popleft()
            if not self._is_copy(event):
                yield event

    def _is_copy(self, event: Event) -> bool:
        """Whether another topic partition has shown a DDL event; one that TiCDC sends again is shown again."""
        if event["_event_type"] != "ddl" or event["_commit_version"] is None:
            return False
        identity = tuple(event[name] for name in ("_topic", "_commit_version", "_database", "_table", "ddl_query"))
        return self._ddl_shown.setdefault(identity, event["_partition"]) != event["_partition"]

    def _describing(self, chunks: Iterator[Chunk], decoder: Decoder, definitions: Definitions) -> Iterator[Chunk]:
        """Pass chunks on, after a look at the columns of tables that are new."""
        for chunk in chunks:
            self.scanned += len(chunk)
            for split in splits_of(decoder, chunk):
                ddl = [*split.ddl, *split.bootstraps]
                for table, events in split.tables.items():
                    learned = None if decoder.facts.definitions is None else Learned(definitions=definitions)
                    if table not in self._described:
                        self._described.add(table)
                        names = self.binary.setdefault((table.database, table.table), set())
                        for schema in decoder.describe(events.picked(range(1)), ddl, learned=learned):
                            types = {each.name: each.type for each in schema.columns if each.type is not None}
                            names |= {name for name, type_ in types.items() if pa.types.is_binary(type_.arrow)}
            yield chunk


def _commit_ts(event: Event) -> int:
    commit_ts = event["_commit_version"]
    return commit_ts if isinstance(commit_ts, int) else 0
