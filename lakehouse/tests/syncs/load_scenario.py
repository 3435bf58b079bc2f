"""Loads tables into a real engine, and kills itself after some commits; or continues, and compares. Needs no pytest.

    python -m lakehouse.tests.syncs.load_scenario ENGINE FOLDER KILL_AFTER [JDBC_URL JAR AT DATABASE]

Without a TiDB, the tables are frames of Spark. KILL_AFTER is a number of commits; 0 for none.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DayTimeIntervalType

from lakehouse.tests.engines.engines import ENGINES
from lakehouse.tests.syncs.stand_in import ADDRESS, AT, Rows, TiDB
from ticdc_lakehouse import commits_of, resolved_ts_of
from ticdc_lakehouse.snapshots.jdbc import snapshot
from ticdc_lakehouse.snapshots.queries import TiDBAddress
from ticdc_lakehouse.syncs.loading import LoadProgress, load_tables
from ticdc_lakehouse.targets.merge import COMPLETE
from ticdc_source.options.topics import TableFilter
from ticdc_source.schema.table_name import TableName

OWN = ("_sequence", "_is_deleted", "_change", "_committed_at")


def main(engine: str, folder: str, kill_after: str, *tidb: str) -> None:
    """Print a line of JSON: of each table what was read, what there was, and how many rows are missing and wrong."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = ENGINES[engine].settings(Path(folder))
    jars = ",".join([settings["spark.jars"], *tidb[1:2]])
    builder = SparkSession.builder.master("local[2]")
    for name, value in {**settings, "spark.jars": jars}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    commits = Commits(int(kill_after))
    address, at, wanted, rows_of = source_of(spark, tidb)
    places = {"delta": f"delta.`{folder}/{{}}`", "iceberg": "lake.shop.{}"}

    def target_of(table: TableName) -> str:
        return places[ENGINES[engine].name].format(table.table)

    report = load_tables(
        spark, address, wanted, target_of, folder=f"{folder}/load", at=at, parallel=2,
        rows_per_range=50, ranges_per_commit=2, on_progress=commits.heard,
    )  # fmt: skip

    found = {}
    for one in report.tables:
        if one.error is not None:
            raise one.error
        target = spark.table(one.target)
        known = spark.sql(f"SHOW TBLPROPERTIES {one.target}").collect()
        writers = [commit.facts for commit in commits_of(spark, one.target) if commit.facts.app_id]
        found[one.table.table] = {
            "target": one.target,
            "rows": difference(rows_of(one.table), target),
            "ranges": one.ranges,
            "had": one.had,
            "batches": [facts.batch_id for facts in writers][::-1],
            "writers": sorted({str(facts.app_id) for facts in writers}),
            "resolved_ts": resolved_ts_of(spark, one.target),
            "complete": next((int(row["value"]) for row in known if row["key"] == COMPLETE), None),
        }
    sys.stdout.write(f"{json.dumps({'at': report.at, 'tables': found})}\n")
    spark.stop()


class Commits:
    """Counts commits, and kills the process after the last one that it may do."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.done = 0
        self.lock = threading.Lock()

    def heard(self, progress: LoadProgress) -> None:
        """Count a commit."""
        with self.lock:
            self.done += progress.rows > 0 and not progress.complete
            if self.done == self.most > 0:
                os.kill(os.getpid(), signal.SIGKILL)


Source = tuple[TiDBAddress, int, TableFilter, Callable[[TableName], DataFrame]]


def source_of(spark: SparkSession, tidb: tuple[str, ...]) -> Source:
    """Return the address, the TSO, the tables, and a function that returns the rows of one."""
    if tidb:
        url, _, at, database = tidb
        return (
            TiDBAddress(url=url, user="root"),
            int(at),
            TableFilter(((database, "*"),)),
            lambda table: snapshot(spark, url, f"`{table.database}`.`{table.table}`", at=int(at), user="root"),
        )
    stand_in = TiDB(spark)
    stand_in.serve()
    return ADDRESS, AT, TableFilter(), lambda table: Rows(stand_in, table, spark).frame()


def difference(expected: DataFrame, found: DataFrame) -> list[int]:
    """Return how many rows are expected, missing and wrong; a TIME is a number in the table, and left out."""
    times = {field.name for field in expected.schema if isinstance(field.dataType, DayTimeIntervalType)}
    names = [name for name in expected.columns if name in found.columns and name not in {*OWN, *times}]
    rows, there = expected.select(names), found.select(names)
    return [rows.count(), rows.exceptAll(there).count(), there.exceptAll(rows).count()]


if __name__ == "__main__":
    main(*sys.argv[1:])
