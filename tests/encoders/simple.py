"""Writes TiCDC's simple protocol (pingcap/ticdc pkg/sink/codec/simple: message.go, marshaller.go, avro.go)."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from fastavro import parse_schema, schemaless_writer

from tests.encoders.canal_json import DDL_TYPES, plain_float
from tests.encoders.compression import compressed
from tests.encoders.open_protocol import dump
from tests.encoders.tables import BLOBS, INTEGERS, TEXTS, Column, Event, Record, Table, images, local, text_of
from ticdc_source.protocols.simple.avro import _SCHEMA

_DDL_TYPES = {**DDL_TYPES, "exchange partition": "ALTER"}  # pkg/sink/codec/simple/message.go, getDDLType
_LENGTHS = {
    "date": 10, "year": 4, "json": 4294967295, "float": 12, "double": 22, "bit": 1,
    **dict(zip(TEXTS, (255, 65535, 16777215, 4294967295), strict=True)),
    **dict(zip(BLOBS, (255, 65535, 16777215, 4294967295), strict=True)),
}  # fmt: skip
_FRACTIONS = {"datetime": 19, "timestamp": 19, "time": 10}


@dataclass(frozen=True)
class Simple:
    """The encoder.

    Attributes:
        compression: large-message-handle-compression.
        avro: encoding-format=avro.
        time_zone: of the changefeed; the messages name it.
    """

    compression: str = "none"
    avro: bool = False
    time_zone: str = "UTC"
    build_ms: int = 0

    def message(self, events: Sequence[Event], tables: Sequence[Table | None]) -> Record:
        event, table = events[0], tables[0]
        if event["op"] == "watermark":
            return None, self._finished({"version": 1, "type": "WATERMARK", **self._times(event)})
        if event["op"] == "bootstrap":
            assert table is not None
            times = {"commitTs": 0, "buildTs": self.build_ms}
            return None, self._finished({"version": 1, "type": "BOOTSTRAP", **times, "tableSchema": schema_of(table)})
        if event["op"] == "ddl":
            described = {} if table is None else {"tableSchema": schema_of(table)}
            type_ = _DDL_TYPES.get(event["ddl_type"], "QUERY")
            message = {"version": 1, "type": type_, "sql": event["ddl_query"], **self._times(event), **described}
            return None, self._finished(message)
        assert table is not None
        return b"", self._finished(self._row(event, table))

    def _finished(self, message: dict[str, Any]) -> bytes:
        return compressed(_in_avro(message) if self.avro else dump(message), self.compression)

    def _times(self, event: Event) -> dict[str, int]:
        return {"commitTs": event["commit_ts"], "buildTs": self.build_ms}

    def _row(self, event: Event, table: Table) -> dict[str, Any]:
        before, after = images(event)
        large: dict[str, Any] = {}
        if "large" in event:
            large = {**({"claimCheckLocation": event["large"]} if event["large"] else {}), "handleKeyOnly": True}
        sides = {"data": after, "old": before}
        return {
            "version": 1, "database": table.schema, "table": table.name, "tableID": 1, "type": event["op"].upper(),
            **self._times(event), "schemaVersion": table.version, **large,
            **{side: self._image(row, table) for side, row in sides.items() if row is not None},
        }  # fmt: skip

    def _image(self, row: Mapping[str, Any], table: Table) -> dict[str, Any]:
        """Write a row: Go writes the members of a map in the order of their names."""
        named = sorted(row.items(), key=lambda item: item[0].encode())
        write = self.avro_cell if self.avro else self.cell
        return {name: None if value is None else write(table.by_name[name], value) for name, value in named}

    def cell(self, column: Column, value: Any) -> Any:
        type_name = column.type_name
        if type_name in ("enum", "set", "bit"):
            return str(value["number"])
        if column.binary:
            return base64.b64encode(bytes.fromhex(value["hex"])).decode()
        if type_name in ("float", "double"):
            return plain_float(value)
        if type_name == "year":
            return str(int(value))
        if type_name == "timestamp":
            return {"location": self.time_zone, "value": local(value, self.time_zone)}
        return text_of(value).encode(errors="surrogateescape").decode(errors="replace")

    def avro_cell(self, column: Column, value: Any) -> Any:
        """Write one value in Avro: the name of the branch, and what it holds."""
        type_name = column.type_name
        if type_name in ("enum", "set"):
            return "long", _signed(value["number"])
        if type_name == "bigint" and column.unsigned:
            return "UnsignedBigint", {"value": _signed(int(value))}
        if type_name in (*INTEGERS, "year"):
            return "long", int(value)
        if column.binary:
            return "bytes", bytes.fromhex(value["hex"])
        if type_name in ("float", "double"):
            return type_name, float(value)
        cell = self.cell(column, value)
        return ("Timestamp" if type_name == "timestamp" else "string"), cell


_2_63, _2_64 = 1 << 63, 1 << 64
_PARSED = parse_schema(_SCHEMA)
_KINDS = {"WATERMARK": "Watermark", "BOOTSTRAP": "Bootstrap", "INSERT": "DML", "UPDATE": "DML", "DELETE": "DML"}


def _signed(number: int) -> int:
    return number - _2_64 if number >= _2_63 else number


def _in_avro(message: dict[str, Any]) -> bytes:
    """Write a message as the branch `Message` of the schema."""
    kind = _KINDS.get(message["type"], "DDL")
    payload = {"indexes": [], **message}
    if "tableSchema" in message:
        described = message["tableSchema"]
        payload["tableSchema"] = {"indexes": [], **described, "database": described["schema"]}
        payload["tableSchema"]["columns"] = [
            {**column, "dataType": {"collate": "", **column["dataType"]}} for column in described["columns"]
        ]
    stream = BytesIO()
    schemaless_writer(stream, _PARSED, ("Message", {"type": kind.upper(), "payload": (kind, payload)}))
    return stream.getvalue()


def schema_of(table: Table) -> dict[str, Any]:
    keys = [(table.primary_key, True)] if table.primary_key else []
    indexes = [
        {
            "name": "primary" if primary else f"i{number}", "unique": unique, "primary": primary,
            "nullable": any(table.by_name[name].nullable for name in names), "columns": list(names),
        }
        for number, (names, unique, primary) in enumerate(
            [*((names, True, primary) for names, primary in keys), *((*index, False) for index in table.indexes)]
        )
    ]  # fmt: skip
    return {
        "schema": table.schema, "table": table.name, "tableID": 1, "version": table.version,
        "columns": [
            {"name": column.name, "dataType": _type(column), "nullable": column.nullable, "default": column.default}
            for column in table.columns
        ],
        **({"indexes": indexes} if indexes else {}),
    }  # fmt: skip


def _type(column: Column) -> dict[str, Any]:
    type_name, arguments = column.type_name, column.arguments
    length, decimal = (*arguments, None, None)[0], (*arguments, None, None)[1]
    if type_name in _FRACTIONS:
        length, decimal = _FRACTIONS[type_name] + (length + 1 if length else 0), length
    elif length is None:
        length = _LENGTHS.get(type_name, -1)
    unsigned = column.unsigned or type_name in ("bit", "year")
    return {
        "mysqlType": type_name,
        "charset": column.charset or "binary",
        "length": length,
        **({"decimal": decimal} if decimal and type_name not in ("float", "double") else {}),
        **({"elements": list(column.labels)} if type_name in ("enum", "set") else {}),
        **({"unsigned": True} if unsigned else {}),
        **({"zerofill": True} if column.zerofill or type_name == "year" else {}),
    }
