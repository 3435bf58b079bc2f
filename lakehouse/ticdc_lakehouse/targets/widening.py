"""Types of columns that change: which type holds the values of two, and which engine can widen a column to it."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import types as spark

from ticdc_source.developer_api import ColumnType, merge_types

_INTEGERS: tuple[type[spark.DataType], ...] = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType)
# Digits before the point that a decimal needs for each of them: so many has the type to which Delta widens them.
_DIGITS: dict[type[spark.DataType], int] = {**dict.fromkeys(_INTEGERS, 10), spark.LongType: 20}
_MOST_DIGITS = 38


def common_type(first: spark.DataType, second: spark.DataType) -> spark.DataType | None:
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
    return spark.DecimalType(digits, scale) if digits <= _MOST_DIGITS else None


def _as_decimal(type_: spark.DataType) -> spark.DecimalType | None:
    if isinstance(type_, spark.DecimalType):
        return type_
    digits = _DIGITS.get(type(type_))
    return None if digits is None else spark.DecimalType(digits, 0)


def _holds(wide: spark.DataType, narrow: spark.DataType) -> bool:
    if wide == narrow:
        return True
    kinds = (type(wide), type(narrow))
    if all(kind in _INTEGERS for kind in kinds):
        return _INTEGERS.index(kinds[0]) >= _INTEGERS.index(kinds[1])
    if isinstance(wide, spark.DoubleType):
        return isinstance(narrow, (spark.FloatType, spark.ByteType, spark.ShortType, spark.IntegerType))
    if isinstance(wide, spark.TimestampNTZType):
        return isinstance(narrow, spark.DateType)
    number = _as_decimal(narrow)
    if isinstance(wide, spark.DecimalType) and number is not None:
        return wide.scale >= number.scale and wide.precision - wide.scale >= number.precision - number.scale
    return False


def delta_can_widen(old: spark.DataType, new: spark.DataType) -> bool:
    """Return whether Delta's type widening takes a column from one type to the other."""
    return old != new and _holds(new, old)


def iceberg_can_widen(old: spark.DataType, new: spark.DataType) -> bool:
    """Return whether Iceberg takes a column from one type to the other: it keeps the scale of a decimal."""
    if isinstance(old, spark.DecimalType) and isinstance(new, spark.DecimalType):
        return old.scale == new.scale and old.precision < new.precision
    return (type(old), type(new)) in {(spark.IntegerType, spark.LongType), (spark.FloatType, spark.DoubleType)}


# MySQL types

_INTO_FLOATS = {"double": ("tinyint", "smallint", "mediumint", "int"), "float": ("tinyint", "smallint", "mediumint")}
_MOST_BYTES = {"tinytext": 2**8 - 1, "tinyblob": 2**8 - 1, "text": 2**16 - 1, "blob": 2**16 - 1}


def holds_all(wide: ColumnType, narrow: ColumnType) -> bool:
    """Return whether every value of one MySQL type is a value of the other, and TiDB converts none of them."""
    if wide == narrow:
        return True
    if wide.family != narrow.family:
        return narrow.name in _INTO_FLOATS.get(wide.name, ()) and (narrow.unsigned or not wide.unsigned)
    match wide.family:
        case "enum" | "set":
            needed = narrow.labels or ()
            return bool(needed) and (wide.labels or ())[: len(needed)] == needed
        case "text" | "binary" if wide.name == "binary":  # it is padded
            return False
        case "text" | "binary" if wide.name in _MOST_BYTES and narrow.length is not None:
            return narrow.length * (4 if wide.family == "text" else 1) <= _MOST_BYTES[wide.name]
        case "number" | "float" | "text" | "binary":
            first, second = _plain(wide), _plain(narrow)
            return merge_types(first, second) == first
        case _ if "date" in (wide.name, narrow.name):
            return wide.name == "datetime"
        case family:
            least = 1 if family == "bit" else 0
            return (wide.length or least) >= (narrow.length or least)


def _plain(type_: ColumnType) -> ColumnType:
    """Return a type with a length that says which values it has: that of an integer is how wide a column is shown."""
    if type_.name in ("char", "binary"):
        return replace(type_, length=type_.length or 1)
    return type_ if type_.family != "number" or type_.name == "decimal" else replace(type_, length=None)
