"""Kernels of the numeric types: integers, decimals, floats, bit, year; from JSON numbers and from text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import TypeVar, overload

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.kernels.base import Cells, Kernel, Settings, Wire, bytes_of_texts, decimals_of_text
from ticdc_source.schema.types import BIGINT_UNSIGNED, ColumnType

__all__ = [
    "BIT_NUMBER",
    "BIT_TEXT",
    "DECIMAL_FLOAT",
    "DECIMAL_TEXT",
    "FLOAT_NUMBER",
    "FLOAT_TEXT",
    "INTEGER_NUMBER",
    "INTEGER_TEXT",
    "WRAPPED_INTEGER_NUMBER",
    "YEAR_NUMBER",
    "YEAR_TEXT",
    "bits",
    "integers_of_numbers",
    "integers_of_text",
    "text_cells",
    "text_of_numbers",
]

_2_63, _2_64 = 1 << 63, 1 << 64
_EXACT_DIGITS, _EXACT_POWER = 15, 22  # digits that a double keeps, and the last power of ten that is a double
_INTEGERS = pa.decimal128(19, 0)  # that hold all of 64 bits


First = TypeVar("First")
Second = TypeVar("Second")
Third = TypeVar("Third")


@overload
def require(cells: Cells, first: type[First], /) -> Sequence[First | None]: ...
@overload
def require(cells: Cells, first: type[First], second: type[Second], /) -> Sequence[First | Second | None]: ...
@overload
def require(
    cells: Cells, first: type[First], second: type[Second], third: type[Third], /
) -> Sequence[First | Second | Third | None]: ...
def require(cells: Cells, *types: type) -> Cells:
    """Return the cells if each is None or of one of these types: Arrow would cut 1.5 to 1 and read "x" as bytes.

    Raises:
        TypeError: a cell is of another type.
    """
    others = set(map(type, cells)) - {type(None), *types}
    if others:
        msg = f"a JSON {_json_name(others)} where a {_json_name(types)} is expected"
        raise TypeError(msg)
    return cells


def _json_name(types: Iterable[type]) -> str:
    names = {
        str: "string",
        int: "number",
        float: "number with a fraction",
        bool: "boolean",
        list: "array",
        dict: "object",
    }
    return " or ".join(sorted(names.get(type_, type_.__name__) for type_ in types))


def integers_of_numbers(arrow: pa.DataType) -> Kernel:
    """Make the kernel for JSON integers."""

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
    """Make the kernel for integers in text."""

    def cast(cells: Cells) -> pa.Array:
        text = text_cells(cells)
        if bytes_of_texts(text).translate(None, b"0123456789-"):  # Arrow would read 0x10 as 16
            msg = "not an integer"
            raise ValueError(msg)
        return decimals_of_text(text, arrow) if pa.types.is_decimal(arrow) else text.cast(arrow)

    return cast


def text_cells(cells: Cells) -> pa.Array:
    """Make a string array of cells that must be JSON strings."""
    if isinstance(cells, pa.StringArray):
        return cells
    return pa.array(require(cells, str), pa.string())


def _wrapped_integers(type_: ColumnType, _settings: Settings) -> Kernel:
    """Debezium writes BIGINT UNSIGNED as a signed 64-bit number (docs/wire.md, item 24), newer ones as text."""
    direct = integers_of_numbers(type_.arrow)
    if not (type_.name == "bigint" and type_.unsigned):
        return lambda cells: direct(cells if isinstance(cells, pa.Int64Array) else _from_text(cells))

    def cast(cells: Cells) -> pa.Array:
        if isinstance(cells, pa.Int64Array):
            return cells.view(pa.uint64()).cast(type_.arrow)
        numbers = _from_text(cells)
        if min((n for n in numbers if n is not None), default=0) < 0:
            numbers = [None if n is None else n % _2_64 if -_2_63 <= n < _2_64 else n for n in numbers]
        return direct(numbers)

    return cast


def _from_text(cells: Cells) -> Sequence[int | None]:
    if str not in set(map(type, cells)):
        return require(cells, int)
    return [int(c) if isinstance(c, str) else c for c in require(cells, int, str)]


def text_of_numbers(_type: ColumnType, _settings: Settings) -> Kernel:
    """Make the kernel for the text of JSON numbers: integers as they are, floats without an exponent."""

    def cast(cells: Cells) -> pa.Array:
        if isinstance(cells, pa.Int64Array):
            return cells.cast(pa.string())
        numbers = require(cells, int, float, str)  # not doubles in an array: 1 and 1.0 have different texts
        return pa.array([None if number is None else _plain(number) for number in numbers], pa.string())

    return cast


def _plain(number: float | str) -> str:
    return format(Decimal(repr(number)), "f") if isinstance(number, float) else str(number)


def _as_text(_type: ColumnType, _settings: Settings) -> Kernel:
    return text_cells


def _decimals_of_text(type_: ColumnType, _settings: Settings) -> Kernel:
    if pa.types.is_string(type_.arrow):
        return text_cells
    arrow = type_.arrow
    return lambda cells: decimals_of_text(text_cells(cells), arrow)


def _decimals_of_floats(type_: ColumnType, _settings: Settings) -> Kernel:
    """Read a DECIMAL that the wire sends as a double (debezium, docs/wire.md, item 24) at its declared scale.

    The shortest text of the double is what TiDB printed as long as it has no more than 15 digits. A double that
    rounds up past the declared precision (9999999999999999.99 is sent as 1e16) is the largest value that the
    column can hold, as that has the same double.
    """
    arrow, scale = type_.arrow, type_.scale or 0
    as_text = pa.types.is_string(arrow)
    largest = Decimal((0, (9,) * (type_.length or 1), -scale))

    def text(cell: float | str) -> str:
        if isinstance(cell, str):
            return cell
        value = Decimal(repr(cell))
        if abs(value) > largest and float(largest) == abs(float(cell)):
            value = largest.copy_sign(value)
        return format(value, f".{scale}f") if as_text else format(value, "f")

    def cast(cells: Cells) -> pa.Array:
        doubles = isinstance(cells, pa.DoubleArray)
        if doubles:
            array = None if as_text else _decimals_of_few_digits(cells, arrow)
            if array is not None:
                return array
            _refuse_whole_numbers_of_more_digits(cells)
        else:
            require(cells, int, float, str)
        if not as_text and (doubles or str not in set(map(type, cells))):
            try:  # Arrow prints a double's shortest text too; what then does not fit may be such a rounded one
                return decimals_of_text(pa.array(cells, pa.float64()).cast(pa.string()), arrow)
            except (ValueError, ArithmeticError):
                pass
        numbers = cells.to_pylist() if isinstance(cells, pa.DoubleArray) else require(cells, int, float, str)
        texts = pa.array([None if number is None else text(number) for number in numbers], pa.string())
        return texts if as_text else decimals_of_text(texts, arrow)

    return cast


def _decimals_of_few_digits(doubles: pa.DoubleArray, arrow: pa.DataType) -> pa.Array | None:
    """Read doubles as decimals without their texts; None where one has more than 15 digits, or none that fit.

    Of all decimals with up to 15 digits no two have the same double, so one of that scale which gives this double, as
    an exact number divided by an exact power of ten, is its shortest text.
    """
    if not 0 <= arrow.scale <= _EXACT_POWER:
        return None
    power = float(10**arrow.scale)
    units = pc.round(pc.multiply(doubles, power))
    limit = float(10 ** min(arrow.precision, _EXACT_DIGITS))
    exact = pc.and_(pc.less(pc.abs(units), limit), pc.equal(pc.divide(units, power), doubles))
    if not pc.all(exact, min_count=0).as_py():
        return None
    return units.cast(pa.int64()).cast(_INTEGERS).view(arrow)


def _refuse_whole_numbers_of_more_digits(doubles: pa.DoubleArray) -> None:
    """Refuse what may have been written as an integer that a double does not hold: of cells each digit counts."""
    if pc.any(pc.greater_equal(pc.abs(doubles), float(1 << 53))).as_py():
        msg = "a double of more than 53 bits"
        raise ValueError(msg)


def _text_of_floats(type_: ColumnType, settings: Settings) -> Kernel:
    """Make the kernel for a DECIMAL's text, at its declared scale where that is known."""
    if type_.length is None:
        return text_of_numbers(type_, settings)
    decimals = _decimals_of_floats(type_, settings)
    return lambda cells: _digits(decimals(cells).cast(pa.string()))


