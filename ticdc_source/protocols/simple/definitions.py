"""Table definitions: the `tableSchema` of DDL and BOOTSTRAP messages → the columns of one version of a table.

A row has its version in `schemaVersion`, and no types (pingcap/ticdc pkg/sink/codec/simple/message.go). RENAME TABLE
does not change the version, so the key of a definition is the table's name and the version (docs/wire.md, items 44 and
115).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ticdc_source.protocols.messages import JSONObject, readable, table_name, text, tso, whole_number
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.model import Column, ColumnFacts, Definitions, Key, handle_key
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import BINARY_OF, MAY_BE_UNSIGNED, ColumnType, declared_type, parse_type

_BINARY = "binary"  # a character set


def table_of(schema: JSONObject) -> TableName:
    """Return the table of a `tableSchema`. The JSON encoding calls the database `schema`, Avro `database`."""
    return table_name(schema.get("schema", schema.get("database")), schema["table"])


def definitions_of(events: Iterable[DDLEvent]) -> Definitions:
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
    if declared.get("charset") == _BINARY:
        type_ = replace(type_, name=BINARY_OF.get(type_.name, type_.name))
    # TiCDC also sets the flag on YEAR and BIT.
    unsigned = type_.name in MAY_BE_UNSIGNED and declared.get("unsigned") is True
    decimal = whole_number(declared.get("decimal"))
    return declared_type(
        replace(type_, unsigned=unsigned),
        length=whole_number(declared.get("length")),
        scale=decimal,
        fraction=decimal,
        labels=_labels(declared.get("elements")),
    )


def _labels(elements: object) -> tuple[str, ...] | None:
    """Return the labels of an ENUM or a SET; None if there are none."""
    return tuple(text(label) for label in elements) if isinstance(elements, list) and elements else None
