"""Which copies of DDL events a read has, if TiCDC sends every DDL event to each partition of its topic.

A read from the first record of a topic has all copies. A read that starts or ends elsewhere may lack some: one copy of
a DDL event may lie before the read starts in its partition, and another copy inside the read. The records around each
edge, which is a start or an end in one partition, tell which copies the read has (docs/wire.md, items 29, 99 and 101;
docs/design/0009-output-formats.md):

- All copies of a DDL event are equal.
- After a watermark comes no new DDL event with a commit-ts up to the watermark's.
- The timestamp of a record is not earlier than the time of its commit-ts, unless clocks differ.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ticdc_source.errors import DataLossError, DecodeError
from ticdc_source.options.offsets import OffsetRange, unreadable
from ticdc_source.options.options import Options
from ticdc_source.options.topics import TopicPartition
from ticdc_source.pipeline.context import DDLCoverage
from ticdc_source.planning.resolved_ts import (
    CLOCKS_DIFFER_MS,
    Fetch,
    windows_from_end,
    windows_from_start,
)
from ticdc_source.protocols import PROTOCOLS
from ticdc_source.protocols.base import Decoder, splits_of
from ticdc_source.schema.tso import of_ms, physical_ms
from ticdc_source.sources.chunk import Chunk

__all__ = [
    "DDLEdges",
    "by_topic",
    "coverage_from_json",
    "coverage_to_json",
    "has_ddl_copies",
    "lower_partitions",
    "without_passed",
]

_FIRST = 256  # offsets in the first window; later windows are larger
_NEIGHBOURS = 16  # the latest timestamp of so many records counts as the time of the first of them
_NEWEST = 64  # offsets to read at the end of a partition, for the time of its newest record
# An offset in a checkpoint names at most so many DDL events inside, and as many outside. Others may come twice.
_MOST_NAMED = 200

Coverage = Mapping[TopicPartition, DDLCoverage]
ALL = DDLCoverage()
_UNBOUNDED = (1 << 63) - 1  # no commit-ts is larger


def by_topic(topic_partitions: Iterable[TopicPartition], coverage: Coverage) -> dict[str, dict[int, DDLCoverage]]:
    """Return the coverage of each topic's partitions, up to the lowest partition of which the read has all copies.

    That partition decides for all above it.

    Args:
        topic_partitions: the topic partitions that are read.
        coverage: the coverage of some of them; of the others the read has all copies.
    """
    by_partition: dict[str, dict[int, DDLCoverage]] = {}
    for topic_partition in sorted(topic_partitions):
        of_topic = by_partition.setdefault(topic_partition.topic, {})
        if ALL not in of_topic.values():
            of_topic[topic_partition.partition] = coverage.get(topic_partition, ALL)
    return by_partition


def lower_partitions(topic_partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return all partitions but the highest of each topic: only higher partitions need the coverage of a partition."""
    topic_partitions = sorted(topic_partitions)
    highest = {topic_partition.topic: topic_partition for topic_partition in topic_partitions}
    return [each for each in topic_partitions if each != highest[each.topic]]


def without_passed(coverage: Coverage, passed: Mapping[str, int]) -> dict[TopicPartition, DDLCoverage]:
    """Return the coverage without what it says of DDL events that lie before a micro-batch in all partitions.

    Args:
        coverage: the coverage of a stream.
        passed: the largest commit-ts of such DDL events, by topic (`DDLEdges.passed`).
    """
    kept: dict[TopicPartition, DDLCoverage] = {}
    for topic_partition, copies in coverage.items():
        until = passed.get(topic_partition.topic, -1)
        inside, outside = (
            frozenset(name for name in names if not 0 <= _ts_of(name) <= until)
            for names in (copies.inside, copies.outside)
        )
        after = None if copies.after is not None and copies.after <= until else copies.after
        kept[topic_partition] = replace(copies, after=after, inside=inside, outside=outside)
    return kept


