"""Types of columns that change: which type holds the values of two, and which engine can widen a column to it."""

from __future__ import annotations

from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    TimestampNTZType,
)

__all__ = ["common_type", "delta_can_widen", "iceberg_can_widen"]

_INTEGERS: tuple[type[DataType], ...] = (ByteType, ShortType, IntegerType, LongType)
# Digits before the point that a decimal needs for each of them: so many has the type to which Delta widens them.
_DIGITS: dict[type[DataType], int] = {ByteType: 10, ShortType: 10, IntegerType: 10, LongType: 20}
_MOST_DIGITS = 38


def common_type(first: DataType, second: DataType) -> DataType | None:
    """Return the narrowest type that holds all values of both types; None if there is none, or only text."""
    if _holds(first, second):
        return first
    if _holds(second, first):
        return second
    one, other = _as_decimal(first), _as_decimal(second)
    if one is None or other is None:
        return None
    scale = max(one.scale, other.scale)
    digits = max(one.precision - one.scale, other.precision - other.scale) + scale
    return DecimalType(digits, scale) if digits <= _MOST_DIGITS else None


def _as_decimal(type_: DataType) -> DecimalType | None:
    if isinstance(type_, DecimalType):
        return type_
    digits = _DIGITS.get(type(type_))
    return None if digits is None else DecimalType(digits, 0)


def _holds(wide: DataType, narrow: DataType) -> bool:
    """Return whether every value of one type is a value of the other."""
    if wide == narrow:
        return True
    kinds = (type(wide), type(narrow))
    if all(kind in _INTEGERS for kind in kinds):
        return _INTEGERS.index(kinds[0]) >= _INTEGERS.index(kinds[1])
    if isinstance(wide, DoubleType):
        return isinstance(narrow, (FloatType, ByteType, ShortType, IntegerType))
    if isinstance(wide, TimestampNTZType):
        return isinstance(narrow, DateType)
    number = _as_decimal(narrow)
    if isinstance(wide, DecimalType) and number is not None:
        return wide.scale >= number.scale and wide.precision - wide.scale >= number.precision - number.scale
    return False


def delta_can_widen(old: DataType, new: DataType) -> bool:
    """Return whether Delta's type widening takes a column from one type to the other."""
    return old != new and _holds(new, old)


def iceberg_can_widen(old: DataType, new: DataType) -> bool:
    """Return whether Iceberg takes a column from one type to the other: it keeps the scale of a decimal."""
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        return old.scale == new.scale and old.precision < new.precision
    return (type(old), type(new)) in {(IntegerType, LongType), (FloatType, DoubleType)}
