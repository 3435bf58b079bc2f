"""DDL events of a table → what they do to the rows of its target (`DDLState`), and what nobody but TiDB knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import Enum
from typing import NoReturn

from ticdc_source.errors import OptionError, SchemaError, warn
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.ddl_kinds import ddl_kind, is_too_long
from ticdc_source.schema.mysql_ddl.old_rows import (
    Added,
    Renamed,
    Retyped,
    changes_primary_key,
    name_before,
    old_row_changes,
)
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import ColumnType, parse_type
from ticdc_source.spark.schema import type_of
from ticdc_source.targets.repeats import same_table
from ticdc_source.targets.target_ddl import HANDLED_TS, Assignment, DDLState
from ticdc_source.targets.widening import common_type, holds_all

__all__ = ["DestructiveDDL", "after_ddl", "doubts_of"]

_EMPTIES = frozenset({"truncate_table", "drop_table", "drop_database"})
_REMOVES_SOME = frozenset({"drop_partition", "truncate_partition", "exchange_partition"})
_BRINGS_BACK = frozenset({"recover_table", "recover_database"})
_LONGEST_SHOWN = 200  # characters of a DDL text in a message


class DestructiveDDL(Enum):
    """What is done about a DDL event that removes rows without delete events.

    The words are those of the option `onDestructiveDDL`, and `apply`: the source has no rows that it could remove.
    """

    APPLY = "apply"
    FAIL = "fail"
    WARN = "warn"
    IGNORE = "ignore"

    @classmethod
    def of(cls, word: str) -> DestructiveDDL:
        """Return the policy of a word.

        Raises:
            OptionError: there is no such policy.
        """
        try:
            return cls(word)
        except ValueError:
            words = ", ".join(repr(one.value) for one in cls)
            msg = f"on_destructive_ddl={word!r}: it must be one of {words}"
            raise OptionError(msg) from None

    def go_on(self, what: str) -> bool:
        """Return whether the target stays as it is; what that means is a warning, unless it is to be ignored."""
        if self is DestructiveDDL.WARN:
            warn(what)
        return self in (DestructiveDDL.WARN, DestructiveDDL.IGNORE)


def doubts_of(word: str) -> Callable[[str], None]:
    """Return what is told of DDL whose effect on older rows only TiDB knows: it warns, or raises a `SchemaError`.

    Raises:
        OptionError: there is no such policy.
    """
    if word not in ("fail", "warn"):
        msg = f"on_doubtful_ddl={word!r}: it must be 'fail' or 'warn'"
        raise OptionError(msg)
    return _refuse if word == "fail" else warn


def _refuse(what: str) -> NoReturn:
    """Refuse DDL of which only TiDB knows what it does.

    Raises:
        SchemaError: always.
    """
    msg = f"{what}. Read the table again from TiDB, or choose on_doubtful_ddl='warn'"
    raise SchemaError(msg)


def after_ddl(
    state: DDLState | None,
    events: Iterable[DDLEvent],
    table: TableName,
    target: str,
    *,
    policy: DestructiveDDL,
    doubts: Callable[[str], None] = warn,
) -> DDLState:
    """Return the state of a target after the DDL events of its table, oldest first. What was done before is not again.

    Args:
        state: the state before; None if the target does not exist.
        events: DDL events of the table.
        table: the table.
        target: the target, for messages.
        policy: what is done about events that remove rows.
        doubts: is told what an event does to older rows that only TiDB knows; it may raise an error.

    Raises:
        SchemaError: an event removes rows, and `policy` does not allow it, or which rows is not known.
    """
    exists = state is not None
    state = state or DDLState()
    for event in events:
        kind = ddl_kind(event)
        if kind in _EMPTIES | _REMOVES_SOME | _BRINGS_BACK:
            state = _removing(state, event, kind, table, target, policy)
        elif kind == "alter_table" and event.query:
            state = _altered(state, event, target, policy, doubts, exists=exists)
        elif kind == "rename_table":
            state = _renamed(state, event, target, policy, exists=exists)
    return state


def _removing(
    state: DDLState, event: DDLEvent, kind: str, table: TableName, target: str, policy: DestructiveDDL
) -> DDLState:
    done = max(state.handled_ts, (state.truncated_ts or 0) if kind in _EMPTIES else 0)
    if event.commit_ts is not None and event.commit_ts <= done:
        return state
    what = f"{_shown(event)} of {table} {'brings rows back' if kind in _BRINGS_BACK else 'removes rows'} without events"
    differs = f"{target} is not changed by it and differs from TiDB from now on"
    if policy.go_on(f"{what}; {differs}. on_destructive_ddl='apply' or 'fail' avoids that"):
        return state
    if policy is DestructiveDDL.FAIL:
        msg = f"{what}. {_by_hand(event, target)}, or choose another policy"
        raise SchemaError(msg)
    if kind in _EMPTIES and event.commit_ts is not None:
        return state.emptied(event.commit_ts)
    reason = "which rows, the event does not say" if event.commit_ts is not None else "the message has no commit-ts"
    msg = f"{what}, and cannot be applied to {target}: {reason}. {_by_hand(event, target)}, or choose the policy 'warn'"
    raise SchemaError(msg)


def _by_hand(event: DDLEvent, target: str) -> str:
    if event.commit_ts is None:
        return f"Do in {target} what it does"
    return (
        f"Do in {target} what it does to rows up to its commit-ts, say so with ALTER TABLE {target} SET TBLPROPERTIES "
        f"('{HANDLED_TS}' = '{event.commit_ts}'), and start again"
    )


def _altered(
    state: DDLState,
    event: DDLEvent,
    target: str,
    policy: DestructiveDDL,
    doubts: Callable[[str], None],
    *,
    exists: bool,
) -> DDLState:
    """Return the state after an ALTER TABLE: what it does to columns of the rows that exist."""
    unread = f"{_shown(event)} of {event.table} is not applied to older rows of {target}: "
    if is_too_long(event):
        doubts(f"{unread}the text is too long")
        return state
    try:
        changes = old_row_changes(event)
    except ValueError as error:
        doubts(f"{unread}{error}")
        return state
    if any(isinstance(change, (Added, Renamed)) for change in changes) and event.commit_ts is None:
        doubts(f"{unread}the message has no commit-ts, so which rows are older is not known")
        return state
    is_handled = event.commit_ts is not None and event.commit_ts <= state.handled_ts
    if exists and not is_handled and changes_primary_key(event):
        doubts(
            f"{_shown(event)} of {event.table} gives it another key: TiCDC may have sent no changes while it had none, "
            f"so {target} may lack some"
        )
    sources = {change.to: change.column for change in changes if isinstance(change, Renamed)}
    for change in changes:
        if isinstance(change, Retyped) and exists:
            _retyped(state, event, change, sources.get(change.column, change.column), target, policy, doubts)
        elif isinstance(change, Added):
            is_open = (event.commit_ts or 0) > max(state.handled_ts, state.truncated_ts or 0)
            if change.unknown and is_open:
                doubts(f"{_shown(event)} of {event.table}: older rows of {target} get NULL in {change.column}, because "
                       f"{change.unknown}; TiDB may have another value there")  # fmt: skip
            new = Assignment(
                commit_ts=event.commit_ts or 0, column=change.column, value=change.value, type=str(change.type)
            )
            state = state.assigned(new)
        elif isinstance(change, Renamed):
            state = state.renamed_to(change.to, change.column, event.commit_ts or 0)
    return state


def _retyped(
    state: DDLState,
    event: DDLEvent,
    change: Retyped,
    column: str,
    target: str,
    policy: DestructiveDDL,
    doubts: Callable[[str], None],
) -> None:
    """Report a column whose values TiDB converts: which value becomes which, only TiDB knows.

    Raises:
        SchemaError: `policy` does not allow it.
    """
    types = dict(state.types)
    handled = event.commit_ts is not None and event.commit_ts <= state.handled_ts
    if handled or (types and column not in types):  # the target does not have the column
        return
    old = types.get(column)
    if old is not None and holds_all(change.type, parse_type(old)):
        return
    what = (
        f"{_shown(event)} of {event.table} makes column {column} {change.type}, which was "
        f"{old or 'of an unknown type'}, and TiDB may have converted its values; older rows of {target} keep "
        "the values from before"
    )
    if policy is DestructiveDDL.FAIL:
        msg = f"{what}. {_by_hand(event, target)}, or choose another policy"
        raise SchemaError(msg)
    if policy is not DestructiveDDL.IGNORE and not _is_of_another_kind(old, change.type):
        doubts(what)


def _is_of_another_kind(old: str | None, new: ColumnType) -> bool:
    """Return whether the target's column changes its type too: then its values follow, or the table is refused."""
    before = None if old is None else parse_type(old)
    if before is None or not before.is_supported or not new.is_supported:
        return False
    return common_type(type_of(before.arrow), type_of(new.arrow)) is None


