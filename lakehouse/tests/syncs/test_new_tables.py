"""A new table whose first micro-batch has a bad record: its target is created, and the record is in quarantine."""

from dataclasses import replace
from pathlib import Path

import pytest

from lakehouse.tests.syncs.memory_sync import MemorySync, ddl, insert, target
from lakehouse.tests.syncs.test_completeness import CREATE, QUARANTINE, bad
from lakehouse.tests.targets.memory import Lake
from tests.support.messages import Message
from ticdc_lakehouse.syncs.config import TableConfig

pytestmark = [pytest.mark.spark, pytest.mark.slow("several micro-batches of some seconds each")]
NO_TABLE: Message = (None, b"{")


@pytest.mark.parametrize("others", [(), (insert("n", 1, 12),), (ddl("n", CREATE.format("n"), 10, "CREATE"),)])
@pytest.mark.parametrize("kind", ["table", "log", "history"])
def test_a_new_table_with_a_bad_value_is_created(
    lake: Lake, tmp_path: Path, kind: str, others: tuple[Message, ...]
) -> None:
    """Whatever else its first micro-batch has: nothing, a row, or its CREATE TABLE; later changes follow."""
    settings = TableConfig(log=kind == "log", history=kind == "history")
    sync = MemorySync(lake, tmp_path, table_configs={"shop.n": settings})
    sync.start()

    report = sync.batch(0, *others, bad("n"), insert("other", 1, 13))
    later = sync.batch(1, insert("n", 2, 20))

    assert (report.set_aside, report.bad_records, later.set_aside) == ({}, 1, {})
    status = sync.status("n")
    assert (status.state, status.bad_records, status.complete_since) == ("following", 1, None)
    suffix = "__log" if kind == "log" else ""
    had = [1] if others == (insert("n", 1, 12),) else []
    assert sync.ids(f"n{suffix}") == [*had, 2]
    assert "ticdc.complete" not in lake.tables[target(f"n{suffix}")].properties
    assert len(lake.tables[QUARANTINE].rows) == 1


def test_a_new_table_beside_a_record_of_no_table_is_created(lake: Lake, tmp_path: Path) -> None:
    """A record whose table nobody can tell goes into quarantine, and every table goes on."""
    sync = MemorySync(lake, tmp_path)
    sync.start()

    report = sync.batch(0, insert("n", 1, 12), NO_TABLE)

    assert (report.set_aside, report.bad_records) == ({}, 1)
    assert sync.ids("n") == [1]


def test_a_new_table_goes_on_once_bad_records_may_be_left_out(lake: Lake, tmp_path: Path) -> None:
    """With bad_records = "fail" it is set aside; after the change to `quarantine`, a resume creates its target."""
    sync = MemorySync(lake, tmp_path, bad_records="fail")
    sync.start()
    report = sync.batch(0, insert("n", 1, 12), bad("n"), insert("other", 1, 13))
    assert list(report.set_aside) == ["shop.n"]
    sync.end()

    sync.config = replace(sync.config, bad_records="quarantine")
    sync.start("shop.n")

    assert (sync.status("n").state, sync.status("n").bad_records) == ("following", 1)
    assert sync.ids("n") == [1]
    assert len(lake.tables[QUARANTINE].rows) == 1
