"""Tables of TiDB as of a TSO, their columns and keys, from `information_schema`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ticdc_source.errors import OptionError, UnsupportedTypeError, nearest
from ticdc_source.options.topics import TableFilter, listed
from ticdc_source.schema.model import Column, ColumnFacts, Key, handle_key
from ticdc_source.schema.table_name import TableName, quoted_name
from ticdc_source.schema.tso import utc
from ticdc_source.schema.types import ColumnType, parse_type
from ticdc_source.sources.tidb.client import Session
from ticdc_source.sources.tidb.messages import Definition
from ticdc_source.sources.tidb.sql import text_literal

# TiCDC replicates none of these (its pkg/filter, `IsSysSchema`).
_SYSTEM_SCHEMAS = (
    *("information_schema", "performance_schema", "mysql", "sys", "metrics_schema", "inspection_schema"),
    *("tidb_cdc", "lightning_task_info", "lightning_metadata"),
)
_BASE_TABLE = "BASE TABLE"
_COLUMN = ("column_name", "column_type", "is_nullable", "column_default", "extra", "column_comment")
_INDEX = ("index_id", "key_name", "non_unique", "clustered", "column_name")

Row = Mapping[str, str | None]


def tables_at(session: Session, selected: TableFilter, tso: int) -> list[TableName]:
    """The tables that the option `tables` selects, sorted; no views, and nothing of TiDB's own.

    Raises:
        OptionError: it selects none, or names a missing table or a view.
    """
    found = base_tables(session, selected, tso)
    for name in selected.named:
        if not any(map(name.is_same, found)):
            raise _absent(session, name, tso)
    if not found:
        raise OptionError(f"Option 'tables': TiDB had no such table at TSO {tso} ({utc(tso)}) that the user may read")
    return found


def base_tables(session: Session, selected: TableFilter, tso: int) -> list[TableName]:
    """As `tables_at`, but without an error if there are none."""
    session.as_of(tso)
    where = f"LOWER(table_schema) NOT IN ({', '.join(map(text_literal, _SYSTEM_SCHEMAS))})"
    exact = selected.named
    if exact and len(exact) == len(selected.patterns):
        named = (
            f"(table_schema = {text_literal(one.database)} AND table_name = {text_literal(one.table)})" for one in exact
        )
        where += f" AND ({' OR '.join(named)})"
    kinds = _kinds(session, where)
    return sorted(table for table, kind in kinds.items() if kind == _BASE_TABLE and selected.matches(table))


def _kinds(session: Session, where: str) -> dict[TableName, str]:
    rows = _asked(session, ("table_schema", "table_name", "table_type"), "information_schema.tables", where)
    return {TableName(str(row["table_schema"]), str(row["table_name"])): str(row["table_type"]) for row in rows}


def _absent(session: Session, name: TableName, tso: int) -> OptionError:
    """The error for a table that does not exist, with the tables of its database."""
    kinds = _kinds(session, f"table_schema = {text_literal(name.database)} AND table_type <> 'SYSTEM VIEW'")
    for table, kind in kinds.items():
        if table.is_same(name) and kind != _BASE_TABLE:
            return OptionError(f"Option 'tables': {name} is a {kind.lower()}, and only tables can be read as of a TSO")
    tables = sorted(table for table, kind in kinds.items() if kind == _BASE_TABLE)
    near = nearest(name.table, [table.table for table in tables])
    hint = "".join(f" Did you mean {table}?" for table in tables if table.table in near)
    return OptionError(
        f"Option 'tables': TiDB had no table {name} at TSO {tso} ({utc(tso)}), or the user may not read it "
        f"(GRANT SELECT ON {name}). Its database has: {listed(tables) or 'nothing'}.{hint}"
    )


def described(session: Session, name: TableName, tso: int) -> Definition:
    """The definition of a table as of a TSO, without virtual generated columns, which TiCDC does not send.

    Raises:
        OptionError: it did not exist.
        UnsupportedTypeError: a column's type is unknown.
    """
    session.as_of(tso, name)
    where = f"table_schema = {text_literal(name.database)} AND table_name = {text_literal(name.table)}"
    # Columns are read last: if the privilege is revoked in between, there are none, rather than columns without a key.
    indexes = _asked(session, _INDEX, "information_schema.tidb_indexes", f"{where} ORDER BY index_id, seq_in_index")
    columns = _asked(session, _COLUMN, "information_schema.columns", f"{where} ORDER BY ordinal_position")
    if not columns:
        raise _absent(session, name, tso)
    virtual = {str(row["column_name"]) for row in columns if "VIRTUAL GENERATED" in str(row["extra"]).upper()}
    keys = _unique_keys(indexes)
    handle = handle_key(keys, virtual | {str(row["column_name"]) for row in columns if row["is_nullable"] == "YES"})
    sent = tuple(_column(row, keys, handle, name) for row in columns if row["column_name"] not in virtual)
    by_name = {column.name.lower(): column for column in sent}
    clustered = [row for row in indexes if row["key_name"] == "PRIMARY" and row["clustered"] == "YES"]
    return Definition(name, tso, sent, tuple(by_name[str(row["column_name"]).lower()] for row in clustered))


def rows_about(session: Session, name: TableName) -> int:
    """The number of rows by TiDB's current statistics; 0 without statistics."""
    where = f"table_schema = {text_literal(name.database)} AND table_name = {text_literal(name.table)}"
    rows = _asked(session, ("table_rows",), "information_schema.tables", where)
    return int(rows[0]["table_rows"] or 0) if rows else 0


def _asked(session: Session, names: Sequence[str], source: str, where: str) -> list[Row]:
    selected = ", ".join(f"{name} AS {quoted_name(name)}" for name in names)
    answer = session.rows(f"SELECT {selected} FROM {source} WHERE {where}")  # noqa: S608 (names are fixed, texts quoted)
    return [dict(zip(names, row, strict=True)) for row in answer]


def _unique_keys(indexes: Iterable[Row]) -> list[Key]:
    keys: dict[str, list[str]] = {}
    for row in indexes:
        if not int(row["non_unique"] or 0):
            keys.setdefault(str(row["key_name"]), []).append(row["column_name"] or "")
    return [Key(name, tuple(columns), unique=True, primary=name == "PRIMARY") for name, columns in keys.items()]


def _column(row: Row, keys: Sequence[Key], handle: frozenset[str], table: TableName) -> Column:
    name = str(row["column_name"])
    default, comment = row["column_default"], row["column_comment"]
    facts = ColumnFacts(
        primary_key=any(name in key.columns for key in keys if key.primary),
        handle_key=name in handle,
        unique_key=any(name in key.columns for key in keys if not key.primary),
        nullable=row["is_nullable"] == "YES",
        generated="GENERATED" in str(row["extra"]).replace("DEFAULT_GENERATED", "").upper(),
        default=default,
        comment=comment or None,
    )
    return Column(name, _type(str(row["column_type"]), table, name), key=name in handle, facts=facts)


def _type(text: str, table: TableName, column: str) -> ColumnType:
    type_ = parse_type(text)
    if not type_.is_supported:
        raise UnsupportedTypeError(f"Column {column} of {table}: type {text} is not supported")
    return type_
