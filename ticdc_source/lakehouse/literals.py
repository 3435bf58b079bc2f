"""Defaults, as MySQL writes them, → literals of Spark SQL for a column of a target."""

from __future__ import annotations

import json
import re
from datetime import date
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

from pyspark.sql import types as spark

from ticdc_source.schema.types import ColumnType

__all__ = ["NULL", "literal", "text_literal"]

NULL = "NULL"
_SIMPLE_TEXT = re.compile(r"[\w .,:;+=@#/()\[\]-]*", re.ASCII)
_BITS = re.compile(r"([bx])'([0-9A-Fa-f]*)'", re.IGNORECASE)
_DATE = re.compile(r"(\d{4})[-/.]?(\d{1,2})[-/.]?(\d{1,2})")
_TIME_OF_DAY = re.compile(r"[ T]?(\d{1,2}):?(\d{1,2}):?(\d{1,2})(?:\.(\d{0,6})\d*)?")
_DURATION = re.compile(r"(-?)(?:(\d+) )?(\d{1,3}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,6})\d*)?)?")
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
        target: the type of the target's column.
        time_zone: the zone of a TIMESTAMP's text.

    Raises:
        ValueError: the text is not a value of these types.
    """
    name = target.simpleString()
    value = None if value is None else _plain(value, type_)
    if value is None:
        return f"CAST(NULL AS {name})"
    try:
        return f"CAST({_expression(value, type_, target, time_zone)} AS {name})"
    except (ValueError, InvalidOperation, UnicodeEncodeError):
        msg = f"{value!r} is not a value of {type_} that fits {name}"
        raise ValueError(msg) from None


def _plain(value: str, type_: ColumnType) -> str | None:
    """Return the value that a text of this type stands for; None for a zero date, as `zeroDate` has it."""
    bits = _BITS.fullmatch(value)
    if bits and type_.family not in ("text", "binary"):
        value = str(int(bits[2] or "0", 2 if bits[1].lower() == "b" else 16))
    if type_.labels is not None and type_.family == "enum":
        known = {label.lower(): label for label in type_.labels}
        if value.lower() not in known and value.isdecimal() and 0 < int(value) <= len(type_.labels):
            return type_.labels[int(value) - 1]
        return known.get(value.lower(), value)
    if type_.family in ("date", "datetime", "timestamp"):
        found = _DATE.match(value)
        return None if found and "00" in (found[2].zfill(2), found[3].zfill(2)) else value
    return value


def _expression(value: str, type_: ColumnType, target: spark.DataType, time_zone: str) -> str:
    """Return the expression, before it is cast."""
    match target:
        case spark.BooleanType():
            return "true" if _number(value, type_) else "false"
        case spark.LongType() if type_.family == "time":
            return str(_microseconds(value))
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
            return f"'{_timestamp(value)}'"
        case spark.TimestampType():
            return f"'{_timestamp(value)} {time_zone}'"
        case spark.DayTimeIntervalType():
            return _interval(value)
        case spark.BinaryType():
            return f"X'{_bytes(value, type_).hex()}'"
        case spark.ArrayType():
            return f"array({', '.join(repr(float(number)) + 'D' for number in json.loads(value))})"
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
        return Decimal(sum(1 << labels.index(label) for label in value.lower().split(",") if label))
    return Decimal(value)


def _text(value: str, type_: ColumnType) -> str:
    bits = _BITS.fullmatch(value)
    if bits and type_.family == "text":
        return _from_bits(bits).decode()
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
    found = _DATE.match(value)
    if found is None:
        raise ValueError(value)
    return date(*map(int, found.groups())).isoformat()


def _timestamp(value: str) -> str:
    day = _date(value)
    rest = value[_DATE.match(value).end() :]  # type: ignore[union-attr]
    found = _TIME_OF_DAY.fullmatch(rest)
    if found is None:
        if rest:
            raise ValueError(value)
        return f"{day} 00:00:00"
    return f"{day} {found[1]:0>2}:{found[2]:0>2}:{found[3]:0>2}.{found[4] or '0'}"


def _interval(value: str) -> str:
    total = _microseconds(value)
    seconds, fraction = divmod(abs(total), 1_000_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    clock = f"{hours // 24} {hours % 24:02}:{minutes:02}:{seconds:02}.{fraction:06}"
    return f"INTERVAL {'-' if total < 0 else ''}'{clock}' DAY TO SECOND"


def _microseconds(value: str) -> int:
    """Return a TIME as targets store it."""
    found = _DURATION.fullmatch(value)
    if found is None:
        raise ValueError(value)
    minutes = (int(found[2] or 0) * 24 + int(found[3])) * 60 + int(found[4])
    total = (minutes * 60 + int(found[5] or 0)) * 1_000_000 + int((found[6] or "").ljust(6, "0"))
    return -total if found[1] else total
