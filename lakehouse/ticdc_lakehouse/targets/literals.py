"""Defaults, as MySQL writes them, → literals of Spark SQL for a column of a target."""

from __future__ import annotations

import re
from datetime import date
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

from pyspark.sql import types as spark

from ticdc_source.developer_api import ColumnType, loads

NULL = "NULL"
_SIMPLE_TEXT = re.compile(r"[\w .,:;+=@#/()\[\]-]*", re.ASCII)
_BITS = re.compile(r"([bx])'([0-9A-Fa-f]*)'", re.IGNORECASE)
# Other texts of a date, such as one with two digits of the year, mean what MySQL's settings and version say.
_DATE = re.compile(
    r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?", re.ASCII
)
_DIGITS_OF_A_DATE = re.compile(r"(\d{4})()(\d\d)(\d\d)(?:(\d\d)(\d\d)(\d\d)()())?", re.ASCII)
_DURATION = re.compile(r"(-?)(?:(\d+) )?(\d{1,3}):(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?", re.ASCII)
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
        plain = None if value is None else _plain(value, type_)
        text = NULL if plain is None else _expression(plain, type_, target, time_zone)
    except (ValueError, InvalidOperation, UnicodeEncodeError):
        msg = f"{value!r} is not a value of {type_} that fits {name}"
        raise ValueError(msg) from None
    return f"CAST({text} AS {name})"


def _plain(value: str, type_: ColumnType) -> str | None:
    """Return the value that a text of this type stands for; None for a zero date, as `zeroDate` has it."""
    bits = _BITS.fullmatch(value)
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
    """Return a year of one or two digits as MySQL reads it; of 0, the number is the year 0 and the text 2000."""
    number = int(value)
    if not value.isdecimal() or number == 0 or number > 99:  # noqa: PLR2004
        msg = f"{value!r} is not a year with one meaning"
        raise ValueError(msg)
    return str(number + (2000 if number < 70 else 1900))  # noqa: PLR2004


def _expression(value: str, type_: ColumnType, target: spark.DataType, time_zone: str) -> str:
    """Return the expression, before it is cast."""
    match target:
        case spark.BooleanType():
            return "true" if _number(value, type_) else "false"
        case spark.LongType() if type_.family == "time":
            return str(_microseconds(value, type_))
        case spark.IntegralType():
            return f"'{_number(value, type_).to_integral_value(ROUND_HALF_UP)}'"
        case spark.DecimalType():
            number = _number(value, type_).quantize(Decimal(1).scaleb(-target.scale), ROUND_HALF_UP, _DIGITS)
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
    """Return a number; the index of an ENUM's label, the bits of a SET's."""
    labels = [label.lower() for label in type_.labels or ()]
    if labels and type_.family == "enum":
        return Decimal(labels.index(value.lower()) + 1)
    if labels and type_.family == "set":
        return Decimal(sum(1 << labels.index(label) for label in {*value.lower().split(",")} if label))
    return Decimal(value)


def _text(value: str, type_: ColumnType) -> str:
    bits = _BITS.fullmatch(value)
    if bits and type_.family == "text":
        return _from_bits(bits).decode()
    if type_.labels is not None and type_.family == "set":  # in the order in which they are declared, each once
        chosen = {label for label in value.lower().split(",") if label}
        if not chosen <= {label.lower() for label in type_.labels}:
            raise ValueError(value)
        return ",".join(label for label in type_.labels if label.lower() in chosen)
    if type_.name == "decimal" and type_.length is not None:
        return f"{Decimal(value).quantize(Decimal(1).scaleb(-(type_.scale or 0)), ROUND_HALF_UP, _DIGITS):f}"
    return value


def _bytes(value: str, type_: ColumnType) -> bytes:
    """Return bytes; those of a BINARY are padded to its length, as TiDB does."""
    bits = _BITS.fullmatch(value)
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
    """Return six digits of a fraction. TiDB rounds one that is longer than the type's, or cuts it off."""
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
    """Return a TIME as targets store it as text."""
    total = _microseconds(value, type_)
    seconds, micros = divmod(abs(total), 1_000_000)
    digits = type_.length or 0
    fraction = f".{micros:06}"[: digits + 1] if digits else ""
    return f"{'-' if total < 0 else ''}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"


def _microseconds(value: str, type_: ColumnType) -> int:
    """Return a TIME as targets store it as a number."""
    match = _DURATION.fullmatch(value)
    if match is None:
        raise ValueError(value)
    minutes = (int(match[2] or 0) * 24 + int(match[3])) * 60 + int(match[4])
    total = (minutes * 60 + int(match[5] or 0)) * 1_000_000 + int(_fraction(match[6], type_.length or 0))
    return -total if match[1] else total
