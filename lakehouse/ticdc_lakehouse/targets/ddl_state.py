"""What DDL events do to a target table: TiCDC sends no row events for what they do to rows that exist.

A row of a target knows the commit-ts of its image (`_sequence.commit_ts`). A row up to the commit-ts of a DDL event
belongs to the schema before it (docs/wire.md, item 31), whenever it arrives: rows of other partitions may come later
than the event. So what an event does to rows is kept as *assignments* in the properties of the target. They are made
once for the rows that the target has, and again for each older row that a later micro-batch brings.

An assignment gives a column of older rows a value, or the values of another column. A target gets a renamed column as
soon as it has the old one, so whatever can be assigned is assigned at once. Nothing here asks Spark for anything:
plans are values, and expressions are texts of Spark SQL.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from pyspark.sql.types import DataType, StructField

from ticdc_lakehouse.common.errors import TargetError
from ticdc_lakehouse.targets.literals import literal
from ticdc_lakehouse.targets.target_names import quoted
from ticdc_lakehouse.targets.widening import common_type, holds_all
from ticdc_source.developer_api import MYSQL_TYPE, TABLE, DDLEvent, loads, parse_type, warn

# Properties of a target.
COLUMN_DEFAULTS = "ticdc.column_defaults"
COLUMN_TYPES = "ticdc.column_types"
TRUNCATED_TS = "ticdc.truncated_ts"
HANDLED_TS = "ticdc.handled_ddl_ts"
RENAMED_TS = "ticdc.renamed_ts"
KEY_DROPPED_TS = "ticdc.key_dropped_ts"
ALTERED = "ticdc.altered"
_PLACES = "ticdc.ddl_places"


@dataclass(frozen=True, slots=True)
class DDLPlaces:
    """The DDL events of a table that only their places order: the commit-ts, topic partition and offset of each."""

    known: tuple[tuple[int, int, int], ...] = ()

    @classmethod
    def of_properties(cls, properties: Mapping[str, str]) -> DDLPlaces:
        return cls(tuple((ts, partition, offset) for ts, partition, offset in loads(properties.get(_PLACES, "[]"))))

    def as_properties(self) -> dict[str, str]:
        return {_PLACES: _as_json(self.known)} if self.known else {}

    def after(self, events: Sequence[DDLEvent]) -> DDLPlaces:
        new = {(one.commit_ts, *one.place) for one in events if one.place is not None and one.commit_ts is not None}
        return DDLPlaces(tuple(sorted({*self.known, *new})))

    def since(self, commit_ts: int) -> DDLPlaces:
        return DDLPlaces(tuple(one for one in self.known if one[0] >> 18 >= commit_ts >> 18))

    def numbered(self, event: DDLEvent) -> DDLEvent:
        """Return an event with the number of the events before it in its commit-ts."""
        if event.place is None or event.commit_ts is None:
            return event
        place = (event.commit_ts, *event.place)
        before = sum(one[0] == event.commit_ts and one < place for one in self.known)
        return replace(event, commit_ts=event.commit_ts + before)

    def row_ts(self, sequence: str) -> str:
        """Return the expression of the commit-ts of rows, with the number of the events before each.

        Args:
            sequence: the column with the place of a row's last change.
        """
        column = quoted(sequence)
        terms: dict[int, list[str]] = {}
        for ts, partition, offset in self.known:
            same = f"{column}.partition = {partition} AND {column}.offset > {offset}"
            terms.setdefault(ts, []).append(f"CAST({column}.partition > {partition} OR ({same}) AS INT)")
        if not terms:
            return f"{column}.commit_ts"
        whens = " ".join(f"WHEN {ts} THEN {' + '.join(each)}" for ts, each in terms.items())
        return f"({column}.commit_ts + CASE {column}.commit_ts {whens} ELSE 0 END)"


NO_PLACES = DDLPlaces()


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What the rows up to a commit-ts have in a column.

    Attributes:
        commit_ts: the commit-ts of the DDL event.
        column: the column, in lower case.
        name: the column as the event writes it, if that is not in lower case.
        source: the column that this one was before the event renamed it; None for a new column.
        value: the value that a new column has, as MySQL writes it; None for NULL.
        type: the MySQL type of a new column.
        filled: whether the rows of the target have it.
    """

    commit_ts: int
    column: str
    name: str = ""
    source: str | None = None
    value: str | None = None
    type: str = ""
    filled: bool = False


