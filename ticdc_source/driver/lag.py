"""How late a reader is: offsets, commit-ts and watermarks → records and seconds. Callers pass the time.

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
        up_to_date_at: the last time when nothing was left to read, in seconds since 1970; None for never.
        delay: how late the reader was when it last found nothing left, in seconds.
    """

    next_offset: int | None = None
    end: int | None = None
    commit_ts: int | None = None
    watermark: int | None = None
    up_to_date_at: float | None = None
    delay: float = 0.0

    @property
    def left(self) -> int | None:
        """The number of offsets that are left to read; None if it is not known."""
        if self.next_offset is None or self.end is None:
            return None
        return max(0, self.end - self.next_offset)

    @property
    def newest_read(self) -> float | None:
        """The time of the newest change or watermark that was read, or of the last time when nothing was left.

        In seconds since 1970; None if nothing is known.
        """
        times = [seconds_of(ts) for ts in (self.commit_ts, self.watermark) if ts is not None]
        if self.up_to_date_at is not None:
            times.append(self.up_to_date_at)
        return max(times, default=None)

    def lag(self, now: float, *, is_busy: bool = False) -> float | None:
        """Return by how many seconds the reader is behind in this partition; None if nothing is known.

        Args:
            now: the time in seconds since 1970.
            is_busy: as in `commit_lag`.
        """
        if self.left == 0 and not is_busy:
            return self.delay
        newest = self.newest_read
        return None if newest is None else now - newest


def seconds_of(ts: int) -> float:
    """Return the time of a TSO (a commit-ts or a watermark), in seconds since 1970."""
    return (ts >> _LOGICAL_BITS) / 1000


def offset_lag(partitions: Iterable[PartitionProgress]) -> int | None:
    """Return how many offsets are left to read in the topic partitions where it is known; None if it is of none."""
    known = [partition.left for partition in partitions if partition.left is not None]
    return sum(known) if known else None


def commit_lag(partitions: Iterable[PartitionProgress], now: float, *, is_busy: bool = False) -> float | None:
    """Return by how many seconds a reader is behind Kafka: how old the newest that it has read is, if more is left.

    Where nothing is left, it is the `delay`, so it does not grow while a topic is idle. It is never negative, whatever
    the clocks say.

    Args:
        partitions: how far each topic partition has been read; the one that is furthest behind counts.
        now: the time in seconds since 1970.
        is_busy: whether the reader is known to be reading: partitions in which nothing is left count too.

    Returns:
        The seconds; None if of no partition anything is known.
    """
    lags = [partition.lag(now, is_busy=is_busy) for partition in partitions]
    known = [lag for lag in lags if lag is not None]
    return max(0.0, *known) if known else None


def watermark_lag(resolved_ts: int | None, now: float) -> float | None:
    """Return how old the resolved ts is, in seconds: never negative, and None without one.

    TiCDC writes watermarks while nothing changes too, so this grows only if TiCDC, Kafka or the reader is late.
    """
    return None if resolved_ts is None else max(0.0, now - seconds_of(resolved_ts))