def _renamed(state: DDLState, event: DDLEvent, target: str, policy: DestructiveDDL, *, exists: bool) -> DDLState:
    """Return the state after a table got this name: its rows are in the target of the name that it had before."""
    table = event.table
    try:
        before = name_before(event, table) if not is_too_long(event) else None
    except ValueError:
        before = None
    if before is None or before.is_same(table):
        return state
    if exists and same_table(state.table, str(before)):  # somebody renamed the target too
        return replace(state, table=str(table), renamed_ts=max(state.renamed_ts, event.commit_ts or 0))
    if exists and event.commit_ts is not None and event.commit_ts <= max(state.handled_ts, state.renamed_ts):
        return state
    has = f"exists, with the rows of {state.table or 'another table'}" if exists else "does not exist"
    what = f"{_shown(event)}: {target} {has}, and the rows of {table} are in the target of {before}"
    then = "has the rows of both tables" if exists else "begins with the rows that change"
    if policy.go_on(f"{what}; {target} {then} from now on"):
        return state
    if exists:
        msg = (
            f"{what}. Rename or drop {target}, rename the target of {before} to {target}, say so with ALTER TABLE "
            f"{target} SET TBLPROPERTIES ('{HANDLED_TS}' = '{event.commit_ts or 0}'), and start again; or choose the "
            "policy 'warn' to mix the rows of both"
        )
        raise SchemaError(msg)
    msg = f"{what}. Rename that one to {target} and start again, or choose the policy 'warn' to begin without its rows"
    raise SchemaError(msg)


def _shown(event: DDLEvent) -> str:
    text = " ".join(event.query.split()) or event.type or "A DDL event"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
