"""Types of columns that change: the type that holds the values of two; and MySQL's defaults → Spark's SQL."""

from __future__ import annotations

import re
from datetime import date
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

from pyspark.sql import types as spark

from ticdc_source.developer_api import ColumnType, loads

_INTEGERS: tuple[type[spark.DataType], ...] = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType)
# Digits that a decimal needs for the values of an integer type: as many as the type to which Delta widens it.
_DIGITS: dict[type[spark.DataType], int] = {**dict.fromkeys(_INTEGERS, 10), spark.LongType: 20}
_MOST_DIGITS = 38


def common_type(first: spark.DataType, second: spark.DataType) -> spark.DataType | None:
    """Return the narrowest type that holds all values of both types; None if there is none but text."""
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
    return old != new and _holds(new, old)


def iceberg_can_widen(old: spark.DataType, new: spark.DataType) -> bool:
    """Whether Iceberg widens a type to another; it keeps the scale of a decimal."""
    if isinstance(old, spark.DecimalType) and isinstance(new, spark.DecimalType):
        return old.scale == new.scale and old.precision < new.precision
    return (type(old), type(new)) in {(spark.IntegerType, spark.LongType), (spark.FloatType, spark.DoubleType)}


# MySQL types

_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_BYTES = {"tiny": 2**8 - 1, "": 2**16 - 1, "medium": 2**24 - 1, "long": 2**32 - 1}  # of TEXT and BLOB
_EXACT = {"float": 2**24, "double": 2**53}  # integers up to it are exact in the type
_LAST_YEAR = 2155


def holds_all(wide: ColumnType, narrow: ColumnType) -> bool:
    """Whether every value of one MySQL type is a value of the other, and TiDB converts none of them."""
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
    """Return the smallest and the largest whole number of a type; None if it has no numbers."""
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
    """Whether a text or binary type holds another: a CHAR loses trailing spaces, and a BINARY is padded."""
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
    """Return the length of a type in its unit: characters for CHAR and VARCHAR, bytes for others; None if unknown."""
    kind = type_.name.removesuffix("text").removesuffix("blob")
    if kind != type_.name:
        return _BYTES.get(kind)
    return type_.length if type_.length is not None else (1 if type_.name in ("char", "binary") else None)


# Defaults → literals of Spark SQL

NULL = "NULL"
_SIMPLE_TEXT = re.compile(r"[\w .,:;+=@#/()\[\]-]*", re.ASCII)
_BITS_TEXT = re.compile(r"([bx])'([0-9A-Fa-f]*)'", re.IGNORECASE)
# Of other texts, such as a date with a two-digit year, the meaning depends on MySQL's settings and version.
_DATE = re.compile(
    r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?", re.ASCII
)
_DIGITS_OF_A_DATE = re.compile(r"(\d{4})()(\d\d)(\d\d)(?:(\d\d)(\d\d)(\d\d)()())?", re.ASCII)
_DURATION = re.compile(r"(-?)(?:(\d+) )?(\d{1,3}):(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?", re.ASCII)
_DIGITS_OF_A_YEAR = 4
_EXACTLY = Context(prec=100)


def text_literal(text: str) -> str:
    """Return a text as a literal that means the same under any setting of Spark's parser."""
    if _SIMPLE_TEXT.fullmatch(text):
        return f"'{text}'"
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def literal(value: str | None, type_: ColumnType, target: spark.DataType, time_zone: str = "UTC") -> str:
    """Return a default as an expression of Spark SQL that has the type of the target's column.

    `value` is MySQL's text without quotes, None for NULL; `time_zone` is that of a TIMESTAMP's text. A `ValueError` is
    raised if the text is not a value of these types.
    """
    name = target.simpleString()
    try:
        plain = None if value is None else _plain(value, type_)
        text = NULL if plain is None else _expression(plain, type_, target, time_zone)
    except (ValueError, InvalidOperation, UnicodeEncodeError):
        raise ValueError(f"{value!r} is not a value of {type_} that fits {name}") from None
    return f"CAST({text} AS {name})"


def _plain(value: str, type_: ColumnType) -> str | None:
    """Return the value that a text of this type stands for; None for a zero date, as `zeroDate` has it."""
    bits = _BITS_TEXT.fullmatch(value)
    if bits and type_.family not in ("text", "binary"):
        value = str(int(bits[2] or "0", 2 if bits[1].lower() == "b" else 16))
    if type_.labels is not None and type_.family == "enum":
        labels = {label.lower(): label for label in type_.labels}
        if value.lower() not in labels and value.isdecimal() and 0 < int(value) <= len(type_.labels):
            return type_.labels[int(value) - 1]
        return labels.get(value.lower(), value)
    if type_.family in ("date", "datetime", "timestamp"):
        date_match = _DATE.fullmatch(value) or _DIGITS_OF_A_DATE.fullmatch(value)
        return None if date_match and "00" in (date_match[3].zfill(2), date_match[4].zfill(2)) else value
    if type_.name == "year" and len(value) < _DIGITS_OF_A_YEAR:
        return _year(value)
    return value


def _year(value: str) -> str:
    """Return a year of one or two digits as MySQL reads it; 0 is refused, as the text means 2000, the number 0."""
    number = int(value)
    if not value.isdecimal() or number == 0 or number > 99:  # noqa: PLR2004
        raise ValueError(f"{value!r} is an ambiguous year")
    return str(number + (2000 if number < 70 else 1900))  # noqa: PLR2004