@dataclass
class _Scan:
    """What was found in consecutive records of a topic partition.

    Attributes:
        ddl: the commit-ts of each DDL event, by the identity of the event.
        watermark: the largest watermark; None if there is none.
        times: the offset and the timestamp (ms since 1970) of the first and of the last record that has a timestamp.
        records: the number of records.
        ahead_ms: the most by which a commit-ts is later than the timestamp of its record: 0, unless clocks differ.
        is_whole: whether all records of the range were read.
    """

    ddl: dict[str, int | None] = field(default_factory=dict)
    watermark: int | None = None
    times: list[tuple[int, int]] = field(default_factory=list)
    records: int = 0
    ahead_ms: int = 0
    is_whole: bool = False

    def add(self, chunk: Chunk, decoder: Decoder) -> None:
        """Add the records of a chunk."""
        self.records += len(chunk)
        times = [pair for pair in zip(chunk.offsets, chunk.timestamps, strict=True) if pair[1] >= 0]
        if times:  # a producer may send a record late: then its timestamp is earlier than those of its neighbours
            first = times[0][0], max(time for _, time in times[:_NEIGHBOURS])
            self._add_times([first, times[-1]])
        for split in splits_of(decoder, chunk):
            for event in split.ddl:
                self.ddl[event.identity] = event.commit_ts
            for mark in split.watermarks:
                self.watermark = mark.ts if self.watermark is None else max(self.watermark, mark.ts)
            for position, ts in (
                *((event.position, event.commit_ts) for event in split.ddl),
                *((mark.position, mark.ts) for mark in split.watermarks),
            ):
                if ts is not None and chunk.timestamps[position] >= 0:
                    self.ahead_ms = max(self.ahead_ms, physical_ms(ts) - chunk.timestamps[position])

    def merge(self, other: _Scan) -> None:
        """Add what was found in other records of the same topic partition."""
        self.ddl |= other.ddl
        marks = [mark for mark in (self.watermark, other.watermark) if mark is not None]
        self.watermark = max(marks, default=None)
        self._add_times(other.times)
        self.records += other.records
        self.ahead_ms = max(self.ahead_ms, other.ahead_ms)

    def _add_times(self, times: Sequence[tuple[int, int]]) -> None:
        both = sorted([*self.times, *times])
        self.times = both[:1] + both[-1:]

    @property
    def bound(self) -> int | None:
        """A commit-ts that no DDL event before the first record exceeds; None if no record has a timestamp.

        It holds as long as clocks differ by `CLOCKS_DIFFER_MS` at most.
        """
        return of_ms(self.times[0][1] + self.ahead_ms + CLOCKS_DIFFER_MS) if self.times else None

    @property
    def span_ms(self) -> int:
        """The time between the first and the last record."""
        return self.times[1][1] - self.times[0][1] if self.times else 0

    def has_passed(self, bound: int | None) -> bool:
        """Return whether the partition gets no new DDL event up to a commit-ts after the last record.

        Args:
            bound: the commit-ts; None stands for the scan's own `bound`.
        """
        bound = self.bound if bound is None else bound
        if bound is None:
            return False
        if self.watermark is not None:
            return self.watermark >= bound
        return self.times != [] and self.times[1][1] >= physical_ms(bound) + self.ahead_ms + CLOCKS_DIFFER_MS


