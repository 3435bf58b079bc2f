"""Which tables a sync loads, as of which TSO, and how they go on; no TiDB and no Spark is needed."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from ticdc_lakehouse.common.errors import UnexplainedChangeError
from ticdc_lakehouse.common.tidb import TiDBConfig
from ticdc_lakehouse.syncs import joining
from ticdc_lakehouse.syncs.config import SyncConfig, TableConfig
from ticdc_lakehouse.syncs.failures import Shared, Stream
from ticdc_lakehouse.syncs.joining import Joining, LoadEvents
from ticdc_lakehouse.syncs.loading import Destination, TableLoad
from ticdc_lakehouse.syncs.redaction import Redaction
from ticdc_lakehouse.syncs.status import Healing, Loading, SetAside, TableStatus
from ticdc_lakehouse.syncs.steps import Failed, Loaded
from ticdc_source.errors import DataLossError, TiCDCSourceError
from ticdc_source.options.topics import TableFilter
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.tso import of_ms

NOW = of_ms(1_767_225_600_000)
ORDERS, ITEMS, EVENTS, OTHER = (
    TableName(*name.split(".")) for name in ("shop.orders", "shop.items", "shop.events", "bank.accounts")
)


class TiDB:
    """A TiDB that has four tables; it keeps which of them were loaded, and as of when.

    Attributes:
        loads: the loads: the TSO, the tables, and the folder.
        safe_point: below it nothing can be read.
        fails: the tables that cannot be loaded.
        error: why.
    """

    def __init__(self) -> None:
        self.tables = [OTHER, EVENTS, ITEMS, ORDERS]
        self.loads: list[tuple[int, list[TableName], str]] = []
        self.safe_point = NOW - 100
        self.fails: set[TableName] = set()
        self.error: Exception = ValueError("a type")
        self.destinations: dict[TableName, Destination] = {}

    def tables_at(self, selected: TableFilter, at: int) -> list[TableName]:
        """Return the tables that match."""
        assert at == NOW
        return [name for name in self.tables if selected.matches(name)]

    def life_time(self, at: int) -> tuple[float, float]:
        """Return for how long it keeps a moment."""
        if at < self.safe_point:
            msg = f"TSO {at} is gone. SET GLOBAL tidb_gc_life_time = '24h'"
            raise DataLossError(msg)
        return 600.0, 600.0

    def load(
        self, _spark: Any, _tidb: Any, tables: list[TableName], target_of: Any, **given: Any
    ) -> tuple[TableLoad, ...]:
        """Load tables, but not those that fail; `events` has no key."""
        at: int = given["at"]
        self.life_time(at)
        self.loads.append((at, tables, given["folder"]))
        self.destinations |= {name: target_of(name) for name in tables}
        loads = []
        for name in tables:
            place = self.destinations[name]
            if name in self.fails:
                loads.append(TableLoad(table=name, target=place.target, error=self.error))
                continue
            target = place.log if name == EVENTS or place.settings.as_log else place.target
            loads.append(TableLoad(table=name, target=target, complete=at))
        return tuple(loads)


@pytest.fixture
def tidb(monkeypatch: pytest.MonkeyPatch) -> TiDB:
    """A TiDB in place of a real one."""
    found = TiDB()
    monkeypatch.setattr(joining, "load_tables", found.load)
    monkeypatch.setattr(TiDBConfig, "tables_at", found.tables_at)
    monkeypatch.setattr(TiDBConfig, "now", lambda _: NOW)
    monkeypatch.setattr(TiDBConfig, "life_time", found.life_time)
    monkeypatch.setattr(joining, "created_tables", lambda _spark, _folder, at: [(ORDERS, f"CREATE at {at}")])
    return found


@pytest.fixture
def join(tidb: TiDB) -> Callable[..., Joining]:
    """A function that returns what joins tables of the database `shop`."""
    assert tidb.tables

    def make(**given: Any) -> Joining:
        values: dict[str, Any] = {
            "source": {"kafka.bootstrap.servers": "h:1"},
            "topics": ("t",),
            "format": "delta",
            "path": "/lake",
            "checkpoint": "/checkpoint",
            "tables": ("shop.*",),
            "tidb": TiDBConfig(url="tidb:4000", user="reader"),
        }
        spark: Any = None
        redaction = Redaction({}, {})
        stream = Stream(redaction, is_finite=True)
        shared = Shared(stopping=stream.is_stopped, try_store=lambda: None)
        return Joining(spark, SyncConfig(**{**values, **given}), stream, shared, redaction)

    return make


def known(*statuses: TableStatus) -> dict[str, TableStatus]:
    """Return statuses by name."""
    return {each.table_name: each for each in statuses}


def status(table: TableName, **given: Any) -> TableStatus:
    """Return the status of a table that is complete."""
    values = {"kind": "table", "complete_since": 7, **given}
    return TableStatus(table_name=str(table), target=f"delta.`/lake/{table}`", **values)


def test_at_first_every_selected_table_is_loaded_at_one_tso(tidb: TiDB, join: Callable[..., Joining]) -> None:
    """All tables of the patterns are loaded as of one TSO, in a folder of it, and then follow."""
    own = join(table_configs={"shop.items": TableConfig(log=True, deletes="hard")})

    found = own.load(own.joined({}).values())

    assert tidb.loads == [(NOW, [EVENTS, ITEMS, ORDERS], f"/checkpoint/load/{NOW}")]
    assert {name: (each.kind, each.at) for name, each in loaded(found).items()} == {
        "shop.events": ("log", NOW), "shop.items": ("log", NOW), "shop.orders": ("table", NOW),
    }  # fmt: skip
    assert tidb.destinations[ITEMS].settings.deletes == "hard"
    assert [event.query for event in own.known_ddl["shop.orders"]] == [f"CREATE at {NOW}"]


def test_only_what_is_new_or_incomplete_joins(join: Callable[..., Joining]) -> None:
    """A complete table, one that is set aside, and a log are left alone; one that lacks rows is loaded into."""
    statuses = known(
        status(ORDERS, complete_since=None, images=5), status(ITEMS), status(EVENTS, kind="log", complete_since=None)
    )

    joined = join().joined(statuses)

    assert {name: (each.phase, each.images) for name, each in joined.items()} == {"shop.orders": (Loading(at=NOW), 5)}
    aside = status(ORDERS, phase=SetAside(reason="no", since="now"), complete_since=None)
    assert join().joined(known(aside, status(ITEMS), status(EVENTS))) == {}
    assert join(tidb=None).joined({}) == {}


def test_a_load_without_a_moment_gets_one(join: Callable[..., Joining]) -> None:
    """A table that is resumed or heals is loaded as of now, and its kept records stay where they are."""
    statuses = known(
        status(ORDERS, phase=Loading(kept_from=3)),
        status(ITEMS, phase=Healing(reason="no", kept_from=4)),
        status(EVENTS),
    )

    assert {name: each.phase for name, each in join().joined(statuses).items()} == {
        "shop.orders": Loading(at=NOW, kept_from=3),
        "shop.items": Healing(reason="no", at=NOW, kept_from=4),
    }


def test_a_table_is_the_same_in_other_letters(tidb: TiDB, join: Callable[..., Joining]) -> None:
    """The topic and TiDB may spell a table differently: it joins once, under the name that its status has."""
    tidb.tables = [TableName("Shop", "ORDERS"), TableName("Shop", "Items"), TableName("SHOP", "events")]
    settings = {"sHOP.oRDERS": TableConfig(deletes="hard")}
    statuses = known(status(ORDERS, complete_since=None), status(ITEMS))

    own = join(table_configs=settings)
    found = own.load(own.joined(statuses).values())

    assert {*loaded(found)} == {"shop.orders", "SHOP.events"}
    assert tidb.destinations[ORDERS].settings.deletes == "hard"


@pytest.mark.filterwarnings("error")
def test_a_killed_load_goes_on_at_its_tso(tidb: TiDB, join: Callable[..., Joining]) -> None:
    """The status says as of when a table is read; a new TSO is taken only if TiDB has that moment no longer."""
    loading = status(ORDERS, phase=Loading(at=NOW - 50), complete_since=None)
    other = replace(loading, table_name="shop.items", phase=Loading(at=NOW - 60))
    statuses = known(loading, other, status(EVENTS))

    assert {moment(each) for each in join().joined(statuses).values()} == {NOW - 50, NOW - 60}
    join().load([statuses["shop.orders"], statuses["shop.items"]])
    assert [(at, names) for at, names, _ in tidb.loads] == [(NOW - 60, [ITEMS]), (NOW - 50, [ORDERS])]

    tidb.safe_point = NOW - 55
    with pytest.warns(UserWarning, match=r"SET GLOBAL tidb_gc_life_time = '24h'.*starts again at TSO"):
        again = join().joined(statuses)
    assert {name: moment(each) for name, each in again.items()} == {"shop.orders": NOW - 50, "shop.items": NOW}


def test_a_table_that_cannot_be_loaded_stops_no_other(tidb: TiDB, join: Callable[..., Joining]) -> None:
    """It says why, without a secret, and the others are loaded."""
    tidb.fails = {ITEMS}
    own = join()

    found = own.load(own.joined({}).values())

    assert {*loaded(found)} == {"shop.events", "shop.orders"}
    assert found["shop.items"] == Failed("The load failed: a type", "fault", at=NOW)


def test_a_tidb_that_does_not_answer_sets_no_table_aside(
    tidb: TiDB, join: Callable[..., Joining], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If TiDB is away when a load begins, while it runs, or when a new table comes, the tables go on loading."""

    def gone(*_: Any, **__: Any) -> Any:
        msg = "no server answers"
        raise TiCDCSourceError(msg)

    loading = status(ORDERS, phase=Loading(at=NOW), complete_since=None)
    own = join()
    with monkeypatch.context() as patch:
        patch.setattr(joining, "load_tables", gone)
        with pytest.warns(UserWarning, match="Cannot load shop.orders yet: no server answers"):
            assert own.load([loading]) == {}
    tidb.fails = {ORDERS}
    monkeypatch.setattr(TiDBConfig, "now", gone)
    with pytest.warns(UserWarning, match="Cannot load shop.orders yet"):
        assert own.load([loading]) == {}
    with pytest.warns(UserWarning, match="Cannot load shop.orders yet"):
        assert own.has(ORDERS)
    with pytest.warns(UserWarning, match="Cannot load shop.orders yet"):
        assert own.moment(["shop.orders"]) is None


