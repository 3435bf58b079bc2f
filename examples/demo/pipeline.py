"""What you would write yourself: read the changes of a table, and make the table out of them."""

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (what everybody calls it)

from examples.demo.added_columns import AddedColumn


def read_changes(spark: SparkSession, kafka: str, topic: str, table: str) -> DataFrame:
    """Read every change of one table; the protocol and the types are found in the messages."""
    return (
        spark.read.format("ticdc")
        .option("kafka.bootstrap.servers", kafka)
        .option("subscribe", topic)
        .option("tables", table)
        .load()
    )


def current_rows(changes: DataFrame) -> DataFrame:
    """Keep the newest image of each key, and no row whose newest change is its deletion.

    What Kafka delivers twice changes nothing here, and neither does the order in which it comes.
    """
    newest = (
        changes.where("_change_type <> 'update_preimage'")
        .groupBy(*key_columns(changes))
        .agg(F.max_by(F.struct("*"), "_sequence").alias("row"))
    )
    return newest.select("row.*").where("_change_type <> 'delete'")


def key_columns(changes: DataFrame) -> list[str]:
    """Name the columns by which TiCDC identifies a row."""
    return [field.name for field in changes.schema if field.metadata.get("ticdc.key")]


def fill_added_columns(rows: DataFrame, added: Iterable[AddedColumn]) -> DataFrame:
    """Give rows that are older than a column the column's default.

    `ALTER TABLE … ADD COLUMN … DEFAULT` changes every row of a table without writing one, so TiCDC has no row
    to send: the DDL itself is the only message that tells.
    """
    for column in added:
        older = F.col("_commit_version") < column.commit_ts
        default = F.lit(column.default).cast(rows.schema[column.name].dataType)
        rows = rows.withColumn(column.name, F.when(older, default).otherwise(F.col(column.name)))
    return rows


def summary(changes: DataFrame) -> DataFrame:
    """Give for each kind of change: how many there are, how many different ones, and the first."""
    return changes.groupBy("_change_type").agg(
        F.count("*").alias("count"),
        F.count_distinct("_commit_version", *key_columns(changes)).alias("different"),
        F.min_by(F.struct("*"), "_sequence").alias("first"),
    )
