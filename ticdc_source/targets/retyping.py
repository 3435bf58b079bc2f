"""Columns of a target whose type TiDB has changed: they follow the DDL, also where the engine cannot widen them.

The old column moves aside, to a name such as `v__until_467…`, and a new one of the old name gets its values, as far as
TiDB keeps them. A property of the target has each move before it begins, so a move that was interrupted is finished by
the next call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import BooleanType, DataType, DecimalType, DoubleType, NumericType, StringType

from ticdc_source.errors import TargetError
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.ddl_kinds import ddl_kind, is_too_long
from ticdc_source.schema.json_text import loads
from ticdc_source.schema.mysql_ddl.old_rows import (
    Added,
    Renamed,
    Retyped,
    changes_primary_key,
    created_types,
    old_row_changes,
)
from ticdc_source.schema.types import ColumnType, parse_type
from ticdc_source.spark.schema import type_of
from ticdc_source.targets.conversion import Conversion, conversion, renumbered
from ticdc_source.targets.target import CommitFacts, NewColumn, Target, quoted
from ticdc_source.targets.time_text import StatedDigits
from ticdc_source.targets.widening import common_type

__all__ = ["Misfit", "Move", "Retyping", "StatedType", "free_name", "natural_type", "stated_after"]

# Properties of a target.
STATED = "ticdc.ddl_types"
MOVED = "ticdc.moved_columns"
KEY_DROPPED_TS = "ticdc.key_dropped_ts"


@dataclass(frozen=True, slots=True)
class StatedType:
    """The type that the last DDL event of a column states.

    Attributes:
        commit_ts: of the event; 0 if the message has none.
        type: the MySQL type.
    """

    commit_ts: int
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A column that moves aside, and the new one of its name.

    Attributes:
        column: the name.
        aside: the name that the old column gets.
        until: the commit-ts of the event that changed the type.
        type: the type of the new column, as Spark's DDL has it.
        value: the values of the new column, as SQL; None if it begins without any.
        done: whether it is finished.
    """

    column: str
    aside: str
    until: int
    type: str
    value: str | None = None
    done: bool = False


def stated_after(remembered: Mapping[str, str], events: Iterable[DDLEvent]) -> dict[str, StatedType]:
    """Return the types that DDL has stated, by lower-case column name, after more DDL events of a table."""
    stated = {name: StatedType(*one) for name, one in loads(remembered.get(STATED) or "{}").items()}
    for event in events:
        if not event.query or is_too_long(event):
            continue
        try:
            stated |= _stated(event, stated, exists=bool(remembered))
        except ValueError:  # another reader of the text says so
            continue
    return stated


def _stated(event: DDLEvent, before: Mapping[str, StatedType], *, exists: bool) -> dict[str, StatedType]:
    """Return what an event states, without what an event that was later has stated already."""
    commit_ts, kind = event.commit_ts or 0, ddl_kind(event)
    now: dict[str, StatedType] = {}
    if kind == "create_table" and exists:  # the table was there before, with columns of other types
        now = {name: StatedType(commit_ts, str(type_)) for name, type_ in created_types(event).items()}
    elif kind == "alter_table":
        changes = old_row_changes(event)
        for change in changes:
            if isinstance(change, Renamed) and change.column in before:
                now[change.to] = replace(before[change.column], commit_ts=commit_ts)
        for change in changes:
            if isinstance(change, (Added, Retyped)):
                now[change.column] = StatedType(commit_ts, str(change.type))
    return {name: one for name, one in now.items() if name not in before or before[name].commit_ts <= commit_ts}


@dataclass(frozen=True, slots=True)
class Relabelled:
    """A column of ENUM or SET whose labels have another order from an event on.

    Attributes:
        commit_ts: of the event.
        column: the column, in lower case.
        old: its type before.
        new: its type now.
    """

    commit_ts: int
    column: str
    old: ColumnType
    new: ColumnType


def _relabelled(remembered: Mapping[str, str], events: Sequence[DDLEvent]) -> list[Relabelled]:
    """Return the columns whose labels DDL events reorder, as far as DDL has told the labels before."""
    found = []
    for number, event in enumerate(events):
        before = stated_after(remembered, events[:number])
        for change in _retyped(event):
            stated = before.get(change.column)
            if stated is None or event.commit_ts is None or event.commit_ts <= stated.commit_ts:
                continue
            old, new = parse_type(stated.type), change.type
            known = bool(old.labels and new.labels) and old.name == new.name
            if known and (new.labels or ())[: len(old.labels or ())] != old.labels:
                found.append(Relabelled(event.commit_ts, change.column, old, new))
    return found


