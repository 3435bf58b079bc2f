"""When a table is tried again, which heal after a RENAME, and what a loss does; no TiDB and no Spark is needed."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from lakehouse.tests.syncs.context import A_TIDB, Clock, config
from ticdc_lakehouse.syncs import database_sync, following
from ticdc_lakehouse.syncs.failures import BackOff
from ticdc_lakehouse.syncs.following import RunningSync
from ticdc_lakehouse.syncs.status import LeftOut, Loading, SetAside, TableStatus
from ticdc_lakehouse.syncs.steps import renames
from ticdc_source.errors import DataLossError
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.table_name import TableName


def status(name: str = "s.a", **given: Any) -> TableStatus:
    values = {"target": f"lake.{name}", "kind": "table", "complete_since": 100, "resolved_ts": 500, **given}
    return TableStatus(table_name=name, **values)


def test_a_table_that_fails_again_waits_longer() -> None:
    """The second time comes a minute later, the third two minutes after it; after an hour without one, at once."""
    clock = Clock()
    back_off = BackOff(clock)
    waits = []
    for _ in range(4):
        began = clock.now
        while not back_off.begins("s.a"):
            clock.now += 10
        waits.append(clock.now - began)
        clock.now += 1
    assert waits == [0, 60, 120, 240]

    clock.now += 3600
    assert back_off.begins("s.a")


def test_ddl_may_still_come_for_a_minute() -> None:
    """A table that waits for its DDL is tried a minute later; at the end of a run, at once."""
    clock = Clock()
    back_off = BackOff(clock)
    back_off.postpone("s.a")
    back_off.postpone("s.b")

    clock.now += 59
    assert not back_off.begins("s.a")
    assert back_off.begins("s.b", at_end=True)
    clock.now += 1
    assert back_off.begins("s.a")


@pytest.mark.parametrize(
    ("query", "table", "renamed"),
    [
        ("RENAME TABLE `s`.`a` TO `s`.`b`", "b", ["s.a"]),
        ("ALTER TABLE a RENAME TO c", "c", ["s.a"]),
        ("ALTER TABLE a RENAME COLUMN x TO y", "a", []),
        ("RENAME TABLE a TO", "b", []),
    ],
)
def test_a_name_that_another_table_has_now(query: str, table: str, renamed: list[str]) -> None:
    """The event names the new table, and its text the old one."""
    event = DDLEvent(position=0, index=0, commit_ts=600, table=TableName("s", table), query=query, type="RENAME")
    found = dict(renames({f"s.{table}": [event]}))
    assert [*found] == renamed
    assert all("since then, s.a is another table or none" in each.reason for each in found.values())


def test_a_status_remembers_its_pauses() -> None:
    """A pause has its reason and both commit-ts; kept records that follow a load end the same pause."""
    before = status(phase=Loading(reason="EXCHANGE"))
    loaded = replace(before, resolved_ts=900, complete_since=900).after_pause(before, "EXCHANGE", "now", 55)
    (pause,) = loaded.pauses
    told = (pause.reason, pause.complete_since, pause.from_ts, pause.to_ts, pause.rows)
    assert told == ("EXCHANGE", 100, 500, 900, 55)

    replayed = replace(loaded, resolved_ts=950).after_pause(loaded, "kept", "now")
    assert [(one.from_ts, one.to_ts, one.rows) for one in replayed.pauses] == [(500, 950, 55)]
    assert replace(replayed, resolved_ts=None).after_pause(replayed, "?", "now").pauses == replayed.pauses


def test_many_pauses_become_one() -> None:
    """Of more than fifty pauses the oldest two are one, so that no time of a pause is forgotten."""
    now = status()
    for number in range(60):
        later = replace(now, resolved_ts=1000 + number * 10)
        now = replace(later, resolved_ts=1005 + number * 10).after_pause(later, f"{number}", "now")
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
        self.done.append(f"run {records} {trigger}")
        if self.errors and records == "all":
            raise self.errors.pop(0)

    def heals_loss(self, error: Exception) -> bool:
        return self.heal and isinstance(error, DataLossError)

    def restart_after_loss(self, reason: str, *, skips: bool) -> None:
        self.done.append(f"{'begin' if skips else 'end'}: {reason}")

    def follow(self) -> None:
        own: Any = self
        database_sync._follow(own, config(heal=True, tidb=A_TIDB, trigger="1 second"), own, own._records())

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
    """Tables are read again, at a TSO that is not taken yet; a log is not complete any more; what is left out stays."""
    spark: Any = None
    sync: Any = RunningSync(spark, config(heal=True, tidb=A_TIDB), lambda _: None)
    written: list[Any] = []
    unclaimed: list[str] = []
    sync._status = SimpleNamespace(
        name="s", change=lambda change: written.append(change({})), write=lambda tables: written.append(dict(tables))
    )
    sync._lease = SimpleNamespace(check=lambda **_: None)
    sync._marks = SimpleNamespace(write=lambda _: None)
    monkeypatch.setattr(following, "existing_target", lambda _, name: SimpleNamespace(
        remove_properties=lambda _: unclaimed.append(name)))  # fmt: skip
    log, out = status("s.log", kind="log"), status("s.out", phase=LeftOut())
    aside = status("s.aside", phase=SetAside(reason="why", since="now", kept_from=3))
    sync._tables = {one.table_name: one for one in (status(), log, out, aside)}
    sync.stream.stop()

    sync.restart_after_loss("offsets 5 to 9 are gone", skips=True)

    healing = Loading(reason="offsets 5 to 9 are gone")
    assert sync._tables == {
        "s.a": status(phase=healing),
        "s.aside": status("s.aside", phase=healing),
        "s.log": replace(log, complete_since=None),
        "s.out": out,
    }
    assert unclaimed == ["lake.s.log"]
    assert written == [{"lost_until": sync._context.lost_until, "may_lose": True}, sync._tables]
    assert sync._loaded.is_set()
    assert not sync.stream.is_stopped()
