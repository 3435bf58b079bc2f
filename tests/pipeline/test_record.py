"""`outputFormat=record` returns the records of a topic as they are, and tells which tables and events they have."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.support.captured import TOPIC, Captured, Sizes, events_of, load, make_options, random_sizes, whole
from tests.support.messages import TSO, canal, cell, debezium, open_message, open_row
from ticdc_source.errors import DecodeError, OptionError
from ticdc_source.pipeline.read import read
from ticdc_source.schema.table_name import TableName
from ticdc_source.sources.chunk import Chunk

SCENARIOS = [
    "open-protocol.default.ops",
    "open-protocol.lz4.ops",
    "open-protocol.handle-key-only.large",
    "canal-json.tidb-extension.ops",
    "canal-json.lz4.ops",
    "canal-json.content-compatible.ops",
    "canal-json.claim-check.large",
    "canal-json.plain.ops",
    "debezium.tidb-extension.ops",
    "debezium.tidb-extension.disable-schema.ops",
    "debezium.include-start-ts.ops",
    *(
        pytest.param(name, marks=pytest.mark.slow("loads 20,000 changes"))
        for name in (
            "stream.open-protocol",
            "stream.canal-json.tidb-extension",
            "stream.debezium.tidb-extension.disable-schema",
        )
    ),
]
EVENT_TYPES = {"insert": "row", "update": "row", "delete": "row", "ddl": "ddl", "watermark": "watermark"}
INT = {"id": "int"}
# Messages without a commit-ts.
UNTIMED = ("canal-json.plain.ops",)


def records(captured: Captured, *, sizes: Sizes = whole, **options: str) -> pa.Table:
    return captured.read(sizes=sizes, outputFormat="record", **options)


@pytest.mark.corpus
@pytest.mark.parametrize("sizes", [whole, random_sizes(7)], ids=["whole", "random"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_record_comes_as_it_is(scenario: str, sizes: Sizes) -> None:
    """Each record has its key and value, and the tables, types, smallest commit-ts and watermark of its true events."""
    captured = load(scenario)
    captured = replace(captured, partitions={number: of[:700] for number, of in captured.partitions.items()})

    rows = records(captured, sizes=sizes).to_pylist()

    found = {(row["_partition"], row["_offset"]): row for row in rows}
    assert len(found) == len(rows) == sum(map(len, captured.partitions.values()))
    for partition, expected in captured.partitions.items():
        for offset, record in enumerate(expected):
            row, events = found[partition, offset], events_of(record.truth)
            assert (row["_topic"], row["_key"], row["_value"]) == (TOPIC, record.key, record.value)
            tables = {str(TableName(event["schema"], event["table"])) for event in events if event.get("table")}
            assert set(row["_tables"]) == tables
            assert set(row["_event_types"]) == {EVENT_TYPES[event["op"]] for event in events}
            commits = [event["commit_ts"] for event in events if event["op"] != "watermark"]
            marks = [event["commit_ts"] for event in events if event["op"] == "watermark"]
            if scenario in UNTIMED:  # DDL is parsed, so it has the lower bound that its rows would have
                commits = [] if "row" in row["_event_types"] else [commit >> 18 << 18 for commit in commits]
            assert row["_commit_version"] == min(commits, default=None)
            assert row["_watermark_ts"] == min(marks, default=None)


def test_tables_selects_records() -> None:
    """With `tables`, tombstones and records of other tables are left out, but not those that cannot be read."""
    messages = [canal("INSERT", [{"id": "1"}], None, INT, table=table) for table in ("a", "b")]
    captured = Captured.of(*messages, (b"", b"{"))
    rows = records(captured, tables="*.b", protocol="canal-json").to_pylist()

    assert [(row["_offset"], row["_tables"], row["_event_types"]) for row in rows] == [
        (1, ["test.b"], ["row"]),
        (2, [], ["corrupt"]),
    ]


def test_a_range_of_commit_ts_selects_records() -> None:
    """A record with earlier changes alone is left out, and so is earlier DDL; watermarks stay, whatever they say."""
    ddl: dict[str, Any] = {"isDdl": True, "sql": "TRUNCATE TABLE t"}
    messages = [
        canal("INSERT", [{"id": "1"}], None, INT, _tidb={"commitTs": TSO}),
        canal("TRUNCATE", None, None, None, _tidb={"commitTs": TSO}, **ddl),
        canal("TIDB_WATERMARK", None, None, None, database="", table="", _tidb={"watermarkTs": TSO}),
        canal("INSERT", [{"id": "2"}], None, INT, es=TSO >> 18),  # has its time alone
        canal("INSERT", [{"id": "3"}], None, INT, _tidb={"commitTs": TSO + 1}),
        canal("TRUNCATE", None, None, None, _tidb={"commitTs": TSO + 1}, **ddl),
    ]
    mixed = Captured.of(open_message(*(open_row({"u": {"id": cell(3, 1)}}, ts=TSO + more) for more in (0, 1))))

    (later,) = within(mixed, TSO + 1)
    found = [(row["_offset"], row["_event_types"]) for row in within(Captured.of(*messages), TSO + 1)]

    assert later["_commit_version"] == TSO + 1
    assert found == [(2, ["watermark"]), (4, ["row"]), (5, ["ddl"])]


def within(captured: Captured, start: int) -> list[dict[str, Any]]:
    given = {"outputFormat": "record"}
    options = replace(make_options(**given), starting_commit_ts=start)
    schema = captured.schema(**given)
    (place,) = captured.ranges()
    spec = captured.spec(schema, options, captured.context(schema, options), place)
    return [row for batch in read(captured.fetch(place), spec) for row in batch.to_pylist()]


def test_a_commit_ts_is_not_taken_from_a_row() -> None:
    """Texts and columns that look like TiCDC's members are not taken for them; a commit-ts in doubt is NULL."""
    looks = '"_tidb":{"commitTs":5}}'
    tidb: dict[str, Any] = {"_tidb": {"commitTs": TSO}}
    types = {"id": "int", "_tidb": "json", "commitTs": "int"}
    row = {"id": looks, "_tidb": looks, "commitTs": "7"}
    timed, untimed = (canal("INSERT", [row], None, types, {"commitTs": 4}, **more) for more in (tidb, {}))
    assert [one["_commit_version"] for one in records(Captured.of(timed, untimed)).to_pylist()] == [TSO, None]

    columns = {"commit_ts": 7, "source": '{"commit_ts":8}'}
    plain, odd = (debezium("c", None, columns, source=source) for source in ({}, {"table": 't","commit_ts":5,{'}))
    assert [one["_commit_version"] for one in records(Captured.of(plain, odd)).to_pylist()] == [TSO, None]


