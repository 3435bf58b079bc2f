"""Keep a copy of a table: each run merges what has changed since the last one.

    python -m examples.stream_to_table --bootstrap localhost:9092 --topic tidb-shop --table shop.orders \
        --output /data/orders --checkpoint /data/checkpoints/orders

    from examples.stream_to_table import rows
    rows(spark, "/data/orders").show()

The copy is plain Parquet, written anew by each micro-batch: right for tables of some gigabytes, and to see what is
needed. With Delta Lake or Iceberg, `merge` below is a MERGE by the same keys, under the same condition.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (what everybody calls it)

parser = argparse.ArgumentParser(prog="python -m examples.stream_to_table")
parser.add_argument("--bootstrap", required=True, help="Kafka's address, host:port")
parser.add_argument("--topic", required=True, help="the topic that TiCDC writes to")
parser.add_argument("--table", required=True, help="database.table")
parser.add_argument("--output", required=True, help="folder of the copy")
parser.add_argument("--checkpoint", required=True, help="folder where Spark notes how far it got")


def read_changes(spark: SparkSession, bootstrap: str, topic: str, table: str) -> DataFrame:
    """Read the changes of one table, from the first that Kafka still has."""
    return (
        spark.readStream.format("ticdc")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("tables", table)
        .option("preimages", "false")  # what a row was before is not needed here
        .option("startingOffsets", "earliest")
        .load()
    )


def newest(images: DataFrame, keys: list[str]) -> DataFrame:
    """Keep the newest image of each key, the image of a deleted row too.

    `_sequence` is the order in which TiDB committed, whatever the order in which Kafka delivers.
    """
    return images.groupBy(*keys).agg(F.max_by(F.struct("*"), "_sequence").alias("image")).select("image.*")


def merge_into(output: str, keys: list[str]) -> Callable[[DataFrame, int], None]:
    """Return what is to happen with a micro-batch.

    It may happen twice: Spark repeats the micro-batch that was in the works when it was killed, and TiCDC sends
    changes again when it restarts. The newest image of a key is the same, however often an old one comes.
    That is why a deleted row stays, as its last image with `_change_type` "delete": without it, an older insert that
    comes once more would bring the row back.
    """

    def merge(batch: DataFrame, _number: int) -> None:
        version = current_version(output)
        images = batch
        if version > 0:
            # A column that was added to the table is in the batch and not yet in the copy.
            before = batch.sparkSession.read.parquet(folder(output, version))
            images = before.unionByName(batch, allowMissingColumns=True)

        # What a killed run left in the next version's folder is overwritten; the current version is only read.
        newest(images, keys).write.mode("overwrite").parquet(folder(output, version + 1))
        make_current(output, version + 1)
        # One version back is kept, for those who have begun to read it.
        shutil.rmtree(folder(output, version - 1), ignore_errors=True)

    return merge


def folder(output: str, version: int) -> str:
    """Return where a version of the copy is."""
    return str(Path(output) / f"version-{version}")


def current_version(output: str) -> int:
    """Return the number of the version that is whole; 0 where there is none."""
    pointer = Path(output) / "CURRENT"
    return int(pointer.read_text()) if pointer.exists() else 0


def make_current(output: str, version: int) -> None:
    """Point to another version: at once, and whole or not at all."""
    new = Path(output) / "CURRENT.new"
    new.write_text(f"{version}\n")
    new.replace(Path(output) / "CURRENT")


def rows(spark: SparkSession, output: str) -> DataFrame:
    """Read the copy: the rows that are not deleted."""
    return spark.read.parquet(folder(output, current_version(output))).where("_change_type <> 'delete'")


def main() -> None:
    """Merge what is new."""
    arguments = parser.parse_args()

    # Spark's workers are to be this Python. `ticdc` needs no registration where the package is installed.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"copy of {arguments.table}")
    spark = builder.config("spark.sql.shuffle.partitions", "8").getOrCreate()  # so many files has the copy

    changes = read_changes(spark, arguments.bootstrap, arguments.topic, arguments.table)

    # TiCDC says which columns identify a row; the schema's metadata passes it on.
    keys = [field.name for field in changes.schema if field.metadata.get("ticdc.key")]
    if not keys:
        sys.exit(f"{arguments.table} has no primary key: there is nothing to merge by")

    query = (
        changes.writeStream.foreachBatch(merge_into(arguments.output, keys))
        .option("checkpointLocation", arguments.checkpoint)
        .trigger(availableNow=True)  # `processingTime="1 minute"` would go on forever
        .start()
    )
    query.awaitTermination()

    print(f"{arguments.table}, keyed by {', '.join(keys)}: {rows(spark, arguments.output).count()} rows")


if __name__ == "__main__":
    main()
