"""For how long TiDB keeps a moment, by what it answers; tests/tidb/ asks a real one."""

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
    """A TSO below the safe point is an error with both times, and with the command that raises the life time."""
    gone = state(safe_point="20260101-08:00:00.000 +0800")

    assert not gone.is_inside
    with pytest.raises(TiCDCSourceError, match="SET GLOBAL tidb_gc_life_time = '24h'") as caught:
        gone.check()
    assert "(2025-12-31T23:59:00.000+00:00) is older than TiDB's GC safe point, 2026-01-01T00:00:00" in str(
        caught.value
    )
    state(safe_point="20251231-23:59:00 +0000").check()


def test_a_life_time_that_is_too_short_is_refused_with_the_command() -> None:
    """Who reads for longer than TiDB keeps the moment is told so; the safe point alone says what can be read now."""
    with pytest.raises(TiCDCSourceError, match=r"9 min 0 s more, because .* 10 min 0 s\. .* tidb_gc_life_time = '24h'"):
        state().check(3600)
    with pytest.raises(TiCDCSourceError, match="need not keep TSO"):
        state("30s").check(1)
    state("30s").check()
    state("24h").check(3600)


def test_without_garbage_collection_a_moment_stays() -> None:
    """With tidb_gc_enable off, nothing is removed, however short the life time is."""
    state(enabled="0").check(10**9)
    state(enabled="OFF").check(10**9)
