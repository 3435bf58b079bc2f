"""Avro's bytes: objects made of a body by fastavro, where values lie in it, and values redacted in place."""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from io import BytesIO
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

from ticdc_source.errors import TiCDCSourceError
from ticdc_source.protocols.messages import JSONObject
from ticdc_source.protocols.redaction import Redactor

__all__ = ["Path", "ValueSpan", "fastavro_module", "read_body", "read_varint", "redacted", "text_bounds", "value_spans"]

_MOST_VARINT = 10  # bytes of 64 bits
_FIXED = {"null": 0, "boolean": 1, "float": 4, "double": 8}
# Where a value is: names of fields.
Path: TypeAlias = tuple[str, ...]
# A type in a schema: a name, a union, or an object.
Type: TypeAlias = str | Sequence[Any] | Mapping[str, Any]


class ValueSpan(NamedTuple):
    """A value of a primitive type.

    Attributes:
        path: where it is.
        type: its type.
        start, end: its bytes: those of a text without its length.
    """

    path: Path
    type: Mapping[str, Any]
    start: int
    end: int


def fastavro_module(missing: type[TiCDCSourceError]) -> ModuleType:
    """Return fastavro, which only messages in Avro need.

    Args:
        missing: the error if it is not installed.
    """
    try:
        import fastavro  # noqa: PLC0415 (as above)
    except ImportError:
        msg = (
            'The messages are Avro: install fastavro on driver and executors (pip install "ticdc-source[avro]", or '
            "pip install fastavro)"
        )
        raise missing(msg) from None
    return fastavro


def read_body(fastavro: ModuleType, schema: object, data: bytes, start: int) -> JSONObject:
    """Read a record with fastavro. Bytes that are not UTF-8 are lone surrogates in texts (PEP 383).

    Args:
        fastavro: the module.
        schema: the schema, parsed by fastavro.
        data: a key or a value.
        start: the index of the body's first byte.

    Raises:
        ValueError: the body is not what the schema says.
    """
    body = BytesIO(data[start:])
    try:
        content: JSONObject = fastavro.schemaless_reader(body, schema, None, handle_unicode_errors="surrogateescape")
    except (EOFError, LookupError, struct.error, MemoryError, OverflowError, TypeError, AttributeError) as error:
        reason = str(error).partition(" from <")[0]  # fastavro names the stream by its address in memory
        msg = f"the Avro is broken: {reason or type(error).__name__} (is the message cut short?)"
        raise ValueError(msg) from None
    left = len(data) - start - body.tell()
    if left:
        msg = f"{left} bytes behind the Avro"
        raise ValueError(msg)
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
    msg = "the Avro is broken: an integer has no end"
    raise ValueError(msg)


def text_bounds(value: bytes, position: int) -> tuple[int, int]:
    """Return where the bytes of a text begin and end.

    Raises:
        ValueError: they are not there.
    """
    length, position = read_varint(value, position)
    if not 0 <= length <= len(value) - position:
        msg = "the Avro is broken: a text of that length does not fit"
        raise ValueError(msg)
    return position, position + length


def value_spans(schema: Type, data: bytes, start: int) -> Iterator[ValueSpan]:
    """Yield the values in a body, in order. Those of an array or a map have its path; keys of a map are left out.

    Args:
        schema: the schema of the body.
        data: a key or a value.
        start: the index of the body's first byte.

    Raises:
        ValueError, KeyError, IndexError: the body is not what the schema says.
    """
    records = _named(schema)

    def walk(type_: Type, position: int, path: Path) -> Generator[ValueSpan, None, int]:
        """Yield values; return the position after them."""
        if isinstance(type_, str):
            type_ = records.get(type_, {"type": type_})
        elif not isinstance(type_, Mapping):
            branch, position = read_varint(data, position)
            return (yield from walk(type_[branch], position, path))
        kind = type_["type"]
        if kind == "record":
            for field in type_["fields"]:
                position = yield from walk(field["type"], position, (*path, field["name"]))
            return position
        if kind in ("array", "map"):
            count, position = read_varint(data, position)
            while count:
                if count < 0:  # the size of the block follows
                    count, position = -count, read_varint(data, position)[1]
                for _ in range(count):
                    if kind == "map":
                        position = text_bounds(data, position)[1]
                    position = yield from walk(type_["items" if kind == "array" else "values"], position, path)
                count, position = read_varint(data, position)
            return position
        begin, end = _bounds(kind, data, position)
        yield ValueSpan(path, type_, begin, end)
        return end

    yield from walk(schema, start, ())


