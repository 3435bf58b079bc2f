"""Keep a log of every change of a table, as Parquet files.

    python -m examples.stream_to_parquet --bootstrap localhost:9092 --subscribe tidb-shop --table shop.orders \
        --output /data/orders-changes --checkpoint /data/checkpoints/orders-changes

Each run appends the changes since the last run, and ends. Run it as often as you like, and kill it when you like:
every *message* is in the output exactly once. A *change* may be there several times: TiCDC delivers at least once, and
after a restart it sends changes again, in new messages. So read the output through `distinct_changes`:

    from examples.stream_to_parquet import distinct_changes
    distinct_changes(spark, "/data/orders-changes").createOrReplaceTempView("orders_changes")
"""

import argparse
import os
import sys

from pyspark.sql import DataFrame, SparkSession

parser = argparse.ArgumentParser(prog="python -m examples.stream_to_parquet")
parser.add_argument("--bootstrap", required=True, help="Kafka's address, host:port")
parser.add_argument("--subscribe", required=True, help="the topic that TiCDC writes to")
parser.add_argument("--table", required=True, help="database.table")
parser.add_argument("--output", required=True, help="folder of the Parquet files")
parser.add_argument("--checkpoint", required=True, help="folder where Spark stores its progress")


def all_changes(spark: SparkSession, output: str) -> DataFrame:
    """Read the log as it was written, with the changes that TiCDC sent again."""
    # Files from before an ADD COLUMN lack the column, hence mergeSchema.
    return spark.read.option("mergeSchema", "true").parquet(output)


def distinct_changes(spark: SparkSession, output: str) -> DataFrame:
    """Read each change of the log once, however late it was repeated.

    A repeated change has the commit-ts of the first time, and a transaction changes a row only once. (canal-json has
    the commit-ts only with `enable-tidb-extension=true`. Without it, do not use this: two updates of a row in the same
    millisecond would become one.)
    """
    log = all_changes(spark, output)
    # The columns that identify a row: Parquet keeps the metadata that TiCDC's messages gave them.
    keys = [field.name for field in log.schema if field.metadata.get("ticdc.key")]
    if not keys:
        raise ValueError(
            f"{output}: the table has no primary key, so nothing tells a repeated change from another row's change"
        )
    return log.dropDuplicates([*keys, "_commit_version", "_change_type"])


def main() -> None:
    """Append the new changes."""
    arguments = parser.parse_args()

    # Spark's workers use this Python. If the package is installed, `ticdc` needs no registration.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName(f"changes of {arguments.table}").getOrCreate()

    changes = (
        spark.readStream.format("ticdc")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("subscribe", arguments.subscribe)
        .option("tables", arguments.table)
        .option("startingOffsets", "earliest")  # for the first run; later runs continue from the checkpoint
        .option("maxOffsetsPerTrigger", "1000000")  # at a time; PySpark 4.0 and 4.1 read no more in a run
        .load()
    )

    # Each run infers the types from the messages again, so it has columns that were added to the table meanwhile.
    changes.printSchema()

    # Spark records in the output which files a micro-batch wrote, so a repeated micro-batch is not there twice.
    query = (
        changes.writeStream.format("parquet")
        .option("path", arguments.output)
        .option("checkpointLocation", arguments.checkpoint)
        .trigger(availableNow=True)  # `processingTime="10 seconds"` would run forever
        .start()
    )
    query.awaitTermination()

    print("The log, one row for each row image that TiCDC sent:")
    all_changes(spark, arguments.output).groupBy("_change_type").count().orderBy("_change_type").show()
    print("The same without what TiCDC sent again:")
    distinct_changes(spark, arguments.output).groupBy("_change_type").count().orderBy("_change_type").show()


if __name__ == "__main__":
    main()
