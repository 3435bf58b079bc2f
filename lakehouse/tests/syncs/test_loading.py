"""load_tables over targets in memory: killed before any write, continued, beside other writers; no TiDB is needed.

A table of TiDB is a frame of Spark here, whose ranges are WHERE clauses that Spark evaluates. tests/tidb/ loads from a
real TiDB into Delta.
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
from ticdc_lakehouse.snapshots.gc import GCState
from ticdc_lakehouse.syncs import loading
from ticdc_lakehouse.syncs.loading import Destination, LoadProgress, LoadReport, load_tables
from ticdc_lakehouse.targets.data_layout import WriteSettings
from ticdc_source.errors import CheckpointError, SchemaError, TiCDCSourceError
from ticdc_source.options.topics import TableFilter
from ticdc_source.schema.table_name import TableName

ALL = TableFilter()


pytestmark = pytest.mark.slow("a load for each test")


@pytest.fixture
def tidb(quick: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> TiDB:
    """A TiDB, whose tables go into the lake."""
    monkeypatch.setattr(loading, "existing_target", lake.existing)
    found = TiDB(quick)
    found.serve(monkeypatch.setattr)
    return found


@pytest.fixture
def load(tidb: TiDB, tmp_path: Path) -> Callable[..., LoadReport]:
    """`load_tables` of this TiDB, one table at a time; groups have two ranges."""

    def call(tables: TableFilter | Sequence[TableName] = ALL, **options: Any) -> LoadReport:
        given = {"folder": str(tmp_path / "load"), "parallel": 1, "ranges_per_commit": 2, **options}
        return load_tables(tidb.spark, ADDRESS, tables, **{"target_of": target, **given})

    return call


def target(table: TableName) -> Destination:
    """Return where a table goes."""
    return Destination.of(f"lake.{table}")


def test_every_table_has_its_rows_once(lake: Lake, tidb: TiDB, load: Callable[..., LoadReport]) -> None:
    """Tables with a key have their rows by appends, one without is a log, and all say since when they are complete."""
    tidb.rows[ITEMS] = []

    report = load()

    assert (report.at, report.failed) == (AT, ())
    assert [(one.target, one.complete, one.rows, one.ranges) for one in report.tables] == [
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
    lake: Lake,
    tidb: TiDB,
    load: Callable[..., LoadReport],
    table: TableName,
    deletes: Literal["hard"] | None,
    writes: int,
) -> None:
    """Killed after every one or two writes, while TiDB splits its regions, a load reads no range that a target has."""
    place = replace(target(table), settings=WriteSettings(deletes=deletes))
    kills = 0
    while True:
        lake.crash_at = len(lake.writes) + writes
        report = load([table], target_of=lambda _: place)
        if not report.failed:
            break
        assert isinstance(report.failed[0].error, CrashError)
        kills += 1
        tidb.region_size = 1 + kills % 3

    name = report.tables[0].target
    assert kills == (len(lake.writes) - 1) // writes >= 2
    assert lake.rows(name, "id", "v") == tidb.rows[table]
    assert [one.batch_id for one in lake.tables[name].commits] == [0, 1, 2]
    reads = Counter(clause for _, clause in tidb.reads)
    assert len(reads) == 5
    assert max(reads.values()) <= 2  # before a kill, when its commit was not yet done, and after it
    assert ("lake.shop.orders__deleted" in lake.tables) == (deletes == "hard")


def test_what_is_complete_is_not_read_again(lake: Lake, tidb: TiDB, load: Callable[..., LoadReport]) -> None:
    """A load in the same folder has the same TSO, asks TiDB for no table that is complete, and reads none of it."""
    load([ORDERS])
    before, tidb.reads = len(tidb.reads), []
    tidb.rows[ORDERS].append((99, "later"))

    again = load([ORDERS, ITEMS], at=None)

    assert before == 5
    assert {name for name, _ in tidb.reads} == {ITEMS}
    assert [one.complete for one in again.tables] == [AT, AT]
    assert len(lake.rows("lake.shop.orders", "id")) == 10


def test_changes_that_came_first_stay(lake: Lake, tidb: TiDB, load: Callable[..., LoadReport]) -> None:
    """A target that a stream has written already gets its older rows by merges; newer rows and deletes stay."""
    changes = [("update_postimage", AT + 5, 3, "new"), ("delete", AT + 6, 4, None), ("insert", AT + 7, 99, "later")]
    frame = frame_of(tidb.spark, changes).withMetadata("id", KEY)
    merge_into(frame, "lake.shop.orders", app_id="stream", batch_id=7, resolved_ts=AT + 9)

    report = load([ORDERS])

    expected = [(number, "new" if number == 3 else f"v{number}") for number in range(10) if number != 4]
    assert lake.rows("lake.shop.orders", "id", "v") == [*expected, (99, "later")]
    assert (report.tables[0].complete, report.tables[0].ranges) == (AT, 5)
    writes = ["create", "append", *["merge"] * 3, "update_rows", "set_properties"]
    assert [method for method, _ in lake.writes] == writes
    assert [one.resolved_ts for one in lake.tables["lake.shop.orders"].commits][:4] == [AT + 9, None, None, None]


@pytest.mark.parametrize("deletes", ["soft", "hard"])
def test_rows_whose_deletes_never_came_are_gone(
    lake: Lake, tidb: TiDB, load: Callable[..., LoadReport], deletes: Literal["soft", "hard"]
) -> None:
    """A row of a target that TiDB did not have at the TSO is deleted by the load, and a newer row stays."""
    changes = [("insert", AT - 5, 50, "deleted since"), ("insert", AT - 4, 3, "old"), ("insert", AT + 1, 60, "new")]
    frame = frame_of(tidb.spark, changes).withMetadata("id", KEY)
    merge_into(frame, "lake.shop.orders", app_id="stream", batch_id=7, deletes=deletes)

    report = load([ORDERS], target_of=lambda name: replace(target(name), settings=WriteSettings(deletes=deletes)))

    assert report.failed == ()
    assert lake.rows("lake.shop.orders", "id", "v") == [*tidb.rows[ORDERS], (60, "new")]


def test_changes_that_come_between_stay(lake: Lake, tidb: TiDB, load: Callable[..., LoadReport]) -> None:
    """If a stream writes into a target while its load is interrupted, the rest of the load is merged too."""
    lake.crash_at = 2  # after one commit of two ranges
    load([ORDERS])
    lake.crash_at = None
    changes = [("update_postimage", AT + 5, 1, "new"), ("update_postimage", AT + 5, 8, "new")]
    frame = frame_of(tidb.spark, changes).withMetadata("id", KEY)
    merge_into(frame, "lake.shop.orders", app_id="stream", batch_id=7)

    report = load([ORDERS])

    expected = [(number, "new" if number in (1, 8) else f"v{number}") for number in range(10)]
    assert lake.rows("lake.shop.orders", "id", "v") == expected
    assert (report.tables[0].ranges, report.tables[0].had) == (3, 2)


def test_a_folder_that_is_lost_loses_no_rows(
    lake: Lake, tidb: TiDB, load: Callable[..., LoadReport], tmp_path: Path
) -> None:
    """With another folder the ranges may be others, and the numbers of commits mean nothing: all is merged again.

    A log cannot tell the rows that it has, so it is refused.
    """
    for table, name in ((ORDERS, "lake.shop.orders"), (EVENTS, "lake.shop.events__log")):
        lake.crash_at = len(lake.writes) + 2  # after one commit of two ranges
        load([table])
        assert len(lake.tables[name].rows) == 4
    lake.crash_at = None
    tidb.region_size = 3

    report = load([ORDERS, EVENTS], folder=str(tmp_path / "other"), at=AT)

    assert lake.rows("lake.shop.orders", "id", "v") == tidb.rows[ORDERS]
    assert [one.table for one in report.failed] == [EVENTS]
    assert "Drop lake.shop.events__log, and load again" in str(report.failed[0].error)
    assert len(lake.tables["lake.shop.events__log"].rows) == 4


def test_a_table_and_a_progress_that_fail_stop_nothing(lake: Lake, tidb: TiDB, load: Callable[..., LoadReport]) -> None:
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

    assert [one.table for one in report.failed] == [gone]
    assert isinstance(report.failed[0].error, SchemaError)
    assert lake.rows("lake.shop.orders", "id", "v") == tidb.rows[ORDERS]
    assert [(one.table, one.rows, one.of, one.complete) for one in told] == [
        (gone, 0, 0, False), (ORDERS, 0, 10, False), (ORDERS, 4, 10, False), (ORDERS, 8, 10, False),
        (ORDERS, 10, 10, False), (ORDERS, 10, 10, True),
    ]  # fmt: skip
    assert all(one.seconds >= 0 for one in told)


def test_a_moment_that_is_gone_is_not_read(tidb: TiDB, load: Callable[..., LoadReport]) -> None:
    """A TSO below the GC safe point is refused before anything is read or written, with the command that helps."""
    tidb.state = GCState(AT, AT + 1, 600.0, AT + 1)

    with pytest.raises(TiCDCSourceError, match="SET GLOBAL tidb_gc_life_time = '24h'"):
        load()
    assert tidb.reads == []


def test_garbage_collection_is_watched(
    lake: Lake, tidb: TiDB, load: Callable[..., LoadReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load warns of a short life time before it reads, and ends between two commits when the moment is gone."""
    monkeypatch.setattr(loading, "_WATCH_SECONDS", 0.0)
    tidb.state = GCState(AT, AT, 600.0, AT)

    def collect(progress: LoadProgress) -> None:
        if progress.rows >= 4:
            tidb.state = GCState(AT, AT + 1, 600.0, AT + 1)

    with pytest.warns(UserWarning, match=r"for 10 min 0 s more.*SET GLOBAL tidb_gc_life_time = '24h'"):
        report = load([ORDERS, ITEMS], on_progress=collect)

    assert ["older than TiDB's GC safe point" in str(one.error) for one in report.failed] == [True, True]
    assert len(lake.rows("lake.shop.orders", "id")) == 4
    assert "lake.shop.items" not in lake.tables or lake.rows("lake.shop.items", "id") == []


def test_a_folder_of_something_else_is_refused(
    quick: SparkSession, load: Callable[..., LoadReport], tmp_path: Path
) -> None:
    """A file that no load has written is an error that names it."""
    quick.range(1).selectExpr("'noon' AS value").write.text(str(tmp_path / "load" / "tso"))

    with pytest.raises(CheckpointError, match="load/tso does not hold what a load has written"):
        load()