def _digits(texts: pa.Array) -> pa.Array:
    """Write decimals without an exponent, as MySQL does: Arrow prints 0.0000000000 as 0E-10."""
    if not pc.any(pc.match_substring(texts, "E")).as_py():
        return texts
    return pa.array([None if text is None else format(Decimal(text), "f") for text in texts.to_pylist()], pa.string())


def _floats(build: Callable[[Cells, pa.DataType], pa.Array]) -> Callable[[ColumnType, Settings], Kernel]:
    def make(type_: ColumnType, _settings: Settings) -> Kernel:
        arrow = type_.arrow

        def cast(cells: Cells) -> pa.Array:
            array = build(cells, arrow)
            if not pc.all(pc.is_finite(array), min_count=0).as_py():  # 1e300 becomes inf in a float
                msg = f"out of the range of {type_}"
                raise ValueError(msg)
            return array

        return cast

    return make


def _float_numbers(cells: Cells, arrow: pa.DataType) -> pa.Array:
    if isinstance(cells, pa.DoubleArray):
        return cells.cast(arrow)
    numbers = require(cells, int, float)
    if int in set(map(type, numbers)):  # Arrow refuses integers that a double does not hold exactly; Go wrote them
        numbers = [None if number is None else float(number) for number in numbers]
    return pa.array(numbers, arrow)


