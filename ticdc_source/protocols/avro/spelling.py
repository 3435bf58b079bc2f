"""Names as Avro can spell them, and the names that `tableDDL` has for them (docs/wire.md, item 122)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from ticdc_source.events import TableName
from ticdc_source.schema.ddl import declared_tables

__all__ = ["column_names", "column_order", "sanitized", "table_named"]

_NO_AVRO = re.compile("[^A-Za-z0-9_]")


def sanitized(name: str) -> str:
    """Return a name as Avro can spell it."""
    spelt = _NO_AVRO.sub("_", name)
    return f"_{spelt}" if spelt[:1].isdigit() else spelt


def table_named(spelt: TableName, table_ddl: str | None) -> TableName:
    """Return the table that Avro spells so: as `tableDDL` has it, or else, or if it has two of them, as Avro has it."""
    found = _declared(table_ddl).get((spelt.database.lower(), spelt.table.lower()))
    if found is None:
        found = _declared(table_ddl).get(("", spelt.table.lower()))
    if found is None or len(found) > 1:
        return spelt
    (declared,) = found
    database = _original(spelt.database, declared.database) if declared.database else spelt.database
    return TableName(database, _original(spelt.table, declared.table))


def column_names(table: TableName, spelt: Sequence[str], table_ddl: str | None) -> dict[str, str]:
    """Return the columns that have other names in `tableDDL`: those names, by how Avro spells them.

    Args:
        table: the table, as `table_named` returns it.
        spelt: the columns.
        table_ddl: the option.
    """
    by_spelling: dict[str, list[str]] = {}
    for name in column_order(table, table_ddl):
        by_spelling.setdefault(sanitized(name).lower(), []).append(name)
    return {
        name: _original(name, declared[0])
        for name in spelt
        if len(declared := by_spelling.get(name.lower(), [])) == 1 and declared[0] != name.lower()
    }


def column_order(table: TableName, table_ddl: str | None) -> Sequence[str]:
    """Return the names of a table's columns in lower case, in the order that `tableDDL` has; none if it lacks it."""
    for name, created in (declared_tables(table_ddl) if table_ddl else {}).items():
        if name.table.lower() == table.table.lower() and name.database.lower() in ("", table.database.lower()):
            return tuple(created.columns)
    return ()


@lru_cache(maxsize=64)
def _declared(table_ddl: str | None) -> Mapping[tuple[str, str], frozenset[TableName]]:
    """Return the tables of the option by how Avro spells them, in lower case."""
    found: dict[tuple[str, str], frozenset[TableName]] = {}
    for name in declared_tables(table_ddl) if table_ddl else ():
        spelling = sanitized(name.database).lower(), sanitized(name.table).lower()
        found[spelling] = found.get(spelling, frozenset()) | {name}
    return found


def _original(spelt: str, declared: str) -> str:
    """Return a declared name, in the case of the spelling: only other characters than letters and digits differ."""
    same = spelt[len(spelt) - len(declared) :]
    if len(same) != len(declared):
        return declared
    return "".join(ours if _NO_AVRO.match(ours) else theirs for ours, theirs in zip(declared, same, strict=True))
