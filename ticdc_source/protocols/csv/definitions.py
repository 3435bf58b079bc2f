"""A schema file → the columns of a version of a table.

Source: pingcap/ticdc pkg/cloudstorage/schema_file.go, fromTiColumnInfo.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ticdc_source.protocols.messages import JSONObject, table_name, text, tso
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.model import Column, ColumnFacts, Definitions
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import BINARIES, TEXTS, ColumnType, parse_type

__all__ = ["definitions_of", "table_of"]

_FRACTIONS = frozenset({"datetime", "timestamp", "time"})
_LENGTHS = frozenset({*TEXTS, *BINARIES, "bit"})


def table_of(schema: JSONObject) -> TableName:
    """Return the table of a schema file; its name is empty for DDL of a database."""
    return table_name(schema.get("Schema"), schema.get("Table"))


def definitions_of(events: Iterable[DDLEvent]) -> Definitions:
    """Return what schema files define."""
    schemas = [schema for event in events for schema in event.table_changes or ()]
    return {
        (table_of(each).folded, tso(each["TableVersion"])): _columns(each)
        for each in schemas
        if each.get("TableColumns")
    }


def _columns(schema: JSONObject) -> tuple[Column, ...]:
    columns = schema["TableColumns"]
    has_key = any(column.get("ColumnIsPk") == "true" for column in columns)
    return tuple(_column(column, has_key=has_key) for column in columns)


def _column(column: JSONObject, *, has_key: bool) -> Column:
    is_key = column.get("ColumnIsPk") == "true"
    facts = ColumnFacts(
        primary_key=is_key,
        handle_key=is_key if has_key else None,  # a unique key may be the handle key, and no file says so
        nullable=column.get("ColumnNullable") != "false",
        default=None if column.get("ColumnDefault") is None else str(column["ColumnDefault"]),
    )
    return Column(text(column["ColumnName"]), _type_of(column), key=is_key, facts=facts)


def _type_of(column: JSONObject) -> ColumnType:
    type_ = parse_type(text(column["ColumnType"]).lower())
    precision, scale = _number(column.get("ColumnPrecision")), _number(column.get("ColumnScale"))
    if type_.name in ("enum", "set"):
        return replace(type_, labels=tuple(map(text, column.get("ColumnElems") or ())) or None)
    if type_.name == "decimal":
        return replace(type_, length=precision, scale=scale)
    if type_.name == "tinyint":
        return replace(type_, length=1 if precision == 1 and not type_.unsigned else None)
    if type_.name in _FRACTIONS:
        return replace(type_, length=scale or 0)
    return replace(type_, length=precision) if type_.name in _LENGTHS else type_


def _number(digits: object) -> int | None:
    return None if digits is None else int(text(digits))
