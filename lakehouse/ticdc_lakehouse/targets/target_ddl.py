"""What DDL events do to a target table: TiCDC sends no row events for what they do to rows that exist.

A row of a target knows the commit-ts of its image (`_sequence.commit_ts`). A row up to the commit-ts of a DDL event
belongs to the schema before it (docs/wire.md, item 31), whenever it arrives: rows of other partitions may come later
than the event. So what an event does to rows is kept as *assignments* in the properties of the target. They are made
once for the rows that the target has, and again for each older row that a later micro-batch brings.

Nothing here asks Spark for anything: plans are values, and expressions are texts of Spark SQL.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from pyspark.sql.types import DataType

from ticdc_lakehouse.targets.conversion import conversion
from ticdc_lakehouse.targets.ddl_places import NO_PLACES, DDLPlaces
from ticdc_lakehouse.targets.literals import literal
from ticdc_lakehouse.targets.target import quoted
from ticdc_lakehouse.targets.widening import common_type
from ticdc_source.developer_api import TABLE, ColumnType, loads, parse_type, warn

__all__ = [
    "COLUMN_DEFAULTS",
    "HANDLED_TS",
    "RENAMED_TS",
    "TRUNCATED_TS",
    "Assignment",
    "DDLState",
    "Doubt",
]

# Properties of a target.
COLUMN_DEFAULTS = "ticdc.column_defaults"
COLUMN_TYPES = "ticdc.column_types"
TRUNCATED_TS = "ticdc.truncated_ts"
HANDLED_TS = "ticdc.handled_ddl_ts"
RENAMED_TS = "ticdc.renamed_ts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What the rows up to a commit-ts have in a column.

    Attributes:
        commit_ts: the commit-ts of the DDL event.
        column: the column, in lower case.
        source: the column that this one was before the event renamed it; None for a new column.
        value: the value that a new column has, as MySQL writes it; None for NULL.
        type: the MySQL type of a new column.
        filled: whether the rows of the target have it.
    """

    commit_ts: int
    column: str
    source: str | None = None
    value: str | None = None
    type: str = ""
    filled: bool = False


class Doubt(NamedTuple):
    """A column that has the values of another one, of which it cannot have all.

    Attributes:
        column: the column.
        type: its type.
        source: the other one.
        where: a condition that holds in the rows whose value only TiDB converts.
    """

    column: str
    type: DataType
    source: str
    where: str


