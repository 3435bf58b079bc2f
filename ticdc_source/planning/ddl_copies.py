"""Which copies of DDL events a read has, if TiCDC sends every DDL event to each partition of its topic.

Of the copies of a DDL event, a read keeps the one in the lowest partition that has it between its start and its end.
So whoever has a copy must know, for each lower partition, whether the copy there lies before an edge, which is the
start or the end of the read in that partition. The driver reads backwards from the edge, until the largest watermark
that it has seen is later than the time of the oldest record that it has seen. Then:

- All DDL events up to that commit-ts lie before the edge: no new one follows its watermark.
- Of those after it, the driver has seen the ones before the edge: no event is committed later than it is recorded.

Where records are deleted, or a topic has no watermarks, the driver also reads forwards. In doubt a DDL event comes from
two partitions rather than from none (docs/wire.md, items 29, 99 and 101; docs/design/0009-output-formats.md).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from ticdc_source.errors import DataLossError, DecodeError
from ticdc_source.options.offsets import OffsetRange, unreadable
from ticdc_source.options.options import Options
from ticdc_source.options.topics import TopicPartition
from ticdc_source.pipeline.context import DDLCoverage
from ticdc_source.planning.resolved_ts import CLOCKS_DIFFER_MS, Fetch, windows_from_end, windows_from_start
from ticdc_source.protocols import PROTOCOLS
from ticdc_source.protocols.base import Decoder, splits_of
from ticdc_source.schema.tso import of_ms, physical_ms
from ticdc_source.sources.chunk import Chunk

__all__ = ["DDLEdges", "by_topic", "coverage_from_json", "coverage_to_json", "has_ddl_copies", "lower_partitions"]

_FIRST = 256  # offsets in the first window; later windows are larger
_NEIGHBOURS = 16  # a producer may send a record late: the latest timestamp of so many is the time of the first of them
_MOST_NAMED = 200  # an offset in a checkpoint names at most so many DDL events of a partition

Coverage = Mapping[TopicPartition, DDLCoverage]
_CommitTs = dict[str, int | None]  # of DDL events, by identity
ALL = DDLCoverage()


def has_ddl_copies(protocol: str | None, options: Options) -> bool:
    """Return whether the read outputs DDL events, and every partition has a copy of them."""
    if options.output_format != "event" or protocol is None:
        return False
    return PROTOCOLS[protocol].facts.ddl_partition is None


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


@dataclass
class _Seen:
    """What was found in consecutive records of a topic partition.

    Attributes:
        ddl: the commit-ts of each DDL event, by the identity of the event.
        watermark: the largest watermark; -1 if there is none.
        oldest: the offset and the time (ms since 1970) of the first record; None if no record has a timestamp.
        newest_ms: the largest timestamp.
        ahead_ms: the most by which a commit-ts is later than the timestamp of its record: 0, unless clocks differ.
        records: the number of records.
        is_whole: whether all records of the range were read.
    """

    ddl: _CommitTs = field(default_factory=dict)
    watermark: int = -1
    oldest: tuple[int, int] | None = None
    newest_ms: int = -1
    ahead_ms: int = 0
    records: int = 0
    is_whole: bool = False

    @classmethod
    def of(cls, chunk: Chunk, decoder: Decoder) -> _Seen:
        """Return what is found in a chunk."""
        seen, times = cls(records=len(chunk)), chunk.timestamps
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

    def and_(self, other: _Seen) -> _Seen:
        """Return what was found in the records of both."""
        return _Seen(
            self.ddl | other.ddl,
            max(self.watermark, other.watermark),
            min((oldest for oldest in (self.oldest, other.oldest) if oldest), default=None),
            max(self.newest_ms, other.newest_ms),
            max(self.ahead_ms, other.ahead_ms),
            self.records + other.records,
        )

    @property
    def bound(self) -> int | None:
        """A commit-ts that no DDL event before the first record exceeds; None if no record has a timestamp.

        It holds as long as clocks differ by `CLOCKS_DIFFER_MS` at most.
        """
        return of_ms(self.oldest[1] + self.ahead_ms + CLOCKS_DIFFER_MS) if self.oldest else None

    def is_enough(self, margin_ms: int) -> bool:
        """Return whether no DDL event before the first record is newer than the watermark, with a margin for clocks.

        In a topic without watermarks, it is whether TiCDC is unlikely to send such old DDL events behind the records.
        """
        if self.oldest is None:
            return False
        until_ms = self.oldest[1] + self.ahead_ms + margin_ms
        if self.watermark < 0:  # if TiCDC wrote watermarks, there would be one each second
            return self.newest_ms > until_ms + CLOCKS_DIFFER_MS
        return physical_ms(self.watermark) >= until_ms


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

    def of_range(self, offset_range: OffsetRange, log_start: int, latest: int) -> DDLCoverage:
        """Return the coverage of an offset range of a batch.

        Args:
            offset_range: the offset range; it is not empty.
            log_start: the log start of its partition.
            latest: the end of its partition, looked up after the range was planned.
        """
        tail = self._backwards(offset_range, margin_ms=0)
        if tail.is_whole:
            return DDLCoverage(until=-1).with_seen(tail.ddl, {})
        after, inside, outside = self._around_start(offset_range, log_start) if offset_range.start else (None, {}, {})
        until: int | None = tail.watermark
        end = offset_range.end
        if tail.watermark < 0:
            behind = self._forwards(offset_range._replace(start=end, end=max(end, latest)), lambda _: False)
            outside = outside | behind.ddl
            until = None if behind.is_whole else -1  # if not, nothing tells which other DDL events lie before the end
        return DDLCoverage(after=after, until=until).with_seen(inside | tail.ddl, outside)

    def of_start(self, offset_range: OffsetRange, log_start: int) -> DDLCoverage:
        """Return the coverage of a topic partition that is read from the start of a range on, without an end.

        Args:
            offset_range: the start, and the end of what may be read to decide.
            log_start: the log start of the partition.
        """
        after, inside, outside = self._around_start(offset_range, log_start)
        return DDLCoverage(after=after).with_seen(inside, outside)

    def _around_start(self, offset_range: OffsetRange, log_start: int) -> tuple[int | None, _CommitTs, _CommitTs]:
        """Return what `DDLCoverage.after` is for a start, and the DDL events that were seen after it and before it."""
        start, margin_ms = offset_range.start, CLOCKS_DIFFER_MS
        before = self._backwards(offset_range._replace(start=min(log_start, start), end=start), margin_ms)
        if before.is_whole and log_start == 0:  # a DDL event that TiCDC sends again after the start may come twice
            return None, {}, before.ddl
        since = _Seen()
        if not before.is_enough(margin_ms):
            since = self._forwards(offset_range, lambda seen: before.and_(seen).is_enough(margin_ms))
        after = before.and_(since).bound
        if after is None:  # no record is left: all DDL events before the start are of the past
            after = of_ms(int(time.time() * 1000) + CLOCKS_DIFFER_MS)
        return after, since.ddl, before.ddl

    def _backwards(self, offset_range: OffsetRange, margin_ms: int) -> _Seen:
        windows = windows_from_end(offset_range, self._fetch, _FIRST)
        return self._scan(windows, lambda seen: seen.is_enough(margin_ms))

    def _forwards(self, offset_range: OffsetRange, is_enough: Callable[[_Seen], bool]) -> _Seen:
        return self._scan(windows_from_start(offset_range, self._fetch, _FIRST), is_enough)

    def _scan(self, windows: Iterable[Iterable[Chunk]], is_enough: Callable[[_Seen], bool]) -> _Seen:
        seen = _Seen()
        for number, window in enumerate(windows):
            if number and (is_enough(seen) or seen.records >= self._limit or time.monotonic() >= self._deadline):
                return seen
            try:
                of_window = [_Seen.of(chunk, self._decoder) for chunk in window]
            except (DataLossError, DecodeError):  # if the read needs these records, it raises the error itself
                return seen
            seen = reduce(_Seen.and_, of_window, seen)
        return replace(seen, is_whole=True)


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
    after, names = copies.after, sorted(copies.exceptions)
    if len(names) > _MOST_NAMED:  # a larger `after` puts all of them outside
        after, names = max(-1 if after is None else after, *map(_ts_of, names)), []
    return {name: value for name, value in (("after", after), ("exceptions", names)) if value not in (None, [])}


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
    after, exceptions = copies.get("after"), copies.get("exceptions", [])
    if not (after is None or type(after) is int) or not all(isinstance(name, str) for name in exceptions):
        raise ValueError
    return DDLCoverage(after=after, exceptions=frozenset(exceptions))
