"""Which tables are called complete: none whose changes were left out, were lost, or are in quarantine."""

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import cramjam
import pytest

from lakehouse.tests.syncs.memory_sync import QUERY, MemorySync, ddl, insert, target
from lakehouse.tests.syncs.stand_in import AT, TiDB
from lakehouse.tests.syncs.test_resume import free, obstruct
from lakehouse.tests.targets.memory import Lake, MemoryTarget
from tests.support.messages import canal
from ticdc_lakehouse import TableConfig
from ticdc_lakehouse.common.errors import TargetError
from ticdc_lakehouse.syncs.config import TiDBConfig
from ticdc_lakehouse.syncs.status import StatusTable
from ticdc_lakehouse.targets.target import CommitFacts, LastBatch

pytestmark = [pytest.mark.spark, pytest.mark.slow("several micro-batches of some seconds each")]
CREATE = "CREATE TABLE {} (id int PRIMARY KEY, v varchar(10))"
QUARANTINE = "delta.`/lake/_ticdc_quarantine`"


def created(sync: MemorySync) -> None:
    """Create two tables, each with a row."""
    tables = [ddl(name, CREATE.format(name), 10, "CREATE") for name in ("a", "b")]
    sync.batch(0, *tables, insert("a", 1, 11), insert("b", 1, 11))
    assert {sync.status(name).complete_since for name in ("a", "b")} == {10}


def claims(lake: Lake, table: str) -> bool:
    """Return whether a target says that it is complete."""
    return "ticdc.complete" in lake.tables[target(table)].properties


def test_a_table_that_was_left_out_needs_a_decision(lake: Lake, tmp_path: Path) -> None:
    """It is complete no longer, and waits for --resume once it is selected again, with what comes from then on."""
    sync = MemorySync(lake, tmp_path)
    everything = sync.config
    sync.start()
    created(sync)
    sync.end()

    sync.config = replace(everything, tables=("shop.a",))
    sync.start()
    report = sync.batch(1, insert("a", 2, 20), insert("b", 2, 20))
    assert (report.complete, report.tables, report.set_aside) == (1, 1, {})
    assert (sync.status("b").state, sync.status("b").complete_since) == ("left out", None)
    assert not claims(lake, "b")
    assert claims(lake, "a")
    sync.end()

    sync.config = everything
    sync.start()
    sync.batch(2, insert("a", 3, 30))
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


def test_a_table_that_was_left_out_can_be_resumed_at_once(lake: Lake, tmp_path: Path) -> None:
    """If nothing has come since it is selected again, --resume has nothing to write, and the table goes on."""
    sync = MemorySync(lake, tmp_path)
    everything = sync.config
    for config in (everything, replace(everything, tables=("shop.a",))):
        sync.config = config
        sync.start()
        if config is everything:
            created(sync)
        sync.end()
    sync.config = everything
    sync.start()
    sync.end()
    sync.start("shop.b")
    sync.batch(1, insert("b", 5, 50))

    assert sync.ids("b") == [1, 5]
    assert sync.status("b").complete_since is None


def test_nothing_is_complete_if_changes_may_be_lost(lake: Lake, tmp_path: Path) -> None:
    """With failOnDataLoss=false neither an old table nor a new one is called complete."""
    sync = MemorySync(lake, tmp_path)
    sync.start()
    created(sync)
    sync.end()

    sync.config = replace(sync.config, source={**sync.config.source, "failOnDataLoss": "false"})
    sync.start()
    report = sync.batch(1, ddl("c", CREATE.format("c"), 2**61, "CREATE"), insert("c", 1, 2**61 + 1))

    assert (report.complete, report.tables) == (0, 3)
    assert not any(claims(lake, name) for name in ("a", "b", "c"))


def with_tidb(sync: MemorySync) -> None:
    """Start the command with a TiDB, which it loads from."""
    sync.config = replace(sync.config, tidb=TiDBConfig(url="jdbc:mysql://h/"))
    sync.start()
    assert sync._running is not None
    sync._running.load(QUERY)


