"""How the rows of a table are written: what a user chooses of it, for `merge_into` and `append_log`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypedDict

__all__ = ["LogArguments", "MergeArguments", "WriteSettings"]


class LogArguments(TypedDict):
    """Arguments of `append_log`."""

    format: str | None
    column_prefix: str | None
    time_as: Literal["micros", "text"] | None
    partition_by: tuple[str, ...]
    cluster_by: tuple[str, ...]


class MergeArguments(LogArguments):
    """Arguments of `merge_into`."""

    keys: tuple[str, ...] | None
    deletes: Literal["soft", "hard"] | None
    time_zone: str
    commit_time: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """How the rows of a table are written, by its load as by its changes.

    Attributes:
        format: `delta` or `iceberg`, for a target that does not exist.
        keys: the columns that identify a row, if not those of TiDB.
        deletes: `soft` or `hard`.
        column_prefix: what precedes the names of the columns that are added.
        time_zone: the zone of TIMESTAMP defaults in DDL.
        time_as: how TIME is stored: `micros` or `text`.
        commit_time: whether the target has the time of a row's last commit.
        partition_by: the columns by which a new target is partitioned.
        cluster_by: the columns of liquid clustering, for a new target in Delta.
        as_log: whether the rows go to the log also if the table has a key.
    """

    format: str | None = None
    keys: tuple[str, ...] | None = None
    deletes: Literal["soft", "hard"] | None = None
    column_prefix: str | None = None
    time_zone: str = "UTC"
    time_as: Literal["micros", "text"] | None = None
    commit_time: bool = False
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    as_log: bool = False

    def for_merge(self) -> MergeArguments:
        """Return the arguments of `merge_into`."""
        return MergeArguments(
            **self.for_log(),
            keys=self.keys,
            deletes=self.deletes,
            time_zone=self.time_zone,
            commit_time=self.commit_time,
        )

    def for_log(self, *, has_layout: bool = True) -> LogArguments:
        """Return the arguments of `append_log`.

        Args:
            has_layout: whether the layout is that of the log; beside a table it is the table's.
        """
        return LogArguments(
            format=self.format,
            column_prefix=self.column_prefix,
            time_as=self.time_as,
            partition_by=self.partition_by if has_layout else (),
            cluster_by=self.cluster_by if has_layout else (),
        )
