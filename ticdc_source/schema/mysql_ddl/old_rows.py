"""What a DDL statement does to existing rows, for which TiCDC sends no events (docs/wire.md, item 102).

Each function raises a ValueError if the text cannot be parsed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.mysql_ddl.statements import (
    AddKey,
    Change,
    Create,
    Define,
    Drop,
    DropKey,
    Rename,
    RenameTable,
    Step,
    steps,
)
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import ColumnType


@dataclass(frozen=True, slots=True)
class Added:
    """A column is added, and existing rows get a value.

    Attributes:
        value: the value, as MySQL writes it without quotes; None for NULL.
        unknown: why the value is unknown, with `value` None; "" otherwise.
    """

    column: str
    type: ColumnType
    value: str | None = None
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A column is dropped."""

    column: str


@dataclass(frozen=True, slots=True)
class Renamed:
    """A column is renamed, and keeps its values."""

    column: str
    to: str


@dataclass(frozen=True, slots=True)
class Retyped:
    """A column gets another type, and TiDB converts its values."""

    column: str
    type: ColumnType


_ZERO = {
    "number": "0", "float": "0", "bit": "0", "text": "", "binary": "", "set": "", "json": "null", "time": "00:00:00",
}  # fmt: skip
_DATES = frozenset({"date", "datetime", "timestamp"})  # families with a zero date as zero value


def old_row_changes(event: DDLEvent) -> list[Added | Dropped | Renamed | Retyped]:
    """Return what a DDL event does to the columns of existing rows, in the statement's order."""
    return list(_changes(steps(event.query, event.table.database)))


def created_columns(event: DDLEvent) -> Mapping[str, ColumnType]:
    """Return the columns of a CREATE TABLE, by lower-case name; empty for another statement."""
    created = (step for step in steps(event.query, event.table.database) if isinstance(step, Create))
    return next((step.columns for step in created if step.table.is_same(event.table)), {})


def name_before(event: DDLEvent, table: TableName) -> TableName | None:
    """Return a table's name before a DDL event that renamed it to this; None for other events."""
    renames = steps(event.query, event.table.database)
    return next((step.table for step in renames if isinstance(step, RenameTable) and step.to.is_same(table)), None)


def renamed_tables(event: DDLEvent) -> list[TableName]:
    """Return the former names of the tables that a DDL event renames."""
    return [step.table for step in steps(event.query, event.table.database) if isinstance(step, RenameTable)]


def changes_primary_key(event: DDLEvent) -> bool | None:
    """Whether the table has a primary key after a DDL event that adds or drops one; None for other events."""
    has_one = None
    for step in steps(event.query, event.table.database):
        if isinstance(step, DropKey) and step.primary:
            has_one = False
        elif isinstance(step, AddKey) and step.key.primary:
            has_one = True
    return has_one


def _changes(statement: Sequence[Step]) -> Iterator[Added | Dropped | Renamed | Retyped]:
    for step in statement:
        match step:
            case Define():
                yield _added(step)
            case Change(_, column, to, type_):
                yield Retyped(to, type_)
                if column != to:
                    yield Renamed(column, to)
            case Drop(_, column):
                yield Dropped(column)
            case Rename(_, column, to):
                yield Renamed(column, to)


def _added(new: Define) -> Added:
    """Return the value of a new column: its default, or for NOT NULL without one the type's zero value.

    Source: pingcap/tidb, `generateOriginDefaultValue` in pkg/ddl.
    """
    column, type_, default = new.column, new.type, new.default
    nullable = new.facts.nullable is not False
    if new.facts.generated:
        return Added(column, type_, unknown="it is a generated column")
    if default is not None and default.unknown:
        return Added(column, type_, unknown=f"its default is {default.unknown}")
    if default is not None and (default.literal is not None or nullable):
        return Added(column, type_, default.literal)
    if nullable or type_.family in _DATES:
        return Added(column, type_)
    zero = (type_.labels or (None,))[0] if type_.family == "enum" else _ZERO.get(type_.family)
    return Added(column, type_, zero, "" if zero is not None else "it has no default and must not be NULL")
