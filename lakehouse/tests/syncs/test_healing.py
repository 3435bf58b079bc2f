"""What heals, when it heals, and what a status remembers of it; no TiDB and no Spark is needed."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ticdc_lakehouse.errors import UnexplainedChangeError
from ticdc_lakehouse.syncs import database_sync, following
from ticdc_lakehouse.syncs.config import SyncConfig, TableConfig
from ticdc_lakehouse.syncs.failures import Shared
from ticdc_lakehouse.syncs.following import Following
from ticdc_lakehouse.syncs.healing import Healing
from ticdc_lakehouse.syncs.micro_batch import MicroBatch
from ticdc_lakehouse.syncs.quarantine import Quarantine
from ticdc_lakehouse.syncs.redaction import Redaction
from ticdc_lakehouse.syncs.status import TableStatus
from ticdc_lakehouse.syncs.tidb_config import TiDBConfig
from ticdc_lakehouse.targets.target import CommitFacts
from ticdc_source.errors import DataLossError, OptionError, SchemaError
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.table_name import TableName
from ticdc_source.spark.tables import Tables

NOW, BATCH = 900, 7


def config(**given: Any) -> SyncConfig:
    """Return a configuration that heals."""
    values = {"topics": ("t",), "format": "delta", "path": "/l", "checkpoint": "/c", "heal": True, **given}
    values.setdefault("tidb", TiDBConfig(url="jdbc:mysql://h/"))
    return SyncConfig(source={"kafka.bootstrap.servers": "h:1"}, **values)


def status(name: str = "s.a", **given: Any) -> TableStatus:
    """Return the status of a complete table."""
    values = {"target": f"lake.{name}", "kind": "table", "complete_since": 100, "resolved_ts": 500, **given}
    return TableStatus(table_name=name, **values)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def healing(clock: Clock | None = None, **given: Any) -> Healing:
    """Return what heals, with a TiDB that answers."""
    return Healing(config(**given), lambda _: NOW, clock or Clock())


def set_aside(heals: Healing, error: Exception, before: TableStatus, *, replays: bool = False) -> TableStatus:
    """Return what becomes of a table that cannot go on in a micro-batch."""
    batch = MicroBatch(
        changes=Tables(), facts=CommitFacts(500, "query", BATCH), config=heals._config, layout=heals._config.layout,
        statuses={}, quarantine=Quarantine("q", "delta"),
        kept=None if replays else lambda _: pytest.fail("there are no records"),
        shared=Shared(stopping=lambda: False, try_store=lambda: None), redaction=Redaction({}, {}), healing=heals,
    )  # fmt: skip
    return batch._set_aside(before, error).status


def test_healing_needs_a_tidb() -> None:
    """`heal = true` without `[tidb]` is an error, before anything is copied."""
    with pytest.raises(OptionError, match=r"heal = true: tables are read again from TiDB. Write \[tidb\]"):
        config(tidb=None)


def test_a_table_heals_at_once() -> None:
    """It is loading as of now, with its reason, and no record of before is needed any more."""
    healed = set_aside(healing(), SchemaError("EXCHANGE"), status(columns=("id",)))

    assert (healed.state, healed.heals, healed.loaded_ts, healed.reason) == ("loading", True, NOW, "EXCHANGE")
    assert (healed.set_aside_batch, healed.columns) == (None, ())
    assert (healed.complete_since, healed.resolved_ts) == (100, 500)  # what it had, for the pause that follows


def test_a_history_needs_its_records() -> None:
    """A table with `history` heals too, and its log gets what was kept from this micro-batch on."""
    heals = healing(table_configs={"s.a": TableConfig(history=True)})
    assert set_aside(heals, SchemaError("EXCHANGE"), status()).set_aside_batch == BATCH


@pytest.mark.parametrize("given", [{"kind": "log"}, {"table_configs": {"s.a": TableConfig(log=True)}}, {"heal": False}])
def test_a_log_does_not_heal(given: dict[str, Any]) -> None:
    """Nothing tells the rows of a log from those of a load, and without `heal` no table is read again."""
    before = status(kind=given.pop("kind", "table"))
    aside = set_aside(healing(**given), SchemaError("EXCHANGE"), before)
    assert (aside.state, aside.heals, aside.set_aside_batch) == ("set aside", False, BATCH)


def test_a_table_that_fails_again_waits_longer() -> None:
    """The second healing comes a minute later, the third two minutes after it; after an hour without one, at once."""
    clock = Clock()
    heals = healing(clock)
    waits = []
    for _ in range(4):
        began = clock.now
        failed = set_aside(heals, SchemaError("again"), status())
        while failed.state == "set aside":
            assert failed.heals
            assert "Soon the table is read again from TiDB" in str(failed.reason)
            clock.now += 10
            failed = heals.start_waiting({"s.a": failed}).get("s.a", failed)
        waits.append(clock.now - began)
        clock.now += 1
    assert waits == [0, 60, 120, 240]

    clock.now += 3600
    assert set_aside(heals, SchemaError("again"), status()).state == "loading"


def test_a_rename_does_not_wait() -> None:
    """A name that another table has now is read again at once, also after another healing; its rows end before that."""
    heals = healing()
    assert set_aside(heals, SchemaError("EXCHANGE"), status()).state == "loading"
    event = DDLEvent(
        position=0, index=0, commit_ts=300, table=TableName("s", "b"), query="RENAME TABLE a TO b", type=""
    )
    (now,) = heals.start_renamed({"s.b": [event]}, {"s.a": status(resolved_ts=500)}).values()
    assert (now.state, now.resolved_ts) == ("loading", 299)


def test_a_loss_keeps_the_records_of_a_history() -> None:
    """What was kept for a table that was set aside still goes to its log."""
    aside = status(state="set aside", set_aside_batch=3)
    assert healing().restart_after_loss(aside, "gone").set_aside_batch is None
    assert (
        healing(table_configs={"s.a": TableConfig(history=True)}).restart_after_loss(aside, "gone").set_aside_batch == 3
    )


def test_ddl_may_still_explain_a_change() -> None:
    """A table with an unexplained type waits a minute for its DDL, and heals if none comes; at the end, at once."""
    clock = Clock()
    heals = healing(clock)
    waiting = set_aside(heals, UnexplainedChangeError("a type"), status())
    assert (waiting.state, waiting.waits_for_ddl, waiting.heals) == ("set aside", True, True)

    clock.now += 59
    assert heals.start_waiting({"s.a": waiting}) == {}
    assert heals.start_waiting({"s.a": replace(waiting, table_name="s.b")}, at_end=True)
    clock.now += 1
    (now,) = heals.start_waiting({"s.a": waiting}).values()
    assert (now.state, now.waits_for_ddl, now.loaded_ts) == ("loading", False, NOW)


def test_a_replay_is_not_interrupted() -> None:
    """Kept records that cannot be written set the table aside, and it heals after that."""
    aside = set_aside(healing(), SchemaError("EXCHANGE"), status(), replays=True)
    assert (aside.state, aside.heals) == ("set aside", True)


@pytest.mark.parametrize(
    ("query", "table", "healed"),
    [
        ("RENAME TABLE `s`.`a` TO `s`.`b`", "b", {"s.a"}),
        ("ALTER TABLE a RENAME TO c", "c", {"s.a"}),
        ("RENAME TABLE other TO b", "b", set()),
        ("ALTER TABLE a RENAME COLUMN x TO y", "a", set()),
        ("RENAME TABLE a TO", "b", set()),
    ],
)
def test_a_name_that_another_table_has_now(query: str, table: str, healed: set[str]) -> None:
    """The table that had a name before a RENAME heals: the event names the new one."""
    event = DDLEvent(position=0, index=0, commit_ts=600, table=TableName("s", table), query=query, type="RENAME")
    found = healing().start_renamed({f"s.{table}": [event]}, {"s.a": status(), "s.b": status("s.b")})
    assert {*found} == healed
    assert all(one.state == "loading" and "is another table since then" in str(one.reason) for one in found.values())

    known = healing().start_renamed({f"s.{table}": [event]}, {"s.a": status(loaded_ts=600)})
    assert not known


def test_a_status_remembers_its_pauses() -> None:
    """A pause has its reason and both commit-ts; kept records that follow a load end the same pause."""
    before = status(state="loading")
    loaded = replace(before, state="following", resolved_ts=900, complete_since=900).after_pause(before, "EXCHANGE", 55)
    (pause,) = loaded.pauses
    told = (pause.reason, pause.complete_since, pause.from_ts, pause.to_ts, pause.rows)
    assert told == ("EXCHANGE", 100, 500, 900, 55)

    replayed = replace(loaded, resolved_ts=950).after_pause(loaded, "kept")
    assert [(one.from_ts, one.to_ts, one.rows) for one in replayed.pauses] == [(500, 950, 55)]
    assert replace(replayed, resolved_ts=None).after_pause(replayed, "?").pauses == replayed.pauses


def test_many_pauses_become_one() -> None:
    """Of more than fifty pauses the oldest two are one, so that no time of a pause is forgotten."""
    now = status()
    for number in range(60):
        later = replace(now, resolved_ts=1000 + number * 10)
        now = replace(later, resolved_ts=1005 + number * 10).after_pause(later, f"{number}")
    assert len(now.pauses) == 50
    assert (now.pauses[0].from_ts, now.pauses[0].to_ts, now.pauses[0].reason) == (1000, 1105, "10")
    assert now.pauses[-1].from_ts == 1590


class Stream:
    """A stream that fails so many times, and notes what a sync does about it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *errors: Exception, heal: bool = True) -> None:
        self.errors, self.heal = [*errors], heal
        self.done: list[str] = []
        monkeypatch.setattr(database_sync, "_records", lambda *_, **more: ",".join(more) or "all")
        monkeypatch.setattr(database_sync, "_run", self.run)

    def run(self, _running: object, records: str, trigger: str | None) -> None:
        """Run a query."""
        self.done.append(f"run {records} {trigger}")
        if self.errors and records == "all":
            raise self.errors.pop(0)

    def heals_loss(self, error: Exception) -> bool:
        """Return whether tables heal after it."""
        return self.heal and isinstance(error, DataLossError)

    def begin_skip(self, reason: str) -> None:
        """Let tables be read again."""
        self.done.append(f"begin: {reason}")

    def end_skip(self, reason: str) -> None:
        """Let tables be read again."""
        self.done.append(f"end: {reason}")

    def follow(self) -> None:
        """Follow the stream, as a sync does."""
        own: Any = self
        database_sync._follow(own, config(trigger="1 second"), own, own._records())

    def _records(self) -> str:
        return "all"


