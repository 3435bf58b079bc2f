"""The types that a table's columns have had: DDL events in the order of their commit-ts."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from ticdc_source.events import DDLEvent, TableName
from ticdc_source.schema.model import TypeVersions
from ticdc_source.schema.mysql_ddl.statements import (
    Add,
    Create,
    Drop,
    DropTable,
    Forget,
    Like,
    Rename,
    RenameTable,
    Step,
    steps,
)
from ticdc_source.schema.types import TYPES, ColumnType

__all__ = ["versions_of", "versions_of_tables"]

_log = logging.getLogger(__name__)
_Key = tuple[str, str]


@dataclass(slots=True)
class _History:
    """The types of one table's columns, by lower-case column name.

    Attributes:
        columns: the present types.
        versions: all types so far, each with the commit-ts after which it began.
    """

    columns: dict[str, ColumnType] = field(default_factory=dict)
    versions: dict[str, list[tuple[int, ColumnType]]] = field(default_factory=dict)

    def set(self, column: str, type_: ColumnType, commit_ts: int, *, new: bool) -> None:
        """Set a column's type. A new column has no older rows, so rows with the DDL's own commit-ts have its type."""
        if type_.name not in TYPES:
            self.drop(column)
            return
        self.columns[column] = type_
        versions = self.versions.setdefault(column, [])
        if not versions:
            versions.append((commit_ts - 1 if new else commit_ts, type_))
        elif versions[-1][1] != type_:
            versions.append((commit_ts, type_))

    def drop(self, column: str) -> None:
        """End a column; its old rows keep their types."""
        self.columns.pop(column, None)


def _key(table: TableName) -> _Key:
    return table.database.lower(), table.table.lower()


class _Histories:
    """The histories of all tables."""

    def __init__(self) -> None:
        self._tables: dict[_Key, _History] = {}

    def of(self, table: TableName) -> _History:
        return self._tables.setdefault(_key(table), _History())

    def take(self, step: Step, commit_ts: int) -> None:
        history = self.of(step.table)
        match step:
            case Create(_, columns):
                self._begin(history, columns, commit_ts)
            case Like(_, source):
                columns = dict(self.of(source).columns)
                if columns:
                    self._begin(history, columns, commit_ts)
                else:
                    self.forget(step.table)
            case Add(_, column, type_, new):
                history.set(column, type_, commit_ts, new=new)
            case Drop(_, column):
                history.drop(column)
            case Rename(_, column, to):
                renamed = history.columns.pop(column, None)
                if renamed is not None:
                    history.set(to, renamed, commit_ts, new=True)
                else:
                    history.versions.pop(to, None)
            case RenameTable(_, to):
                if not history.columns:
                    self.forget(to)
                else:
                    self._begin(self.of(to), dict(history.columns), commit_ts)
                    history.columns.clear()
            case DropTable():
                history.columns.clear()
            case Forget():
                self.forget(step.table)

    @staticmethod
    def _begin(history: _History, columns: dict[str, ColumnType], commit_ts: int) -> None:
        history.columns.clear()
        for column, type_ in columns.items():
            history.set(column, type_, commit_ts, new=True)

    def forget(self, table: TableName) -> None:
        self._tables.pop(_key(table), None)

    def versions(self) -> dict[TableName, dict[str, TypeVersions]]:
        return {
            TableName(*key): {name: tuple(versions) for name, versions in history.versions.items()}
            for key, history in self._tables.items()
        }


def versions_of(events: Iterable[DDLEvent], table: TableName) -> dict[str, TypeVersions]:
    """Return, by lower-case name, the types that DDL texts gave a table's columns: (commit_ts, type), oldest first.

    A row has the last type whose commit_ts is below its own: a row with the commit-ts of a DDL belongs to the schema
    before it (docs/wire.md, item 31). TiCDC may send a DDL more than once; it counts once. A text that cannot be parsed
    is skipped and logged. It may have changed the table, so all types of its table so far are dropped with it.

    Raises:
        OptionError: sqlglot is not installed.
    """
    return versions_of_tables(events).get(TableName(*_key(table)), {})


def versions_of_tables(events: Iterable[DDLEvent]) -> dict[TableName, dict[str, TypeVersions]]:
    """Return what `versions_of` returns for each table that DDL texts name; names of tables are in lower case.

    Raises:
        OptionError: sqlglot is not installed.
    """
    histories = _Histories()
    once = {(event.commit_ts or 0, event.query, event.table): event for event in events if event.query}
    for event in sorted(once.values(), key=lambda event: event.commit_ts or 0):
        try:
            found = steps(event.query, event.table.database)
        except ValueError as error:
            _log.warning("A DDL text of %s is passed over: %s: %.200s", event.table, error, event.query)
            histories.forget(event.table)
            continue
        for step in found:
            histories.take(_routed(step, event.table), event.commit_ts or 0)
    return histories.versions()


def _routed(step: Step, table: TableName) -> Step:
    """Return a step with the table that its event names: the text may lack the database."""
    if isinstance(step, (RenameTable, DropTable)) or not table.table:
        return step
    return step._replace(table=table)
