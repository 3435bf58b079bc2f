"""Kernels of integers, decimals, floats, BIT and YEAR, from JSON numbers and from text."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.kernels.contract import BitCast, BitsCast, Cast, FloatCast, PlainCast
from ticdc_source.kernels.wire import (
    NO_CAST,
    CastOf,
    Cells,
    Kernel,
    Maker,
    Settings,
    Wire,
    bytes_of_texts,
    decimals_of_text,
    integer_cast,
    number_text,
)
from ticdc_source.schema.types import BIGINT_UNSIGNED, ColumnType

_2_63, _2_64 = 1 << 63, 1 << 64
_SINGLE_DIGITS = range(6, 10)  # significant digits that identify a 32-bit float


def require(cells: Cells, *types: type) -> Sequence[Any]:
    """Check that each cell is None or of one of these types. Arrow would cut 1.5 to 1 and read "x" as bytes.

    Raises:
        TypeError: a cell is of another type.
    """
    others = set(map(type, cells)) - {type(None), *types}
    if others:
        raise TypeError(f"a JSON {_json_name(others)} where a {_json_name(types)} is expected")
    return cells


def listed(cells: Cells, *types: type) -> Sequence[Any]:
    """Return a list of the cells, which may be in an array, as `Wire.arrays` says; see `require`."""
    return cells.to_pylist() if isinstance(cells, pa.Array) else require(cells, *types)


def _json_name(types: Iterable[type]) -> str:
    names = {
        str: "string",
        int: "number",
        float: "number with a fraction",
        Decimal: "number with a fraction",
        bool: "boolean",
        list: "array",
        dict: "object",
    }
    return " or ".join(sorted({names.get(type_, type_.__name__) for type_ in types}))


def integers_of_numbers(arrow: pa.DataType) -> Kernel:
    def cast(cells: Cells) -> pa.Array:
        if isinstance(cells, pa.Int64Array):
            return cells.cast(arrow)
        require(cells, int)
        if pa.types.is_decimal(arrow):
            try:
                return pa.array(cells, pa.int64()).cast(arrow)
            except (OverflowError, pa.ArrowInvalid):  # beyond 63 bits
                pass
        return pa.array(cells, arrow)

    return cast


def integers_of_text(arrow: pa.DataType) -> Kernel:
    def cast(cells: Cells) -> pa.Array:
        text = text_cells(cells)
        if bytes_of_texts(text).translate(None, b"0123456789-"):  # Arrow would read 0x10 as 16
            raise ValueError("not an integer")
        return decimals_of_text(text, arrow) if pa.types.is_decimal(arrow) else text.cast(arrow)

    return cast


def text_cells(cells: Cells) -> pa.Array:
    """Make a string array of cells that must be JSON strings; see `require`."""
    if isinstance(cells, pa.StringArray):
        return cells
    try:
        return pa.array(cells, pa.string())  # Arrow also takes bytes, which JSON lacks, and refuses all else
    except pa.ArrowException:
        require(cells, str)
        raise


def text_of_numbers(_type: ColumnType, _settings: Settings) -> Kernel:
    """Write JSON numbers as text, floats without an exponent."""

    def cast(cells: Cells) -> pa.Array:
        if isinstance(cells, pa.Int64Array):
            return cells.cast(pa.string())
        numbers = require(cells, int, float, str, Decimal)  # no arrays of doubles: 1 and 1.0 have different texts
        return pa.array([None if number is None else _plain(number) for number in numbers], pa.string())

    return cast


def shortest_single(number: float) -> str:
    """Return the shortest text that identifies a 32-bit float."""
    for digits in _SINGLE_DIGITS:
        text = f"{number:.{digits}g}"
        if struct.unpack("f", struct.pack("f", float(text)))[0] == number:
            return text
    return repr(number)


def _plain(number: float | str | Decimal) -> str:
    if isinstance(number, float):
        number = Decimal(repr(number))
    return number_text(number) if isinstance(number, Decimal) else str(number)


def as_text(_type: ColumnType, _settings: Settings) -> Kernel:
    return text_cells


def text_wire(natural: Maker, cast: CastOf) -> Wire:
    return Wire(natural, as_text, arrays=pa.string(), cast=cast, text_cast=PlainCast.TEXT)


def _decimals_of_text(type_: ColumnType, _settings: Settings) -> Kernel:
    if pa.types.is_string(type_.arrow):
        return text_cells
    arrow = type_.arrow
    return lambda cells: decimals_of_text(text_cells(cells), arrow)


def _floats(build: Callable[[Cells, pa.DataType], pa.Array]) -> Maker:
    def make(type_: ColumnType, _settings: Settings) -> Kernel:
        arrow = type_.arrow

        def cast(cells: Cells) -> pa.Array:
            array = build(cells, arrow)
            if not pc.all(pc.is_finite(array), min_count=0).as_py():  # 1e300 becomes inf in a float
                raise ValueError(f"out of the range of {type_}")
            return array

        return cast

    return make


def _float_numbers(cells: Cells, arrow: pa.DataType) -> pa.Array:
    if isinstance(cells, pa.DoubleArray):
        return cells.cast(arrow)
    numbers = require(cells, int, float, Decimal)
    # Arrow refuses integers that a double does not hold exactly; Go wrote them.
    if not {int, Decimal}.isdisjoint(map(type, numbers)):
        numbers = [None if number is None else _double(number) for number in numbers]
    return pa.array(numbers, arrow)


def _double(number: float | Decimal) -> float:
    """Convert to a double; refuse an integer that is not a double's shortest text, as it would lose digits."""
    double = float(number)
    if isinstance(number, int) and abs(number) > 1 << 53 and Decimal(repr(double)) != number:
        raise ValueError("an integer that a double cannot hold exactly")
    return double


