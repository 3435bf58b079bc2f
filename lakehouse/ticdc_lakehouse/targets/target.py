"""The contract of a target: what `merge_into` and `append_log` need of a table, whatever engine has it.

A target knows its engine, and nothing of changes or DDL. Names of columns are as the table has them, without quotes;
conditions and values are expressions of Spark SQL.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType

__all__ = ["Commit", "CommitFacts", "LastBatch", "Merged", "NewColumn", "Target", "Upsert", "quoted"]

# What a commit records.
RESOLVED_TS, APP_ID, BATCH_ID = "ticdc.resolved_ts", "ticdc.app_id", "ticdc.batch_id"
CONTENT, ENDS = "ticdc.content", "ticdc.ends"


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """What a commit records, so that a reader of the table finds it again.

    Attributes:
        resolved_ts: every change up to this commit-ts, itself included, is in the table; None if nobody knows it.
        app_id: who writes: one name for each stream and target.
        batch_id: the number of the micro-batch. A stream whose checkpoint was restored uses it again for other changes.
        content: what the micro-batch has of the table: equal texts are the same changes.
        ends: of a log, the largest offset of each topic partition that this writer has written, as JSON.
    """

    resolved_ts: int | None = None
    app_id: str | None = None
    batch_id: int | None = None
    content: str | None = None
    ends: str | None = None

    @property
    def identity(self) -> str | None:
        """What tells the micro-batch from others with its number; None if the commit says nothing of it."""
        if self.content is not None or self.ends is None:
            return self.content
        return hashlib.sha256(self.ends.encode()).hexdigest()[:16]

    def as_properties(self) -> dict[str, str]:
        """Return what is known, by the names under which it is recorded."""
        named = {RESOLVED_TS: self.resolved_ts, APP_ID: self.app_id, BATCH_ID: self.batch_id, CONTENT: self.content,
                 ENDS: self.ends}  # fmt: skip
        return {name: str(value) for name, value in named.items() if value is not None}

    @staticmethod
    def of(properties: Mapping[str, object]) -> CommitFacts:
        """Return the facts among what a commit recorded."""
        names = (APP_ID, CONTENT, ENDS, RESOLVED_TS, BATCH_ID)
        texts = [None if properties.get(name) is None else str(properties[name]) for name in names]
        app_id, content, ends = texts[:3]
        resolved_ts, batch_id = (None if text is None else int(text) for text in texts[3:])
        return CommitFacts(resolved_ts, app_id, batch_id, content, ends)


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of a table.

    Attributes:
        version: Delta's version, or Iceberg's snapshot id.
        facts: what `merge_into` recorded with it; nothing in commits of others.
    """

    version: int
    facts: CommitFacts


class LastBatch(NamedTuple):
    """The last micro-batch of a writer whose rows a table has, and what was undone since.

    Attributes:
        facts: what its commit recorded; None if the table has none of the writer's, or nobody knows which.
        undone: the smallest number of a micro-batch that somebody has undone since, by a restore or a rollback; None if
            there is none.
    """

    facts: CommitFacts | None
    undone: int | None = None

    @property
    def number(self) -> int:
        """Its number; -1 if there is none."""
        return -1 if self.facts is None or self.facts.batch_id is None else self.facts.batch_id


@dataclass(frozen=True, slots=True)
class NewColumn:
    """A column that a table is to get."""

    name: str
    type: DataType
    comment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Upsert:
    """Images of rows, one for each key: each changes the row with its key if its sequence is larger than the row's.

    Attributes:
        images: the images: `k0`, `k1`, … are the keys, `c0`, … the other values, `seq` the sequence; `gone` says that
            the row is gone, and `bare` that such an image has only its key.
        keys: the columns of the keys, in the order of `k0`, …; NULL equals NULL.
        values: the columns of the other values, in the order of `c0`, …. A bare image leaves them as they are.
        sequence: the column of the sequence.
        committed_at: the column of the commit's time; None if there is none.
        deleted: the column that says whether the row is gone; None if there is none.
        removes: whether a row that is gone leaves the table, and is not added to it.
        tombstones: the table with the sequences of deleted keys; images that are older than theirs change nothing.
    """

    images: DataFrame
    keys: tuple[str, ...]
    values: tuple[str, ...]
    sequence: str
    committed_at: str | None = None
    deleted: str | None = None
    removes: bool = False
    tombstones: Target | None = None


@dataclass(frozen=True, slots=True)
class Merged:
    """What a MERGE did.

    Attributes:
        rows: how many rows it changed; None if the engine does not tell.
        is_commit: whether it has made a commit: one that changes nothing may make none.
    """

    rows: int | None = None
    is_commit: bool = False


