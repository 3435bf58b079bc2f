"""`_ticdc_quarantine`: a table in the lake with bad records, and why they are bad."""

from __future__ import annotations

import threading
from functools import reduce
from operator import and_

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from ticdc_lakehouse.common.verbatim import computed
from ticdc_lakehouse.targets.merge_sessions import frame_in
from ticdc_lakehouse.targets.opening import in_own_session, open_target
from ticdc_lakehouse.targets.target import CommitFacts, NewColumn

_SCHEMA = StructType([
    StructField("batch_id", LongType()),
    StructField("table_name", StringType()),
    StructField("column_name", StringType()),
    StructField("reason", StringType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
])  # fmt: skip
# A value of `columnNameOfCorruptRecord`.
_TOLD = StructType([StructField("table", StringType()), StructField("column", StringType()), *_SCHEMA.fields[3:]])


class Quarantine:
    """The table of bad records."""

    def __init__(self, name: str, engine: str) -> None:
        self.name = name
        self._engine = engine
        self._lock = threading.Lock()

    def add(self, rows_with_bad: DataFrame, column: str, facts: CommitFacts) -> int:
        """Add bad records that are not there yet, in one commit, whichever micro-batch brings them.

        A micro-batch that comes again may have others: the options may have changed.
        """
        told = F.from_json(column, _TOLD)
        rows = rows_with_bad.where(F.col(column).isNotNull()).select(told.alias("bad"))
        rows = computed(rows.select(
            F.lit(facts.batch_id).cast("bigint").alias("batch_id"),
            F.col("bad.table").alias("table_name"),
            F.col("bad.column").alias("column_name"),
            *(F.col(f"bad.{name}").alias(name) for name in _SCHEMA.names[3:]),
        ))  # fmt: skip
        count = rows.count()
        if count == 0:
            return 0
        # Several tables may have bad records, and what a commit records is a setting of its session.
        spark = rows_with_bad.sparkSession
        with self._lock, in_own_session(spark, lambda own: open_target(own, self.name, self._engine)) as target:
            if not target.exists():
                target.create([NewColumn(field.name, field.dataType) for field in _SCHEMA], {})
            place = ("table_name", "column_name", "topic", "partition", "offset")
            here, there = frame_in(rows, target.spark).alias("here"), target.frame().select(*place).alias("there")
            same = reduce(and_, (F.col(f"here.{name}").eqNullSafe(F.col(f"there.{name}")) for name in place))
            target.append(here.join(there, same, "left_anti"), CommitFacts())  # with a number, an engine may skip it
        return count

    def count_of(self, spark: SparkSession, table: str, first: int, last: int) -> int:
        """Return how many bad records of a table came in some micro-batches, from the first to the last."""
        target = open_target(spark, self.name, self._engine)
        if not target.exists():
            return 0
        is_its = (F.lower("table_name") == table.lower()) & F.col("batch_id").between(first, last)
        return target.frame().where(is_its).count()
