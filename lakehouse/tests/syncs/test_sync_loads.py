"""A sync that loads its tables: with a stand-in for TiDB, a real broker, and real engines."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from examples.local_kafka import produce
from lakehouse.tests.engines.engines import ENGINES
from lakehouse.tests.syncs.stand_in import AT, EVENTS, ITEMS, ORDERS
from tests.encoders.canal_json import CanalJSON
from tests.encoders.tables import Column, Table
from tests.fixtures import Kafka
from tests.support.paths import PACKAGES
from tests.versions.environments import interpreter
from ticdc_source.schema.table_name import TableName

pytestmark = [
    pytest.mark.slow("a JVM for each engine"),
    pytest.mark.xdist_group("engines"),
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.versions,
    pytest.mark.timeout(1800),
]
ENCODER = CanalJSON(extension=True)
COLUMNS = (Column("id", "int(11)", nullable=False), Column("v", "varchar(30)", charset="utf8mb4"))


def row(table: TableName, commit_ts: int, op: str, key: int, value: str | None) -> tuple[Any, ...]:
    """Return the record of a change; an update changes what the stand-in has."""
    declared = Table(*table, COLUMNS, () if table == EVENTS else ("id",), () if table == EVENTS else ("id",))
    before, after = {"id": str(key), "v": f"v{key}"}, {"id": str(key), "v": value}
    columns = [
        {"name": name, **({} if op == "insert" else {"before": before[name]}),
         **({} if op == "delete" else {"after": after[name]})}
        for name in ("id", "v")
    ]  # fmt: skip
    event = {"op": op, "schema": table.database, "table": table.table, "commit_ts": commit_ts, "columns": columns}
    return (0, *ENCODER.message([event], [declared]), [], None)


def ddl(table: TableName, commit_ts: int, query: str, ddl_type: str) -> tuple[Any, ...]:
    event = {"op": "ddl", "schema": table.database, "table": table.table, "ddl_type": ddl_type, "ddl_query": query,
             "commit_ts": commit_ts, "columns": []}  # fmt: skip
    return (0, *ENCODER.message([event], [None]), [], None)


def watermark(commit_ts: int) -> tuple[Any, ...]:
    return (0, *ENCODER.message([{"op": "watermark", "commit_ts": commit_ts, "columns": []}], [None]), [], None)


def run(engine: str, folder: Path, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [str(interpreter(ENGINES[engine].pyspark)), "-m", "lakehouse.tests.syncs.sync_scenario", engine, str(folder),
         *arguments],
        cwd=folder, env={**os.environ, "PYTHONPATH": PACKAGES}, capture_output=True, text=True, check=False,
        timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def loaded(*, without: tuple[int, ...] = (), **changed: str) -> list[list[Any]]:
    rows = {number: f"v{number}" for number in range(10) if number not in without}
    return sorted([key, value] for key, value in {**rows, **{int(k[1:]): v for k, v in changed.items()}}.items())


@pytest.mark.parametrize(
    "engine", [pytest.param("delta-4.4", marks=pytest.mark.long("the other tests have Delta")), "iceberg-1.12"]
)
def test_rows_of_before_and_changes_after(
    broker: Kafka, topic: Callable[..., str], tmp_path: Path, engine: str
) -> None:
    """The rows of a TSO come first, older changes do not undo them, and younger ones follow, also in later runs.

    A table that the second run selects is loaded then; one whose CREATE is in the topic needs no load.
    """
    name = topic()
    made, gone = TableName("shop", "made"), TableName("shop", "gone")
    old = [
        ddl(ORDERS, AT - 90, "CREATE TABLE shop.orders (id INT PRIMARY KEY, w INT)", "create table"),
        row(ORDERS, AT - 20, "insert", 50, "gone before the load"),
        row(ORDERS, AT - 10, "update", 3, "older"),
        row(ITEMS, AT - 10, "update", 3, "not selected yet"),
        row(EVENTS, AT - 10, "insert", 9, "v9"),
    ]
    new = [
        row(ORDERS, AT + 1, "update", 3, "newer"),
        row(ORDERS, AT + 2, "delete", 4, None),
        row(ORDERS, AT + 3, "insert", 77, "later"),
        row(EVENTS, AT + 4, "insert", 70, "later"),
        row(ITEMS, AT + 4, "insert", 70, "later"),
        ddl(made, AT + 4, "CREATE TABLE shop.made (id INT PRIMARY KEY, v VARCHAR(30))", "create table"),
        row(made, AT + 4, "insert", 1, "first"),
        row(gone, AT + 4, "insert", 1, "first"),
        watermark(AT + 5),
    ]
    produce(broker.bootstrap_servers, name, old)

    first = run(engine, tmp_path, broker.bootstrap_servers, name, "shop.orders,shop.events")
    produce(broker.bootstrap_servers, name, new)
    second = run(engine, tmp_path, broker.bootstrap_servers, name, "shop.*")

    tables = first["tables"]
    assert {table: each["rows"] for table, each in tables.items()} == {str(ORDERS): loaded(), str(EVENTS): loaded()}
    for each in tables.values():
        assert (each["state"], each["complete_since"], each["loaded_ts"]) == ("following", AT, AT)
    assert {table: each["kind"] for table, each in tables.items()} == {str(ORDERS): "table", str(EVENTS): "log"}
    assert len(first["reads"]) == 4
    assert [table for table, _ in second["reads"]] == [str(ITEMS)] * 2
    assert {table: each["rows"] for table, each in second["tables"].items()} == {
        str(ORDERS): loaded(without=(4,), _3="newer", _77="later"),
        str(ITEMS): loaded(_70="later"),
        str(EVENTS): loaded(_70="later"),
        str(made): [[1, "first"]],
        str(gone): [[1, "first"]],
    }
    assert {table: each["complete_since"] for table, each in second["tables"].items()} == {
        str(ORDERS): AT, str(ITEMS): AT, str(EVENTS): AT, str(made): AT + 4, str(gone): None,
    }  # fmt: skip
    assert second["tables"][str(ORDERS)]["resolved_ts"] == AT + 5
