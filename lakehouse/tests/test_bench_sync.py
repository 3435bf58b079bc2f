"""The benchmark of sync: its messages are those of a database, and it compares what it measures."""

import json
from collections import Counter
from typing import Any

import pytest

from benchmarks.corpus.database import SHOP, Database, line_items, narrow
from lakehouse.benchmarks.bench_sync import SIDES, SIZES, STEADY, check_rows, figures_of, judge
from ticdc_source.schema.mysql_ddl.statements import steps


def replayed(messages: list[bytes]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the rows of tables after messages, by key; each must fit the rows before it."""
    tables: dict[str, dict[str, dict[str, Any]]] = {}
    last = 0
    for message in map(json.loads, messages):
        commit_ts = message["_tidb"].get("commitTs") or message["_tidb"]["watermarkTs"]
        assert commit_ts > last
        last = commit_ts
        if message["type"] == "CREATE":
            tables[message["table"]] = {}
            assert steps(message["sql"], "shop")
        elif not message["isDdl"] and message["data"]:
            rows, row = tables[message["table"]], message["data"][0]
            assert (row["id"] in rows) is (message["type"] != "INSERT")
            assert message["old"] is None or message["old"][0] == rows[row["id"]]
            rows.pop(row["id"], None)
            if message["type"] != "DELETE":
                rows[row["id"]] = row
    return tables


def test_the_messages_are_those_of_a_database() -> None:
    """A row is inserted before it changes, its old image is what it was, and the number of rows is known."""
    database = Database(SHOP)
    messages = list(database.creates())
    for table in SHOP:
        messages += [message for _, message in database.inserts(table.name, 30)]
    for table in SHOP:
        messages += [message for _, message in database.changes(table.name, 100)]
    messages += [message for _, message in database.updates("orders")] + [database.watermark()]

    rows = replayed(messages)

    assert {name: len(each) for name, each in rows.items()} == database.rows()
    types = Counter(json.loads(message)["type"] for message in messages)
    assert {"CREATE": 3, "TIDB_WATERMARK": 1}.items() <= types.items()
    assert min(types[name] for name in ("INSERT", "UPDATE", "DELETE")) > 10
    assert len(narrow(500)) == len({table.name for table in narrow(500)})
    assert line_items().columns[0].name == "id"


def sample(side: str, step: int, seconds: float) -> dict[str, Any]:
    """Return a measured step."""
    return {"side": side, "step": step, "s": seconds, "cpu_s": 2 * seconds, "wall_s": seconds + 1}


def test_ratios_are_those_of_steps_that_took_place_together() -> None:
    """A step of one side is compared with the same step of another, and the first step counts on its own."""
    times = {"ticdc": [8.0, 1.0, 3.0, 2.0], "tuned": [4.0, 2.0, 3.0, 8.0], "default": [9.0, 4.0, 6.0, 8.0]}
    samples = [sample(side, step, seconds) for side in SIDES for step, seconds in enumerate(times[side])]

    figures = figures_of(samples)

    assert set(figures) == {"first", "later"}
    assert figures["first"]["ticdc / tuned"] == {"s": 2.0, "cpu_s": 2.0}
    assert figures["later"]["ticdc"] == {"s": 2.0, "cpu_s": 4.0, "wall_s": 3.0, "n": 3}
    assert figures["later"]["ticdc / tuned"]["s"] == 0.5
    assert figures["later"]["ticdc / default"]["s"] == 0.25
    targets = list(judge("delta", {"delta, 3 tables": figures}))
    assert [target.rpartition(": ")[2] for target in targets] == ["met", "met", "met"]


def test_a_long_run_is_judged_by_its_ends() -> None:
    """The last micro-batches of a long run are compared with the first ones, without the step that creates tables."""
    slower = figures_of([sample("ticdc", step, 90.0 if step == 0 else 1.0 + step / 30) for step in range(31)])

    assert (slower["begin"]["ticdc"]["n"], slower["end"]["ticdc"]["n"]) == (10, 10)
    (target,) = judge("iceberg", {f"iceberg, {STEADY}": slower})
    assert target.endswith("1.57, at most 1.30: missed")


def test_other_rows_of_a_side_are_an_error() -> None:
    """The rows of all sides are compared, and their numbers with those that the messages make."""
    rows = [("t", "1"), ("t", "2")]
    check_rows([("ticdc", rows), ("tuned", list(rows))], {"t": 2})
    with pytest.raises(AssertionError, match="ticdc has 2 rows of t, not 3"):
        check_rows([("ticdc", rows)], {"t": 3})
    with pytest.raises(AssertionError, match="tuned has 2 rows"):
        check_rows([("ticdc", rows), ("tuned", [("t", "1"), ("t", "3")])], {"t": 2})


def test_the_whole_size_has_the_scales_of_a_database() -> None:
    """It has 500 tables, a million rows and 100 micro-batches, and every size has sides to compare."""
    cases = {case.name: case for case in SIZES["whole"].cases}

    assert max(len(case.made()) for case in cases.values()) == 500
    assert max(case.rows for case in cases.values()) == 1_000_000
    assert cases[STEADY].steps == 100
    assert all(len(size.cases[0].sides) > 1 for size in SIZES.values())
