"""Batch reads and streams with logins and certificates, in their own process, whose whole output a test searches.

    spark-submit secrets_job.py cases.json report.json

A case is a name and the source's options. Spark logs at level INFO, as it does by default, with its event log on.
"""

import json
import os
import sys
import time
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.support.spark_settings import LOCAL
from ticdc_source.spark.source import TiCDCDataSource


def session(folder: Path) -> SparkSession:
    """Start a session that writes everything it writes into a folder."""
    (folder / "events").mkdir()
    settings = {
        **LOCAL,
        "spark.eventLog.compress": "false",  # it is searched
        "spark.eventLog.dir": f"file://{folder}/events",
        "spark.eventLog.enabled": "true",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.ui.explainMode": "extended",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    spark = SparkSession.builder.master("local[2]").config(map={**settings}).getOrCreate()
    spark.dataSource.register(TiCDCDataSource)
    return spark


def explained(frame: DataFrame) -> str:
    execution = frame._jdf.queryExecution()
    return "\n".join([execution.toString(), execution.simpleString(), str(frame), repr(frame.schema)])


def run(spark: SparkSession, name: str, options: dict[str, str], folder: Path) -> dict[str, object]:
    """Read a topic in a batch and in a stream; return the rows, plans and errors."""
    began = time.monotonic()
    try:
        batch = spark.read.format("ticdc").options(**options).load()
        rows = sorted(row["id"] for row in batch.collect())
        stream = spark.readStream.format("ticdc").options(**options, startingOffsets="earliest").load()
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoints" / name))
        query = writer.option("path", str(folder / "rows" / name)).trigger(availableNow=True).start()
        query.awaitTermination()
    except PySparkException as error:
        return {"error": str(error), "seconds": time.monotonic() - began}
    written = sorted(row["id"] for row in spark.read.parquet(str(folder / "rows" / name)).collect())
    plans = [explained(batch), query._jsq.explainInternal(True), str(query.lastProgress), str(query.status)]
    return {"batch": rows, "stream": written, "plans": "\n".join(plans)}


def main(cases: str, report: str) -> None:
    """Run all cases."""
    folder = Path(os.getcwd())  # noqa: PTH109 (absolute)
    spark = session(folder)
    found = {name: run(spark, name, options, folder) for name, options in json.loads(Path(cases).read_text()).items()}
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    shown = "\n".join(executions.apply(n).physicalPlanDescription() for n in range(executions.size()))
    Path(report).write_text(json.dumps({"cases": found, "user interface": shown}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
