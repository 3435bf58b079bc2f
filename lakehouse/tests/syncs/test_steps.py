"""What may happen to a table, and what becomes of it: a table of phases and events, without Spark and TiDB."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from lakehouse.tests.syncs.context import A_TIDB, config
from ticdc_lakehouse.syncs.config import TableConfig
from ticdc_lakehouse.syncs.status import Following, LeftOut, Loading, Phase, SetAside, TableStatus, _status_of
from ticdc_lakehouse.syncs.steps import (
    BadRecords,
    Begins,
    Changed,
    Effect,
    Event,
    Failed,
    Loaded,
    RecordsLost,
    Renamed,
    Rules,
    Signal,
    TargetLacks,
    step,
)

NOW, AT, BATCH = "now", 900, 7
KEEP, WRITE, UNCLAIM, WRITE_MISSED, FORGET = Effect
NOTHING, TIDB = Rules(), Rules(loads=True)
HEALS, HISTORY = Rules(loads=True, heals=True), Rules(loads=True, heals=True, has_history=True)
LOSES = Rules(loads=True, may_lose=True)

FOLLOWING, SOON = Following(), Following(lacks="bad", complete_before=100)
LOADING, KEEPING = Loading(at=AT), Loading(at=AT, kept_from=3)
HEALING, HEALING_KEPT = Loading(reason="EXCHANGE", at=AT), Loading(reason="EXCHANGE", at=AT, kept_from=3)


def aside(ends_by: Any = "resume", kept_from: int | None = 3, reason: str = "no", since: str = "then") -> SetAside:
    return SetAside(reason=reason, since=since, ends_by=ends_by, kept_from=kept_from)


def status(phase: Phase, **given: Any) -> TableStatus:
    """Return the status of a table that was complete when it last followed."""
    values = {"kind": "table", "complete_since": 100, "resolved_ts": 500, "columns": ("id",), **given}
    return TableStatus(table_name="s.a", target="lake.s.a", phase=phase, **values)


EVENTS: list[Event] = [
    *Signal, Changed(BATCH), Changed(BATCH, needs_load=True), Begins(AT), Failed("no"), Failed("no", "unexplained"),
    BadRecords("bad", 1), Renamed("r", AT + 1), RecordsLost("lost"), TargetLacks("old"),
    Loaded(at=AT, target="t", kind="table"),
]  # fmt: skip
PHASES: list[Phase] = [
    *(FOLLOWING, SOON, LOADING, KEEPING, HEALING, HEALING_KEPT, LeftOut()),
    *(aside(ends_by) for ends_by in ("resume", "retry", "ddl", "heal")),
    replace(aside("ddl"), lacks="bad", complete_before=100),
]


@pytest.mark.parametrize(("phase", "event", "rules", "then", "effects"), [
    # A micro-batch has changes: they are written, or their records kept, from the first one on.
    (FOLLOWING, Changed(BATCH), NOTHING, FOLLOWING, (WRITE,)),
    (SOON, Changed(BATCH), HEALS, SOON, (WRITE,)),
    (FOLLOWING, Changed(BATCH, needs_load=True), TIDB, Loading(kept_from=BATCH), (KEEP,)),
    (LOADING, Changed(BATCH), TIDB, Loading(at=AT, kept_from=BATCH), (KEEP,)),
    (KEEPING, Changed(BATCH), TIDB, KEEPING, (KEEP,)),
    (HEALING, Changed(BATCH), HEALS, Loading(reason="EXCHANGE", at=AT, kept_from=BATCH), (KEEP,)),
    (aside(kept_from=None), Changed(BATCH), NOTHING, aside(kept_from=BATCH), (KEEP,)),
    (aside(), Changed(BATCH), NOTHING, aside(), (KEEP,)),
    # They could not be written: time, DDL, TiDB or a person ends it, and every record of it is kept.
    (FOLLOWING, Failed("x", "fault", BATCH), HEALS, aside("retry", BATCH, "x", NOW), (KEEP,)),
    (FOLLOWING, Failed("x", "unexplained", BATCH), HEALS, aside("ddl", BATCH, "x", NOW), (KEEP,)),
    (FOLLOWING, Failed("x", "verdict", BATCH), HEALS, aside("heal", BATCH, "x", NOW), (KEEP,)),
    (FOLLOWING, Failed("x", "log", BATCH), HEALS, aside("resume", BATCH, "x", NOW), (KEEP,)),
    (FOLLOWING, Failed("x", "verdict", BATCH), TIDB, aside("resume", BATCH, "x", NOW), (KEEP,)),
    (aside("retry"), Failed("x"), NOTHING, aside("resume", reason="x"), ()),
    (aside(), Failed("x", "fault"), NOTHING, aside("retry", reason="x"), ()),
    # Bad records are in quarantine: TiDB has their rows.
    (FOLLOWING, BadRecords("bad", 100), HEALS, SOON, ()),
    (SOON, BadRecords("more", None), HEALS, Following(lacks="more", complete_before=100), ()),
    (FOLLOWING, BadRecords("bad", 100), TIDB, FOLLOWING, ()),
    # Time, DDL and people.
    (SOON, Signal.DUE, HEALS, Loading(reason="bad"), ()),
    (aside("heal"), Signal.DUE, HEALS, Loading(reason="no"), ()),
    (aside("ddl"), Signal.DUE, HISTORY, Loading(reason="no", kept_from=3), ()),
    (aside("ddl"), Signal.DUE, TIDB, aside("ddl"), ()),
    (aside("retry"), Signal.DUE, HEALS, aside("retry"), (WRITE_MISSED,)),
    (aside("ddl"), Signal.EXPLAINED, HEALS, aside("ddl"), (WRITE_MISSED,)),
    (aside("resume"), Signal.EXPLAINED, HEALS, aside("resume"), ()),
    (aside(), Signal.RESUMED, TIDB, aside(), (WRITE_MISSED,)),
    (aside(), Signal.RESUMED, HEALS, Loading(reason="no"), ()),
    (aside(), Signal.RESUMED, HISTORY, Loading(reason="no", kept_from=3), ()),
    # What only TiDB knows.
    (FOLLOWING, Renamed("r", 600), HEALS, Loading(reason="r"), ()),
    (FOLLOWING, Renamed("r", 600), TIDB, FOLLOWING, ()),
    (LOADING, Renamed("r", AT), HEALS, LOADING, ()),
    (LOADING, Renamed("r", AT + 1), HEALS, Loading(reason="r"), ()),
    (HEALING_KEPT, Renamed("r", None), HISTORY, Loading(reason="r", kept_from=3), ()),
    *((aside(ends_by), Renamed("r", 600), HEALS, Loading(reason="r"), ()) for ends_by in ("retry", "ddl")),
    *((aside(ends_by), Renamed("r", 600), HEALS, aside(ends_by), ()) for ends_by in ("resume", "heal")),
    (aside("retry"), RecordsLost("lost"), HEALS, Loading(reason="lost"), ()),
    (KEEPING, RecordsLost("lost"), HISTORY, Loading(reason="lost", kept_from=3), ()),
    (FOLLOWING, RecordsLost("lost"), TIDB, FOLLOWING, (UNCLAIM,)),
    # A start.
    (FOLLOWING, Signal.LOSS_POSSIBLE, LOSES, FOLLOWING, (UNCLAIM,)),
    (aside(), Signal.LEFT_OUT, TIDB, LeftOut(), (UNCLAIM,)),
    (FOLLOWING, TargetLacks("old"), HEALS, aside(kept_from=None, reason="old", since=NOW), ()),
    (aside("retry"), TargetLacks("old"), HEALS, aside(reason="old"), ()),
    (FOLLOWING, Begins(AT), TIDB, LOADING, ()),
    (SOON, Begins(AT), HEALS, Loading(reason="bad", at=AT), ()),
    (Loading(reason="EXCHANGE", kept_from=3), Begins(AT), HEALS, HEALING_KEPT, ()),
    # Loads.
    (LOADING, Loaded(at=AT, target="t", kind="table"), TIDB, FOLLOWING, (FORGET,)),
    (KEEPING, Loaded(at=AT, target="t", kind="table"), TIDB, aside(reason="", since=NOW), (WRITE_MISSED,)),
    (HEALING, Loaded(at=AT, target="t", kind="table"), LOSES, FOLLOWING, (UNCLAIM, FORGET)),
    (Loading(at=AT + 1), Loaded(at=AT, target="t", kind="table"), TIDB, Loading(at=AT + 1), ()),
    (Loading(reason="r"), Loaded(at=AT, target="t", kind="table"), HEALS, Loading(reason="r"), ()),
    (Loading(reason="r"), Failed("x", at=AT), HEALS, Loading(reason="r"), ()),
    (LOADING, RecordsLost("lost"), TIDB, Loading(), ()),
    (KEEPING, Failed("x", "fault"), HEALS, aside("retry", reason="x", since=NOW), ()),
    (KEEPING, Failed("x", "verdict"), HEALS, aside("resume", reason="x", since=NOW), ()),
    (KEEPING, Failed("x", "unexplained"), TIDB, aside(reason="", since=NOW), (WRITE_MISSED,)),
    (LOADING, Failed("x", "unexplained"), TIDB, FOLLOWING, ()),
    (HEALING, Failed("x", "unexplained"), HEALS, aside("heal", None, "x", NOW), (UNCLAIM,)),
    (HEALING_KEPT, Failed("x", "fault"), TIDB, aside("retry", reason="x", since=NOW), (UNCLAIM,)),
])  # fmt: skip
def test_what_becomes_of_a_table(
    phase: Phase, event: Event, rules: Rules, then: Phase, effects: tuple[Effect, ...]
) -> None:
    """Each event gives a table its next phase, and says what is to be done."""
    now, todo = step(status(phase), event, rules, NOW)

    assert (now.phase, todo) == (then, effects)


def test_any_event_in_any_phase_keeps_the_promises() -> None:
    """No record is forgotten that is not in the target, no table says that it is whole if it is not."""
    for phase, event, rules, whole in product(PHASES, EVENTS, (NOTHING, TIDB, HEALS, HISTORY, LOSES), (100, None)):
        before = status(phase, complete_since=whole)
        after, effects = step(before, event, rules, NOW)

        if phase == LeftOut() and event is not Signal.SELECTED:
            assert (after, effects) == (before, ())
        if WRITE in effects:
            assert isinstance(after.phase, Following)
        if before.kept_from is not None and after.kept_from != before.kept_from:
            may_forget = after.state == "healing" and not rules.has_history
            assert may_forget or event is Signal.LEFT_OUT, (phase, event, after)
        if FORGET in effects:
            assert isinstance(event, Loaded)
            assert after.kept_from is None
        if WRITE_MISSED in effects:
            assert isinstance(after.phase, SetAside)
        assert (UNCLAIM in effects) <= (after.complete_since is None)
        if before.complete_since is not None and after.complete_since is None:
            assert UNCLAIM in effects, (phase, event)
        if before.lacks[0] is not None and rules.heals and event is not Signal.LEFT_OUT:
            assert after.state == "healing" or after.lacks[0] is not None, (phase, event, after)
        if isinstance(event, Renamed) and rules.heals and phase != LeftOut():
            waits = isinstance(after.phase, SetAside) and after.phase.ends_by in ("resume", "heal")
            assert waits or after.phase == Loading(reason="r", kept_from=after.kept_from), (phase, after)


def test_a_log_and_an_incomplete_table_go_on_in_their_own_way() -> None:
    """A load makes a table complete that lacks rows; a log gets what was kept, because a load would repeat rows."""
    for event, phase in ((Signal.DUE, aside("retry")), (Signal.RESUMED, aside())):
        assert step(status(phase, complete_since=None), event, TIDB, NOW)[0].phase == Loading(kept_from=3)
        for given in ({"kind": "log"}, {"complete_since": 5}):
            lacking = status(phase, **{"complete_since": None, **given})
            assert step(lacking, event, TIDB, NOW) == (lacking, (WRITE_MISSED,))
        lacking = status(phase, complete_since=None)
        assert step(lacking, event, NOTHING, NOW) == (lacking, (WRITE_MISSED,))


def test_a_load_makes_a_table_complete_and_ends_its_pause() -> None:
    """Every row is of its TSO, so what was bad is not any more, and changes up to it are not needed."""
    before = status(HEALING, bad_records=2, bad_until=600, target_batch=5, last_error="no")
    now, _ = step(before, Loaded(at=AT, target="t", kind="table", rows=55), HEALS, NOW)

    assert (now.target, now.complete_since, now.loaded_ts, now.resolved_ts) == ("t", AT, AT, AT)
    assert (now.bad_records, now.bad_until, now.target_batch, now.reason) == (0, None, None, None)
    (pause,) = now.pauses
    assert (pause.reason, pause.from_ts, pause.to_ts, pause.rows, pause.ended) == ("EXCHANGE", 500, AT, 55, NOW)

    gone, _ = step(status(LOADING, kind=None), Loaded(at=AT, target="t", kind="table", is_gone=True), TIDB, NOW)
    assert gone.kind is None
    failed, _ = step(status(HEALING, loaded_ts=50), Failed("x"), HEALS, NOW)
    assert (failed.loaded_ts, failed.complete_since) == (None, None)


def test_a_table_heals_with_what_its_pause_needs() -> None:
    """What it had is known until the load ends: since when it was complete, and up to when; its columns may change."""
    healing, _ = step(status(SOON, complete_since=None), Signal.DUE, HEALS, NOW)
    assert (healing.complete_since, healing.resolved_ts, healing.columns) == (100, 500, ())

    renamed, _ = step(status(FOLLOWING), Renamed("r", 300), HEALS, NOW)
    assert renamed.resolved_ts == 299  # its rows are right up to the RENAME
    for given in ({"loaded_ts": 600}, {"kind": None}):
        assert step(status(FOLLOWING, **given), Renamed("r", 600), HEALS, NOW)[0].phase == FOLLOWING
    # It has no rows, and its kept records are of two tables.
    assert step(status(aside("retry"), kind=None), Renamed("r", 600), HEALS, NOW)[0].phase == Loading(reason="r")


@pytest.mark.parametrize("why", ["fault", "unexplained"])
def test_a_table_that_is_set_aside_remembers_what_it_lacks(why: Any) -> None:
    """It goes on with what was kept, and is read again soon: its bad records are still not in the target."""
    bad = status(SOON, complete_since=None)
    now, _ = step(bad, Failed("x", why, BATCH), HEALS, NOW)

    assert now.lacks == ("bad", 100)
    assert step(now, Failed("y", why), HEALS, NOW)[0].lacks == ("bad", 100)
    assert step(now, TargetLacks("old"), HEALS, NOW)[0].lacks == ("bad", 100)
    for event in (RecordsLost("lost"), Renamed("r", 600)):
        assert step(now, event, HEALS, NOW)[0].complete_since == 100
    assert _status_of(now.as_row()) == now
    assert replace(bad, bad_records=2, bad_until=5).without_bad_records() == replace(bad, phase=FOLLOWING)


def test_a_table_that_was_left_out_waits_for_a_person() -> None:
    """Nobody knows what it has missed; nothing is kept of it yet."""
    now, effects = step(status(LeftOut()), Signal.SELECTED, HEALS, NOW)
    assert (now.state, now.set_aside_since, now.kept_from, effects) == ("set aside", NOW, None, ())
    assert "has left it out" in str(now.reason)
    assert step(now, Signal.DUE, HEALS, NOW) == (now, ())


@pytest.mark.parametrize("phase", PHASES)
def test_a_row_of_the_status_table_has_all_of_a_status(phase: Phase) -> None:
    """What is written is what is read, and an older row without the columns of a phase is of a table that follows."""
    whole = status(phase, last_error="no", loaded_ts=50, target_content="c", bad_until=9, maintained_ms=5)

    assert _status_of(whole.as_row()) == whole
    row = {"table_name": "s.a", "target": "t", "kind": "table", "state": "following", "heals": False, "columns": None}
    assert _status_of(row) == TableStatus(table_name="s.a", target="t", kind="table")
    row = {"table_name": "s.a", "target": "t", "state": "loading", "reason": "why it was set aside the last time"}
    assert _status_of(row) == TableStatus(table_name="s.a", target="t", phase=Loading())


def test_the_rules_of_a_table() -> None:
    """A log is never read again, nor is a table whose name is refused; settings tell a log before its first rows."""
    tables = {"s.log": TableConfig(log=True), "s.a": TableConfig(history=True)}
    heals = config(tidb=A_TIDB, heal=True, table_configs=tables)
    table = status(FOLLOWING)

    assert Rules.of(heals, table) == HISTORY
    assert not Rules.of(heals, replace(table, kind="log")).heals
    assert not Rules.of(heals, replace(table, table_name="s.log", kind=None)).heals
    assert Rules.of(heals, replace(table, target="")) == Rules(has_history=True)
