"""Avro's bytes, and bodies after a schema id: the headers of Confluent's registry and of AWS Glue, and their schemas.

Confluent: `00`, the id as a big-endian int32, the body. Glue: `03`, `00` for no compression, 16 bytes of a UUID, the
body (pingcap/ticdc pkg/sink/codec/avro, confluent_schema_registry.go and glue_schema_registry.go; docs/wire.md, item
114).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from io import BytesIO
from itertools import count
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from ticdc_source.errors import DecodeError, SchemaRegistryUnavailableError, TiCDCSourceError
from ticdc_source.options.logins import RegistrySettings
from ticdc_source.protocols.messages import JSONObject
from ticdc_source.schema.json_text import loads
from ticdc_source.sources.schema_registry import SchemaId, schema_text

_MOST_VARINT = 10  # bytes of 64 bits
# A type in a schema: a name, a union, or an object.
Type: TypeAlias = str | Sequence[Any] | Mapping[str, Any]


def fastavro_module(missing: type[TiCDCSourceError]) -> ModuleType:
    try:
        import fastavro  # noqa: PLC0415 (only Avro needs it)
    except ImportError:
        raise missing(
            'The messages are Avro: install fastavro on driver and executors (pip install "ticdc-source[avro]", or '
            "pip install fastavro)"
        ) from None
    return fastavro


def read_body(fastavro: ModuleType, schema: object, data: bytes, start: int) -> JSONObject:
    """Read a record with fastavro. In texts, bytes that are not UTF-8 become lone surrogates (PEP 383).

    Raises:
        ValueError: the body does not fit the schema.
    """
    body = BytesIO(data[start:])
    try:
        content: JSONObject = fastavro.schemaless_reader(body, schema, None, handle_unicode_errors="surrogateescape")
    except (EOFError, LookupError, struct.error, MemoryError, OverflowError, TypeError, AttributeError) as error:
        reason = str(error).partition(" from <")[0]  # fastavro's text has the stream's address in memory
        raise ValueError(f"the Avro is broken: {reason or type(error).__name__} (is the message cut short?)") from None
    left = len(data) - start - body.tell()
    if left:
        raise ValueError(f"{left} bytes left after the Avro")
    return content


def read_varint(value: bytes, position: int) -> tuple[int, int]:
    """Decode a zig-zag varint; return it and the position after it.

    Raises:
        ValueError: it has no end.
    """
    number = 0
    for index, byte in enumerate(value[position : position + _MOST_VARINT]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:  # noqa: PLR2004 (the last byte of a varint)
            return (number >> 1) ^ -(number & 1), position + index + 1
    raise ValueError("the Avro is broken: an integer has no end")


def text_bounds(value: bytes, position: int) -> tuple[int, int]:
    """Return where the bytes of a text begin and end.

    Raises:
        ValueError: the value ends before.
    """
    length, position = read_varint(value, position)
    if not 0 <= length <= len(value) - position:
        raise ValueError("the Avro is broken: a text of that length does not fit")
    return position, position + length


_CONFLUENT, _GLUE = b"\x00", b"\x03\x00"
# In an envelope: the end of `source.version`, the length of the next text, and `source.connector`.
_OF_ENVELOPE = b"Final\x0aTiCDC"
CONFLUENT_BYTES, GLUE_BYTES = 5, 18
_BETWEEN_LABELS = re.compile(r"(?<!\\),")


class AvroBody(NamedTuple):
    """A record's key or value: schema id, and where the body begins."""

    schema_id: SchemaId
    start: int


class AvroSchema(NamedTuple):
    """A schema, as the registry has it and as fastavro takes it."""

    declared: dict[str, Any]
    reader: object

    def read(self, data: bytes, start: int) -> dict[str, Any]:
        """Read a record as `read_body` does; decimals are bytes."""
        return read_body(fastavro_module(SchemaRegistryUnavailableError), self.reader, data, start)


def labels_of(allowed: str) -> tuple[str, ...]:
    r"""Split a text into labels; commas in labels are written `\,` (docs/wire.md, item 123)."""
    return tuple(label.replace("\\,", ",") for label in _BETWEEN_LABELS.split(allowed))


def type_of_field(field: Mapping[str, Any]) -> Mapping[str, Any]:
    branches = field["type"] if isinstance(field["type"], list) else [field["type"]]
    (type_,) = [each for each in branches if each != "null"]
    return type_ if isinstance(type_, dict) else {"type": type_}


def has_header(data: bytes | None) -> bool:
    if not data:
        return False
    is_confluent = data[:1] == _CONFLUENT and len(data) >= CONFLUENT_BYTES and any(data[1:CONFLUENT_BYTES])
    return is_confluent or (data[:2] == _GLUE and len(data) >= GLUE_BYTES)


