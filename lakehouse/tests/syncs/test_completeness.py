"""Which tables are called complete: none whose changes were left out, were lost, or are in quarantine."""

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest

from lakehouse.tests.syncs.memory_sync import QUERY, MemorySync, ddl, insert, target
from lakehouse.tests.syncs.stand_in import AT, ITEMS, ORDERS, TiDB
from lakehouse.tests.syncs.test_resume import free, obstruct
from lakehouse.tests.targets.memory import Lake, MemoryTarget, Table
from tests.support.messages import Message, canal
from ticdc_lakehouse import TableConfig
from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.syncs.status import StatusTable
from ticdc_lakehouse.tidb import TiDBConfig

pytestmark = [pytest.mark.spark, pytest.mark.slow("several micro-batches of some seconds each")]
CREATE = "CREATE TABLE {} (id int PRIMARY KEY, v varchar(10))"
QUARANTINE = "delta.`/lake/_ticdc_quarantine`"


def created(sync: MemorySync, *names: str) -> None:
    """Create tables, each with a row."""
    creates = [ddl(name, CREATE.format(name), 10, "CREATE") for name in names]
    sync.batch(0, *creates, *(insert(name, 1, 11) for name in names))
    assert {sync.status(name).complete_since for name in names} == {10}


def claims(lake: Lake, table: str) -> bool:
    return "ticdc.complete" in lake.tables[target(table)].properties


def test_a_table_that_was_left_out_needs_a_decision(lake: Lake, tmp_path: Path) -> None:
    """It is complete no longer, and waits for --resume once it is selected again, with what comes from then on.

    If nothing has come since then, --resume has nothing to write, and the table goes on.
    """
    sync = MemorySync(lake, tmp_path)
    everything = sync.config
    sync.start()
    created(sync, "a", "b", "c")
    sync.end()

    sync.config = replace(everything, tables=("shop.a",))
    sync.start()
    report = sync.batch(1, *(insert(name, 2, 20) for name in ("a", "b", "c")))
    assert (report.complete, report.tables, report.set_aside) == (1, 1, {})
    assert (sync.status("b").state, sync.status("b").complete_since) == ("left out", None)
    assert [claims(lake, name) for name in ("a", "b", "c")] == [True, False, False]
    sync.end()

    sync.config = everything
    sync.start()
    sync.end()
    sync.start("shop.c")
    sync.batch(2, insert("a", 3, 30), insert("c", 3, 30))
    assert (sync.ids("c"), sync.status("c").complete_since) == ([1, 3], None)
    sync.batch(3, insert("a", 4, 40), insert("b", 4, 40))
    waits = sync.status("b")
    assert waits.state == "set aside"
    assert "`tables` or `skip` has left it out" in str(waits.reason)
    assert sync.ids("b") == [1]
    sync.end()
    sync.start("shop.b")

    assert sync.ids("b") == [1, 4]
    assert (sync.status("b").state, sync.status("b").complete_since) == ("following", None)
    assert sync.status("a").complete_since == 10


def test_nothing_is_complete_if_changes_may_be_lost(lake: Lake, tmp_path: Path) -> None:
    """With failOnDataLoss=false no table is called complete: neither old nor new ones, nor one that is resumed.

    After that run, a CREATE of its time proves nothing, and a later one does.
    """
    sync = MemorySync(lake, tmp_path)
    strict = sync.config
    sync.start()
    created(sync, "a", "b")
    sync.end()

    sync.config = replace(strict, source={**strict.source, "failOnDataLoss": "false"})
    sync.start()
    lake.blocked = {target("d")}
    report = sync.batch(1, *new("c", 2**61), *new("d", 40))
    lake.blocked = set()
    assert report.complete == 0
    assert not any(claims(lake, name) for name in ("a", "b", "c"))
    sync.end()
    sync.start("shop.d")
    assert (sync.status("d").state, sync.status("d").complete_since) == ("following", None)
    sync.end()

    sync.config = strict
    sync.start()
    sync.batch(2, *new("e", 40), *new("f", 2**61))
    assert sync.status("e").complete_since is None
    assert sync.status("f").is_complete


