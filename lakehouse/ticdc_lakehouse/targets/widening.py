"""Types of columns that change: which type holds the values of two, and which engine can widen a column to it."""

from __future__ import annotations

from pyspark.sql import types as spark

from ticdc_source.developer_api import ColumnType

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
    """Return whether every value of one type is a value of the other."""
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

_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_BYTES = {"tiny": 2**8 - 1, "": 2**16 - 1, "medium": 2**24 - 1, "long": 2**32 - 1}  # of TEXT and BLOB
_EXACT = {"float": 2**24, "double": 2**53}  # integers up to it are values of the type
_LAST_YEAR = 2155


def holds_all(wide: ColumnType, narrow: ColumnType) -> bool:
    """Return whether every value of one MySQL type is a value of the other, and TiDB converts none of them."""
    if wide == narrow:
        return True
    families = (wide.family, narrow.family)
    if "float" in families:
        return _holds_as_float(wide, narrow)
    if families == ("number", "number"):
        bounds, needed = _bounds(wide), _bounds(narrow)
        if bounds is None or needed is None or wide.name == "year":
            return False
        return bounds[0] <= needed[0] and bounds[1] >= needed[1] and (wide.scale or 0) >= (narrow.scale or 0)
    if families[0] != families[1] or not families[0]:
        return False
    if families[0] in ("text", "binary"):
        return _holds_as_text(wide, narrow)
    if families[0] in ("enum", "set"):
        labels, needed_labels = wide.labels or (), narrow.labels or ()
        return bool(needed_labels) and labels[: len(needed_labels)] == needed_labels
    if "date" in (wide.name, narrow.name):
        return wide.name == "datetime"
    least = 1 if families[0] == "bit" else 0
    return (wide.length or least) >= (narrow.length or least)


def _bounds(type_: ColumnType) -> tuple[int, int] | None:
    """Return the smallest and the largest whole number of a type."""
    if type_.name == "year":
        return 0, _LAST_YEAR
    if type_.name == "decimal":
        largest = 10 ** ((type_.length or 10) - (type_.scale or 0)) - 1
        return (0 if type_.unsigned else -largest), largest
    bits = _BITS.get(type_.name)
    if bits is None:
        return None
    return (0, 2**bits - 1) if type_.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _holds_as_float(wide: ColumnType, narrow: ColumnType) -> bool:
    if wide.unsigned and not narrow.unsigned:
        return False
    if narrow.family == "float":
        return wide.name in ("double", narrow.name)
    bounds = None if narrow.scale else _bounds(narrow)
    return bounds is not None and max(-bounds[0], bounds[1]) <= _EXACT.get(wide.name, 0)


def _holds_as_text(wide: ColumnType, narrow: ColumnType) -> bool:
    """Return whether strings fit. A CHAR loses its spaces at the end, and a BINARY is padded."""
    if wide.name == "char":
        return narrow.name == "char" and (wide.length or 1) >= (narrow.length or 1)
    if wide.name == "binary":
        return False
    if wide.length is not None and narrow.length is not None:
        return wide.length >= narrow.length
    at_most = 4 if wide.family == "text" and narrow.length is not None else 1  # bytes of a character
    needed = _longest(narrow)
    longest = _longest(wide)
    return longest is not None and needed is not None and longest >= needed * at_most


def _longest(type_: ColumnType) -> int | None:
    """Return the length of a type in its own unit: characters of VARCHAR, bytes of the others."""
    kind = type_.name.removesuffix("text").removesuffix("blob")
    if kind != type_.name:
        return _BYTES.get(kind)
    return type_.length if type_.length is not None else (1 if type_.name in ("char", "binary") else None)
