"""How avro writes each type: numbers as numbers, DECIMAL and BIT as bytes, dates and times as MySQL's text."""

from __future__ import annotations

from dataclasses import replace
from decimal import Context, Decimal

import pyarrow as pa

from ticdc_source.kernels import numbers, strings
from ticdc_source.kernels.contract import Cast, UnscaledCast
from ticdc_source.kernels.numbers import require
from ticdc_source.kernels.wire import Cells, Kernel, Settings, Wire, integer_cast
from ticdc_source.schema.types import BINARIES, INTEGERS, ColumnType

_EXACT = Context(prec=100)  # TiDB's decimals have at most 65 digits


def decimal_wire(scale: int) -> Wire:
    """Return how DECIMAL is written with `avro-decimal-handling-mode=precise`: a big-endian integer.

    Args:
        scale: that of the messages; the column may have been altered since.
    """

    def texts(cells: Cells) -> Cells:
        if isinstance(cells, pa.BinaryArray):
            cells = cells.to_pylist()
        return [None if cell is None else _decimal_text(cell, scale) for cell in require(cells, bytes)]

    def natural(type_: ColumnType, settings: Settings) -> Kernel:
        of_text = numbers.DECIMAL_TEXT.natural(type_, settings)
        return lambda cells: of_text(texts(cells))

    def text(type_: ColumnType, settings: Settings) -> Kernel:
        of_text = numbers.DECIMAL_TEXT.text(type_, settings)
        return lambda cells: of_text(texts(cells))

    def cast(type_: ColumnType, _settings: Settings) -> Cast | None:
        arrow = type_.arrow
        if not pa.types.is_decimal(arrow) or arrow.scale < scale:
            return None
        return UnscaledCast(arrow.precision, arrow.scale - scale)

    return Wire(natural, text, arrays=pa.binary(), cast=cast)


def _decimal_text(cell: bytes, scale: int) -> str:
    number = Decimal(int.from_bytes(cell, "big", signed=True))
    return format(number.scaleb(-scale, _EXACT), f".{scale}f")


def _single_text(type_: ColumnType, settings: Settings) -> Kernel:
    """Make the kernel for the text of a FLOAT: the digits that identify a 32-bit float, as MySQL prints it."""
    of_text = numbers.FLOAT_NUMBER.text(type_, settings)

    def cast(cells: Cells) -> pa.Array:
        doubles = cells.to_pylist() if isinstance(cells, pa.DoubleArray) else require(cells, float)
        return of_text([None if cell is None else float(numbers.shortest_single(cell)) for cell in doubles])

    return cast


def _integers_cast(type_: ColumnType, _settings: Settings) -> Cast | None:
    return integer_cast(type_.arrow, text=False) if pa.types.is_integer(type_.arrow) else None


_INTEGER = replace(numbers.WRAPPED_INTEGER, cast=_integers_cast)

# How integers are written with `avro-bigint-unsigned-handling-mode=string`.
IN_TEXT: dict[str, Wire] = {"bigint": numbers.INTEGER_TEXT}

# A DECIMAL is text with avro-decimal-handling-mode=string; otherwise it is written as `decimal_wire` says.
KERNELS: dict[str, Wire] = {
    **strings.TEXT_KERNELS,
    **dict.fromkeys(INTEGERS, _INTEGER),
    "year": numbers.YEAR_NUMBER,
    "float": replace(numbers.FLOAT_NUMBER, text=_single_text),
    "double": numbers.FLOAT_NUMBER,
    "bit": numbers.BIT_BYTES,
    **dict.fromkeys(BINARIES, strings.BYTES),
    "enum": strings.LABEL,
    "set": strings.LABEL,
}
