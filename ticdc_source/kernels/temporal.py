"""Kernels of dates and times, from MySQL's text; and MySQL's text of their values."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.kernels.contract import Cast, DateCast, DatetimeCast, PlainCast
from ticdc_source.kernels.numbers import as_text, require, text_cells, text_wire
from ticdc_source.kernels.wire import Cells, Kernel, Maker, Settings, Wire
from ticdc_source.schema.types import TIME, TIMESTAMP, TIMESTAMP_NTZ, ColumnType

_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:[ T]\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?(?:Z|[+-]\d{2}:\d{2})?)?")
_TIME = re.compile(r"(-?)(\d{1,3}):([0-5]\d):([0-5]\d)(?:\.(\d{1,6}))?")
_FIRST_DAY = {
    pa.date32(): pa.scalar(datetime.date(1, 1, 1), pa.date32()),
    TIMESTAMP_NTZ: pa.scalar(datetime.datetime(1, 1, 1), TIMESTAMP_NTZ),  # noqa: DTZ001 (DATETIME has no zone)
    TIMESTAMP: pa.scalar(datetime.datetime(1, 1, 1, tzinfo=datetime.timezone.utc), TIMESTAMP),
}


def dates_of_text(arrow: pa.DataType, settings: Settings) -> Kernel:
    """Read dates and datetimes; zero and invalid ones are handled as `zeroDate` says."""
    first_day = _FIRST_DAY[arrow]

    def is_date(cell: str) -> bool:
        try:
            return bool(pc.greater_equal(pa.scalar(cell).cast(arrow), first_day).as_py())
        except pa.ArrowInvalid:
            return False

    def cast(cells: Cells) -> pa.Array:
        text = text_cells(cells)
        try:
            array = text.cast(arrow)
        except pa.ArrowInvalid:
            array = None
        # Arrow has a year 0, Spark and Python do not.
        if array is None or pc.less(pc.min(array), first_day).as_py():
            real = [_real_date(cell, settings, is_date) for cell in text.to_pylist()]
            return pa.array(real, pa.string()).cast(arrow)
        return array

    return cast


def _real_date(cell: str | None, settings: Settings, is_date: Callable[[str], bool]) -> str | None:
    if cell is None:
        return None
    match = _DATE.fullmatch(cell)
    if match is None:
        if is_date(cell):  # in another form that Arrow reads
            return cell
        raise ValueError("not a date")
    try:
        datetime.date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError:
        if settings.zero_date == "fail":
            raise ValueError(
                "a zero or invalid date: set zeroDate=null to read NULL, or a schemaHint of string to keep its text"
            ) from None
        return None
    return cell


def _timestamps_of_text(_type: ColumnType, settings: Settings) -> Kernel:
    """Read wall-clock texts of the TiCDC server's zone as instants.

    If clocks are turned back, a text stands for two instants: the kernel takes the earlier (docs/wire.md, item 39).
    """
    wall_clock, zone = dates_of_text(TIMESTAMP_NTZ, settings), settings.time_zone

    def cast(cells: Cells) -> pa.Array:
        local = wall_clock(cells)
        if zone == "UTC":
            return local.cast(TIMESTAMP)
        return pc.assume_timezone(local, zone, ambiguous="earliest").cast(TIMESTAMP)

    return cast


def _times_of_text(_type: ColumnType, _settings: Settings) -> Kernel:
    def cast(cells: Cells) -> pa.Array:
        texts = require(cells, str)
        values = {text: _microseconds(text) for text in set(texts) if text is not None}
        return pa.array([None if text is None else values[text] for text in texts], pa.int64()).cast(TIME)

    return cast


def _microseconds(text: str) -> int:
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("not a time")
    sign, hours, minutes, seconds, fraction = match.groups()
    total = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + int((fraction or "").ljust(6, "0"))
    return -total if sign else total


Value = TypeVar("Value")


def text_of(natural: Maker, text: Callable[[Value, ColumnType], str]) -> Maker:
    """Derive text kernels from natural ones, for types not sent as MySQL's text."""

    def make(type_: ColumnType, settings: Settings) -> Kernel:
        run = natural(type_, settings)
        return lambda cells: pa.array(
            [None if value is None else text(value, type_) for value in run(cells).to_pylist()], pa.string()
        )

    return make


def date_text(value: datetime.date, _type: ColumnType) -> str:
    """Return MySQL's text of a DATE."""
    return value.isoformat()


def _fraction(microseconds: int, type_: ColumnType) -> str:
    if type_.length == 0 or (type_.length is None and microseconds == 0):
        return ""
    return f".{microseconds:06d}"[: 1 + (type_.length or 6)]


def datetime_text(value: datetime.datetime, type_: ColumnType) -> str:
    """Return MySQL's text of a DATETIME or TIMESTAMP, with the type's digits of fraction if they are known."""
    return value.strftime("%Y-%m-%d %H:%M:%S").rjust(19, "0") + _fraction(value.microsecond, type_)


def time_text(value: datetime.timedelta, type_: ColumnType) -> str:
    """Return MySQL's text of a TIME, with the type's digits of fraction if they are known."""
    total = abs(value) // datetime.timedelta(microseconds=1)
    seconds, micros = divmod(total, 1_000_000)
    sign = "-" if value < datetime.timedelta(0) else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{_fraction(micros, type_)}"


def _dates_cast(_type: ColumnType, settings: Settings) -> Cast:
    return DateCast(zero_is_null=settings.zero_date == "null")


def _datetimes_cast(_type: ColumnType, settings: Settings) -> Cast:
    return DatetimeCast(zero_is_null=settings.zero_date == "null")


def _timestamps_cast(type_: ColumnType, settings: Settings) -> Cast | None:
    return _datetimes_cast(type_, settings) if settings.time_zone == "UTC" else None


DATE_TEXT = text_wire(lambda _type, settings: dates_of_text(pa.date32(), settings), _dates_cast)
DATETIME_TEXT = text_wire(lambda _type, settings: dates_of_text(TIMESTAMP_NTZ, settings), _datetimes_cast)
TIMESTAMP_TEXT = text_wire(_timestamps_of_text, _timestamps_cast)
TIMESTAMP_UTC_TEXT = text_wire(  # whatever `timeZone` says
    lambda type_, settings: _timestamps_of_text(type_, settings._replace(time_zone="UTC")), _datetimes_cast
)
TIME_TEXT = Wire(_times_of_text, as_text, cast=lambda _type, _settings: PlainCast.TIME, text_cast=PlainCast.TEXT)
