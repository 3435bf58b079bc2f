"""A copy of a table in plain Parquet, which each micro-batch writes again: what tests of streams compare with SQL.

merge = merge_into(output, keys)
changes.writeStream.foreachBatch(merge)…
rows(spark, output).show()
"""

import shutil
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (what everybody calls it)


def newest(images: DataFrame, keys: list[str]) -> DataFrame:
    """Keep the newest image of each key, also of a deleted row.

    `_sequence` is the order in which TiDB committed the changes, whatever the order in which Kafka delivers them.
    """
    return images.groupBy(*keys).agg(F.max_by(F.struct("*"), "_sequence").alias("image")).select("image.*")


def merge_into(output: str, keys: list[str]) -> Callable[[DataFrame, int], None]:
    """Return the function that merges a micro-batch into the copy.

    It may get the same changes twice: Spark repeats the micro-batch that was running when it was killed, and TiCDC
    sends changes again when it restarts. The newest image of a key stays the same, however often an old one arrives.
    That is why a deleted row stays in the copy, as its last image with `_change_type` "delete": without it, a repeated
    insert would bring the row back.
    """

    def merge(batch: DataFrame, _number: int) -> None:
        version = current_version(output)
        images = batch
        if version > 0:
            # A column that was added to the table is in the batch, but not yet in the copy.
            before = batch.sparkSession.read.parquet(folder(output, version))
            images = before.unionByName(batch, allowMissingColumns=True)

        # Files that a killed run left in the next version's folder are overwritten; the current version is only read.
        newest(images, keys).write.mode("overwrite").parquet(folder(output, version + 1))
        make_current(output, version + 1)
        # The previous version is kept for jobs that are reading it.
        shutil.rmtree(folder(output, version - 1), ignore_errors=True)

    return merge


def folder(output: str, version: int) -> str:
    return str(Path(output) / f"version-{version}")


def current_version(output: str) -> int:
    """Return the number of the current, complete version; 0 if there is none."""
    pointer = Path(output) / "CURRENT"
    return int(pointer.read_text()) if pointer.exists() else 0


def make_current(output: str, version: int) -> None:
    new = Path(output) / "CURRENT.new"
    new.write_text(f"{version}\n")
    new.replace(Path(output) / "CURRENT")


def rows(spark: SparkSession, output: str) -> DataFrame:
    """Read the copy: the rows that are not deleted."""
    return spark.read.parquet(folder(output, current_version(output))).where("_change_type <> 'delete'")
