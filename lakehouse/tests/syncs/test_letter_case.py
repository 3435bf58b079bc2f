"""A database that TiDB's DDL jobs spell in lower case, as TiDB compares names without case: one table in a sync."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakehouse.tests.syncs.memory_sync import MemorySync
from lakehouse.tests.syncs.test_completeness import QUARANTINE
from lakehouse.tests.targets.memory import Lake
from tests.support.messages import Message, canal, simple, simple_definition
from ticdc_lakehouse.syncs.config import TableConfig

pytestmark = [
    pytest.mark.slow("some micro-batches"),
    pytest.mark.usefixtures("quick"),
    pytest.mark.filterwarnings("ignore"),
]

TYPES: dict[str, dict[str, Any]] = {
    "Id": {"mysqlType": "int"}, "V": {"mysqlType": "varchar", "length": 9}, "W": {"mysqlType": "int"},
}  # fmt: skip


def by_simple(kind: str, number: int, commit_ts: int, sql: str = "", **more: int) -> Message:
    is_wide = "W" in more or "W" in sql
    version = 20 if is_wide else 5
    if kind == "ddl":
        columns = TYPES if is_wide else {name: TYPES[name] for name in ("Id", "V")}
        type_ = "TRUNCATE" if sql.startswith("TRUNCATE") else "ALTER" if sql.startswith("ALTER") else "CREATE"
        _, message = simple_definition(type_, columns, version, "T", sql=sql, commitTs=commit_ts)
        return None, (message or b"").replace(b'"schema":"test"', b'"schema":"shop_b"')
    cells = {"Id": str(number), "V": "v", **{name: str(value) for name, value in more.items()}}
    image = {"old": cells} if kind == "delete" else {"data": cells}
    return simple(kind.upper(), database="Shop_B", table="T", version=version, commitTs=commit_ts, **image)


def by_canal(number: int, commit_ts: int) -> Message:
    return canal("INSERT", [{"Id": str(number), "V": "v"}], None, {"Id": "int", "V": "varchar(9)"},
                 database="Shop_B", table="T", pkNames=["Id"], _tidb={"commitTs": commit_ts})  # fmt: skip


CREATE = "CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` VARCHAR(9))"


def test_a_database_that_ddl_spells_otherwise_is_one_table(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CREATE, rows, ADD COLUMN, a bad record, TRUNCATE, a restart and settings by another spelling: one target."""
    lake.serve(monkeypatch)
    settings = {"SHOP_b.t": TableConfig(history=True)}
    sync = MemorySync(lake, tmp_path / "c", tables=("sHop_B.*",), source={"protocol": "simple"}, table_configs=settings)
    sync.start()
    first = sync.batch(0, by_simple("ddl", 0, 5, CREATE), by_simple("insert", 1, 10), by_simple("insert", 2, 11))
    second = sync.batch(
        1, by_simple("ddl", 0, 20, "ALTER TABLE `t` ADD COLUMN `W` INT"), by_simple("insert", 3, 21, W=7)
    )
    sync.kill()
    sync.start()
    bad = by_simple("insert", 4, 22, W=8)
    third = sync.batch(2, (bad[0], (bad[1] or b"").replace(b'"4"', b'"four"')), by_simple("delete", 2, 23, W=1))

    assert [each.set_aside for each in (first, second, third)] == [{}, {}, {}]
    names = [name for name in lake.tables if "_ticdc" not in name]
    assert len(names) == 2, names
    (table,) = (lake.tables[name] for name in names if "__log" not in name)
    assert sorted((row["Id"], row["W"]) for row in table.rows if not row["_is_deleted"]) == [(1, None), (3, 7)]
    assert len(lake.tables[QUARANTINE].rows) == 1
    (status,) = sync._running._status.read().values()  # type: ignore[union-attr]
    assert (status.state, status.bad_records) == ("following", 1)

    sync.batch(3, by_simple("ddl", 0, 30, "TRUNCATE TABLE `t`"), by_simple("insert", 9, 31, W=9))
    assert sorted(row["Id"] for row in table.rows if not row["_is_deleted"]) == [9]


def test_a_table_of_another_spelling_is_resumed(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept of a table that is set aside has its rows in every spelling, and any spelling resumes it.

    Its first micro-batch has a bad record, which `bad_records = "fail"` refuses: the resume creates its target.
    """
    lake.serve(monkeypatch)
    sync = MemorySync(lake, tmp_path / "c", bad_records="fail", source={"protocol": "canal-json"})
    sync.start()
    create = canal("CREATE", None, None, None, database="shop_b", table="t", isDdl=True, sql=CREATE,
                   _tidb={"commitTs": 5})  # fmt: skip
    bad = by_canal(2, 11)
    report = sync.batch(0, create, by_canal(1, 10), (bad[0], (bad[1] or b"").replace(b'"2"', b'"two"')))
    lower = by_canal(3, 12)
    sync.batch(1, (lower[0], (lower[1] or b"").replace(b'"Shop_B"', b'"shop_b"')), by_canal(4, 13))
    assert len(report.set_aside) == 1
    sync.end()

    sync.config = replace(sync.config, bad_records="quarantine")
    sync.start("SHOP_B.T")

    (status,) = sync._running._status.read().values()  # type: ignore[union-attr]
    assert (status.state, status.bad_records) == ("following", 1)
    (table,) = (each for name, each in lake.tables.items() if "_ticdc" not in name)
    assert sorted(row["Id"] for row in table.rows) == [1, 3, 4]
