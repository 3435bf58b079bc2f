"""What DDL events do to the rows of a target, as TiCDC sends no row events for the changes that DDL makes.

A row of a target has the commit-ts of its image (`_sequence.commit_ts`). A row up to the commit-ts of a DDL event has
the schema before it (docs/wire.md, item 31), whenever it arrives: rows of other partitions may come later than the
event. So what an event does to rows is kept as *assignments* in the properties of the target. They are applied once to
the rows of the target, and to each older row in a later micro-batch.

Nothing here uses Spark: plans are values, and expressions are texts of Spark SQL.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from pyspark.sql.types import DataType, StructField

from ticdc_lakehouse.targets.column_types import common_type, holds_all, literal
from ticdc_lakehouse.targets.target_names import quoted
from ticdc_source.developer_api import MYSQL_TYPE, TABLE, DDLEvent, loads, parse_type, warn

# Properties of a target.
COLUMN_DEFAULTS = "ticdc.column_defaults"
COLUMN_TYPES = "ticdc.column_types"
TRUNCATED_TS = "ticdc.truncated_ts"
HANDLED_TS = "ticdc.handled_ddl_ts"
RENAMED_TS = "ticdc.renamed_ts"
KEY_DROPPED_TS = "ticdc.key_dropped_ts"
ALTERED = "ticdc.altered"

_PLACES = "ticdc.ddl_places"  # the property of a target with its `DDLPlaces`


@dataclass(frozen=True, slots=True)
class DDLPlaces:
    """The DDL events of a table that are ordered by their places in Kafka, as their commit-ts is only a time."""

    known: tuple[tuple[int, int, int], ...] = ()  # the commit-ts, topic partition and offset of each, in order

    @classmethod
    def of_properties(cls, properties: Mapping[str, str]) -> DDLPlaces:
        return cls(tuple((ts, partition, offset) for ts, partition, offset in loads(properties.get(_PLACES, "[]"))))

    def as_properties(self) -> dict[str, str]:
        return {_PLACES: json.dumps(self.known, separators=(",", ":"))} if self.known else {}

    def after(self, events: Sequence[DDLEvent]) -> DDLPlaces:
        new = {(one.commit_ts, *one.place) for one in events if one.place is not None and one.commit_ts is not None}
        return DDLPlaces(tuple(sorted({*self.known, *new})))

    def since(self, commit_ts: int) -> DDLPlaces:
        return DDLPlaces(tuple(one for one in self.known if one[0] >> 18 >= commit_ts >> 18))

    def numbered(self, event: DDLEvent) -> DDLEvent:
        """Return an event whose commit-ts is increased by the number of events before it at the same commit-ts."""
        if event.place is None or event.commit_ts is None:
            return event
        place = (event.commit_ts, *event.place)
        before = sum(one[0] == event.commit_ts and one < place for one in self.known)
        return replace(event, commit_ts=event.commit_ts + before)

    def row_ts(self, sequence: str) -> str:
        """Return the SQL for the commit-ts of a row, increased by the number of events before it, as in `numbered`."""
        column = quoted(sequence)
        terms: dict[int, list[str]] = {}
        for ts, partition, offset in self.known:
            same = f"{column}.partition = {partition} AND {column}.offset > {offset}"
            terms.setdefault(ts, []).append(f"CAST({column}.partition > {partition} OR ({same}) AS INT)")
        if not terms:
            return f"{column}.commit_ts"
        whens = " ".join(f"WHEN {ts} THEN {' + '.join(each)}" for ts, each in terms.items())
        return f"({column}.commit_ts + CASE {column}.commit_ts {whens} ELSE 0 END)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The value of a column in rows up to a commit-ts."""

    commit_ts: int  # the commit-ts of the DDL event
    column: str  # the column, in lower case
    source: str | None = None  # the name of the column before the event renamed it; None for a new column
    value: str | None = None  # the value in a new column, as MySQL writes it; None for NULL
    type: str = ""  # the MySQL type of a new column
    filled: bool = False  # whether the rows of the target have the value


class Misfit(NamedTuple):
    """A column to which DDL moves the values of another one, and whose type does not hold them."""

    column: str
    type: DataType
    source: str
    source_type: DataType
    where: str  # the condition for the rows with such values


