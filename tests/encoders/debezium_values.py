"""Writes values as TiCDC's debezium does, including what it loses (pingcap/ticdc pkg/sink/codec/debezium/codec.go)."""

import base64
import re
import zoneinfo
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from tests.encoders.tables import BLOBS, INTEGERS, TEXTS, Column, local, text_of

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
_INVALID = re.compile(r"\d{4}-(00|\d\d-00)")
_MILLISECONDS = 3
_CENTURY = 70  # years of two digits below it belong to 2000


def value_of(column: Column, value: Any, time_zone: str = "UTC") -> Any:
    """Write one value; a NULL of a column with a default is written as the default (codec.go:605-612)."""
    if value is None:
        written = None if column.default is None else default_of(column)
        return _utc(written[:-1], time_zone) if column.type_name == "timestamp" and written else written
    if column.type_name == "timestamp" and not value.startswith("0000"):
        return _utc(local(value, time_zone).replace(" ", "T"), time_zone)
    return _written(column, value)


def _utc(text: str, time_zone: str) -> str:
    """Convert a wall clock to UTC; an hour that occurs twice is the second one, as in Go."""
    if time_zone == "UTC":
        return f"{text}Z"
    head, dot, fraction = text.partition(".")
    moment = datetime.fromisoformat(head).replace(tzinfo=zoneinfo.ZoneInfo(time_zone), fold=1).astimezone(timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}{dot}{fraction}Z"


def go_number(text: str) -> float | int:
    """Return a double as Go's JSON writes it: shortest digits, and no exponent below 1e21."""
    number = float(Decimal(text))
    return int(Decimal(repr(number))) if number.is_integer() and abs(number) < 1e21 else number


def default_of(column: Column, *, in_schema: bool = False) -> Any:
    """Return a column's default, as its schema has it or as it is written for NULL (the two differ)."""
    default, type_name = column.default or "", column.type_name
    if type_name in (*TEXTS, *BLOBS, "json"):
        return None
    if default.upper().startswith("CURRENT_TIMESTAMP"):
        return 0 if type_name == "datetime" else None
    if type_name == "bigint" and column.unsigned and int(default) >= 1 << 63:
        return go_number(default) if in_schema else 0
    if type_name == "time" and not in_schema:
        return 0
    if type_name == "bit":
        number = int(default[2:-1], 2)
        return _written(column, {"number": number})
    if type_name in ("enum", "set"):
        return default
    if column.binary:
        return default if in_schema else _base64(default.encode())
    return _written(column, default)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _written(column: Column, value: Any) -> Any:
    type_name = column.type_name
    if type_name in INTEGERS:
        number = int(value)
        return number - (1 << 64) if number >= 1 << 63 else number
    if type_name == "year":
        return int(value)
    if type_name in ("float", "double", "decimal"):
        return go_number(value)
    if type_name == "bit":
        return _bits(column, value["number"])
    if type_name in ("enum", "set"):
        return value["label"]
    if column.binary:
        return _base64(bytes.fromhex(value["hex"]))
    if type_name == "date":
        moment = _moment(value)
        return (0 if not column.nullable else None) if moment is None else (moment - _EPOCH).days
    if type_name == "datetime":
        moment = _moment(value)
        if moment is None:
            return None if column.nullable else 0
        micros = (moment - _EPOCH) // _MICROSECOND
        return micros // 1000 if (*column.arguments, 0)[0] <= _MILLISECONDS else micros
    if type_name == "timestamp":
        return "1970-01-01T00:00:00Z" if value.startswith("0000") else value.replace(" ", "T") + "Z"
    return microseconds(value) if type_name == "time" else text_of(value)


def _bits(column: Column, number: int) -> Any:
    length = column.arguments[0]
    return number == 1 if length == 1 else _base64(number.to_bytes((length + 7) // 8, "little"))


def _moment(text: str) -> datetime | None:
    """Parse a date or datetime as the encoder does: years of two digits are 1970 to 2069, invalid ones None."""
    if _INVALID.match(text):
        return None
    year = int(text[:4])
    if year < 100:
        year += 2000 if year < _CENTURY else 1900
    head, _, fraction = text[4:].partition(".")
    moment = datetime.fromisoformat(f"{year:04d}{head}").replace(tzinfo=timezone.utc)
    return moment + timedelta(microseconds=int(fraction.ljust(6, "0")))


def microseconds(text: str) -> int:
    head, _, fraction = text.lstrip("-").partition(".")
    hours, minutes, seconds = map(int, head.split(":"))
    total = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + int(fraction.ljust(6, "0") or 0)
    return -total if text.startswith("-") else total
