"""The records of tables that are set aside: kept as they are until somebody resumes the table."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

from ticdc_source.errors import CheckpointError

__all__ = ["KeptRecords"]


class KeptRecords:
    """A folder with the records of one table: Parquet, a folder for each micro-batch.

    Args:
        spark: the session.
        folder: the folder.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._folder = folder

    def keep(self, table: str, batch_id: int, records: DataFrame) -> None:
        """Keep the records of a micro-batch that have a row of the table, and all with DDL.

        A micro-batch that Spark repeats replaces what it has kept before.

        Args:
            table: the table.
            batch_id: the number of the micro-batch.
            records: its records, as `outputFormat=record` has them.
        """
        rows = F.exists("_tables", lambda name: F.lower(name) == table.lower())
        ddl = F.array_contains("_event_types", "ddl")
        records.where(rows | ddl).write.mode("overwrite").parquet(f"{self._folder}/batch={batch_id}")

    def since(self, batch_id: int, before: int) -> DataFrame:
        """Return the records that were kept from a micro-batch on, and before another.

        Raises:
            CheckpointError: there are none, though the table was set aside.
        """
        try:
            kept = self._spark.read.parquet(self._folder)
        except AnalysisException:
            msg = (
                f"The folder {self._folder} has no records, though the table was set aside in micro-batch {batch_id}. "
                "Restore the folder of the checkpoint; or remove the target, and load the table again"
            )
            raise CheckpointError(msg) from None
        return kept.where(F.col("batch").between(batch_id, before - 1)).drop("batch")
