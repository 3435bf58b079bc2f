"""avro as TiCDC's encoder writes it (pkg/sink/codec/avro/arvo.go), with `enable-tidb-extension` and old rows."""

import json
import threading
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any

import fastavro

from benchmarks.corpus.tables import DATABASE, LABELS, Row, Table, Value, changes

__all__ = ["SCHEMAS", "key_schema", "records", "registry_url", "value_schema"]

_HEADER = b"\0\0\0\0"  # before the last byte of an id
_MOST_SIGNED = (1 << 63) - 1
# By the name in `COLUMN_TYPES`: Avro's type, and `tidb_type`.
_TYPES: dict[str, tuple[str, str]] = {
    "bigint": ("long", "BIGINT"),
    "int": ("int", "INT"),
    "smallint": ("int", "INT"),
    "unsigned": ("long", "BIGINT UNSIGNED"),
    "decimal": ("bytes", "DECIMAL"),
    "double": ("double", "DOUBLE"),
    "date": ("string", "DATE"),
    "datetime": ("string", "DATETIME"),
    "timestamp": ("string", "TIMESTAMP"),
    "varchar": ("string", "TEXT"),
    "text": ("string", "TEXT"),
    "blob": ("bytes", "BLOB"),
    "enum": ("string", "ENUM"),
    "json": ("string", "JSON"),
}
# The schemas in the registry, by their ids.
SCHEMAS: dict[int, dict[str, Any]] = {}


def records(table: Table, seed: int, note_bytes: int = 0) -> Iterator[tuple[bytes, bytes, int]]:
    """Yield row messages without end: key, value, and the number of changelog rows."""
    key, value = key_schema(table), value_schema(table)
    key_id, value_id = _registered(key), _registered(value)
    key_writer, value_writer = fastavro.parse_schema(key), fastavro.parse_schema(value)
    name = table.columns[0].name
    for change in changes(table, seed, note_bytes):
        row = change.after if change.after is not None else change.before or {}
        op = "d" if change.after is None else "c" if change.before is None else "u"
        before = None if change.before is None else _row(table, change.before)
        own = {"_ticdc_before": before, "_tidb_op": op, "_tidb_commit_ts": change.commit_ts}
        own["_tidb_commit_physical_time"] = change.commit_ts >> 18
        message = _framed(value_id, value_writer, {**_row(table, row), **own})
        yield _framed(key_id, key_writer, {name: row[name]}), message, change.rows


def key_schema(table: Table) -> dict[str, Any]:
    """Return the schema of the keys."""
    return _record(table.name, _fields(table)[:1])


def value_schema(table: Table) -> dict[str, Any]:
    """Return the schema of the rows."""
    before = _record(f"{table.name}_ticdc_before", _fields(table))
    own = [
        {"name": "_ticdc_before", "type": ["null", before], "default": None},
        {"name": "_tidb_op", "type": "string"},
        {"name": "_tidb_commit_ts", "type": "long"},
        {"name": "_tidb_commit_physical_time", "type": "long"},
    ]
    return _record(table.name, [*_fields(table), *own])


@cache
def registry_url() -> str:
    """Return the URL of a registry with the schemas. It answers as long as this process lives."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"


class _Registry(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        schema = SCHEMAS.get(int(self.path.rpartition("/")[2]))
        answer = json.dumps({"schema": json.dumps(schema)}).encode()
        self.send_response(404 if schema is None else 200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_arguments: Any) -> None:
        """Write no log."""


def _registered(schema: dict[str, Any]) -> int:
    known = next((schema_id for schema_id, other in SCHEMAS.items() if other == schema), None)
    schema_id = len(SCHEMAS) + 1 if known is None else known
    SCHEMAS[schema_id] = schema
    return schema_id


def _record(name: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": name, "namespace": f"default.{DATABASE}", "fields": fields}


def _fields(table: Table) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = []
    for name, type_name in table.columns:
        avro, tidb_type = _TYPES[type_name]
        type_: dict[str, Any] = {"type": avro, "connect.parameters": {"tidb_type": tidb_type}}
        if type_name == "decimal":
            type_ |= {"logicalType": "decimal", "precision": 12, "scale": 2}
        if type_name == "enum":
            type_["connect.parameters"]["allowed"] = ",".join(LABELS)
        fields.append(
            {"name": name, "type": ["null", type_], "default": None} if fields else {"name": name, "type": type_}
        )
    return fields


def _row(table: Table, row: Row) -> dict[str, Any]:
    return {name: _value(type_name, row[name]) for name, type_name in table.columns}


def _value(type_name: str, value: Value) -> Any:
    match type_name, value:
        case _, None:
            return None
        case "unsigned", int():
            return value - (1 << 64) if value > _MOST_SIGNED else value
        case "decimal", _:
            return Decimal(str(value))
        case "enum", int():
            return LABELS[value - 1]
        case "datetime", _:
            return value.isoformat(" ", "microseconds")  # type: ignore[union-attr,call-arg]
        case (("date" | "timestamp"), _):
            return str(value)
    return value


def _framed(schema_id: int, schema: Any, row: dict[str, Any]) -> bytes:
    body = BytesIO(_HEADER + bytes([schema_id]))
    body.seek(len(_HEADER) + 1)
    fastavro.schemaless_writer(body, schema, row)
    return body.getvalue()
