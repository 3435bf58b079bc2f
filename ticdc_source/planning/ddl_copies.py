"""Which copies of DDL events a read has, if TiCDC sends every DDL event to each partition of its topic.

A read keeps the copy in the lowest partition that has one between the read's start and end there (its edges). So a task
with a copy must know on which side of the edges the copies in lower partitions are. The driver reads backwards from an
edge until the largest watermark found is later than the oldest record read. Then:

- All DDL events up to that watermark are before the edge, because no new one follows it.
- Of later DDL events, the driver has read those before the edge, because none is committed after its record's time.

If records are deleted, or a topic has no watermarks, the driver also reads forwards. If a partition has no record left,
the newest records of the topic's other partitions bound what it had. In doubt a DDL event comes from two partitions
rather than from none (docs/wire.md, items 29, 99 and 101; docs/design/0009-output-formats.md).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_

from ticdc_source.errors import DataLossError, DecodeError
from ticdc_source.options.offsets import OffsetRange, unreadable
from ticdc_source.options.options import Options
from ticdc_source.options.topics import TopicPartition
from ticdc_source.pipeline.context import DDLCopies, DDLCoverage, ReadContext
from ticdc_source.planning.fetchers import Fetch, driver_fetcher, has_ddl_copies, windows_from_end, windows_from_start
from ticdc_source.planning.inference import find_protocol
from ticdc_source.planning.watermarks import CLOCKS_DIFFER_MS
from ticdc_source.protocols import decoder_of
from ticdc_source.protocols.decoding import Decoder, splits_of
from ticdc_source.schema.tso import of_ms, physical_ms
from ticdc_source.sources.chunk import Chunk
from ticdc_source.sources.record_source import RecordSource
from ticdc_source.sources.stream_offsets import INITIAL, OffsetJSON, Offsets, offsets_of

_DDL = "$ddl"  # the member of a stream's offset with its coverage
_FIRST = 256  # offsets in the first window; later windows are larger
_NEIGHBOURS = 16  # producers may send records late: a record's time is the latest timestamp of so many from it on
_MOST_NAMED = 200  # the most DDL events of a partition in a checkpoint's offset
_NO_BOUND = (1 << 63) - 1  # no commit-ts is larger

Coverage = Mapping[TopicPartition, DDLCoverage]
_CommitTs = dict[str, int | None]  # of DDL events, by identity
_ALL = DDLCoverage()


def ddl_copies_of_batch(
    source: RecordSource, ranges: Sequence[OffsetRange], context: ReadContext, options: Options
) -> DDLCopies:
    """Return which copies of DDL events a batch has.

    Raises:
        TiCDCSourceError: the brokers do not answer.
    """
    by_partition = {each.topic_partition: each for each in ranges if each.size}
    lower = lower_partitions(by_partition)
    if context.protocol is None or not lower or not has_ddl_copies(context.protocol, options):
        return by_topic(by_partition, {})
    logs = _logs(source, source.latest(by_partition))
    with driver_fetcher(options) as fetcher:
        edges = DDLEdges(fetcher.fetch, decoder_of(context.protocol, options), options, logs)
        return by_topic(by_partition, {each: edges.of_range(by_partition[each]) for each in lower})


def by_topic(topic_partitions: Iterable[TopicPartition], coverage: Coverage) -> dict[str, dict[int, DDLCoverage]]:
    """Return the coverage of each topic's partitions, up to the lowest one of which the read has all copies.

    That one decides for all above it. Partitions that `coverage` lacks have all copies.
    """
    by_partition: dict[str, dict[int, DDLCoverage]] = {}
    for topic_partition in sorted(topic_partitions):
        of_topic = by_partition.setdefault(topic_partition.topic, {})
        if _ALL not in of_topic.values():
            of_topic[topic_partition.partition] = coverage.get(topic_partition, _ALL)
    return by_partition


def lower_partitions(topic_partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return all partitions but each topic's highest one, whose coverage no other partition needs."""
    topic_partitions = sorted(topic_partitions)
    highest = {topic_partition.topic: topic_partition for topic_partition in topic_partitions}
    return [each for each in topic_partitions if each != highest[each.topic]]


