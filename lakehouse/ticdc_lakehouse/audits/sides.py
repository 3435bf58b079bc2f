"""Both sides of an audit: checksums of all rows and of buckets of them, in TiDB and in Spark; and the rows that differ.

A checksum is the number of rows and the sum of their hashes, so swapped, doubled or missing rows change it, and two
changes do not cancel as they could in XOR. The CRC-32 of its key puts a row into a bucket. Rows are read from TiDB for
buckets that differ only, and compared cell by cell.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Literal, NamedTuple

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.window import Window

from ticdc_lakehouse.audits.canonical import (
    HASH_BITS,
    ComparedColumn,
    row_hash_in_spark,
    row_hash_in_tidb,
    row_text_in_spark,
    row_text_in_tidb,
)
from ticdc_lakehouse.targets.sessions import computed
from ticdc_lakehouse.tidb import SnapshotTable
from ticdc_source.developer_api import quoted_name

BUCKETS = 4096
_PART = 20  # bits of a hash that are summed apart, so that no sum overflows a bigint
KEY = "__ticdc_key"  # the text of the key in rows, a name that no table has; `c0`, `c1`, … are the texts of the columns


class Checksum(NamedTuple):
    """How many rows there are, and the sum of their hashes."""

    rows: int
    hashes: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is compared; the columns of the key are among `columns`."""

    columns: tuple[ComparedColumn, ...]
    keys: tuple[ComparedColumn, ...]
    buckets: int = BUCKETS

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns in `rows` of a side."""
        return tuple(f"c{number}" for number in range(len(self.columns)))


@dataclass(frozen=True, slots=True)
class TiDBSide:
    """The side of TiDB: the table as of the TSO."""

    snapshot: SnapshotTable
    comparison: Comparison

    @property
    def _table(self) -> str:
        return quoted_name(*self.snapshot.name)

    def total(self) -> Checksum:
        return self._checksums("0", "")[0]

    def buckets(self) -> dict[int, Checksum]:
        return self._checksums(self._bucket(), " GROUP BY bucket")

    def _checksums(self, bucket: str, group: str) -> dict[int, Checksum]:
        row = f"{bucket} AS bucket, {row_hash_in_tidb(self.comparison.columns)} AS hash"
        rows = f"(SELECT {row} FROM {self._table}) AS hashed"  # noqa: S608 (names are quoted)
        number = "CAST(bucket AS CHAR)" if group else "'0'"
        sums = f"{number} AS bucket, CAST(COUNT(*) AS CHAR) AS n, CAST(SUM(hash) AS CHAR) AS hashes"
        answer = self.snapshot.answer(f"SELECT {sums} FROM {rows}{group}")  # noqa: S608
        return {int(number or 0): Checksum(int(count or 0), int(hashes or 0)) for number, count, hashes in answer}

    def rows(self, spark: SparkSession, buckets: Collection[int]) -> DataFrame:
        """Return the rows of buckets: the text of the key, and the texts of the columns."""
        columns = zip(self.comparison.columns, self.comparison.names, strict=True)
        texts = {KEY: row_text_in_tidb(self.comparison.keys), **{name: column.tidb for column, name in columns}}
        return computed(self.snapshot.texts(spark, self.condition(buckets), texts))

    def with_values(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the columns that have a value in any row: a target gets a column with its first value."""
        if not columns:
            return ()
        counts = ", ".join(f"COUNT({quoted_name(column)})" for column in columns)
        (row,) = self.snapshot.answer(f"SELECT {counts} FROM {self._table}")  # noqa: S608
        return tuple(column for column, count in zip(columns, row, strict=True) if int(count or 0))

    def condition(self, buckets: Collection[int]) -> str:
        """Return TiDB's SQL for the condition that a row is in these buckets; "" if they are all buckets."""
        if len(buckets) == self.comparison.buckets:
            return ""
        return f"{self._bucket()} IN ({', '.join(map(str, sorted(buckets))) or 'NULL'})"

    def _bucket(self) -> str:
        return f"MOD(CRC32({row_text_in_tidb(self.comparison.keys)}), {self.comparison.buckets})"


