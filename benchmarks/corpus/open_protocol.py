"""open-protocol as TiCDC's encoder writes it (pkg/sink/codec/open/codec.go): frames of keys and values, 8 per message.

Columns are in table order; text and blobs are base64, other strings plain.
"""

import json
from base64 import b64encode
from collections.abc import Iterator
from itertools import islice
from typing import Any

from benchmarks.corpus.tables import DATABASE, Change, Column, Row, Table, Value, changes

EVENTS = 8  # per message

_NULLABLE, _UNSIGNED, _BINARY, _KEY = 64, 128, 1, 11  # flags; a primary key is binary, a handle key, a primary key
_TYPES: dict[str, tuple[int, int]] = {  # by the name in `COLUMN_TYPES`: MySQL's type code, and flags except "nullable"
    "bigint": (8, _BINARY),
    "int": (3, _BINARY),
    "smallint": (2, _BINARY),
    "unsigned": (8, _BINARY | _UNSIGNED),
    "decimal": (246, _BINARY),
    "double": (5, _BINARY),
    "date": (10, _BINARY),
    "datetime": (12, _BINARY),
    "timestamp": (7, _BINARY),
    "varchar": (15, 0),
    "text": (252, 0),
    "blob": (252, _BINARY),
    "enum": (247, 0),
    "json": (245, _BINARY),
}
_VERSION = (1).to_bytes(8, "big")


def records(table: Table, seed: int, note_bytes: int = 0) -> Iterator[tuple[bytes, bytes, int]]:
    """Yield row messages without end: key, value, and the number of changelog rows."""
    source = changes(table, seed, note_bytes)
    while True:
        events = list(islice(source, EVENTS))
        keys = (_dump({"ts": event.commit_ts, "scm": DATABASE, "tbl": table.name, "t": 1}) for event in events)
        values = (_dump(_event(table, event)) for event in events)
        yield _VERSION + b"".join(map(_frame, keys)), b"".join(map(_frame, values)), sum(e.rows for e in events)


def watermark_at(watermark: int) -> tuple[bytes, bytes]:
    """Return a watermark message: key and value."""
    return _VERSION + _frame(_dump({"ts": watermark, "t": 3})), bytes(8)


def _event(table: Table, change: Change) -> dict[str, Any]:
    if change.after is None:
        return {"d": _image(table, change.before or {})}
    if change.before is None:
        return {"u": _image(table, change.after)}
    return {"u": _image(table, change.after), "p": _image(table, change.before)}


def _image(table: Table, row: Row) -> dict[str, Any]:
    key, *others = table.columns
    image: dict[str, Any] = {key.name: {"t": _TYPES[key.type_name][0], "h": True, "f": _KEY, "v": row[key.name]}}
    for column in others:
        code, flags = _TYPES[column.type_name]
        image[column.name] = {"t": code, "f": flags | _NULLABLE, "v": _value(column, row[column.name])}
    return image


def _value(column: Column, value: Value) -> Any:
    if value is None or isinstance(value, int | float):
        return value
    if column.type_name == "text":
        return b64encode(str(value).encode()).decode()
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if column.type_name == "datetime":
        return value.isoformat(" ", "microseconds")  # type: ignore[union-attr,call-arg]
    return str(value)


def _frame(data: bytes) -> bytes:
    return len(data).to_bytes(8, "big") + data


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