class _Value(NamedTuple):
    """A value, in place of a column."""

    text: str | None
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DDLState:
    """What DDL events have done to a target so far.

    Attributes:
        assignments: by commit-ts.
        truncated_ts: the largest commit-ts of an event that emptied the table; rows up to it are not in the table.
        handled_ts: the commit-ts up to which somebody has done by hand what an event does to rows.
        table: the table of which the target has the rows; "" if that is not known.
        renamed_ts: the commit-ts of the last event that renamed the table, after which somebody renamed the target.
        types: the MySQL types of the columns as the last changes had them, by lower-case name.
        places: the places of the events that have a time for a commit-ts.
    """

    assignments: tuple[Assignment, ...] = ()
    truncated_ts: int | None = None
    handled_ts: int = 0
    table: str = ""
    renamed_ts: int = 0
    types: tuple[tuple[str, str], ...] = ()
    places: DDLPlaces = NO_PLACES

    @classmethod
    def of_properties(cls, properties: Mapping[str, str]) -> DDLState:
        """Return the state that the properties of a target hold."""
        truncated = properties.get(TRUNCATED_TS)
        return cls(
            assignments=tuple(Assignment(**fields) for fields in loads(properties.get(COLUMN_DEFAULTS) or "[]")),
            truncated_ts=int(truncated) if truncated else None,
            handled_ts=int(properties.get(HANDLED_TS) or 0),
            table=properties.get(TABLE, ""),
            renamed_ts=int(properties.get(RENAMED_TS) or 0),
            types=tuple(loads(properties.get(COLUMN_TYPES) or "{}").items()),
            places=DDLPlaces.of_properties(properties),
        )

    def as_properties(self) -> dict[str, str]:
        """Return the properties that hold the state; `HANDLED_TS` is the user's own."""
        kept = [{name: value for name, value in asdict(one).items() if value} for one in self.assignments]
        properties = {COLUMN_DEFAULTS: json.dumps(kept, separators=(",", ":"))} if kept else {}
        properties |= {TABLE: self.table} if self.table else {}
        properties |= {RENAMED_TS: str(self.renamed_ts)} if self.renamed_ts else {}
        properties |= self.places.as_properties()
        return properties | ({} if self.truncated_ts is None else {TRUNCATED_TS: str(self.truncated_ts)})

    def without(self, undone: Iterable[tuple[int, Collection[str]]]) -> DDLState:
        """Return the state of rows of which somebody has undone what was done to them.

        Args:
            undone: up to which commit-ts, and to which columns, in lower case; none if the rows were removed.
        """
        state = self
        for ts, columns in undone:
            assignments = tuple(
                replace(one, filled=one.filled and not (one.commit_ts <= ts and one.column in columns))
                for one in state.assignments
            )
            is_full = not columns and state.truncated_ts == ts
            state = replace(state, assignments=assignments, truncated_ts=None if is_full else state.truncated_ts)
        return state

    def emptied(self, commit_ts: int) -> DDLState:
        """Return the state after an event that removes all rows."""
        truncated = max(commit_ts, self.truncated_ts or 0)
        return replace(
            self,
            truncated_ts=truncated,
            assignments=tuple(one for one in self.assignments if one.commit_ts > truncated),
            places=self.places.since(truncated),
        )

    def assigned(self, new: Assignment) -> DDLState:
        """Return the state with one more assignment, unless it is known or there are no rows before it."""
        repeated = any((one.commit_ts, one.column) == (new.commit_ts, new.column) for one in self.assignments)
        if repeated or new.commit_ts <= (self.truncated_ts or 0):
            return self
        later = any(one.column == new.column and one.commit_ts > new.commit_ts for one in self.assignments)
        new = replace(new, filled=later)
        return replace(self, assignments=tuple(sorted((*self.assignments, new), key=lambda one: one.commit_ts)))

    def renamed_to(self, column: str, source: str, commit_ts: int) -> DDLState:
        """Return the state after a column got another name; the target may have it already, if somebody did that."""
        is_done = commit_ts == self.handled_ts
        state = self.assigned(Assignment(commit_ts=commit_ts, column=column, source=source))
        return replace(
            state,
            assignments=tuple(
                replace(one, filled=one.filled or (is_done and (one.commit_ts, one.column) == (commit_ts, column)))
                for one in state.assignments
            ),
        )

    def renamed(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the present names of columns."""
        names = list(columns)
        for commit_ts in sorted({one.commit_ts for one in self.assignments}):
            to = {one.source: one.column for one in self.assignments if one.commit_ts == commit_ts and one.source}
            names = [to.get(name.lower(), name) for name in names]
        return tuple(names)

    # Assignments → expressions

    def on_rows(
        self,
        columns: Mapping[str, DataType],
        row_ts: str,
        *,
        time_zone: str = "UTC",
        moved: Mapping[str, Sequence[tuple[int, str]]] = MappingProxyType({}),
        waits: Collection[str] = (),
    ) -> dict[str, str]:
        """Return what to set in rows of the target that are older than events: expressions by column.

        Args:
            columns: the columns of the target.
            row_ts: the expression of a row's commit-ts.
            time_zone: the zone of a TIMESTAMP's default.
            moved: by lower-case name, the columns that moved aside: until which commit-ts, and their names now.
            waits: the columns, in lower case, that are to stay as they are for now.
        """
        pending = self._pending(columns, waits)
        kept = {name: type_ for name, type_ in columns.items() if name.lower() in {one.column for one in pending}}
        types = dict(self.types)
        return _expressions(pending, kept, columns, types, row_ts=row_ts, time_zone=time_zone, moved=moved)

    def doubts_of_rows(
        self,
        columns: Mapping[str, DataType],
        row_columns: Mapping[str, DataType],
        row_ts: str,
        *,
        moved: Mapping[str, Sequence[tuple[int, str]]] = MappingProxyType({}),
        waits: Collection[str] = (),
    ) -> list[Doubt]:
        """Return the values of rows that only TiDB converts, before `on_rows` sets them.

        Args:
            columns: the columns that the target will have.
            row_columns: those that it has.
            row_ts: the expression of a row's commit-ts.
            moved: as in `on_rows`.
            waits: as in `on_rows`.
        """
        pending = self._pending(columns, waits)
        kept = {name: type_ for name, type_ in columns.items() if name.lower() in {one.column for one in pending}}
        return _doubts(pending, kept, row_columns, dict(self.types), row_ts, moved)

    def doubts_of_changes(
        self, columns: Mapping[str, DataType], changes: Mapping[str, DataType], row_ts: str
    ) -> list[Doubt]:
        """Return the values of changes that only TiDB converts; the arguments are those of `on_changes`."""
        return _doubts(self.assignments, columns, changes, dict(self.types), row_ts)

    def pending_ts(self, columns: Iterable[str], waits: Collection[str] = ()) -> int:
        """Return the commit-ts up to which rows of the target change by `on_rows`; 0 if none does."""
        return max((one.commit_ts for one in self._pending(columns, waits)), default=0)

    def filled(self, columns: Iterable[str], waits: Collection[str] = ()) -> DDLState:
        """Return the state after `on_rows` was done."""
        done = self._pending(columns, waits)
        return replace(
            self, assignments=tuple(replace(one, filled=True) if one in done else one for one in self.assignments)
        )

    def _pending(self, columns: Iterable[str], waits: Collection[str] = ()) -> list[Assignment]:
        """Return the assignments that `on_rows` makes.

        A column that the target lacks gets its values later, and until then the column that it was before keeps them;
        unless it was renamed again, to a column that the target has: the values pass through it.
        """
        names = {name.lower() for name in columns}
        open_ = [one for one in self.assignments if not one.filled]
        waiting: list[Assignment] = []
        while True:
            newest_first = sorted(waiting, key=lambda one: -one.commit_ts)
            kept = {one.source: one.commit_ts for one in newest_first if one.source in names}
            more: list[Assignment] = []
            for one in reversed(open_):
                if one in waiting:
                    continue
                takes = next((it for it in open_ if it.source == one.column and it.commit_ts > one.commit_ts), None)
                gives = next((it for it in reversed(open_)
                              if it.column == one.source and it.commit_ts < one.commit_ts), None)  # fmt: skip
                passes = takes is not None and takes not in waiting and takes not in more
                if (
                    one.column in waits
                    or (one.column not in names and not passes)
                    or (one.column in kept and one.commit_ts >= kept[one.column])
                    or gives in waiting
                ):
                    more.append(one)
            if not more:
                return [one for one in open_ if one not in waiting]
            waiting += more

    def replaced(self, columns: Collection[str], changes: Collection[str]) -> dict[str, str]:
        """Return the new names of columns whose own name another column has by now: by new name, the old one.

        Only those that the target lacks. An older change has the value of the other column under the old name, so the
        target must have the new one, or the value has no place.

        Args:
            columns: the columns of the target, in lower case.
            changes: the columns of the changes, in lower case.
        """
        begun = {one.column for one in self.assignments}
        there = {*columns, *changes}
        return {
            one.column: one.source
            for one in self.assignments
            if one.source in changes and one.source in begun and one.column not in there
        }

    def on_changes(
        self, columns: Mapping[str, DataType], changes: Mapping[str, DataType], row_ts: str, *, time_zone: str = "UTC"
    ) -> dict[str, str]:
        """Return what changes that are older than events have instead of their own: expressions by column.

        Args:
            columns: the columns of the target.
            changes: the columns of the changes.
            row_ts: the expression of a change's commit-ts.
            time_zone: as in `on_rows`.
        """
        pending = self._pending(columns)  # the rest is done to changes too once it is done to rows
        known = [one for one in self.assignments if one.filled or one in pending]
        return _expressions(known, columns, changes, dict(self.types), row_ts=row_ts, time_zone=time_zone)


def _expressions(
    assignments: Sequence[Assignment],
    columns: Mapping[str, DataType],
    row_columns: Mapping[str, DataType],
    mysql_types: Mapping[str, str],
    *,
    row_ts: str,
    time_zone: str,
    moved: Mapping[str, Sequence[tuple[int, str]]] = MappingProxyType({}),
) -> dict[str, str]:
    """Return the expression of each column that assignments change."""
    names = {name.lower(): name for name in row_columns}
    out = {}
    for column, its in _pieces(assignments, columns).items():
        type_ = columns[column]
        whens = [
            f"WHEN {row_ts} <= {bound} THEN "
            f"{_rendered(one, column, type_, names | _aside(moved, bound), row_columns, mysql_types, time_zone)}"
            for bound, one in its
        ]
        own = _rendered(column.lower(), column, type_, names, row_columns, mysql_types, time_zone)
        out[column] = f"CASE {' '.join(whens)} ELSE {own} END"
    return out


def _pieces(assignments: Sequence[Assignment], columns: Iterable[str]) -> dict[str, list[tuple[int, str | _Value]]]:
    """Return what rows have in each column that assignments change: by the commit-ts up to which a row is, ascending.

    Between the commit-ts of two events, each later event does the same to all rows: a column is another column of the
    row, or a value.
    """
    bounds = sorted({one.commit_ts for one in assignments})
    after = [_after(bound, assignments) for bound in bounds]
    out = {}
    for column in columns:
        values = [piece.get(column.lower(), column.lower()) for piece in after]
        if any(one != column.lower() for one in values):
            its = list(zip(bounds, values, strict=True))
            out[column] = [one for number, one in enumerate(its) if values[number + 1 : number + 2] != [one[1]]]
    return out


def _doubts(
    assignments: Sequence[Assignment],
    columns: Mapping[str, DataType],
    row_columns: Mapping[str, DataType],
    mysql_types: Mapping[str, str],
    row_ts: str,
    moved: Mapping[str, Sequence[tuple[int, str]]] = MappingProxyType({}),
) -> list[Doubt]:
    """Return the columns that have the values of other ones by `_expressions`, and cannot have all of them."""
    names = {name.lower(): name for name in row_columns}
    doubts = []
    for column, its in _pieces(assignments, columns).items():
        after = 0
        for bound, what in its:
            name = (names | _aside(moved, bound)).get(what) if isinstance(what, str) else None
            if isinstance(what, str) and name is not None and not _holds(columns[column], row_columns[name]):
                old_mysql = _parsed(mysql_types.get(what))
                exact = conversion(quoted(name), row_columns[name], columns[column], old_mysql).exact
                where = f"{row_ts} > {after} AND {row_ts} <= {bound} AND NOT ({exact})"
                doubts.append(Doubt(column, columns[column], name, where))
            after = bound
    return doubts


def _holds(type_: DataType, values: DataType) -> bool:
    return common_type(values, type_) == type_


def _parsed(mysql_type: str | None) -> ColumnType | None:
    return None if mysql_type is None else parse_type(mysql_type)


def _aside(moved: Mapping[str, Sequence[tuple[int, str]]], bound: int) -> dict[str, str]:
    """Return where the values are that columns had at a commit-ts, of those that moved aside since."""
    names = {column: [name for until, name in its if until >= bound] for column, its in moved.items()}
    return {column: its[0] for column, its in names.items() if its}


def _after(bound: int, assignments: Sequence[Assignment]) -> dict[str, str | _Value]:
    """Return what rows up to `bound`, and after the event before it, have in each column after all events."""
    now: dict[str, str | _Value] = {}
    before, ts = now, 0
    for one in assignments:
        if one.commit_ts < bound:
            continue
        if one.commit_ts != ts:  # one statement exchanges two names at once
            before, ts = dict(now), one.commit_ts
        now[one.column] = _Value(one.value, one.type) if one.source is None else before.get(one.source, one.source)
    return now


def _rendered(
    what: str | _Value,
    column: str,
    type_: DataType,
    names: Mapping[str, str],
    row_columns: Mapping[str, DataType],
    mysql_types: Mapping[str, str],
    time_zone: str,
) -> str:
    if isinstance(what, str):
        name = names.get(what)
        if name is None:
            return f"CAST(NULL AS {type_.simpleString()})"
        own = row_columns[name]
        if own == type_:
            return quoted(name)
        if _holds(type_, own):
            return f"CAST({quoted(name)} AS {type_.simpleString()})"
        # NULL in place of an error: rows that count have no such value, or the merge is refused (`Doubt`).
        kept = conversion(quoted(name), own, type_, _parsed(mysql_types.get(what)))
        return f"CASE WHEN {kept.exact} THEN {kept.value} END"
    try:
        return literal(what.text, parse_type(what.type), type_, time_zone)
    except ValueError as error:
        warn(f"Column {column}: rows that are older than the column get NULL: the default {error}")
        return f"CAST(NULL AS {type_.simpleString()})"
