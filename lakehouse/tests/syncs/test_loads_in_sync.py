"""When a sync loads its tables, and what it keeps for them meanwhile; without Spark, TiDB or Kafka."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from lakehouse.tests.syncs.context import A_TIDB, config, context
from ticdc_lakehouse.syncs.following import RunningSync
from ticdc_lakehouse.syncs.joining import LoadEvents
from ticdc_lakehouse.syncs.micro_batch import MicroBatch, Outcome
from ticdc_lakehouse.syncs.status import Following, Loading, SetAside, TableStatus
from ticdc_lakehouse.syncs.steps import Begins, Loaded
from ticdc_lakehouse.targets.target import CommitFacts
from ticdc_source.errors import TiCDCSourceError
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.table_name import TableName
from ticdc_source.spark.tables import Tables

AT, LAST = 400, 7


def status(name: str, **given: Any) -> TableStatus:
    return TableStatus(table_name=name, target=f"lake.{name}", **given)


class Loads:
    """Stands for what joins tables: `new` joins, and each load makes a table complete."""

    def __init__(self, *new: str) -> None:
        self.new = new
        self.beside: list[str] = []
        self.moment: Any = None
        self.answers = True

    def begins(self, _statuses: Any, **_: object) -> dict[str, Begins]:
        return dict.fromkeys(self.new, Begins(AT))

    def load(self, statuses: Any) -> LoadEvents:
        answered = statuses if self.answers else ()
        return {each.table_name: Loaded(at=AT, target=each.target, kind="table") for each in answered}

    def load_beside(self, statuses: Any) -> None:
        self.beside += [each.table_name for each in statuses]


class Sync:
    """A sync whose store is a list of what it has written, and which notes what it resumes."""

    def __init__(self, loads: Loads, tables: dict[str, TableStatus], **given: Any) -> None:
        spark: Any = None
        self.sync = RunningSync(spark, config(tidb=A_TIDB, **given), lambda _: None)
        self.written: list[dict[str, str]] = []
        self.resumed: list[tuple[str, int, str]] = []
        own: Any = self.sync
        own._tables = tables
        own._joining = own._context.joining = loads
        own._write_views = lambda _: None
        own._marks = SimpleNamespace(committed=lambda: LAST, write=lambda _: None, shift=0, lacking={})
        own._status = SimpleNamespace(write=self.write, name="status")
        own._lease = SimpleNamespace(check=lambda **_: None)
        own._resuming.write_missed = self.resume

    def write(self, statuses: dict[str, TableStatus]) -> None:
        self.written.append({name: each.state for name, each in statuses.items()})

    def resume(self, name: str, statuses: dict[str, TableStatus], last: int, writer: str) -> Outcome:
        aside = statuses[name]
        assert isinstance(aside.phase, SetAside)
        self.resumed.append((name, last, writer))
        return Outcome(replace(aside, phase=Following()))


def test_the_first_load_comes_before_the_first_change() -> None:
    """The status says that tables are loading before a row is read, and micro-batches wait until they follow."""
    run = Sync(Loads("s.a", "s.b"), {})
    assert not run.sync._loaded.is_set()

    run.sync.load("query")

    assert run.written == [{"s.a": "loading", "s.b": "loading"}, {"s.a": "following", "s.b": "following"}]
    assert run.sync._loaded.is_set()
    assert run.resumed == []
    assert {each.complete_since for each in run.sync._tables.values()} == {AT}


def test_a_load_mends_a_target_that_was_put_back() -> None:
    """It has every row, so it lacks nothing any more; a load that was asked for earlier counts for nothing."""
    run = Sync(Loads(), {"s.a": status("s.a", phase=Loading(reason="no", at=AT))})
    lacking = run.sync._marks.lacking
    lacking["s.a"] = "an older version"

    for at, state in ((AT - 1, "healing"), (AT, "following")):
        assert lacking
        run.sync._loads_ended({"s.a": Loaded(at=at, target="lake.s.a", kind="log")})
        assert run.sync._tables["s.a"].state == state
    assert not lacking


def test_a_load_waits_for_its_moment() -> None:
    """While TiDB gives no TSO, nothing is loaded; the next micro-batch asks again."""
    loads = Loads()
    run = Sync(loads, {"s.a": status("s.a", phase=Loading())})
    for moment, begun in ((None, []), (AT, [Loading(at=AT)]), (AT, [])):
        loads.moment = lambda _, moment=moment: moment
        assert [each.phase for each in run.sync._date_loads()] == begun


@pytest.mark.parametrize("trigger", [None, "1 second"])
def test_others_go_on_while_a_table_joins(trigger: str | None) -> None:
    """If the sync goes on for ever, a new table is loaded beside those that follow; if it ends, before them."""
    loads = Loads("s.new")
    run = Sync(loads, {"s.old": status("s.old", kind="table", complete_since=1)}, trigger=trigger)

    run.sync.load("query")

    assert run.sync._loaded.is_set()
    assert loads.beside == ([] if trigger is None else ["s.new"])
    assert run.sync._tables["s.new"].state == ("following" if trigger is None else "loading")


@pytest.mark.parametrize("others", [True, False])
def test_a_tidb_that_does_not_answer_at_the_start_is_asked_again(others: bool) -> None:
    """Loads that have begun go on beside the stream, and those without a moment get one in the next micro-batch.

    A query that skips what is lost takes none: the rows of a table must be of after the loss.
    """
    waiting = [status("s.begun", phase=Loading(at=AT)), status("s.not", phase=Loading(reason="no"))]
    known = [*waiting, status("s.old", kind="table", complete_since=1)] if others else waiting
    loads = Loads(*() if others else ["s.begun"])
    loads.answers = False
    run = Sync(loads, {each.table_name: each for each in known}, trigger="1 second")

    run.sync.load("query")

    assert loads.beside == ["s.begun"]
    loads.moment = lambda _: AT + 1
    run.sync._skips = True
    assert run.sync._date_loads() == []
    run.sync._skips = False
    assert [(each.table_name, each.phase.at) for each in run.sync._date_loads()] == [("s.not", AT + 1)]  # type: ignore[union-attr]


def test_a_load_that_tidb_dates_at_the_end_of_a_finite_run_is_made() -> None:
    """TiDB did not answer at its start; the status says as of when the table is read before it is."""
    loads = Loads()
    loads.moment = lambda _: AT
    run = Sync(loads, {"s.a": status("s.a", phase=Loading())})

    run.sync.load_the_rest()

    assert run.written == [{"s.a": "loading"}, {"s.a": "following"}]


def test_what_was_kept_while_a_table_loaded_is_written_after_it() -> None:
    """Its kept records are replayed from the first that was kept, and the status says so only then."""
    run = Sync(Loads("s.new"), {"s.new": status("s.new", phase=Loading(at=AT, kept_from=3))})

    run.sync.load("query")

    assert run.resumed == [("s.new", LAST, "query")]
    assert run.written[-1] == {"s.new": "following"}
    assert run.sync._tables["s.new"].phase == Following()


def test_a_table_that_came_late_in_a_finite_run_is_loaded_at_its_end() -> None:
    """When the topics are read, the tables whose records were kept are loaded, and their records written."""
    run = Sync(Loads(), {"s.new": status("s.new", phase=Loading(at=AT, kept_from=9))})
    run.sync._batches, run.sync._last_batch, run.sync._writer = 1, 9, "query"

    run.sync.load_the_rest()

    assert run.resumed == [("s.new", 9, "query")]


@pytest.mark.parametrize(
    ("trigger", "error", "in_batch", "stopped"),
    [
        (None, None, False, False),
        (None, None, True, True),
        (None, RuntimeError("no brokers"), False, True),
        ("1 second", None, False, True),
    ],
    ids=["topics read", "stopped in a micro-batch", "failed", "stopped"],
)
def test_a_stream_that_has_read_its_topics_stops_no_load(
    trigger: str | None, error: Exception | None, in_batch: bool, stopped: bool
) -> None:
    """A finite stream without new records ends before its tables are loaded; one that fails or is stopped ends them."""
    own: Any = Sync(Loads(), {}, trigger=trigger).sync.stream
    assert not own.is_stopped()

    own.query, own.in_batch = SimpleNamespace(isActive=False, exception=lambda: error), in_batch

    assert own.is_stopped() == stopped


def test_a_load_that_fails_ends_the_sync_with_its_error() -> None:
    """A waiting micro-batch ends, and the error of the load is the one that is told."""

    class Broken(Loads):
        def load(self, statuses: Any) -> LoadEvents:
            raise TiCDCSourceError(f"no server for {len([*statuses])}")

    run = Sync(Broken("s.a"), {})

    with pytest.raises(TiCDCSourceError, match="no server"):
        run.sync.load("query")
    run.sync.stream.stop()
    with pytest.raises(TiCDCSourceError, match="no server"):
        run.sync.apply(None, 0)  # type: ignore[arg-type]  # it comes to no use
    assert str(run.sync.stream.error) == "no server for 1"


CREATE, DROP = "CREATE TABLE t (a INT)", "DROP TABLE t"


@pytest.mark.parametrize(("columns", "ddl", "known", "has", "needs_load"), [
    (6, (), {}, True, True),
    (6, (), {}, False, False),  # TiDB has no such table
    (6, (CREATE,), {}, True, False),
    (6, (), {"kind": "table"}, True, False),  # it has had changes
    (6, (), {"complete_since": 3}, True, False),
    (4, (DROP,), {}, True, False),  # there is only DDL, which tells no rows
])  # fmt: skip
def test_a_table_without_its_create_is_loaded(
    columns: int, ddl: tuple[str, ...], known: dict[str, Any], has: bool, needs_load: bool
) -> None:
    """Its changes are kept then, as `step` says."""
    changes: Any = Tables()
    changes["s.t"] = SimpleNamespace(columns=["c"] * columns)
    table = TableName("s", "t")
    changes.ddl = {"s.t": [DDLEvent(position=0, index=0, commit_ts=5, table=table, query=one, type="") for one in ddl]}
    shared = context(config(tidb=A_TIDB), joining=SimpleNamespace(has=lambda _: has))
    batch = MicroBatch(context=shared, changes=changes, facts=CommitFacts(None, "query", 6), statuses={})

    assert batch._needs_load(status("s.t", **known)) == needs_load
