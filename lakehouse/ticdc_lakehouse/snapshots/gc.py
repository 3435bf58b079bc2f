"""TiDB's garbage collection: for how long a moment can still be read, and what to do if that is too short. No Spark."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from ticdc_source.developer_api import duration, of_ms, of_time, physical_ms, utc
from ticdc_source.errors import TiCDCSourceError

GC_SQL = (
    "(SELECT @@GLOBAL.tidb_gc_life_time AS life_time, @@GLOBAL.tidb_gc_enable AS enabled, "
    "UNIX_TIMESTAMP(NOW(3)) AS now) AS gc"
)
SAFE_POINT_SQL = (
    "(SELECT VARIABLE_VALUE AS safe_point FROM mysql.tidb WHERE VARIABLE_NAME = 'tikv_gc_safe_point') AS safe_point"
)
_RAISE = "SET GLOBAL tidb_gc_life_time = '24h'"
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


@dataclass(frozen=True, slots=True)
class GCState:
    """What TiDB's garbage collection keeps of the past.

    Attributes:
        at: the TSO of the snapshot.
        now: the TSO of TiDB's clock when it was asked.
        life_time: for how many seconds TiDB keeps a row version that was replaced (`tidb_gc_life_time`).
        safe_point: the TSO below which row versions may be gone; None if the user may not read `mysql.tidb`.
    """

    at: int
    now: int
    life_time: float
    safe_point: int | None
    enabled: bool = True

    @property
    def is_inside(self) -> bool:
        """Whether the snapshot can be read, as far as is known."""
        return self.safe_point is None or self.at >= self.safe_point

    @property
    def seconds_left(self) -> float:
        """For how long TiDB promises to keep the snapshot; below 0 if only luck, or another reader, keeps it."""
        if not self.enabled:
            return float("inf")
        return self.life_time - (physical_ms(self.now) - physical_ms(self.at)) / 1000

    def check(self) -> None:
        """Refuse a snapshot that cannot be read; the error has the command that raises the life time."""
        if not self.is_inside:
            msg = (
                f"TSO {self.at} ({utc(self.at)}) is older than TiDB's GC safe point, {utc(self.safe_point)}: row "
                f"versions of that moment may be gone. Let TiDB keep them for longer than the load takes: {_RAISE}; "
                "then load at a new TSO (ticdc_lakehouse.current_tso)"
            )
            raise TiCDCSourceError(msg)

    @property
    def advice(self) -> str:
        """How long the snapshot is kept, and the command that keeps it for longer."""
        left = self.seconds_left
        kept = (
            f"keeps TSO {self.at} for {duration(left)} more" if left >= 0 else f"need not keep TSO {self.at} any more"
        )
        return (
            f"TiDB {kept}, because tidb_gc_life_time is {duration(self.life_time)}. Let it keep the past for longer "
            f"than the load takes: {_RAISE}; set it back when the load has ended"
        )


def gc_state(at: int, life_time: str, enabled: str, now: str, safe_point: str | None) -> GCState:
    """Return what TiDB's answers to `GC_SQL` and `SAFE_POINT_SQL` say."""
    moment = of_ms(int(float(now) * 1000))
    safe = None if safe_point is None else _tso_of(safe_point)
    return GCState(at, moment, _seconds_of(life_time), safe, enabled.upper() in ("1", "ON", "TRUE"))


def _seconds_of(text: str) -> float:
    """Return the seconds of a duration as Go writes it: `10m0s`."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(h|ms|us|µs|ns|m|s)", text)
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _tso_of(text: str) -> int:
    """Return the TSO of a safe point: `20260101-00:00:00.000 +0000`, without milliseconds in older releases."""
    fraction = ".%f" if "." in text else ""
    moment = datetime.strptime(text.strip(), f"%Y%m%d-%H:%M:%S{fraction} %z")
    return of_time(moment)
