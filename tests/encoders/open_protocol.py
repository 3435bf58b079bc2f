"""Writes open-protocol (pingcap/ticdc pkg/sink/codec/open/codec.go and encoder.go; its bug: docs/wire.md, item 35).

Each option that changes the output is a field; the defaults are TiCDC's own.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.encoders.compression import compressed
from tests.encoders.tables import BLOBS, INTEGERS, TEXTS, Column, Event, Record, Table, changed, images, local, text_of

_CODES = {
    "tinyint": 1, "smallint": 2, "int": 3, "float": 4, "double": 5, "timestamp": 7, "bigint": 8, "mediumint": 9,
    "date": 10, "time": 11, "datetime": 12, "year": 13, "varchar": 15, "varbinary": 15, "bit": 16, "vector": 225,
    "json": 245, "decimal": 246, "enum": 247, "set": 248, "tinytext": 249, "tinyblob": 249, "mediumtext": 250,
    "mediumblob": 250, "longtext": 251, "longblob": 251, "text": 252, "blob": 252, "char": 254, "binary": 254,
}  # fmt: skip
_BINARY, _HANDLE, _GENERATED, _PRIMARY, _UNIQUE, _MULTIPLE, _NULLABLE, _UNSIGNED = (1 << bit for bit in range(8))
_ROW, _DDL, _RESOLVED = 1, 2, 3
_LETTERS = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\",
    '"': '\\"',
}  # fmt: skip
_LAST_OF_BMP = 0xFFFF


def dump(value: Any) -> bytes:
    """Write JSON without white space; bytes that are not UTF-8 stay as they are."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogateescape")


def framed(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def go_quoted(data: bytes) -> str:
    out = []
    for char in data.decode(errors="surrogateescape"):
        code = ord(char)
        if char in _LETTERS:
            out.append(_LETTERS[char])
        elif 0xDC80 <= code <= 0xDCFF:
            out.append(f"\\x{code - 0xDC00:02x}")
        elif char.isprintable():
            out.append(char)
        elif code < 0x20 or code == 0x7F:
            out.append(f"\\x{code:02x}")
        elif code <= _LAST_OF_BMP:
            out.append(f"\\u{code:04x}")
        else:
            out.append(f"\\U{code:08x}")
    return "".join(out)


def _flags(table: Table, column: Column) -> int:
    flags = _NULLABLE if column.nullable else 0
    if column.charset is None:
        flags |= _BINARY
    if column.name in table.handle_key:
        flags |= _HANDLE
    if column.generated == "STORED":
        flags |= _GENERATED
    if column.name in table.primary_key:
        flags |= _PRIMARY
    for names, unique in (*table.indexes, (table.primary_key, False)):
        if column.name in names:
            flags |= _UNIQUE if unique else 0
            flags |= _MULTIPLE if len(names) > 1 or not (unique or names is table.primary_key) else 0
    if column.unsigned or column.type_name in ("year", "bit"):
        flags |= _UNSIGNED
    return flags


@dataclass(frozen=True)
class OpenProtocol:
    """The encoder.

    Attributes:
        old_value: output-old-value.
        only_updated: only-output-updated-columns, with TiCDC's bug of values that became NULL.
        delete_handle_key: delete-only-output-handle-key-columns.
        compression: large-message-handle-compression.
    """

    old_value: bool = True
    only_updated: bool = False
    delete_handle_key: bool = False
    compression: str = "none"
    time_zone: str = "UTC"

    def message(self, events: Sequence[Event], tables: Sequence[Table | None]) -> Record:
        """Write the record of one batch of events: rows, or (in TiCDC v4.0) several DDL or resolved events."""
        heads, bodies = [], []
        for event, table in zip(events, tables, strict=True):
            heads.append(self._head(event))
            bodies.append(self._body(event, table))
        return (1).to_bytes(8, "big") + framed(*heads), framed(*bodies)

    def _head(self, event: Event) -> bytes:
        if event["op"] == "watermark":
            return dump({"ts": event["commit_ts"], "t": _RESOLVED})
        head = {"ts": event["commit_ts"], "scm": event["schema"], "tbl": event["table"]}
        if event["op"] == "ddl":
            return dump({**head, "t": _DDL})
        written = dump({**head, "t": _ROW})[:-1]
        if "large" in event:
            written += b',"ohk":true'
        if event.get("large"):  # the member is written twice, and the second is right (codec.go:52-58)
            written += b',"ohk":false,"ccl":' + dump(event["large"])
        if event.get("physical_table_id") is not None:
            written += b',"ptn":%d' % event["physical_table_id"]
        return written + b"}"

    def _body(self, event: Event, table: Table | None) -> bytes:
        if event["op"] == "watermark":
            return b""  # a frame of no bytes
        if event["op"] == "ddl":
            return compressed(dump({"q": event["ddl_query"], "t": event["ddl_type_code"]}), self.compression)
        assert table is not None
        return compressed(self._row(event, table), self.compression)

    def _row(self, event: Event, table: Table) -> bytes:
        before, after = images(event)
        if after is None:
            assert before is not None
            names = table.handle_key if self.delete_handle_key else tuple(before)
            return dump({"d": {name: self.cell(table, name, before[name]) for name in before if name in names}})
        row = dump({"u": {name: self.cell(table, name, value) for name, value in after.items()}})
        if before is None or not self.old_value:
            return row
        if not self.only_updated:
            old = dump({name: self.cell(table, name, value) for name, value in before.items()})
        else:
            old = self._updated(table, before, after)
        return b'%b,"p":%b}' % (row[:-1], old)

    def _updated(self, table: Table, before: Mapping[str, Any], after: Mapping[str, Any]) -> bytes:
        """Write the old values that changed; if a column is NULL now, its name is missing."""
        members = []
        for name in changed(before, after):
            cell = dump(self.cell(table, name, before[name]))
            members.append(cell[1:-1] if after[name] is None else dump(name) + b":" + cell)
        return b"{" + b",".join(members) + b"}"

    def cell(self, table: Table, name: str, value: Any) -> dict[str, Any]:
        column = table.by_name[name]
        cell: dict[str, Any] = {"t": _CODES[column.type_name]}
        if name in table.handle_key:
            cell["h"] = True
        cell["f"] = _flags(table, column)
        cell["v"] = None if value is None else self._value(column, value)
        return cell

    def _value(self, column: Column, value: Any) -> Any:
        type_name = column.type_name
        if type_name in INTEGERS or type_name == "year":
            return int(value)
        if type_name in ("float", "double"):
            return float(value)
        if type_name in ("enum", "set", "bit"):
            return value["number"]
        if type_name in (*TEXTS, *BLOBS):
            data = bytes.fromhex(value["hex"]) if isinstance(value, dict) else value.encode()
            return base64.b64encode(data).decode()
        if column.binary:
            return go_quoted(bytes.fromhex(value["hex"]))
        if type_name == "timestamp":
            return local(value, self.time_zone)
        return text_of(value)
