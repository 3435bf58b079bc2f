"""The Avro encoding of simple (`encoding-format=avro`): parses messages, and converts rows to the JSON's form.

A message is Avro without a registry's header; its schema is a union of records, of which `Message` comes last
(docs/wire.md, items 45 and 120). fastavro reads it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import Any

from ticdc_source.errors import DecodeError
from ticdc_source.kernels.numbers import shortest_single
from ticdc_source.protocols.compression import SIMPLE_IN_AVRO
from ticdc_source.protocols.images import Parse
from ticdc_source.protocols.messages import JSONObject, parse_exact
from ticdc_source.protocols.registry_framing import fastavro_module, read_body, read_varint, text_bounds
from ticdc_source.schema.model import Column
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import BINARIES

_ROW = SIMPLE_IN_AVRO[-1]
_2_64 = 1 << 64


def is_avro(value: bytes) -> bool:
    return value.startswith(SIMPLE_IN_AVRO)


def _record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": type_} for each, type_ in fields.items()]}


def _enum(name: str, *symbols: str) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols)}


def _maybe(type_: object) -> list[object]:
    return ["null", type_]


_STRINGS = {"type": "array", "items": "string"}
_CELLS = {
    "type": "map",
    "values": ["null", "long", "float", "double", "string", "bytes", "Timestamp", "UnsignedBigint"],
}
_TIMES = {"commitTs": "long", "buildTs": "long"}
# In the order of TiCDC's own schema, because branches are numbers (pingcap/ticdc pkg/sink/codec/simple/message.json).
_SCHEMA = [
    _record("DataType", mysqlType="string", charset="string", collate="string", length="long", decimal=_maybe("int"),
            elements=_maybe(_STRINGS), unsigned=_maybe("boolean"), zerofill=_maybe("boolean")),
    _record("ColumnSchema", name="string", dataType="DataType", nullable="boolean", default=_maybe("string")),
    _record("IndexSchema", name="string", unique="boolean", primary="boolean", nullable="boolean", columns=_STRINGS),
    _record("TableSchema", database="string", table="string", tableID="long", version="long",
            columns={"type": "array", "items": "ColumnSchema"}, indexes={"type": "array", "items": "IndexSchema"}),
    _record("Checksum", version="int", corrupted="boolean", current="long", previous="long"),
    _record("Watermark", version="int", **_TIMES),
    _record("Bootstrap", version="int", buildTs="long", tableSchema="TableSchema"),
    _record("DDL", version="int", type=_enum("DDLType", "CREATE", "ALTER", "ERASE", "RENAME", "TRUNCATE", "CINDEX",
            "DINDEX", "QUERY"), sql="string", **_TIMES, tableSchema=_maybe("TableSchema"),
            preTableSchema=_maybe("TableSchema")),
    _record("Timestamp", location="string", value="string"),
    _record("UnsignedBigint", value="long"),
    _record("DML", version="int", database="string", table="string", tableID="long",
            type=_enum("DMLType", "INSERT", "UPDATE", "DELETE"), **_TIMES, schemaVersion="long",
            claimCheckLocation=_maybe("string"), handleKeyOnly=_maybe("boolean"), checksum=_maybe("Checksum"),
            data=_maybe(_CELLS), old=_maybe(_CELLS)),
    _record("Message", type=_enum("MessageType", "WATERMARK", "BOOTSTRAP", "DDL", "DML"),
            payload=["Watermark", "Bootstrap", "DDL", "DML"]),
]  # fmt: skip


@cache
def _parsed_schema() -> tuple[ModuleType, object]:
    fastavro = fastavro_module(DecodeError)
    return fastavro, fastavro.parse_schema(_SCHEMA)


def parse_avro(value: bytes) -> JSONObject:
    """Parse a message into the members of the JSON encoding, without nulls.

    Cells keep their Avro values until `row_as_json`.

    Raises:
        DecodeError: fastavro is not installed.
        ValueError: the bytes are not a simple message in Avro.
    """
    message = read_body(*_parsed_schema(), value, 0)
    members = {"type": message["type"], "commitTs": 0, **message["payload"]}  # a BOOTSTRAP in JSON has 0
    return {name: member for name, member in members.items() if member is not None}


def message_of(value: bytes, parse: Parse = parse_exact) -> JSONObject:
    """Parse a message in either encoding."""
    return parse_avro(value) if is_avro(value) else parse(value)


def table_of_row(value: bytes) -> TableName | None:
    """Return the table of a row message without parsing all of it; None for other messages.

    Raises:
        ValueError: the bytes are not a simple message in Avro, or a name is not UTF-8.
    """
    if not value.startswith(_ROW):
        return None
    position = read_varint(value, len(_ROW))[1]  # the version
    database, end = text_bounds(value, position)
    table, end_of_table = text_bounds(value, end)
    return TableName(value[database:end].decode(), value[table:end_of_table].decode())


def commit_ts_of_row(value: bytes) -> int | None:
    """Return the commit-ts of a row message in Avro without parsing all of it; None if not found."""
    if not value.startswith(_ROW):
        return None
    try:
        position = read_varint(value, len(_ROW))[1]
        for _ in ("database", "table"):
            position = text_bounds(value, position)[1]
        for _ in ("tableID", "type"):
            position = read_varint(value, position)[1]
        return read_varint(value, position)[0]
    except ValueError:
        return None


def row_as_json(row: Mapping[str, Any], columns: Sequence[Column]) -> dict[str, Any]:
    """Convert a row's cells to the JSON encoding: texts, and an object for a TIMESTAMP."""
    types = {column.name: "" if column.type is None else column.type.name for column in columns}
    return {name: _cell(cell, types.get(name, "")) for name, cell in row.items()}


def _cell(cell: object, type_name: str) -> object:
    if isinstance(cell, bytes):
        return (
            base64.b64encode(cell).decode()
            if type_name in BINARIES or not type_name
            else cell.decode("utf-8", "surrogateescape")
        )
    if isinstance(cell, dict):
        is_timestamp = "location" in cell
        return cell if is_timestamp else str(cell["value"] % _2_64)  # an UnsignedBigint is a long that wraps around
    if isinstance(cell, float):
        return shortest_single(cell) if type_name == "float" else repr(cell)
    if isinstance(cell, int):
        return str(cell % _2_64 if type_name in ("set", "bit") else cell)  # negative for 64 members or bits
    return cell
