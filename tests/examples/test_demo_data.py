"""The demo's data is what SQL says, checked without ticdc_source; the demo's comparison finds what differs."""

import json
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from examples.data import PROTOCOLS, Message, TableTruth, read_messages, read_truth
from examples.data.make_data import SCENARIOS, _message, _read
from examples.demo.added_columns import added_columns
from examples.demo.compare import WHOLE_ROW, Difference, compare


@pytest.fixture(scope="module")
def streams() -> dict[str, list[Message]]:
    return {protocol: read_messages(protocol) for protocol in PROTOCOLS}


@pytest.fixture(scope="module")
def truths() -> dict[str, TableTruth]:
    return read_truth()


def test_the_truth_is_what_the_messages_come_to(
    streams: dict[str, list[Message]], truths: dict[str, TableTruth]
) -> None:
    newest: dict[tuple[str, str], tuple[int, bool, dict[str, str | None]]] = {}
    for message in streams["canal-json"]:
        value = json.loads(message.value or b"")
        if value["type"] in {"INSERT", "UPDATE", "DELETE"}:
            (row,), (key,) = value["data"], value["pkNames"]
            identity = f"{value['database']}.{value['table']}", row[key]
            state = value["_tidb"]["commitTs"], value["type"] != "DELETE", row
            newest[identity] = max(newest.get(identity, state), state, key=lambda one: one[:2])
    added = {
        (column.table, column.name): column.default for column in added_columns("canal-json", streams["canal-json"])
    }
    for name, truth in truths.items():
        rebuilt = {key: row for (table, key), (_, there, row) in newest.items() if table == name and there}
        expected = [
            {column: as_canal_writes(cell) for column, cell in zip(truth.columns, row, strict=True)}
            for row in truth.rows
        ]
        defaults = {column: default for (table, column), default in added.items() if table == name}
        assert {row[truth.key[0]]: row for row in expected} == {key: defaults | row for key, row in rebuilt.items()}
        assert len(expected) == len(rebuilt)


def as_canal_writes(cell: Any) -> str | None:
    if isinstance(cell, dict):
        return bytes.fromhex(cell["hex"]).decode("latin-1") if "hex" in cell else str(cell["number"])
    assert cell is None or isinstance(cell, str)
    return cell


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_added_columns_are_found_in_the_messages(protocol: str, streams: dict[str, list[Message]]) -> None:
    found = [column[:3] for column in added_columns(protocol, streams[protocol])]
    assert found == [("shop.orders", "channel", "web"), ("shop.order_items", "warehouse_id", None)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_messages_are_the_corpus_own(protocol: str, streams: dict[str, list[Message]], corpus: Path) -> None:
    records = _read(corpus / f"{SCENARIOS[protocol]}.jsonl.gz")[1 : len(streams[protocol]) + 1]
    assert [_message(record) for record in records] == streams[protocol]


TRUTH = TableTruth(
    table="shop.things",
    key=["id"],
    columns={
        "id": "bigint(20) unsigned",
        "price": "decimal(10,2)",
        "ratio": "float",
        "weight": "double",
        "made": "timestamp(3)",
        "day": "date",
        "took": "time(1)",
        "yr": "year(4)",
        "size": "enum('s','l')",
        "hash": "binary(2)",
        "note": "text",
    },
    changes={"insert": 2, "update": 0, "delete": 0},
    repeated=0,
    rows=[
        ["1", "5.00", "0.1", "1e20", "2026-01-02 03:04:05.600", "2026-01-02", "-30:00:01.5", "2026",
         {"label": "l", "number": 2}, {"hex": "00ff"}, "a"],
        ["2", None, None, None, None, None, None, None, None, None, None],
    ],
)  # fmt: skip
ROW: dict[str, Any] = {
    "_change_type": "insert",
    "id": Decimal(1),
    "price": Decimal("5.00"),
    "ratio": 0.1,
    "weight": 1e20,
    "made": datetime(2026, 1, 2, 5, 4, 5, 600_000, tzinfo=timezone(timedelta(hours=2))),
    "day": date(2026, 1, 2),
    "took": -timedelta(hours=30, seconds=1.5),
    "yr": 2026,
    "size": "l",
    "hash": b"\x00\xff",
    "note": "a",
}
EMPTY: dict[str, Any] = dict.fromkeys(ROW) | {"id": Decimal(2)}
SCHEMA = pa.schema([
    ("_change_type", pa.string()), ("id", pa.decimal128(20, 0)), ("price", pa.decimal128(38, 2)),
    ("ratio", pa.float32()), ("weight", pa.float64()),
    ("made", pa.timestamp("us", "UTC")), ("day", pa.date32()), ("took", pa.duration("us")),
    ("yr", pa.int32()), ("size", pa.string()), ("hash", pa.binary()), ("note", pa.string()),
])  # fmt: skip


def found(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), SCHEMA)


@pytest.mark.parametrize(
    ("column", "value", "expected", "text"),
    [
        ("price", Decimal("5.01"), "5.00", "5.01"),
        ("ratio", 0.25, "0.10000000149011612", "0.25"),
        ("weight", 1.0000000000000002e20, "1e+20", "1.0000000000000002e+20"),
        ("made", datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc), "2026-01-02 03:04:05.600",
         "2026-01-02 03:04:05.000"),
        ("made", datetime(2026, 1, 2, 3, 4, 5, 600_001, tzinfo=timezone.utc), "2026-01-02 03:04:05.600",
         "2026-01-02 03:04:05.600001"),
        ("day", date(2026, 1, 1), "2026-01-02", "2026-01-01"),
        ("took", timedelta(hours=30, seconds=1.5), "-30:00:01.5", "30:00:01.5"),
        ("yr", 1926, "2026", "1926"),
        ("size", "s", "l", "s"),
        ("hash", b"\x00", "00ff", "00"),
        ("note", "", "a", ""),
        ("note", None, "a", None),
    ],
)  # fmt: skip
def test_one_different_cell_is_found(column: str, value: Any, expected: str, text: str | None) -> None:
    comparison = compare(TRUTH, found(ROW | {column: value}, EMPTY))
    assert comparison.differences == [Difference(("1",), column, expected, text)]
    assert (comparison.rows, comparison.equal) == (2, 1)


@pytest.mark.parametrize(
    ("rows", "difference"),
    [
        ([ROW], Difference(("2",), WHOLE_ROW, "there", "missing")),
        ([ROW, EMPTY, EMPTY], Difference(("2",), WHOLE_ROW, "there", "there twice")),
        ([ROW, EMPTY, EMPTY | {"id": Decimal(3)}], Difference(("3",), WHOLE_ROW, "missing", "there")),
    ],
)
def test_a_row_too_few_or_too_many_is_found(rows: list[dict[str, Any]], difference: Difference) -> None:
    comparison = compare(TRUTH, found(*rows))
    assert comparison.differences == [difference]
    assert comparison.equal == comparison.rows - 1
