"""What may happen to a table, and what becomes of it: pure functions, without Spark, TiDB or a clock.

Only `step` changes the phase of a table. It returns what else must be done as effects: `MicroBatch` keeps and writes
records, and `RunningSync` does the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Literal, TypeAlias

from ticdc_lakehouse.syncs.config import SyncConfig
from ticdc_lakehouse.syncs.status import EndsBy, Following, Kind, LeftOut, Loading, Phase, SetAside, TableStatus
from ticdc_source.developer_api import DDLEvent, ddl_kind, is_too_long, parse_table, renamed_tables

_LEFT_OUT = (
    "`tables` or `skip` has left it out, so its target lacks the changes of that time. Resume it: with [tidb], it is "
    "loaded again, unless the target is a log; otherwise it continues without those changes"
)
_READ = "its rows were read from TiDB"
# Kinds of errors: a fault may end by itself, later DDL may explain an unexplained change, and a log cannot be read
# again from TiDB. Any other error is a verdict, which stays the same.
Why = Literal["fault", "unexplained", "log", "verdict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the configuration says about a table."""

    heals: bool = False  # it may be read again from TiDB; never a log, whose rows would be mixed with those of the load
    loads: bool = False  # there is a TiDB
    has_history: bool = False  # its log needs kept records that a healing table does not
    may_lose: bool = False  # changes may be lost silently, so it is never complete

    @staticmethod
    def of(config: SyncConfig, status: TableStatus) -> Rules:
        """Return the rules for a table. Its settings count too, as its kind is unknown before its first rows.

        A table whose name is refused has no target, so it is never read.
        """
        settings = config.of_table(parse_table(status.table_name))
        has_target = bool(status.target)
        return Rules(
            heals=config.heal and has_target and status.kind != "log" and not settings.log,
            loads=config.tidb is not None and has_target,
            has_history=settings.history,
            may_lose=config.may_lose_changes,
        )


class Effect(Enum):
    """What must be done about a table, in this order."""

    KEEP = auto()  # keep the records of this micro-batch
    WRITE = auto()  # write the changes of this micro-batch
    UNCLAIM = auto()  # remove from the target that it is complete
    WRITE_MISSED = auto()  # write the kept records, and forget them
    FORGET = auto()  # forget the kept records


class Signal(Enum):
    """Events without data."""

    DUE = auto()  # it has waited long enough
    EXPLAINED = auto()  # DDL for it has come
    RESUMED = auto()  # somebody resumes it
    LOSS_POSSIBLE = auto()  # changes may be lost silently from now on
    LEFT_OUT = auto()  # `tables` or `skip` leaves it out from now on
    SELECTED = auto()  # `tables` and `skip` select it again


def disclaimer(config: SyncConfig, status: TableStatus) -> Signal | None:
    """Return why a table is not complete any more at a start of the sync; None if nothing has changed.

    A table that `tables` or `skip` leaves out misses the changes that are read meanwhile, as the stream has the same
    offsets for all tables. If it is selected again, it is set aside, because a person has to decide what to do about
    them. With `failOnDataLoss=false`, the stream skips records that Kafka has removed, of whatever table.
    """
    if not config.selects(parse_table(status.table_name)):
        return Signal.LEFT_OUT
    if isinstance(status.phase, LeftOut):
        return Signal.SELECTED
    return Signal.LOSS_POSSIBLE if config.may_lose_changes else None


@dataclass(frozen=True, slots=True)
class Changed:
    """A micro-batch has changes of the table; its target may lack rows that TiDB has (`needs_load`)."""

    batch: int
    needs_load: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """Its changes, its kept records or the rows of its load, read as of the TSO `at`, could not be written."""

    reason: str
    why: Why = "verdict"
    batch: int | None = None
    at: int | None = None


@dataclass(frozen=True, slots=True)
class BadRecords:
    """Some changes of the table are in quarantine, and the others are written."""

    reason: str
    complete_before: int | None


@dataclass(frozen=True, slots=True)
class Renamed:
    """Since a RENAME, its name is that of another table or of none, so kept records and older loads are not its own."""

    reason: str
    commit_ts: int | None


@dataclass(frozen=True, slots=True)
class RecordsLost:
    """Records are lost that the stream has not read, perhaps some of this table."""

    reason: str


@dataclass(frozen=True, slots=True)
class TargetLacks:
    """Its target lacks changes that the stream does not read again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Begins:
    """Its rows are to be read as of a TSO; None if TiDB has not given one yet."""

    at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Its target has every row as of a TSO."""

    at: int
    target: str
    kind: Kind
    rows: int = 0
    create_sql: str | None = None
    is_gone: bool = False  # TiDB has no such table


