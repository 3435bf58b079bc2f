"""What `ticdc-source sync` prints of micro-batches and tables; without Spark."""

import argparse
import json

import pytest

from ticdc_source.cli import sync as command
from ticdc_source.lakehouse import session, status
from ticdc_source.lakehouse.reports import BatchReport
from ticdc_source.lakehouse.status import TableStatus
from ticdc_source.tso import of_ms

AT = of_ms(1_790_000_107_000)
MOMENT = "2026-09-21 14:15:07 UTC"
TABLES = [
    TableStatus(table_name="shop.orders", target="t", kind="table", resolved_ts=AT, complete_since=AT, images=2273),
    TableStatus(table_name="shop.events", target="l", kind="log"),
    TableStatus(table_name="shop.items", target="i", kind="table").set_aside(4, "x" * 200),
    TableStatus(table_name="shop.notes", target="n", kind="table").set_aside(2, "it was full").resumed(),
]


def test_a_micro_batch_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """However many tables and columns of a terminal there are, it is one line; and one for each that is set aside."""
    changed = {f"shop.a_table_with_a_long_name_{number}": 2 for number in range(500)}
    report = BatchReport(
        batch_id=7, changed=changed, created=tuple(changed)[:3], bad_records=1, resolved_ts=AT, seconds=2
    )
    command._show_batch(report)
    command._show_batch(BatchReport(batch_id=8, changed={}, set_aside={"shop.x": "why " * 60}))

    assert capsys.readouterr().out.splitlines() == [
        f"micro-batch 7: 1,000 rows in 500 tables (3 new), complete up to {MOMENT}, 1 bad record in quarantine, 2.0 s",
        "micro-batch 8: 0 rows in 0 tables, 0.0 s",
        f"  shop.x is set aside: {'why ' * 60}",
    ]


@pytest.fixture
def statuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables of a sync, which no Spark reads."""
    monkeypatch.setattr(session, "session_of", lambda _: None)
    monkeypatch.setattr(status, "statuses_of", lambda *_: TABLES)


@pytest.mark.usefixtures("statuses")
def test_the_status_is_a_table_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Both have the lag, times, rows, since when a table is set aside, and its last error."""
    code = command._show_status(None, argparse.Namespace(json=False))  # type: ignore[arg-type]
    text = capsys.readouterr().out
    command._show_status(None, argparse.Namespace(json=True))  # type: ignore[arg-type]
    orders, events, items, notes = json.loads(capsys.readouterr().out)

    assert code == 1
    head, *lines = text.splitlines()
    assert head.split("  ")[0] == "table"
    assert "2026-09-21 14:15:07 UTC" in lines[0]
    assert lines[0].endswith("2,273")
    since = items["set_aside_since"][:19].replace("T", " ")
    assert f"shop.items, set aside since {since} UTC, in micro-batch 4: {'x' * 200}" in lines
    assert "shop.notes, last error: it was full" in lines
    assert orders["resolved_time"].startswith("2026-09-21T14:15:07")
    assert (orders["images"], events["lag_seconds"]) == (2273, None)
    assert (items["state"], notes["state"], notes["reason"]) == ("set aside", "following", "it was full")
