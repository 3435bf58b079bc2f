"""A table heals from TiDB, whatever sets it aside and wherever the sync is killed: its rows are TiDB's in the end."""

from pathlib import Path

import pytest

from lakehouse.tests.syncs.memory_sync import QUERY, MemorySync, ddl, insert, target
from lakehouse.tests.syncs.stand_in import AT, ORDERS, TiDB
from lakehouse.tests.syncs.test_completeness import CREATE, bad
from lakehouse.tests.targets.memory import Lake
from tests.support.messages import watermark
from ticdc_lakehouse import TableConfig
from ticdc_lakehouse.syncs.status import Loading
from ticdc_lakehouse.tidb import TiDBConfig
from ticdc_source.schema.table_name import TableName

pytestmark = [pytest.mark.spark, pytest.mark.slow("several micro-batches of some seconds each")]
TABLES = {  # by what sets it aside
    "table_of_bad": "a bad record", "history_of_bad": "a bad record",
    "table_of_verdict": "a verdict", "history_of_verdict": "a verdict",
}  # fmt: skip


def started(sync: MemorySync) -> None:
    sync.start()
    assert sync._running is not None
    sync._running.load(QUERY)


def test_a_table_is_as_in_tidb_again(lake: Lake, tmp_path: Path, tidb: TiDB) -> None:
    """It is healing by the end of its micro-batch, follows after its load, and its pause says what it had before.

    The sync is killed in between.
    """
    rows, tidb.rows = tidb.rows[ORDERS], {}
    settings = {f"shop.{name}": TableConfig(history=name.startswith("history")) for name in TABLES}
    sync = MemorySync(lake, tmp_path, heal=True, tidb=TiDBConfig(url="h", user="reader"), table_configs=settings)
    started(sync)
    first = [(ddl(name, CREATE.format(name), 10, "CREATE"), insert(name, 50, 11)) for name in TABLES]
    sync.batch(0, *(message for both in first for message in both), watermark(15))
    tidb.rows = {TableName("shop", name): rows for name in TABLES}

    lake.blocked = {target(name) for name, cause in TABLES.items() if cause == "a verdict"}
    last = [bad(name) if cause == "a bad record" else insert(name, 2, 20) for name, cause in TABLES.items()]
    report = sync.batch(1, insert("other", 1, 21), *last, watermark(30))
    lake.blocked = set()

    assert (report.set_aside, sync.ids("other")) == ({}, [1])
    for name, cause in TABLES.items():
        healing = sync.status(name)
        assert isinstance(healing.phase, Loading), name
        keeps = name.startswith("history") and cause == "a verdict"
        assert (healing.phase.at, healing.phase.kept_from) == (AT, 1 if keeps else None), name
        assert (healing.complete_since, healing.resolved_ts) == (10, 15), name
    sync.kill()
    started(sync)

    for name in TABLES:
        healed = sync.status(name)
        assert (healed.state, healed.complete_since, healed.bad_records) == ("following", AT, 0), name
        assert [(one.complete_since, one.from_ts, one.rows is not None) for one in healed.pauses] == [(10, 15, True)]
        assert lake.rows(target(name), "id") == [(number,) for number in range(10)], name
    sync.batch(2, *(insert(name, 30, AT + 1) for name in TABLES))
    for name, cause in TABLES.items():
        assert lake.rows(target(name), "id")[-1] == (30,), name
        if name.startswith("history"):
            assert sync.ids(f"{name}__log") == ([2, 30, 50] if cause == "a verdict" else [30, 50])
    assert not list(tmp_path.glob("aside/*/batch*"))
