"""Defaults, as MySQL writes them, → literals of Spark SQL for a column of a target.

What is written otherwise than SHOW CREATE TABLE does, such as a date of eight digits, is a `ValueError`: only TiDB
knows then what older rows have.
"""

from __future__ import annotations

import re
from datetime import datetime
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

from pyspark.sql import types as spark

from ticdc_source.developer_api import ColumnType, loads

_SIMPLE_TEXT = re.compile(r"[\w .,:;+=@#/()\[\]-]*", re.ASCII)
_BITS = re.compile(r"([bx])'([0-9A-Fa-f]*)'", re.IGNORECASE)
_MOMENT = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?: (\d\d:\d\d:\d\d)(?:\.(\d*))?)?", re.ASCII)
_DURATION = re.compile(r"(-?)(\d{1,3}):(\d\d):(\d\d)(?:\.(\d*))?", re.ASCII)
_DIGITS_OF_A_YEAR = 4
_DIGITS = Context(prec=100)


def text_literal(text: str) -> str:
    """Return a text as a literal that means the same under any setting of Spark's parser."""
    if _SIMPLE_TEXT.fullmatch(text):
        return f"'{text}'"
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def literal(value: str | None, type_: ColumnType, target: spark.DataType, time_zone: str = "UTC") -> str:
    """Return a default as an expression of Spark SQL that has the type of the target's column.

    Args:
        value: the default, as MySQL writes it without quotes; None for NULL.
        type_: the column's MySQL type.
        time_zone: the zone of a TIMESTAMP's text.

    Raises:
        ValueError: the text is not a value of these types.
    """
    name = target.simpleString()
    try:
        text = "NULL" if value is None else _expression(value, type_, target, time_zone)
    except (ValueError, InvalidOperation, UnicodeEncodeError):
        msg = f"{value!r} is not a value of {type_} that fits {name}"
        raise ValueError(msg) from None
    return f"CAST({text} AS {name})"


def _expression(value: str, type_: ColumnType, target: spark.DataType, time_zone: str) -> str:
    bits = _BITS.fullmatch(value)
    if bits and type_.family not in ("text", "binary"):
        value = str(int(bits[2] or "0", 2 if bits[1].lower() == "b" else 16))
    elif bits or (type_.name == "year" and len(value) != _DIGITS_OF_A_YEAR):
        raise ValueError(value)
    match target:
        case spark.BooleanType():
            return "true" if _number(value, type_) else "false"
        case spark.LongType() if type_.family == "time":
            return str(_microseconds(value, type_))
        case spark.IntegralType():
            return f"'{_number(value, type_).to_integral_value(ROUND_HALF_UP)}'"
        case spark.DecimalType():
            number = _rounded(_number(value, type_), target.scale)
            if len(number.as_tuple().digits) > target.precision:
                raise ValueError(value)
            return f"'{number:f}'"
        case spark.FractionalType():
            return f"'{float(value)!r}'"
        case spark.DateType() | spark.TimestampNTZType():
            return _moment(value, type_)
        case spark.TimestampType():
            return _moment(value, type_, time_zone)
        case spark.DayTimeIntervalType():
            return f"make_dt_interval(0, 0, 0, CAST({_microseconds(value, type_)} / 1000000 AS DECIMAL(18, 6)))"
        case spark.BinaryType():  # TiDB pads a BINARY
            return f"X'{value.encode().ljust((type_.name == 'binary') * (type_.length or 0), bytes(1)).hex()}'"
        case spark.ArrayType():
            return f"array({', '.join(repr(float(number)) + 'D' for number in loads(value))})"
        case spark.StringType():
            return text_literal(_text(value, type_))
        case spark.VariantType():
            return f"parse_json({text_literal(value)})"
        case _:
            raise ValueError(value)


def _labels(value: str, type_: ColumnType) -> list[int]:
    """Return which labels of an ENUM or SET a default names, from 0, in the order in which they are declared."""
    known = [label.lower() for label in type_.labels or ()]
    names = value.lower().split(",") if type_.family == "set" else [value.lower()]
    return sorted({known.index(name) for name in names if name or type_.family == "enum"})


def _number(value: str, type_: ColumnType) -> Decimal:
    """Return a number; the index of an ENUM's label, the bits of a SET's."""
    if type_.labels:
        labels = _labels(value, type_)
        return Decimal(labels[0] + 1 if type_.family == "enum" else sum(1 << number for number in labels))
    return Decimal(value)


def _rounded(number: Decimal, scale: int) -> Decimal:
    return number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _DIGITS)


def _text(value: str, type_: ColumnType) -> str:
    if type_.labels:
        return ",".join(type_.labels[number] for number in _labels(value, type_))
    if type_.name == "decimal" and type_.length is not None:
        return f"{_rounded(Decimal(value), type_.scale or 0):f}"
    if type_.family == "time":
        seconds, micros = divmod(abs(_microseconds(value, type_)), 1_000_000)
        digits = type_.length or 0
        fraction = f".{micros:06}"[: digits + 1] if digits else ""
        sign = "-" if value.startswith("-") else ""
        return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"
    return value


def _moment(value: str, type_: ColumnType, time_zone: str = "") -> str:
    """Return a date, or a date and time; NULL for a zero date, as `zeroDate` has it."""
    match = _MOMENT.fullmatch(value)
    if match is None or (type_.name == "date" and match[4] not in (None, "00:00:00")):
        raise ValueError(value)
    year, month, day, time_of_day, fraction = match.groups()
    if "00" in (month, day):
        return "NULL"
    moment = datetime.fromisoformat(f"{year}-{month}-{day} {time_of_day or '00:00:00'}")
    return f"'{f'{moment}.{_fraction(fraction, type_.length or 0)} {time_zone}'.strip()}'"


def _fraction(text: str | None, digits: int) -> str:
    """Return six digits of a fraction. TiDB rounds one that is longer than the type's, or cuts it off."""
    digits_there = (text or "").rstrip("0")
    if len(digits_there) > digits:
        raise ValueError(text)
    return digits_there.ljust(6, "0")


def _microseconds(value: str, type_: ColumnType) -> int:
    """Return a TIME as targets store it as a number."""
    match = _DURATION.fullmatch(value)
    if match is None:
        raise ValueError(value)
    seconds = int(match[2]) * 3600 + int(match[3]) * 60 + int(match[4])
    total = seconds * 1_000_000 + int(_fraction(match[5], type_.length or 0))
    return -total if match[1] else total