class DDLEdges:
    """Reads the records around the edges of a read, and concludes which copies of DDL events the read has.

    Args:
        fetch: yields the records of an offset range.
        decoder: the decoder of the protocol.
        options: `inferSchema.maxScannedRecords` and `inferSchema.timeoutMs` limit what is read after the first window
            of each edge.
        partitions: how many topic partitions share these limits.
    """

    def __init__(self, fetch: Fetch, decoder: Decoder, options: Options, partitions: int) -> None:
        self._fetch = fetch
        self._decoder = decoder
        self._limit = options.infer_schema_max_scanned_records // max(1, partitions)
        self._deadline = time.monotonic() + options.infer_schema_timeout_ms / 1000

    def of_batch(
        self,
        ranges: Sequence[OffsetRange],
        earliest: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, DDLCoverage]:
        """Return the coverage of the offset ranges of a batch, without the highest partition of each topic.

        Args:
            ranges: the offset ranges, without empty ones.
            earliest: the log start of each topic partition.
            latest: the end of each topic partition, looked up after the ranges were planned.
        """
        by_partition = {offset_range.topic_partition: offset_range for offset_range in ranges}
        return {
            topic_partition: self._of_range(by_partition[topic_partition], earliest, latest)
            for topic_partition in lower_partitions(by_partition)
        }

    def of_starts(
        self,
        starts: Mapping[TopicPartition, int],
        earliest: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, DDLCoverage]:
        """Return the coverage of topic partitions that a stream reads without an end.

        Partitions that it reads from offset 0 are left out: it has all their copies.

        Args:
            starts: where the stream starts in each.
            earliest: the log start of each.
            latest: the end of each topic partition of the topics.
        """
        return {
            topic_partition: self._of_start(topic_partition, start, latest[topic_partition], earliest, latest)
            for topic_partition, start in starts.items()
            if start
        }

    def passed(self, begins: Mapping[TopicPartition, int], earliest: Mapping[TopicPartition, int]) -> dict[str, int]:
        """Return the commit-ts up to which all new DDL events of a topic lie before these offsets; -1 if unknown.

        Only watermarks tell that: TiCDC may have written a DDL event long after its commit-ts.

        Args:
            begins: where a micro-batch begins in all partitions of some topics.
            earliest: the log start of each.
        """
        marks: dict[str, int] = {}
        for topic_partition, begin in begins.items():
            before = OffsetRange(*topic_partition, min(earliest[topic_partition], begin), begin)
            mark = self._backward(before, _has_watermark).watermark
            topic = topic_partition.topic
            marks[topic] = min(marks.get(topic, _UNBOUNDED), -1 if mark is None else mark)
        return marks

    def _of_range(
        self, offset_range: OffsetRange, earliest: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
    ) -> DDLCoverage:
        topic_partition, start, end = offset_range.topic_partition, offset_range.start, offset_range.end
        tail = self._backward(offset_range, _has_late_watermark)
        if tail.is_whole:  # the whole range was read, so every DDL event in it can be named
            return DDLCoverage.of_only(tail.ddl)
        at_start = self._of_start(topic_partition, start, end, earliest, latest) if start else ALL
        inside, outside, until = set(at_start.inside), set(at_start.outside), tail.watermark
        inside |= {identity for identity, ts in tail.ddl.items() if until is None or ts is None or ts > until}
        if until is None:
            after_end = self._forward(OffsetRange(*topic_partition, end, max(end, latest[topic_partition])), _never)
            if after_end.is_whole:
                outside |= after_end.ddl.keys()
            else:  # nothing tells which other DDL events lie before the end
                until = -1
        return DDLCoverage(
            after=at_start.after, until=until, inside=frozenset(inside), outside=frozenset(outside - inside)
        )

    def _of_start(
        self,
        topic_partition: TopicPartition,
        start: int,
        end: int,
        earliest: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
    ) -> DDLCoverage:
        """Return the coverage of a topic partition from `start` on, by its DDL events before `end`."""
        log_start = earliest[topic_partition]
        before = self._backward(OffsetRange(*topic_partition, min(log_start, start), start), _is_long_ago)
        if before.is_whole and log_start == 0:  # a DDL event that TiCDC sends again after the start may come twice
            return DDLCoverage(outside=frozenset(before.ddl))
        since = self._forward(OffsetRange(*topic_partition, start, end), lambda scan: scan.has_passed(before.bound))
        before.ahead_ms = since.ahead_ms = max(before.ahead_ms, since.ahead_ms)
        after = since.bound if before.bound is None else before.bound
        if after is None:
            after = self._bound_of_topic(topic_partition.topic, earliest, latest)
        # Named are DDL events that were seen on the other side than `after` says, and those seen on both sides.
        inside = [key for key, ts in since.ddl.items() if ts is None or ts <= after or key in before.ddl]
        outside = [key for key, ts in before.ddl.items() if ts is not None and ts > after and key not in since.ddl]
        return DDLCoverage(after=after, inside=frozenset(inside), outside=frozenset(outside))

    def _bound_of_topic(
        self, topic: str, earliest: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
    ) -> int:
        """Return a commit-ts that no DDL event in any partition of a topic exceeds now."""
        scans = [
            self._backward(OffsetRange(*topic_partition, max(earliest[topic_partition], end - _NEWEST), end), _always)
            for topic_partition, end in latest.items()
            if topic_partition.topic == topic and end > earliest[topic_partition]
        ]
        newest = [scan.times[1][1] for scan in scans if scan.times]
        if newest:
            return of_ms(max(newest) + max(scan.ahead_ms for scan in scans) + CLOCKS_DIFFER_MS)
        return _UNBOUNDED if any(scan.records or not scan.is_whole for scan in scans) else -1

    def _backward(self, offset_range: OffsetRange, is_enough: Callable[[_Scan], bool]) -> _Scan:
        return self._scan(windows_from_end(offset_range, self._fetch, _FIRST), is_enough)

    def _forward(self, offset_range: OffsetRange, is_enough: Callable[[_Scan], bool]) -> _Scan:
        return self._scan(windows_from_start(offset_range, self._fetch, _FIRST), is_enough)

    def _scan(self, windows: Iterable[Iterable[Chunk]], is_enough: Callable[[_Scan], bool]) -> _Scan:
        scan = _Scan()
        for number, window in enumerate(windows):
            if number and (is_enough(scan) or scan.records >= self._limit or time.monotonic() >= self._deadline):
                return scan
            of_window = _Scan()
            try:
                for chunk in window:
                    of_window.add(chunk, self._decoder)
            except (DataLossError, DecodeError):  # if the read needs these records, it raises the error itself
                return scan
            scan.merge(of_window)
        scan.is_whole = True
        return scan


