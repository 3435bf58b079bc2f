"""How late a reader is: offsets, commit-ts and watermarks → records and seconds. Arithmetic; the caller has the clock.

docs/design/0016-progress.md says what each lag means, and why.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["PartitionProgress", "commit_lag", "offset_lag", "seconds_of", "watermark_lag"]

_LOGICAL_BITS = 18  # of a TSO


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """How far a topic partition has been read.

    Attributes:
        next_offset: the next offset to read; None if it is not known.
        end: the end of the topic partition; None if it is not known.
        commit_ts: the largest commit-ts that was read; None without one.
        watermark: the largest watermark that was read; None without one.
        up_to_date: when nothing was left to read the last time that this was known, in seconds since 1970; None for
            never.
        delay: if nothing is left: how late the reader was when that was found out, in seconds.
    """

    next_offset: int | None = None
    end: int | None = None
    commit_ts: int | None = None
    watermark: int | None = None
    up_to_date: float | None = None
    delay: float = 0.0

    @property
    def left(self) -> int | None:
        """The number of offsets that are left to read; None if it is not known."""
        if self.next_offset is None or self.end is None:
            return None
        return max(0, self.end - self.next_offset)

    @property
    def read_to(self) -> float | None:
        """Everything up to this time, in seconds since 1970, has been read; None if nothing is known."""
        marks = [seconds_of(ts) for ts in (self.commit_ts, self.watermark) if ts is not None]
        return max([*marks, *(() if self.up_to_date is None else (self.up_to_date,))], default=None)


def seconds_of(ts: int) -> float:
    """Return the time of a TSO (a commit-ts or a watermark), in seconds since 1970."""
    return (ts >> _LOGICAL_BITS) / 1000


def offset_lag(positions: Iterable[PartitionProgress]) -> int | None:
    """Return how many offsets are left to read in all topic partitions; None if it is not known of any."""
    known = [position.left for position in positions if position.left is not None]
    return sum(known) if known else None


def commit_lag(positions: Iterable[PartitionProgress], now: float, *, is_busy: bool = False) -> float | None:
    """Return by how many seconds a reader is behind Kafka: how old the newest that it has read is, if more is left.

    Where nothing is left, it is the `delay`, so it does not grow while a topic is idle. It is never negative, whatever
    the clocks say.

    Args:
        positions: of all topic partitions; the latest of them counts.
        now: the time in seconds since 1970.
        is_busy: whether the reader is known to be reading, so that more is left wherever it is.

    Returns:
        The seconds; None if nothing is known of what was read.
    """
    lags = [
        position.delay if position.left == 0 and not is_busy else None if read_to is None else now - read_to
        for position in positions
        for read_to in [position.read_to]
    ]
    known = [lag for lag in lags if lag is not None]
    return max(0.0, *known) if known else None


def watermark_lag(resolved_ts: int | None, now: float) -> float | None:
    """Return how old the resolved ts is, in seconds: never negative, and None without one.

    TiCDC writes watermarks while nothing changes too, so this grows only if TiCDC, Kafka or the reader is late.
    """
    return None if resolved_ts is None else max(0.0, now - seconds_of(resolved_ts))