def _retyped(event: DDLEvent) -> list[Retyped]:
    """Return the columns that an event gives another type and no other name."""
    if ddl_kind(event) != "alter_table" or not event.query or is_too_long(event):
        return []
    try:
        changes = old_row_changes(event)
    except ValueError:  # another reader of the text says so
        return []
    names = {change.to for change in changes if isinstance(change, Renamed)}
    return [change for change in changes if isinstance(change, Retyped) and change.column not in names]


def _key_dropped(remembered: Mapping[str, str], events: Iterable[DDLEvent]) -> int | None:
    """Return the commit-ts of the last event that dropped the primary key; 0 if it has been added again."""
    before = remembered.get(KEY_DROPPED_TS)
    dropped = None if before is None else int(before)
    for event in events:
        if not event.query or is_too_long(event):
            continue
        try:
            has_one = changes_primary_key(event)
        except ValueError:  # another reader of the text says so
            continue
        if has_one is not None:
            dropped = 0 if has_one else event.commit_ts or 1
    return dropped


def natural_type(target: Target, mysql_type: str) -> DataType | None:
    """Return the type in which a target has the values of a MySQL type; None if they cannot be read."""
    type_ = parse_type(mysql_type)
    return target.stored(type_of(type_.arrow)) if type_.is_supported else None


@dataclass(frozen=True, slots=True)
class Cast:
    """What becomes of the values that changes have in a column: those of the type that the target has."""

    old: DataType
    new: DataType
    old_mysql: ColumnType | None
    new_mysql: ColumnType | None

    def of(self, column: str) -> Conversion:
        """Return the conversion of a column, given as SQL."""
        return conversion(column, self.old, self.new, self.old_mysql, self.new_mysql)

    @property
    def always_fits(self) -> bool:
        """Whether numbers stand for all values: for labels, or for a BIT of one bit."""
        labels = self.old_mysql is not None and bool(self.old_mysql.labels)
        return isinstance(self.new, NumericType) and (labels or isinstance(self.old, BooleanType))


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """A column whose type in a target does not hold the values of the changes.

    Attributes:
        column: the column, as the target calls it.
        old: its type in the target.
        new: its type in the changes, as the target stores it.
        old_mysql: the MySQL type of the rows that the target has; None if it is not known.
        new_mysql: the MySQL type in the changes.
    """

    column: str
    old: DataType
    new: DataType
    old_mysql: ColumnType | None = None
    new_mysql: ColumnType | None = None

    @classmethod
    def of(cls, column: str, types: tuple[DataType, DataType], mysql_types: tuple[str | None, str | None]) -> Misfit:
        """Return a misfit of a column, by the old and the new type, and their MySQL types as texts."""
        old_mysql, new_mysql = (parse_type(text) if text else None for text in mysql_types)
        return cls(column=column, old=types[0], new=types[1], old_mysql=old_mysql, new_mysql=new_mysql)

    @property
    def cast(self) -> Cast:
        """What makes values of the changes those of the target."""
        return Cast(self.new, self.old, self.new_mysql, self.old_mysql)


