"""What a sync tells Prometheus and people of its tables, without Spark."""

import socket
import urllib.request
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.syncs.following import RunningSync
from ticdc_lakehouse.syncs.lease import Lease
from ticdc_lakehouse.syncs.reports import EXPORTED, TableMetrics
from ticdc_lakehouse.syncs.status import SetAside, TableStatus
from ticdc_source.errors import OptionError
from ticdc_source.inspection.progress import ProgressCollector, served
from ticdc_source.schema.tso import of_ms

NOW = 1_767_225_600.0
AT = of_ms(int((NOW - 90) * 1000))
FOLLOWED = TableStatus(table_name="shop.orders", target="t", kind="table", resolved_ts=AT, complete_since=AT, images=7)
WAITING = TableStatus(table_name="shop.new", target="t2")


def test_each_table_is_served_to_prometheus() -> None:
    """Lag, rows and whether it is set aside are served over HTTP; a lag that nobody knows is left out."""
    pytest.importorskip("prometheus_client")
    aside = replace(WAITING, phase=SetAside(reason="why", since="now"))
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    with served(port) as registry:
        registry.register(
            ProgressCollector(lambda: [TableMetrics.of("q", one, NOW) for one in (FOLLOWED, aside)], EXPORTED)
        )
        with pytest.raises(OptionError, match=f"port {port}"), served(port):
            pass
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()

    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines == [
        'ticdc_sync_rows_total{query="q",table="shop.orders"} 7.0',
        'ticdc_sync_rows_total{query="q",table="shop.new"} 0.0',
        'ticdc_sync_lag_seconds{query="q",table="shop.orders"} 90.0',
        'ticdc_sync_set_aside{query="q",table="shop.orders"} 0.0',
        'ticdc_sync_set_aside{query="q",table="shop.new"} 1.0',
    ]


def test_a_status_has_times_beside_commit_ts() -> None:
    """JSON has each commit-ts as a time too, the lag, and the reason with what ends it."""
    shown = FOLLOWED.as_json(NOW)
    aside = replace(WAITING, phase=SetAside(reason="why", since="now", ends_by="retry"))

    assert (shown["resolved_time"], shown["lag_seconds"]) == ("2025-12-31T23:58:30.000+00:00", 90.0)
    assert shown["complete_since_time"] == shown["resolved_time"]
    assert WAITING.as_json(NOW)["lag_seconds"] is None
    assert aside.as_json(NOW)["reason"] == "why. The sync resumes the table by itself"


def test_no_status_is_written_once_the_lease_is_lost() -> None:
    """If the lease could not be renewed during a long merge and another sync has it, its statuses stay."""
    sync = RunningSync.__new__(RunningSync)

    def lost() -> None:
        raise TargetError("being written by another sync")

    sync._lease = cast(Lease, SimpleNamespace(check=lost))
    with pytest.raises(TargetError, match="another sync"):
        sync._commit_status()
