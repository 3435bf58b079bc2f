"""The lines that `ticdc-lakehouse sync` prints; without Spark."""

import argparse
from dataclasses import replace

import pytest

from ticdc_lakehouse.cli.sync import _show_batch, add_arguments
from ticdc_lakehouse.syncs.reports import BatchReport
from ticdc_lakehouse.syncs.status import SetAside, TableStatus
from ticdc_source.schema.tso import of_ms

AT = of_ms(1_790_000_000_000)


@pytest.mark.parametrize(("complete", "line"), [
    (3, "micro-batch 7: 2 rows in 1 table, complete up to 2026-09-21 14:13:20 UTC, 1.5 s"),
    (2, "micro-batch 7: 2 rows in 1 table, changes up to 2026-09-21 14:13:20 UTC (2 of 3 tables complete), 1.5 s"),
    (0, "micro-batch 7: 2 rows in 1 table, changes up to 2026-09-21 14:13:20 UTC (0 of 3 tables complete), 1.5 s"),
])  # fmt: skip
def test_a_line_claims_no_more_than_is_so(capsys: pytest.CaptureFixture[str], complete: int, line: str) -> None:
    """Tables are complete up to a time only if all of them have all rows, and none is set aside."""
    _show_batch(
        BatchReport(batch_id=7, changed={"shop.a": 2}, resolved_ts=AT, seconds=1.5, complete=complete, tables=3)
    )

    assert capsys.readouterr().out.splitlines() == [line]


def test_a_table_is_complete_only_if_nothing_is_missing() -> None:
    """It is not if its first rows are missing, if bad records of it are in quarantine, or while it is set aside."""
    whole = TableStatus(table_name="shop.a", target="t", complete_since=AT)

    assert whole.is_complete
    assert not TableStatus(table_name="shop.a", target="t").is_complete
    assert not TableStatus(table_name="shop.a", target="t", complete_since=AT, bad_records=1).is_complete
    assert not replace(whole, phase=SetAside(reason="why", since="now")).is_complete


def test_an_engine_is_named_in_any_case() -> None:
    """The command takes it as people write it."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)

    assert parser.parse_args(["--format", " Delta"]).format == "delta"
