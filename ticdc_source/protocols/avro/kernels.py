"""How avro writes each type: numbers as numbers, DECIMAL and BIT as bytes, dates and times as MySQL's text."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal

import pyarrow as pa

from ticdc_source.kernels import numbers, strings, temporal
from ticdc_source.kernels.numbers import require
from ticdc_source.kernels.wire import Cells, Kernel, Settings, Wire
from ticdc_source.schema.types import BIGINT_UNSIGNED, BINARIES, INTEGERS, TEXTS, ColumnType

__all__ = ["KERNELS"]

_EXACT = Context(prec=100)  # TiDB's decimals have at most 65 digits


def _decimals(type_: ColumnType, settings: Settings) -> Kernel:
    """Read DECIMAL: a big-endian integer at the declared scale, or text (`avro-decimal-handling-mode=string`)."""
    of_text = numbers.DECIMAL_TEXT.natural(type_, settings)
    return lambda cells: of_text(_decimal_texts(type_, cells))


def _decimal_text(type_: ColumnType, settings: Settings) -> Kernel:
    of_text = numbers.DECIMAL_TEXT.text(type_, settings)
    return lambda cells: of_text(_decimal_texts(type_, cells))


def _decimal_texts(type_: ColumnType, cells: Cells) -> Cells:
    if isinstance(cells, pa.StringArray):
        whole: Cells = cells
        return whole
    scale = type_.scale or 0
    return [
        format(Decimal(int.from_bytes(cell, "big", signed=True)).scaleb(-scale, _EXACT), f".{scale}f")
        if isinstance(cell, bytes)
        else cell
        for cell in require(cells, bytes, str)
    ]


def _bits(type_: ColumnType, _settings: Settings) -> Kernel:
    """Read BIT: big-endian bytes."""
    return lambda cells: numbers.bits(type_, _unsigned(cells))


def _bit_text(_type: ColumnType, _settings: Settings) -> Kernel:
    return lambda cells: pa.array([None if bits is None else str(bits) for bits in _unsigned(cells)], pa.string())


def _bit_numbers(_type: ColumnType, _settings: Settings) -> Kernel:
    return lambda cells: pa.array(_unsigned(cells), BIGINT_UNSIGNED)


def _unsigned(cells: Cells) -> Sequence[int | None]:
    if isinstance(cells, pa.BinaryArray):
        cells = cells.to_pylist()
    return [None if cell is None else int.from_bytes(cell, "big") for cell in require(cells, bytes)]


def _bytes(_type: ColumnType, _settings: Settings) -> Kernel:
    return lambda cells: cells if isinstance(cells, pa.BinaryArray) else pa.array(require(cells, bytes), pa.binary())


def _text_of_bytes(type_: ColumnType, settings: Settings) -> Kernel:
    of_text = strings.TEXT.text(type_, settings)

    def cast(cells: Cells) -> pa.Array:
        if isinstance(cells, pa.BinaryArray):
            cells = cells.to_pylist()
        return of_text(
            [None if cell is None else cell.decode(errors="surrogateescape") for cell in require(cells, bytes)]
        )

    return cast


_DECIMAL = Wire(_decimals, _decimal_text, arrays=pa.string())
_BIT = Wire(_bits, _bit_text, number=_bit_numbers, arrays=pa.binary())
_BINARY = Wire(_bytes, _text_of_bytes, arrays=pa.binary())

KERNELS: dict[str, Wire] = {
    **dict.fromkeys(INTEGERS, numbers.WRAPPED_INTEGER),
    "decimal": _DECIMAL,
    "year": numbers.YEAR_NUMBER,
    "float": numbers.FLOAT_NUMBER,
    "double": numbers.FLOAT_NUMBER,
    "bit": _BIT,
    "date": temporal.DATE_TEXT,
    "datetime": temporal.DATETIME_TEXT,
    "timestamp": temporal.TIMESTAMP_TEXT,
    "time": temporal.TIME_TEXT,
    **dict.fromkeys(TEXTS, strings.TEXT),
    **dict.fromkeys(BINARIES, _BINARY),
    "enum": strings.LABEL,
    "set": strings.LABEL,
    "json": strings.TEXT,
    "vector": strings.VECTOR_TEXT,
}
