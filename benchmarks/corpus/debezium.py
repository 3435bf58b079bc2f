"""debezium as TiCDC's encoder writes it (pkg/sink/codec/debezium/codec.go), with its schema or without.

`payload` comes before `schema`; decimals are doubles, an unsigned bigint beyond a signed one wraps, binary is base64.
The CREATE TABLE comes first: in a topic without schemas, only it has types. (It has no schema itself here.)
"""

import json
from base64 import b64encode
from collections.abc import Iterator
from datetime import date, datetime, timezone
from functools import lru_cache
from typing import Any

from benchmarks.corpus.tables import DATABASE, LABELS, TSO, Change, Table, Value, changes

_CLUSTER = "default"
_ENCODING_MS = 5


def _named(type_: str, name: str, **parameters: str) -> dict[str, Any]:
    more = {"parameters": parameters} if parameters else {}
    return {"type": type_, "optional": True, "name": f"io.debezium.{name}", "version": 1, **more}


_TYPES: dict[str, dict[str, Any]] = {
    "bigint": {"type": "int64", "optional": True},
    "int": {"type": "int32", "optional": True},
    "smallint": {"type": "int16", "optional": True},
    "unsigned": {"type": "int64", "optional": True},
    "decimal": {"type": "double", "optional": True},
    "double": {"type": "double", "optional": True},
    "date": _named("int32", "time.Date"),
    "datetime": _named("int64", "time.MicroTimestamp"),
    "timestamp": _named("string", "time.ZonedTimestamp"),
    "varchar": {"type": "string", "optional": True},
    "text": {"type": "string", "optional": True},
    "blob": {"type": "string", "optional": True},
    "enum": _named("string", "data.Enum", allowed=",".join(LABELS)),
    "json": _named("string", "data.Json"),
}

_DDL: dict[
    str, tuple[str, int, int | None, int | None]
] = {  # by the name in `COLUMN_TYPES`: typeName, jdbcType, length, scale
    "bigint": ("BIGINT", -5, None, None),
    "int": ("INT", 4, None, None),
    "smallint": ("SMALLINT", 5, None, None),
    "unsigned": ("BIGINT UNSIGNED", -5, None, None),
    "decimal": ("DECIMAL", 3, 12, 2),
    "double": ("DOUBLE", 8, None, None),
    "date": ("DATE", 91, None, None),
    "datetime": ("DATETIME", 93, 6, None),
    "timestamp": ("TIMESTAMP", 2014, None, None),
    "varchar": ("VARCHAR", 12, 100, None),
    "text": ("TEXT", 12, None, None),
    "blob": ("BLOB", 2004, None, None),
    "enum": ("ENUM", 1, 1, None),
    "json": ("JSON", 1111, None, None),
}
_WITH_CHARSET = ("varchar", "text", "enum")


def _of(type_: str, field: str, *, optional: bool = False) -> dict[str, Any]:
    return {"type": type_, "optional": optional, "field": field}


_SOURCE_FIELDS = [
    _of("string", "version"), _of("string", "connector"), _of("string", "name"), _of("int64", "ts_ms"),
    {**_named("string", "data.Enum", allowed="true,last,false,incremental"), "default": "false", "field": "snapshot"},
    _of("string", "db"), _of("string", "sequence", optional=True), _of("string", "table", optional=True),
    _of("int64", "server_id"), _of("string", "gtid", optional=True), _of("string", "file"), _of("int64", "pos"),
    _of("int32", "row"), _of("int64", "thread", optional=True), _of("string", "query", optional=True),
]  # fmt: skip
_TRANSACTION = [_of("string", "id"), _of("int64", "total_order"), _of("int64", "data_collection_order")]


def records(table: Table, seed: int, note_bytes: int = 0, *, schema: bool) -> Iterator[tuple[bytes, bytes, int]]:
    """Yield the table's DDL, then row messages without end: key, value, and the number of changelog rows."""
    yield f'{{"payload":{{"databaseName":"{DATABASE}"}}}}'.encode(), _dump({"payload": _created(table)}).encode(), 0
    key = table.columns[0].name
    key_tail, tail = (f',"schema":{part}}}' if schema else "}" for part in _schemas(table))
    for change in changes(table, seed, note_bytes):
        row = change.after or change.before or {}
        value = _dump(_payload(table, change))
        yield (
            f'{{"payload":{{"{key}":{row[key]!s}}}{key_tail}'.encode(),
            f'{{"payload":{value}{tail}'.encode(),
            change.rows,
        )


