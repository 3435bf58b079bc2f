"""MergePlan: the columns that a merge gives to its target, and where the values of images go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import DataType

from ticdc_source.lakehouse.changelog import Images, committed_at
from ticdc_source.lakehouse.targets import NewColumn, Target, Upsert, quoted

__all__ = ["MergePlan"]


@dataclass(frozen=True, slots=True)
class MergePlan:
    """What a merge will do to the columns of the target.

    Attributes:
        columns: the columns that the target will have, by lower-case name: its own name of each, and the type.
        add: the columns to add; of a new table all.
        widen: the columns to widen, with their new types.
        prefix: what precedes the names of the target's own columns.
        hard: whether deletes are hard.
        commit_time: whether the target has the time of a row's last commit.
    """

    columns: Mapping[str, tuple[str, DataType]]
    add: tuple[NewColumn, ...]
    widen: tuple[tuple[str, DataType], ...]
    prefix: str
    hard: bool
    commit_time: bool = False

    @property
    def sequence(self) -> str:
        """The column with the place of the last change of a row."""
        return f"{self.prefix}sequence"

    @property
    def deleted(self) -> str:
        """The column that says, with soft deletes, that a row is deleted."""
        return f"{self.prefix}is_deleted"

    @property
    def committed_at(self) -> str | None:
        """The column with the time of a row's last commit; None if there is none."""
        return f"{self.prefix}committed_at" if self.commit_time else None

    def upsert(self, images: Images, tombstones: Target | None) -> Upsert:
        """Return what the images do to the rows of the target."""
        return Upsert(
            images=images.frame,
            keys=self._names(images.keys),
            values=self._names(images.others),
            sequence=self.sequence,
            committed_at=self.committed_at,
            deleted=None if self.hard else self.deleted,
            removes=self.hard,
            tombstones=tombstones,
        )

    def rows(self, images: Images) -> DataFrame:
        """Return the images as the rows of a target that has none."""
        own = {self.sequence: "seq"} | ({} if self.hard else {self.deleted: "gone"})
        keys = {name: f"k{number}" for number, name in enumerate(self._names(images.keys))}
        values = {name: f"c{number}" for number, name in enumerate(self._names(images.others))}
        chosen = images.frame.where("NOT gone") if self.hard else images.frame
        rows = chosen.select(*(F.col(old).alias(new) for new, old in {**keys, **values, **own}.items()))
        if self.committed_at is None:
            return rows
        return rows.withColumn(self.committed_at, committed_at(F.col(quoted(self.sequence))))

    def burial(self, images: Images) -> Upsert:
        """Return what the images of deleted rows do to the table of tombstones."""
        gone = images.frame.where("gone")
        return Upsert(images=gone, keys=self._names(images.keys), values=(), sequence=self.sequence)

    def _names(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return columns as the target calls them."""
        return tuple(self.columns[name.lower()][0] for name in names)