def _logs(source: RecordSource, ends: Offsets) -> list[OffsetRange]:
    earliest = source.earliest(ends)
    return [OffsetRange(*each, min(earliest[each], end), end) for each, end in ends.items()]


@dataclass
class _Seen:
    """What was found in consecutive records of a topic partition.

    Attributes:
        ddl: the commit-ts of each DDL event, by the identity of the event.
        watermark: the largest watermark; -1 if there is none.
        oldest: the offset and the time (ms since 1970) of the first record; None if no record has a timestamp.
        newest_ms: the largest timestamp; -1 if no record has one.
        ahead_ms: the most a commit-ts is later than its record's timestamp: 0, unless clocks differ.
        is_whole: whether all records of the range were read.
    """

    ddl: _CommitTs = field(default_factory=dict)
    watermark: int = -1
    oldest: tuple[int, int] | None = None
    newest_ms: int = -1
    ahead_ms: int = 0
    is_whole: bool = False

    @classmethod
    def in_chunk(cls, chunk: Chunk, decoder: Decoder) -> _Seen:
        seen, times = cls(), chunk.timestamps
        if (time_ms := max(times[:_NEIGHBOURS], default=-1)) >= 0:
            seen.oldest, seen.newest_ms = (chunk.offsets[0], time_ms), max(times)
        for split in splits_of(decoder, chunk):
            seen.ddl |= {event.identity: event.commit_ts for event in split.ddl}
            marks = [(mark.position, mark.ts) for mark in split.watermarks]
            seen.watermark = max(seen.watermark, *(ts for _, ts in marks), -1)
            for position, ts in (*marks, *((event.position, event.commit_ts) for event in split.ddl)):
                if ts is not None and times[position] >= 0:
                    seen.ahead_ms = max(seen.ahead_ms, physical_ms(ts) - times[position])
        return seen

    def __or__(self, other: _Seen) -> _Seen:
        return _Seen(
            self.ddl | other.ddl,
            max(self.watermark, other.watermark),
            min((oldest for oldest in (self.oldest, other.oldest) if oldest), default=None),
            max(self.newest_ms, other.newest_ms),
            max(self.ahead_ms, other.ahead_ms),
        )

    def bound(self, time_ms: int) -> int:
        """Return an upper bound for the commit-ts of DDL events recorded by then.

        It holds if clocks differ by at most `CLOCKS_DIFFER_MS`.
        """
        return of_ms(time_ms + self.ahead_ms + CLOCKS_DIFFER_MS)

    def is_enough(self, margin_ms: int) -> bool:
        """Whether no DDL event before the first record is newer than the watermark, with a margin for clocks.

        In a topic without watermarks: whether TiCDC is unlikely to send such old DDL events after these records.
        """
        if self.oldest is None:
            return False
        until_ms = self.oldest[1] + self.ahead_ms + margin_ms
        if self.watermark < 0:  # if TiCDC wrote watermarks, there would be one each second
            return self.newest_ms > until_ms + CLOCKS_DIFFER_MS
        return physical_ms(self.watermark) >= until_ms