def types_as_property(
    before: Iterable[tuple[str, str]], columns: Iterable[StructField] = (), undecided: Collection[str] = ()
) -> dict[str, str]:
    """Return the property with the MySQL types of all columns that are known from DDL or field metadata.

    Only DDL narrows a type: a change may arrive before its MODIFY, while rows of the target still have the wider type.
    """
    types = dict(before)
    for one in columns:
        now, old = (one.metadata or {}).get(MYSQL_TYPE), types.get(one.name.lower())
        if now is None or one.name in undecided:
            continue
        if old is None or not holds_all(parse_type(old), parse_type(str(now))):
            types[one.name.lower()] = str(now)
    return {COLUMN_TYPES: json.dumps(types, separators=(",", ":"))} if types else {}


class _Value(NamedTuple):
    """A value instead of a column."""

    text: str | None
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DDLState:
    """What DDL events have done to a target so far."""

    assignments: tuple[Assignment, ...] = ()  # by commit-ts
    # the largest commit-ts of an event that emptied the table; rows up to it are not in the table
    truncated_ts: int | None = None
    handled_ts: int = 0  # the commit-ts up to which somebody has applied DDL by hand
    table: str = ""  # the table whose rows the target has; "" if that is not known
    # the commit-ts of the last event that renamed the table, after which somebody renamed the target
    renamed_ts: int = 0
    # the MySQL types of the columns, by lower-case name: as DDL has made them, and at least as wide as changes had them
    types: tuple[tuple[str, str], ...] = ()
    places: DDLPlaces = DDLPlaces()  # the places of the events that have a time for a commit-ts
    # the commit-ts of the event that dropped the primary key; 0 if the table has one again, None if it never lost it
    key_dropped_ts: int | None = None
    altered: tuple[int, ...] = ()  # the commit-ts of each ALTER TABLE since the target exists: TiCDC may send it again

    @classmethod
    def of_properties(cls, properties: Mapping[str, str]) -> DDLState:
        truncated, key_dropped = properties.get(TRUNCATED_TS), properties.get(KEY_DROPPED_TS)
        handled_ts = int(properties.get(HANDLED_TS) or 0)
        assignments = (Assignment(**fields) for fields in loads(properties.get(COLUMN_DEFAULTS) or "[]"))
        truncated_ts = int(truncated) if truncated else None
        return cls(
            assignments=tuple(
                replace(one, filled=one.filled or one.commit_ts == handled_ts)
                for one in assignments
                if one.commit_ts > (truncated_ts or 0)  # the property may be older than the event
            ),
            truncated_ts=truncated_ts,
            handled_ts=handled_ts,
            table=properties.get(TABLE, ""),
            renamed_ts=int(properties.get(RENAMED_TS) or 0),
            types=tuple(loads(properties.get(COLUMN_TYPES) or "{}").items()),
            places=DDLPlaces.of_properties(properties),
            key_dropped_ts=None if key_dropped is None else int(key_dropped),
            altered=tuple(loads(properties.get(ALTERED) or "[]")),
        )

    def as_properties(self) -> dict[str, str]:
        """Return the properties that record the state, except `HANDLED_TS`, which only a user sets."""
        kept = [{name: value for name, value in asdict(one).items() if value} for one in self.assignments]
        properties = {COLUMN_DEFAULTS: json.dumps(kept, separators=(",", ":"))} if kept else {}
        properties |= {TABLE: self.table} if self.table else {}
        properties |= {RENAMED_TS: str(self.renamed_ts)} if self.renamed_ts else {}
        properties |= {ALTERED: json.dumps(self.altered, separators=(",", ":"))} if self.altered else {}
        properties |= {} if self.key_dropped_ts is None else {KEY_DROPPED_TS: str(self.key_dropped_ts)}
        properties |= self.places.as_properties()
        return properties | ({} if self.truncated_ts is None else {TRUNCATED_TS: str(self.truncated_ts)})

    def without(self, undone: Iterable[tuple[int, Collection[str]]]) -> DDLState:
        """Return the state after somebody has undone changes of rows.

        Each change that was `undone` has the commit-ts up to which it was made, and its columns in lower case; none if
        it was a removal of rows.
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
        truncated = max(commit_ts, self.truncated_ts or 0)
        return replace(
            self,
            truncated_ts=truncated,
            assignments=tuple(one for one in self.assignments if one.commit_ts > truncated),
            places=self.places.since(truncated),
        )

    def assigned(self, new: Assignment) -> DDLState:
        """Return the state with one more assignment, unless it is known or no rows are older.

        Rows of the target have it already if a later event or a person has set the column.
        """
        repeated = any((one.commit_ts, one.column) == (new.commit_ts, new.column) for one in self.assignments)
        if repeated or new.commit_ts <= (self.truncated_ts or 0):
            return self
        later = any(one.column == new.column and one.commit_ts > new.commit_ts for one in self.assignments)
        new = replace(new, filled=later or new.commit_ts == self.handled_ts)
        return replace(self, assignments=tuple(sorted((*self.assignments, new), key=lambda one: one.commit_ts)))

    def type_of(self, column: str) -> str | None:
        """Return the MySQL type of a column, or of the column that was renamed to it; None if unknown."""
        types = dict(self.types)
        return types.get(column, types.get(self.origin(column)[0]))

    def typed(self, types: Mapping[str, str | None]) -> DDLState:
        """Return the state after columns have got these MySQL types; None for an unknown type."""
        now = {**dict(self.types), **types}
        return replace(self, types=tuple((name, type_) for name, type_ in now.items() if type_ is not None))

    def origin(self, column: str) -> tuple[str, bool]:
        """Return the column of the target with the values of a column, and whether it is new and not filled yet."""
        before: int | None = None
        for one in reversed(self.assignments):
            if one.filled or one.column != column or (before is not None and one.commit_ts >= before):
                continue
            if one.source is None:
                return column, True
            column, before = one.source, one.commit_ts
        return column, False

    def renamed(self, columns: Sequence[str]) -> tuple[str, ...]:
        names = list(columns)
        for commit_ts in sorted({one.commit_ts for one in self.assignments}):
            to = {one.source: one.column for one in self.assignments if one.commit_ts == commit_ts and one.source}
            names = [to.get(name.lower(), name) for name in names]
        return tuple(names)

    # Assignments → expressions

    def on_rows(self, columns: Mapping[str, DataType], row_ts: str, *, time_zone: str = "UTC") -> dict[str, str]:
        """Return what to set in rows of the target that are older than the events: SQL by column."""
        pending = self._pending(columns)
        kept = {name: type_ for name, type_ in columns.items() if name.lower() in {one.column for one in pending}}
        return _expressions(pending, kept, columns, row_ts=row_ts, time_zone=time_zone)

    def misfits_of_rows(self, columns: Mapping[str, DataType], row_columns: Mapping[str, DataType]) -> list[Misfit]:
        """Return the columns of the target whose types do not hold what `on_rows` sets."""
        return _misfits(self._pending(columns), columns, row_columns, "")

    def misfits_of_changes(
        self, columns: Mapping[str, DataType], changes: Mapping[str, DataType], row_ts: str
    ) -> list[Misfit]:
        """Return the columns whose types do not hold what `on_changes` sets; the arguments are the same."""
        return _misfits(self.assignments, columns, changes, row_ts, own=True)

    def wide_enough(self, column: str, type_: DataType, sources: Mapping[str, DataType]) -> DataType | None:
        """Return the narrowest type for a column's values and those that DDL renames to it; None if there is none."""
        given = {name.lower(): one for name, one in sources.items()}
        pieces = _pieces(self.assignments, [column]).get(column, ())
        renamed = [given[what] for _, what in pieces if isinstance(what, str) and what in given]
        wide: DataType | None = type_
        for one in renamed:
            wide = None if wide is None else common_type(wide, one)
        return wide

    def pending_ts(self, columns: Iterable[str]) -> int:
        """Return the commit-ts up to which `on_rows` changes rows; 0 if it changes none."""
        return max((one.commit_ts for one in self._pending(columns)), default=0)

    def filled(self, columns: Iterable[str]) -> DDLState:
        done = self._pending(columns)
        return replace(
            self, assignments=tuple(replace(one, filled=True) if one in done else one for one in self.assignments)
        )

    def _pending(self, columns: Iterable[str]) -> list[Assignment]:
        """Return the assignments that `on_rows` makes now.

        A renamed column that the target lacks gets its values later, and the column of the old name keeps them until
        then. If it was renamed again, to a column that the target has, the values go there at once.
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
                    (one.column not in names and not passes)
                    or (one.column in kept and one.commit_ts >= kept[one.column])
                    or gives in waiting
                ):
                    more.append(one)
            if not more:
                return [one for one in open_ if one not in waiting]
            waiting += more

    def replaced(self, columns: Collection[str], changes: Collection[str]) -> dict[str, str]:
        """Return the columns that the target lacks, and whose old name is now the name of another column.

        By new name, the old one. Older changes have such a column's values under the old name, so the target must have
        the new column.
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
        """Return what to set in changes that are older than the events: SQL by column."""
        pending = self._pending(columns)  # others apply to changes once they apply to rows
        known = [one for one in self.assignments if one.filled or one in pending]
        return _expressions(known, columns, changes, row_ts=row_ts, time_zone=time_zone)