def is_envelope(value: bytes | None) -> bool:
    """Whether a value looks like an envelope, not a row."""
    return value is not None and _OF_ENVELOPE in value and has_header(value)


def body_of(data: bytes) -> AvroBody:
    """Return the schema id of a key or a value, and where its body begins.

    Raises:
        ValueError: it has no header.
    """
    if not has_header(data):
        raise ValueError(f"no schema id: it begins {data[:8]!r}")
    if data[:1] == _CONFLUENT:
        return AvroBody(int.from_bytes(data[1:CONFLUENT_BYTES], "big", signed=True), CONFLUENT_BYTES)
    return AvroBody(UUID(bytes=data[2:GLUE_BYTES]), GLUE_BYTES)


def schema_of(settings: RegistrySettings, schema_id: SchemaId) -> AvroSchema:
    """Return the schema that an id names.

    Raises:
        DecodeError: the schema is missing, not a record, or too costly to read messages with.
        SchemaRegistryUnavailableError: the registry does not answer, or refuses.
    """
    schema = _schema_of(settings, schema_id)
    if isinstance(schema, str):
        raise DecodeError(f"schema {schema_id} {schema}")
    return schema


@lru_cache(maxsize=4096)
def _schema_of(settings: RegistrySettings, schema_id: SchemaId) -> AvroSchema | str:
    """Return the schema with an id, or its error; cached, as parsing a large schema for each message is slow."""
    text = schema_text(settings, schema_id)
    fastavro = fastavro_module(SchemaRegistryUnavailableError)
    try:
        declared = loads(text)
        if not isinstance(declared, dict) or declared.get("type") != "record":
            return "is not an Avro record"
        parsed = fastavro.parse_schema(_plain(declared))
        check_limits(parsed)
    except Exception as error:  # noqa: BLE001 (fastavro's errors have no common class)
        return f"is not one of TiCDC's: {error if type(error) is ValueError else type(error).__name__}"
    return AvroSchema(declared, parsed)


def _plain(schema: object) -> object:
    """Leave out logical types and defaults.

    TiCDC's defaults are texts for people: base64 for bytes, maybe CURRENT_TIMESTAMP for times (docs/wire.md, item 124).
    None is needed, because a value is read with the schema that it was written with.
    """
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if isinstance(schema, dict):
        return {name: _plain(value) for name, value in schema.items() if name not in ("logicalType", "default")}
    return schema


_MOST_FIELDS = 4200  # of a record: TiDB's tables have at most 4096 columns
_MOST_VALUES = 100_000  # of a schema, with each use of a named type
_VALUES_PER_BYTE = 16
_LEAST_BYTES = {"null": 0, "float": 4, "double": 8}  # any other primitive type has one byte or more


def check_limits(schema: Type) -> None:
    """Refuse a schema, parsed by fastavro, that TiCDC cannot have written and that would take too long to read.

    `excess` is the most values of a type beyond 16 per byte, and negative for most types. For array items it must not
    be positive, because an array may have any number of items.

    Raises:
        ValueError: it is recursive, has too many columns, or an array whose items need no bytes.
    """
    named: dict[str, int | None] = {}  # None while it is being defined
    values = count(1)

    def excess(type_: Type) -> int:
        if next(values) > _MOST_VALUES:
            raise ValueError(f"it has more than {_MOST_VALUES:,} types")
        if isinstance(type_, str):
            of_name = named.get(type_, 1 - _VALUES_PER_BYTE * _LEAST_BYTES.get(type_, 1))
            if of_name is None:
                raise ValueError(f"{type_} has itself as a part")
            return of_name
        if not isinstance(type_, Mapping):
            return max(map(excess, type_)) + 1 - _VALUES_PER_BYTE
        kind = type_["type"]
        if kind in ("array", "map"):
            key_bytes = int(kind == "map")
            if excess(type_["values" if key_bytes else "items"]) > _VALUES_PER_BYTE * key_bytes:
                raise ValueError(f"the items of its {kind} need no bytes, so a message can have any number of them")
            return 1 - _VALUES_PER_BYTE
        if kind not in ("record", "error", "enum", "fixed"):
            return excess(kind)
        name, fields = type_["name"], type_.get("fields", ())
        if len(fields) > _MOST_FIELDS:
            raise ValueError(f"{name} has {len(fields):,} fields, and a table of TiDB has at most 4,096 columns")
        named[name] = None
        size = int(type_["size"]) if kind == "fixed" else int(kind == "enum")
        total = 1 - _VALUES_PER_BYTE * size + sum(excess(field["type"]) for field in fields)
        if total > _MOST_VALUES:
            raise ValueError(f"a record {name} without bytes has {total:,} values")
        named[name] = total
        return total

    excess(schema)
