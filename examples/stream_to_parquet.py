"""Keep a log of every change of a table, as Parquet files.

    python -m examples.stream_to_parquet --bootstrap localhost:9092 --topic tidb-shop --table shop.orders \
        --output /data/orders-changes --checkpoint /data/checkpoints/orders-changes

Each run appends the changes since the last run, and ends. Run it as often as you like, and kill it when you like:
every Kafka record is in the output exactly once.
"""

import argparse
import os
import sys

from pyspark.sql import SparkSession

parser = argparse.ArgumentParser(prog="python -m examples.stream_to_parquet")
parser.add_argument("--bootstrap", required=True, help="Kafka's address, host:port")
parser.add_argument("--topic", required=True, help="the topic that TiCDC writes to")
parser.add_argument("--table", required=True, help="database.table")
parser.add_argument("--output", required=True, help="folder of the Parquet files")
parser.add_argument("--checkpoint", required=True, help="folder where Spark stores its progress")


def main() -> None:
    """Append the new changes."""
    arguments = parser.parse_args()

    # Spark's workers use this Python. If the package is installed, `ticdc` needs no registration.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName(f"changes of {arguments.table}").getOrCreate()

    changes = (
        spark.readStream.format("ticdc")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("subscribe", arguments.topic)
        .option("tables", arguments.table)
        .option("startingOffsets", "earliest")  # for the first run; later runs continue from the checkpoint
        .option("maxOffsetsPerTrigger", "1000000")  # as much as the cluster can hold at a time
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

    # Files from before an ADD COLUMN lack the column, hence mergeSchema.
    log = spark.read.option("mergeSchema", "true").parquet(arguments.output)
    log.groupBy("_change_type").count().orderBy("_change_type").show()


if __name__ == "__main__":
    main()
