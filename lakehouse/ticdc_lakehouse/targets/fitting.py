"""What becomes of a column of a target whose type is another one than that of the changes, in a merge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import DataType, StructField

from ticdc_lakehouse.targets.apply_ddl import OldRows
from ticdc_lakehouse.targets.changelog import Images
from ticdc_lakehouse.targets.retyping import Misfit, Retyping
from ticdc_lakehouse.targets.target import Target, quoted
from ticdc_lakehouse.targets.widening import common_type
from ticdc_source.developer_api import MYSQL_TYPE

__all__ = ["Fitting", "RowsThatStay"]


@dataclass(frozen=True, slots=True)
class RowsThatStay:
    """The rows of the target that keep their values: they are not deleted, and no image replaces them.

    Attributes:
        target: the target.
        images: the images.
        sequence: its column with the place of the last change of a row.
        row_ts: the expression of a row's commit-ts.
        deleted: the column that says that a row is deleted; the target need not have it.
        truncated_ts: the commit-ts up to which DDL removed the rows; 0 if it did not.
    """

    target: Target
    images: Images
    sequence: str
    row_ts: str
    deleted: str
    truncated_ts: int

    def frame(self) -> DataFrame:
        """Return them."""
        rows = self.target.frame().where(f"{self.row_ts} > {self.truncated_ts}")
        if self.deleted in rows.columns:
            rows = rows.where(f"NOT {quoted(self.deleted)}")
        types = {field.name.lower(): field.dataType for field in rows.schema}
        keys = [(types.get(name.lower()), self.images.frame.schema[f"k{number}"].dataType)
                for number, name in enumerate(self.images.keys)]  # fmt: skip
        if any(old is None or common_type(old, new) is None for old, new in keys):
            return rows  # the keys have other names or types there
        same = [rows[quoted(name)].eqNullSafe(F.col(f"k{number}")) for number, name in enumerate(self.images.keys)]
        newer = F.col("seq") > rows[quoted(self.sequence)]
        return rows.join(self.images.frame, [*same, newer], "left_anti")


@dataclass(frozen=True, slots=True)
class Fitting:
    """What decides about a column of another type than that of the changes."""

    retyping: Retyping
    old_rows: OldRows
    rows: RowsThatStay

    def misfit(self, column: str, old: DataType, new: DataType, field: StructField) -> Misfit:
        """Return what is known of the column."""
        before = dict(self.old_rows.state.types).get(column.lower())
        return Misfit.of(column, (old, new), (before, (field.metadata or {}).get(MYSQL_TYPE)))

    def fit(self, misfit: Misfit, existing: Mapping[str, DataType]) -> DataType:
        """Return the type that the column gets."""
        return self.retyping.fit(misfit, existing, keeps=not self.old_rows.begins_anew(misfit.column))
