"""Writes TiCDC's avro protocol (pingcap/ticdc pkg/sink/codec/avro/arvo.go), and debezium-avro by the debezium encoder.

Each schema is registered at the test process's registry, whose id the messages have.
"""

import json
import struct
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from tests.encoders.debezium import Debezium
from tests.encoders.tables import INTEGERS, Column, Event, Record, Table, images, local, text_of
from tests.support.captured import sanitized
from tests.support.registry import registered

_2_63, _2_64 = 1 << 63, 1 << 64
_LOGICAL_BITS = 18
_TEXT_WORDS = {"date": "DATE", "datetime": "DATETIME", "timestamp": "TIMESTAMP", "time": "TIME", "json": "JSON",
               "vector": "TiDBVECTORFloat32"}  # fmt: skip
_OPS = {"insert": "c", "update": "u", "delete": "d"}


def varint(number: int) -> bytes:
    """Write an integer of Avro: zig-zag, seven bits a byte."""
    rest = (number << 1) ^ (number >> 63)
    written = bytearray()
    while rest > 0x7F:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*written, rest])


def named(type_: Any) -> dict[str, Any]:
    if isinstance(type_, list):
        return {name: record for branch in type_ for name, record in named(branch).items()}
    if not isinstance(type_, dict):
        return {}
    inner = [named(field["type"]) for field in type_.get("fields", ())]
    own = {f"{type_['namespace']}.{type_['name']}": type_} if type_["type"] == "record" else {}
    return {name: record for each in (*inner, own) for name, record in each.items()}


def body(type_: Any, value: Any, records: Mapping[str, Any]) -> bytes:
    if isinstance(type_, list):
        index = next(i for i, branch in enumerate(type_) if (branch == "null") == (value is None))
        return varint(index) + body(type_[index], value, records)
    declared = records.get(type_, type_) if isinstance(type_, str) else type_
    name = declared["type"] if isinstance(declared, dict) else declared
    match name:
        case "null":
            return b""
        case "int" | "long":
            return varint(value)
        case "boolean":
            return bytes([value])
        case "float" | "double":
            return struct.pack("<f" if name == "float" else "<d", value)
        case "string" | "bytes":
            data = value.encode(errors="surrogateescape") if isinstance(value, str) else bytes(value)
            return varint(len(data)) + data
    return b"".join(body(field["type"], value.get(field["name"]), records) for field in declared["fields"])


def framed(schema: Mapping[str, Any], row: Mapping[str, Any], *, glue: bool = False) -> bytes:
    schema_id = registered(json.dumps(schema, separators=(",", ":")), glue=glue)
    header = b"\x03\0" + schema_id.bytes if isinstance(schema_id, UUID) else b"\0" + struct.pack(">i", schema_id)
    return header + body(schema, row, named(schema))


