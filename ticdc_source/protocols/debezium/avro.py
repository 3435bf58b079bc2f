"""The debezium-avro decoder: debezium's envelopes in Avro, after a schema id.

Messages are converted to the JSON's form: Avro's schema to Kafka Connect's, and bytes to base64. So both decoders read
types and values alike (pingcap/ticdc pkg/sink/codec/debezium/avro.go; docs/wire.md, items 129 to 131).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa

from ticdc_source.kernels.numbers import shortest_single
from ticdc_source.options.logins import RegistrySettings
from ticdc_source.protocols.base import ORIGIN, Decoded, LearnedTable
from ticdc_source.protocols.debezium import Debezium, add_event, commit_ts_of, shows_extension
from ticdc_source.protocols.debezium.column_types import DECIMAL
from ticdc_source.protocols.decoding import Decoder
from ticdc_source.protocols.events import Split, TableEvents
from ticdc_source.protocols.images import Parse
from ticdc_source.protocols.messages import MALFORMED, JSONObject, parse_object
from ticdc_source.protocols.registry_framing import AvroSchema, body_of, is_envelope, schema_of, type_of_field
from ticdc_source.protocols.templates import General
from ticdc_source.sources.chunk import Chunk
from ticdc_source.sources.schema_registry import SchemaId

# Avro's name of a type → Kafka Connect's.
_CONNECT = {"int": "int32", "long": "int64"}


def _recognizes(key: bytes | None, value: bytes | None) -> bool:  # noqa: ARG001 (the value is enough)
    return is_envelope(value)


@dataclass(frozen=True)
class _Envelope:
    """A schema, and its content in the form of Kafka Connect's JSON; `names` has column names by field name."""

    schema: AvroSchema
    names: Mapping[str, str]
    singles: frozenset[str]
    fields: Sequence[JSONObject] | None


class DebeziumAvro(Debezium):
    """The debezium-avro decoder."""

    facts = replace(
        Debezium.facts,
        name="debezium-avro",
        recognizes=_recognizes,
        watermarks_need="enable-tidb-extension=true and avro-enable-watermark=true",
        shows_extension=lambda value, registry: shows_extension(_message_of(registry, value)),
    )

    split = Decoder.split  # without prefixes of JSON

    def _add(self, split: Split, chunk: Chunk, position: int) -> None:
        value = chunk.values[position]
        if value:
            add_event(split, chunk, position, value, self._message(value)["payload"])
        else:
            split.skipped += 1

    def origins(self, events: TableEvents) -> pa.StructArray:
        return pa.array(map(self._origin, events.payloads), ORIGIN)

    def commit_versions(self, events: TableEvents) -> pa.Int64Array:
        return pa.array([self._commit_ts(payload) for payload in events.payloads], pa.int64())

    def _commit_ts(self, value: bytes) -> int | None:
        try:
            return commit_ts_of(self._message(value)["payload"])[0]
        except MALFORMED:
            return None

    def _by_templates(self, events: TableEvents, learned: LearnedTable, general: General) -> Decoded:  # noqa: ARG002
        return general(events, None)

    def _message(self, value: bytes, parse: Parse = parse_object) -> JSONObject:  # noqa: ARG002 (it is no JSON)
        return _message_of(self.settings.registry, value)

    def _members(self, key: bytes | None) -> frozenset[str]:
        try:
            return _names_in_key(self.settings.registry, key)
        except MALFORMED:
            return frozenset()


def _message_of(registry: RegistrySettings, value: bytes) -> JSONObject:
    """Convert a message to the JSON's form."""
    schema_id, start = body_of(value)
    envelope = _envelope_of(registry, schema_id)
    payload = envelope.schema.read(value, start)
    for image in ("before", "after"):
        row = payload.get(image)
        if row is not None:
            payload[image] = {
                envelope.names[name]: _as_json(cell, is_single=name in envelope.singles) for name, cell in row.items()
            }
    schema = None if envelope.fields is None else {"fields": [{"field": "after", "fields": envelope.fields}]}
    return {"payload": payload, "schema": schema}


def _names_in_key(registry: RegistrySettings, key: bytes | None) -> frozenset[str]:
    if not key:
        return frozenset()
    fields = schema_of(registry, body_of(key).schema_id).declared["fields"]
    return frozenset(str(field.get("connect.field", field["name"])) for field in fields)


def _as_json(cell: object, *, is_single: bool) -> object:
    if is_single and isinstance(cell, float):
        return float(shortest_single(cell))
    return base64.b64encode(cell).decode() if type(cell) is bytes else cell


@lru_cache(maxsize=4096)
def _envelope_of(settings: RegistrySettings, schema_id: SchemaId) -> _Envelope:
    schema = schema_of(settings, schema_id)
    row = next((_record_of(field["type"]) for field in schema.declared["fields"] if field["name"] == "before"), None)
    if row is None:
        return _Envelope(schema, {}, frozenset(), None)
    names = {field["name"]: str(field.get("connect.field", field["name"])) for field in row["fields"]}
    singles = frozenset(field["name"] for field in row["fields"] if _is_single(field))
    return _Envelope(schema, names, singles, [_connect_field(field, names[field["name"]]) for field in row["fields"]])


def _record_of(type_: object) -> dict[str, Any] | None:
    branches = type_ if isinstance(type_, list) else [type_]
    return next((each for each in branches if isinstance(each, dict) and each.get("type") == "record"), None)


def _is_single(field: Mapping[str, Any]) -> bool:
    """Whether a column is FLOAT; FLOAT(M,D) is a double that holds 32 bits."""
    return type_of_field(field)["type"] == "float" or str(field.get("tidb_type")).startswith("float")


def _connect_field(field: Mapping[str, Any], name: str) -> JSONObject:
    """Convert a field to the JSON schema's form. Every column may be NULL there, unlike in the table."""
    type_ = type_of_field(field)
    parameters = dict(type_.get("connect.parameters") or {})
    semantic = type_.get("connect.name")
    if semantic == DECIMAL:
        parameters["connect.decimal.precision"] = parameters.get("precision", type_.get("precision"))
    said: JSONObject = {
        "field": name,
        "type": type_.get("connect.type") or _CONNECT.get(type_["type"], type_["type"]),
        "parameters": parameters,
    }
    if semantic is not None:
        said["name"] = semantic
    if "tidb_type" in field:
        said["tidb_type"] = field["tidb_type"]
    return said
