"""canal-json as TiCDC's encoder writes it with `enable-tidb-extension` (pkg/sink/codec/canal/canal_json_encoder.go).

Members are in its order; `mysqlType` has another order in every message, because it is a Go map; `sqlType` of an
unsigned column depends on the value (helper.go). All values are text, binary is text in ISO-8859-1.
"""

import json
import random
import re
from collections.abc import Iterator
from typing import Any

from benchmarks.corpus.tables import DATABASE, TSO, Change, Column, Row, Table, Value, changes

_TYPES: dict[str, tuple[str, int]] = {  # by the name in `COLUMN_TYPES`: `mysqlType`, and `sqlType` (java.sql.Types)
    "bigint": ("bigint", -5),
    "int": ("int", 4),
    "smallint": ("smallint", 5),
    "unsigned": ("bigint unsigned", -5),
    "decimal": ("decimal", 3),
    "double": ("double", 8),
    "date": ("date", 91),
    "datetime": ("datetime", 93),
    "timestamp": ("timestamp", 93),
    "varchar": ("varchar", 12),
    "text": ("text", 2005),
    "blob": ("blob", 2004),
    "enum": ("enum", 4),
    "json": ("json", 12),
}
_DECIMAL = 3  # sqlType of an unsigned bigint that does not fit a signed one
_ENCODING_MS = 5

# easyjson's escapes that differ from those of Python's encoder.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\\b": "\\u0008", "\\f": "\\u000c"}
_ESCAPED = re.compile(r"\\\\|[<>&]|\\[bf]")


def records(table: Table, seed: int, note_bytes: int = 0) -> Iterator[tuple[bytes, bytes, int]]:
    """Yield row messages without end: key, value, and the number of changelog rows."""
    encoder = Encoder(table, seed)
    for change in changes(table, seed, note_bytes):
        yield b"", encoder.message(change), change.rows


class Encoder:
    """Writes the messages of a table.

    Args:
        table: the table.
        seed: the same seed gives the same order of members where TiCDC has none.
    """

    def __init__(self, table: Table, seed: int) -> None:
        self._chooser = random.Random(seed)
        self._table = table
        self._names = [column.name for column in table.columns]
        self._mysql_types = {name: _TYPES[type_name][0] for name, type_name in table.columns}
        self._head = (
            f'{{"id":0,"database":"{DATABASE}","table":"{table.name}","pkNames":["{self._names[0]}"],'
            '"isDdl":false,"type":"'
        )

    def message(self, change: Change) -> bytes:
        """Return the message of a change."""
        row = change.after or change.before or {}
        operation = "DELETE" if change.after is None else "INSERT" if change.before is None else "UPDATE"
        stamp = change.commit_ts >> 18
        codes = {column.name: _code(column, row) for column in self._table.columns}
        self._chooser.shuffle(self._names)
        old = f"[{_image(self._table, change.before)}]" if operation == "UPDATE" and change.before else "null"
        text = (
            f'{self._head}{operation}","es":{stamp},"ts":{stamp + _ENCODING_MS},"sql":"","sqlType":{_dump(codes)},'
            f'"mysqlType":{_dump({name: self._mysql_types[name] for name in self._names})},'
            f'"old":{old},"data":[{_image(self._table, row)}],'
            f'"_tidb":{{"commitTs":{change.commit_ts}}}}}'
        )
        return text.encode()


def create_table(table: Table, commit_ts: int) -> bytes:
    """Return the message of a table's CREATE TABLE."""
    stamp = commit_ts >> 18
    return _dump({
        "id": 0, "database": DATABASE, "table": table.name, "pkNames": None, "isDdl": True, "type": "CREATE",
        "es": stamp, "ts": stamp + _ENCODING_MS, "sql": table.ddl, "sqlType": None, "mysqlType": None, "data": None,
        "old": None, "_tidb": {"commitTs": commit_ts},
    }).encode()  # fmt: skip


def watermarks(seed: int = 0) -> Iterator[tuple[None, bytes, int]]:
    """Yield watermark messages without end, one per second: records without rows."""
    number = seed
    while True:
        number += 1
        watermark = TSO + ((number * 1000) << 18)
        yield None, watermark_at(watermark), 0


def watermark_at(watermark: int) -> bytes:
    """Return a watermark message."""
    stamp = watermark >> 18
    return _dump({
        "id": 0, "database": "", "table": "", "pkNames": None, "isDdl": False, "type": "TIDB_WATERMARK",
        "es": stamp, "ts": stamp + _ENCODING_MS, "sql": "", "sqlType": None, "mysqlType": None, "data": None,
        "old": None, "_tidb": {"watermarkTs": watermark},
    }).encode()  # fmt: skip


def _code(column: Column, row: Row) -> int:
    value = row[column.name]
    promoted = column.type_name == "unsigned" and isinstance(value, int) and value >= 2**63
    return _DECIMAL if promoted else _TYPES[column.type_name][1]


def _image(table: Table, row: Row) -> str:
    text = _dump({name: _text(type_name, row[name]) for name, type_name in table.columns})
    return _ESCAPED.sub(lambda found: _ESCAPES.get(found[0], found[0]), text)


def _text(type_name: str, value: Value) -> str | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if type_name == "datetime":
        return value.isoformat(" ", "microseconds")  # type: ignore[union-attr,call-arg]
    return str(value)


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
