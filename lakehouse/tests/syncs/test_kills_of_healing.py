"""A table heals from TiDB, whatever sets it aside and wherever the sync is killed: its rows are TiDB's in the end."""

from pathlib import Path

import pytest

from lakehouse.tests.syncs.memory_sync import QUERY, MemorySync, ddl, insert, target, watermark
from lakehouse.tests.syncs.stand_in import AT, ORDERS, TiDB
from lakehouse.tests.syncs.test_completeness import CREATE, bad
from lakehouse.tests.targets.memory import Lake
from ticdc_lakehouse import TableConfig
from ticdc_lakehouse.syncs.config import TiDBConfig
from ticdc_lakehouse.syncs.status import Healing

pytestmark = [pytest.mark.spark, pytest.mark.slow("several micro-batches of some seconds each")]


def started(sync: MemorySync) -> None:
    """Start the sync, or start it again: it loads what it must."""
    sync.start()
    assert sync._running is not None
    sync._running.load(QUERY)


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("cause", ["a bad record", "a verdict"])
def test_a_table_is_as_in_tidb_again(
    lake: Lake, tmp_path: Path, tidb: TiDB, cause: str, killed: bool, history: bool
) -> None:
    """It is healing by the end of its micro-batch, follows after its load, and its pause says what it had before."""
    rows, tidb.rows = tidb.rows, {}
    settings = {"shop.orders": TableConfig(history=history)}
    sync = MemorySync(lake, tmp_path, heal=True, tidb=TiDBConfig(url="jdbc:mysql://h/"), table_configs=settings)
    started(sync)
    sync.batch(0, ddl("orders", CREATE.format("orders"), 10, "CREATE"), insert("orders", 50, 11), watermark(15))
    tidb.rows = {ORDERS: rows[ORDERS]}

    lake.blocked = {target("orders")} if cause == "a verdict" else set()
    last = [insert("orders", 2, 20), watermark(25)] if lake.blocked else [bad("orders"), watermark(30)]
    report = sync.batch(1, insert("other", 1, 21), *last)
    lake.blocked = set()

    healing = sync.status("orders")
    assert isinstance(healing.phase, Healing)
    assert (healing.phase.at, healing.phase.kept_from) == (AT, 1 if history and cause == "a verdict" else None)
    assert (healing.complete_since, healing.resolved_ts, report.set_aside) == (10, 15, {})
    assert sync.ids("other") == [1]
    if killed:
        sync.kill()
        started(sync)
    else:
        assert sync._running is not None
        sync._running.load_the_rest()

    healed = sync.status("orders")
    assert (healed.state, healed.complete_since, healed.bad_records) == ("following", AT, 0)
    assert [(one.complete_since, one.from_ts, one.rows is not None) for one in healed.pauses] == [(10, 15, True)]
    assert lake.rows(target("orders"), "id") == [(number,) for number in range(10)]
    sync.batch(2, insert("orders", 30, AT + 1))
    assert lake.rows(target("orders"), "id")[-1] == (30,)
    if history:
        assert sync.ids("orders__log") == ([2, 30, 50] if cause == "a verdict" else [30, 50])
    assert not list(tmp_path.glob("aside/*/batch*"))
