"""load_tables over targets in memory: killed before any write, continued, beside other writers; no TiDB is needed.

A table of TiDB is a frame of Spark here. tests/tidb/ loads from a real TiDB into Delta.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import pytest
from pyspark.sql import SparkSession

from lakehouse.tests.syncs.context import config
from lakehouse.tests.syncs.stand_in import ADDRESS, AT, EVENTS, ITEMS, KEY, ORDERS, TiDB
from lakehouse.tests.targets.changes import frame_of
from lakehouse.tests.targets.memory import CrashError, Lake
from ticdc_lakehouse import merge_into
from ticdc_lakehouse.syncs import loading
from ticdc_lakehouse.syncs.loading import LoadProgress, load_tables
from ticdc_lakehouse.syncs.steps import Loaded
from ticdc_source.errors import DataLossError, OptionError
from ticdc_source.schema.table_name import TableName

LOADED_ORDERS, LOADED_ITEMS, LOG = (f"delta.`/lake/shop/{name}`" for name in ("orders", "items", "events__log"))
Loads = dict[TableName, Loaded | Exception]


pytestmark = pytest.mark.slow("a load for each test")


@pytest.fixture
def load(lake: Lake, quick: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Loads]:
    """`load_tables` of a TiDB into the lake, one table at a time; groups have two ranges of two rows."""
    monkeypatch.setattr(loading, "existing_target", lake.existing)
    monkeypatch.setattr(loading, "RANGES_PER_COMMIT", 2)

    def call(*tables: TableName, deletes: Literal["soft", "hard"] = "soft", **options: Any) -> Loads:
        own = config(path="/lake", parallel=1, deletes=deletes)
        given = {"tidb": ADDRESS, "at": AT, **options}
        return load_tables(quick, own, tables=dict.fromkeys(tables, False), **given)

    return call


@pytest.fixture
def tidb(monkeypatch: pytest.MonkeyPatch) -> TiDB:
    """A TiDB, whose tables go into the lake."""
    found = TiDB()
    found.serve(monkeypatch.setattr)
    return found


def write_changes(lake: Lake, changes: Sequence[tuple[Any, ...]], **options: Any) -> None:
    """Merge changes into shop.orders, as a stream does."""
    frame = frame_of(lake.spark, changes).withMetadata("id", KEY)
    merge_into(frame, LOADED_ORDERS, app_id="stream", batch_id=7, **options)


def test_every_table_has_its_rows_once(lake: Lake, tidb: TiDB, load: Callable[..., Loads]) -> None:
    """Tables with a key have their rows by appends, one without is a log, and all say since when they are complete.

    A load that is repeated reads nothing of a table that is complete.
    """
    tidb.rows[ITEMS] = []
    create = "CREATE TABLE `shop`.`{}` (id int NOT NULL, v varchar(30){})"
    key = ", PRIMARY KEY (id)"
    expected = {
        ORDERS: Loaded(at=AT, target=LOADED_ORDERS, kind="table", rows=10, create_sql=create.format("orders", key)),
        ITEMS: Loaded(at=AT, target=LOADED_ITEMS, kind="table", create_sql=create.format("items", key)),
        EVENTS: Loaded(at=AT, target=LOG, kind="log", rows=10, create_sql=create.format("events", "")),
    }

    assert load(ORDERS, ITEMS, EVENTS) == expected
    assert lake.rows(LOADED_ORDERS, "id", "v") == tidb.rows[ORDERS]
    assert lake.rows(LOG, "id", "v") == tidb.rows[EVENTS]
    assert {row["_sequence"]["commit_ts"] for row in lake.tables[LOADED_ORDERS].rows} == {AT}
    assert lake.rows(LOADED_ITEMS, "id") == []
    assert all(table.properties["ticdc.complete"] == str(AT) for table in lake.tables.values())
    assert {method for method, _ in lake.writes} == {"create", "append", "set_properties"}
    assert all([one.resolved_ts for one in each.commits][-1] == AT for each in lake.tables.values())
    assert [len(lake.tables[name].commits) for name in (LOADED_ORDERS, LOG)] == [4, 4]

    tidb.reads.clear()
    tidb.rows[ORDERS].append((99, "later"))
    assert load(ORDERS, ITEMS, EVENTS) == {table: replace(each, rows=0) for table, each in expected.items()}
    assert tidb.reads == []


@pytest.mark.parametrize(("table", "deletes", "writes"), [(ORDERS, "hard", 1), (EVENTS, "soft", 2)])
def test_a_killed_load_continues(
    lake: Lake, tidb: TiDB, load: Callable[..., Loads], table: TableName, deletes: str, writes: int
) -> None:
    """Killed after every one or two writes, a load reads no range that a target has."""
    kills = 0
    while True:
        lake.crash_at = len(lake.writes) + writes
        done = load(table, deletes=deletes)[table]
        if isinstance(done, Loaded):
            break
        assert isinstance(done, CrashError)
        kills += 1

    assert kills == (len(lake.writes) - 1) // writes >= 2
    assert lake.rows(done.target, "id", "v") == tidb.rows[table]
    assert [one.batch_id for one in lake.tables[done.target].commits] == [0, 1, 2, 4]
    reads = Counter(clause for _, clause in tidb.reads)
    assert len(reads) == 5
    assert max(reads.values()) <= 2  # before a kill, when its commit was not yet done, and after it
    assert ("delta.`/lake/shop/orders__deleted`" in lake.tables) == (deletes == "hard")


@pytest.mark.parametrize("deletes", ["soft", "hard"])
def test_a_target_that_a_stream_has_written(
    lake: Lake, tidb: TiDB, load: Callable[..., Loads], deletes: Literal["soft", "hard"]
) -> None:
    """It gets its older rows by merges. Newer rows and deletes stay, and rows that TiDB did not have are deleted."""
    changes = [
        ("insert", AT - 5, 50, "deleted since"), ("insert", AT - 4, 5, "old"), ("update_postimage", AT + 5, 3, "new"),
        ("delete", AT + 6, 4, None), ("insert", AT + 7, 99, "later"),
    ]  # fmt: skip
    write_changes(lake, changes, deletes=deletes, resolved_ts=AT + 9)
    before = len(lake.writes)

    done = load(ORDERS, deletes=deletes)[ORDERS]

    assert isinstance(done, Loaded)
    expected = [(number, "new" if number == 3 else value) for number, value in tidb.rows[ORDERS] if number != 4]
    assert lake.rows(LOADED_ORDERS, "id", "v") == [*expected, (99, "later")]
    removes = "update_rows" if deletes == "soft" else "delete_rows"
    methods = [method for method, name in lake.writes[before:] if name == LOADED_ORDERS]
    assert methods == [*["merge"] * 3, removes, "append", "set_properties"]


@pytest.mark.parametrize("other", ["a stream", "other ranges"])
def test_a_load_that_another_writer_interrupts(
    lake: Lake, tidb: TiDB, load: Callable[..., Loads], other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of it is merged too, and with other ranges all of it, because the numbers of commits mean nothing.

    A log cannot tell the rows that it has, so it is refused.
    """
    for table, name in ((ORDERS, LOADED_ORDERS), (EVENTS, LOG)):
        lake.crash_at = len(lake.writes) + 2  # after one commit of two ranges
        load(table)
        assert len(lake.tables[name].rows) == 4
    lake.crash_at = None
    if other == "a stream":
        write_changes(lake, [("update_postimage", AT + 5, 1, "new"), ("update_postimage", AT + 5, 8, "new")])
    else:
        monkeypatch.setattr(loading, "RANGES_PER_COMMIT", 3)

    report = load(ORDERS, EVENTS)

    new = (1, 8) if other == "a stream" else ()
    assert lake.rows(LOADED_ORDERS, "id", "v") == [
        (number, "new" if number in new else value) for number, value in tidb.rows[ORDERS]
    ]
    assert isinstance(report[EVENTS], Loaded) == (other == "a stream")
    if other != "a stream":
        assert f"Drop {LOG}, and load the table again" in str(report[EVENTS])
        assert len(lake.tables[LOG].rows) == 4