class Target(Protocol):
    """A table that commits at once, or not at all; `targets/delta.py` and `targets/iceberg.py` have the two.

    Attributes:
        time_as: how TIME is stored, which no engine has: `micros`, a bigint, or `text`.
    """

    time_as: str

    @property
    def spark(self) -> SparkSession:
        """The session."""

    @property
    def name(self) -> str:
        """The name as SQL: `lake.shop.orders`, or the path of a Delta table."""

    @property
    def engine(self) -> str:
        """`delta` or `iceberg`."""

    def exists(self) -> bool:
        """Return whether the table exists."""

    def frame(self) -> DataFrame:
        """Return the rows."""

    def frame_at(self, version: int) -> DataFrame:
        """Return the rows of a version, as `commits` gives it, with the columns that it had."""

    def deleted_keys(self) -> Target:
        """Return the table with the keys that hard deletes removed; it need not exist."""

    def columns(self) -> dict[str, DataType]:
        """Return the types of the columns by name, in the table's order."""

    def properties(self) -> dict[str, str]:
        """Return the table properties."""

    def stored(self, type_: DataType) -> DataType:
        """Return the type in which the engine keeps values of a type."""

    def can_widen(self, old: DataType, new: DataType) -> bool:
        """Return whether a column with rows can change its type so."""

    def create(
        self,
        columns: Sequence[NewColumn],
        properties: Mapping[str, str],
        location: str | None = None,
        *,
        layout: str = "",
        replaces: bool = False,
    ) -> None:
        """Create the table, and its namespace if that is missing.

        Args:
            columns: its columns.
            properties: its properties.
            location: where it puts its files.
            layout: the clause of SQL with its layout.
            replaces: whether it takes the place of a table that is there, and has no columns yet.
        """

    def add_columns(self, columns: Sequence[NewColumn]) -> None:
        """Add columns, which are NULL in all rows; one commit, if no type needs a feature that the table lacks."""

    def widen_column(self, name: str, type_: DataType) -> None:
        """Change the type of a column to a wider one."""

    def check_drop(self, names: Sequence[str]) -> None:
        """Refuse to drop columns, before anything is written.

        Raises:
            TargetError: the table is laid out by one of them, or cannot drop columns.
        """

    def drop_columns(self, names: Sequence[str]) -> None:
        """Drop columns with their values; `check_drop` has allowed it."""

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set table properties."""

    def remove_properties(self, names: Sequence[str]) -> None:
        """Remove table properties; those that the table does not have are ignored."""

    def update_rows(self, values: Mapping[str, str], where: str, facts: CommitFacts) -> None:
        """Set columns to values, which are SQL, in the rows that meet a condition; one commit.

        Its facts must not have the number of the micro-batch: whether the merge that follows is done is told by it.
        """

    def delete_rows(self, where: str, facts: CommitFacts) -> None:
        """Delete the rows that meet a condition; one commit. Its facts are as those of `update_rows`."""

    def merge(self, upsert: Upsert, facts: CommitFacts) -> Merged:
        """Merge newer images of rows; one commit.

        Args:
            upsert: the images, and what they change.
            facts: what the commit records.
        """

    def append(self, rows: DataFrame, facts: CommitFacts) -> Merged:
        """Append rows, whose columns the table has; one commit, as in `merge`."""

    def overwrite(self, rows: DataFrame, facts: CommitFacts) -> None:
        """Replace all rows; one commit."""

    def compact(self) -> None:
        """Write the rows of small files into larger ones, without deleted rows; a few commits, which change no row."""

    def forget_versions(self, keep: datetime.timedelta) -> None:
        """Remove versions and their files, except those that were the newest at a moment within a time until now.

        The commit of the last micro-batch stays, so that the target knows it if it comes again.
        """

    def commits(self, *, undone: bool = False) -> list[Commit]:
        """Return the commits that the engine still knows, newest first.

        Args:
            undone: whether those count that somebody has undone, by a restore or a rollback.
        """

    def undone(self) -> list[CommitFacts]:
        """Return what the commits recorded that somebody has undone, if the properties do not know that they are.

        That is so from a rollback in Iceberg until the next commit.
        """

    def last_batch(self, app_id: str) -> LastBatch | None:
        """Return the last micro-batch of a writer, by the commits that the engine still knows; None if there is none.

        Args:
            app_id: the name of the writer.
        """

    def refresh(self, spark: SparkSession) -> None:
        """Let another session see what this one has written."""


def quoted(name: str) -> str:
    """Return the name of a column in backticks."""
    return "`" + name.replace("`", "``") + "`"
