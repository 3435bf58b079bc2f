"""TiDB's timestamps (TSO): a commit-ts, a watermark, a resolved ts.

A TSO is an integer: milliseconds since 1970 above (physical), and a counter in its lowest 18 bits (logical), as
TiKV's client composes it (`oracle.ComposeTS`). `utc` and `duration` write times and lags for people.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pyarrow.compute as pc

_LOGICAL_BITS = 18


def of_ms(milliseconds: int) -> int:
    return milliseconds << _LOGICAL_BITS


def of_time(moment: datetime) -> int:
    return of_ms((moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1))


def physical_ms(ts: int) -> int:
    return ts >> _LOGICAL_BITS


def physical_ms_each(column: pa.Int64Array | pa.ChunkedArray) -> pa.Int64Array | pa.ChunkedArray:
    return pc.shift_right(column, pa.scalar(_LOGICAL_BITS, pa.int64()))


def seconds(ts: int) -> float:
    return physical_ms(ts) / 1000


def age(ts: int | None, now: float) -> float | None:
    """Return a TSO's age in seconds at `now` (seconds since 1970), with milliseconds, never negative."""
    return None if ts is None else round(max(0.0, now - seconds(ts)), 3)


def utc(ts: int | None) -> str | None:
    """Return a TSO's time in ISO 8601 with milliseconds, UTC; None for None."""
    return None if ts is None else datetime.fromtimestamp(seconds(ts), timezone.utc).isoformat(timespec="milliseconds")


def duration(seconds: float) -> str:
    """Format seconds in their two largest units."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days:,} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
