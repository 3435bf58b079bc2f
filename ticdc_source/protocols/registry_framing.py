"""Avro bodies behind a schema id: the headers of Confluent's registry and of AWS Glue, and the schemas they name.

Confluent: `00`, the id as a big-endian int32, the body. Glue: `03`, `00` for no compression, 16 bytes of a UUID, the
body (pingcap/ticdc pkg/sink/codec/avro, confluent_schema_registry.go and glue_schema_registry.go; docs/wire.md, item
114).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from ticdc_source.errors import DecodeError, SchemaRegistryUnavailableError
from ticdc_source.options.registry import RegistrySettings
from ticdc_source.protocols.avro_bytes import fastavro_module, read_body
from ticdc_source.protocols.avro_limits import check_limits
from ticdc_source.schema.json_text import loads
from ticdc_source.sources.registries.lookup import SchemaId, schema_text

__all__ = [
    "CONFLUENT_BYTES",
    "GLUE_BYTES",
    "AvroBody",
    "AvroSchema",
    "body_of",
    "has_header",
    "is_envelope",
    "schema_of",
]

_CONFLUENT, _GLUE = b"\x00", b"\x03\x00"
# In an envelope: the end of `source.version`, the length of the next text, and `source.connector`.
_OF_ENVELOPE = b"Final\x0aTiCDC"
CONFLUENT_BYTES, GLUE_BYTES = 5, 18


class AvroBody(NamedTuple):
    """What a record's key or value holds.

    Attributes:
        schema_id: the id of its schema.
        start: the index of the body's first byte.
    """

    schema_id: SchemaId
    start: int


class AvroSchema(NamedTuple):
    """A schema, as the registry has it and as fastavro takes it.

    Attributes:
        declared: the parsed JSON.
        reader: the schema for fastavro.
    """

    declared: dict[str, Any]
    reader: object

    def read(self, data: bytes, start: int) -> dict[str, Any]:
        """Read a record; decimals are bytes. See `read_body`.

        Args:
            data: a key or a value.
            start: the index of the body's first byte.

        Raises:
            ValueError: the body is not what the schema says.
        """
        return read_body(fastavro_module(SchemaRegistryUnavailableError), self.reader, data, start)


def has_header(data: bytes | None) -> bool:
    """Return whether bytes begin as Avro behind a schema id."""
    if not data:
        return False
    is_confluent = data[:1] == _CONFLUENT and len(data) >= CONFLUENT_BYTES and any(data[1:CONFLUENT_BYTES])
    return is_confluent or (data[:2] == _GLUE and len(data) >= GLUE_BYTES)


def is_envelope(value: bytes | None) -> bool:
    """Return whether a value looks like an envelope, and not like a row."""
    return value is not None and _OF_ENVELOPE in value and has_header(value)


def body_of(data: bytes) -> AvroBody:
    """Return the schema id of a key or a value, and where its body begins.

    Raises:
        ValueError: it has no header.
    """
    if not has_header(data):
        msg = f"no schema id: it begins {data[:8]!r}"
        raise ValueError(msg)
    if data[:1] == _CONFLUENT:
        return AvroBody(int.from_bytes(data[1:CONFLUENT_BYTES], "big", signed=True), CONFLUENT_BYTES)
    return AvroBody(UUID(bytes=data[2:GLUE_BYTES]), GLUE_BYTES)


def schema_of(settings: RegistrySettings, schema_id: SchemaId) -> AvroSchema:
    """Return the schema that an id names.

    Raises:
        DecodeError: the registry has no such schema, it is no record, or its messages could not be read in time.
        SchemaRegistryUnavailableError: the registry does not answer, or refuses.
    """
    schema = _schema_of(settings, schema_id)
    if isinstance(schema, str):
        msg = f"schema {schema_id} {schema}"
        raise DecodeError(msg)
    return schema


@lru_cache(maxsize=4096)
def _schema_of(settings: RegistrySettings, schema_id: SchemaId) -> AvroSchema | str:
    """Return the schema that an id names, or what is wrong with it: a large one is not parsed for each message."""
    text = schema_text(settings, schema_id)
    fastavro = fastavro_module(SchemaRegistryUnavailableError)
    try:
        declared = loads(text)
        if not isinstance(declared, dict) or declared.get("type") != "record":
            return "is no Avro record"
        check_limits(declared)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"is none of TiCDC's: {error if type(error) is ValueError else type(error).__name__}"
    try:
        return AvroSchema(declared, fastavro.parse_schema(_plain(declared)))
    except Exception as error:  # noqa: BLE001 (of fastavro: its errors have no common class)
        return f"is no Avro schema: {type(error).__name__}"


def _plain(schema: object) -> object:
    """Return a schema without logical types and defaults.

    TiCDC's defaults are texts for people: those of bytes are base64, those of times may be CURRENT_TIMESTAMP
    (docs/wire.md, item 124). A value is read with the schema it was written with, so none is needed.
    """
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if isinstance(schema, dict):
        return {name: _plain(value) for name, value in schema.items() if name not in ("logicalType", "default")}
    return schema
