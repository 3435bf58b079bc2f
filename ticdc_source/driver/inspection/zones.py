"""TIMESTAMP columns that look shifted: is their text in another time zone than the one they are read in?

The messages do not name the zone (docs/wire.md, item 21). But a column that holds the time of the change, such as
`updated_at`, lies just before the commit time in the right zone, and whole quarters of an hour beside it in another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

__all__ = ["Shift", "shift_of"]

_QUARTER_S = 900
_NEAR_S = 120.0  # a row is written so long before it is committed, at most; clocks may differ as well
_LEAST = 3  # rows, with as many commit times
_LEAST_PART = 0.5  # of the rows
# UTC offsets of time zones, in quarters of an hour. Others are times that are planned: an expiry in 15 minutes.
_OFFSETS = frozenset((*range(-48, 57, 4), -38, -14, -10, 14, 18, 22, 23, 26, 35, 38, 42, 51, 55))

# Time zones to name, those of the most people first. Others have the same offset.
_ZONES = (
    "Asia/Shanghai", "Asia/Kolkata", "Asia/Tokyo", "Asia/Jakarta", "Asia/Dubai", "Europe/London", "Europe/Berlin",
    "Europe/Moscow", "America/New_York", "America/Chicago", "America/Denver", "America/Los_Angeles",
    "America/Sao_Paulo", "Australia/Sydney",
)  # fmt: skip


class Shift(NamedTuple):
    """By how much a column is shifted.

    Attributes:
        offset: the offset of the time zone to try, such as `+08:00`.
        zones: names of time zones that have this offset at the time of the rows.
        rows: the number of rows that show it.
        seconds: the shift against the time zone of the read; 0 if that is right.
    """

    offset: str
    zones: tuple[str, ...]
    rows: int
    seconds: int


def shift_of(values: pa.Array, commit_ms: pa.Array, time_zone: str) -> Shift | None:
    """Return by how much the values of a column are beside the commit times; None if most are not, or not clearly.

    Args:
        values: the column, a timestamp with time zone, read in `time_zone`.
        commit_ms: the commit time of each value, in milliseconds since the epoch.
        time_zone: a name, or an offset such as `+08:00`.
    """
    pairs = [
        (value / 1e6, commit / 1e3)
        for value, commit in zip(values.cast(pa.int64()).to_pylist(), commit_ms.to_pylist(), strict=True)
        if value is not None and commit is not None
    ]
    quarters: Counter[int] = Counter()
    commits: dict[int, set[float]] = {}
    for value, commit in pairs:
        quarter = round((value - commit) / _QUARTER_S)
        if abs(value - commit - quarter * _QUARTER_S) <= _NEAR_S:
            quarters[quarter] += 1
            commits.setdefault(quarter, set()).add(commit)
    if not quarters:
        return None
    quarter, rows = quarters.most_common(1)[0]
    if rows < _LEAST_PART * len(pairs) or len(commits[quarter]) < _LEAST:
        return None
    moment = datetime.fromtimestamp(max(commits[quarter]), timezone.utc)
    offset = _offset_of(time_zone, moment) + timedelta(seconds=quarter * _QUARTER_S)
    if quarter and offset / timedelta(seconds=_QUARTER_S) not in _OFFSETS:
        return None
    return Shift(_text(offset), tuple(_names(offset, moment)), rows, quarter * _QUARTER_S)


def _offset_of(time_zone: str, moment: datetime) -> timedelta:
    if time_zone[:1] in "+-":
        sign = -1 if time_zone[0] == "-" else 1
        hours, _, minutes = time_zone[1:].partition(":")
        return sign * timedelta(hours=int(hours), minutes=int(minutes or 0))
    if time_zone == "UTC":
        return timedelta()
    return moment.astimezone(ZoneInfo(time_zone)).utcoffset() or timedelta()


def _names(offset: timedelta, moment: datetime) -> Iterator[str]:
    if not offset:
        yield "UTC"
    for name in _ZONES:
        try:
            zone = ZoneInfo(name)
        except ZoneInfoNotFoundError:  # slim images lack time-zone data
            return
        if moment.astimezone(zone).utcoffset() == offset:
            yield name


def _text(offset: timedelta) -> str:
    minutes = round(offset / timedelta(minutes=1))
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