def test_a_table_and_a_progress_that_fail_stop_nothing(lake: Lake, tidb: TiDB, load: Callable[..., Loads]) -> None:
    """The error of a table is in the report, and the tables after it are loaded.

    What hears of the progress may raise, which is a warning. It hears how many rows of how many are there, from none to
    all, after each commit.
    """
    gone, told = TableName("shop", "gone"), list[LoadProgress]()

    def broken(progress: LoadProgress) -> None:
        told.append(progress)
        raise BrokenPipeError("the pipe is closed")

    with pytest.warns(UserWarning, match="on_load failed for .*: the pipe is closed"):
        report = load(gone, ORDERS, on_progress=broken)

    assert isinstance(report[gone], OptionError)
    assert lake.rows(LOADED_ORDERS, "id", "v") == tidb.rows[ORDERS]
    assert [(one.table, one.rows, one.of, one.complete) for one in told] == [
        (gone, 0, 0, False), (ORDERS, 0, 10, False), (ORDERS, 4, 10, False), (ORDERS, 8, 10, False),
        (ORDERS, 10, 10, False), (ORDERS, 10, 10, True),
    ]  # fmt: skip
    assert all(one.seconds >= 0 for one in told)


def test_garbage_collection_is_watched(
    lake: Lake, tidb: TiDB, load: Callable[..., Loads], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load warns of a short life time before it reads, and ends between two commits when the moment is gone.

    A TSO below the GC safe point is refused before anything is read.
    """
    monkeypatch.setattr(loading, "_WATCH_SECONDS", 0.0)
    tidb.life_time = (600.0, 540.0)

    def collect(progress: LoadProgress) -> None:
        tidb.is_gone = progress.rows >= 4

    with pytest.warns(UserWarning, match=r"for another 9 min 0 s.*10 min 0 s.*SET GLOBAL tidb_gc_life_time = '24h'"):
        report = load(ORDERS, on_progress=collect)

    assert isinstance(report[ORDERS], DataLossError)
    assert len(lake.rows(LOADED_ORDERS, "id")) == 4
    tidb.reads.clear()
    tidb.is_gone = True
    with pytest.raises(DataLossError, match="SET GLOBAL tidb_gc_life_time = '24h'"):
        load(ORDERS)
    assert tidb.reads == []
