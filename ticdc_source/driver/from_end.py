"""The newest records of a topic partition: windows of an offset range, from its end backwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ticdc_source.events import Chunk
from ticdc_source.options.offsets import OffsetRange

__all__ = ["CLOCKS_DIFFER_MS", "Fetch", "holds_no_larger_watermark", "windows_from_end"]

_LARGEST = 4096  # offsets to read at a time
_GROW = 8
_LOGICAL_BITS = 18
# A watermark lies behind the clock of its record. Records older than the largest watermark by more than this hold no
# larger one, unless clocks differ by as much. Then an older watermark is used: less is read, but whole transactions.
CLOCKS_DIFFER_MS = 60_000

Fetch = Callable[[OffsetRange], Iterable[Chunk]]


def windows_from_end(offset_range: OffsetRange, fetch: Fetch, first: int = _LARGEST) -> Iterator[Iterable[Chunk]]:
    """Yield the chunks of the last offsets, then those of the offsets before them, up to the start.

    Args:
        offset_range: the offset range.
        fetch: yields the records of a range.
        first: the number of offsets of the first window; those after it are larger.
    """
    end, size = offset_range.end, first
    while end > offset_range.start:
        start = max(offset_range.start, end - size)
        yield fetch(OffsetRange(offset_range.topic, offset_range.partition, start, end))
        end, size = start, min(_LARGEST, size * _GROW)


def holds_no_larger_watermark(oldest_ms: int | None, watermark: int | None) -> bool:
    """Return whether records before those that were read hold no larger watermark.

    Args:
        oldest_ms: the timestamp of the oldest record that was read; None or -1 if it is not known.
        watermark: the largest watermark among those that were read; None if there is none.
    """
    if watermark is None or oldest_ms is None:
        return False
    return 0 <= oldest_ms < (watermark >> _LOGICAL_BITS) - CLOCKS_DIFFER_MS