class DDLEdges:
    """Reads the records around the edges of a read, to find which copies of DDL events it has.

    After the first window of each edge, `inferSchema.maxScannedRecords` and `inferSchema.timeoutMs` limit the reading.
    `logs` has the existing range of each topic partition, looked up after the read was planned.
    """

    def __init__(self, fetch: Fetch, decoder: Decoder, options: Options, logs: Iterable[OffsetRange]) -> None:
        self._fetch = fetch
        self._decoder = decoder
        self._logs = {log.topic_partition: log for log in logs}
        self._newest: dict[str, int | None] = {}  # by topic, see `_newest_of`
        self._limit = options.infer_schema_max_scanned_records // max(1, len(self._logs))
        self._deadline = time.monotonic() + options.infer_schema_timeout_ms / 1000

    def of_range(self, offset_range: OffsetRange) -> DDLCoverage:
        """Return the coverage of a batch's offset range, which is not empty."""
        tail = self._backwards(offset_range, lambda seen: seen.is_enough(0))
        if tail.is_whole:
            return DDLCoverage(until=-1).with_seen(tail.ddl, {})
        after, inside, outside = self._around_start(offset_range) if offset_range.start else (None, {}, {})
        until: int | None = tail.watermark
        if tail.watermark < 0:
            end = offset_range.end
            latest = self._logs[offset_range.topic_partition].end
            behind = self._forwards(offset_range._replace(start=end, end=max(end, latest)), lambda _: False)
            outside = outside | behind.ddl
            until = None if behind.is_whole else -1  # else it is unknown which other DDL events are before the end
        return DDLCoverage(after=after, until=until).with_seen(inside | tail.ddl, outside)

    def of_start(self, topic_partition: TopicPartition, start: int) -> DDLCoverage:
        """Return the coverage of a topic partition that is read from an offset on, without an end.

        If there are too many DDL events around the start to be kept with the offset, they may come twice.
        """
        after, inside, outside = self._around_start(self._logs[topic_partition]._replace(start=start))
        coverage = DDLCoverage(after=after).with_seen(inside, outside)
        if len(coverage.exceptions) <= _MOST_NAMED:
            return coverage
        return DDLCoverage(after=max(ts or -1 for ts in (after, *inside.values(), *outside.values())))

    def _around_start(self, offset_range: OffsetRange) -> tuple[int | None, _CommitTs, _CommitTs]:
        """Return `DDLCoverage.after` for a start, and the DDL events seen after it and before it."""
        start, log_start = offset_range.start, self._logs[offset_range.topic_partition].start
        gone_by = offset_range._replace(start=min(log_start, start), end=start)
        before = self._backwards(gone_by, lambda seen: seen.is_enough(CLOCKS_DIFFER_MS))
        if before.is_whole and log_start == 0:  # a DDL event that TiCDC sends again after the start may come twice
            return None, {}, before.ddl
        since = _Seen()
        if not before.is_enough(CLOCKS_DIFFER_MS):
            since = self._forwards(offset_range, lambda seen: (before | seen).is_enough(CLOCKS_DIFFER_MS))
        both = before | since
        after = self._newest_of(offset_range.topic) if both.oldest is None else both.bound(both.oldest[1])
        return after, since.ddl, before.ddl

    def _newest_of(self, topic: str) -> int | None:
        """Return an upper bound for the commit-ts of a topic's DDL events; None if it has no record.

        It comes from the newest record's time. With this machine's clock, DDL events would be lost if it is slow, and
        come from all partitions if it is fast.
        """
        if topic not in self._newest:
            bounds = []
            for log in self._logs.values():
                if log.topic == topic and log.size:
                    end = self._backwards(log, lambda seen: seen.newest_ms >= 0)
                    bounds.append(end.bound(end.newest_ms) if end.newest_ms >= 0 else _NO_BOUND)
            self._newest[topic] = max(bounds, default=None)
        return self._newest[topic]

    def _backwards(self, offset_range: OffsetRange, is_enough: Callable[[_Seen], bool]) -> _Seen:
        return self._scan(windows_from_end(offset_range, self._fetch, _FIRST), is_enough)

    def _forwards(self, offset_range: OffsetRange, is_enough: Callable[[_Seen], bool]) -> _Seen:
        return self._scan(windows_from_start(offset_range, self._fetch, _FIRST), is_enough)

    def _scan(self, windows: Iterable[Iterable[Chunk]], is_enough: Callable[[_Seen], bool]) -> _Seen:
        seen, records = _Seen(), 0
        for number, window in enumerate(windows):
            if number and (is_enough(seen) or records >= self._limit or time.monotonic() >= self._deadline):
                return seen
            try:
                chunks = list(window)
                seen = reduce(or_, (_Seen.in_chunk(chunk, self._decoder) for chunk in chunks), seen)
            except (DataLossError, DecodeError):  # if the read needs these records, it raises the error itself
                return seen
            records += sum(map(len, chunks))
        return replace(seen, is_whole=True)


