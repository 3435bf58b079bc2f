"""Runs a sync that loads from a stand-in for TiDB, with a real engine and a real broker. Needs no pytest.

    python -m lakehouse.tests.syncs.sync_scenario ENGINE FOLDER SERVERS TOPIC TABLES [TRIGGER]

It prints a line of JSON: of each table its status and its rows, and which ranges were read. With a TRIGGER, it ends
when no table is loading any more, and a micro-batch has come after that.
"""

import json
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lakehouse.tests.engines.engines import ENGINES
from lakehouse.tests.syncs import stand_in
from lakehouse.tests.syncs.stand_in import AT, TiDB
from ticdc_lakehouse.common.errors import TargetError
from ticdc_lakehouse.syncs import joining, loading
from ticdc_lakehouse.syncs.config import SyncConfig, TiDBConfig
from ticdc_lakehouse.syncs.database_sync import sync
from ticdc_lakehouse.syncs.reports import BatchReport
from ticdc_lakehouse.syncs.status import statuses_of
from ticdc_source.spark.source import TiCDCDataSource


class DoneError(Exception):
    """The stream has come far enough."""


class SlowTiDB(TiDB):
    """A TiDB whose tables are read only when the stream has had a micro-batch, if it has a trigger."""

    def __init__(self, spark: SparkSession, *, slow: bool) -> None:
        super().__init__(spark)
        self.may_read = threading.Event()
        self.slow = slow
        if not slow:
            self.may_read.set()

    def of(self, spark: SparkSession, *known: Any, **given: Any) -> stand_in.Rows:
        """Return the rows of a table."""
        self.may_read.wait(120)
        return super().of(spark, *known, **given)


def main(engine: str, folder: str, servers: str, topic: str, tables: str, trigger: str | None = None) -> None:
    """Run the sync."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]")
    for name, value in ENGINES[engine].settings(Path(folder)).items():
        builder = builder.config(name, value)
    builder = builder.config("spark.sql.catalog.lake.cache.expiration-interval-ms", "-1")  # as if all were done at once
    spark = builder.getOrCreate()
    spark.dataSource.register(TiCDCDataSource)
    tidb = SlowTiDB(spark, slow=trigger is not None)
    tidb.serve()
    for name in ("current_tso", "tables_at", "gc_state_of"):
        setattr(joining, name, getattr(loading, name))
    is_delta = ENGINES[engine].name == "delta"
    config = SyncConfig(
        source={"kafka.bootstrap.servers": servers, "protocol": "canal-json", "maxOffsetsPerTrigger": "40"},
        topics=(topic,),
        format="delta" if is_delta else "iceberg",
        path=f"{folder}/lake" if is_delta else None,
        catalog=None if is_delta else "lake",
        checkpoint=f"{folder}/checkpoint",
        tables=tuple(tables.split(",")),
        trigger=trigger,
        tidb=TiDBConfig(url="jdbc:mysql://tidb:4000/"),
    )
    reports: list[BatchReport] = []

    def after(report: BatchReport) -> None:
        reports.append(report)
        if trigger is None:
            return
        states = {each.state for each in statuses_of(spark, config)}
        if len(reports) > 1:
            tidb.may_read.set()
        if states == {"following"} and len(reports) > 1:
            raise DoneError

    with suppress(TargetError):  # this is the first run
        for status in statuses_of(spark, config):
            spark.table(status.target).count()  # a session may keep what it has read
    with suppress(DoneError):
        sync(spark, config, on_batch=after)
    found = {}
    for status in statuses_of(spark, config):
        target = spark.table(status.target)
        gone = "_change = 'delete'" if status.kind == "log" else "_is_deleted"
        rows = target.where(f"NOT ({gone})").select("id", "v").collect()
        found[status.table_name] = {**status.as_json(0), "rows": sorted([row["id"], row["v"]] for row in rows)}
    reads = [[str(name), clause] for name, clause in tidb.reads]
    sys.stdout.write(f"{json.dumps({'at': AT, 'tables': found, 'reads': reads, 'batches': len(reports)})}\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
