"""Avro's bytes: objects made of a body by fastavro, and what a look at its first bytes needs."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from io import BytesIO
from types import ModuleType
from typing import Any, TypeAlias

from ticdc_source.errors import TiCDCSourceError
from ticdc_source.protocols.messages import JSONObject

__all__ = ["Type", "fastavro_module", "read_body", "read_varint", "text_bounds"]

_MOST_VARINT = 10  # bytes of 64 bits
# A type in a schema: a name, a union, or an object.
Type: TypeAlias = str | Sequence[Any] | Mapping[str, Any]


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
