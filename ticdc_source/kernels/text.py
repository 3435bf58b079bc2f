"""MySQL's types as text, as most wire formats write them: the table that their own tables change."""

from __future__ import annotations

from ticdc_source.kernels import numbers, strings, temporal
from ticdc_source.kernels.wire import Wire
from ticdc_source.schema.types import BINARIES, INTEGERS, TEXTS

__all__ = ["TEXT_KERNELS"]

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
    **dict.fromkeys(TEXTS, strings.TEXT),
    **dict.fromkeys(BINARIES, strings.BASE64_BINARY),
    "enum": strings.ENUM_TEXT,
    "set": strings.SET_TEXT,
    "json": strings.TEXT,
    "vector": strings.VECTOR_TEXT,
}
