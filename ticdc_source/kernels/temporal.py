"""Kernels of the temporal types: from MySQL's text, and from debezium's numbers."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.kernels.base import Cells, Kernel, Settings, Wire
from ticdc_source.kernels.numbers import integers_of_numbers, require, text_cells
from ticdc_source.schema.types import TIME, TIMESTAMP, TIMESTAMP_NTZ, ColumnType

__all__ = [
    "DATETIME_NUMBER",
    "DATETIME_TEXT",
    "DATE_NUMBER",
    "DATE_TEXT",
    "TIMESTAMP_TEXT",
    "TIMESTAMP_ZONED",
    "TIME_NUMBER",
    "TIME_TEXT",
]

_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:[ T]\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?Z?)?")
_TIME = re.compile(r"(-?)(\d{1,3}):([0-5]\d):([0-5]\d)(?:\.(\d{1,6}))?")
_FIRST_DAYS, _LAST_DAYS = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31, from the epoch
_FIRST_MICROS, _LAST_MICROS = _FIRST_DAYS * 86_400_000_000, (_LAST_DAYS + 1) * 86_400_000_000 - 1
_FIRST_DAY = {
    pa.date32(): pa.scalar(datetime.date(1, 1, 1), pa.date32()),
    TIMESTAMP_NTZ: pa.scalar(datetime.datetime(1, 1, 1), TIMESTAMP_NTZ),  # noqa: DTZ001 (DATETIME has no zone)
}


def _dates_of_text(arrow: pa.DataType, settings: Settings) -> Kernel:
    """Cast dates and datetimes; zero and invalid ones, which Arrow refuses, by `zeroDate`."""
    first_day = _FIRST_DAY[arrow]

    def cast(cells: Cells) -> pa.Array:
        text = text_cells(cells)
        try:
            array = text.cast(arrow)
        except pa.ArrowInvalid:
            return pa.array([_real_date(c, settings) for c in text.to_pylist()], pa.string()).cast(arrow)
        if _before(pc.min(array), first_day):
            return pa.array([_real_date(c, settings) for c in text.to_pylist()], pa.string()).cast(arrow)
        return array

    return cast


def _before(earliest: pa.Scalar, first_day: pa.Scalar) -> bool:
    """Tell whether a value lies in the year 0, which Arrow knows and Spark and Python do not."""
    return bool(pc.less(earliest, first_day).as_py())


def _real_date(cell: str | None, settings: Settings) -> str | None:
    if cell is None:
        return None
    match = _DATE.fullmatch(cell)
    if match is None:
        msg = "not a date"
        raise ValueError(msg)
    try:
        datetime.date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError:
        if settings.zero_date == "fail":
            msg = "a zero or invalid date; zeroDate=null reads it as NULL, a schemaHint of string keeps its text"
            raise ValueError(msg) from None
        return None
    return cell


def _timestamps_of_text(_type: ColumnType, settings: Settings) -> Kernel:
    """Cast wall-clock texts of the TiCDC server's zone to instants.

    Two instants an hour apart share one text where a zone turns its clocks back: the wire has lost which one it
    was (docs/wire.md, item 39), the earlier is taken.
    """
    wall_clock, zone = _dates_of_text(TIMESTAMP_NTZ, settings), settings.time_zone

    def cast(cells: Cells) -> pa.Array:
        local = wall_clock(cells)
        if zone == "UTC":
            return local.cast(TIMESTAMP)
        return pc.assume_timezone(local, zone, ambiguous="earliest").cast(TIMESTAMP)

    return cast


def _times_of_text(_type: ColumnType, _settings: Settings) -> Kernel:
    def cast(cells: Cells) -> pa.Array:
        texts = require(cells, str)
        known = {text: _microseconds(text) for text in set(texts) if text is not None}
        return pa.array([None if text is None else known[text] for text in texts], pa.int64()).cast(TIME)

    return cast


def _microseconds(text: str) -> int:
    match = _TIME.fullmatch(text)
    if match is None:
        msg = "not a time"
        raise ValueError(msg)
    sign, hours, minutes, seconds, fraction = match.groups()
    total = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + int((fraction or "").ljust(6, "0"))
    return -total if sign else total


def _as_text(_type: ColumnType, _settings: Settings) -> Kernel:
    return text_cells


def _within(numbers: pa.Array, first: int, last: int) -> pa.Array:
    """Refuse what lies outside the years 1 to 9999: not a date, or one in another unit than its type says."""
    low, high = pc.min(numbers).as_py(), pc.max(numbers).as_py()
    if low is not None and (low < first or high > last):
        msg = "outside the years 1 to 9999: has the precision of the DATETIME been changed, from ms to µs?"
        raise ValueError(msg)
    return numbers


def _days(_type: ColumnType, _settings: Settings) -> Kernel:
    as_integers = integers_of_numbers(pa.int32())

    def cast(cells: Cells) -> pa.Array:
        return _within(as_integers(cells), _FIRST_DAYS, _LAST_DAYS).cast(pa.date32())

    return cast


def _datetimes_of_numbers(type_: ColumnType, _settings: Settings) -> Kernel:
    """Cast debezium's Timestamp (ms, up to 3 digits of fraction) or MicroTimestamp (µs, 4 to 6)."""
    unit = 1 if (type_.length or 0) > 3 else 1000  # noqa: PLR2004

    as_integers = integers_of_numbers(pa.int64())

    def cast(cells: Cells) -> pa.Array:
        numbers = pc.multiply_checked(as_integers(cells), unit)
        return _within(numbers, _FIRST_MICROS, _LAST_MICROS).cast(TIMESTAMP_NTZ)

    return cast


