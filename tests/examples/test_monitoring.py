"""The recipes of the page on monitoring: rules of Prometheus, and a picture of a stream's lag."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.inspection.test_progress import NOW, Query, line, ts
from tests.support.pages import blocks
from tests.support.paths import ROOT
from ticdc_source.inspection.progress import EXPORTED

RULES = ROOT / "examples" / "prometheus-rules.yml"


def test_the_rules_are_about_metrics_that_there_are() -> None:
    """The rules are YAML; each asks for metrics and labels that the listener gives, and each metric name is one."""
    yaml: Any = pytest.importorskip("yaml", reason="PyYAML is not installed: pip install PyYAML")
    ((group,),) = yaml.safe_load(RULES.read_text(encoding="utf-8")).values()
    exported = {each.name for each in EXPORTED}

    asked = {name for rule in group["rules"] for name in re.findall(r"\bticdc_\w+", rule["expr"])}
    labels = set(re.findall(r"\$labels\.(\w+)", RULES.read_text(encoding="utf-8")))

    assert asked <= exported
    assert {"ticdc_commit_lag_seconds", "ticdc_watermark_lag_seconds", "ticdc_query_up"} <= asked
    assert labels == {"query", "table", "instance"}
    assert all(rule["annotations"]["summary"] for rule in group["rules"])


def test_the_callback_of_the_page_tells_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The callback tells once that a table is late, once that it is not any more, and that a query has failed."""
    page = blocks(ROOT / "docs/guides/monitoring.md")
    names: dict[str, Any] = {}
    exec(next(block.text for block in page if "def tell" in block.text), names)  # noqa: S102 (the page is ours)
    query = Query()

    for batch, age in enumerate((5, 700, 900, 10)):
        one = line(batch, batch, batch + 1, max_commit_ts=ts(NOW + 1000 * batch - age), watermark=ts(NOW))
        query.ran([batch + 1], [9], one, took=1, now=NOW + 1000 * batch)
        query.tracker.is_busy = True
        names["tell"](replace(query.at(NOW + 1000 * batch), watermark_lag=None))
    query.tracker.state = "failed"
    names["tell"](query.at(NOW))

    assert capsys.readouterr().out.splitlines() == [
        "q: shop.orders is late",
        "q: shop.orders is up to date again",
        "q has failed",
    ]


def lines() -> list[dict[str, Any]]:
    """Return the lines of two micro-batches of a stream, one of them repeated, and of a batch read."""
    first = [
        line(0, 0, 5, lag=3, max_commit_ts=ts(NOW - 60), watermark=ts(NOW - 50)),
        line(0, 0, 2, partition=1, lag=1, max_commit_ts=ts(NOW - 70)),
    ]
    second = [line(1, 2, 3, partition=1, lag=0, watermark=ts(NOW - 40)), line(1, 5, 8, lag=0, watermark=ts(NOW - 90))]
    timed = [{**each, "time": NOW} for each in first] + [{**each, "time": NOW + 10} for each in second]
    return [*timed, timed[0], {**timed[0], "query": None, "batch": None}]


@pytest.mark.slow("draws pictures")
def test_the_script_draws(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install matplotlib")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines()))
    command = [sys.executable, "-m", "examples.plot_lag", "--metrics", str(tmp_path), "--output", f"{tmp_path}/lag.png"]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path}/lag.png: 2 micro-batches, the newest change was up to 60 s old\n"
    assert (tmp_path / "lag.png").read_bytes().startswith(b"\x89PNG")