def _created(table: Table) -> dict[str, Any]:
    columns = []
    for position, (name, type_name) in enumerate(table.columns, 1):
        type_, code, length, scale = _DDL[type_name]
        columns.append({
            "name": name, "jdbcType": code, "nativeType": None, "comment": None, "defaultValueExpression": None,
            "enumValues": [f"'{label}'" for label in LABELS] if type_name == "enum" else None,
            "typeName": type_, "typeExpression": type_,
            "charsetName": "utf8mb4" if type_name in _WITH_CHARSET else None,
            "length": length, "scale": scale, "position": position, "optional": position > 1,
            "autoIncremented": False, "generated": False,
        })  # fmt: skip
    keys = [table.columns[0].name]
    definition = {"defaultCharsetName": "utf8mb4", "primaryKeyColumnNames": keys, "columns": columns, "comment": None}
    change = {"type": "CREATE", "id": f'"{DATABASE}"."{table.name}"', "table": definition}
    return {
        "source": _source(table, TSO), "ts_ms": (TSO >> 18) + _ENCODING_MS, "databaseName": DATABASE,
        "schemaName": None, "ddl": table.ddl, "tableChanges": [change],
    }  # fmt: skip


def _source(table: Table, commit_ts: int) -> dict[str, Any]:
    return {
        "version": "2.4.0.Final", "connector": "TiCDC", "name": _CLUSTER, "ts_ms": commit_ts >> 18,
        "snapshot": "false", "db": DATABASE, "table": table.name, "server_id": 0, "gtid": None, "file": "", "pos": 0,
        "row": 0, "thread": 0, "query": None, "commit_ts": commit_ts, "cluster_id": _CLUSTER,
    }  # fmt: skip


def _payload(table: Table, change: Change) -> dict[str, Any]:
    before, after = (
        None if row is None else {name: _value(type_name, row[name]) for name, type_name in table.columns}
        for row in (change.before, change.after)
    )
    images = {"before": before, "after": after} if after is not None else {"after": None, "before": before}
    return {
        "source": _source(table, change.commit_ts),
        "ts_ms": (change.commit_ts >> 18) + _ENCODING_MS,
        "transaction": None,
        "op": "d" if after is None else "c" if before is None else "u",
        **images,
    }


def _value(type_name: str, value: Value) -> Any:
    if value is None:
        return None
    if type_name == "unsigned" and isinstance(value, int):
        return value if value < 2**63 else value - 2**64
    if type_name == "decimal":
        number = float(str(value))
        return int(number) if number.is_integer() else number  # Go's encoder writes 5 for 5.0
    if type_name == "enum" and isinstance(value, int):
        return LABELS[value - 1]
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, datetime):
        if type_name == "timestamp":
            return f"{value.isoformat()}Z"
        return int(value.replace(tzinfo=timezone.utc).timestamp()) * 1_000_000 + value.microsecond
    if isinstance(value, date):
        return (value - date(1970, 1, 1)).days
    return value


@lru_cache
def _schemas(table: Table) -> tuple[str, str]:
    """Return the texts of a key's schema and of a value's."""
    full = f"{_CLUSTER}.{DATABASE}.{table.name}"
    fields = [{**_TYPES[type_name], "field": name} for name, type_name in table.columns]
    fields[0]["optional"] = False
    key = {"type": "struct", "name": f"{full}.Key", "optional": False, "fields": fields[:1]}
    images = [
        {"type": "struct", "optional": True, "name": f"{full}.Value", "field": field, "fields": fields}
        for field in ("before", "after")
    ]
    source = {
        "type": "struct", "fields": _SOURCE_FIELDS, "optional": False, "name": "io.debezium.connector.mysql.Source",
        "field": "source",
    }  # fmt: skip
    transaction = {
        "type": "struct", "fields": _TRANSACTION, "optional": True, "name": "event.block", "version": 1,
        "field": "transaction",
    }  # fmt: skip
    rest = [source, _of("string", "op"), _of("int64", "ts_ms", optional=True), transaction]
    value = {
        "type": "struct", "optional": False, "name": f"{full}.Envelope", "version": 1, "fields": [*images, *rest],
    }  # fmt: skip
    return _dump(key), _dump(value)


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
