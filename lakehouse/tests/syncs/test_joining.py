"""Which tables a sync loads, as of which TSO, and how they go on; no TiDB and no Spark is needed."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from lakehouse.tests.syncs.context import A_TIDB, config
from ticdc_lakehouse.errors import UnexplainedChangeError
from ticdc_lakehouse.syncs import joining
from ticdc_lakehouse.syncs.failures import Shared, Stream
from ticdc_lakehouse.syncs.joining import Joining
from ticdc_lakehouse.syncs.status import Loading, Phase, SetAside, TableStatus
from ticdc_lakehouse.syncs.steps import Begins, Failed, Loaded
from ticdc_lakehouse.tidb import TiDBConfig
from ticdc_source.errors import DataLossError, TiCDCSourceError
from ticdc_source.options.topics import TableFilter
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.tso import of_ms

NOW = of_ms(1_767_225_600_000)
ORDERS, ITEMS, EVENTS, OTHER = (
    TableName(*name.split(".")) for name in ("shop.orders", "shop.items", "shop.events", "bank.accounts")
)


class TiDB:
    """A TiDB that has four tables.

    Attributes:
        loads: the TSO and the tables of each load, and whether each heals.
        safe_point: below it nothing can be read.
        fails: the tables that cannot be loaded, and why.
        is_away: whether it does not answer.
    """

    def __init__(self) -> None:
        self.tables = [OTHER, EVENTS, ITEMS, ORDERS]
        self.loads: list[tuple[int, dict[TableName, bool]]] = []
        self.safe_point = NOW - 100
        self.fails: dict[TableName, Exception] = {}
        self.is_away = False

    def now(self) -> int:
        if self.is_away:
            raise TiCDCSourceError("no server answers")
        return NOW

    def tables_at(self, selected: TableFilter, at: int) -> list[TableName]:
        assert at == self.now()
        return [name for name in self.tables if selected.matches(name)]

    def life_time(self, at: int) -> tuple[float, float]:
        self.now()
        if at < self.safe_point:
            raise DataLossError(f"TSO {at} is gone. SET GLOBAL tidb_gc_life_time = '24h'")
        return 600.0, 600.0

    def load(
        self, _spark: Any, _config: Any, _tidb: Any, tables: Mapping[TableName, bool], *, at: int, **_: Any
    ) -> dict[TableName, Loaded | Exception]:
        """Load tables, but not those that fail."""
        self.life_time(at)
        self.loads.append((at, dict(tables)))
        return {name: self.fails.get(name, Loaded(at=at, target=f"lake.{name}", kind="table")) for name in tables}


@pytest.fixture
def tidb(monkeypatch: pytest.MonkeyPatch) -> TiDB:
    """A TiDB in place of a real one."""
    found = TiDB()
    monkeypatch.setattr(joining, "load_tables", found.load)
    for name in ("tables_at", "life_time"):
        monkeypatch.setattr(TiDBConfig, name, getattr(found, name))
    monkeypatch.setattr(TiDBConfig, "now", lambda _: found.now())
    return found


@pytest.fixture
def join(tidb: TiDB) -> Callable[..., Joining]:
    """A function that returns what joins tables of the database `shop`."""
    assert tidb.tables

    def make(**given: Any) -> Joining:
        spark: Any = None
        its = config(**{"tables": ("shop.*",), "tidb": A_TIDB, **given})
        stream = Stream(its)
        shared = Shared(stopping=stream.is_stopped, try_store=lambda: None)
        return Joining(spark, its, stream, shared)

    return make


@contextmanager
def warns(tidb: TiDB, match: str) -> Iterator[None]:
    """Let TiDB be away, which is a warning."""
    tidb.is_away = True
    with pytest.warns(UserWarning, match=match):
        yield
    tidb.is_away = False


def status(table: TableName, phase: Phase | None = None, **given: Any) -> TableStatus:
    values = {"kind": "table", "complete_since": 7, **given, **({} if phase is None else {"phase": phase})}
    return TableStatus(table_name=str(table), target=f"lake.{table}", **values)


def known(*statuses: TableStatus) -> dict[str, TableStatus]:
    return {each.table_name: each for each in statuses}


INCOMPLETE = status(ORDERS, complete_since=None)
NEW = {"shop.events": NOW, "shop.items": NOW, "shop.orders": NOW}
HEALING = Loading(reason="no", kept_from=4)


@pytest.mark.parametrize(
    ("statuses", "given", "begins"),
    [
        ((), {}, NEW),
        ((), {"tidb": None}, {}),
        # A complete table, one that is set aside, and a log are left alone; one that lacks rows is loaded into.
        ((INCOMPLETE, status(ITEMS), status(EVENTS, kind="log", complete_since=None)), {}, {"shop.orders": NOW}),
        ((status(ORDERS, SetAside(reason="no", since="now")), status(ITEMS), status(EVENTS)), {}, {}),
        # One whose changes may be lost is not loaded at each start.
        (
            (status(ORDERS, complete_since=None, loaded_ts=5), INCOMPLETE, status(ITEMS), status(EVENTS)),
            {"source": {"failOnDataLoss": "false"}},
            {"shop.orders": NOW},
        ),
        # A load that was killed goes on at its TSO, one without a TSO gets one.
        (
            (status(ORDERS, Loading(at=NOW - 50)), status(ITEMS, Loading(reason="no", at=NOW - 60)), status(EVENTS)),
            {},
            {"shop.orders": NOW - 50, "shop.items": NOW - 60},
        ),
        (
            (status(ORDERS, Loading(kept_from=3)), status(ITEMS, HEALING), status(EVENTS)),
            {},
            {"shop.orders": NOW, "shop.items": NOW},
        ),
    ],
)
@pytest.mark.filterwarnings("error")
def test_which_tables_are_loaded(
    join: Callable[..., Joining], statuses: tuple[TableStatus, ...], given: dict[str, Any], begins: dict[str, int]
) -> None:
    """All new tables of the patterns as of one TSO, and those whose load has not ended."""
    assert join(**given).begins(known(*statuses)) == {name: Begins(at) for name, at in begins.items()}


def test_a_table_is_the_same_in_other_letters(tidb: TiDB, join: Callable[..., Joining]) -> None:
    """The topic and TiDB may spell a table differently: it joins once, under the name that its status has."""
    tidb.tables = [TableName("Shop", "ORDERS"), TableName("Shop", "Items"), TableName("SHOP", "events")]

    assert {*join().begins(known(INCOMPLETE, status(ITEMS)))} == {"shop.orders", "SHOP.events"}


def test_a_moment_that_is_gone_is_replaced(tidb: TiDB, join: Callable[..., Joining]) -> None:
    """A load takes a new TSO if TiDB has its moment no longer, or if the stream knew no offsets before."""
    statuses = known(status(ORDERS, Loading(at=NOW - 50)), status(ITEMS, Loading(at=NOW - 60)), status(EVENTS))
    tidb.safe_point = NOW - 55

    with pytest.warns(UserWarning, match=r"SET GLOBAL tidb_gc_life_time = '24h'.*starts again at TSO"):
        assert join().begins(statuses) == {"shop.orders": Begins(NOW - 50), "shop.items": Begins(NOW)}
    assert {*join().begins(statuses, is_new=True).values()} == {Begins(NOW)}


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        (ValueError("a type"), Failed("The load failed: a type", "fault", at=NOW - 9)),
        (UnexplainedChangeError("v is text"), Failed("The load failed: v is text", "unexplained", at=NOW - 9)),
    ],
)
def test_a_table_that_cannot_be_loaded_stops_no_other(
    tidb: TiDB, join: Callable[..., Joining], error: Exception, failed: Failed
) -> None:
    """It says why, and the others are loaded, those of each TSO together.

    If the types of a target that follows differ from TiDB's, its changes go on, and the next start loads it.
    """
    tidb.fails = {ITEMS: error}
    healing = status(ORDERS, Loading(reason="no", at=NOW - 9))
    statuses = [status(EVENTS, Loading(at=NOW)), status(ITEMS, Loading(at=NOW - 9)), healing]

    if isinstance(error, UnexplainedChangeError):
        with pytest.warns(UserWarning, match="Changes of shop.items are applied"):
            found = join().load(statuses)
    else:
        found = join().load(statuses)

    assert {name: each for name, each in found.items() if isinstance(each, Failed)} == {"shop.items": failed}
    assert {name: each.at for name, each in found.items()} == {
        "shop.orders": NOW - 9, "shop.items": NOW - 9, "shop.events": NOW,
    }  # fmt: skip
    assert tidb.loads == [(NOW - 9, {ITEMS: False, ORDERS: True}), (NOW, {EVENTS: False})]


def test_a_tidb_that_does_not_answer_sets_no_table_aside(tidb: TiDB, join: Callable[..., Joining]) -> None:
    """If TiDB is away when a load begins, while it runs, or when a new table comes, the tables go on loading."""
    loading, own = status(ORDERS, Loading(at=NOW), complete_since=None), join()
    with warns(tidb, "Cannot load shop.orders yet: no server answers"):
        assert own.load([loading]) == {}
    tidb.fails = {ORDERS: ValueError("closed")}
    tidb.life_time = lambda _: (600.0, 600.0)  # type: ignore[assignment, method-assign]  # it goes away
    with warns(tidb, "Cannot load shop.orders yet"):
        assert own.load([loading]) == {}
    with warns(tidb, "Cannot load shop.orders yet"):
        assert own.has(ORDERS)
    with warns(tidb, "Cannot load shop.orders yet"):
        assert own.moment(["shop.orders"]) is None
    assert (own.has(ORDERS), own.moment(["shop.orders"]), join(tidb=None).has(ORDERS)) == (True, NOW, False)
    tidb.tables = []
    assert not own.has(ORDERS)


def test_tables_that_follow_need_no_tidb(tidb: TiDB, join: Callable[..., Joining]) -> None:
    """If TiDB cannot be read, or is not configured any more, a warning says so, and loaded tables go on."""
    statuses = known(status(ORDERS), status(ITEMS, Loading(at=NOW)))
    with pytest.warns(UserWarning, match=r"no longer has \[tidb\]. .*: shop.items"):
        assert join(tidb=None).begins(statuses) == {}
    with warns(tidb, "Cannot start loads now: no server answers"):
        assert join().begins(statuses) == {}
    with warns(tidb, "Cannot start loads now"):  # for a new stream, the moment of before is too old
        assert join().begins(statuses, is_new=True) == {"shop.items": Begins(None)}
    tidb.is_away = True
    with pytest.raises(TiCDCSourceError, match="no server answers"):
        join().begins({})


@pytest.mark.filterwarnings("ignore:.*The sync tries again", "ignore:.*The load starts again")
def test_a_load_beside_the_stream(tidb: TiDB, join: Callable[..., Joining], monkeypatch: pytest.MonkeyPatch) -> None:
    """While TiDB does not answer the load waits; if the rows of its TSO are gone by then, it takes a new one.

    What a thread has loaded is returned by the next look, once; after a stop a table stays as it was.
    """
    monkeypatch.setattr(joining, "_ASKS_AGAIN_S", 0.0)
    errors = [TiCDCSourceError("no server answers")]

    def now(*_: Any) -> int:
        if errors:
            raise errors.pop()
        return NOW

    monkeypatch.setattr(TiDBConfig, "now", now)
    own = join()
    own.load_beside([status(ORDERS, Loading(at=NOW)), status(ITEMS, Loading(at=NOW - 200))])
    own.join()

    assert {name: each.at for name, each in own.finished().items()} == {"shop.orders": NOW, "shop.items": NOW}
    assert own.finished() == {}
    tidb.fails = {ORDERS: ValueError("interrupted")}
    own._stream.stop()
    assert own.load([status(ORDERS, Loading(at=NOW))]) == {}
