"""Loads a table of a running TiDB into Delta, merges its changes after it, and compares the table with TiDB's.

    python -m lakehouse.tests.tidb.load JDBC_URL JAR FOLDER TABLE AT LAST

FOLDER has `messages.json`: a list of TiCDC's messages, `[partition, value in base64]`. Needs no pytest.
"""

import base64
import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DayTimeIntervalType

from lakehouse.tests.engines.engines import ENGINES
from ticdc_lakehouse.snapshots.jdbc import snapshot
from ticdc_lakehouse.targets.merge import merge_into
from ticdc_source.spark.frames import decode

TARGET = "spark_catalog.loaded.t"


def main(url: str, jar: str, folder: str, table: str, at: str, last: str) -> None:
    """Print a line of JSON: how many rows each state has, how many of them the table lacks, and how many are wrong."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = ENGINES["delta-4.4"].settings(Path(folder))
    builder = SparkSession.builder.master("local[2]")
    for name, value in {**settings, "spark.jars": f"{settings['spark.jars']},{jar}"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sql("CREATE DATABASE loaded")
    first, final = (snapshot(spark, url, table, at=int(moment), user="root") for moment in (at, last))

    reports = [merge_into(first, TARGET, app_id="load", batch_id=0)]
    loaded = difference(first, spark.table(TARGET))
    messages = json.loads((Path(folder) / "messages.json").read_text(encoding="utf-8"))
    records = [("t", partition, offset, b"", base64.b64decode(value))
               for offset, (partition, value) in enumerate(messages)]  # fmt: skip
    frame = spark.createDataFrame(records, "topic string, partition int, offset bigint, key binary, value binary")
    changes = decode(frame, tables=table, timeZone="UTC").where(f"_commit_version > {at}")
    reports += [merge_into(changes, TARGET, app_id="stream", batch_id=number) for number in (0, 1)]
    reports.append(merge_into(first, TARGET, app_id="load again", batch_id=0))

    followed = difference(final, spark.table(TARGET))
    report = {"loaded": loaded, "followed": followed, "images": [one.images for one in reports]}
    sys.stdout.write(f"{json.dumps(report)}\n")
    spark.stop()


def difference(expected: DataFrame, found: DataFrame) -> list[int]:
    """Return how many rows are expected, missing and wrong; a TIME is a number in the table, and left out."""
    names = [
        field.name
        for field in expected.schema
        if field.name[0] != "_" and not isinstance(field.dataType, DayTimeIntervalType)
    ]
    rows, there = expected.select(names), found.where("NOT _is_deleted").select(names)
    return [rows.count(), rows.exceptAll(there).count(), there.exceptAll(rows).count()]


if __name__ == "__main__":
    main(*sys.argv[1:])
