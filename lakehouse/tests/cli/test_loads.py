"""What the command shows of loads: lines, or JSON for scripts."""

import json

import pytest

from ticdc_lakehouse.cli.sync import Loads, as_line
from ticdc_lakehouse.syncs.loading import LoadProgress
from ticdc_source.schema.table_name import TableName

ORDERS = TableName("shop", "orders")


@pytest.mark.parametrize(("progress", "line"), [
    ({"rows": 0, "of": 9000}, "shop.orders: loading, 0 of about 9,000 rows"),
    ({"rows": 3000, "of": 9000}, "shop.orders: loading, 3,000 of about 9,000 rows, 2 min 0 s left"),
    ({"rows": 8000, "of": 9000, "had": 7000}, "shop.orders: loading, 8,000 of about 9,000 rows, 1 min 0 s left"),
    ({"rows": 9000, "of": 9000, "complete": True}, "shop.orders: loaded, 9,000 rows in 1 min 0 s"),
    ({"rows": 0, "of": 0, "failed": True}, "shop.orders: the load failed"),
])  # fmt: skip
def test_a_line_says_how_far_a_load_is(progress: dict[str, int], line: str) -> None:
    """It has the rows, and the time left by the speed of this run."""
    assert as_line(LoadProgress(table=ORDERS, seconds=60.0, **progress)) == line  # type: ignore[arg-type]


def test_lines_are_few(capsys: pytest.CaptureFixture[str]) -> None:
    """A table gets a line when it begins and ends, and one in ten seconds between."""
    shown = Loads()
    for rows in range(0, 100, 10):
        shown.show(LoadProgress(table=ORDERS, rows=rows, of=100, seconds=rows / 10))
    shown.show(LoadProgress(table=ORDERS, rows=100, of=100, seconds=10.0, complete=True))

    assert capsys.readouterr().err.splitlines() == [
        "shop.orders: loading, 0 of about 100 rows", "shop.orders: loaded, 100 rows in 10.0 s",
    ]  # fmt: skip


def test_json_is_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    """With --json each line is an object on standard output."""
    Loads(json=True).show(LoadProgress(table=ORDERS, rows=1, of=2, seconds=0.5))

    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == {
        "table": "shop.orders", "rows": 1, "of": 2, "seconds": 0.5, "had": 0, "complete": False, "failed": False,
    }  # fmt: skip
