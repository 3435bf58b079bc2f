"""A job as a user submits it to a cluster: a batch, a stream, and a report of where they ran.

    PYTHONPATH=ticdc_source.zip spark-submit --py-files ticdc_source.zip cluster_job.py BOOTSTRAP TOPIC FOLDER

The last line of output is the report, in JSON.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyspark.sql import Row, SparkSession

import ticdc_source
from ticdc_source.spark.source import TiCDCDataSource


def package_folder(_rows: Iterable[Row]) -> Iterator[str]:
    yield str(Path(ticdc_source.__file__).absolute())


def main(bootstrap: str, topic: str, folder: str) -> None:
    """Run the job."""
    spark = SparkSession.builder.getOrCreate()
    spark.dataSource.register(TiCDCDataSource)
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}

    batch = spark.read.format("ticdc").options(**given, minPartitions="4").load()
    workers = batch.rdd.mapPartitions(package_folder).distinct().collect()

    stream = spark.readStream.format("ticdc").options(**given, startingOffsets="earliest", minPartitions="4").load()
    rows = str(Path(folder) / "rows")
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(Path(folder) / "state"))
    writer.option("path", rows).trigger(availableNow=True).start().awaitTermination()

    report = {
        "batch": [row["id"] for row in batch.orderBy("id").collect()],
        "stream": [row["id"] for row in spark.read.parquet(rows).orderBy("id").collect()],
        "driver": ticdc_source.__file__,
        "workers": sorted(workers),
    }
    spark.stop()
    print(json.dumps(report))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