def test_ddl_that_a_load_does_not_know_yet_comes_first(tidb: TiDB, join: Callable[..., Joining]) -> None:
    """If the types of a target that follows differ from TiDB's, its changes go on, and the next start loads it."""
    tidb.fails, tidb.error = {ORDERS}, UnexplainedChangeError("v is int, and now string")
    own = join()

    with pytest.warns(UserWarning, match="Changes of shop.orders are applied"):
        found = own.load([status(ORDERS, phase=Loading(at=NOW), complete_since=None)])

    assert found == {"shop.orders": Failed("The load failed: v is int, and now string", "unexplained", at=NOW)}


def test_a_stream_that_begins_anew_needs_a_new_tso(join: Callable[..., Joining]) -> None:
    """If the stream knew no offsets before, a load of before may lack changes that it does not bring."""
    statuses = known(status(ORDERS, phase=Loading(at=NOW - 9), complete_since=None))

    again, anew = (join().joined(statuses, is_new=is_new)["shop.orders"] for is_new in (False, True))

    assert (moment(again), moment(anew)) == (NOW - 9, NOW)


def test_tables_that_follow_need_no_tidb(
    tidb: TiDB, join: Callable[..., Joining], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If TiDB cannot be read, or is not configured any more, a warning says so, and loaded tables go on."""
    statuses = known(status(ORDERS), status(ITEMS, phase=Loading(at=NOW)))
    with pytest.warns(UserWarning, match=r"\[tidb\] is gone, .*: shop.items"):
        assert join(tidb=None).joined(statuses) == {}

    def gone(*_: Any, **__: Any) -> int:
        msg = "no server answers"
        raise TiCDCSourceError(msg)

    monkeypatch.setattr(TiDBConfig, "now", gone)
    with pytest.warns(UserWarning, match="Cannot start loads now: no server answers"):
        assert join().joined(statuses) == {}
    with pytest.warns(UserWarning, match="Cannot start loads now"):  # for a new stream, the moment of before is too old
        waiting = join().joined(statuses, is_new=True)
    assert {name: moment(each) for name, each in waiting.items()} == {"shop.items": None}
    with pytest.raises(TiCDCSourceError, match="no server answers"):
        join().joined({})
    assert tidb.loads == []


def test_a_table_that_the_stream_brings_is_loaded_if_tidb_has_it(tidb: TiDB, join: Callable[..., Joining]) -> None:
    """A table without its CREATE in the topic is loaded; one that is gone is not."""
    assert join().has(ORDERS)
    assert join().moment(["shop.orders"]) == NOW
    tidb.tables = []
    assert not join().has(ORDERS)
    assert not join(tidb=None).has(ORDERS)


def test_loads_beside_the_stream_are_told_once(tidb: TiDB, join: Callable[..., Joining]) -> None:
    """What a thread has loaded is returned by the next look, once; after a stop a table stays as it was."""
    own = join()
    own.load_beside(own.joined({}).values())
    found = dict(wait(own))

    assert {*loaded(found)} == {"shop.events", "shop.items", "shop.orders"}
    assert own.finished() == {}
    tidb.fails = {ORDERS}
    own._stream.stop()
    assert own.load([status(ORDERS, phase=Loading(at=NOW))]) == {}


@pytest.mark.filterwarnings("ignore:.*The sync tries again", "ignore:.*The load starts again")
def test_a_load_beside_the_stream_is_tried_again(
    tidb: TiDB, join: Callable[..., Joining], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While TiDB does not answer the load waits; if the rows of its TSO are gone by then, it takes a new one."""
    monkeypatch.setattr(joining, "_ASKS_AGAIN_S", 0.0)
    errors = [TiCDCSourceError("no server answers")]

    def now(*_: Any, **__: Any) -> int:
        if errors:
            raise errors.pop()
        return NOW

    monkeypatch.setattr(TiDBConfig, "now", now)
    own = join()
    own.load_beside([status(ORDERS, phase=Loading(at=NOW)), status(ITEMS, phase=Loading(at=NOW - 200))])
    found = dict(wait(own))

    assert {name: each.at for name, each in loaded(found).items()} == {"shop.orders": NOW, "shop.items": NOW}
    assert tidb.safe_point > NOW - 200


def loaded(events: LoadEvents) -> dict[str, Loaded]:
    """Return the tables that were loaded."""
    return {name: each for name, each in events.items() if isinstance(each, Loaded)}


def moment(status: TableStatus) -> int | None:
    """Return as of when a table is read."""
    assert isinstance(status.phase, (Loading, Healing))
    return status.phase.at


def wait(own: Joining) -> Iterable[tuple[str, Loaded | Failed]]:
    """Return what a thread has loaded, once it has ended."""
    thread = own._thread
    if thread is not None:
        thread.join(10)
    return own.finished().items()
