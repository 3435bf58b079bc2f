"""simple in JSON as TiCDC's encoder writes it (pkg/sink/codec/simple/message.go), the columns by their names."""

import base64
import json
from collections.abc import Iterator
from typing import Any

from benchmarks.corpus.tables import DATABASE, LABELS, TSO, Row, Table, Value, changes

_VERSION = TSO - (1 << 18)
_ENCODING_MS = 5
_UTF8 = frozenset({"varchar", "text", "enum"})
# By the name in `COLUMN_TYPES`: `mysqlType`, and more members of `dataType`.
_TYPES: dict[str, tuple[str, dict[str, Any]]] = {
    "unsigned": ("bigint", {"length": 20, "unsigned": True}),
    "decimal": ("decimal", {"length": 12, "decimal": 2}),
    "datetime": ("datetime", {"length": 26, "decimal": 6}),
    "enum": ("enum", {"length": 8, "elements": list(LABELS)}),
}


def records(table: Table, seed: int, note_bytes: int = 0) -> Iterator[tuple[bytes | None, bytes, int]]:
    """Yield row messages without end, and a BOOTSTRAP after the first: key, value, and the number of changelog rows."""
    head = f'{{"version":1,"database":"{DATABASE}","table":"{table.name}","tableID":112,"type":"'
    types = sorted(table.columns, key=lambda column: column.name)
    for number, change in enumerate(changes(table, seed, note_bytes)):
        operation = "DELETE" if change.after is None else "INSERT" if change.before is None else "UPDATE"
        images = {"data": change.after, "old": None if operation == "INSERT" else change.before}
        rows = "".join(f',"{name}":{_image(types, row)}' for name, row in images.items() if row is not None)
        times = f'"commitTs":{change.commit_ts},"buildTs":{(change.commit_ts >> 18) + _ENCODING_MS}'
        yield b"", f'{head}{operation}",{times},"schemaVersion":{_VERSION}{rows}}}'.encode(), change.rows
        if number == 0:
            yield None, bootstrap(table), 0


def bootstrap(table: Table) -> bytes:
    """Return the message that defines the table."""
    columns: list[dict[str, Any]] = []
    for name, type_name in table.columns:
        mysql_type, more = _TYPES.get(type_name, (type_name, {"length": 100}))
        data_type = {"mysqlType": mysql_type, "charset": "utf8mb4" if type_name in _UTF8 else "binary", **more}
        columns.append({"name": name, "dataType": data_type, "nullable": bool(columns), "default": None})
    index = {"name": "primary", "unique": True, "primary": True, "nullable": False, "columns": [table.columns[0].name]}
    schema = {"schema": DATABASE, "table": table.name, "tableID": 112, "version": _VERSION, "columns": columns,
              "indexes": [index]}  # fmt: skip
    times = {"commitTs": 0, "buildTs": TSO >> 18}
    return _dump({"version": 1, "type": "BOOTSTRAP", **times, "tableSchema": schema}).encode()


def _image(types: list[Any], row: Row) -> str:
    return _dump({name: _cell(type_name, row[name]) for name, type_name in types})


def _cell(type_name: str, value: Value) -> str | dict[str, str] | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if type_name == "timestamp":
        return {"location": "UTC", "value": str(value)}
    if type_name == "datetime":
        return value.isoformat(" ", "microseconds")  # type: ignore[union-attr,call-arg]
    return str(value)


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
