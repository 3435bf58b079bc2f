"""Makes a table in a running TiDB and its copy, and measures an audit and two reads of it, in turns.

python -m lakehouse.benchmarks.audit_side ENGINE HOST PORT FOLDER ROWS ROUNDS
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from lakehouse.tests.engines.engines import ENGINES
from tests.tidb.server import TiDB
from tests.tidb.snapshots import text_session
from tests.tidb.sql import SAFE_POINT, Session
from ticdc_lakehouse import TiDBConfig, audit, merge_into
from ticdc_lakehouse.audits.canonical import columns_of
from ticdc_lakehouse.audits.sides import Comparison, SparkSide, TiDBSide
from ticdc_source.developer_api import parse_table
from ticdc_source.spark.source import TiCDCDataSource

TARGET, TABLE = "spark_catalog.bench.items", "bench.items"
AT_ONCE = 50_000  # rows of a transaction
COLUMNS = """id BIGINT PRIMARY KEY, customer INT NOT NULL, quantity SMALLINT, price DECIMAL(12,2), name VARCHAR(60),
    note VARCHAR(120), created DATETIME(3), changed TIMESTAMP, ratio DOUBLE, state ENUM('open','paid','sent')"""
ROW = """n, n * 7919 % 100003, n % 500, n % 999983 / 100, CONCAT('item ', n * 31 % 10007),
    IF(n % 5 = 0, NULL, REPEAT(CONCAT('note ', n % 977, ' '), 6)), '2024-01-01 00:00:00' + INTERVAL n MINUTE,
    '2024-06-01 00:00:00' + INTERVAL n SECOND, n / 7, 1 + n % 3"""


def main(engine: str, host: str, port: str, folder: str, rows: str, rounds: str) -> None:
    """Print a line of JSON: of each round, the seconds of each."""
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = ENGINES[engine].settings(Path(folder))
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "3g")
        .config("spark.sql.session.timeZone", "UTC")
    )
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(TiCDCDataSource)
    tidb = TiDBConfig(url=f"{host}:{port}", user="root")
    with text_session(TiDB(host, int(port))) as sql:
        sql.run(SAFE_POINT.format("20200101-00:00:00 +0000"), "SET GLOBAL tidb_gc_life_time = '24h'")
        made(sql, int(rows))
        at = sql.tso()
    spark.sql("CREATE DATABASE bench")
    merge_into(rows_of(spark, tidb, at, int(rows) // 4), TARGET, app_id="load", batch_id=0, resolved_ts=at)
    found = [measured(spark, tidb, at, int(rows)) for _ in range(int(rounds) + 1)][1:]  # the first one warms up
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


def rows_of(spark: SparkSession, tidb: TiDBConfig, at: int, size: int) -> DataFrame:
    reader = spark.read.format("ticdc").option("snapshot", "only").option("tables", TABLE).options(**tidb.options())
    return reader.option("snapshot.at", at).option("snapshot.rowsPerRange", max(1, size)).load()


def measured(spark: SparkSession, tidb: TiDBConfig, at: int, size: int) -> dict[str, float]:

    def seconds(run: Callable[[], object]) -> float:
        began = time.monotonic()
        run()
        return round(time.monotonic() - began, 3)

    def read(partitions: int) -> None:
        rows_of(spark, tidb, at, -(-size // partitions)).write.format("noop").mode("overwrite").save()

    rows_read = 0

    def audited() -> None:
        nonlocal rows_read
        found = audit(spark, TARGET, tidb=tidb).tables[0]
        assert found.state == "equal", found
        rows_read = found.rows_read

    rows = tidb.table(parse_table(TABLE), at)
    types = {field.name: field.dataType for field in spark.table(TARGET).schema}
    columns, _ = columns_of(rows.columns, types, ["id"])
    comparison = Comparison(columns, columns[:1])
    return {
        "read": seconds(lambda: read(1)),
        "of_tidb": seconds(TiDBSide(rows, comparison).total),
        "of_spark": seconds(SparkSide(spark.table(TARGET), comparison).total),
        "audit": seconds(audited),
        "read_ranges": seconds(lambda: read(2)),
        "rows_read": rows_read,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
