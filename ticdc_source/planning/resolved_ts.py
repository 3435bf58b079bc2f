"""`endingCommitTs=resolved`: the commit-ts below which offset ranges hold every transaction whole.

The newest watermarks tell it, so ranges are read in windows from their ends backwards.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ticdc_source.errors import DataLossError, DecodeError, SchemaError
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.topics import TopicPartition, listed
from ticdc_source.protocols.decoding import Decoder, splits_of
from ticdc_source.protocols.events import Split
from ticdc_source.schema.ddl_event import ddl_kind
from ticdc_source.schema.tso import of_ms, physical_ms
from ticdc_source.sources.chunk import Chunk

_log = logging.getLogger(__name__)

# TiCDC writes watermarks to all topics at once, every few seconds. A topic that lacks them for so long gets no more;
# its range does not merely end just behind a DDL event.
_INACTIVITY = of_ms(60_000)
_ENDS_TABLE = frozenset({"drop_table", "rename_table", "drop_database"})
_LARGEST = 4096  # offsets to read at a time
_GROW = 8
# A watermark lies behind the clock of its record. Records older than the largest watermark by more than this hold no
# larger one, unless clocks differ by as much. Then an older watermark is used: less is read, but whole transactions.
CLOCKS_DIFFER_MS = 60_000

Fetch = Callable[[OffsetRange], Iterable[Chunk]]


def windows_from_end(offset_range: OffsetRange, fetch: Fetch, first: int = _LARGEST) -> Iterator[Iterable[Chunk]]:
    """Yield the chunks of the last `first` offsets, then those of more offsets before them, up to the start."""
    end, size = offset_range.end, first
    while end > offset_range.start:
        start = max(offset_range.start, end - size)
        yield fetch(OffsetRange(offset_range.topic, offset_range.partition, start, end))
        end, size = start, min(_LARGEST, size * _GROW)


def windows_from_start(offset_range: OffsetRange, fetch: Fetch, first: int = _LARGEST) -> Iterator[Iterable[Chunk]]:
    """Yield the chunks of the first `first` offsets, then those of more offsets behind them, up to the end."""
    start, size = offset_range.start, first
    while start < offset_range.end:
        end = min(offset_range.end, start + size)
        yield fetch(OffsetRange(offset_range.topic, offset_range.partition, start, end))
        start, size = end, min(_LARGEST, size * _GROW)


def scanned(
    windows: Iterable[Iterable[Chunk]], limit: int, timeout_s: float, clock: Callable[[], float] = time.monotonic
) -> Iterator[Sequence[Chunk]]:
    """Yield the chunks of windows, a window at a time, until there were `limit` records or `timeout_s` have passed.

    It stops at a window that cannot be read. If the read needs its records, the read raises the error.
    """
    records, begun = 0, clock()
    for window in windows:
        try:
            chunks = list(window)
        except (DataLossError, DecodeError):
            return
        yield chunks
        records += sum(map(len, chunks))
        if records >= limit or clock() - begun >= timeout_s:
            return


def holds_no_larger_watermark(oldest_ms: int | None, watermark: int | None) -> bool:
    """Return whether records before those that were read hold no larger watermark.

    `oldest_ms` is the timestamp of the oldest record that was read; None or -1 if it is not known.
    """
    if watermark is None or oldest_ms is None:
        return False
    return 0 <= oldest_ms < physical_ms(watermark) - CLOCKS_DIFFER_MS


@dataclass
class _Seen:
    watermark: int | None = None
    last_ddl: int = 0
    ends: set[int] = field(default_factory=set)  # commit-ts of the DDL that end a table


def resolved_until(ranges: Sequence[OffsetRange], fetch: Fetch, decoder: Decoder) -> int:
    """Return the end of a read, exclusive: the smallest, over the topic partitions, of each one's largest watermark.

    A read of everything strictly below it cuts no transaction, because all events up to a watermark are written before
    it (pingcap/ticdc cmd/kafka-consumer/writer.go, the global watermark). A topic whose tables were all dropped or
    renamed gets no more watermarks and would hold back all others for ever. It does not count if a DROP or RENAME of a
    table is the last event that it holds (event_router.go, active topics).

    Raises:
        SchemaError: a topic partition has no watermark in its range.
    """
    seen = {offset_range.topic_partition: _look(offset_range, fetch, decoder) for offset_range in ranges}
    inactive = _topics_without_watermarks(seen)
    if inactive and len(inactive) < len({topic_partition.topic for topic_partition in seen}):
        _log.warning("endingCommitTs=resolved: %s has had no watermark since its last DDL, and is left out",
                     ", ".join(sorted(inactive)))  # fmt: skip
        seen = {
            topic_partition: state for topic_partition, state in seen.items() if topic_partition.topic not in inactive
        }
    marks = {topic_partition: state.watermark for topic_partition, state in seen.items()}
    missing = sorted(topic_partition for topic_partition, mark in marks.items() if mark is None)
    if missing or not marks:
        where = listed(missing) or "the topics"
        help_ = (
            "wait for the first one, or widen the range" if decoder.facts.watermarks_need is None
            else f"TiCDC writes them only with {decoder.facts.watermarks_need}"
        )  # fmt: skip
        msg = f"endingCommitTs=resolved: no watermark in the range of {where}; {help_}"
        raise SchemaError(msg)
    topic_partition, until = min(
        ((topic_partition, mark) for topic_partition, mark in marks.items() if mark is not None),
        key=lambda item: item[1],
    )
    _log.info("endingCommitTs=resolved is %d, the watermark of %s", until, topic_partition)
    return until


def _look(offset_range: OffsetRange, fetch: Fetch, decoder: Decoder) -> _Seen:
    """Read one range backwards until no larger watermark can come; they go back when TiCDC restarts."""
    seen = _Seen()
    for window in windows_from_end(offset_range, fetch):
        oldest: int | None = None
        for chunk in window:
            for split in splits_of(decoder, chunk):
                _note(split, seen)
            if chunk.timestamps and oldest is None:
                oldest = chunk.timestamps[0]
        if holds_no_larger_watermark(oldest, seen.watermark):
            break
    return seen


def _note(split: Split, seen: _Seen) -> None:
    for mark in split.watermarks:
        seen.watermark = mark.ts if seen.watermark is None else max(seen.watermark, mark.ts)
    for event in split.ddl:
        seen.last_ddl = max(seen.last_ddl, event.commit_ts or 0)
        if ddl_kind(event) in _ENDS_TABLE:
            seen.ends.add(event.commit_ts or 0)


def _topics_without_watermarks(seen: dict[TopicPartition, _Seen]) -> set[str]:
    """Return the topics without a watermark since the DDL event that ended a table, while other topics went on."""
    newest = max((facts.watermark or 0 for facts in seen.values()), default=0)
    inactive = set()
    for topic in {topic_partition.topic for topic_partition in seen}:
        parts = [facts for topic_partition, facts in seen.items() if topic_partition.topic == topic]
        last = max(facts.last_ddl for facts in parts)
        ended = any(last in facts.ends for facts in parts)
        if ended and all((facts.watermark or 0) <= last for facts in parts) and newest > last + _INACTIVITY:
            inactive.add(topic)
    return inactive