def _float_texts(cells: Cells, arrow: pa.DataType) -> pa.Array:
    return text_cells(cells).cast(arrow)


def bits(type_: ColumnType, numbers: Sequence[int | None]) -> pa.Array:
    """Make bit(1) boolean, and longer ones the 64 bits as a signed integer (bit 63 in two's complement)."""
    if type_.length == 1:
        if not set(numbers) <= {0, 1, None}:
            msg = "more than one bit in a BIT(1)"
            raise ValueError(msg)
        return pa.array([None if n is None else n == 1 for n in numbers], pa.bool_())
    try:
        array = pa.array(numbers, pa.int64())
    except (OverflowError, pa.ArrowInvalid):
        array = pa.array([None if n is None else n - _2_64 if _2_63 <= n < _2_64 else n for n in numbers], pa.int64())
    return array


def _bits_of_numbers(type_: ColumnType, _settings: Settings) -> Kernel:
    def cast(cells: Cells) -> pa.Array:
        return bits(type_, require(cells, int))

    return cast


def _bits_of_text(type_: ColumnType, _settings: Settings) -> Kernel:
    def cast(cells: Cells) -> pa.Array:
        return bits(type_, [None if c is None else int(c) for c in require(cells, str)])

    return cast


def bit_numbers(read: Callable[[pa.DataType], Kernel]) -> Callable[[ColumnType, Settings], Kernel]:
    """Make kernels for the unsigned number that the bits are."""
    return lambda _type, _settings: read(BIGINT_UNSIGNED)


def _four_digits(natural: Callable[[pa.DataType], Kernel]) -> Callable[[ColumnType, Settings], Kernel]:
    """Make the kernel for a YEAR's text: MySQL prints 0 as 0000."""

    def make(type_: ColumnType, _settings: Settings) -> Kernel:
        read = natural(type_.arrow)
        return lambda cells: pc.utf8_lpad(read(cells).cast(pa.string()), 4, "0")

    return make


INTEGER_NUMBER = Wire(
    lambda type_, _: integers_of_numbers(type_.arrow), text_of_numbers, written="a number", arrays=pa.int64()
)
INTEGER_TEXT = Wire(
    lambda type_, _: integers_of_text(type_.arrow), _as_text, written="digits in text", arrays=pa.string()
)
WRAPPED_INTEGER_NUMBER = Wire(
    _wrapped_integers,
    lambda type_, settings: lambda cells: _wrapped_integers(type_, settings)(cells).cast(pa.string()),
    written="a number",
    arrays=pa.int64(),
)
DECIMAL_TEXT = Wire(_decimals_of_text, _as_text, written="text with all digits of its scale", arrays=pa.string())
DECIMAL_FLOAT = Wire(_decimals_of_floats, _text_of_floats, written="a number, rounded to a double", arrays=pa.float64())
FLOAT_NUMBER = Wire(_floats(_float_numbers), text_of_numbers, written="a number", arrays=pa.float64())
FLOAT_TEXT = Wire(_floats(_float_texts), _as_text, written="text", arrays=pa.string())
BIT_NUMBER = Wire(
    _bits_of_numbers, text_of_numbers, number=bit_numbers(integers_of_numbers), written="a number: the bits, unsigned"
)
BIT_TEXT = Wire(
    _bits_of_text, _as_text, number=bit_numbers(integers_of_text), written="digits in text: the bits, unsigned"
)
YEAR_NUMBER = Wire(
    lambda type_, _: integers_of_numbers(type_.arrow),
    _four_digits(integers_of_numbers),
    written="a number",
    arrays=pa.int64(),
)
YEAR_TEXT = Wire(
    lambda type_, _: integers_of_text(type_.arrow),
    _four_digits(integers_of_text),
    written="digits in text",
    arrays=pa.string(),
)