def test_a_load_does_not_believe_an_older_claim(lake: Lake, tmp_path: Path, tidb: TiDB) -> None:
    """A target that says it was complete before is read all the same: what it lacks now is why it is loaded."""
    sync = MemorySync(lake, tmp_path)
    sync.start()
    sync.batch(0, ddl("orders", CREATE.format("orders"), 10, "CREATE"), insert("orders", 1, 11))
    backup = deepcopy(lake.tables[target("orders")])
    sync.batch(1, insert("orders", 2, 20), bad("orders"))
    sync.end()
    lake.tables[target("orders")] = backup

    with_tidb(sync)

    assert tidb.reads
    assert sync.ids("orders") == list(range(10))
    assert sync.status("orders").complete_since == AT


def test_a_history_has_the_changes_that_a_load_has(lake: Lake, tmp_path: Path, tidb: TiDB) -> None:
    """Changes up to the TSO of a load are no news for the table, and are in the log beside it all the same."""
    sync = MemorySync(lake, tmp_path, table_configs={"shop.orders": TableConfig(history=True)})
    sync.start()
    sync.batch(0, insert("orders", 1, 11))
    sync.end()

    with_tidb(sync)
    sync.batch(1, insert("orders", 2, 20), insert("orders", 30, AT + 1))

    assert tidb.reads
    assert sync.ids("orders__log") == [1, 2, 30]


def test_a_late_create_proves_nothing_if_changes_were_lost(lake: Lake, tmp_path: Path) -> None:
    """After a run that may have lost changes, a CREATE of that time makes no table complete."""
    sync = MemorySync(lake, tmp_path)
    strict = sync.config
    loose = replace(strict, source={**strict.source, "failOnDataLoss": "false"})
    runs = [(strict, "a"), (loose, "a"), (strict, "c")]
    for number, (config, name) in enumerate(runs):
        sync.config = config
        sync.start()
        new = [ddl(name, CREATE.format(name), 40, "CREATE")] if name != "a" else []
        sync.batch(number, *new, insert(name, number + 1, 50 + number))
        sync.end()

    sync.start()
    assert sync.status("c").complete_since is None
    sync.batch(3, ddl("e", CREATE.format("e"), 2**61, "CREATE"), insert("e", 1, 2**61 + 1))
    assert sync.status("e").is_complete


def test_a_table_that_lacks_a_bad_record_stays_incomplete(lake: Lake, tmp_path: Path) -> None:
    """Also if it is set aside after its rows are committed, and resumed; the record is in quarantine once."""
    sync = MemorySync(lake, tmp_path)
    sync.start()
    created(sync)
    obstruct(lake, target("a"))
    sync.batch(1, insert("a", 2, 20), bad("a"), insert("b", 2, 20))
    free(lake)
    assert sync.status("a").state == "set aside"
    sync.end()

    sync.start("shop.a")

    assert sync.ids("a") == [1, 2]
    resumed = sync.status("a")
    assert (resumed.state, resumed.bad_records, resumed.complete_since) == ("following", 1, None)
    sync.batch(2, insert("a", 3, 30))
    assert not claims(lake, "a")
    assert len(lake.tables[QUARANTINE].rows) == 1


def test_a_resume_adds_no_bad_record_twice(lake: Lake, tmp_path: Path) -> None:
    """A table that is set aside before its rows are committed brings its bad records again, under another number."""
    sync = MemorySync(lake, tmp_path)
    sync.start()
    created(sync)
    lake.blocked = {target("a")}
    sync.batch(1, insert("a", 2, 20), bad("a"))
    sync.batch(2, insert("a", 3, 30))
    lake.blocked = set()
    sync.end()

    sync.start("shop.a")

    assert sync.ids("a") == [1, 2, 3]
    assert len(lake.tables[QUARANTINE].rows) == 1


def test_a_record_that_becomes_bad_is_in_quarantine(lake: Lake, tmp_path: Path) -> None:
    """A micro-batch that comes again under its number may have more bad records, because options have changed."""
    sync = MemorySync(lake, tmp_path)
    sync.start()
    created(sync)
    zero = canal("INSERT", [{"id": "2", "d": "0000-00-00"}], None, {"id": "int", "d": "date"}, database="shop",
                 table="a", pkNames=["id"], _tidb={"commitTs": 20})  # fmt: skip
    lake.blocked = {target("a")}
    sync.batch(1, zero, bad("a"), insert("a", 3, 22))
    lake.blocked = set()
    sync.end()

    sync.config = replace(sync.config, source={**sync.config.source, "zeroDate": "fail"})
    sync.start("shop.a")

    assert sync.ids("a") == [1, 3]
    assert len(lake.tables[QUARANTINE].rows) == 2


