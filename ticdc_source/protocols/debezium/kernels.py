"""How debezium writes each type: dates and times as numbers, DECIMAL as a double, ENUM and SET as their labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.kernels import numbers, strings, temporal
from ticdc_source.kernels.numbers import integers_of_numbers, require
from ticdc_source.kernels.wire import Cells, Kernel, Maker, Settings, Wire, decimals_of_text
from ticdc_source.schema import types
from ticdc_source.schema.types import BINARIES, INTEGERS, TEXTS, TIMESTAMP_NTZ, ColumnType

__all__ = ["DATETIME", "DECIMAL_DOUBLE", "KERNELS", "TIME"]

Value = TypeVar("Value")  # of an array, in Python

_EXACT_DIGITS, _EXACT_POWER = 15, 22  # digits that a double keeps, and the last power of ten that is a double
_INTEGERS = pa.decimal128(19, 0)  # that hold all of 64 bits
_FIRST_DAYS, _LAST_DAYS = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31, from the epoch
_FIRST_MICROS, _LAST_MICROS = _FIRST_DAYS * 86_400_000_000, (_LAST_DAYS + 1) * 86_400_000_000 - 1


def _decimals_of_doubles(type_: ColumnType, _settings: Settings) -> Kernel:
    """Read a DECIMAL that comes as a double (docs/wire.md, item 24) at its declared scale.

    The shortest text of the double is what TiDB printed if it has no more than 15 digits. A double that rounds up past
    the declared precision (9999999999999999.99 is sent as 1e16) is the largest value that the column can hold, as that
    value has the same double.
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
            try:  # Arrow prints a double's shortest text too; a text that does not fit may be such a rounded one
                return decimals_of_text(pa.array(cells, pa.float64()).cast(pa.string()), arrow)
            except (ValueError, ArithmeticError):
                pass
        values = cells.to_pylist() if isinstance(cells, pa.DoubleArray) else require(cells, int, float, str)
        texts = pa.array([None if value is None else text(value) for value in values], pa.string())
        return texts if as_text else decimals_of_text(texts, arrow)

    return cast


def _decimals_of_few_digits(doubles: pa.DoubleArray, arrow: pa.DataType) -> pa.Array | None:
    """Read doubles as decimals without their texts; return None if one has more than 15 digits, or does not fit.

    No two decimals with up to 15 digits have the same double. So a decimal of that scale which, as an exact number
    divided by an exact power of ten, makes this double is its shortest text.
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
    """Refuse doubles that may have been written as integers they do not hold: in a cell each digit counts.

    Raises:
        ValueError: a double is 2⁵³ or more.
    """
    if pc.any(pc.greater_equal(pc.abs(doubles), float(1 << 53))).as_py():
        msg = "a double of more than 53 bits"
        raise ValueError(msg)


def _text_of_doubles(type_: ColumnType, settings: Settings) -> Kernel:
    """Make the kernel for a DECIMAL's text, at its declared scale if that is known."""
    if type_.length is None:
        return numbers.text_of_numbers(type_, settings)
    decimals = _decimals_of_doubles(type_, settings)
    return lambda cells: _without_exponents(decimals(cells).cast(pa.string()))


def _without_exponents(texts: pa.Array) -> pa.Array:
    """Write decimals as MySQL does: Arrow prints 0.0000000000 as 0E-10."""
    if not pc.any(pc.match_substring(texts, "E")).as_py():
        return texts
    return pa.array([None if text is None else format(Decimal(text), "f") for text in texts.to_pylist()], pa.string())


def _unsigned(cells: Cells) -> list[int | None]:
    """Read BIT: true and false for BIT(1), else base64 of the little-endian bytes (docs/wire.md, item 24)."""
    return [None if cell is None else _bit_number(cell) for cell in require(cells, bool, str)]


def _bit_number(cell: bool | str) -> int:  # noqa: FBT001 (a value of the message)
    if isinstance(cell, bool):
        return int(cell)
    return int.from_bytes(strings.base64_bytes(cell), "little")


def _within(values: pa.Array, first: int, last: int) -> pa.Array:
    """Return the values unless one lies outside the years 1 to 9999: it is no date, or one in another unit.

    Raises:
        ValueError: a value lies outside.
    """
    low, high = pc.min(values).as_py(), pc.max(values).as_py()
    if low is not None and (low < first or high > last):
        msg = "outside the years 1 to 9999: has the precision of the DATETIME been changed, from ms to µs?"
        raise ValueError(msg)
    return values


def _days(_type: ColumnType, _settings: Settings) -> Kernel:
    as_integers = integers_of_numbers(pa.int32())
    return lambda cells: _within(as_integers(cells), _FIRST_DAYS, _LAST_DAYS).cast(pa.date32())


def _datetimes(type_: ColumnType, _settings: Settings) -> Kernel:
    """Read Timestamp (ms, up to 3 digits of fraction) or MicroTimestamp (µs, 4 to 6)."""
    unit = 1 if (type_.length or 0) > 3 else 1000  # noqa: PLR2004

    as_integers = integers_of_numbers(pa.int64())

    def cast(cells: Cells) -> pa.Array:
        micros = pc.multiply_checked(as_integers(cells), unit)
        return _within(micros, _FIRST_MICROS, _LAST_MICROS).cast(TIMESTAMP_NTZ)

    return cast


def _zoned_timestamps(_type: ColumnType, settings: Settings) -> Kernel:
    """Read ZonedTimestamp, `…Z` or with an offset; zero and invalid dates follow `zeroDate`."""
    return temporal.dates_of_text(types.TIMESTAMP, settings)


def _times(_type: ColumnType, _settings: Settings) -> Kernel:
    as_integers = integers_of_numbers(pa.int64())
    return lambda cells: as_integers(cells).cast(types.TIME)


def _moment(natural: Maker, text: Callable[[Value, ColumnType], str]) -> Wire:
    return Wire(natural, temporal.text_of(natural, text), arrays=pa.int64())


DECIMAL_DOUBLE = Wire(_decimals_of_doubles, _text_of_doubles, arrays=pa.float64())
BIT = numbers.bit_wire(_unsigned)
DATE = _moment(_days, temporal.date_text)
DATETIME = _moment(_datetimes, temporal.datetime_text)
TIMESTAMP = replace(_moment(_zoned_timestamps, temporal.datetime_text), arrays=pa.string())
TIME = _moment(_times, temporal.time_text)
KERNELS: dict[str, Wire] = {
    **dict.fromkeys(INTEGERS, numbers.WRAPPED_INTEGER),
    "decimal": DECIMAL_DOUBLE,
    "year": numbers.YEAR_NUMBER,
    "float": numbers.FLOAT_NUMBER,
    "double": numbers.FLOAT_NUMBER,
    "bit": BIT,
    "date": DATE,
    "datetime": DATETIME,
    "timestamp": TIMESTAMP,
    "time": TIME,
    **dict.fromkeys(TEXTS, strings.TEXT),
    **dict.fromkeys(BINARIES, strings.BASE64_BINARY),
    "enum": strings.LABEL,
    "set": strings.LABEL,
    "json": strings.TEXT,
    "vector": strings.VECTOR_TEXT,
}
