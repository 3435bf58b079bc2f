"""Prometheus metrics: of each query and table, at the moment of asking."""

from typing import Any

import pytest

from tests.inspection.test_progress import NOW, Query, line, ts
from ticdc_source.inspection.progress import EXPORTED, ProgressCollector, StreamProgress

prometheus_client = pytest.importorskip(
    "prometheus_client", reason="prometheus-client is not installed: pip install prometheus-client"
)


class Time:
    """The time of the test, and a query with two records left."""

    def __init__(self) -> None:
        self.now = NOW
        self.query = Query()
        one = line(0, 0, 5, max_commit_ts=ts(NOW - 60), watermark=ts(NOW - 2), decode_errors=1)
        self.query.ran([5], [7], one, took=1, now=NOW)

    def reports(self) -> list[StreamProgress]:
        return self.query.tracker.reports(self.now)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def registry(time: Time) -> Any:
    registry = prometheus_client.CollectorRegistry()
    registry.register(ProgressCollector(time.reports, EXPORTED))
    return registry


def values(registry: Any) -> dict[str, float]:
    return {sample.name: sample.value for family in registry.collect() for sample in family.samples}


def test_each_metric_is_exported(registry: Any, time: Time) -> None:
    assert values(registry) == {
        "ticdc_rows_total": 5,
        "ticdc_offset_lag_records": 2,
        "ticdc_commit_lag_seconds": 2,
        "ticdc_watermark_lag_seconds": 2,
        "ticdc_decode_errors_total": 1,
        "ticdc_dropped_total": 0,
        "ticdc_destructive_ddl_total": 0,
        "ticdc_query_up": 1,
    }
    assert registry.get_sample_value("ticdc_rows_total", {"query": "q", "table": "shop.orders"}) == 5
    assert 'ticdc_commit_lag_seconds{query="q",table="shop.orders"} 2.0' in (
        prometheus_client.generate_latest(registry).decode()
    )
    for ranges in (1, 4):
        time.query.read_snapshot(ranges, NOW + 10 * ranges)
    assert set(values(registry)) == {exported.name for exported in EXPORTED}


def test_lags_rise_without_an_event(time: Time, registry: Any) -> None:
    """Each time Prometheus asks, the lags are those of that moment: a stalled stream is seen."""
    before = values(registry)
    time.now += 600
    after = values(registry)

    risen = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    assert risen == {"ticdc_commit_lag_seconds": 600, "ticdc_watermark_lag_seconds": 600}


def test_a_query_that_has_failed_is_not_up(time: Time, registry: Any) -> None:
    """After a failure `ticdc_query_up` is 0 and there are no lags; its totals stay."""
    time.query.tracker.state = "failed"

    left = values(registry)
    assert left["ticdc_query_up"] == 0
    assert left["ticdc_rows_total"] == 5
    assert not [name for name in left if "seconds" in name]
