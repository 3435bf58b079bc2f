"""A new table whose first micro-batch has a bad record: its target is created, and the record is in quarantine."""

from pathlib import Path

import cramjam
import pytest

from lakehouse.tests.syncs.memory_sync import MemorySync, ddl, insert, target
from lakehouse.tests.syncs.test_completeness import CREATE, QUARANTINE, bad
from lakehouse.tests.targets.memory import Lake
from tests.support.messages import Message
from ticdc_lakehouse.syncs.config import TableConfig

pytestmark = [pytest.mark.spark, pytest.mark.slow("several micro-batches of some seconds each")]
NO_TABLE: Message = (None, b"{")


def test_a_new_table_with_a_bad_value_is_created(lake: Lake, tmp_path: Path) -> None:
    """Whatever else its first micro-batch has: nothing, a row, or its CREATE TABLE; later changes follow.

    A record whose table nobody can tell goes into quarantine, and every table goes on. So does what is too large by
    `maxMessageBytes`, though it could be read without that option.
    """
    kinds = ("table", "log", "history")
    tables = {(with_, kind): f"{with_}_{kind}" for with_ in ("alone", "row", "ddl") for kind in kinds}
    messages: list[Message] = []
    for (with_, _), name in tables.items():
        first = {"row": [insert(name, 1, 12)], "ddl": [ddl(name, CREATE.format(name), 10, "CREATE")]}
        messages += [*first.get(with_, []), bad(name)]
    configs = {
        f"shop.{name}": TableConfig(log=kind == "log", history=kind == "history") for (_, kind), name in tables.items()
    }
    sync = MemorySync(lake, tmp_path, table_configs=configs, source={"maxMessageBytes": "2k"})
    sync.start()
    _, large = insert("other", 9, 20, v="x" * 4000)
    assert large is not None

    report = sync.batch(0, *messages)
    statuses = sync.statuses()
    wrong: list[Message] = [NO_TABLE, (None, bytes(cramjam.lz4.compress(large)))]
    later = sync.batch(1, *(insert(name, 2, 20) for name in tables.values()), insert("other", 1, 20), *wrong)

    assert (report.set_aside, report.bad_records) == ({}, len(tables))
    assert (later.set_aside, later.bad_records) == ({}, 2)
    for (with_, kind), name in tables.items():
        status = statuses[f"shop.{name}"]
        assert (status.state, status.bad_records, status.complete_since) == ("following", 1, None), name
        suffix = "__log" if kind == "log" else ""
        assert sync.ids(f"{name}{suffix}") == [*([1] if with_ == "row" else []), 2], name
        assert "ticdc.complete" not in lake.tables[target(f"{name}{suffix}")].properties, name
    assert sync.ids("other") == [1]
    assert [row["value"] is not None for row in lake.tables[QUARANTINE].rows] == [True] * (len(tables) + 2)