@dataclass(frozen=True)
class Avro:
    """The encoder.

    Attributes:
        extension: enable-tidb-extension.
        before: avro-include-before-value.
        watermarks: avro-enable-watermark.
        decimals_as_text: avro-decimal-handling-mode=string.
        unsigned_as_text: avro-bigint-unsigned-handling-mode=string.
    """

    extension: bool = False
    before: bool = False
    watermarks: bool = False
    decimals_as_text: bool = False
    unsigned_as_text: bool = False
    glue: bool = False
    time_zone: str = "UTC"

    def message(self, events: Sequence[Event], tables: Sequence[Table | None]) -> Record:
        event, table = events[0], tables[0]
        if event["op"] == "watermark":
            return None, b"\x02" + struct.pack(">Q", event["commit_ts"])
        if event["op"] == "ddl":
            message = {"query": event["ddl_query"], "type": event["ddl_type_code"], "schema": event["schema"],
                       "table": event["table"], "commitTs": event["commit_ts"]}  # fmt: skip
            return None, b"\x01" + json.dumps(message, ensure_ascii=False).encode(errors="surrogateescape")
        assert table is not None
        return self._row(event, table)

    def _row(self, event: Event, table: Table) -> Record:
        before, after = images(event)
        described = after if after is not None else before
        assert described is not None
        key = None
        if table.primary_key:
            fields = [self.field(table.by_name[name]) for name in table.primary_key]
            row = {sanitized(name): self.cell(table.by_name[name], described[name]) for name in table.primary_key}
            key = framed(self._record(table, table.name, fields), row, glue=self.glue)
        if event["op"] == "delete" and not self.before:
            return key, b"\x03" + struct.pack(">Q", event["commit_ts"]) if self.watermarks else None
        fields = [self.field(column) for column in table.columns]
        row = self._image(table, described)
        schema = self._record(table, table.name, list(fields))
        if self.before:
            old = self._record(table, f"{table.name}_before", fields)
            schema["fields"].append({"name": "_ticdc_before", "type": ["null", old], "default": None})
            row["_ticdc_before"] = None if before is None else self._image(table, before)
        if self.extension or self.before:
            schema["fields"].append({"name": "_tidb_op", "type": "string", "default": ""})
            row["_tidb_op"] = _OPS[event["op"]]
        if self.extension:
            physical = event["commit_ts"] >> _LOGICAL_BITS
            for name, number in (("_tidb_commit_ts", event["commit_ts"]), ("_tidb_commit_physical_time", physical)):
                schema["fields"].append({"name": name, "type": "long", "default": 0})
                row[name] = number
        return key, framed(schema, row, glue=self.glue)

    def _image(self, table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
        return {sanitized(column.name): self.cell(column, row.get(column.name)) for column in table.columns}

    @staticmethod
    def _record(table: Table, name: str, fields: list[Any]) -> dict[str, Any]:
        return {"type": "record", "name": sanitized(name), "namespace": f"default.{sanitized(table.schema)}",
                "fields": fields}  # fmt: skip

    def field(self, column: Column) -> dict[str, Any]:
        type_, default = self._type(column), column.default
        if not column.nullable:
            return {"name": sanitized(column.name), "type": type_}
        has_default = default is not None and type_.get("logicalType") is None
        union = [type_, "null"] if has_default else ["null", type_]
        return {"default": default if has_default else None, "name": sanitized(column.name), "type": union}

    def _type(self, column: Column) -> dict[str, Any]:
        name, more, parameters = column.type_name, {}, {}
        unsigned = " UNSIGNED" if column.unsigned else ""
        if name in INTEGERS:
            wide = name == "bigint" or (name == "int" and column.unsigned)
            avro, word = "long" if wide else "int", ("BIGINT" if name == "bigint" else "INT") + unsigned
            if name == "bigint" and unsigned and self.unsigned_as_text:
                avro = "string"
        elif name == "year":
            avro, word = "int", "YEAR"
        elif name in ("float", "double"):
            avro, word = name, name.upper()
        elif name == "decimal":
            avro, word = "string" if self.decimals_as_text else "bytes", "DECIMAL"
            if not self.decimals_as_text:
                precision, scale = (*column.arguments, 0)[:2]
                more = {"logicalType": "decimal", "precision": precision, "scale": scale}
        elif name == "bit":
            avro, word, parameters = "bytes", "BIT", {"length": str((*column.arguments, 1)[0])}
        elif name in ("enum", "set"):
            allowed = ",".join(label.replace(",", "\\,") for label in column.labels)
            avro, word, parameters = "string", name.upper(), {"allowed": allowed}
        elif column.binary:
            avro, word = "bytes", "BLOB"
        else:
            avro, word = "string", _TEXT_WORDS.get(name, "TEXT")
        return {"type": avro, "connect.parameters": {"tidb_type": word, **parameters}, **more}

    def cell(self, column: Column, value: Any) -> Any:
        name = column.type_name
        if value is None or column.generated == "VIRTUAL":
            return None
        if name == "bigint" and column.unsigned and self.unsigned_as_text:
            return value
        if name in (*INTEGERS, "year"):
            number = int(value)
            return number - _2_64 if number >= _2_63 else number
        if name in ("float", "double"):
            return float(value)
        if name == "decimal":
            return str(value) if self.decimals_as_text else _unscaled(value, (*column.arguments, 0, 0)[1])
        if name == "bit":
            return value["number"].to_bytes(((*column.arguments, 1)[0] + 7) // 8, "big")
        if name in ("enum", "set"):
            return value["label"]
        if column.binary:
            return bytes.fromhex(value["hex"])
        return local(value, self.time_zone) if name == "timestamp" else text_of(value)


def _unscaled(text: str, scale: int) -> bytes:
    """Write a decimal as a big-endian integer, in as few bytes as it needs."""
    sign, digits, exponent = Decimal(text).as_tuple()
    number = int("".join(map(str, digits))) * 10 ** (scale + int(exponent))
    number = -number if sign else number
    size = (number + (number < 0)).bit_length() // 8 + 1
    written: bytes = number.to_bytes(size, "big", signed=True)
    return written


_BLOCK = {
    "type": "record", "name": "block", "namespace": "event",
    "fields": [{"name": "id", "type": "string"}, {"name": "total_order", "type": "long"},
               {"name": "data_collection_order", "type": "long"}],
}  # fmt: skip
_AVRO = {"int8": "int", "int16": "int", "int32": "int", "int64": "long"}


@dataclass(frozen=True)
class DebeziumAvro:
    """The encoder of debezium-avro: the envelopes of debezium, in Avro.

    Attributes:
        extension: enable-tidb-extension.
        old_value: output-old-value.
        numbers_as_text: avro-decimal-handling-mode=string and avro-bigint-unsigned-handling-mode=string.
    """

    extension: bool = False
    old_value: bool = True
    numbers_as_text: bool = False
    glue: bool = False
    time_zone: str = "UTC"

    def message(self, events: Sequence[Event], tables: Sequence[Table | None]) -> Record:
        """Write the record of one event: rows, and watermarks (with avro-enable-watermark)."""
        event, table = events[0], tables[0]
        inner = Debezium(extension=self.extension, old_value=self.old_value, time_zone=self.time_zone)
        parts = [(part or b"").decode(errors="surrogateescape") for part in inner.message(events, tables)]
        key, value = (json.loads(part, parse_float=Decimal) for part in parts)
        payload, source = value["payload"], value["payload"]["source"]
        source |= {} if table is None else {"thread": None, "snapshot": None}
        namespace = f"default.{sanitized(source['db'])}" if table is not None else "default.watermark"
        schemas: dict[str, Any] = {"source": self._source(namespace, source)}
        if table is not None:
            columns = {column.name: column for column in table.sent}
            fields = [
                self._field(field, columns) for field in _row_fields(value["schema"]) if field["field"] in columns
            ]
            fields = list({field["name"]: field for field in fields}.values())
            row = {"type": "record", "name": sanitized(table.name), "namespace": namespace, "fields": fields}
            schemas = {"before": ["null", row], "after": ["null", f"{namespace}.{row['name']}"], **schemas}
            for side, image in zip(("before", "after"), images(event), strict=True):
                if payload.get(side) is not None:
                    payload[side] = {
                        sanitized(name): self._cell(columns[name], cell, (image or {}).get(name))
                        for name, cell in payload[side].items()
                    }
        envelope: dict[str, Any] = {
            "type": "record", "name": "Envelope" if table is None else f"{sanitized(table.name)}Envelope",
            "namespace": namespace,
            "fields": [{"name": name, "type": type_} for name, type_ in schemas.items()]
            + [{"name": "op", "type": "string"}, {"name": "ts_ms", "type": "long"}],
        }  # fmt: skip
        if table is None:
            envelope["fields"][-1]["type"] = ["null", "long"]
            envelope["fields"].append({"name": "transaction", "type": ["null", _BLOCK]})
        keys = [] if table is None else table.handle_key
        fields = [self._field(each, columns) for each in key["schema"]["fields"]] if table is not None else []
        key_schema = {"type": "record", "name": f"{envelope['name']}Key", "namespace": namespace, "fields": fields}
        row_key = {sanitized(name): (payload.get("after") or payload.get("before"))[sanitized(name)] for name in keys}
        return framed(key_schema, row_key, glue=self.glue), framed(envelope, payload, glue=self.glue)

    @staticmethod
    def _source(namespace: str, source: Mapping[str, Any]) -> dict[str, Any]:
        names: dict[str, Any] = {name: "string" if isinstance(value, str) else "long" for name, value in source.items()}
        names |= {"snapshot": ["null", "string"], "gtid": ["null", "string"], "thread": ["null", "long"]}
        names |= {"query": ["null", "string"], "row": "int"}
        fields = [{"name": name, "type": type_} for name, type_ in names.items()]
        return {"type": "record", "name": "Source", "namespace": namespace, "fields": fields}

    def _field(self, field: Mapping[str, Any], columns: Mapping[str, Column]) -> dict[str, Any]:
        column = columns[field["field"]]
        type_: Any = {"type": _AVRO.get(field["type"], field["type"])}
        if field["type"] == "int16":
            type_["connect.type"] = "int16"
        if "name" in field:
            type_ |= {"connect.name": field["name"], "connect.parameters": field.get("parameters", {})}
        if column.type_name == "decimal":
            precision, scale = (*column.arguments, 0)[:2]
            type_ = {"type": "string"} if self.numbers_as_text else {
                "type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale,
                "connect.name": "org.apache.kafka.connect.data.Decimal",
                "connect.parameters": {"precision": str(precision), "scale": str(scale)},
            }  # fmt: skip
        elif column.type_name == "bigint" and column.unsigned and self.numbers_as_text:
            type_ = {"type": "string"}
        elif column.binary:
            type_ = {"type": "bytes"}
        said = {"tidb_type": field["tidb_type"]} if "tidb_type" in field else {}
        return {"name": sanitized(column.name), "connect.field": column.name, "type": ["null", type_], "default": None,
                **said}  # fmt: skip

    def _cell(self, column: Column, cell: Any, truth: Any) -> Any:
        if cell is None:
            return None
        if column.type_name == "decimal":
            text = truth if truth is not None else column.default or ""
            return text if self.numbers_as_text else _unscaled(text, (*column.arguments, 0, 0)[1])
        if column.type_name == "bigint" and column.unsigned and self.numbers_as_text:
            return str(cell % _2_64)
        if column.binary or (column.type_name == "bit" and isinstance(cell, str)):
            return b64decode(cell)
        if column.type_name == "float" and column.arguments:  # a double that holds 32 bits
            return struct.unpack("<f", struct.pack("<f", float(cell)))[0]
        if isinstance(cell, Decimal):
            return float(cell)
        return float(cell) if column.type_name in ("float", "double") else cell


def _row_fields(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    fields: list[Mapping[str, Any]] = next(each["fields"] for each in schema["fields"] if each["field"] == "before")
    return fields


__all__ = ["Avro", "DebeziumAvro", "framed"]
