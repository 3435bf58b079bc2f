"""Kernels of text, binary, ENUM, SET, JSON and VECTOR, and `TEXT_KERNELS`, the table that wire formats start from."""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import SchemaError
from ticdc_source.kernels import numbers, temporal
from ticdc_source.kernels.contract import Cast, LabelCast, LabelsCast, PlainCast
from ticdc_source.kernels.numbers import (
    as_text,
    bit_numbers,
    integers_of_numbers,
    integers_of_text,
    listed,
    require,
    text_cells,
    text_of_numbers,
    text_wire,
)
from ticdc_source.kernels.wire import (
    CastOf,
    Cells,
    Kernel,
    Maker,
    Settings,
    Wire,
    always,
    decoded,
    integer_cast,
    text_bytes,
    texts,
)
from ticdc_source.schema.types import BIGINT_UNSIGNED, BINARIES, FLOATS, INTEGERS, TYPES, ColumnType

_MOST_LABELS = 64  # of a SET


def _texts(_type: ColumnType, settings: Settings) -> Kernel:
    def cast(cells: Cells) -> pa.Array:
        return texts(cells if isinstance(cells, pa.StringArray) else require(cells, str), settings)

    return cast


def base64_bytes(cell: str | bytes) -> bytes:
    """Decode base64 (the standard alphabet, padded).

    Raises:
        ValueError: the text is not base64.
    """
    if sys.version_info >= (3, 11):  # twice as fast as b64decode, which calls it
        return binascii.a2b_base64(cell, strict_mode=True)
    return base64.b64decode(cell, validate=True)


def binary_wire(decode: Callable[[str], bytes], cast: Cast | None = None) -> Wire:
    """Make the wire form of bytes in text: `decode` raises ValueError, and `cast` is its native equivalent."""

    def natural(_type: ColumnType, _settings: Settings) -> Kernel:
        return lambda cells: pa.array([None if c is None else decode(c) for c in listed(cells, str)], pa.binary())

    def text(type_: ColumnType, settings: Settings) -> Kernel:
        read = natural(type_, settings)

        def run(cells: Cells) -> pa.Array:
            raw = read(cells)
            try:
                return raw.cast(pa.string())
            except pa.ArrowInvalid:
                return pa.array([None if c is None else decoded(c, settings) for c in raw.to_pylist()], pa.string())

        return run

    return Wire(natural, text, arrays=pa.string(), cast=always(cast))


def _members_cast(cast: type[LabelCast | LabelsCast], *, text: bool) -> CastOf:
    def of(type_: ColumnType, _settings: Settings) -> Cast | None:
        if type_.labels is None:
            return integer_cast(type_.arrow, text=text)
        if len(type_.labels) > _MOST_LABELS and cast is LabelsCast:
            return None
        return cast(text, [label.encode() for label in type_.labels])

    return of


def _enum_label(labels: tuple[str, ...], index: int) -> str:
    if index == 0:  # MySQL's value for what was invalid when it was written
        return ""
    if not 0 < index <= len(labels):
        raise ValueError(f"member {index} of an enum with {len(labels)} labels")
    return labels[index - 1]


def _set_labels(labels: tuple[str, ...], mask: int) -> str:
    if not 0 <= mask < 1 << len(labels):
        raise ValueError(f"mask {mask} of a set with {len(labels)} labels")
    return ",".join(label for bit, label in enumerate(labels) if mask >> bit & 1)


def _members(read: Callable[[pa.DataType], Kernel], label: Callable[[tuple[str, ...], int], str]) -> Maker:
    """Read ENUM or SET from numbers: as labels if known, otherwise as the number."""

    def make(type_: ColumnType, _settings: Settings) -> Kernel:
        labels = type_.labels
        if labels is None:
            return read(type_.arrow)
        as_numbers = read(pa.decimal128(20, 0))

        def cast(cells: Cells) -> pa.Array:
            numbers = [None if n is None else int(n) for n in as_numbers(cells).to_pylist()]
            shown = {number: None if number is None else label(labels, number) for number in set(numbers)}
            return pa.array([shown[number] for number in numbers], pa.string())

        return cast

    return make


def _member_wires(
    cast: type[LabelCast | LabelsCast], label: Callable[[tuple[str, ...], int], str]
) -> tuple[Wire, Wire]:
    """Return the wire forms of ENUM or SET: as numbers, and as digits in text."""
    as_number = Wire(
        _members(integers_of_numbers, label),
        text_of_numbers,
        number=bit_numbers(integers_of_numbers),
        number_cast=_number_cast(text=False),
        cast=_members_cast(cast, text=False),
    )
    as_digits = replace(
        text_wire(_members(integers_of_text, label), _members_cast(cast, text=True)),
        number=bit_numbers(integers_of_text),
        number_cast=_number_cast(text=True),
    )
    return as_number, as_digits


