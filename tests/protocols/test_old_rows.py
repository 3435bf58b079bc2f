"""An old row may lack columns of the new one, or have columns that the new one lacks: no value of either is lost."""

import json
from typing import Any

import pytest

from tests.support.captured import Captured, single, whole
from tests.support.messages import Message, canal, cell, debezium, open_message, open_row, simple, simple_definition

DEFINITION = simple_definition(
    "CREATE", {"id": {"mysqlType": "int"}, "a": {"mysqlType": "varchar"}, "b": {"mysqlType": "varchar"}}
)
TYPES = {"id": "int", "a": "varchar", "b": "varchar"}


def _open(row: dict[str, Any]) -> dict[str, Any]:
    return {name: cell(3 if name == "id" else 15, value) for name, value in row.items()}


def _text(row: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in row.items()}


def update(protocol: str, before: dict[str, Any], after: dict[str, Any]) -> Message:
    match protocol:
        case "canal-json":
            return canal("UPDATE", [_text(after)], [_text(before)], TYPES)
        case "debezium":
            return debezium("u", before, after)
        case "open-protocol":
            return open_message(open_row({"u": _open(after), "p": _open(before)}))
        case _:
            return simple("UPDATE", _text(after), _text(before))


ROWS = {
    "the changed column only": ({"a": "x"}, {"id": 1, "a": "y", "b": "z"}, {"id": 1, "a": "x", "b": "z"}),
    "nothing": ({}, {"id": 1, "a": "y", "b": "z"}, {"id": 1, "a": "y", "b": "z"}),
    "a column that is gone": ({"id": 1, "a": "x", "b": "z"}, {"id": 1, "a": "y"}, {"id": 1, "a": "x", "b": "z"}),
    "both": ({"a": "x", "b": "z"}, {"id": 1, "a": "y"}, {"id": 1, "a": "x", "b": "z"}),
}


@pytest.mark.filterwarnings("ignore:The messages of")
@pytest.mark.parametrize("protocol", ["canal-json", "debezium", "open-protocol", "simple"])
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("native", ["auto", "off"])
def test_the_old_row_has_the_values_of_both(
    protocol: str, rows: tuple[dict[str, Any], dict[str, Any], dict[str, Any]], native: str
) -> None:
    """A pre-image has each value of the old row, and of other columns the value of the new row."""
    before, after, old = rows
    full = {"id": 0, "a": "p", "b": "q"}
    others = [update(protocol, full, full)] * 3  # the native path learns what messages look like
    definition = [DEFINITION] if protocol == "simple" else []
    captured = Captured.of(*definition, *others, update(protocol, before, after), *others)

    for sizes in (whole, single):
        read = captured.read(sizes=sizes, nativeCode=native).to_pylist()
        images = [{name: row[name] for name in full} for row in read if row["id"] == 1]
        assert images == [old, {"id": 1, "a": None, "b": None, **after}]
    events = captured.read(outputFormat="event", nativeCode=native).to_pylist()
    (event,) = [row for row in events if row["after"] and json.loads(row["after"])["id"] == 1]
    assert json.loads(event["before"]) == old
    assert json.loads(event["after"]) == after


@pytest.mark.filterwarnings("ignore:The messages of")
def test_old_rows_of_one_message_may_have_other_columns() -> None:
    """Each old row of official Canal's messages of several rows has its own columns."""
    after = [{"id": "1", "a": "x"}, {"id": "2", "a": "x"}]

    captured = Captured.of(canal("UPDATE", after, [{"b": "u"}, {"a": "v"}], TYPES))

    rows = [(row["id"], row["a"], row["b"]) for row in captured.read().to_pylist()]
    assert rows == [(1, "x", "u"), (1, "x", None), (2, "v", None), (2, "x", None)]
