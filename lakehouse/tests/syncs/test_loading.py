"""load_tables over targets in memory: killed before any write, continued, beside other writers; no TiDB is needed.

A table of TiDB is a frame of Spark here. tests/tidb/ loads from a real TiDB into Delta.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.sql import SparkSession

from lakehouse.tests.syncs.stand_in import ADDRESS, AT, EVENTS, ITEMS, KEY, ORDERS, TiDB
from lakehouse.tests.targets.changes import frame_of
from lakehouse.tests.targets.memory import CrashError, Lake
from ticdc_lakehouse import merge_into
from ticdc_lakehouse.common.tidb import TiDBConfig
from ticdc_lakehouse.syncs import loading
from ticdc_lakehouse.syncs.loading import Destination, LoadProgress, TableLoad, created_tables, load_tables
from ticdc_lakehouse.targets.data_layout import WriteSettings
from ticdc_source.errors import DataLossError, OptionError
from ticdc_source.schema.table_name import TableName

ALL = (ORDERS, ITEMS, EVENTS)
Loads = tuple[TableLoad, ...]


pytestmark = pytest.mark.slow("a load for each test")


@pytest.fixture
def tidb(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> TiDB:
    """A TiDB, whose tables go into the lake."""
    monkeypatch.setattr(loading, "existing_target", lake.existing)
    found = TiDB()
    found.serve(monkeypatch.setattr)
    return found


@pytest.fixture
def load(tidb: TiDB, quick: SparkSession, tmp_path: Path) -> Callable[..., Loads]:
    """`load_tables` of this TiDB, one table at a time; groups have two ranges."""
    assert tidb.rows

    def call(tables: Sequence[TableName] = ALL, address: TiDBConfig = ADDRESS, **options: Any) -> Loads:
        given = {"at": AT, "folder": str(tmp_path / "load"), "parallel": 1, "ranges_per_commit": 2, **options}
        return load_tables(quick, address, tables, **{"target_of": target, **given})

    return call


def failed(loads: Loads) -> list[TableLoad]:
    """Return the loads that are not complete."""
    return [one for one in loads if one.complete is None]


def target(table: TableName) -> Destination:
    """Return where a table goes."""
    return Destination(target=f"lake.{table}", log=f"lake.{table}__log")


def test_every_table_has_its_rows_once(lake: Lake, tidb: TiDB, load: Callable[..., Loads]) -> None:
    """Tables with a key have their rows by appends, one without is a log, and all say since when they are complete."""
    tidb.rows[ITEMS] = []

    report = load()

    assert failed(report) == []
    assert [(one.target, one.complete, one.rows, one.ranges) for one in report] == [
        ("lake.shop.orders", AT, 10, 5), ("lake.shop.items", AT, 0, 0), ("lake.shop.events__log", AT, 10, 5)
    ]  # fmt: skip
    assert lake.rows("lake.shop.orders", "id", "v") == tidb.rows[ORDERS]
    assert lake.rows("lake.shop.events__log", "id", "v") == tidb.rows[EVENTS]
    assert {row["_sequence"]["commit_ts"] for row in lake.tables["lake.shop.orders"].rows} == {AT}
    assert lake.rows("lake.shop.items", "id") == []
    assert all(table.properties["ticdc.complete"] == str(AT) for table in lake.tables.values())
    assert {method for method, _ in lake.writes} == {"create", "append", "set_properties"}
    assert [one.resolved_ts for one in lake.tables["lake.shop.orders"].commits] == [None, None, AT]


@pytest.mark.parametrize(("table", "deletes", "writes"), [(ORDERS, "hard", 1), (EVENTS, None, 2)])
def test_a_killed_load_continues(
    lake: Lake, tidb: TiDB, load: Callable[..., Loads], table: TableName, deletes: Literal["hard"] | None, writes: int
) -> None:
    """Killed after every one or two writes, a load reads no range that a target has, whatever `rows_per_range` is."""
    place = replace(target(table), settings=WriteSettings(deletes=deletes))
    kills, address = 0, ADDRESS
    while True:
        lake.crash_at = len(lake.writes) + writes
        report = load([table], address, target_of=lambda _: place)
        if not failed(report):
            break
        assert isinstance(failed(report)[0].error, CrashError)
        kills += 1
        if any(commit.batch_id is not None for one in lake.tables.values() for commit in one.commits):
            address = replace(ADDRESS, rows_per_range=1 + kills % 3)

    name = report[0].target
    assert kills == (len(lake.writes) - 1) // writes >= 2
    assert lake.rows(name, "id", "v") == tidb.rows[table]
    assert [one.batch_id for one in lake.tables[name].commits] == [0, 1, 2]
    reads = Counter(clause for _, clause in tidb.reads)
    assert len(reads) == 5
    assert max(reads.values()) <= 2  # before a kill, when its commit was not yet done, and after it
    assert ("lake.shop.orders__deleted" in lake.tables) == (deletes == "hard")


def test_what_is_complete_is_not_read_again(lake: Lake, tidb: TiDB, load: Callable[..., Loads]) -> None:
    """A load that is repeated reads nothing of a table that is complete."""
    load([ORDERS])
    before, tidb.reads = len(tidb.reads), []
    tidb.rows[ORDERS].append((99, "later"))

    again = load([ORDERS, ITEMS])

    assert before == 5
    assert {name for name, _ in tidb.reads} == {ITEMS}
    assert [one.complete for one in again] == [AT, AT]
    assert len(lake.rows("lake.shop.orders", "id")) == 10


def test_changes_that_came_first_stay(lake: Lake, load: Callable[..., Loads]) -> None:
    """A target that a stream has written already gets its older rows by merges; newer rows and deletes stay."""
    changes = [("update_postimage", AT + 5, 3, "new"), ("delete", AT + 6, 4, None), ("insert", AT + 7, 99, "later")]
    frame = frame_of(lake.spark, changes).withMetadata("id", KEY)
    merge_into(frame, "lake.shop.orders", app_id="stream", batch_id=7, resolved_ts=AT + 9)

    report = load([ORDERS])

    expected = [(number, "new" if number == 3 else f"v{number}") for number in range(10) if number != 4]
    assert lake.rows("lake.shop.orders", "id", "v") == [*expected, (99, "later")]
    assert (report[0].complete, report[0].ranges) == (AT, 5)
    writes = ["create", "append", *["merge"] * 3, "update_rows", "set_properties"]
    assert [method for method, _ in lake.writes] == writes
    assert [one.resolved_ts for one in lake.tables["lake.shop.orders"].commits][:4] == [AT + 9, None, None, None]


@pytest.mark.parametrize("deletes", ["soft", "hard"])
def test_rows_whose_deletes_never_came_are_gone(
    lake: Lake, tidb: TiDB, load: Callable[..., Loads], deletes: Literal["soft", "hard"]
) -> None:
    """A row of a target that TiDB did not have at the TSO is deleted by the load, and a newer row stays."""
    changes = [("insert", AT - 5, 50, "deleted since"), ("insert", AT - 4, 3, "old"), ("insert", AT + 1, 60, "new")]
    frame = frame_of(lake.spark, changes).withMetadata("id", KEY)
    merge_into(frame, "lake.shop.orders", app_id="stream", batch_id=7, deletes=deletes)

    report = load([ORDERS], target_of=lambda name: replace(target(name), settings=WriteSettings(deletes=deletes)))

    assert failed(report) == []
    assert lake.rows("lake.shop.orders", "id", "v") == [*tidb.rows[ORDERS], (60, "new")]


def test_changes_that_come_between_stay(lake: Lake, load: Callable[..., Loads]) -> None:
    """If a stream writes into a target while its load is interrupted, the rest of the load is merged too."""
    lake.crash_at = 2  # after one commit of two ranges
    load([ORDERS])
    lake.crash_at = None
    changes = [("update_postimage", AT + 5, 1, "new"), ("update_postimage", AT + 5, 8, "new")]
    frame = frame_of(lake.spark, changes).withMetadata("id", KEY)
    merge_into(frame, "lake.shop.orders", app_id="stream", batch_id=7)

    report = load([ORDERS])

    expected = [(number, "new" if number in (1, 8) else f"v{number}") for number in range(10)]
    assert lake.rows("lake.shop.orders", "id", "v") == expected
    assert (report[0].ranges, report[0].had) == (3, 2)


def test_another_load_at_the_same_tso_loses_no_rows(lake: Lake, tidb: TiDB, load: Callable[..., Loads]) -> None:
    """If its commits have other ranges, their numbers mean nothing: all is merged again.

    A log cannot tell the rows that it has, so it is refused.
    """
    for table, name in ((ORDERS, "lake.shop.orders"), (EVENTS, "lake.shop.events__log")):
        lake.crash_at = len(lake.writes) + 2  # after one commit of two ranges
        load([table])
        assert len(lake.tables[name].rows) == 4
    lake.crash_at = None

    report = load([ORDERS, EVENTS], ranges_per_commit=3)

    assert lake.rows("lake.shop.orders", "id", "v") == tidb.rows[ORDERS]
    assert [one.table for one in failed(report)] == [EVENTS]
    assert "Drop lake.shop.events__log, and load again" in str(failed(report)[0].error)
    assert len(lake.tables["lake.shop.events__log"].rows) == 4


def test_a_table_and_a_progress_that_fail_stop_nothing(lake: Lake, tidb: TiDB, load: Callable[..., Loads]) -> None:
    """The error of a table is in the report, and the tables after it are loaded.

    What hears of the progress may raise, which is a warning. It hears how many rows of how many are there, from none to
    all, after each commit.
    """
    gone, told = TableName("shop", "gone"), list[LoadProgress]()

    def broken(progress: LoadProgress) -> None:
        told.append(progress)
        msg = "the pipe is closed"
        raise BrokenPipeError(msg)

    with pytest.warns(UserWarning, match="was not told: the pipe is closed"):
        report = load([gone, ORDERS], on_progress=broken)

    assert [one.table for one in failed(report)] == [gone]
    assert isinstance(failed(report)[0].error, OptionError)
    assert lake.rows("lake.shop.orders", "id", "v") == tidb.rows[ORDERS]
    assert [(one.table, one.rows, one.of, one.complete) for one in told] == [
        (gone, 0, 0, False), (ORDERS, 0, 10, False), (ORDERS, 4, 10, False), (ORDERS, 8, 10, False),
        (ORDERS, 10, 10, False), (ORDERS, 10, 10, True),
    ]  # fmt: skip
    assert all(one.seconds >= 0 for one in told)


def test_a_moment_that_is_gone_is_not_read(tidb: TiDB, load: Callable[..., Loads]) -> None:
    """A TSO below the GC safe point is refused before anything is read or written, with the command that helps."""
    tidb.is_gone = True

    with pytest.raises(DataLossError, match="SET GLOBAL tidb_gc_life_time = '24h'"):
        load()
    assert tidb.reads == []


def test_garbage_collection_is_watched(
    lake: Lake, tidb: TiDB, load: Callable[..., Loads], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load warns of a short life time before it reads, and ends between two commits when the moment is gone."""
    monkeypatch.setattr(loading, "_WATCH_SECONDS", 0.0)
    tidb.life_time = (600.0, 540.0)

    def collect(progress: LoadProgress) -> None:
        tidb.is_gone = progress.rows >= 4

    with pytest.warns(UserWarning, match=r"for 9 min 0 s more.*10 min 0 s.*SET GLOBAL tidb_gc_life_time = '24h'"):
        report = load([ORDERS], on_progress=collect)

    assert [type(one.error) for one in failed(report)] == [DataLossError]
    assert len(lake.rows("lake.shop.orders", "id")) == 4


def test_what_a_table_was_is_kept(quick: SparkSession, load: Callable[..., Loads], tmp_path: Path) -> None:
    """The `CREATE TABLE` of each table as of its load can be found again."""
    load([ORDERS, EVENTS])

    found = created_tables(quick, str(tmp_path / "load"), AT)

    create = "CREATE TABLE `shop`.`events` (id int NOT NULL, v varchar(30))"
    assert dict(found)[EVENTS] == create
    assert len(found) == 2
    assert created_tables(quick, str(tmp_path / "load"), AT + 1) == []