Event: TypeAlias = (
    Signal | Changed | Failed | BadRecords | Renamed | RecordsLost | TargetLacks | Begins | Loaded
)  # fmt: skip
Step: TypeAlias = tuple[TableStatus, tuple[Effect, ...]]


def step(status: TableStatus, event: Event, rules: Rules, now: str) -> Step:
    """Return the status of a table after an event, and the effects; unchanged if the event does not concern it."""
    match event, status.phase:
        case Signal.SELECTED, LeftOut():
            return _set_aside(status, _LEFT_OUT, now), ()
        case _, LeftOut():
            return status, ()
        case Changed(), _:
            return _changed(status, event)
        case Failed(), SetAside() as aside:  # it stays set aside, and all its records are kept
            still = replace(aside, reason=event.reason, ends_by=_ends_by(event.why, rules))
            return replace(status, phase=still), ()
        case Failed(), Following():
            return _set_aside(status, event.reason, now, _ends_by(event.why, rules), event.batch), (Effect.KEEP,)
        case Failed(), Loading() as load if event.at is None or _is_of(load, event.at):
            return _load_failed(status, load, event, rules, now)
        case BadRecords(), Following() as follows if rules.heals:
            before = event.complete_before if follows.complete_before is None else follows.complete_before
            return replace(status, phase=Following(lacks=event.reason, complete_before=before)), ()
        case Signal.DUE, Following(lacks=str() as reason) if rules.heals:
            return _healing(status, reason, rules)
        case Signal.DUE, SetAside(ends_by="heal" | "ddl") as aside if rules.heals:
            return _healing(status, aside.reason, rules)
        case Signal.DUE, SetAside(ends_by="retry") as aside:
            return _again(status, aside, rules)
        case Signal.EXPLAINED, SetAside(ends_by="ddl"):
            return status, (Effect.WRITE_MISSED,)
        case Signal.RESUMED, SetAside() as aside:
            return _healing(status, aside.reason, rules) if rules.heals else _again(status, aside, rules)
        case Renamed(), phase if rules.heals:
            return _renamed(status, phase, event, rules)
        case RecordsLost(), _ if rules.heals:
            return _healing(status, event.reason, rules)
        case RecordsLost(), Loading() as load:  # its TSO must be after the loss; a log with earlier rows is refused
            return replace(status, phase=replace(load, at=None)), ()
        case ((RecordsLost() | Signal.LOSS_POSSIBLE), _):
            return _unclaimed(status)
        case Signal.LEFT_OUT, _:
            out, effects = _unclaimed(status)
            return replace(out, phase=LeftOut(), loaded_ts=None), effects
        case TargetLacks(), phase:
            since = phase.since if isinstance(phase, SetAside) else now
            return _set_aside(status, event.reason, since, "resume", status.kept_from), ()
        case Begins(), Loading() as load:
            return replace(status, phase=replace(load, at=event.at)), ()
        case Begins(), Following(lacks=str() as reason) if rules.heals:
            healing, _ = _healing(status, reason, rules)
            return replace(healing, phase=Loading(reason=reason, at=event.at)), ()
        case Begins(), Following():
            return replace(status, phase=Loading(at=event.at)), ()
        case Loaded(), Loading() as load if _is_of(load, event.at):
            return _loaded(status, load, event, rules, now)
    return status, ()


def _changed(status: TableStatus, event: Changed) -> Step:
    phase = status.phase
    if isinstance(phase, (Loading, SetAside)):
        kept = replace(phase, kept_from=event.batch if phase.kept_from is None else phase.kept_from)
        return replace(status, phase=kept), (Effect.KEEP,)
    if event.needs_load and status.lacks[0] is None:  # otherwise it will be read again anyway
        return replace(status, phase=Loading(kept_from=event.batch)), (Effect.KEEP,)
    return status, (Effect.WRITE,)


def _ends_by(why: Why, rules: Rules) -> EndsBy:
    ends: dict[Why, EndsBy] = {"fault": "retry", "unexplained": "ddl", "log": "resume"}
    return ends.get(why, "heal" if rules.heals else "resume")


def _is_of(load: Loading, at: int) -> bool:
    """Whether rows as of a TSO are those of this load: an older load may end after a newer one has begun."""
    return load.at is not None and at >= load.at


def _set_aside(
    status: TableStatus, reason: str, now: str, ends_by: EndsBy = "resume", kept_from: int | None = None
) -> TableStatus:
    """Set a table aside; what it lacked before is kept."""
    lacks, before = status.lacks
    aside = SetAside(reason=reason, since=now, ends_by=ends_by, kept_from=kept_from)
    return replace(status, phase=replace(aside, lacks=lacks, complete_before=before))