def _zoned_timestamps(_type: ColumnType, settings: Settings) -> Kernel:
    """Cast debezium's ZonedTimestamp, `…Z` or with an offset."""

    def cast(cells: Cells) -> pa.Array:
        text = text_cells(cells)
        try:
            return text.cast(TIMESTAMP)
        except pa.ArrowInvalid:
            return pa.array([_real_date(c, settings) for c in text.to_pylist()], pa.string()).cast(TIMESTAMP)

    return cast


def _times_of_numbers(_type: ColumnType, _settings: Settings) -> Kernel:
    as_integers = integers_of_numbers(pa.int64())
    return lambda cells: as_integers(cells).cast(TIME)


def _text_by(
    natural: Callable[[ColumnType, Settings], Kernel], text: Callable[[Any, ColumnType], str]
) -> Callable[[ColumnType, Settings], Kernel]:
    """Make text kernels of natural ones, for wires that send numbers."""

    def make(type_: ColumnType, settings: Settings) -> Kernel:
        run = natural(type_, settings)
        return lambda cells: pa.array(
            [None if v is None else text(v, type_) for v in run(cells).to_pylist()], pa.string()
        )

    return make


def _fraction(microseconds: int, type_: ColumnType) -> str:
    if type_.length == 0 or (type_.length is None and microseconds == 0):
        return ""
    return f".{microseconds:06d}"[: 1 + (type_.length or 6)]


def _datetime_text(value: datetime.datetime, type_: ColumnType) -> str:
    return value.strftime("%Y-%m-%d %H:%M:%S").rjust(19, "0") + _fraction(value.microsecond, type_)


def _time_text(value: datetime.timedelta, type_: ColumnType) -> str:
    total = abs(value) // datetime.timedelta(microseconds=1)
    seconds, micros = divmod(total, 1_000_000)
    sign = "-" if value < datetime.timedelta(0) else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{_fraction(micros, type_)}"


DATE_TEXT = Wire(
    lambda _type, settings: _dates_of_text(pa.date32(), settings), _as_text, written="MySQL's text", arrays=pa.string()
)
DATETIME_TEXT = Wire(
    lambda _type, settings: _dates_of_text(TIMESTAMP_NTZ, settings),
    _as_text,
    written="MySQL's text, with its digits of fraction",
    arrays=pa.string(),
)
TIMESTAMP_TEXT = Wire(
    _timestamps_of_text, _as_text, written="MySQL's text, in the zone of the TiCDC server", arrays=pa.string()
)
TIME_TEXT = Wire(_times_of_text, _as_text, written="MySQL's text")
DATE_NUMBER = Wire(
    _days,
    _text_by(_days, lambda value, _: value.isoformat()),
    written="a number: days since 1970-01-01",
    arrays=pa.int64(),
)
DATETIME_NUMBER = Wire(
    _datetimes_of_numbers,
    _text_by(_datetimes_of_numbers, _datetime_text),
    written="a number: ms (up to 3 digits of fraction) or µs since 1970-01-01",
    arrays=pa.int64(),
)
TIMESTAMP_ZONED = Wire(
    _zoned_timestamps,
    _text_by(_zoned_timestamps, _datetime_text),
    written="text in UTC, with a `Z`",
    arrays=pa.string(),
)
TIME_NUMBER = Wire(
    _times_of_numbers, _text_by(_times_of_numbers, _time_text), written="a number: µs", arrays=pa.int64()
)