def _named(type_: Type) -> dict[str, Mapping[str, Any]]:
    """Return the records and enums in a type by their full names."""
    if isinstance(type_, str):
        return {}
    if not isinstance(type_, Mapping):
        return {name: record for branch in type_ for name, record in _named(branch).items()}
    parts = [type_.get("items", ""), type_.get("values", ""), *(field["type"] for field in type_.get("fields", ()))]
    inner = {name: record for part in parts for name, record in _named(part).items()}
    if type_["type"] not in ("record", "enum"):
        return inner
    namespace = type_.get("namespace")
    return {**inner, type_["name"] if namespace is None else f"{namespace}.{type_['name']}": type_}


def _bounds(kind: str, data: bytes, position: int) -> tuple[int, int]:
    if kind in ("int", "long", "enum"):
        return position, read_varint(data, position)[1]
    if kind in ("string", "bytes"):
        return text_bounds(data, position)
    return position, position + _FIXED[kind]


def redacted(schema: Type, data: bytes, start: int, redactor: Redactor, is_value: Callable[[Path], bool]) -> bytes:
    """Return a key or a value with values redacted, of the same length.

    Args:
        schema: its schema.
        data: it.
        start: the index of the body's first byte.
        redactor: redacts.
        is_value: whether what is at a path is a value of a column.

    Raises:
        ValueError, KeyError, IndexError: the body is not what the schema says.
    """
    written = bytearray(data)
    for path, type_, first, end in value_spans(schema, data, start):
        if is_value(path) and end > first:
            written[first:end] = _of(type_)(data[first:end], redactor)
    return bytes(written)


def _of(type_: Mapping[str, Any]) -> Callable[[bytes, Redactor], bytes]:
    """Return what redacts a value of a type; bytes that are a number become a smaller one."""
    if type_["type"] == "bytes" and type_.get("logicalType") == "decimal":
        return lambda data, redactor: _smaller(data, redactor, signed=True)
    parameters = type_.get("connect.parameters") or {}
    if type_["type"] == "bytes" and "length" in parameters:  # a BIT
        is_little = type_.get("connect.name") is not None
        return lambda data, redactor: (
            _smaller(data[::-1], redactor, signed=False)[::-1] if is_little else _smaller(data, redactor, signed=False)
        )
    return _REDACTED[type_["type"]]


def _smaller(data: bytes, redactor: Redactor, *, signed: bool) -> bytes:
    number = int(redactor.number(str(int.from_bytes(data, "big", signed=signed))))
    return number.to_bytes(len(data), "big", signed=signed)


def _long(data: bytes, redactor: Redactor) -> bytes:
    number = read_varint(data, 0)[0]
    smaller = int(redactor.number(str(number)))
    bits = (smaller << 1) ^ (smaller >> 63)
    # Padded with continuation bytes, so that the length stays.
    return bytes([bits >> 7 * index & 0x7F | (0x80 if index < len(data) - 1 else 0) for index in range(len(data))])


def _float(form: str) -> Callable[[bytes, Redactor], bytes]:
    return lambda data, redactor: struct.pack(form, float(redactor.number(f"{struct.unpack(form, data)[0]:.6e}")))


# What redacts a value, by the name of its type.
_REDACTED: Mapping[str, Callable[[bytes, Redactor], bytes]] = {
    "null": lambda data, _: data,
    "boolean": lambda data, _: data,
    "int": _long,
    "long": _long,
    "float": _float("<f"),
    "double": _float("<d"),
    "string": lambda data, redactor: redactor.text(data),
    "bytes": lambda data, redactor: redactor.text(data),
}
