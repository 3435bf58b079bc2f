"""What you would write yourself: read the changes of a table, and rebuild the table from them."""

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (what everybody calls it)

from examples.demo.added_columns import AddedColumn


def read_changes(spark: SparkSession, kafka: str, topic: str, table: str) -> DataFrame:
    """Read every change of one table; the source finds the protocol and the types in the messages."""
    return (
        spark.read.format("ticdc")
        .option("kafka.bootstrap.servers", kafka)
        .option("subscribe", topic)
        .option("tables", table)
        .load()
    )


def current_rows(changes: DataFrame) -> DataFrame:
    """Keep the newest image of each key, and drop rows whose newest change is a delete.

    Neither duplicates nor the order of delivery change the result. An update's old row is the newest of its key only if
    the update has changed the key.
    """
    newest = changes.groupBy(*key_columns(changes)).agg(F.max_by(F.struct("*"), "_sequence").alias("row"))
    return newest.select("row.*").where("_change_type IN ('insert', 'update_postimage')")


def key_columns(changes: DataFrame) -> list[str]:
    """Return the columns by which TiCDC identifies a row."""
    return [field.name for field in changes.schema if field.metadata.get("ticdc.key")]


def fill_added_columns(rows: DataFrame, added: Iterable[AddedColumn]) -> DataFrame:
    """Put the default of an added column into rows that are older than the column.

    `ALTER TABLE … ADD COLUMN … DEFAULT` changes every row of a table without writing any, so TiCDC has no row
    to send: only the DDL message shows the change.
    """
    for column in added:
        older = F.col("_commit_version") < column.commit_ts
        default = F.lit(column.default).cast(rows.schema[column.name].dataType)
        rows = rows.withColumn(column.name, F.when(older, default).otherwise(F.col(column.name)))
    return rows


def summary(changes: DataFrame) -> DataFrame:
    """Return for each change type and second: the number of changes, of different ones, and the first one."""
    return changes.groupBy("_change_type", F.date_trunc("second", "_commit_timestamp").alias("second")).agg(
        F.count("*").alias("count"),
        F.count_distinct("_commit_version", *key_columns(changes)).alias("different"),
        F.min_by(F.struct("*"), "_sequence").alias("first"),
    )
