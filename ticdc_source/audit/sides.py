"""Both sides of an audit: buckets of rows, and the rows of a bucket, in TiDB and in a frame of Spark.

A row belongs to a bucket by the CRC-32 of its key. A bucket has a number of rows and the sum of their hashes, so rows
that are swapped, doubled or missing change it, and two changes do not cancel as they can in XOR.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

from ticdc_source.audit.canonical import (
    ComparedColumn,
    row_hash_in_spark,
    row_hash_in_tidb,
    row_text_in_spark,
    row_text_in_tidb,
)

__all__ = ["BUCKETS", "Bucket", "Comparison", "Side", "SparkSide", "TiDBQueries"]

BUCKETS = 4096
_LOW = 30  # bits of a hash that are summed apart, so that no sum of a bucket overflows a bigint
KEY = "k"  # the text of the key in rows; `c0`, `c1`, … are the texts of the columns


class Bucket(NamedTuple):
    """How many rows a bucket has, and the sum of their hashes."""

    rows: int
    hashes: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is compared.

    Attributes:
        columns: the columns.
        keys: those of the key, which are among them.
        buckets: the number of buckets.
    """

    columns: tuple[ComparedColumn, ...]
    keys: tuple[ComparedColumn, ...]
    buckets: int = BUCKETS

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns in `rows` of a side."""
        return tuple(f"c{number}" for number in range(len(self.columns)))


class Side(Protocol):
    """One side of an audit."""

    def buckets(self) -> dict[int, Bucket]:
        """Return the buckets that have rows."""

    def rows(self, buckets: Collection[int]) -> DataFrame:
        """Return the rows of buckets: the text of the key, and the texts of the columns."""


@dataclass(frozen=True, slots=True)
class TiDBQueries:
    """The questions to TiDB, each a `dbtable` of Spark's JDBC source.

    Attributes:
        table: the table, as SQL.
        comparison: what is compared.
    """

    table: str
    comparison: Comparison

    def buckets(self) -> str:
        """Return the question for the buckets: columns `bucket`, `n` and `hashes`, which are text."""
        row = f"{self._bucket()} AS bucket, {row_hash_in_tidb(self.comparison.columns)} AS hash"
        rows = f"(SELECT {row} FROM {self.table}) AS hashed"  # noqa: S608 (names are quoted)
        sums = "CAST(bucket AS CHAR) AS bucket, CAST(COUNT(*) AS CHAR) AS n, CAST(SUM(hash) AS CHAR) AS hashes"
        return f"(SELECT {sums} FROM {rows} GROUP BY bucket) AS buckets"  # noqa: S608

    def rows(self, buckets: Collection[int]) -> str:
        """Return the question for the rows of buckets, all columns text."""
        columns = zip(self.comparison.columns, self.comparison.names, strict=True)
        texts = ", ".join(f"{column.tidb} AS {name}" for column, name in columns)
        key = row_text_in_tidb(self.comparison.keys)
        condition = self.condition(buckets)
        where = f" WHERE {condition}" if condition else ""
        return f"(SELECT {key} AS {KEY}, {texts} FROM {self.table}{where}) AS differing"  # noqa: S608

    def condition(self, buckets: Collection[int]) -> str:
        """Return TiDB's SQL that is true of the rows of buckets; "" if these are all."""
        if len(buckets) == self.comparison.buckets:
            return ""
        return f"{self._bucket()} IN ({', '.join(map(str, sorted(buckets))) or 'NULL'})"

    def _bucket(self) -> str:
        return f"MOD(CRC32({row_text_in_tidb(self.comparison.keys)}), {self.comparison.buckets})"


def buckets_of(rows: Sequence[tuple[str, str, str | None]]) -> dict[int, Bucket]:
    """Return the buckets in TiDB's answer."""
    return {int(bucket): Bucket(int(n), int(hashes or 0)) for bucket, n, hashes in rows}


@dataclass(frozen=True, slots=True)
class SparkSide:
    """Rows of Spark.

    Attributes:
        frame: the rows.
        comparison: what is compared.
    """

    frame: DataFrame
    comparison: Comparison

    def buckets(self) -> dict[int, Bucket]:
        """Return the buckets that have rows."""
        hashed = self.frame.selectExpr(
            f"{self._bucket()} AS bucket", f"{row_hash_in_spark(self.comparison.columns)} AS hash"
        )
        sums = hashed.groupBy("bucket").agg(
            F.count(F.lit(1)).alias("n"),
            F.sum(F.expr(f"shiftright(hash, {_LOW})")).alias("high"),
            F.sum(F.expr(f"hash & {(1 << _LOW) - 1}")).alias("low"),
        )
        return {row["bucket"]: Bucket(row["n"], (row["high"] << _LOW) + row["low"]) for row in sums.collect()}

    def rows(self, buckets: Collection[int]) -> DataFrame:
        """Return the rows of buckets."""
        chosen = self.frame
        if len(buckets) < self.comparison.buckets:
            chosen = chosen.where(F.expr(self._bucket()).isin(sorted(buckets)))
        columns = zip(self.comparison.columns, self.comparison.names, strict=True)
        texts = (F.expr(column.spark).alias(name) for column, name in columns)
        return chosen.select(F.expr(row_text_in_spark(self.comparison.keys)).alias(KEY), *texts)

    def _bucket(self) -> str:
        key = row_text_in_spark(self.comparison.keys)
        return f"CAST(crc32(CAST({key} AS BINARY)) % {self.comparison.buckets} AS INT)"
