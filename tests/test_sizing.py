"""The costs on the page about sizing are those of the benchmarks, and its formula tells what three runs cost."""

import json
import re
from typing import Any

import pytest

from tests.support.paths import ROOT
from ticdc_source.options.offsets import OffsetRange, pack

PAGE = (ROOT / "docs/guides/sizing.md").read_text(encoding="utf-8")
NEAR = 0.35  # of a measured figure: machines and days differ by that


def cost(what: str) -> float:
    """Return a cost in CPU seconds from the table of the page."""
    (line,) = re.findall(rf"(?m)^\| {re.escape(what)} \| ([\d.]+) \|", PAGE)
    return float(line)


def results(name: str) -> Any:
    """Return the results of a benchmark."""
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("records", [10_000, 100_000, 1_000_000])
def test_the_formula_tells_the_cost_of_a_read(records: int) -> None:
    """Three reads on one machine, each ten times as long as the one before."""
    samples = results("scale")["samples"][f"{records:,} records"]
    measured = sum(each["cpu_seconds"] for each in samples) / len(samples)

    told = cost("a query, or a micro-batch") + cost("a million rows of 10 columns, read") * records / 1e6

    assert told == pytest.approx(measured, rel=NEAR)


@pytest.mark.parametrize(("engine", "merged", "a_table"), [("delta", 50, 1.4), ("iceberg", 43, 0.9)])
def test_the_formula_tells_the_cost_of_a_sync(engine: str, merged: float, a_table: float) -> None:
    """A micro-batch of a million updates of one table, and one of few changes of 50 tables."""
    table = {line[0]: line for line in results("sync")["table"]}
    large = float(table[f"{engine}, one large table (1 of 1): 1,000,000 updates"][6].split(" / ")[0])
    many = float(table[f"{engine}, many tables (50 of 50): 20 changes each"][6].split(" / ")[0])

    assert f"({merged} * r + (0.4 + {a_table} * t) / s) / 0.7" in PAGE
    assert merged + 0.4 + a_table == pytest.approx(large, rel=NEAR)
    assert 0.4 + 50 * a_table == pytest.approx(many, rel=NEAR)


def test_the_examples_follow_the_formula() -> None:
    """Cores are rounded up."""
    changes, cores = r"\| [\d.]+ [MG]B/s \(([\d.,]+)( million)? changes/s\)", r"(\d+) cores?"
    lines = re.findall(rf"{changes} \| ([\d,]+) \| (\d+) s \| {cores} \| {cores} \|", PAGE)

    assert len(lines) == 4
    for number, million, tables, seconds, read, delta in lines:
        r = float(number.replace(",", "")) * (1 if million else 1e-6)
        t, s = float(tables.replace(",", "")), float(seconds)
        assert int(read) == -(-(4 * 1.3 * r + 0.4 / s) // 0.7)
        assert int(delta) == -(-(50 * r + (0.4 + 1.4 * t) / s) // 0.7)


def test_the_comparison_of_triggers_follows_the_formula() -> None:
    """The page has 11,000 changes per second in 100 tables, with two triggers."""
    lines = re.findall(r'\| `"(\d+) minutes?"` \| (\d+) cores \| (\d+) cores \|', PAGE)

    assert "(11,000 changes per second) with changes in 100 tables" in PAGE
    assert [int(minutes) for minutes, _, _ in lines] == [1, 5]
    for minutes, delta, iceberg in lines:
        s = 60 * int(minutes)
        assert int(delta) == -(-(50 * 0.011 + (0.4 + 1.4 * 100) / s) // 0.7)
        assert int(iceberg) == -(-(43 * 0.011 + (0.4 + 0.9 * 100) / s) // 0.7)


def test_ranges_that_share_a_task_are_those_of_the_code() -> None:
    """The number of records that are worth a task."""
    ranges = [OffsetRange("a", partition, 0, 2_500) for partition in range(2)]
    one_more = [*ranges[:1], ranges[1]._replace(end=2_501)]

    assert "up to 5,000 records together" in PAGE
    assert [len(pack(each)) for each in (ranges, one_more)] == [1, 2]
