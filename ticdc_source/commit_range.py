"""The options `startingCommitTs` and `endingCommitTs`: which commit-ts a read wants."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["CommitRange"]


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