def test_a_resume_claims_nothing_if_changes_may_be_lost(lake: Lake, tmp_path: Path) -> None:
    """A resume comes before the first micro-batch of a start, and knows what is allowed now."""
    sync = MemorySync(lake, tmp_path)
    sync.start()
    created(sync)
    sync.end()
    sync.config = replace(sync.config, source={**sync.config.source, "failOnDataLoss": "false"})
    sync.start()
    lake.blocked = {target("c")}
    sync.batch(1, ddl("c", CREATE.format("c"), 40, "CREATE"), insert("c", 2, 50))
    lake.blocked = set()
    sync.end()

    sync.start("shop.c")

    assert (sync.status("c").state, sync.status("c").complete_since) == ("following", None)


def test_a_resume_that_is_killed_knows_its_bad_records(lake: Lake, tmp_path: Path) -> None:
    """If the target has what the status does not know, the quarantine tells what is missing."""
    sync = MemorySync(lake, tmp_path)
    sync.start()
    created(sync)
    lake.blocked = {target("a")}
    sync.batch(1, insert("a", 2, 20))
    sync.batch(2, insert("a", 3, 30), bad("a"))
    lake.blocked = set()
    sync.kill()
    obstruct(lake, target("a"), KeyboardInterrupt)  # type: ignore[arg-type]  # what ends a process
    with pytest.raises(KeyboardInterrupt):
        sync.start("shop.a")
    free(lake)
    sync.kill()

    sync.start("shop.a")

    assert sync.ids("a") == [1, 2, 3]
    assert not sync.status("a").is_complete
    assert not claims(lake, "a") or sync.status("a").bad_records


def test_a_log_that_lacks_changes_is_refused(lake: Lake, tmp_path: Path) -> None:
    """If `history` was off for a while, the table waits until another log begins, and loses nothing."""
    sync = MemorySync(lake, tmp_path)
    without = sync.config
    with_history = replace(without, table_configs={"shop.a": TableConfig(history=True)})
    batches = [(with_history, 1), (without, 2), (with_history, 3)]
    for number, (config, key) in enumerate(batches):
        sync.config = config
        sync.start()
        sync.batch(number, insert("a", key, 10 * key), insert("b", key, 10 * key))
        sync.end()

    sync.start()
    status = sync.status("a")
    assert (status.state, sync.status("b").state) == ("set aside", "following")
    assert "ends with micro-batch 0" in str(status.reason)
    assert (sync.ids("a"), sync.ids("a__log")) == ([1, 2], [1])
    sync.end()
    del lake.tables[target("a__log")]
    sync.start("shop.a")
    assert (sync.ids("a"), sync.ids("a__log")) == ([1, 2, 3], [3])


@pytest.mark.parametrize("commit_ts", [28, 2**61])
def test_only_a_later_table_lacks_no_bad_record(lake: Lake, tmp_path: Path, commit_ts: int) -> None:
    """A CREATE clears the mark of a bad record only if it is certainly newer: another partition may bring it late."""
    sync = MemorySync(lake, tmp_path)
    sync.start()
    created(sync)
    sync.batch(1, insert("a", 2, 20), bad("a"))

    again = ddl("a", "DROP TABLE `a`", commit_ts - 1, "ERASE"), ddl("a", CREATE.format("a"), commit_ts, "CREATE")
    sync.batch(2, *again, insert("a", 3, commit_ts + 1))

    assert sync.status("a").is_complete == claims(lake, "a") == (commit_ts == 2**61)


