"""The options `startingCommitTs` and `endingCommitTs`: which commit-ts a read wants."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["CommitRange"]

_2_63 = 1 << 63  # above every commit-ts, but not above what the options may say


class CommitRange(NamedTuple):
    """`[start, end)` of commit-ts; None is open."""

    start: int | None = None
    end: int | None = None

    def __bool__(self) -> bool:
        """Tell whether anything is left out at all."""
        return self.start is not None or self.end is not None

    def holds(self, commit_ts: int) -> bool:
        """Tell whether a commit-ts is wanted."""
        return (self.start is None or commit_ts >= self.start) and (self.end is None or commit_ts < self.end)

    def held(self, commit_ts: pa.Array) -> pa.Array:
        """Tell of each commit-ts (int64) whether it is wanted."""
        start = min(self.start or 0, _2_63)
        end = _2_63 if self.end is None else min(self.end, _2_63)
        return pc.and_(
            pc.greater(commit_ts, pa.scalar(start - 1, pa.int64())),
            pc.less_equal(commit_ts, pa.scalar(end - 1, pa.int64())),
        )
