"""What an installed release does, with nothing of this clone: a batch, a stream, `inspect` and the copy's command.

    python installed.py BOOTSTRAP TOPIC FOLDER

Its last line of output is a report in JSON.
"""

import json
import platform
import subprocess
import sys
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

import ticdc_lakehouse
import ticdc_source
from ticdc_source.kernels.native import why_general


def main(bootstrap: str, topic: str, folder: str) -> None:
    """Read all rows twice, and call the commands."""
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "tables": "shop.orders", "timeZone": "UTC"}
    batch = spark.read.format("ticdc").options(**options).load().count()
    stream = spark.readStream.format("ticdc").options(**options, startingOffsets="earliest").load()
    writer = stream.writeStream.format("parquet").option("checkpointLocation", f"{folder}/state")
    writer.trigger(availableNow=True).start(f"{folder}/rows").awaitTermination()
    streamed = spark.read.parquet(f"{folder}/rows").count()
    spark.stop()
    commands = Path(sys.executable).parent
    inspect = [
        str(commands / "ticdc-source"),
        "inspect",
        "--bootstrap-servers",
        bootstrap,
        "--subscribe",
        topic,
        "--json",
    ]
    found = json.loads(subprocess.run(inspect, check=False, capture_output=True, text=True).stdout)
    sync = subprocess.run([str(commands / "ticdc-lakehouse"), "--version"], check=True, capture_output=True, text=True)
    report = {
        "python": platform.python_version(),
        "pyspark": pyspark.__version__,
        "batch": batch,
        "stream": streamed,
        "inspect": len(found["topics"][0]["protocols"][0]["tables"]),
        "version": [ticdc_source.__version__, sync.stdout.strip()],
        "native": why_general("auto") is None,
        "from": [str(Path(package.__file__ or "").parent.parent) for package in (ticdc_source, ticdc_lakehouse)],
    }
    print(json.dumps(report))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