def new(table: str, commit_ts: int) -> tuple[Message, Message]:
    return ddl(table, CREATE.format(table), commit_ts, "CREATE"), insert(table, 1, commit_ts + 1)


def with_tidb(sync: MemorySync) -> None:
    sync.config = replace(sync.config, tidb=TiDBConfig(url="h", user="reader"))
    sync.start()
    assert sync._running is not None
    sync._running.load(QUERY)


def test_a_load_has_the_last_word_on_a_table_and_not_on_its_history(lake: Lake, tmp_path: Path, tidb: TiDB) -> None:
    """A target that says it was complete before is read all the same: what it lacks now is why it is loaded.

    Changes up to the TSO of a load are no news for a table, and are in the log beside it all the same.
    """
    tidb.rows[ITEMS] = tidb.rows[ORDERS]
    sync = MemorySync(lake, tmp_path, table_configs={"shop.items": TableConfig(history=True)})
    sync.start()
    sync.batch(0, *new("orders", 10), insert("items", 1, 11))
    backup = deepcopy(lake.tables[target("orders")])
    sync.batch(1, insert("orders", 2, 20), bad("orders"))
    sync.end()
    lake.tables[target("orders")] = backup

    with_tidb(sync)

    assert {name for name, _ in tidb.reads} == {ORDERS, ITEMS}
    assert sync.ids("orders") == list(range(10))
    assert sync.status("orders").complete_since == AT
    sync.batch(2, insert("items", 2, 20), insert("items", 30, AT + 1))
    assert sync.ids("items__log") == [1, 2, 30]


def test_a_resume_knows_each_bad_record_once(lake: Lake, tmp_path: Path) -> None:
    """A table that lacks one stays incomplete, and the record is in quarantine once, wherever the table was set aside.

    `after` fails after its rows are committed, the others before it, so that their bad records come again. One of
    `options` was not bad when it came. The first resume of `killed` dies when the target has what no status knows.
    """
    names = ("after", "before", "options", "killed")
    sync = MemorySync(lake, tmp_path)
    sync.start()
    created(sync, *names)
    zero = canal("INSERT", [{"id": "2", "d": "0000-00-00"}], None, {"id": "int", "d": "date"}, database="shop",
                 table="options", pkNames=["id"], _tidb={"commitTs": 20})  # fmt: skip
    obstruct(lake, target("after"))
    lake.blocked = {target(name) for name in names if name != "after"}
    rows = [insert(name, 3, 20) for name in names]
    sync.batch(1, *rows, zero, *(bad(name) for name in names if name != "killed"))
    free(lake)
    sync.batch(2, insert("before", 4, 30), insert("killed", 4, 30), bad("killed"))
    lake.blocked = set()
    assert {sync.status(name).state for name in names} == {"set aside"}
    sync.kill()
    obstruct(lake, target("killed"), KeyboardInterrupt)  # type: ignore[arg-type]  # what ends a process
    with pytest.raises(KeyboardInterrupt):
        sync.start("shop.killed")
    free(lake)
    sync.kill()

    sync.config = replace(sync.config, source={**sync.config.source, "zeroDate": "fail"})
    sync.start(*(f"shop.{name}" for name in names))
    sync.batch(3, *(insert(name, 5, 40) for name in names))

    for name, ids in {"after": [1, 3, 5], "before": [1, 3, 4, 5], "options": [1, 3, 5], "killed": [1, 3, 4, 5]}.items():
        status = sync.status(name)
        assert (sync.ids(name), status.state, status.complete_since) == (ids, "following", None), name
        assert not claims(lake, name), name
    assert sync.status("after").bad_records == 1
    tables = [json.loads(row["value"])["table"] for row in lake.tables[QUARANTINE].rows]
    assert sorted(tables) == ["after", "before", "killed", "options", "options"]