def _number_cast(*, text: bool) -> Callable[[pa.DataType], Cast | None]:
    # No decimals: their cast also reads digits behind a point.
    return lambda target: None if pa.types.is_decimal(target) else integer_cast(target, text=text)


def _labels(type_: ColumnType, settings: Settings) -> Kernel:
    """Read the labels of ENUM and SET."""
    if type_.labels is None:
        raise SchemaError(f"{type_} comes as text, and its labels are unknown: it can be read as string")
    return _texts(type_, settings)


def _numbers_of_labels(type_: ColumnType, _settings: Settings) -> Kernel:
    """Turn ENUM labels into indexes and SET labels into masks; the type must have labels."""
    indices = {label: index for index, label in enumerate(type_.labels or ())}

    def number(cell: str) -> int:
        if type_.name == "enum":
            return indices[cell] + 1 if cell in indices else _no_member(cell)
        return sum(1 << indices[label] if label in indices else _no_member(label) for label in cell.split(",") if label)

    def cast(cells: Cells) -> pa.Array:
        labels = text_cells(cells).to_pylist()
        return pa.array([None if label is None else number(label) for label in labels], BIGINT_UNSIGNED)

    return cast


def _no_member(label: str) -> int:
    """Return 0 for the empty text, which MySQL writes for an invalid value."""
    if label:
        raise ValueError(f"{label!r} is not among the labels")
    return 0


def _vectors(_type: ColumnType, _settings: Settings) -> Kernel:
    def parse(cell: str) -> list[float]:
        if len(cell) < 2 or cell[0] != "[" or cell[-1] != "]":  # noqa: PLR2004 (two brackets)
            raise ValueError("not a vector")
        body = cell[1:-1].strip()
        return [float(part) for part in body.split(",")] if body else []

    def cast(cells: Cells) -> pa.Array:
        array = pa.array([None if c is None else parse(c) for c in require(cells, str)], FLOATS)
        if not pc.all(pc.is_finite(array.values), min_count=0).as_py():
            raise ValueError("a number that a float cannot hold")
        return array

    return cast


def _bytes(_type: ColumnType, _settings: Settings) -> Kernel:
    return lambda cells: cells if isinstance(cells, pa.BinaryArray) else pa.array(require(cells, bytes), pa.binary())


def _text_of_bytes(_type: ColumnType, settings: Settings) -> Kernel:
    def cast(cells: Cells) -> pa.Array:
        written = listed(cells, bytes)
        return texts([None if cell is None else cell.decode(errors="surrogateescape") for cell in written], settings)

    return cast


TEXT = replace(text_wire(_texts, always(PlainCast.TEXT)), text=_texts, raw=binary_wire(text_bytes).natural)
BASE64_BINARY = binary_wire(base64_bytes, PlainCast.BASE64)
BASE64_TEXT = Wire(
    BASE64_BINARY.text,
    BASE64_BINARY.text,
    raw=BASE64_BINARY.natural,
    cast=always(PlainCast.BASE64_TEXT),
    text_cast=PlainCast.BASE64_TEXT,
)
BYTES = Wire(_bytes, _text_of_bytes, arrays=pa.binary(), cast=always(PlainCast.BYTES))
ENUM_NUMBER, ENUM_TEXT = _member_wires(LabelCast, _enum_label)
SET_NUMBER, SET_TEXT = _member_wires(LabelsCast, _set_labels)
LABEL = Wire(_labels, _texts, number=_numbers_of_labels, arrays=pa.string(), labels=True, text_cast=PlainCast.TEXT)
VECTOR_TEXT = Wire(_vectors, as_text, text_cast=PlainCast.TEXT)

# Every type as MySQL's text. A wire format replaces the rows of what it writes differently.
TEXT_KERNELS: dict[str, Wire] = {
    **dict.fromkeys(INTEGERS, numbers.INTEGER_TEXT),
    "decimal": numbers.DECIMAL_TEXT,
    "year": numbers.YEAR_TEXT,
    "float": numbers.FLOAT_TEXT,
    "double": numbers.FLOAT_TEXT,
    "bit": numbers.BIT_TEXT,
    "date": temporal.DATE_TEXT,
    "datetime": temporal.DATETIME_TEXT,
    "timestamp": temporal.TIMESTAMP_TEXT,
    "time": temporal.TIME_TEXT,
    **{name: TEXT for name, row in TYPES.items() if row.arrow == pa.string()},
    **dict.fromkeys(BINARIES, BASE64_BINARY),
    "enum": ENUM_TEXT,
    "set": SET_TEXT,
    "vector": VECTOR_TEXT,
}
