"""What DDL adds to a sample: `tableDDL`, and the texts of the DDL events in it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from ticdc_source.errors import OptionError, SchemaError
from ticdc_source.events import DDLEvent, TableName
from ticdc_source.schema.model import Column, TableSchema, TypeVersions
from ticdc_source.schema.mysql_ddl import available, declared_tables, versions_of
from ticdc_source.schema.types import ColumnType, merge_types

__all__ = [
    "as_declared",
    "as_the_user_declares",
    "check_table_ddl",
    "completed",
    "could_tell",
    "types_of_texts",
    "version_at",
]

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


_STRINGS = frozenset({"text", "binary"})
_MEMBERS = frozenset({"enum", "set"})


def version_at(versions: TypeVersions, commit_ts: int) -> ColumnType | None:
    """Return the type of a row of `commit_ts`; of a row before all versions only what labels there are."""
    known = [type_ for start, type_ in versions if start < commit_ts]
    if known:
        return known[-1]
    return versions[0][1] if versions and versions[0][1].family in _MEMBERS else None


def completed(column: Column, exact: ColumnType) -> Column:
    """Return the column with what its messages leave open as a DDL event declares it; their own word stands."""
    type_ = column.type
    if type_ is None:
        return replace(column, type=exact, json_type=None)
    if column.vague and _may_be(type_, exact):
        return replace(column, type=exact, vague=False)
    if (exact.name, exact.unsigned) != (type_.name, type_.unsigned):
        return column
    if type_.is_unspecified:  # MySQL prints every value with its column's scale
        shown = type_.scale in (None, exact.scale) and _has_room(exact, type_)
        return replace(column, type=exact) if shown else column
    return replace(column, type=type_.refined_by(exact))


def as_declared(column: Column, exact: ColumnType) -> Column | None:
    """Return the column as the user declares it; None where that does not hold what the messages say.

    It may be wider than they say, as the table may have been altered since.
    """
    type_ = column.type
    if type_ is None:
        return replace(column, type=exact, json_type=None)
    if column.conflict:
        return column if exact.arrow == pa.string() else None
    if column.vague:
        return replace(column, type=exact, vague=False) if _may_be(type_, exact) else None
    if type_.is_unspecified and exact.name == "decimal":
        return replace(column, type=exact) if _has_room(exact, type_) else None
    if type_.labels is not None and exact.labels is not None:  # a wire may escape backslashes, or not
        labels = {label.replace("\\", "") for label in exact.labels}
        return column if {label.replace("\\", "") for label in type_.labels} <= labels else None
    if type_.name == exact.name == "bit" and type_.length is None:
        return replace(column, type=exact)
    merged = merge_types(type_, exact)
    if merged is None or merged.arrow != exact.arrow or _narrower(exact, merged):
        return column if type_.arrow == exact.arrow == pa.string() else None
    return replace(column, type=exact)


def _narrower(exact: ColumnType, merged: ColumnType) -> bool:
    """Tell whether an integer type lacks values that another of the same Arrow type has."""
    return (
        merged.name != "decimal"
        and (exact.family, exact.unsigned, exact.name) != (merged.family, merged.unsigned, merged.name)
        and exact.family == "number"
    )


def _may_be(vague: ColumnType, exact: ColumnType) -> bool:
    """Tell whether a type that messages leave open may be this one."""
    return (
        exact.family == vague.family
        or {exact.family, vague.family} <= _STRINGS
        or (vague.name == "double" and exact.name == "decimal")  # debezium
    )


def _has_room(exact: ColumnType, shown: ColumnType) -> bool:
    """Tell whether a decimal holds what a sample showed."""
    scale = exact.scale or 0
    return (shown.scale or 0) <= scale and (shown.whole or 0) <= (exact.length or 0) - scale
