"""Two sides → what differs: equal buckets move no rows, and of the others the rows are compared cell by cell."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.window import Window

from ticdc_lakehouse.audits.report import Difference
from ticdc_lakehouse.audits.sides import KEY, Checksum, Comparison, Side
from ticdc_lakehouse.spark_sql.computed import computed

__all__ = ["EXTRA", "KIND", "NUMBER", "Differences", "differing_buckets", "differing_rows"]

NUMBER, KIND = "number", "kind"  # columns of rows that differ
MISSING, EXTRA, CHANGED = "missing", "extra", "changed"  # kinds


def differing_buckets(tidb: Mapping[int, Checksum], target: Mapping[int, Checksum]) -> set[int]:
    """Return the buckets that have not the same rows on both sides."""
    return {bucket for bucket in tidb.keys() | target.keys() if tidb.get(bucket) != target.get(bucket)}


@dataclass(frozen=True, slots=True)
class Differences:
    """Rows that differ.

    Attributes:
        frame: these rows: the text of the key, `kind`, and of each column `t0`, `t1`, … in TiDB and `s0`, … in the
            target, as far as the row is there. It is computed once.
        counts: how many rows of each kind there are.
        columns: by the name of a column, how many values differ in rows that both sides have.
        rows_read: how many rows TiDB sent.
    """

    frame: DataFrame
    counts: Mapping[str, int]
    columns: Mapping[str, int]
    rows_read: int

    def sample(self, comparison: Comparison, most: int) -> tuple[Difference, ...]:
        """Return some of the rows, in the order of their keys."""
        found = self.frame.orderBy(KEY, NUMBER).limit(most).collect()
        return tuple(_difference(comparison, row) for row in found)


def differing_rows(
    comparison: Comparison, tidb: Side, target: Side, buckets: Collection[int], newer: DataFrame | None
) -> Differences:
    """Compare the rows of buckets.

    Args:
        comparison: what is compared.
        tidb: the one side.
        target: the other side.
        buckets: the buckets.
        newer: the texts of keys, in a column `k`, that changed since, and of which the target no longer has the row.
    """
    names = comparison.names
    rewritten = [
        F.expr(column.rewritten.replace("{}", name)).alias(name) if column.rewritten else F.col(name)
        for column, name in zip(comparison.columns, names, strict=True)
    ]
    asked = tidb.rows(buckets)
    theirs = asked.select(KEY, *rewritten).select(
        KEY, F.lit(1).alias(NUMBER), *(F.col(name).alias(f"t{name[1:]}") for name in names)
    )
    # A key that a target has twice is one row and an extra one.
    same_key = Window.partitionBy(KEY).orderBy(*names)
    ours = target.rows(buckets).withColumn(NUMBER, F.row_number().over(same_key))
    ours = ours.select(KEY, NUMBER, *(F.col(name).alias(f"s{name[1:]}") for name in names))
    both = theirs.withColumn("_t", F.lit(1)).join(ours.withColumn("_s", F.lit(1)), [KEY, NUMBER], "full_outer")
    differs = [_differs(number) for number in range(len(names))]
    kind = F.when(F.col("_s").isNull(), MISSING).when(F.col("_t").isNull(), EXTRA).otherwise(CHANGED)
    changed = reduce(lambda one, other: one | other, differs)
    frame = both.where(F.col("_s").isNull() | F.col("_t").isNull() | changed).withColumn(KIND, kind)
    if newer is not None:  # the target no longer has what such a row was
        of_newer = frame.join(newer.withColumn("_newer", F.lit(1)), KEY, "left")
        frame = of_newer.where((F.col(KIND) != MISSING) | F.col("_newer").isNull()).drop("_newer")
    frame = computed(frame.drop("_s", "_t"))
    counts = {row[KIND]: row["count"] for row in frame.groupBy(KIND).count().collect()}
    columns: dict[str, int] = {}
    if counts.get(CHANGED):
        row = frame.where(F.col(KIND) == CHANGED).agg(*(F.count_if(one) for one in differs)).collect()[0]
        columns = {column.name: row[number] for number, column in enumerate(comparison.columns) if row[number]}
    return Differences(frame, counts, columns, asked.count())


def _differs(number: int) -> Column:
    return ~F.col(f"t{number}").eqNullSafe(F.col(f"s{number}"))


def _difference(comparison: Comparison, row: Row) -> Difference:
    side = "s" if row[KIND] == EXTRA else "t"
    numbers = {column.name: number for number, column in enumerate(comparison.columns)}
    key = {column.name: row[f"{side}{numbers[column.name]}"] for column in comparison.keys}
    if row[KIND] != CHANGED:
        return Difference(kind=row[KIND], key=key)
    pairs = {name: (row[f"t{number}"], row[f"s{number}"]) for name, number in numbers.items()}
    cells = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    return Difference(kind="changed", key=key, cells=cells)