def _again(status: TableStatus, aside: SetAside, rules: Rules) -> Step:
    """Load a table that is not complete; write what it has missed if it is complete, is a log, or there is no TiDB."""
    if rules.loads and status.complete_since is None and status.kind != "log":
        return replace(status, phase=Loading(kept_from=aside.kept_from)), ()
    return status, (Effect.WRITE_MISSED,)


def _healing(status: TableStatus, reason: str, rules: Rules) -> Step:
    lacks, before = status.lacks
    complete_since = status.complete_since if lacks is None else before
    phase = Loading(reason=reason, kept_from=status.kept_from if rules.has_history else None)
    return replace(status, phase=phase, complete_since=complete_since, columns=()), ()


def _renamed(status: TableStatus, phase: Phase, event: Renamed, rules: Rules) -> Step:
    """Let a table heal, unless its rows were or will be read after the RENAME.

    A table that waits for a person or for TiDB is read again anyway. One that follows and has no rows yet begins with
    the changes of the table that has its name now.
    """
    has_rows = status.kind is not None or not isinstance(phase, Following)
    waits = isinstance(phase, SetAside) and phase.ends_by in ("resume", "heal")
    read_at = max(status.loaded_ts or 0, (phase.at or 0) if isinstance(phase, Loading) else 0)
    if waits or not has_rows or (event.commit_ts is not None and event.commit_ts <= read_at):
        return status, ()
    if event.commit_ts is not None and status.resolved_ts is not None:  # its rows are right up to the RENAME
        status = replace(status, resolved_ts=min(status.resolved_ts, event.commit_ts - 1))
    return _healing(status, event.reason, rules)


def _unclaimed(status: TableStatus) -> Step:
    if status.complete_since is None:
        return status, ()
    return replace(status, complete_since=None), (Effect.UNCLAIM,)


def _loaded(status: TableStatus, phase: Loading, event: Loaded, rules: Rules, now: str) -> Step:
    loaded = replace(
        status,
        target=event.target,
        kind=None if event.is_gone and status.kind is None else event.kind,
        phase=Following(),
        last_error=None,
        bad_records=0,
        bad_until=None,
        target_batch=None,
        complete_since=event.at,
        loaded_ts=event.at,
        create_sql=event.create_sql,
        resolved_ts=event.at,
    )
    loaded = loaded.after_pause(status, phase.reason or _READ, now, event.rows)
    effects: tuple[Effect, ...] = ()
    if rules.may_lose:
        loaded, effects = _unclaimed(loaded)
    return _goes_on(loaded, phase, now, effects)


def _load_failed(status: TableStatus, phase: Loading, event: Failed, rules: Rules, now: str) -> Step:
    if event.why == "unexplained" and status.kind is not None and phase.reason is None:
        # DDL that the target does not have yet comes with the changes; the next start loads the table.
        return _goes_on(replace(status, phase=Following(), loaded_ts=None), phase, now)
    effects: tuple[Effect, ...] = ()
    ends_by = _ends_by("fault" if event.why == "fault" else "verdict", replace(rules, heals=False))
    if phase.reason is not None:  # the copy is not complete any more, as earlier records are not kept
        status, effects = _unclaimed(status)
        ends_by = "heal" if rules.heals else ends_by
    return replace(_set_aside(status, event.reason, now, ends_by, phase.kept_from), loaded_ts=None), effects


def _goes_on(status: TableStatus, phase: Loading, now: str, effects: tuple[Effect, ...] = ()) -> Step:
    """Let a table go on after its load: it is set aside until its kept records are written."""
    if phase.kept_from is not None:
        aside = SetAside(reason="", since=now, kept_from=phase.kept_from)
        return replace(status, phase=aside), (*effects, Effect.WRITE_MISSED)
    return status, (*effects, Effect.FORGET) if status.pauses else effects


def renames(ddl: Mapping[str, Sequence[DDLEvent]]) -> Iterator[tuple[str, Renamed]]:
    """Yield the old names of renamed tables; only TiDB knows which table has such a name now.

    A RENAME TABLE is among the events of the new name.
    """
    for event in (event for events in ddl.values() for event in events):
        if ddl_kind(event) != "rename_table" or is_too_long(event):
            continue
        try:
            old_names = renamed_tables(event)
        except ValueError:  # the merge of the new name fails for the same text
            continue
        for old in old_names:
            told = f"{' '.join(event.query.split())[:200]}: since then, {old} is another table or none"
            yield str(old), Renamed(told, event.commit_ts)
