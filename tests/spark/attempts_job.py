"""A job on a cluster that reads a topic step by step, as its standard input says: `batch` or `stream`, and a name.

    python -m tests.spark.attempts_job MASTER BOOTSTRAP TOPIC FOLDER

It writes Parquet files to FOLDER/NAME, and a line to its standard output when a step is done.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.support.spark_settings import LOCAL
from ticdc_source.spark.source import TiCDCDataSource

SETTINGS = {
    **LOCAL,
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    # A task that is still running when one in ten has finished, and has run longer than it, is started a second time.
    "spark.speculation": "true",
    "spark.speculation.interval": "10ms",
    "spark.speculation.minTaskRuntime": "10ms",
    "spark.speculation.multiplier": "1.0",
    "spark.speculation.quantile": "0.1",
}


def main(master: str, bootstrap: str, topic: str, folder: str) -> None:
    """Run the steps until the standard input ends."""
    settings = {**SETTINGS, "spark.sql.warehouse.dir": f"{folder}/warehouse"}
    spark = SparkSession.builder.master(master).config(map={**settings}).getOrCreate()
    spark.dataSource.register(TiCDCDataSource)
    given = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "groupIdPrefix": "counted",
        "kafka.max.partition.fetch.bytes": "16384",
        "kafka.request.timeout.ms": "600000",
        "kafkaConsumer.pollTimeoutMs": "600000",
        "maxRowsPerBatch": "50",
        "minPartitions": "4",
    }
    print("ready", flush=True)  # noqa: T201 (to the parent)
    for line in sys.stdin:
        how, name = line.split()
        output = str(Path(folder) / name)
        options = {**given, "metricsPath": f"{output}-metrics"}
        if how == "batch":
            spark.read.format("ticdc").options(**options).load().write.parquet(output)
        else:
            stream = spark.readStream.format("ticdc").options(**options).load()
            writer = stream.writeStream.format("parquet").option("checkpointLocation", f"{output}-checkpoint")
            writer.option("path", output).trigger(availableNow=True).start().awaitTermination()
        print(f"done {name}", flush=True)  # noqa: T201 (to the parent)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