@pytest.mark.parametrize("history", [False, True])
def test_an_older_version_of_a_target_is_refused(lake: Lake, tmp_path: Path, history: bool) -> None:
    """A backup that lacks micro-batches is set aside, until the newest version is back; other tables go on."""
    config = TableConfig(log=True) if history else TableConfig()
    sync = MemorySync(lake, tmp_path, table_configs={"shop.a": config})
    name = target("a__log" if history else "a")
    sync.start()
    sync.batch(0, insert("a", 1, 11), insert("b", 1, 11))
    backup = deepcopy(lake.tables[name])
    sync.batch(1, insert("a", 2, 20))
    sync.batch(2, ddl("a", "ALTER TABLE a COMMENT = 'x'", 25, "ALTER"))
    sync.end()

    newest, lake.tables[name] = lake.tables[name], backup
    sync.start()
    sync.batch(3, insert("a", 3, 30), insert("b", 3, 30))
    status = sync.status("a")
    assert (status.state, sync.ids("b")) == ("set aside", [1, 3])
    assert "ends with micro-batch 0 now: it is an older version" in str(status.reason)
    sync.end()
    sync.start("shop.a")
    assert sync.status("a").state == "set aside"
    sync.end()

    lake.tables[name] = newest
    sync.start("shop.a")
    assert sorted(row["id"] for row in lake.tables[name].rows) == [1, 2, 3]


def test_a_restored_version_of_a_target_is_refused(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After Delta's RESTORE the undone commits are still in the history; the rows of their micro-batches are not."""
    sync = MemorySync(lake, tmp_path)
    sync.start()
    created(sync)
    sync.batch(1, insert("a", 2, 20))
    sync.end()
    last_batch = MemoryTarget.last_batch

    def restored(self: MemoryTarget, app_id: str) -> LastBatch | None:
        last = last_batch(self, app_id)
        is_its = last is not None and last.number == 1 and self.name == target("a")
        return LastBatch(CommitFacts(app_id=app_id, batch_id=0), undone=1) if is_its else last

    monkeypatch.setattr(MemoryTarget, "last_batch", restored)
    sync.start()
    sync.batch(2, insert("a", 3, 30), insert("b", 3, 30))

    assert (sync.status("a").state, sync.ids("b")) == ("set aside", [1, 3])
    assert "ends with micro-batch 0 now" in str(sync.status("a").reason)


def test_a_repeated_micro_batch_counts_once(lake: Lake, tmp_path: Path) -> None:
    """If the status was written before the kill, its rows and bad records stay as they are."""
    sync = MemorySync(lake, tmp_path)
    sync.start()
    created(sync)
    messages = [insert("a", 2, 20), insert("a", 3, 20), bad("a")]
    sync.batch(1, *messages, committed=False)
    before = sync.status("a")
    sync.kill()
    sync.start()
    sync.batch(1, *messages)
    sync.end()

    sync.start()
    after = sync.status("a")
    assert (after.images, after.bad_records) == (before.images, before.bad_records) == (3, 1)


def test_an_unreadable_record_does_not_vanish(lake: Lake, tmp_path: Path) -> None:
    """What is too large by `maxMessageBytes` is in quarantine, though it could be read without that option."""
    sync = MemorySync(lake, tmp_path, source={"maxMessageBytes": "2k"})
    sync.start()
    created(sync)
    _, value = insert("a", 2, 20, v="x" * 4000)
    assert value is not None

    report = sync.batch(1, (None, bytes(cramjam.lz4.compress(value))), insert("b", 2, 20))

    assert report.bad_records == 1
    assert [row["value"] is not None for row in lake.tables[QUARANTINE].rows] == [True]


def test_a_store_that_fails_in_the_first_micro_batch_sets_no_table_aside(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status table that this process has created is read when the store is tried."""
    sync = MemorySync(lake, tmp_path)
    sync.start()
    for name in ("frame", "append"):
        monkeypatch.setattr(MemoryTarget, name, unreadable)

    with pytest.raises(TargetError, match="affects all tables, so none is set aside"):
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
    message = "403: it cannot be read"
    raise RuntimeError(message)


def bad(table: str) -> tuple[bytes | None, bytes]:
    """Return an insert of which a value cannot be read."""
    key, value = insert(table, 9, 29)
    assert value is not None
    message = json.loads(value)
    message["data"][0]["id"] = "nine"
    return key, json.dumps(message).encode()
