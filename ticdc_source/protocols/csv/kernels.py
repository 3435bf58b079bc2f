"""How CSV writes each type: as text."""

from __future__ import annotations

from ticdc_source.kernels import numbers, strings, temporal
from ticdc_source.kernels.wire import Wire
from ticdc_source.schema.types import BINARIES, INTEGERS, TEXTS

__all__ = ["HEX_BINARY", "KERNELS"]

HEX_BINARY = strings.binary_wire(bytes.fromhex)

KERNELS: dict[str, Wire] = {
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
    **dict.fromkeys(TEXTS, strings.TEXT),
    **dict.fromkeys(BINARIES, strings.BASE64_BINARY),
    "enum": strings.LABEL,
    "set": strings.LABEL,
    "json": strings.TEXT,
    "vector": strings.VECTOR_TEXT,
}