@dataclass(frozen=True, slots=True)
class SparkSide:
    """The side of Spark: the rows of the target as of the TSO."""

    frame: DataFrame
    comparison: Comparison

    def total(self) -> Checksum:
        return self._checksums("0").get(0, Checksum(0, 0))

    def buckets(self) -> dict[int, Checksum]:
        return self._checksums(self._bucket())

    def _checksums(self, bucket: str) -> dict[int, Checksum]:
        hashed = self.frame.selectExpr(f"{bucket} AS bucket", f"{row_hash_in_spark(self.comparison.columns)} AS hash")
        starts = range(0, HASH_BITS, _PART)
        parts = (F.sum(F.expr(f"shiftright(hash, {start}) & {(1 << _PART) - 1}")) for start in starts)
        rows = hashed.groupBy("bucket").agg(F.count(F.lit(1)), *parts).collect()
        return {row[0]: Checksum(row[1], sum(row[2 + n] << start for n, start in enumerate(starts))) for row in rows}

    def rows(self, buckets: Collection[int]) -> DataFrame:
        chosen = self.frame
        if len(buckets) < self.comparison.buckets:
            chosen = chosen.where(F.expr(self._bucket()).isin(sorted(buckets)))
        columns = zip(self.comparison.columns, self.comparison.names, strict=True)
        texts = (F.expr(column.spark).alias(name) for column, name in columns)
        return chosen.select(F.expr(row_text_in_spark(self.comparison.keys)).alias(KEY), *texts)

    def _bucket(self) -> str:
        key = row_text_in_spark(self.comparison.keys)
        return f"CAST(crc32(CAST({key} AS BINARY)) % {self.comparison.buckets} AS INT)"


NUMBER, KIND = "number", "kind"  # columns of rows that differ
MISSING, EXTRA, CHANGED = "missing", "extra", "changed"  # kinds


def differing_buckets(tidb: Mapping[int, Checksum], target: Mapping[int, Checksum]) -> set[int]:
    return {bucket for bucket in tidb.keys() | target.keys() if tidb.get(bucket) != target.get(bucket)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A row that differs: missing in the target, extra in it, or changed."""

    kind: Literal["missing", "extra", "changed"]
    key: Mapping[str, str | None]  # the columns of the key with their canonical texts
    # the columns that differ, with the canonical texts in TiDB and in the target; None for NULL
    cells: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Differences:
    """Rows that differ."""

    # The text of the key, `kind`, and of each column `t0`, … in TiDB and `s0`, … in the target; it is computed once.
    frame: DataFrame
    counts: Mapping[str, int]
    columns: Mapping[str, int]  # by the name of a column, how many values differ in rows that both sides have
    rows_read: int

    def sample(self, comparison: Comparison, most: int) -> tuple[Difference, ...]:
        found = self.frame.orderBy(KEY, NUMBER).limit(most).collect()
        return tuple(_difference(comparison, row) for row in found)


def differing_rows(comparison: Comparison, asked: DataFrame, target: DataFrame, newer: DataFrame) -> Differences:
    """Compare the rows of buckets, as TiDB and the target have them.

    `newer` has the keys, as texts in the column `KEY`, that changed after the TSO: the target no longer has their rows.
    """
    names = comparison.names
    rewritten = [
        F.expr(column.rewritten.replace("{}", name)).alias(name) if column.rewritten else F.col(name)
        for column, name in zip(comparison.columns, names, strict=True)
    ]
    theirs = asked.select(KEY, *rewritten).select(
        KEY, F.lit(1).alias(NUMBER), *(F.col(name).alias(f"t{name[1:]}") for name in names)
    )
    # A key that a target has twice is one row and an extra one.
    same_key = Window.partitionBy(KEY).orderBy(*names)
    ours = target.withColumn(NUMBER, F.row_number().over(same_key))
    ours = ours.select(KEY, NUMBER, *(F.col(name).alias(f"s{name[1:]}") for name in names))
    both = theirs.withColumn("_t", F.lit(1)).join(ours.withColumn("_s", F.lit(1)), [KEY, NUMBER], "full_outer")
    differs = [_differs(number) for number in range(len(names))]
    kind = F.when(F.col("_s").isNull(), MISSING).when(F.col("_t").isNull(), EXTRA).otherwise(CHANGED)
    changed = reduce(lambda one, other: one | other, differs)
    frame = both.where(F.col("_s").isNull() | F.col("_t").isNull() | changed).withColumn(KIND, kind)
    of_newer = frame.join(newer.withColumn("_newer", F.lit(1)), KEY, "left")
    frame = of_newer.where((F.col(KIND) != MISSING) | F.col("_newer").isNull())  # the target has only the newer row
    frame = computed(frame.drop("_s", "_t", "_newer"))
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