def _expression(value: str, type_: ColumnType, target: spark.DataType, time_zone: str) -> str:
    match target:
        case spark.BooleanType():
            return "true" if _number(value, type_) else "false"
        case spark.LongType() if type_.family == "time":
            return str(_microseconds(value, type_))
        case spark.IntegralType():
            return f"'{_number(value, type_).to_integral_value(ROUND_HALF_UP)}'"
        case spark.DecimalType():
            number = _number(value, type_).quantize(Decimal(1).scaleb(-target.scale), ROUND_HALF_UP, _EXACTLY)
            if len(number.as_tuple().digits) > target.precision:
                raise ValueError(value)
            return f"'{number:f}'"
        case spark.FractionalType():
            return f"'{float(value)!r}'"
        case spark.DateType():
            return f"'{_date(value)}'"
        case spark.TimestampNTZType():
            return f"'{_timestamp(value, type_)}'"
        case spark.TimestampType():
            return f"'{_timestamp(value, type_)} {time_zone}'"
        case spark.DayTimeIntervalType():
            return _interval(value, type_)
        case spark.BinaryType():
            return f"X'{_bytes(value, type_).hex()}'"
        case spark.ArrayType():
            return f"array({', '.join(repr(float(number)) + 'D' for number in loads(value))})"
        case spark.StringType() if type_.family == "time":
            return text_literal(_clock(value, type_))
        case spark.StringType():
            return text_literal(_text(value, type_))
        case spark.VariantType():
            return f"parse_json({text_literal(value)})"
        case _:
            raise ValueError(value)


def _number(value: str, type_: ColumnType) -> Decimal:
    labels = [label.lower() for label in type_.labels or ()]
    if labels and type_.family == "enum":
        return Decimal(labels.index(value.lower()) + 1)
    if labels and type_.family == "set":
        return Decimal(sum(1 << labels.index(label) for label in {*value.lower().split(",")} if label))
    return Decimal(value)


def _text(value: str, type_: ColumnType) -> str:
    bits = _BITS_TEXT.fullmatch(value)
    if bits and type_.family == "text":
        return _from_bits(bits).decode()
    if type_.labels is not None and type_.family == "set":  # in the order in which they are declared, each once
        chosen = {label for label in value.lower().split(",") if label}
        if not chosen <= {label.lower() for label in type_.labels}:
            raise ValueError(value)
        return ",".join(label for label in type_.labels if label.lower() in chosen)
    if type_.name == "decimal" and type_.length is not None:
        return f"{Decimal(value).quantize(Decimal(1).scaleb(-(type_.scale or 0)), ROUND_HALF_UP, _EXACTLY):f}"
    return value


def _bytes(value: str, type_: ColumnType) -> bytes:
    """Return bytes; those of a BINARY are padded to its length, as TiDB does."""
    bits = _BITS_TEXT.fullmatch(value)
    data = _from_bits(bits) if bits else value.encode()
    return data.ljust(type_.length or 0, b"\0") if type_.name == "binary" else data


def _from_bits(bits: re.Match[str]) -> bytes:
    if bits[1].lower() == "x":
        return bytes.fromhex(bits[2].rjust(-(-len(bits[2]) // 2) * 2, "0"))
    return int(bits[2] or "0", 2).to_bytes(-(-len(bits[2]) // 8), "big")


def _date(value: str) -> str:
    day, time_of_day = _moment(value)
    if time_of_day.strip("0:."):
        raise ValueError(value)
    return day


def _timestamp(value: str, type_: ColumnType) -> str:
    return " ".join(_moment(value, type_.length or 0))


def _moment(value: str, digits: int = 0) -> tuple[str, str]:
    """Return the date and the time of day of a text; `digits` is how many the fraction of a second may have."""
    match = _DATE.fullmatch(value) or _DIGITS_OF_A_DATE.fullmatch(value)
    if match is None:
        raise ValueError(value)
    day = date(int(match[1]), int(match[3]), int(match[4])).isoformat()
    hours, minutes, seconds = (match[number] or "0" for number in (5, 6, 7))
    return day, f"{hours:0>2}:{minutes:0>2}:{seconds:0>2}.{_fraction(match[8], digits)}"


def _fraction(text: str | None, digits: int) -> str:
    """Return six digits of a fraction; one with more digits than the type is refused: TiDB rounds or truncates it."""
    digits_there = (text or "").rstrip("0")
    if len(digits_there) > digits:
        raise ValueError(text)
    return digits_there.ljust(6, "0")


def _interval(value: str, type_: ColumnType) -> str:
    total = _microseconds(value, type_)
    seconds, fraction = divmod(abs(total), 1_000_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    clock = f"{hours // 24} {hours % 24:02}:{minutes:02}:{seconds:02}.{fraction:06}"
    return f"INTERVAL {'-' if total < 0 else ''}'{clock}' DAY TO SECOND"


def _clock(value: str, type_: ColumnType) -> str:
    total = _microseconds(value, type_)
    seconds, micros = divmod(abs(total), 1_000_000)
    digits = type_.length or 0
    fraction = f".{micros:06}"[: digits + 1] if digits else ""
    return f"{'-' if total < 0 else ''}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"


def _microseconds(value: str, type_: ColumnType) -> int:
    match = _DURATION.fullmatch(value)
    if match is None:
        raise ValueError(value)
    minutes = (int(match[2] or 0) * 24 + int(match[3])) * 60 + int(match[4])
    total = (minutes * 60 + int(match[5] or 0)) * 1_000_000 + int(_fraction(match[6], type_.length or 0))
    return -total if match[1] else total
