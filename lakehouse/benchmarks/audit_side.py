"""Makes a table in a running TiDB and its copy, and measures an audit and two reads of it, in turns.

python -m lakehouse.benchmarks.audit_side ENGINE JDBC_URL JAR FOLDER ROWS ROUNDS
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from lakehouse.tests.engines.engines import ENGINES
from tests.tidb.sql import SAFE_POINT, Session, session
from ticdc_lakehouse import TiDBConfig, audit, merge_into
from ticdc_lakehouse.audits.canonical import columns_of
from ticdc_lakehouse.audits.sides import Comparison, SparkSide, TiDBSide
from ticdc_lakehouse.snapshots.jdbc import SnapshotRows, snapshot
from ticdc_lakehouse.snapshots.queries import TiDBAddress

TARGET, TABLE = "spark_catalog.bench.items", "bench.items"
AT_ONCE = 50_000  # rows of a transaction
COLUMNS = """id BIGINT PRIMARY KEY, customer INT NOT NULL, quantity SMALLINT, price DECIMAL(12,2), name VARCHAR(60),
    note VARCHAR(120), created DATETIME(3), changed TIMESTAMP, ratio DOUBLE, state ENUM('open','paid','sent')"""
ROW = """n, n * 7919 % 100003, n % 500, n % 999983 / 100, CONCAT('item ', n * 31 % 10007),
    IF(n % 5 = 0, NULL, REPEAT(CONCAT('note ', n % 977, ' '), 6)), '2024-01-01 00:00:00' + INTERVAL n MINUTE,
    '2024-06-01 00:00:00' + INTERVAL n SECOND, n / 7, 1 + n % 3"""


def main(engine: str, url: str, jar: str, folder: str, rows: str, rounds: str) -> None:
    """Print a line of JSON: of each round, the seconds of each."""
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = ENGINES[engine].settings(Path(folder))
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "3g")
        .config("spark.sql.session.timeZone", "UTC")
    )
    for name, value in {**settings, "spark.jars": f"{settings['spark.jars']},{jar}"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    with session(spark, url) as sql:
        sql.run(SAFE_POINT.format("20200101-00:00:00 +0000"), "SET GLOBAL tidb_gc_life_time = '24h'")
        made(sql, int(rows))
        at = sql.tso()
    spark.sql("CREATE DATABASE bench")
    copied = snapshot(spark, url, TABLE, at=at, user="root", num_partitions=4)
    merge_into(copied, TARGET, app_id="load", batch_id=0, resolved_ts=at)
    found = [measured(spark, url, at) for _ in range(int(rounds) + 1)][1:]  # the first one warms up
    sys.stdout.write(f"{json.dumps(found)}\n")
    spark.stop()


def made(sql: Session, rows: int) -> None:
    """Create the table."""
    sql.run("CREATE DATABASE bench", "USE bench", f"CREATE TABLE items ({COLUMNS})")
    sql.run("CREATE TABLE numbers (n INT PRIMARY KEY)")
    step = min(rows, AT_ONCE)
    for start in range(0, step, 1000):
        sql.run(f"INSERT INTO numbers VALUES {', '.join(f'({n})' for n in range(start, min(step, start + 1000)))}")  # noqa: S608
    for start in range(0, rows, AT_ONCE):
        numbers = f"(SELECT n + {start} AS n FROM numbers WHERE n + {start} < {rows}) AS numbers"  # noqa: S608 (its own)
        sql.run(f"INSERT INTO items SELECT {ROW} FROM {numbers}")  # noqa: S608 (its own)


def measured(spark: SparkSession, url: str, at: int) -> dict[str, float]:
    """Return how many seconds each takes."""

    def seconds(run: Callable[[], object]) -> float:
        began = time.monotonic()
        run()
        return round(time.monotonic() - began, 3)

    def read(partitions: int) -> None:
        frame = snapshot(spark, url, TABLE, at=at, user="root", num_partitions=partitions)
        frame.write.format("noop").mode("overwrite").save()

    rows_read = 0

    def audited() -> None:
        nonlocal rows_read
        found = audit(spark, TARGET, tidb=TiDBConfig(url=url, user="root")).tables[0]
        assert found.state == "equal", found
        rows_read = found.rows_read

    rows = SnapshotRows.of(spark, TiDBAddress(url=url, user="root"), TABLE, at=at)
    types = {field.name: field.dataType for field in spark.table(TARGET).schema}
    columns, _ = columns_of(rows.table.columns, types, ["id"])
    comparison = Comparison(columns, columns[:1])
    return {
        "jdbc": seconds(lambda: read(1)),
        "of_tidb": seconds(TiDBSide(rows, comparison).total),
        "of_spark": seconds(SparkSide(spark.table(TARGET), comparison).total),
        "audit": seconds(audited),
        "jdbc_ranges": seconds(lambda: read(2)),
        "rows_read": rows_read,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