@dataclass(slots=True)
class Retyping:
    """What one call does about columns whose type in the target is another one than in the changes.

    Attributes:
        target: the target.
        stated: the types that DDL has stated.
        moves: what has moved aside, before this call and in it.
        casts: by lower-case name, the columns of the changes that become what the target has.
        key_dropped_ts: the commit-ts of the event that dropped the primary key; None if it has one, or never had.
        relabelled: the columns whose labels the DDL of this call reorders.
        kept: the columns that move with their values in this call, each with the condition that its value can.
    """

    target: Target
    stated: Mapping[str, StatedType]
    moves: list[Move] = field(default_factory=list)
    casts: dict[str, Cast] = field(default_factory=dict)
    key_dropped_ts: int | None = None
    relabelled: Sequence[Relabelled] = ()
    kept: list[tuple[Misfit, str]] = field(default_factory=list)

    @classmethod
    def of(cls, target: Target, remembered: Mapping[str, str], events: Sequence[DDLEvent]) -> Retyping:
        """Return what is known before anything is planned; moves that were interrupted are finished."""
        moves = [Move(**one) for one in loads(remembered.get(MOVED) or "[]")]
        retyping = cls(
            target,
            stated_after(remembered, events),
            moves,
            key_dropped_ts=_key_dropped(remembered, events),
            relabelled=_relabelled(remembered, events),
        )
        retyping.carry_out()
        return retyping

    def as_properties(self) -> dict[str, str]:
        """Return the properties that remember it."""
        stated = {name: [one.commit_ts, one.type] for name, one in self.stated.items()}
        properties = {STATED: json.dumps(stated, separators=(",", ":"))} if stated else {}
        properties |= {} if self.key_dropped_ts is None else {KEY_DROPPED_TS: str(self.key_dropped_ts)}
        return properties | ({MOVED: _as_text(self.moves)} if self.moves else {})

    def digits(self) -> dict[str, StatedDigits]:
        """Return the digits of a second that DDL has stated for TIME columns, by lower-case name."""
        types = {name: (one.commit_ts, parse_type(one.type)) for name, one in self.stated.items()}
        return {name: StatedDigits(commit_ts, type_.length or 0)
                for name, (commit_ts, type_) in types.items() if type_.name == "time"}  # fmt: skip

    def stated_by(self, events: Iterable[DDLEvent]) -> set[str]:
        """Return the columns, in lower case, whose types these DDL events state."""
        moments = {event.commit_ts or 0 for event in events}
        return {name for name, one in self.stated.items() if one.commit_ts in moments}

    def moved(self) -> dict[str, list[tuple[int, str]]]:
        """Return the columns that moved aside and left no values: by lower-case name, until when, and the new name."""
        aside: dict[str, list[tuple[int, str]]] = {}
        for move in sorted(self.moves, key=lambda one: one.until):
            if move.value is None:
                aside.setdefault(move.column.lower(), []).append((move.until, move.aside))
        return aside

    def knows(self, misfit: Misfit) -> bool:
        """Return whether `fit` can decide about a column: DDL has stated its type, or numbers stand for its values."""
        return misfit.cast.always_fits or misfit.column.lower() in self.stated

    def fit(self, misfit: Misfit, names: Iterable[str], *, keeps: bool) -> DataType:
        """Decide about a column: the changes become what the target has, or the target's column moves.

        Args:
            misfit: the column.
            names: the names of all columns of the target.
            keeps: whether rows of the target keep their values, as the other type: `check_rows` checks that they can.

        Returns:
            The type that the target will have.
        """
        column, old, new = misfit.column, misfit.old, misfit.new
        cast = misfit.cast
        if cast.always_fits:
            self.casts[column.lower()] = cast
            return old
        stated = self.stated[column.lower()]
        begun = natural_type(self.target, stated.type)
        # Changes from both sides of the event are text, and those from before it are of the old type.
        if not _is_kind_of(new, begun) and (_is_kind_of(old, begun) or not isinstance(new, StringType)):
            self.casts[column.lower()] = cast
            return old
        self._move(misfit, stated, {name.lower() for name in names}, keeps=keeps)
        return new

    def _move(self, misfit: Misfit, stated: StatedType, taken: set[str], *, keeps: bool) -> None:
        aside = free_name(f"{misfit.column}__until_{stated.commit_ts}", taken)
        types = (misfit.old, misfit.new, misfit.old_mysql, misfit.new_mysql)
        value = None
        if keeps:
            kept = conversion(quoted(aside), *types)
            value = f"CASE WHEN {kept.exact} THEN {kept.value} END"
            self.kept.append((misfit, conversion(quoted(misfit.column), *types).exact))
        type_ = misfit.new.simpleString()
        self.moves.append(Move(column=misfit.column, aside=aside, until=stated.commit_ts, type=type_, value=value))

    def check_rows(self, rows: Callable[[], DataFrame]) -> None:
        """Check, in one pass, that the values of columns that move can become those of the new type.

        Args:
            rows: returns the rows that keep their values.

        Raises:
            TargetError: only TiDB knows what a value becomes.
        """
        if not self.kept:
            return
        lost = [
            F.first(F.when(F.expr(f"NOT ({exact})"), F.col(quoted(misfit.column)).cast("string")), ignorenulls=True)
            for misfit, exact in self.kept
        ]
        found = rows().agg(*(column.alias(f"lost{number}") for number, column in enumerate(lost))).collect()[0]
        for (misfit, _), value in zip(self.kept, found, strict=True):
            if value is not None:
                msg = (
                    f"DDL made column {misfit.column} {self.stated[misfit.column.lower()].type}, and rows of "
                    f"{self.target.name} have values such as {value[:50]!r} in it, of which only TiDB knows what they "
                    f"are as {misfit.new.simpleString()}. Set them to what TiDB has now, or to NULL, and start again; "
                    "or write into another target, from a new snapshot"
                )
                raise TargetError(msg)

    def check_changes(self, rows: DataFrame, columns: Mapping[str, str]) -> None:
        """Check that the target's types hold the values of changes that become values of them.

        Args:
            rows: the changes that count.
            columns: what each column of the table is called in them.

        Raises:
            TargetError: they do not.
        """
        for name, column in columns.items():
            cast = self.casts.get(name.lower())
            lost = None if cast is None else rows.where(f"NOT ({cast.of(quoted(column)).exact})").head(1)
            if cast is not None and lost:
                msg = (
                    f"Column {name} is {cast.new.simpleString()} in {self.target.name}, as DDL made it, and changes "
                    f"from before have values such as {str(lost[0][column])[:50]!r}, of which only TiDB knows what "
                    "they are now. Read the table from a new snapshot into another target"
                )
                raise TargetError(msg)

    def check_numbers(self, rows: Callable[[], DataFrame], row_ts: str) -> None:
        """Check that numbers of labels in the target have labels now.

        Args:
            rows: returns the rows that keep their values.
            row_ts: the expression of a row's commit-ts.

        Raises:
            TargetError: one has none.
        """
        for one, column in self._numbers():
            exact = renumbered(quoted(column), one.old, one.new).exact
            where = f"{row_ts} <= {one.commit_ts} AND NOT coalesce({exact}, true)"
            lost = rows().where(where).select(quoted(column)).head(1)
            if lost:
                msg = (
                    f"DDL made column {column} {one.new}, and rows of {self.target.name} have the number {lost[0][0]} "
                    f"of {one.old}, whose label is gone. Set it to the number that TiDB has now, or to NULL, and start "
                    "again"
                )
                raise TargetError(msg)

    def renumber(self, row_ts: str, facts: CommitFacts) -> None:
        """Set the numbers of labels that DDL has reordered, in rows that are older than it; once.

        Args:
            row_ts: the expression of a row's commit-ts.
            facts: the facts of the micro-batch.
        """
        for one, column in self._numbers():
            writer = f"{facts.app_id or ''}#labels-{one.commit_ts}-{one.column}"
            if any(commit.facts.app_id == writer for commit in self.target.commits()):
                continue
            value = renumbered(quoted(column), one.old, one.new).value
            where = f"{row_ts} <= {one.commit_ts} AND {quoted(column)} IS NOT NULL"
            self.target.update_rows({column: value}, where, CommitFacts(app_id=writer))

    def _numbers(self) -> list[tuple[Relabelled, str]]:
        """Return the columns of the target that have numbers of labels with another order now."""
        if not self.relabelled:
            return []
        columns = {name.lower(): (name, type_) for name, type_ in self.target.columns().items()}
        there = [(one, *columns[one.column]) for one in self.relabelled if one.column in columns]
        return [(one, name) for one, name, type_ in there if isinstance(type_, NumericType)]

    def conversions(self, columns: Mapping[str, str]) -> dict[str, Column]:
        """Return what changes become, by what each column of the table is called in them."""
        casts = {column: self.casts.get(name.lower()) for name, column in columns.items()}
        return {column: F.expr(cast.of(quoted(column)).value) for column, cast in casts.items() if cast is not None}

    def carry_out(self) -> None:
        """Move what has not moved yet. Each step does nothing the second time."""
        waiting = [move for move in self.moves if not move.done]
        if not waiting:
            return
        self.target.set_properties({MOVED: _as_text(self.moves)})
        names = {name.lower() for name in self.target.columns()}
        for move in waiting:
            if move.aside.lower() not in names:
                self.target.rename_column(move.column, move.aside)
                names.discard(move.column.lower())
        new = [NewColumn(move.column, _spark_type(move.type)) for move in waiting if move.column.lower() not in names]
        if new:
            self.target.add_columns(new)
        values = {move.column: move.value for move in waiting if move.value is not None}
        if values:
            where = " OR ".join(f"{quoted(move.aside)} IS NOT NULL" for move in waiting if move.value is not None)
            self.target.update_rows(values, where, CommitFacts())
        self.moves = [replace(move, done=True) for move in self.moves]
        self.target.set_properties({MOVED: _as_text(self.moves)})


def free_name(name: str, taken: Collection[str]) -> str:
    """Return a name that no column has; with a number behind it, if one does.

    Args:
        name: the name.
        taken: the names of columns, in lower case.
    """
    number, free = 2, name
    while free.lower() in taken:
        free, number = f"{name}_{number}", number + 1
    return free


def _as_text(moves: Sequence[Move]) -> str:
    return json.dumps([asdict(move) for move in moves], separators=(",", ":"))


def _spark_type(text: str) -> DataType:
    return DataType.fromDDL(text)


def _is_kind_of(type_: DataType, natural: DataType | None) -> bool:
    """Return whether values of a type that DDL states are read as this type; a DECIMAL may come as a double."""
    if natural is None:
        return True
    as_double = isinstance(natural, DecimalType) and isinstance(type_, DoubleType)
    return as_double or common_type(type_, natural) is not None