def _expressions(
    assignments: Sequence[Assignment],
    columns: Mapping[str, DataType],
    row_columns: Mapping[str, DataType],
    *,
    row_ts: str,
    time_zone: str,
) -> dict[str, str]:
    names = {name.lower(): name for name in row_columns}
    out = {}
    for column, its in _pieces(assignments, columns).items():
        *values, own = (
            _rendered(what, column, columns[column], names, row_columns, time_zone)
            for what in (*(what for _, what in its), column.lower())
        )
        whens = [f"WHEN {row_ts} <= {bound} THEN {value}" for (bound, _), value in zip(its, values, strict=True)]
        out[column] = f"CASE {' '.join(whens)} ELSE {own} END"
    return out


def _pieces(assignments: Sequence[Assignment], columns: Iterable[str]) -> dict[str, list[tuple[int, str | _Value]]]:
    """Return the values of each column that assignments change: by the last commit-ts of the rows, ascending.

    All rows between the commit-ts of two events are changed alike by later events: a column becomes another column of
    the row, or a value.
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


def _misfits(
    assignments: Sequence[Assignment],
    columns: Mapping[str, DataType],
    row_columns: Mapping[str, DataType],
    row_ts: str,
    *,
    own: bool = False,
) -> list[Misfit]:
    """Return the columns whose types do not hold what `_expressions` sets.

    With `own`, a column must also hold its own values in rows after all events.
    """
    names = {name.lower(): name for name in row_columns}
    found = []
    for column, its in _pieces(assignments, columns).items():
        after, type_ = 0, columns[column]
        ends: list[tuple[int | None, str | _Value]] = [*its, *([(None, column.lower())] if own else [])]
        for bound, what in ends:
            name = names.get(what) if isinstance(what, str) else None
            if name is not None and not _holds(type_, row_columns[name]):
                until = "" if bound is None else f" AND {row_ts} <= {bound}"
                where = f"{row_ts} > {after}{until} AND {quoted(name)} IS NOT NULL"
                found.append(Misfit(column, type_, name, row_columns[name], where))
            after = bound or after
    return found


def _holds(type_: DataType, values: DataType) -> bool:
    return common_type(values, type_) == type_


def _after(bound: int, assignments: Sequence[Assignment]) -> dict[str, str | _Value]:
    """Return the values, after all events, of each column in rows between the event before `bound` and `bound`."""
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
    time_zone: str,
) -> str:
    """Return an expression: NULL for a value that the type does not hold, as `_misfits` refuses it where it matters."""
    null = f"CAST(NULL AS {type_.simpleString()})"
    if isinstance(what, str):
        name = names.get(what)
        if name is None or not _holds(type_, row_columns[name]):
            return null
        same = row_columns[name] == type_
        return quoted(name) if same else f"CAST({quoted(name)} AS {type_.simpleString()})"
    try:
        return literal(what.text, parse_type(what.type), type_, time_zone)
    except ValueError as error:
        warn(f"Rows that are older than the column {column} get NULL in it, because its default {error}")
        return null