def types_as_property(
    before: Mapping[str, str], columns: Iterable[StructField] = (), undecided: Collection[str] = ()
) -> dict[str, str]:
    """Return the property with the MySQL types of all columns, as far as DDL and field metadata have told them.

    Only DDL narrows a type: a change that comes before its MODIFY says nothing of the rows that have the wider one.
    """
    types = dict(before)
    for one in columns:
        now, old = (one.metadata or {}).get(MYSQL_TYPE), types.get(one.name.lower())
        if now is None or one.name in undecided:
            continue
        if old is None or not holds_all(parse_type(old), parse_type(str(now))):
            types[one.name.lower()] = str(now)
    return {COLUMN_TYPES: _as_json(types)} if types else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class DDLState:
    """What DDL events have done to a target so far.

    Attributes:
        assignments: by commit-ts.
        truncated_ts: the largest commit-ts of an event that emptied the table; rows up to it are not in the table.
        handled_ts: the commit-ts up to which somebody has done by hand what an event does to rows.
        table: the table of which the target has the rows; "" if that is not known.
        renamed_ts: the commit-ts of the last event that renamed the table, after which somebody renamed the target.
        types: the MySQL types of the columns, by lower-case name: as DDL has made them, and at least as wide as changes
            had them.
        places: the places of the events that have a time for a commit-ts.
        key_dropped_ts: the commit-ts of the event that dropped the primary key; 0 if the table has one again, and None
            if it never lost it.
        altered: the commit-ts of each ALTER TABLE since the target exists: TiCDC may send it again.
    """

    assignments: tuple[Assignment, ...] = ()
    truncated_ts: int | None = None
    handled_ts: int = 0
    table: str = ""
    renamed_ts: int = 0
    types: Mapping[str, str] = field(default_factory=dict)
    places: DDLPlaces = NO_PLACES
    key_dropped_ts: int | None = None
    altered: tuple[int, ...] = ()

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
                if one.commit_ts > (truncated_ts or 0)  # a property stays as it was before the rows went
            ),
            truncated_ts=truncated_ts,
            handled_ts=handled_ts,
            table=properties.get(TABLE, ""),
            renamed_ts=int(properties.get(RENAMED_TS) or 0),
            types=loads(properties.get(COLUMN_TYPES) or "{}"),
            places=DDLPlaces.of_properties(properties),
            key_dropped_ts=None if key_dropped is None else int(key_dropped),
            altered=tuple(loads(properties.get(ALTERED) or "[]")),
        )

    def as_properties(self) -> dict[str, str]:
        """Return the properties that hold the state; `HANDLED_TS` is the user's own."""
        kept = [{name: value for name, value in asdict(one).items() if value} for one in self.assignments]
        properties = {COLUMN_DEFAULTS: _as_json(kept)} if kept else {}
        properties |= {TABLE: self.table} if self.table else {}
        properties |= {RENAMED_TS: str(self.renamed_ts)} if self.renamed_ts else {}
        properties |= {ALTERED: _as_json(self.altered)} if self.altered else {}
        properties |= {} if self.key_dropped_ts is None else {KEY_DROPPED_TS: str(self.key_dropped_ts)}
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
        truncated = max(commit_ts, self.truncated_ts or 0)
        return replace(
            self,
            truncated_ts=truncated,
            assignments=tuple(one for one in self.assignments if one.commit_ts > truncated),
            places=self.places.since(truncated),
        )

    def assigned(self, new: Assignment) -> DDLState:
        """Return the state with one more assignment, unless it is known or there are no rows before it.

        The rows of the target have what a later event gave them, and what somebody has done by hand.
        """
        repeated = any((one.commit_ts, one.column) == (new.commit_ts, new.column) for one in self.assignments)
        if repeated or new.commit_ts <= (self.truncated_ts or 0):
            return self
        later = any(one.column == new.column and one.commit_ts > new.commit_ts for one in self.assignments)
        new = replace(new, filled=later or new.commit_ts == self.handled_ts)
        return replace(self, assignments=tuple(sorted((*self.assignments, new), key=lambda one: one.commit_ts)))

    def typed(self, types: Mapping[str, str | None]) -> DDLState:
        """Return the state after columns have got these MySQL types; None if nobody knows the type."""
        now = {**self.types, **types}
        return replace(self, types={name: type_ for name, type_ in now.items() if type_ is not None})

    def renamed(self, columns: Sequence[str]) -> tuple[str, ...]:
        names = list(columns)
        for commit_ts in sorted({one.commit_ts for one in self.assignments}):
            to = {one.source: one.column for one in self.assignments if one.commit_ts == commit_ts and one.source}
            names = [to.get(name.lower(), name) for name in names]
        return tuple(names)

    @property
    def pending(self) -> DDLState:
        """What is still to be done to the rows of the target."""
        return replace(self, assignments=tuple(one for one in self.assignments if not one.filled))

    def filled(self, columns: Iterable[str]) -> DDLState:
        """Return the state after these columns of the target have got their values."""
        names = {name.lower() for name in columns}
        return replace(self, assignments=tuple(
            replace(one, filled=one.filled or one.column in names) for one in self.assignments
        ))  # fmt: skip

    def with_renamed(
        self, columns: Mapping[str, DataType], has_older: Callable[[int], bool] = lambda _: False
    ) -> dict[str, DataType]:
        """Return columns and those that DDL has renamed them to, each as wide as what rows had under both names.

        Args:
            columns: the types by lower-case name.
            has_older: whether there are rows up to a commit-ts.

        Raises:
            TargetError: no type holds what both columns have.
        """
        types = dict(columns)
        for one in self.assignments:
            source = None if one.source is None else types.get(one.source)
            if source is None:
                continue
            own = types.get(one.column, source)
            wide = common_type(own, source)
            if wide is None and has_older(one.commit_ts):
                msg = (
                    f"DDL gave column {one.source} the name {one.column}, and {one.column}, which is "
                    f"{own.simpleString()}, does not hold the {source.simpleString()} values of {one.source}: only "
                    "TiDB knows what they are now. Read the table again from TiDB, as a sync does with heal = true"
                )
                raise TargetError(msg)
            types[one.column] = wide or own
        return types

    def expressions(
        self,
        columns: Mapping[str, DataType],
        row_columns: Mapping[str, DataType],
        row_ts: str,
        *,
        time_zone: str = "UTC",
    ) -> dict[str, str]:
        """Return the expression of each of `columns` that has other values in rows that are older than events.

        Args:
            row_columns: the columns that the rows have.
            row_ts: the expression of a row's commit-ts.
            time_zone: the zone of a TIMESTAMP's default.
        """
        names = {name.lower(): name for name in row_columns}

        def of_column(name: str, type_: DataType) -> str:
            own = names.get(name)
            if own is None or common_type(row_columns[own], type_) != type_:  # then no row has it (`with_renamed`)
                return f"CAST(NULL AS {type_.simpleString()})"
            return quoted(own) if row_columns[own] == type_ else f"CAST({quoted(own)} AS {type_.simpleString()})"

        found = {}
        for column, type_ in columns.items():
            whens = [
                f"WHEN {row_ts} <= {one.commit_ts} THEN "
                + (of_column(one.source, type_) if one.source else _value(one, type_, time_zone))
                for one in self._line_of(column.lower())
            ]
            if whens:
                found[column] = f"CASE {' '.join(reversed(whens))} ELSE {of_column(column.lower(), type_)} END"
        return found

    def _line_of(self, column: str) -> Iterator[Assignment]:
        """Yield what a column was before, newest first: other columns, up to one that began with a value."""
        before: int | None = None
        for one in reversed(self.assignments):
            if one.column == column and (before is None or one.commit_ts < before):
                yield one
                if one.source is None:
                    return
                column, before = one.source, one.commit_ts


def _value(one: Assignment, type_: DataType, time_zone: str) -> str:
    try:
        return literal(one.value, parse_type(one.type), type_, time_zone)
    except ValueError as error:
        warn(f"Column {one.column}: rows that are older than the column get NULL: the default {error}")
        return f"CAST(NULL AS {type_.simpleString()})"


def _as_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
