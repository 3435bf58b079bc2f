"""Names as TiCDC sanitizes them for Avro, and the original names that `tableDDL` has (docs/wire.md, item 122)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from ticdc_source.schema.ddl import declared_tables
from ticdc_source.schema.mysql_ddl.statements import Create
from ticdc_source.schema.table_name import TableName

__all__ = ["column_order", "original_columns", "original_table", "renamed_tables", "sanitized"]

_REPLACED = re.compile("[^A-Za-z0-9_]")


def sanitized(name: str) -> str:
    """Return a name as TiCDC sanitizes it."""
    replaced = _REPLACED.sub("_", name)
    return f"_{replaced}" if replaced[:1].isdigit() else replaced


def original_table(table: TableName, table_ddl: str | None) -> TableName:
    """Return the original name of a table.

    It is the sanitized name if `tableDDL` declares no table, or several, that have it.
    """
    declared = _declared((table.database.lower(), table.table.lower()), table_ddl)
    if len(declared) != 1:
        return table
    (original,) = declared
    return TableName(
        _original(table.database, original.database) if original.database else table.database,
        _original(table.table, original.table),
    )


def original_columns(table: TableName, columns: Sequence[str], table_ddl: str | None) -> dict[str, str]:
    """Map the sanitized names of columns to the original ones, where they differ and are not ambiguous.

    Args:
        table: the original name of the table.
        columns: the sanitized names.
        table_ddl: the option `tableDDL`.
    """
    by_name: dict[str, list[str]] = {}
    place = sanitized(table.database).lower(), sanitized(table.table).lower()
    if len(_declared(place, table_ddl)) > 1:
        return {}  # the columns may be those of another table
    for original in column_order(table, table_ddl):
        by_name.setdefault(sanitized(original).lower(), []).append(original)
    declared = {name: by_name.get(name.lower(), []) for name in columns}
    return {
        name: _original(name, originals[0])
        for name, originals in declared.items()
        if len(originals) == 1 and originals[0] != name.lower()
    }


def column_order(table: TableName, table_ddl: str | None) -> Sequence[str]:
    """Return the original names of a table's columns, in lower case and in the order of the table.

    There are none if `tableDDL` does not declare the table.
    """
    for name, created in _tables(table_ddl).items():
        if name.table.lower() == table.table.lower() and name.database.lower() in ("", table.database.lower()):
            return tuple(created.columns)
    return ()


def renamed_tables(table_ddl: str | None) -> dict[TableName, TableName]:
    """Map the sanitized names of tables to the original ones, where they differ. A database may be ""."""
    originals = {
        TableName(sanitized(name.database), sanitized(name.table)): name
        for name in _tables(table_ddl)
        if len(_declared((sanitized(name.database).lower(), sanitized(name.table).lower()), table_ddl)) == 1
    }
    return {short: name for short, name in originals.items() if short != name}


def _declared(sanitized_name: tuple[str, str], table_ddl: str | None) -> frozenset[TableName]:
    """Return the tables with a sanitized name, which is in lower case. `tableDDL` may name no database."""
    by_name = _by_sanitized_name(table_ddl)
    return by_name.get(sanitized_name) or by_name.get(("", sanitized_name[1])) or frozenset()


def _tables(table_ddl: str | None) -> Mapping[TableName, Create]:
    return declared_tables(table_ddl) if table_ddl else {}


@lru_cache(maxsize=64)
def _by_sanitized_name(table_ddl: str | None) -> Mapping[tuple[str, str], frozenset[TableName]]:
    """Return the tables that `tableDDL` declares by their sanitized names, in lower case."""
    by_name: dict[tuple[str, str], frozenset[TableName]] = {}
    for name in _tables(table_ddl):
        place = sanitized(name.database).lower(), sanitized(name.table).lower()
        by_name[place] = by_name.get(place, frozenset()) | {name}
    return by_name


def _original(name: str, declared: str) -> str:
    """Restore the characters that TiCDC replaced. The others keep the case of the sanitized name."""
    kept = name[-len(declared) :]  # without the `_` before a leading digit
    return "".join(old if _REPLACED.match(old) else new for old, new in zip(declared, kept, strict=True))
