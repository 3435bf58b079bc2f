"""JSON text to Spark's VARIANT: the binary form that Spark's own `parse_json` gives.

The format is Parquet's Variant encoding; what is left to a writer (which number type, the order of keys) is done as
org.apache.spark.types.variant.VariantBuilder does it, so that equal documents are equal bytes. Spark takes it from
Python as a struct of two binaries, one of which is flagged (pyspark/sql/pandas/types.py, `is_variant`).
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ticdc_source.schema.types import DECIMAL_MAX, VARIANT

__all__ = ["variant_of", "variants"]

# The low two bits of a value's first byte say what it is; for a primitive, the type is above them.
_PRIMITIVE, _SHORT_TEXT, _OBJECT, _ARRAY = range(4)
_NULL, _TRUE, _FALSE = (bytes([code << 2 | _PRIMITIVE]) for code in (0, 1, 2))
_INTEGERS = ((3, 1), (4, 2), (5, 4), (6, 8))  # type, bytes
_DOUBLE = bytes([7 << 2 | _PRIMITIVE])
_DECIMALS = ((8, 9, 4), (9, 18, 8), (10, DECIMAL_MAX, 16))  # type, digits, bytes
_LONG_TEXT = bytes([16 << 2 | _PRIMITIVE])
_SHORT = 63  # bytes
_ONE_BYTE = 255
_LIMIT = 1 << 24  # bytes of a value, and of its metadata
_PLAIN = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")


class _Number(str):
    """A number of a document, as it is written."""

    __slots__ = ()


class _Pairs(list):  # type: ignore[type-arg]  # an object, told apart from an array
    """An object of a document, in its order."""


def _width(number: int) -> int:
    """Return in how many bytes sizes, offsets and keys up to `number` are written."""
    return 1 if number <= 0xFF else 2 if number <= 0xFFFF else 3 if number <= 0xFFFFFF else 4  # noqa: PLR2004


def _little(number: int, width: int) -> bytes:
    return number.to_bytes(width, "little")


def _integer(number: int) -> bytes | None:
    for code, width in _INTEGERS:
        if -(1 << 8 * width - 1) <= number < 1 << 8 * width - 1:
            return bytes([code << 2 | _PRIMITIVE]) + number.to_bytes(width, "little", signed=True)
    return None


def _number(text: str) -> bytes:
    """Write a number: the smallest integer, else a decimal, else (exponents, too many digits) a double."""
    if "." not in text and _PLAIN.fullmatch(text) and len(text) <= 20:  # noqa: PLR2004 (of 64 bits)
        integer = _integer(int(text))
        if integer is not None:
            return integer
    if _PLAIN.fullmatch(text):
        sign, digits, exponent = Decimal(text).as_tuple()
        scale, precision = -int(exponent), len(str(int("".join(map(str, digits)))))
        unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
        for code, most, width in _DECIMALS:
            if scale <= most and precision <= most:
                return bytes([code << 2 | _PRIMITIVE, scale]) + unscaled.to_bytes(width, "little", signed=True)
    return _DOUBLE + struct.pack("<d", float(text))


def _text(text: str) -> bytes:
    data = text.encode()
    if len(data) <= _SHORT:
        return bytes([len(data) << 2 | _SHORT_TEXT]) + data
    return _LONG_TEXT + _little(len(data), 4) + data


def _container(kind: int, parts: Sequence[bytes], order: Sequence[int], ids: Sequence[int]) -> bytes:
    """Write an object or an array: header, size, keys (`ids`, an object's), offsets in `order`, values."""
    data = b"".join(parts)
    starts, place = [], 0
    for part in parts:
        starts.append(place)
        place += len(part)
    large = len(parts) > _ONE_BYTE
    id_width, offset_width = _width(max(ids, default=0)), _width(place)
    if kind == _OBJECT:
        header = (large << 4 | (id_width - 1) << 2 | offset_width - 1) << 2 | _OBJECT
    else:
        header = (large << 2 | offset_width - 1) << 2 | _ARRAY
    offsets = [*(starts[index] for index in order), place]
    return b"".join(
        (
            bytes([header]),
            _little(len(parts), 4 if large else 1),
            *(_little(number, id_width) for number in ids),
            *(_little(offset, offset_width) for offset in offsets),
            data,
        )
    )


def _value(item: Any, keys: dict[str, int]) -> bytes:
    match item:
        case None:
            return _NULL
        case True:
            return _TRUE
        case False:
            return _FALSE
        case _Number():
            return _number(item)
        case str():
            return _text(item)
        case _Pairs():
            ids, parts = [], []
            for name, member in item:  # keys are numbered as they come: an inner object's before the next one here
                ids.append(keys.setdefault(name, len(keys)))
                parts.append(_value(member, keys))
            if len(set(ids)) < len(ids):
                msg = "a key twice in one object, which VARIANT does not have"
                raise ValueError(msg)
            order = sorted(range(len(item)), key=lambda index: item[index][0].encode("utf-16-be"))  # as Java sorts
            return _container(_OBJECT, parts, order, [ids[index] for index in order])
        case _:
            parts = [_value(member, keys) for member in item]
            return _container(_ARRAY, parts, range(len(parts)), ())


def _metadata(keys: Mapping[str, int]) -> bytes:
    """Write the dictionary of all keys, in the order in which they came."""
    names = [name.encode() for name in keys]
    ends, place = [0], 0
    for name in names:
        place += len(name)
        ends.append(place)
    width = _width(max(place, len(names)))
    return b"".join(
        (bytes([1 | (width - 1) << 6]), _little(len(names), width), *(_little(end, width) for end in ends), *names)
    )


def _no_constant(name: str) -> None:
    msg = f"{name} is not JSON"
    raise ValueError(msg)


def variant_of(text: str) -> tuple[bytes, bytes]:
    """Return a JSON document as (value, metadata).

    Raises:
        ValueError: it is no JSON, or one that VARIANT does not hold.
    """
    document = json.loads(
        text, parse_int=_Number, parse_float=_Number, object_pairs_hook=_Pairs, parse_constant=_no_constant
    )
    keys: dict[str, int] = {}
    value = _value(document, keys)
    metadata = _metadata(keys)
    if len(value) > _LIMIT or len(metadata) > _LIMIT:
        msg = "more than the 16 MiB that a VARIANT holds"
        raise ValueError(msg)
    return value, metadata


def variants(texts: pa.Array) -> pa.Array:
    """Turn JSON texts into VARIANTs.

    Raises:
        ValueError: as `variant_of`.
    """
    found = [None if text is None else variant_of(text) for text in texts.to_pylist()]
    children = [pa.array([b"" if pair is None else pair[side] for pair in found], pa.binary()) for side in (0, 1)]
    missing = pa.array([pair is None for pair in found], pa.bool_())
    return pa.StructArray.from_arrays(children, fields=list(VARIANT), mask=missing)