def _never(_: _Scan) -> bool:
    return False


def _always(_: _Scan) -> bool:
    return True


def _has_watermark(scan: _Scan) -> bool:
    return scan.watermark is not None


def _has_late_watermark(scan: _Scan) -> bool:
    """Return whether no DDL event before the first record exceeds the watermark, or the topic seems to have none."""
    if scan.watermark is None:  # if TiCDC wrote watermarks, there would be one each second
        return scan.span_ms > CLOCKS_DIFFER_MS
    return scan.times != [] and physical_ms(scan.watermark) >= scan.times[0][1] + scan.ahead_ms


def _is_long_ago(scan: _Scan) -> bool:
    """Return whether `bound` is over a minute before the last record: TiCDC hardly sends such old DDL events later."""
    return scan.span_ms > 2 * CLOCKS_DIFFER_MS + scan.ahead_ms


def coverage_to_json(coverage: Coverage) -> dict[str, Any]:
    """Return the coverage of a stream's topic partitions, as a member of an offset.

    Partitions of which the stream has all copies are left out.
    """
    members: dict[str, Any] = {}
    for (topic, partition), copies in sorted(coverage.items(), key=lambda item: item[0]):
        if copies != ALL:
            members.setdefault(topic, {})[str(partition)] = _to_json(copies)
    return members


def _to_json(copies: DDLCoverage) -> dict[str, Any]:
    inside, outside = (
        sorted(names, key=lambda name: (_ts_of(name), name)) for names in (copies.inside, copies.outside)
    )
    after = copies.after
    if len(outside) > _MOST_NAMED:  # a larger `after` puts those outside that are not named
        *_, largest = dropped = outside[:-_MOST_NAMED]
        after = max(_ts_of(largest), -1 if after is None else after)
        outside = outside[len(dropped) :]
    named = {"after": after, "inside": inside[-_MOST_NAMED:], "outside": outside}
    return {name: value for name, value in named.items() if value not in (None, [])}


def _ts_of(identity: str) -> int:
    commit_ts = identity.partition("-")[0]
    return int(commit_ts) if commit_ts.isdigit() else -1


def coverage_from_json(members: object) -> dict[TopicPartition, DDLCoverage]:
    """Return the coverage that `coverage_to_json` has written.

    Raises:
        CheckpointError: the JSON has another form: somebody has edited the checkpoint.
    """
    try:
        return {
            TopicPartition(topic, int(partition)): _from_json(copies)
            for topic, of_topic in members.items()  # type: ignore[attr-defined]
            for partition, copies in of_topic.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise unreadable(json.dumps(members)) from None


def _from_json(copies: Mapping[str, Any]) -> DDLCoverage:
    after, inside, outside = copies.get("after"), copies.get("inside", []), copies.get("outside", [])
    if not (after is None or type(after) is int) or not all(isinstance(name, str) for name in (*inside, *outside)):
        raise ValueError
    return DDLCoverage(after=after, inside=frozenset(inside), outside=frozenset(outside))


def has_ddl_copies(protocol: str | None, options: Options) -> bool:
    """Return whether the read outputs DDL events, and every partition has a copy of them."""
    if options.output_format != "event" or protocol is None:
        return False
    return PROTOCOLS[protocol].facts.ddl_partition is None
