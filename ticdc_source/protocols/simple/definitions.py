"""Table definitions: the `tableSchema` of DDL and BOOTSTRAP messages → the columns of one version of a table.

A row has its version in `schemaVersion`, and no types (pingcap/ticdc pkg/sink/codec/simple/message.go). RENAME TABLE
does not change the version, so the key of a definition is the table's name and the version (docs/wire.md, items 44 and
115).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ticdc_source.protocols.messages import JSONObject, readable, table_name, text, tso
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.model import Column, ColumnFacts, Definitions, Key, handle_key
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import BINARIES, INTEGERS, TEXTS, ColumnType, parse_type

__all__ = ["definitions_of", "table_of"]

_BINARY = "binary"  # a character set
_TEXT_TO_BINARY = dict(zip(TEXTS, BINARIES, strict=True))
_FRACTIONS = frozenset({"datetime", "timestamp", "time"})
_MAY_BE_UNSIGNED = frozenset({*INTEGERS, "decimal", "float", "double"})
_LENGTHS = frozenset({*TEXTS, *BINARIES, "bit", "vector"})


def table_of(schema: JSONObject) -> TableName:
    """Return the table of a `tableSchema`. The JSON encoding calls the database `schema`, Avro `database`."""
    return table_name(schema.get("schema", schema.get("database")), schema["table"])


def definitions_of(events: Iterable[DDLEvent]) -> Definitions:
    """Return what DDL and BOOTSTRAP events define."""
    schemas = (schema for event in events for schema in event.table_changes or ())
    return {(table_of(schema).folded, tso(schema["version"])): _columns(schema) for schema in schemas}


def _columns(schema: JSONObject) -> tuple[Column, ...]:
    """Return the columns that a `tableSchema` describes, in the order of the table."""
    keys = [
        Key(
            readable(index.get("name") or "").lower(),
            tuple(text(name) for name in index.get("columns") or ()),
            unique=bool(index.get("unique")),
            primary=bool(index.get("primary")),
        )
        for index in schema.get("indexes") or ()
    ]
    columns = schema["columns"]
    nullable = {text(column["name"]) for column in columns if column.get("nullable")}
    names = {name.lower(): name for name in (text(column["name"]) for column in columns)}
    keys = [key._replace(columns=tuple(names.get(name.lower(), "") for name in key.columns)) for key in keys]
    without_doubt = [key for key in keys if not _may_be_invented(key, keys)]
    handle, is_known = handle_key(keys, nullable), True
    primary: frozenset[str] | None = frozenset(name for key in keys if key.primary for name in key.columns)
    if len(without_doubt) < len(keys):
        primary, is_known = None, handle == handle_key(without_doubt, nullable)
    unique = frozenset(name for key in keys if key.unique and not key.primary for name in key.columns)
    return tuple(
        Column(
            column["name"],
            _type_of(column["dataType"]),
            key=is_known and column["name"] in handle,
            facts=ColumnFacts(
                primary_key=None if primary is None else column["name"] in primary,
                handle_key=column["name"] in handle if is_known else None,
                unique_key=column["name"] in unique,
                nullable=column["name"] in nullable,
                default=_default(column.get("default")),
            ),
        )
        for column in columns
    )


def _may_be_invented(key: Key, keys: Iterable[Key]) -> bool:
    """Return whether TiCDC may have made up this primary key: it repeats a unique key (docs/wire.md, item 119).

    A table with PRIMARY KEY and UNIQUE of the same columns looks the same. DDL in the topic, or `tableDDL`, tells.
    """
    return key.primary and any(one.unique and not one.primary and one.columns == key.columns for one in keys)


def _default(value: object) -> str | None:
    return None if value is None else readable(value) if isinstance(value, str) else readable(str(value))


def _type_of(declared: JSONObject) -> ColumnType:
    type_ = parse_type(text(declared["mysqlType"]))
    length, decimal = declared.get("length"), declared.get("decimal")
    name = type_.name
    if name in _TEXT_TO_BINARY and declared.get("charset") == _BINARY:
        name = _TEXT_TO_BINARY[name]
    if name in _MAY_BE_UNSIGNED:  # TiCDC also sets the flag on YEAR and BIT
        type_ = replace(type_, unsigned=declared.get("unsigned") is True)
    if name in ("enum", "set"):
        return replace(type_, labels=_labels(declared.get("elements")))
    if name == "decimal":
        return replace(type_, length=_length_or(length, 10), scale=_length_or(decimal, 0))
    if name == "tinyint":
        return replace(type_, length=1 if length == 1 and not type_.unsigned else None)
    if name in _FRACTIONS:
        return ColumnType(name, length=_length_or(decimal, 0))
    if name in _LENGTHS:
        return ColumnType(name, length=_length_or(length, 1 if name == "bit" else None))
    return type_


def _labels(elements: object) -> tuple[str, ...] | None:
    """Return the labels of an ENUM or a SET; None if there are none."""
    return tuple(text(label) for label in elements) if isinstance(elements, list) and elements else None


def _length_or(number: object, otherwise: int | None) -> int | None:
    """Return a length, or `otherwise` if it was not given: null, or TiDB's -1."""
    if number is None or number == -1:
        return otherwise
    if type(number) is not int:
        msg = f"a length {number!r}"
        raise TypeError(msg)
    return number
