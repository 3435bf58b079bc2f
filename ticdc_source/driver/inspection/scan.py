"""Offset ranges → the chunks to look at: all of a small topic, both ends of a large one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ticdc_source.driver.inference import Fetch, Sampler
from ticdc_source.events import Chunk
from ticdc_source.options.offsets import OffsetRange

__all__ = ["Limits", "Scan", "ScanProgress", "scan"]

_MOST_BYTES = 256 << 20  # of keys and values, which stay in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How far an inspection looks.

    Attributes:
        max_records: the number of records to read, of all topics together; some more may be read.
        timeout: the time in seconds after which no more records are asked for.
    """

    max_records: int = 100_000
    timeout: float = 30.0


@dataclass(frozen=True, slots=True)
class ScanProgress:
    """How far a scan is.

    Attributes:
        doing: what is done, in one word.
        done: the number of records so far.
        total: the number of records that will be looked at.
    """

    doing: str
    done: int
    total: int


@dataclass(slots=True)
class Scan:
    """The records that were read.

    Attributes:
        ranges: the offset ranges that could have been read.
        chunks: the chunks, in offset order within each topic partition; between two of them records may be left out.
        whole: whether all records of the ranges were read.
    """

    ranges: Sequence[OffsetRange]
    chunks: list[Chunk] = field(default_factory=list)
    whole: bool = True

    @property
    def records(self) -> int:
        """The number of records that were read."""
        return sum(map(len, self.chunks))


def scan(
    ranges: Sequence[OffsetRange], fetch: Fetch, limits: Limits, on_progress: Callable[[ScanProgress], object]
) -> Scan:
    """Read both ends of offset ranges, and then on from the start, until everything is read or a limit is reached.

    Args:
        ranges: the offset ranges.
        fetch: yields the records of a range.
        limits: how far to read.
        on_progress: called for each chunk.

    Raises:
        TiCDCSourceError: as `kafka.Fetcher.fetch`.
    """
    found = Scan(ranges)
    non_empty = [offset_range for offset_range in ranges if offset_range.size]
    total = min(limits.max_records, sum(offset_range.size for offset_range in non_empty))
    deadline = time.monotonic() + limits.timeout
    sampler = Sampler(non_empty, fetch, deadline)
    heads: list[Chunk] = []
    tails: list[Chunk] = []
    done = size = 0

    def keep(chunk: Chunk, kept: list[Chunk]) -> bool:
        nonlocal done, size
        kept.append(chunk)
        done += len(chunk)
        size += sum(map(len, filter(None, (*chunk.keys, *chunk.values))))
        on_progress(ScanProgress("read", min(done, total), total))
        return done < limits.max_records and size < _MOST_BYTES

    window = max(1, limits.max_records // max(1, 2 * len(non_empty)))
    for first, last in sampler.first_windows(window):
        more = all([keep(chunk, heads) for chunk in first] + [keep(chunk, tails) for chunk in last])
        if not more:
            break
    while sampler and done < limits.max_records and size < _MOST_BYTES and time.monotonic() < deadline:
        window = max(1, (limits.max_records - done) // len(non_empty))
        for chunk in sampler.forward(window):  # all of it: the sampler does not read it again
            keep(chunk, heads)
    found.chunks = sorted((*heads, *tails), key=lambda chunk: (chunk.topic, chunk.partition, chunk.offsets[0]))
    found.whole = not sampler
    return found
