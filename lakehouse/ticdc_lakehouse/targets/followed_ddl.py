"""DDL events of a table → what they do to the rows of its target (`DDLState`), and doubts that only TiDB could settle.

CREATE, DROP, TRUNCATE and RENAME TABLE, ADD, DROP and RENAME COLUMN, and types that widen are applied. Anything else is
a doubt, for which `on_doubtful_ddl` says what to do, or is refused if the target cannot go on after it. Statements are
parsed in ticdc_source: `schema/ddl_event.py` and `schema/mysql_ddl`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NoReturn

from pyspark.sql.types import DataType, StringType

from ticdc_lakehouse.errors import LogTypeError, TargetError, UnexplainedChangeError
from ticdc_lakehouse.targets.column_types import common_type, holds_all, literal
from ticdc_lakehouse.targets.ddl_state import HANDLED_TS, Assignment, DDLState
from ticdc_lakehouse.targets.opening import same_table
from ticdc_lakehouse.targets.target import Target
from ticdc_source.developer_api import (
    Added,
    ColumnType,
    DDLEvent,
    Renamed,
    Retyped,
    changes_primary_key,
    created_columns,
    ddl_kind,
    is_too_long,
    name_before,
    old_row_changes,
    parse_type,
    type_of,
    warn,
)
from ticdc_source.errors import OptionError, SchemaError

EMPTIES = frozenset({"truncate_table", "drop_table", "drop_database"})
_REMOVES_SOME = frozenset({"drop_partition", "truncate_partition", "exchange_partition"})
_BRINGS_BACK = frozenset({"recover_table", "recover_database"})
_LONGEST_SHOWN = 200  # characters of a DDL text in a message


class DestructiveDDL(Enum):
    """What to do at a DDL event that removes rows without delete events.

    The words are those of the option `onDestructiveDDL`, and `apply`: the source has no rows that it could remove.
    """

    APPLY = "apply"
    FAIL = "fail"
    WARN = "warn"
    IGNORE = "ignore"

    @classmethod
    def of(cls, word: str) -> DestructiveDDL:
        try:
            return cls(word)
        except ValueError:
            words = ", ".join(repr(one.value) for one in cls)
            raise OptionError(f"on_destructive_ddl={word!r}: it must be one of {words}") from None

    def go_on(self, what: str) -> bool:
        """Whether the target stays as it is; `what` that means is a warning, unless the event is ignored."""
        if self is DestructiveDDL.WARN:
            warn(what)
        return self in (DestructiveDDL.WARN, DestructiveDDL.IGNORE)


def doubts_of(word: str, policy: DestructiveDDL = DestructiveDDL.APPLY) -> Callable[[str], None]:
    """Return the function to call at DDL whose effect on older rows only TiDB knows: it warns or raises an error."""
    if word not in ("fail", "warn"):
        raise OptionError(f"on_doubtful_ddl={word!r}: it must be 'fail' or 'warn'")
    return _refuse if word == "fail" or policy is DestructiveDDL.FAIL else warn


def _refuse(what: str) -> NoReturn:
    """Refuse DDL whose effect only TiDB knows."""
    raise SchemaError(f"{what}. Read the table again from TiDB, or choose on_doubtful_ddl='warn'")


@dataclass(frozen=True, slots=True, kw_only=True)
class DDLReader:
    """Reads what the DDL events of a table do to a target."""

    target: Target
    columns: Mapping[str, DataType] | None  # the types of its columns, by lower-case name; None if it does not exist
    policy: DestructiveDDL  # what to do at events that remove rows
    # called with a doubt about older rows that only TiDB could settle; may raise an error
    doubts: Callable[[str], None] = field(default=warn)
    # whether the target has no rows after a commit-ts
    is_emptied: Callable[[int], bool] = field(default=lambda _: False)
    # whether the target has rows after a commit-ts and up to another one
    has_rows: Callable[[int, int], bool] = field(default=lambda *_: False)
    # whether the changes of the micro-batch have rows after a commit-ts and, unless it is None, up to another one
    has_older: Callable[[int, int | None], bool] = field(default=lambda *_: False)
    is_log: bool = False  # whether the target is a log, whose rows stay as they are

    def after(self, state: DDLState, events: Iterable[DDLEvent]) -> DDLState:
        """Return the state after DDL events of the table, oldest first. Events that were applied have no effect.

        Raises:
            SchemaError: an event removes rows, and the policy refuses that, or it is not known which rows.
            TargetError: a column gets a type that the target cannot give it, or rows are older than their table.
        """
        for event in events:
            kind, is_copy = ddl_kind(event), _is_copy(state, event)
            if kind in EMPTIES | _REMOVES_SOME | _BRINGS_BACK:
                state = self._removing(state, event, kind)
            elif kind == "alter_table" and event.query:
                state = self._altered(state, event)
            elif kind == "rename_table":
                state = self._renamed(state, event)
            elif kind == "create_table":
                state = self._newly_created(state, event)
            state = state if is_copy else _with_key(state, event)
        return state

    def _newly_created(self, state: DDLState, event: DDLEvent) -> DDLState:
        """Return the state after CREATE TABLE; without a commit-ts, it has the types of rows that are read again.

        A new table has no older rows. If the target has some, they are of another table of this name, such as one that
        was renamed. (Not if the commit-ts is only a time: connectors repeat the CREATE of each table when they take a
        snapshot.)
        """
        created = None if event.place is not None or self.is_log else event.commit_ts
        if created is not None and created > (state.truncated_ts or 0):
            state = self._without_the_other(state, event, created)
        if event.commit_ts is not None and event.commit_ts <= max((state.truncated_ts or 0, *state.altered)):
            return state
        return state.typed(_created(event))

    def _without_the_other(self, state: DDLState, event: DDLEvent, created: int) -> DDLState:
        """Return the state without the rows of another table, once a user has confirmed that they are removed.

        Then late changes of that table are left out too. If a user has confirmed later DDL, rows may still be there.
        """
        emptied, target = state.truncated_ts or 0, self.target.name
        has_rows = self.columns is not None and self.has_rows(emptied, created - 1)
        if created <= state.handled_ts:
            is_gone = self.policy is DestructiveDDL.APPLY and (created == state.handled_ts or not has_rows)
            return state.emptied(created - 1) if is_gone else state
        if not has_rows and not self.has_older(emptied, created - 1):
            return state
        what = f"{_shown(event)}: {target} has rows of another table of that name, such as one that was renamed"
        if self.policy.go_on(f"{what}; it has the rows of both tables from now on"):
            return state
        raise UnexplainedChangeError(
            f"{what}, and no DROP TABLE of it has come. Delete these rows, or move them to another table, confirm it "
            f"with ALTER TABLE {target} SET TBLPROPERTIES ('{HANDLED_TS}' = '{created}'), and start again. Or choose "
            "on_destructive_ddl='warn' to mix the rows of both tables"
        )

    def _removing(self, state: DDLState, event: DDLEvent, kind: str) -> DDLState:
        done = max(state.handled_ts, (state.truncated_ts or 0) if kind in EMPTIES else 0)
        if event.commit_ts is not None and event.commit_ts <= done:
            return state
        target = self.target.name
        does = "brings rows back" if kind in _BRINGS_BACK else "removes rows"
        what = f"{_shown(event)} of {event.table} {does} without events"
        differs = f"{target} stays as it is, and differs from TiDB from now on"
        if self.policy.go_on(f"{what}; {differs}. on_destructive_ddl='apply' or 'fail' avoids that"):
            return state
        if self.policy is DestructiveDDL.FAIL:
            raise SchemaError(f"{what}. {by_hand(event.commit_ts, target)}; or choose another on_destructive_ddl")
        if kind in EMPTIES and event.commit_ts is not None:
            return state.emptied(event.commit_ts)
        reason = "the event does not say which rows" if event.commit_ts is not None else "the message has no commit-ts"
        raise SchemaError(
            f"{what}, and cannot be applied to {target}: {reason}. {by_hand(event.commit_ts, target)}; or choose "
            "on_destructive_ddl='warn'"
        )

    def _altered(self, state: DDLState, event: DDLEvent) -> DDLState:
        """Return the state after an ALTER TABLE, with its effects on columns of existing rows."""
        unread = f"{_shown(event)} of {event.table} is not applied to older rows of {self.target.name}: "
        if is_too_long(event):
            self.doubts(f"{unread}the text is too long")
            return state
        try:
            changes = old_row_changes(event)
        except ValueError as error:
            self.doubts(f"{unread}{error}")
            return state
        if any(isinstance(change, (Added, Renamed)) for change in changes) and event.commit_ts is None:
            self.doubts(f"{unread}the message has no commit-ts, so it is not known which rows are older")
            return state
        commit_ts = event.commit_ts or 0
        is_repeated, is_copy = commit_ts in state.altered, _is_copy(state, event)
        is_handled = is_repeated or (event.commit_ts is not None and commit_ts <= state.handled_ts)
        if self.columns is not None and not (is_handled or is_copy) and changes_primary_key(event):
            self.doubts(
                f"{_shown(event)} of {event.table} changes its key: while the table had none, TiCDC may have sent no "
                f"changes, so {self.target.name} may lack some"
            )
        before, sources = state, {change.to: change.column for change in changes if isinstance(change, Renamed)}
        types: dict[str, str | None] = {}
        for change in changes:
            if isinstance(change, Retyped):
                if not (is_handled or is_copy):
                    self._retyped(before, event, change, sources.get(change.column, change.column))
                types[change.column] = str(change.type)
            elif isinstance(change, Added):
                value = change.value if is_handled else self._added(state, event, change)
                new = Assignment(commit_ts=commit_ts, column=change.column, value=value, type=str(change.type))
                state = state.assigned(new)
                types[change.column] = str(change.type)
            elif isinstance(change, Renamed):
                state = state.assigned(Assignment(commit_ts=commit_ts, column=change.to, source=change.column))
                types.setdefault(change.to, before.type_of(change.column))
        if is_copy:
            return state
        state = state.typed(types)
        if self.columns is None or event.commit_ts is None:
            return state
        return replace(state, altered=(*state.altered, commit_ts))

    def _added(self, state: DDLState, event: DDLEvent, change: Added) -> str | None:
        """Return the value of a new column in older rows: its default, or NULL if only TiDB knows the value."""
        column, natural, unknown = change.column, self._natural(change.type), change.unknown
        if (event.commit_ts or 0) <= (state.truncated_ts or 0):
            return change.value
        try:
            literal(change.value, change.type, natural or StringType())
        except ValueError as error:
            unknown = unknown or f"its default {error}"
        if unknown:
            self.doubts(f"{_shown(event)} of {event.table}: older rows of {self.target.name} get NULL in {column}, "
                        f"because {unknown}; TiDB may have another value there")  # fmt: skip
        there = self._there(state, column)
        value = None if unknown else change.value
        if there is None or natural is None:
            return value
        old = _parsed(state.type_of(column))
        is_its_own = old is not None and self._natural(old) == natural  # added by a change that came before the event
        fits = self._takes(column, there, old, change.type) if self.is_log else common_type(there, natural) == there
        if not is_its_own and not fits:
            self._refuse(event, f"adds column {column} {change.type}", column, there)
        return value

    def _retyped(self, state: DDLState, event: DDLEvent, change: Retyped, column: str) -> None:
        """Refuse or doubt a new type of a column: only TiDB knows the values that it has converted."""
        if event.commit_ts is not None and event.commit_ts <= (state.truncated_ts or 0):
            return
        origin, is_new = state.origin(column)
        if self.is_log and column in (self.columns or {}):  # a log moves no values
            origin = column
        there = self._there(state, origin)
        text = state.type_of(column)
        old = _parsed(text)
        what = f"changes column {change.column} from {text or 'an unknown type'} to {change.type}"
        if there is not None and not self._takes(change.column, there, old, change.type):
            self._refuse(event, what, origin, there)
        if old is not None and holds_all(change.type, old):
            return
        has_values = there is not None or (is_new and not self._is_empty(state))
        if has_values or self.has_older(state.truncated_ts or 0, event.commit_ts):
            self.doubts(
                f"{_shown(event)} of {event.table} {what}, and TiDB may have converted its values. Older rows of "
                f"{self.target.name} keep their old values"
            )

    def _there(self, state: DDLState, column: str) -> DataType | None:
        """Return the type of a column of the target; None if there is no such column, or no row."""
        there = (self.columns or {}).get(column)
        return None if there is None or self._is_empty(state) else there

    def _is_empty(self, state: DDLState) -> bool:
        """Whether there is no target, or an event has removed all its rows."""
        return self.columns is None or (state.truncated_ts is not None and self.is_emptied(state.truncated_ts))

    def _takes(self, column: str, there: DataType, old: ColumnType | None, new: ColumnType) -> bool:
        """Whether a column of the target, by its name after the event, can hold values of the type `new`.

        `there` is its type in the target; if it is renamed, the type under its old name.
        """
        natural = self._natural(new)
        if natural is None:  # such values cannot be read
            return True
        if old is not None and "time" in (old.name, new.name):  # stored as microseconds, or as text
            is_text = isinstance(there, StringType) and not self.is_log
            if old.name != new.name or (is_text and (old.length or 0) != (new.length or 0)):
                return False
        if common_type(there, natural) is not None:
            return column not in (self.columns or {}) or self.target.widened(there, natural) is not None
        before = None if old is None else self._natural(old)
        # An option of the reader has given the column another type in the target.
        return before is not None and before != there and common_type(before, natural) is not None

    def _natural(self, type_: ColumnType) -> DataType | None:
        """Return the type in which the target stores a MySQL type; None if such values cannot be read."""
        return self.target.stored(type_of(type_.arrow)) if type_.is_supported else None

    def _refuse(self, event: DDLEvent, what: str, column: str, there: DataType) -> NoReturn:
        """Refuse DDL after which the changes do not fit the target."""
        name = self.target.name
        what = f"{_shown(event)} of {event.table} {what}, and column {column} of {name} is {there.simpleString()}"
        if self.is_log:
            raise LogTypeError(
                f"{what}, and a log converts no values. Rename column {column} of {name}, so that the changes get a "
                "new column, and start again; or append to another log"
            )
        raise TargetError(
            f"{what}: only TiDB knows the values now. Read the table again from TiDB, as a sync does with heal = true. "
            f"Or {by_hand(event.commit_ts, name, inside=True)}"
        )

    def _renamed(self, state: DDLState, event: DDLEvent) -> DDLState:
        """Return the state after a table got this name; its rows are in the target of its old name."""
        table, target, exists = event.table, self.target.name, self.columns is not None
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
        if self.policy.go_on(f"{what}; {target} {then} from now on"):
            return state
        if exists:
            raise SchemaError(
                f"{what}. Rename or drop {target}, rename the target of {before} to {target}, confirm it with ALTER "
                f"TABLE {target} SET TBLPROPERTIES ('{HANDLED_TS}' = '{event.commit_ts or 0}'), and start again. Or "
                "choose on_destructive_ddl='warn' to mix the rows of both tables"
            )
        raise SchemaError(
            f"{what}. Rename the target of {before} to {target}, and start again; or choose "
            "on_destructive_ddl='warn' to begin without its rows"
        )


def by_hand(commit_ts: int | None, target: str, *, inside: bool = False) -> str:
    """Return the advice to apply a DDL event to a target by hand; `inside` a sentence, it begins in lower case."""
    do = "apply" if inside else "Apply"
    if commit_ts is None:
        return f"{do} the DDL to the rows of {target} by hand"
    return (
        f"{do} the DDL by hand to the rows of {target} up to its commit-ts, confirm it with ALTER TABLE {target} SET "
        f"TBLPROPERTIES ('{HANDLED_TS}' = '{commit_ts}'), and start again"
    )


def _is_copy(state: DDLState, event: DDLEvent) -> bool:
    """Whether TiCDC has sent an event again, so that its types and keys may be outdated.

    An event whose commit-ts is only a time is a copy if that is before the time of a known ALTER TABLE, because a topic
    partition has the events of a table in order.
    """
    if event.commit_ts is None:
        return False
    is_older = event.place is not None and any(one >> 18 > event.commit_ts >> 18 for one in state.altered)
    return is_older or event.commit_ts in state.altered


def _with_key(state: DDLState, event: DDLEvent) -> DDLState:
    """Return the state after an event that may drop or add the primary key."""
    if not event.query or is_too_long(event):
        return state
    try:
        has_one = changes_primary_key(event)
    except ValueError:  # other readers of the text report it
        return state
    return state if has_one is None else replace(state, key_dropped_ts=0 if has_one else event.commit_ts or 1)


def _created(event: DDLEvent) -> dict[str, str | None]:
    """Return the types of a new table; none if the text cannot be read."""
    try:
        return {} if is_too_long(event) else {name: str(type_) for name, type_ in created_columns(event).items()}
    except ValueError:
        return {}


def _parsed(mysql_type: str | None) -> ColumnType | None:
    return None if mysql_type is None else parse_type(mysql_type)


def _shown(event: DDLEvent) -> str:
    text = " ".join(event.query.split()) or event.type or "A DDL event"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