@pytest.mark.filterwarnings("ignore:offsets 5 to 9 are gone")
def test_a_stream_skips_what_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """If records are lost, what is left is read to its end, and then all tables: what is lost by then, they have."""
    stream = Stream(monkeypatch, DataLossError("offsets 5 to 9 are gone"))
    stream.follow()
    assert stream.done == [
        "run all 1 second",
        "begin: offsets 5 to 9 are gone",
        "run failOnDataLoss None",
        "end: offsets 5 to 9 are gone",
        "run all 1 second",
    ]


@pytest.mark.filterwarnings("ignore:gone")
def test_a_stream_that_loses_again_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that are lost twice within a minute are an error, and so is a loss without `heal`, or another error."""
    with pytest.raises(DataLossError, match="gone again"):
        Stream(monkeypatch, DataLossError("gone"), DataLossError("gone again")).follow()
    for error in (DataLossError("gone"), ValueError("another")):
        with pytest.raises(type(error)):
            Stream(monkeypatch, error, heal=isinstance(error, ValueError)).follow()


def test_after_a_loss_every_table_heals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are loading, without a TSO yet; a log is not complete any more; what is left out stays so."""
    spark: Any = None
    sync: Any = Following(spark, config(), lambda _: None)
    written: list[Any] = []
    sync._status = SimpleNamespace(name="s", lose=written.append, write=lambda tables: written.append(dict(tables)))
    sync._lease = SimpleNamespace(check=lambda **_: None)
    monkeypatch.setattr(following, "unclaimed", lambda _spark, one: replace(one, complete_since=None))
    log, out = status("s.log", kind="log"), status("s.out", state="left out")
    aside = status("s.aside", state="set aside", set_aside_batch=3)
    sync._tables = {one.table_name: one for one in (status(), log, out, aside)}
    sync.stop()

    sync.begin_skip("offsets 5 to 9 are gone")

    assert {name: (one.state, one.heals, one.loaded_ts) for name, one in sync._tables.items()} == {
        "s.a": ("loading", True, None), "s.aside": ("loading", True, None),
        "s.log": ("following", False, None), "s.out": ("left out", False, None),
    }  # fmt: skip
    assert (sync._tables["s.log"].complete_since, sync._tables["s.aside"].set_aside_batch) == (None, None)
    assert written[0] == sync._lost_until
    assert written[1] == sync._tables
    assert sync._loaded.is_set()
    assert not sync._is_stopped()
