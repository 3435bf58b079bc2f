"""Runs a sync that loads from a stand-in for TiDB, with a real engine and a real broker. Needs no pytest.

    python -m lakehouse.tests.syncs.sync_scenario ENGINE FOLDER SERVERS TOPIC TABLES

It prints a line of JSON: of each table its status and its rows, and which ranges were read.
"""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from pyspark.sql import SparkSession

from lakehouse.tests.engines.engines import ENGINES
from lakehouse.tests.syncs.stand_in import TiDB
from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.syncs.config import SyncConfig
from ticdc_lakehouse.syncs.database_sync import sync
from ticdc_lakehouse.syncs.status import statuses_of
from ticdc_lakehouse.tidb import TiDBConfig
from ticdc_source.spark.source import TiCDCDataSource


def main(engine: str, folder: str, servers: str, topic: str, tables: str) -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config(map={**ENGINES[engine].settings(Path(folder))})
    builder = builder.config("spark.sql.catalog.lake.cache.expiration-interval-ms", "-1")  # as if all were done at once
    spark = builder.getOrCreate()
    spark.dataSource.register(TiCDCDataSource)
    tidb = TiDB()
    tidb.serve()
    is_delta = ENGINES[engine].name == "delta"
    config = SyncConfig(
        source={
            "kafka.bootstrap.servers": servers,
            "subscribe": topic,
            "protocol": "canal-json",
            "maxOffsetsPerTrigger": "40",
        },
        format="delta" if is_delta else "iceberg",
        path=f"{folder}/lake" if is_delta else None,
        catalog=None if is_delta else "lake",
        checkpoint=f"{folder}/checkpoint",
        tables=tuple(tables.split(",")),
        tidb=TiDBConfig(url="tidb:4000", user="reader", rows_per_range=5),
    )
    with suppress(TargetError):  # this is the first run
        for status in statuses_of(spark, config):
            spark.table(status.target).count()  # a session may keep what it has read
    sync(spark, config)
    found = {}
    for status in statuses_of(spark, config):
        target = spark.table(status.target)
        gone = "_change = 'delete'" if status.kind == "log" else "_is_deleted"
        rows = target.where(f"NOT ({gone})").select("id", "v").collect()
        found[status.table_name] = {**status.as_json(0), "rows": sorted([row["id"], row["v"]] for row in rows)}
    reads = [[str(name), clause] for name, clause in tidb.reads]
    sys.stdout.write(f"{json.dumps({'tables': found, 'reads': reads})}\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
