"""For how long TiDB keeps a moment, by what it answers; tests/tidb/ asks a real one."""

import re

import pytest

from ticdc_lakehouse.snapshots.gc import GCState, gc_state
from ticdc_source.errors import TiCDCSourceError
from ticdc_source.schema.tso import of_ms

NOW = 1_767_225_600  # 2026-01-01
AT = of_ms((NOW - 60) * 1000)


def state(life_time: str = "10m0s", safe_point: str | None = None, enabled: str = "1") -> GCState:
    """Return what TiDB keeps a minute after the TSO."""
    return gc_state(AT, life_time, enabled, f"{NOW}.000", safe_point)


@pytest.mark.parametrize(
    ("text", "seconds"), [("10m0s", 600), ("24h0m0s", 86400), ("1h30m", 5400), ("90s", 90), ("1m0.5s", 60.5)]
)
def test_the_life_time_is_a_duration_of_go(text: str, seconds: float) -> None:
    """The seconds left are the life time, less the age of the TSO."""
    assert state(text).life_time == seconds
    assert state(text).seconds_left == seconds - 60


def test_a_moment_that_is_gone_is_refused_with_the_command() -> None:
    """A TSO below the safe point is an error with both times. Who may not read the safe point takes it as kept."""
    gone = state(safe_point="20260101-08:00:00.000 +0800")
    why = (
        r"\(2025-12-31T23:59:00.000\+00:00\) is older than TiDB's GC safe point, 2026-01-01T00:00:00.*"
        "SET GLOBAL tidb_gc_life_time = '24h'"
    )

    assert not gone.is_inside
    with pytest.raises(TiCDCSourceError, match=why):
        gone.check()
    state(safe_point="20251231-23:59:00 +0000").check()
    state("30s").check()


def test_the_advice_has_the_command() -> None:
    """It says for how long TiDB keeps the moment, and why."""
    kept = r"keeps TSO \d+ for 9 min 0 s more, because .* is 10 min 0 s\. .* SET GLOBAL tidb_gc_life_time = '24h'"
    assert re.search(kept, state().advice)
    assert "need not keep TSO" in state("30s").advice


@pytest.mark.parametrize("enabled", ["0", "OFF"])
def test_without_garbage_collection_a_moment_stays(enabled: str) -> None:
    """With tidb_gc_enable off, nothing is removed, however short the life time is."""
    assert state(enabled=enabled).seconds_left == float("inf")