def test_a_bad_record_counts_once_until_a_later_table_has_the_name(lake: Lake, tmp_path: Path) -> None:
    """If the status was written before a kill, the repeated micro-batch adds nothing to rows and bad records.

    A CREATE clears the mark of a bad record only if it is certainly newer: another partition may bring it late.
    """
    sync = MemorySync(lake, tmp_path)
    sync.start()
    created(sync, "a", "b", "c")
    messages = [
        message for name in ("a", "b", "c") for message in (insert(name, 2, 20), insert(name, 3, 20), bad(name))
    ]
    sync.batch(1, *messages, committed=False)
    before = sync.status("a")
    sync.kill()
    sync.start()
    sync.batch(1, *messages)
    again = {"b": 28, "c": 2**61}
    dropped = [ddl(name, f"DROP TABLE `{name}`", commit_ts - 1, "ERASE") for name, commit_ts in again.items()]
    sync.batch(2, *dropped, *(message for name, commit_ts in again.items() for message in new(name, commit_ts)))
    sync.end()

    sync.start()
    after = sync.status("a")
    assert (after.images, after.bad_records) == (before.images, before.bad_records) == (3, 1)
    assert [(sync.status(name).is_complete, claims(lake, name)) for name in again] == [(False, False), (True, True)]


def test_a_log_that_lacks_changes_is_refused(lake: Lake, tmp_path: Path) -> None:
    """If `history` was off for a while, the table waits until another log begins, and loses nothing.

    A log of which an older version was put back waits for the newest one.
    """
    log = TableConfig(log=True)
    sync = MemorySync(lake, tmp_path, table_configs={"shop.c": log})
    without = sync.config
    with_history = replace(without, table_configs={"shop.a": TableConfig(history=True), "shop.c": log})
    backups: list[Table] = []
    for number, (config, key) in enumerate([(with_history, 1), (without, 2), (with_history, 3)]):
        sync.config = config
        sync.start()
        sync.batch(number, *(insert(name, key, 10 * key) for name in ("a", "b", "c")))
        sync.end()
        backups.append(deepcopy(lake.tables[target("c__log")]))
    newest, lake.tables[target("c__log")] = lake.tables[target("c__log")], backups[0]

    sync.start()
    assert [sync.status(name).state for name in ("a", "b", "c")] == ["set aside", "following", "set aside"]
    assert "ends with micro-batch 0" in str(sync.status("a").reason)
    assert "ends with micro-batch 0 now: it was restored to an older version" in str(sync.status("c").reason)
    assert (sync.ids("a"), sync.ids("a__log")) == ([1, 2], [1])
    sync.end()
    del lake.tables[target("a__log")]
    lake.tables[target("c__log")] = newest
    sync.start("shop.a", "shop.c")
    assert (sync.ids("a"), sync.ids("a__log"), sync.ids("c__log")) == ([1, 2, 3], [3], [1, 2, 3])


def test_a_store_that_fails_in_the_first_micro_batch_sets_no_table_aside(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status table that this process has created is read when the store is tried."""
    sync = MemorySync(lake, tmp_path)
    sync.start()
    for name in ("frame", "append"):
        monkeypatch.setattr(MemoryTarget, name, unreadable)

    with pytest.raises(TargetError, match="affects every table, so the sync ends and sets no table aside"):
        sync.batch(0, insert("a", 1, 11), insert("b", 1, 11))


def test_a_start_that_fails_gives_its_lease_back(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start need not wait until it ends by itself."""
    sync = MemorySync(lake, tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(StatusTable, "read", unreadable)
        with pytest.raises(RuntimeError):
            sync.start()
    assert sync._running is not None
    sync._running.close()

    sync.start()


def unreadable(*_: object, **__: object) -> None:
    """Fail, as a store or a survey may."""
    raise RuntimeError("403: it cannot be read")


def bad(table: str) -> tuple[bytes | None, bytes]:
    key, value = insert(table, 9, 29)
    assert value is not None
    message = json.loads(value)
    message["data"][0]["id"] = "nine"
    return key, json.dumps(message).encode()