def test_events_of_a_record_are_counted_together() -> None:
    """A record of several tables has each once, and the smallest commit-ts of its events."""
    events = [
        open_row({"u": {"id": cell(3, 1)}}, table, ts=TSO + more) for table, more in (("b", 2), ("a", 1), ("b", 3))
    ]
    (row,) = records(Captured.of(open_message(*events))).to_pylist()

    assert (row["_tables"], row["_event_types"], row["_commit_version"]) == (["test.b", "test.a"], ["row"], TSO + 1)


def test_what_cannot_be_read_is_kept() -> None:
    """A record that no protocol can read is a row like any other; one that could not be unpacked is an error."""
    captured = Captured.of(canal("INSERT", [{"id": "1"}], None, INT), (b"", b"\x00\xff"))
    good, bad = records(captured).to_pylist()

    assert good["_event_types"] == ["row"]
    assert (bad["_value"], bad["_event_types"], bad["_tables"]) == (b"\x00\xff", ["corrupt"], [])

    options = make_options(outputFormat="record", protocol="canal-json")
    schema = captured.schema(outputFormat="record", protocol="canal-json")
    spec = captured.spec(schema, options, captured.context(schema, options), captured.ranges()[0])
    chunk = Chunk(TOPIC, 0, [5], [0], [None], [None], failure="the record is too large")
    with pytest.raises(DecodeError, match=r"too large.*5"):
        list(read([chunk], spec))


def test_options_of_decoding_are_refused() -> None:
    """An option that applies to decoded rows is an error that names the outputs that have it."""
    with pytest.raises(OptionError, match="'mode' applies to outputFormat=changelog, envelope, event, not to record"):
        make_options(outputFormat="record", mode="PERMISSIVE")
