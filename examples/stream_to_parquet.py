"""Keep a log of every change of a table, as Parquet files.

    python -m examples.stream_to_parquet --bootstrap localhost:9092 --topic tidb-shop --table shop.orders \
        --output /data/orders-changes --checkpoint /data/checkpoints/orders-changes

Each run takes what has come since the last one, and ends. Run it as often as you like, and kill it when you like:
every change is in the output exactly once.
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
parser.add_argument("--checkpoint", required=True, help="folder where Spark notes how far it got")


def main() -> None:
    """Append what is new."""
    arguments = parser.parse_args()

    # Spark's workers are to be this Python. `ticdc` needs no registration where the package is installed.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName(f"changes of {arguments.table}").getOrCreate()

    changes = (
        spark.readStream.format("ticdc")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("subscribe", arguments.topic)
        .option("tables", arguments.table)
        .option("startingOffsets", "earliest")  # the very first run; later ones go on from the checkpoint
        .option("maxOffsetsPerTrigger", "1000000")  # no more at a time than the cluster can hold
        .load()
    )

    # The types were found in the messages, anew in each run: a column that was added to the table since is there.
    changes.printSchema()

    # Spark notes in the output which files a micro-batch wrote: one that is repeated is not there twice.
    query = (
        changes.writeStream.format("parquet")
        .option("path", arguments.output)
        .option("checkpointLocation", arguments.checkpoint)
        .trigger(availableNow=True)  # `processingTime="10 seconds"` would go on forever
        .start()
    )
    query.awaitTermination()

    # Files of before an ADD COLUMN lack the column: mergeSchema.
    log = spark.read.option("mergeSchema", "true").parquet(arguments.output)
    log.groupBy("_change_type").count().orderBy("_change_type").show()


if __name__ == "__main__":
    main()