class StreamCoverage:
    """The `OffsetMembers` of a stream of topics: which DDL events it has from partitions that lack some."""

    def __init__(self, source: RecordSource, options: Options) -> None:
        self._source = source
        self._options = options
        is_auto = options.protocol == "auto" and options.output_format == "event"
        self._asks = is_auto or has_ddl_copies(options.protocol, options)

    def __call__(self, start: OffsetJSON, begins: Offsets, latest: Offsets, recreated: Iterable[str]) -> OffsetJSON:
        """Return an offset's member, empty if the stream has all copies; see `OffsetMembers`."""
        kept = {tp: copies for tp, copies in coverage_of(start).items() if tp in begins and tp.topic not in recreated}
        edges = self._new_edges(start, begins, latest, recreated) if self._asks else {}
        found = self.around(edges, latest) if edges else {}
        members: OffsetJSON = {}
        for (topic, partition), copies in sorted((kept | found).items()):
            if copies != _ALL:
                members.setdefault(topic, {})[str(partition)] = _to_json(copies)
        return {_DDL: members} if members else {}

    def _new_edges(self, start: OffsetJSON, begins: Offsets, latest: Offsets, recreated: Iterable[str]) -> Offsets:
        """Return where topic partitions begin that have unread records before their start."""
        asked = lower_partitions(tp for tp in begins if tp in latest)
        continued = set() if start.get(INITIAL) else {tp for tp in offsets_of(start) if tp.topic not in recreated}
        edges = {tp: begins[tp] for tp in asked if tp not in continued and begins[tp]}
        if not self._options.fail_on_data_loss and (read_on := [tp for tp in asked if tp in continued]):
            earliest = self._source.earliest(read_on)
            edges |= {tp: earliest[tp] for tp in read_on if earliest[tp] > begins[tp]}
        return edges

    def around(self, starts: Offsets, latest: Offsets) -> dict[TopicPartition, DDLCoverage]:
        """Return the coverage of topic partitions read from `starts` on, given the ends of all."""
        options, topics = self._options, {topic for topic, _ in starts}
        logs = _logs(self._source, {tp: end for tp, end in latest.items() if tp.topic in topics})
        with driver_fetcher(options) as fetcher:
            protocol = find_protocol(logs, fetcher.fetch, options)
            if protocol is None or not has_ddl_copies(protocol, options):
                return {}
            edges = DDLEdges(fetcher.fetch, decoder_of(protocol, options), options, logs)
            return {tp: edges.of_start(tp, start) for tp, start in starts.items()}


def _to_json(copies: DDLCoverage) -> OffsetJSON:
    members = {"after": copies.after, "exceptions": sorted(copies.exceptions)}
    return {name: value for name, value in members.items() if value not in (None, [])}


def coverage_of(offset: OffsetJSON) -> dict[TopicPartition, DDLCoverage]:
    """Return which DDL events the stream has from partitions that lack some.

    Raises:
        CheckpointError: this release's `StreamCoverage` did not write the member.
    """
    members = offset.get(_DDL, {})
    try:
        return {
            TopicPartition(topic, int(partition)): _from_json(**copies)
            for topic, of_topic in members.items()
            for partition, copies in of_topic.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise unreadable(json.dumps(members)) from None


def _from_json(*, after: object = None, exceptions: Sequence[object] = ()) -> DDLCoverage:
    names = [name for name in exceptions if isinstance(name, str)]
    if not (after is None or type(after) is int) or names != list(exceptions):
        raise ValueError
    return DDLCoverage(after=after, exceptions=frozenset(names))
