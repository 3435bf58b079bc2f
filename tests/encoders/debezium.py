"""Writes TiCDC's debezium JSON (pingcap/ticdc pkg/sink/codec/debezium/codec.go): rows, DDL events, watermarks."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.encoders.compression import compressed
from tests.encoders.debezium_ddl import table_changes
from tests.encoders.debezium_values import default_of, value_of
from tests.encoders.open_protocol import dump
from tests.encoders.tables import Column, Event, Record, Table, chosen, images

_LOGICAL_BITS = 18
_INTEGERS = {"tinyint": "int16", "smallint": "int16", "mediumint": "int32", "int": "int32", "bigint": "int64"}
_UNSIGNED = {**_INTEGERS, "smallint": "int32", "int": "int64"}
_SEMANTIC = {
    "date": ("int32", "io.debezium.time.Date"),
    "time": ("int64", "io.debezium.time.MicroTime"),
    "timestamp": ("string", "io.debezium.time.ZonedTimestamp"),
    "year": ("int32", "io.debezium.time.Year"),
    "enum": ("string", "io.debezium.data.Enum"),
    "set": ("string", "io.debezium.data.EnumSet"),
    "json": ("string", "io.debezium.data.Json"),
    "vector": ("string", "io.debezium.data.TiDBVectorFloat32"),
}
_ROW_OPS = {"insert": "c", "update": "u", "delete": "d"}
_MILLISECONDS = 3  # digits of fraction up to which a DATETIME is sent in milliseconds


def _field(field: str, type_name: str, *, optional: bool = False, **more: Any) -> dict[str, Any]:
    return {"type": type_name, "optional": optional, **more, "field": field}


_SOURCE_FIELDS = [
    _field("version", "string"), _field("connector", "string"), _field("name", "string"), _field("ts_ms", "int64"),
    _field("snapshot", "string", optional=True, name="io.debezium.data.Enum", version=1,
           parameters={"allowed": "true,last,false,incremental"}, default="false"),
    _field("db", "string"), _field("sequence", "string", optional=True), _field("table", "string", optional=True),
    _field("server_id", "int64"), _field("gtid", "string", optional=True), _field("file", "string"),
    _field("pos", "int64"), _field("row", "int32"), _field("thread", "int64", optional=True),
    _field("query", "string", optional=True),
]  # fmt: skip
_TRANSACTION = {
    "type": "struct",
    "fields": [_field("id", "string"), _field("total_order", "int64"), _field("data_collection_order", "int64")],
    "optional": True, "name": "event.block", "version": 1, "field": "transaction",
}  # fmt: skip
_COLUMN_FIELDS = [
    _field("name", "string"), _field("jdbcType", "int32"), _field("nativeType", "int32", optional=True),
    _field("typeName", "string"), _field("typeExpression", "string", optional=True),
    _field("charsetName", "string", optional=True), _field("length", "int32", optional=True),
    _field("scale", "int32", optional=True), _field("position", "int32"), _field("optional", "boolean", optional=True),
    _field("autoIncremented", "boolean", optional=True), _field("generated", "boolean", optional=True),
    _field("comment", "string", optional=True), _field("defaultValueExpression", "string", optional=True),
    _field("enumValues", "array", optional=True, items={"type": "string", "optional": False}),
]  # fmt: skip
_CHANGE = {
    "name": "io.debezium.connector.schema.Change", "optional": False, "type": "struct", "version": 1,
    "fields": [
        _field("type", "string"), _field("id", "string"),
        _field("table", "struct", optional=True, name="io.debezium.connector.schema.Table", version=1, fields=[
            _field("defaultCharsetName", "string", optional=True),
            _field("primaryKeyColumnNames", "array", optional=True, items={"type": "string", "optional": False}),
            _field("columns", "array", items={
                "name": "io.debezium.connector.schema.Column", "optional": False, "type": "struct", "version": 1,
                "fields": _COLUMN_FIELDS,
            }),
            _field("comment", "string", optional=True),
        ]),
    ],
}  # fmt: skip


def column_field(column: Column, *, extension: bool) -> dict[str, Any]:
    type_name = column.type_name
    field: dict[str, Any] = {"type": "string", "optional": column.nullable}
    if type_name in _INTEGERS:
        field["type"] = (_UNSIGNED if column.unsigned else _INTEGERS)[type_name]
    elif type_name == "float" and not column.arguments:
        field["type"] = "float"
    elif type_name in ("float", "double", "decimal"):
        field["type"] = "double"
    elif type_name == "bit" and column.arguments == (1,):
        field["type"] = "boolean"
    elif type_name == "bit":
        length = str(column.arguments[0])
        field |= {"type": "bytes", "name": "io.debezium.data.Bits", "version": 1, "parameters": {"length": length}}
    elif type_name == "datetime":
        unit = "Timestamp" if (*column.arguments, 0)[0] <= _MILLISECONDS else "MicroTimestamp"
        field |= {"type": "int64", "name": f"io.debezium.time.{unit}", "version": 1}
    elif type_name in _SEMANTIC:
        field["type"], field["name"] = _SEMANTIC[type_name]
        if type_name != "vector":
            field["version"] = 1
    if type_name in ("enum", "set"):
        labels = [label.replace(",", "\\,") for label in column.labels] if type_name == "enum" else column.labels
        field["parameters"] = {"allowed": ",".join(labels)}
    default = None if column.default is None else default_of(column, in_schema=True)
    if default is not None:
        field["default"] = default
    if extension:
        unsigned = column.unsigned and type_name != "decimal"
        field["tidb_type"] = f"{type_name} unsigned" if unsigned else type_name
    return {**field, "field": column.name}


def sanitised(name: str) -> str:
    clean = re.sub(r"[^A-Za-z0-9_.]", "_", name)
    return f"_{clean}" if clean[:1].isdigit() else clean


@dataclass(frozen=True)
class Debezium:
    """The encoder.

    Attributes:
        schema: False with debezium-disable-schema.
        extension: enable-tidb-extension: tidb_type, watermarks, and the schema of source's TiDB members.
        old_value: output-old-value.
        compression: large-message-handle-compression, of key and value.
        start_ts: debezium-include-start-ts.
    """

    schema: bool = True
    extension: bool = False
    old_value: bool = True
    compression: str = "none"
    start_ts: bool = False
    time_zone: str = "UTC"
    cluster: str = "default"
    build_ms: int = 0

    def message(self, events: Sequence[Event], tables: Sequence[Table | None]) -> Record:
        event, table = events[0], tables[0]
        if event["op"] == "ddl":
            return self._ddl(event, table)
        if event["op"] == "watermark":
            return self._watermark(event)
        assert table is not None
        return self._row(event, table)

    def _record(self, key: Mapping[str, Any], key_schema: Any, value: Mapping[str, Any], value_schema: Any) -> Record:
        parts = []
        for payload, schema in ((key, key_schema), (value, value_schema)):
            message = {"payload": payload, **({"schema": schema} if self.schema else {})}
            parts.append(compressed(dump(message), self.compression))
        return parts[0], parts[1]

    def _source(self, event: Event) -> dict[str, Any]:
        return {
            "version": "2.4.0.Final", "connector": "TiCDC", "name": self.cluster,
            "ts_ms": event["commit_ts"] >> _LOGICAL_BITS, "snapshot": "false", "db": event.get("schema", ""),
            "table": event.get("table", ""), "server_id": 0, "gtid": None, "file": "", "pos": 0, "row": 0,
            "thread": 0, "query": None, "commit_ts": event["commit_ts"],
            **({"start_ts": event.get("start_ts", 0)} if self.start_ts and event["op"] in _ROW_OPS else {}),
            "cluster_id": self.cluster,
        }  # fmt: skip

    def _source_schema(self, *, row: bool = False) -> dict[str, Any]:
        more = [_field("commit_ts", "int64"), _field("cluster_id", "string")] if self.extension else []
        more += [_field("start_ts", "int64")] if self.start_ts and row else []
        return {
            "type": "struct", "fields": [*_SOURCE_FIELDS, *more], "optional": False,
            "name": "io.debezium.connector.mysql.Source", "field": "source",
        }  # fmt: skip

    def _envelope(self, name: str, *rows: dict[str, Any]) -> dict[str, Any]:
        fields = [
            *rows, self._source_schema(row=bool(rows)), _field("op", "string"),
            _field("ts_ms", "int64", optional=True), _TRANSACTION,
        ]  # fmt: skip
        return {"type": "struct", "optional": False, "name": f"{name}.Envelope", "version": 1, "fields": fields}

    def _row(self, event: Event, table: Table) -> Record:
        before, after = images(event)
        name = f"{sanitised(self.cluster)}.{sanitised(table.schema)}.{sanitised(table.name)}"
        described = before if after is None else after
        assert described is not None
        payload: dict[str, Any] = {
            "source": self._source(event), "ts_ms": self.build_ms, "transaction": None, "op": "",
        }  # fmt: skip
        payload["op"] = _ROW_OPS[event["op"]]
        sides = {"before": self.image(before, table), "after": self.image(after, table)}
        if payload["op"] == "u" and not self.old_value:
            del sides["before"]
        payload |= {side: sides[side] for side in (("after", "before") if after is None else sides)}
        if not self.schema:
            return self._record(self.image(chosen(described, table.handle_key), table) or {}, None, payload, None)
        virtual = [column for column in table.columns if column.generated == "VIRTUAL"]
        fields = [column_field(column, extension=self.extension) for column in (*table.columns, *virtual)]
        rows = [
            {"type": "struct", "optional": True, "name": f"{name}.Value", "field": side, "fields": fields}
            for side in ("before", "after")
        ]
        keys = [
            column_field(column, extension=self.extension)
            for column in table.columns
            if column.name in table.handle_key
        ]
        key_schema = {"type": "struct", "name": f"{name}.Key", "optional": False, "fields": keys}
        key = self.image(chosen(described, table.handle_key), table) or {}
        return self._record(key, key_schema, payload, self._envelope(name, *rows))

    def image(self, row: Mapping[str, Any] | None, table: Table) -> dict[str, Any] | None:
        """Write one row; a NULL of a column with a default is written as the default."""
        if row is None:
            return None
        return {name: value_of(table.by_name[name], value, self.time_zone) for name, value in row.items()}

    def _watermark(self, event: Event) -> Record:
        name = f"{sanitised(self.cluster)}.watermark"
        payload = {"source": self._source(event), "ts_ms": self.build_ms, "transaction": None, "op": "m"}
        key_schema = {"fields": [], "name": f"{name}.Key", "optional": False, "type": "struct"}
        return self._record({}, key_schema, payload, self._envelope(name))

    def _ddl(self, event: Event, table: Table | None) -> Record:
        payload = {
            "source": self._source(event), "ts_ms": self.build_ms, "databaseName": event["schema"],
            "schemaName": None, "ddl": event["ddl_query"], "tableChanges": table_changes(event, table),
        }  # fmt: skip
        key_schema = {
            "type": "struct", "name": "io.debezium.connector.mysql.SchemaChangeKey", "optional": False, "version": 1,
            "fields": [_field("databaseName", "string")],
        }  # fmt: skip
        fields = [
            self._source_schema(), _field("ts_ms", "int64"), _field("databaseName", "string", optional=True),
            _field("schemaName", "string", optional=True), _field("ddl", "string", optional=True),
            _field("tableChanges", "array", items=_CHANGE),
        ]  # fmt: skip
        schema = {
            "type": "struct", "optional": False, "version": 1, "fields": fields,
            "name": "io.debezium.connector.mysql.SchemaChangeValue",
        }  # fmt: skip
        return self._record({"databaseName": event["schema"]}, key_schema, payload, schema)
