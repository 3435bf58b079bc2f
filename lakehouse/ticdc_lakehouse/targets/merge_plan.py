"""MergePlan: the columns that a merge gives to its target, and where the values of images go; and its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import DataType

from ticdc_lakehouse.targets.changelog import (
    Changelog,
    Images,
    committed_at,
    computed_with,
    given_to_target,
    lost_values,
)
from ticdc_lakehouse.targets.target import NewColumn, Target, Upsert
from ticdc_lakehouse.targets.target_names import quoted
from ticdc_source.errors import SchemaError

__all__ = ["MergePlan", "MergeReport", "computed_images"]

_ROWS_OF_A_TASK = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeReport:
    """What `merge_into` did.

    Attributes:
        target: the name of the target.
        created: whether it was created.
        added: the columns that were added.
        widened: the columns whose type was widened.
        undecided: the columns that the target does not get yet: they have had only NULLs, which do not tell their type.
        images: how many keys the changes have.
        rows: how many rows of the target were changed; None if the engine does not tell.
        repeated: whether the rows were left as they are, because the target has this micro-batch already.
        content: what the commit of the target records of this micro-batch; None if no commit does.
    """

    target: str
    created: bool = False
    added: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    images: int = 0
    rows: int | None = None
    repeated: bool = False
    content: str | None = None


@dataclass(frozen=True, slots=True)
class MergePlan:
    """What a merge will do to the columns of the target.

    Attributes:
        columns: the columns that the target will have, by lower-case name: its own name of each, and the type.
        add: the columns to add; of a new table all.
        widen: the columns to widen, with their new types.
        prefix: what precedes the names of the target's own columns.
        commit_time: whether the target has the time of a row's last commit.
        drop: the columns to drop before they are added with another type; the target has no rows then.
    """

    columns: Mapping[str, tuple[str, DataType]]
    add: tuple[NewColumn, ...]
    widen: tuple[tuple[str, DataType], ...]
    prefix: str
    hard: bool
    commit_time: bool = False
    drop: tuple[str, ...] = ()

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


def computed_images(
    images: Images, changes: Changelog, existing: Mapping[str, DataType], what: str
) -> tuple[Images, int, int, str, dict[str, DataType | None]]:
    """Compute the images and, in the same pass, what is to be known of them.

    It decides the type of a column (`given_to_target`) whose values, if there are any, are values of its own type. It
    does not get an undecided column without a value: values that come later would not fit a default type.

    Returns:
        The images; how many there are, and how many of them say that the row is gone; which they are: other images have
        another text; and by the name of such a column
        the type that the target has, None if it lacks the column.

    Raises:
        SchemaError: there are rows without a `_sequence`.
    """
    types = {name.lower(): type_ for name, type_ in existing.items()}
    given = given_to_target(changes.columns, types)
    undecided = {name: number for number, name in enumerate(images.others) if name in given}
    lost = {
        f"lost{number}": lost_values(f"c{number}", given[name], types.get(name.lower()))
        for name, number in undecided.items()
    }
    counts = {
        "all": F.count(F.lit(1)),
        "gone": F.count_if("gone"),
        "unordered": F.count_if(F.col("seq").isNull()),
        "places": F.bit_xor(F.xxhash64("seq")),
    }
    frame, row = computed_with(images.frame, {**counts, **lost})
    if row["unordered"]:
        msg = (
            f"Cannot merge {what}: {row['unordered']} keys have only rows without a _sequence, by which changes are "
            "ordered. Keep the column as the source gives it"
        )
        raise SchemaError(msg)
    decided = {name: types.get(name.lower()) for name, number in undecided.items() if not row[f"lost{number}"]}
    tasks = max(1, -(-row["all"] // _ROWS_OF_A_TASK))  # however many they were computed in
    few = replace(images, frame=frame.coalesce(tasks))
    content = f"{row['all']}:{(row['places'] or 0) % 2**64:016x}"
    return few, row["all"], row["gone"], content, decided
