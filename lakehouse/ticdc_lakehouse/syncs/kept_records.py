"""Records that are not in their target: those of tables that are set aside, and bad records in `_ticdc_quarantine`.

Until a table is resumed, its records are kept as they are, each micro-batch with its bounds. So a replay returns the
changes that the table would have got then: all changes of new records and, of records that were held back, only those
after `resolved_before`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from itertools import groupby
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from ticdc_lakehouse.syncs.config import SyncConfig
from ticdc_lakehouse.targets.changelog import rows_without
from ticdc_lakehouse.targets.opening import in_own_session, open_target
from ticdc_lakehouse.targets.sessions import computed, frame_in
from ticdc_lakehouse.targets.target import CommitFacts, NewColumn
from ticdc_source.developer_api import check_permission
from ticdc_source.errors import CheckpointError

_PLACE = ("_topic", "_partition", "_offset")
_BOUNDS = "_bounds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of the changes that micro-batches returned."""

    resolved_before: int | None = None  # the resolved ts before them; None if it was not known
    resolved_ts: int | None = None
    held_from: int | None = None  # the commit-ts from which the last one held changes back; None if it held none back


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptBatches:
    """The records of consecutive micro-batches, each once, which one commit can replay."""

    last: int
    bounds: Bounds
    records: DataFrame


class KeptRecords:
    """The records of one table: Parquet in a folder beside the checkpoint, with a folder for each micro-batch."""

    def __init__(self, spark: SparkSession, checkpoint: str, table: str) -> None:
        self._spark = spark
        self._table = table.lower()
        name = blake2b(self._table.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        self._folder = f"{checkpoint}/aside/{name}"

    def keep(self, batch_id: int, records: Callable[[Column], DataFrame], bounds: Bounds) -> None:
        """Keep the records of a micro-batch that have a row of the table or DDL.

        A micro-batch that Spark repeats replaces its kept records.
        """
        rows = F.exists("_tables", lambda name: F.lower(name) == self._table)
        ddl = F.array_contains("_event_types", "ddl")
        own = F.struct(*(F.lit(value).cast("bigint").alias(name) for name, value in asdict(bounds).items()))
        kept = records(rows | ddl).withColumn(_BOUNDS, own)
        check_permission()
        kept.write.mode("overwrite").parquet(f"{self._folder}/batch={batch_id}")

    def between(self, first: int, last: int, *, begins: bool = False) -> list[KeptBatches]:
        """Return the kept records from micro-batch `first` to `last`, both included.

        They are one part, or several if `consistency` has changed in between. If the table was set aside in the first
        micro-batch (`begins`), it must have been kept.
        """
        try:
            kept = self._spark.read.parquet(self._folder).where(F.col("batch").between(first, last))
        except AnalysisException:
            raise self._lost(first) from None
        rows = kept.select("batch", _BOUNDS).distinct().orderBy("batch").collect()
        batches = [(row["batch"], Bounds(**row[_BOUNDS].asDict())) for row in rows]
        if begins and first not in (number for number, _ in batches):
            raise self._lost(first)
        parts = groupby(batches, lambda each: each[1].held_from is None)
        return [_part(kept, list(part)) for _, part in parts]

    def remove(self) -> None:
        """Remove all kept records, once the table has them and its status says so."""
        context = self._spark.sparkContext
        path: Any = context._jvm.org.apache.hadoop.fs.Path(self._folder)  # type: ignore[union-attr]  # noqa: SLF001
        path.getFileSystem(context._jsc.hadoopConfiguration()).delete(path, True)  # noqa: FBT003, SLF001 (Spark knows it)

    def _lost(self, first: int) -> CheckpointError:
        return CheckpointError(
            f"{self._folder} lacks the kept records of micro-batch {first}, since which {self._table} is set aside. "
            "Restore this folder of the checkpoint. Otherwise drop the target, and load the table again"
        )


def _part(kept: DataFrame, batches: Sequence[tuple[int, Bounds]]) -> KeptBatches:
    (first, before), (last, after) = batches[0], batches[-1]
    # A record that was held back is in each micro-batch; only the first one tells whether some changes were applied.
    number = F.row_number().over(Window.partitionBy(*_PLACE).orderBy("batch"))
    records = kept.where(F.col("batch").between(first, last)).withColumn("_number", number).where("_number = 1")
    return KeptBatches(
        last=last,
        bounds=Bounds(resolved_before=before.resolved_before, resolved_ts=after.resolved_ts, held_from=after.held_from),
        records=records.drop("_number", "batch", _BOUNDS),
    )


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
    """The table `_ticdc_quarantine` in the lake: bad records, and why they are bad."""

    def __init__(self, config: SyncConfig) -> None:
        self.name, self._engine = config.layout.own("_ticdc_quarantine"), config.format
        self._lock = threading.Lock()

    def add(self, rows_with_bad: DataFrame, column: str, facts: CommitFacts) -> int:
        """Add the bad records that the table lacks, in one commit; return how many bad records there are.

        They are compared, as a repeated micro-batch may have others: the options may have changed.
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
        # Several tables may have bad records at once, and what a commit records is a setting of the session.
        spark = rows_with_bad.sparkSession
        with self._lock, in_own_session(spark, lambda own: open_target(own, self.name, self._engine)) as target:
            if not target.exists():
                target.create([NewColumn(field.name, field.dataType) for field in _SCHEMA], {})
            place = ("table_name", "column_name", "topic", "partition", "offset")
            new = rows_without(frame_in(rows, target.spark), target.frame(), place)
            target.append(new, CommitFacts())  # with a number, an engine may skip it
        return count

    def count_of(self, spark: SparkSession, table: str, first: int, last: int) -> int:
        """How many bad records of a table the micro-batches from `first` to `last` had."""
        target = open_target(spark, self.name, self._engine)
        if not target.exists():
            return 0
        is_its = (F.lower("table_name") == table.lower()) & F.col("batch_id").between(first, last)
        return target.frame().where(is_its).count()
