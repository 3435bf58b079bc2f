"""What DDL adds to a sample: `tableDDL`, and the texts of the DDL events in it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from ticdc_source.declared import as_declared
from ticdc_source.errors import OptionError, SchemaError
from ticdc_source.events import DDLEvent, TableName
from ticdc_source.schema import Column, TableSchema, TypeVersions
from ticdc_source.table_ddl import available, declared_tables, versions_of
from ticdc_source.types import ColumnType

__all__ = ["as_the_user_declares", "check_table_ddl", "could_tell", "types_of_texts"]

_log = logging.getLogger(__name__)
_NUMBERED = frozenset({"enum", "set"})


def could_tell(columns: Iterable[Column]) -> bool:
    """Tell whether messages leave something open that a `CREATE TABLE` would say."""
    return any(
        column.type is None
        or column.type.is_unspecified
        or (column.type.family in _NUMBERED and column.type.labels is None)
        or (column.type.name == "bit" and column.type.length is None)
        for column in columns
    )


def types_of_texts(ddl: Iterable[DDLEvent], table: TableName, *, whole: bool) -> Mapping[str, TypeVersions]:
    """Return the types that DDL events gave a table's columns, as far as they are sure.

    `whole` says whether the sample has every DDL event of the range. Where it does not, none of them tells a type: an
    `ALTER` in between may have changed it, and a number would be read as the wrong label.
    """
    ddl = [event for event in ddl if event.query]
    if not ddl:
        return {}
    if not available():
        _log.info("DDL events in the topic may tell types that the messages of %s lack: pip install sqlglot", table)
        return {}
    if not whole:
        _log.info(
            "DDL events of %s are not used for types, as not all of the range could be looked at for them: "
            "inferSchema.maxScannedRecords and inferSchema.timeoutMs say how far, tableDDL gives the types",
            table,
        )
        return {}
    return versions_of(ddl, table)


def check_table_ddl(text: str | None) -> None:
    """Check the option `tableDDL`.

    Raises:
        OptionError: it is no `CREATE TABLE`, or sqlglot is not installed.
    """
    if text:
        declared_tables(text)


def as_the_user_declares(schema: TableSchema, text: str | None) -> TableSchema:
    """Give a table's columns the types of the option `tableDDL`; those that it does not have stay as they are.

    Raises:
        OptionError: it creates no such table.
        SchemaError: the messages contradict it.
    """
    if not text:
        return schema
    tables = declared_tables(text)
    wanted = tuple(part.lower() for part in schema.table)
    declared = next(
        (
            columns
            for name, columns in tables.items()
            if name.table.lower() == wanted[1] and name.database.lower() in ("", wanted[0])
        ),
        None,
    )
    if declared is None:
        names = ", ".join(name.table if not name.database else str(name) for name in tables)
        msg = f"Option 'tableDDL' creates {names}, and the table read is {schema.table}"
        raise OptionError(msg)
    return TableSchema(schema.table, tuple(_declared(column, declared, schema.table) for column in schema.columns))


def _declared(column: Column, declared: Mapping[str, ColumnType], table: TableName) -> Column:
    exact = declared.get(column.name.lower())
    if exact is None:
        return column
    found = as_declared(column, exact)
    if found is None:
        said = "types of different kinds" if column.conflict else column.type
        msg = (
            f"Column {column.name} of {table}: option 'tableDDL' says {exact}, the messages {said}, which does not fit "
            "into that. Is it the table's present SHOW CREATE TABLE? Else leave the column out of it"
        )
        raise SchemaError(msg)
    return found
