"""JSON text → Spark's VARIANT, in the binary form that `parse_json` returns.

The format is Parquet's Variant encoding. Where it leaves a choice (number types, the order of keys), this module does
as org.apache.spark.types.variant.VariantBuilder, so that equal documents have equal bytes. Spark takes a VARIANT from
Python as a struct of two binaries, one of them flagged (pyspark/sql/pandas/types.py, `is_variant`).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import accumulate

import pyarrow as pa

from ticdc_source.schema.json_text import TOO_DEEP, loads
from ticdc_source.schema.types import DECIMAL_MAX, VARIANT

# The low two bits of a value's first byte are its basic type; the bits above them are the type of a primitive.
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
    """The text of a number in a document."""

    __slots__ = ()


class _Pairs(list[tuple[str, object]]):
    """An object of a document, in its order; a type of its own, because arrays are lists too."""


def _width(number: int) -> int:
    """Return the width in bytes of sizes, offsets or keys up to `number`."""
    return 1 if number <= 0xFF else 2 if number <= 0xFFFF else 3 if number <= 0xFFFFFF else 4  # noqa: PLR2004


def _little(number: int, width: int) -> bytes:
    return number.to_bytes(width, "little")


def _integer(number: int) -> bytes | None:
    for code, width in _INTEGERS:
        if -(1 << 8 * width - 1) <= number < 1 << 8 * width - 1:
            return bytes([code << 2 | _PRIMITIVE]) + number.to_bytes(width, "little", signed=True)
    return None


def _number(text: str) -> bytes:
    """Write a number as the smallest integer that holds it, else as a decimal, else as a double."""
    if "." not in text and _PLAIN.fullmatch(text) and len(text) <= 20:  # noqa: PLR2004 (of 64 bits)
        integer = _integer(int(text))
        if integer is not None:
            return integer
    if _PLAIN.fullmatch(text):
        sign, digits, exponent = Decimal(text).as_tuple()
        scale, precision = -int(exponent), len(str(int("".join(map(str, digits)))))
        unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
        for code, digits_held, width in _DECIMALS:
            if scale <= digits_held and precision <= digits_held:
                return bytes([code << 2 | _PRIMITIVE, scale]) + unscaled.to_bytes(width, "little", signed=True)
    return _DOUBLE + struct.pack("<d", float(text))


def _text(text: str) -> bytes:
    data = text.encode()
    if len(data) <= _SHORT:
        return bytes([len(data) << 2 | _SHORT_TEXT]) + data
    return _LONG_TEXT + _little(len(data), 4) + data


def _container(basic_type: int, parts: Sequence[bytes], order: Sequence[int], ids: Sequence[int]) -> bytes:
    """Write an object or an array: header, size, the keys' ids of an object, offsets in `order`, values."""
    data = b"".join(parts)
    *starts, end = accumulate(map(len, parts), initial=0)
    large = len(parts) > _ONE_BYTE
    id_width, offset_width = _width(max(ids, default=0)), _width(end)
    if basic_type == _OBJECT:
        header = (large << 4 | (id_width - 1) << 2 | offset_width - 1) << 2 | _OBJECT
    else:
        header = (large << 2 | offset_width - 1) << 2 | _ARRAY
    offsets = [*(starts[index] for index in order), end]
    return b"".join(
        (
            bytes([header]),
            _little(len(parts), 4 if large else 1),
            *(_little(number, id_width) for number in ids),
            *(_little(offset, offset_width) for offset in offsets),
            data,
        )
    )


def _value(item: object, keys: dict[str, int]) -> bytes:
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
            for name, member in item:  # keys get their ids as they come: those of an inner object before the next one
                ids.append(keys.setdefault(name, len(keys)))
                parts.append(_value(member, keys))
            if len(set(ids)) < len(ids):
                raise ValueError("a repeated key in an object, which VARIANT does not allow")
            names = [name.encode("utf-16-be") for name, _ in item]
            order = sorted(range(len(names)), key=names.__getitem__)  # as Java sorts
            return _container(_OBJECT, parts, order, [ids[index] for index in order])
        case list():
            parts = [_value(member, keys) for member in item]
            return _container(_ARRAY, parts, range(len(parts)), ())
    raise TypeError(f"a JSON {type(item).__name__}")


def _metadata(keys: Mapping[str, int]) -> bytes:
    """Write the dictionary of all keys, in the order of their ids."""
    names = [name.encode() for name in keys]
    ends = [0, *accumulate(map(len, names))]
    width = _width(max(ends[-1], len(names)))
    return b"".join(
        (bytes([1 | (width - 1) << 6]), _little(len(names), width), *(_little(end, width) for end in ends), *names)
    )


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def variant_of(text: str) -> tuple[bytes, bytes]:
    """Encode a JSON document as (value, metadata).

    Raises:
        ValueError: it is not JSON, or VARIANT cannot hold it.
    """
    document = loads(
        text, parse_int=_Number, parse_float=_Number, object_pairs_hook=_Pairs, parse_constant=_no_constant
    )
    keys: dict[str, int] = {}
    try:
        value = _value(document, keys)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    metadata = _metadata(keys)
    if len(value) > _LIMIT or len(metadata) > _LIMIT:
        raise ValueError("more than the 16 MiB that a VARIANT can hold")
    return value, metadata


def variants(texts: pa.Array) -> pa.Array:
    """Encode an array of JSON texts; see `variant_of`."""
    values = [None if text is None else variant_of(text) for text in texts.to_pylist()]
    children = [pa.array([b"" if pair is None else pair[side] for pair in values], pa.binary()) for side in (0, 1)]
    missing = pa.array([pair is None for pair in values], pa.bool_())
    return pa.StructArray.from_arrays(children, fields=list(VARIANT), mask=missing)
