"""A load that is killed and continued, with real engines; its rows come from frames, or from a real TiDB."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakehouse.tests.engines.engines import ENGINES
from lakehouse.tests.syncs.stand_in import AT
from tests.support.paths import PACKAGES
from tests.tidb.server import TiDB, driver_jars
from tests.tidb.sql import SAFE_POINT, session
from tests.versions.environments import interpreter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.long("a JVM for each engine; in memory, test_loading.py"),
    pytest.mark.xdist_group("engines"),
    pytest.mark.spark,
    pytest.mark.versions,
    pytest.mark.timeout(1800),  # the first time pip and Maven fetch the engine
]
NEWEST = ["iceberg-1.12", "delta-4.4"]


def run(name: str, folder: Path, kill_after: int, *tidb: object) -> dict[str, Any]:
    """Run the scenario, which kills itself after some commits, or prints what the targets have."""
    python = interpreter(ENGINES[name].pyspark)
    module = "lakehouse.tests.syncs.load_scenario"
    done = subprocess.run(
        [str(python), "-m", module, name, str(folder), str(kill_after), *map(str, tidb)],
        cwd=folder, env={**os.environ, "PYTHONPATH": PACKAGES}, capture_output=True, text=True, check=False,
        timeout=900,
    )  # fmt: skip
    if kill_after:
        assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
        return {}
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


@pytest.mark.parametrize("name", NEWEST)
def test_a_killed_load_continues(tmp_path: Path, name: str) -> None:
    """After a SIGKILL no range is read that a target has; each row is there once, and each commit has its number."""
    run(name, tmp_path, 3)
    report = run(name, tmp_path, 0)

    assert set(report["tables"]) == {"orders", "items", "events"}
    for table, found in report["tables"].items():
        assert found["rows"] == [10, 0, 0], table
        assert found["ranges"] + found["had"] == 5, table
        assert found["batches"] == [0, 1, 2], table
        assert [one.rpartition("-")[0] for one in found["writers"]] == [f"load-{AT}"], table
        assert found["complete"] == AT, table
        assert found["resolved_ts"] == (None if table == "events" else AT), table
    assert sum(found["had"] for found in report["tables"].values()) >= 4  # two groups of two ranges, or more


@pytest.mark.parametrize("name", NEWEST)
def test_a_database_of_a_real_tidb(spark: "SparkSession", tidb: TiDB, tmp_path: Path, name: str) -> None:
    """Tables with keys of several kinds, changed after the TSO and loaded with a SIGKILL, equal TiDB's at the TSO."""
    database = f"loaded_{name.partition('-')[0]}"
    keys = {
        "numbers": "a INT PRIMARY KEY, b TIME(3)",
        "texts": "a VARCHAR(9) COLLATE utf8mb4_general_ci, b DECIMAL(20,4), PRIMARY KEY (a, b) CLUSTERED",
        "loose": "a VARCHAR(9) PRIMARY KEY NONCLUSTERED, b DATETIME",
        "keyless": "a INT, b VARCHAR(9)",
        "empty": "a INT PRIMARY KEY",
    }
    values = {
        "numbers": "{0}, '-10:00:00.5'",
        "texts": "'T{0}', {0}.5",
        "loose": "'t{0}', '2026-01-01'",
        "keyless": "{0} % 7, NULL",
    }
    with session(spark, tidb.jdbc_url) as sql:
        sql.run(SAFE_POINT.format("20200101-00:00:00 +0000"), f"CREATE DATABASE {database}", f"USE {database}")
        sql.run("SET GLOBAL tidb_gc_life_time = '24h'")
        sql.run(*(f"CREATE TABLE {table} ({columns})" for table, columns in keys.items()))
        for table, value in values.items():
            rows = ", ".join(f"({value.format(number)})" for number in range(400))
            sql.run(f"INSERT INTO {table} VALUES {rows}")  # noqa: S608 (a test's own)
        at = sql.tso()
        sql.run(*(f"DELETE FROM {table} WHERE a LIKE '%1%'" for table in keys), "DROP TABLE loose")  # noqa: S608
    known = (tidb.jdbc_url, driver_jars()[0], at, database)

    run(name, tmp_path, 5, *known)
    report = run(name, tmp_path, 0, *known)

    assert {table: found["rows"] for table, found in report["tables"].items()} == {
        table: [0 if table == "empty" else 400, 0, 0] for table in keys
    }
    assert {found["complete"] for found in report["tables"].values()} == {at}
    full = [found for table, found in report["tables"].items() if table != "empty"]
    assert all(found["ranges"] + found["had"] == 8 for found in full)
    assert sum(found["had"] for found in full) >= 8
    assert all(found["batches"] == [0, 1, 2, 3] for found in full)
