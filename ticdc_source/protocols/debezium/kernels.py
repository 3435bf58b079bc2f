"""How debezium writes each type: dates and times as numbers, DECIMAL as a double, ENUM and SET as their labels."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import warn
from ticdc_source.kernels import numbers, strings, temporal
from ticdc_source.kernels.contract import Cast, PlainCast
from ticdc_source.kernels.numbers import integers_of_numbers, require
from ticdc_source.kernels.strings import base64_bytes
from ticdc_source.kernels.wire import Cells, Kernel, Maker, Settings, Wire, decimals_of_text, integer_cast, number_text
from ticdc_source.schema import types
from ticdc_source.schema.model import TableSchema
from ticdc_source.schema.types import BINARIES, INTEGERS, TIMESTAMP_NTZ, ColumnType

Value = TypeVar("Value")  # of an array, in Python

_FIRST_DAYS, _LAST_DAYS = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31, from the epoch
_FIRST_MICROS, _LAST_MICROS = _FIRST_DAYS * 86_400_000_000, (_LAST_DAYS + 1) * 86_400_000_000 - 1


def _decimals_of_numbers(type_: ColumnType, _settings: Settings) -> Kernel:
    """Read a DECIMAL sent as a double (docs/wire.md, item 24), with its declared scale.

    Up to 15 digits, the double's shortest text is what TiDB printed. A double that was rounded past the declared
    precision (9999999999999999.99 is sent as 1e16) is read as the column's largest value, which has the same double.
    """
    arrow, scale = type_.arrow, type_.scale or 0
    as_text = pa.types.is_string(arrow)
    largest = Decimal((0, (9,) * (type_.length or 1), -scale))

    def text(cell: float | str | Decimal) -> str:
        if isinstance(cell, str):
            return cell
        value = cell if isinstance(cell, Decimal) else Decimal(repr(cell))
        if value.copy_abs() > largest and float(largest) == abs(float(cell)):
            value = largest.copy_sign(value)
        return _at_scale(number_text(value), scale) if as_text else number_text(value)

    def cast(cells: Cells) -> pa.Array:
        values = require(cells, int, float, str, Decimal)
        if not as_text and set(map(type, values)) <= {int, float, type(None)}:
            try:  # Arrow prints a double's shortest text too; a text that does not fit may be such a rounded one
                return decimals_of_text(pa.array(values, pa.float64()).cast(pa.string()), arrow)
            except (ValueError, ArithmeticError):
                pass
        texts = pa.array([None if value is None else text(value) for value in values], pa.string())
        return texts if as_text else decimals_of_text(texts, arrow)

    return cast


def _at_scale(text: str, scale: int) -> str:
    whole, _, fraction = text.partition(".")
    fraction = fraction.rstrip("0").ljust(scale, "0")
    if len(fraction) > scale:
        raise ValueError(f"more than {scale} digits of fraction")
    return f"{whole}.{fraction}" if scale else whole


def _decimal_cast(type_: ColumnType, _settings: Settings) -> Cast | None:
    return integer_cast(type_.arrow, text=False) if pa.types.is_decimal(type_.arrow) else None


def _text_of_decimals(type_: ColumnType, settings: Settings) -> Kernel:
    if type_.length is None:
        return numbers.text_of_numbers(type_, settings)
    decimals = _decimals_of_numbers(type_, settings)
    return lambda cells: _without_exponents(decimals(cells).cast(pa.string()))


def _without_exponents(texts: pa.Array) -> pa.Array:
    """Write decimals as MySQL does; Arrow prints 0.0000000000 as 0E-10."""
    if not pc.any(pc.match_substring(texts, "E")).as_py():
        return texts
    return pa.array([None if text is None else format(Decimal(text), "f") for text in texts.to_pylist()], pa.string())


def _unsigned(cells: Cells) -> list[int | None]:
    """Read BIT: true and false for BIT(1), else base64 of the little-endian bytes (docs/wire.md, item 24)."""
    return [None if cell is None else _bit_number(cell) for cell in require(cells, bool, str)]


def _bit_number(cell: bool | str) -> int:  # noqa: FBT001 (a value of the message)
    if isinstance(cell, bool):
        return int(cell)
    return int.from_bytes(base64_bytes(cell), "little")


def _within(values: pa.Array, first: int, last: int) -> pa.Array:
    """Refuse values outside the years 1 to 9999, which are not dates, or in another unit."""
    low, high = pc.min(values).as_py(), pc.max(values).as_py()
    if low is not None and (low < first or high > last):
        raise ValueError("outside the years 1 to 9999: was the precision of the DATETIME changed, from ms to µs?")
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


DECIMAL_NUMBER = Wire(_decimals_of_numbers, _text_of_decimals, cast=_decimal_cast)
BIT = numbers.bit_wire(_unsigned)
DATE = _moment(_days, temporal.date_text)
DATETIME = _moment(_datetimes, temporal.datetime_text)
TIMESTAMP = replace(_moment(_zoned_timestamps, temporal.datetime_text), arrays=pa.string())
TIME = _moment(_times, temporal.time_text)
KERNELS: dict[str, Wire] = {
    **strings.TEXT_KERNELS,
    **dict.fromkeys(INTEGERS, numbers.WRAPPED_INTEGER),
    "decimal": DECIMAL_NUMBER,
    "year": numbers.YEAR_NUMBER,
    "float": numbers.FLOAT_NUMBER,
    "double": numbers.FLOAT_NUMBER,
    "bit": BIT,
    "date": DATE,
    "datetime": DATETIME,
    "timestamp": TIMESTAMP,
    "time": TIME,
    "enum": strings.LABEL,
    "set": strings.LABEL,
}


# Binary values in texts are base64, URL-safe base64 or hex, and no message tells which. Kafka Connect's own `bytes` is
# always base64 (docs/wire.md, item 85).
_OPTION = "debezium.binaryHandlingMode"
_BASE64, _BYTES = "base64", "bytes"
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2})*", re.ASCII)
_URL_SAFE = re.compile(r"[0-9A-Za-z_-]*={0,2}", re.ASCII)
_TO_STANDARD = str.maketrans("-_", "+/")


def _of_hex(cell: str) -> bytes:
    if _HEX.fullmatch(cell) is None:  # `bytes.fromhex` takes blanks
        raise ValueError("not hex")
    return bytes.fromhex(cell)


def _of_url_safe(cell: str) -> bytes:
    if _URL_SAFE.fullmatch(cell) is None:
        raise ValueError("not URL-safe base64")
    text = cell.translate(_TO_STANDARD)
    return base64_bytes(text if "=" in text else text + "=" * (-len(text) % 4))


_MODES = {_BASE64: base64_bytes, "base64-url-safe": _of_url_safe, "hex": _of_hex}


def _fits(mode: str, cell: str) -> bool:
    try:
        _MODES[mode](cell)
    except ValueError:
        return False
    return True


def _decoder(mode: str) -> Callable[[str], bytes]:
    decode = _MODES[mode]

    def run(cell: str) -> bytes:
        try:
            return decode(cell)
        except ValueError:
            others = " or ".join(other for other in _MODES if other != mode and _fits(other, cell))
            advice = f"set it to {others}, if the changefeed uses that" if others else "it fits no other mode"
            raise ValueError(f"not {mode}, as the option '{_OPTION}' says: {advice}") from None

    return run


_WIRES: Mapping[str, Wire] = {
    _BASE64: strings.binary_wire(_decoder(_BASE64), PlainCast.BASE64),
    **{mode: strings.binary_wire(_decoder(mode)) for mode in _MODES if mode != _BASE64},
}


def binary_wire_of(mode: str | None, connect: str) -> Wire:
    return strings.BASE64_BINARY if connect == _BYTES else _WIRES.get(mode or _BASE64, _WIRES[_BASE64])


def warn_of_hex(schema: TableSchema, cells: Mapping[str, Cells]) -> None:
    """Warn about binary columns whose sampled values are valid base64 and hex."""
    for column in schema.columns:
        if column.type is None or column.type.name not in BINARIES or column.wire == _BYTES:
            continue
        texts = [cell for cell in cells[column.name] if isinstance(cell, str) and cell]
        if texts and all(_fits("hex", text) and _fits(_BASE64, text) for text in texts):
            warn(
                f"Column {column.name} of {schema.table}: its values are valid base64 and hex, and are read as base64. "
                f"Set the option '{_OPTION}' to the changefeed's debezium-binary-handling-mode (by default base64)"
            )
