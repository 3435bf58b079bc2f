"""Rows of TiDB itself: `snapshot=only` beside Spark's JDBC source; with native code, and on the general path.

All read the same table in turns into the `noop` sink, in as many tasks of as many rows; sums are compared first. CPU
seconds are those of Spark's Java and of the Python workers, not those of TiDB, which `make tidb` has built.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.bench_throughput import consumed
from benchmarks.results import Chart, Result
from benchmarks.session import session
from tests.tidb.server import TiDB, driver_jars, missing, running
from tests.tidb.snapshots import address, text_session
from tests.tidb.sql import SAFE_POINT

NAME = "snapshot"
TITLE = "A table in TiDB: rows per CPU second"
NATIVE, GENERAL, JDBC = "ticdc", "ticdc, general path", "spark jdbc"
_TARGET = 1.4  # times Spark's JDBC source
_FIRST = 1000  # rows that are doubled until there are enough
_TABLE = "bench.orders"
_CREATE = f"""CREATE TABLE {_TABLE} (id BIGINT PRIMARY KEY AUTO_INCREMENT, customer INT UNSIGNED NOT NULL,
status ENUM('new', 'paid', 'sent') NOT NULL, amount DECIMAL(12,2), weight DOUBLE, note VARCHAR(100),
token VARBINARY(16), created DATETIME(6) NOT NULL, updated TIMESTAMP NULL, due DATE)"""
_COLUMNS = "customer, status, amount, weight, note, token, created, updated, due"


@dataclass(frozen=True)
class Size:
    """How much is measured; `doublings` of a thousand rows."""

    doublings: int
    rounds: int
    warm_up: int

    @property
    def rows(self) -> int:
        return _FIRST << self.doublings


SIZES = {"full": Size(9, 5, 4), "quick": Size(7, 3, 3), "tiny": Size(1, 1, 0)}


def run(bootstrap: str, size_name: str, command: str) -> Result:  # noqa: ARG001 (no broker)
    """Measure all three.

    Raises:
        SystemExit: `make tidb` has not built what it needs.
    """
    why = missing()
    if why is not None:
        sys.exit(why)
    size = SIZES[size_name]
    result = Result(NAME, TITLE, command, {**asdict(size), "rows": size.rows})
    result.columns = ("read", "rows / CPU s", "beside Spark's JDBC source (rounds)")
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as tidb:
        fill(tidb, size)
        with session(1, driver_jars()) as live:
            frames = sides(live.spark, tidb, size)
            sums = {side: frame.selectExpr("sum(id)", "sum(amount)").collect() for side, frame in frames.items()}
            assert sums[NATIVE] == sums[GENERAL] == sums[JDBC], sums
            result.samples[_TABLE] = [
                {"side": side, "round": number, "counts": number >= size.warm_up, **consumed(live, frame)}
                for number in range(size.rounds + size.warm_up)
                for side, frame in frames.items()
            ]
    result.figures = figures_of(result.samples[_TABLE], size.rows)
    for side, figures in result.figures.items():
        rounds = figures["ratio_rounds"]
        ratio = f"{figures['ratio']:.2f} ({min(rounds):.2f} to {max(rounds):.2f})"
        result.rows.append([side, f"{figures['rate']:,}", ratio])
    reached = "met" if result.figures[NATIVE]["ratio"] >= _TARGET else "missed"
    result.notes.append(f"target {reached}: {_TARGET} times Spark's JDBC source per CPU second")
    series = {"rows": {side: figures["rate"] / 1000 for side, figures in result.figures.items()}}
    result.chart = Chart("thousand rows per CPU second", series)
    return result


def fill(tidb: TiDB, size: Size) -> None:
    """Make the table and its rows."""
    values = ", ".join(
        f"({one}, {one % 3 + 1}, {one * 7}.25, {one}.125e-3, 'note {one} of a customer, in words', x'{one:032x}', "
        f"'2026-01-{one % 28 + 1:02d} 10:20:30.{one:06d}', '2026-02-03 04:05:06', '2026-03-{one % 28 + 1:02d}')"
        for one in range(_FIRST)
    )
    copy = f"INSERT INTO {_TABLE} ({_COLUMNS}) SELECT {_COLUMNS} FROM {_TABLE}"  # noqa: S608 (its own)
    with text_session(tidb) as sql:
        sql.run(SAFE_POINT.format("20200101-00:00:00 +0000"), "CREATE DATABASE bench", _CREATE)
        sql.run(f"INSERT INTO {_TABLE} ({_COLUMNS}) VALUES {values}")  # noqa: S608
        sql.run(*[copy] * size.doublings)


def sides(spark: SparkSession, tidb: TiDB, size: Size) -> dict[str, DataFrame]:
    """Return the three reads of the table, each in four tasks."""
    per_task = size.rows // 4
    given = address(tidb.host, tidb.port, tables=_TABLE, snapshot_rowsPerRange=str(per_task))
    ours = {
        side: spark.read.format("ticdc").options(**given, nativeCode=native).load()
        for side, native in ((NATIVE, "auto"), (GENERAL, "off"))
    }
    most = ours[NATIVE].selectExpr("max(id)").collect()[0][0]
    jdbc = {
        "url": f"{tidb.jdbc_url}?tinyInt1isBit=false&yearIsDateType=false",
        "user": "root",
        "driver": "com.mysql.cj.jdbc.Driver",
        "dbtable": _TABLE,
        "preferTimestampNTZ": "true",
        "fetchsize": str(-(2**31)),  # Connector/J then streams rows instead of keeping all
        "partitionColumn": "id",
        "lowerBound": "1",
        "upperBound": str(most),
        "numPartitions": "4",
    }
    return {**ours, JDBC: spark.read.format("jdbc").options(**jdbc).load()}


def figures_of(samples: list[dict[str, Any]], rows: int) -> dict[str, Any]:
    """Return the medians of the rounds that count: rows per CPU second, and ratios of two reads of one round."""
    # While an idle worker that planned a read ends, the CPU seconds of that worker go, and those of a read are too few.
    spoilt = {sample["round"] for sample in samples if sample["cpu_seconds"] < sample["java_cpu_seconds"]}
    counted = [sample for sample in samples if sample["counts"] and sample["round"] not in spoilt]
    costs = {
        side: [sample["cpu_seconds"] for sample in counted if sample["side"] == side]
        for side in (NATIVE, GENERAL, JDBC)
    }
    figures = {}
    for side, own in costs.items():
        ratios = [round(theirs / max(cost, 0.01), 2) for cost, theirs in zip(own, costs[JDBC], strict=True)]
        rate = round(median(rows / max(cost, 0.01) for cost in own))
        figures[side] = {"rate": rate, "ratio": median(ratios), "ratio_rounds": ratios}
    return figures