def _float_texts(cells: Cells, arrow: pa.DataType) -> pa.Array:
    return text_cells(cells).cast(arrow)


def bits(type_: ColumnType, numbers: Sequence[int | None]) -> pa.Array:
    """Return bit(1) as booleans, longer bits as signed 64-bit integers (two's complement)."""
    if type_.length == 1:
        if not set(numbers) <= {0, 1, None}:
            raise ValueError("more than one bit in a BIT(1)")
        return pa.array([None if n is None else n == 1 for n in numbers], pa.bool_())
    try:
        array = pa.array(numbers, pa.int64())
    except (OverflowError, pa.ArrowInvalid):
        array = pa.array([None if n is None else n - _2_64 if _2_63 <= n < _2_64 else n for n in numbers], pa.int64())
    return array


def bit_wire(
    unsigned: Callable[[Cells], Sequence[int | None]], arrays: pa.DataType | None = None, cast: CastOf = NO_CAST
) -> Wire:
    def text(_type: ColumnType, _settings: Settings) -> Kernel:
        return lambda cells: pa.array([None if n is None else str(n) for n in unsigned(cells)], pa.string())

    return Wire(
        lambda type_, _: lambda cells: bits(type_, unsigned(cells)),
        text,
        number=lambda _type, _settings: lambda cells: pa.array(unsigned(cells), BIGINT_UNSIGNED),
        arrays=arrays,
        cast=cast,
    )


def bit_numbers(read: Callable[[pa.DataType], Kernel]) -> Maker:
    return lambda _type, _settings: read(BIGINT_UNSIGNED)


def _four_digits(natural: Callable[[pa.DataType], Kernel]) -> Maker:
    """Write a YEAR as text: MySQL prints 0 as 0000."""

    def make(type_: ColumnType, _settings: Settings) -> Kernel:
        read = natural(type_.arrow)
        return lambda cells: pc.utf8_lpad(read(cells).cast(pa.string()), 4, "0")

    return make


def _wrapped_integers(type_: ColumnType, _settings: Settings) -> Kernel:
    """Read integers; BIGINT UNSIGNED is a signed 64-bit number, in newer releases text (docs/wire.md, item 24)."""
    direct = integers_of_numbers(type_.arrow)
    if not (type_.name == "bigint" and type_.unsigned):
        return lambda cells: direct(cells if isinstance(cells, pa.Int64Array) else _from_text(cells))

    def cast(cells: Cells) -> pa.Array:
        if isinstance(cells, pa.Int64Array):
            return cells.view(pa.uint64()).cast(type_.arrow)
        integers = _from_text(cells)
        if min((n for n in integers if n is not None), default=0) < 0:
            integers = [None if n is None else n % _2_64 if -_2_63 <= n < _2_64 else n for n in integers]
        return direct(integers)

    return cast


def _from_text(cells: Cells) -> Sequence[int | None]:
    if str not in set(map(type, cells)):
        return require(cells, int)
    return [int(c) if isinstance(c, str) else c for c in require(cells, int, str)]


def _text_of_integers(type_: ColumnType, settings: Settings) -> Kernel:
    run = _wrapped_integers(type_, settings)
    return lambda cells: run(cells).cast(pa.string())


def _integers_cast(*, text: bool) -> CastOf:
    return lambda type_, _: integer_cast(type_.arrow, text=text)


def _floats_cast(*, text: bool) -> CastOf:
    return lambda type_, _: FloatCast(text, single=type_.arrow == pa.float32())


def _bits_of_bytes(cells: Cells) -> Sequence[int | None]:
    return [None if cell is None else int.from_bytes(cell, "big") for cell in listed(cells, bytes)]


def bits_cast(*, text: bool) -> CastOf:
    return lambda type_, _: BitCast(text) if type_.length == 1 else BitsCast(text)


def _decimal_cast(type_: ColumnType, _settings: Settings) -> Cast | None:
    return PlainCast.TEXT if pa.types.is_string(type_.arrow) else integer_cast(type_.arrow, text=True)


INTEGER_NUMBER = Wire(
    lambda type_, _: integers_of_numbers(type_.arrow),
    text_of_numbers,
    arrays=pa.int64(),
    cast=_integers_cast(text=False),
)
WRAPPED_INTEGER = Wire(_wrapped_integers, _text_of_integers, arrays=pa.int64())
INTEGER_TEXT = text_wire(lambda type_, _: integers_of_text(type_.arrow), _integers_cast(text=True))
DECIMAL_TEXT = text_wire(_decimals_of_text, _decimal_cast)
FLOAT_NUMBER = Wire(_floats(_float_numbers), text_of_numbers, arrays=pa.float64(), cast=_floats_cast(text=False))
FLOAT_TEXT = text_wire(_floats(_float_texts), _floats_cast(text=True))
BIT_NUMBER = bit_wire(lambda cells: require(cells, int), cast=bits_cast(text=False))
BIT_TEXT = replace(
    bit_wire(lambda cells: [None if c is None else int(c) for c in require(cells, str)], cast=bits_cast(text=True)),
    text=as_text,
    number=bit_numbers(integers_of_text),
    text_cast=PlainCast.TEXT,
)
BIT_BYTES = bit_wire(_bits_of_bytes, pa.binary(), bits_cast(text=False))  # big-endian
YEAR_NUMBER = replace(INTEGER_NUMBER, text=_four_digits(integers_of_numbers))
YEAR_TEXT = replace(INTEGER_TEXT, text=_four_digits(integers_of_text), text_cast=None)
