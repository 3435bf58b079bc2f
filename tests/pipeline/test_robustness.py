"""Corrupt messages yield rows with their address and reason; tests/fuzz has every kind of damage."""

import base64
import json
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.support.captured import Captured, Record, load, make_options
from ticdc_source.pipeline.read import read

pytestmark = pytest.mark.filterwarnings("ignore:The messages of .*:UserWarning")

SCENARIOS = [
    "open-protocol.default",
    "canal-json.tidb-extension",
    "canal-json.content-compatible",
    "debezium.default",
    "debezium.disable-schema",
]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_permissive_makes_a_row_of_a_bad_record(scenario: str) -> None:
    """A truncated record between two good ones becomes a row without data, in order, with its address and a reason."""
    captured = load(f"{scenario}.types")
    name = "types_a.t_int"
    good = [
        record
        for records in captured.partitions.values()
        for record in records
        if (record.truth["op"] == "insert" and record.truth["table"] == "t_int")
        or (record.truth["op"] == "batch" and all(event["table"] == "t_int" for event in record.truth["events"]))
    ][:2]  # fmt: skip
    cut = Record(good[0].key, (good[0].value or b"")[:-9])
    mixed = Captured({}, {0: [good[0], cut, good[1]]})

    rows = mixed.read(tables=name, mode="PERMISSIVE", includeMetadata="kafka").to_pylist()

    bad = [row for row in rows if row["_corrupt_record"] is not None]
    assert [row["_offset"] for row in rows] == sorted(row["_offset"] for row in rows)
    assert len(bad) == 1
    report = json.loads(bad[0]["_corrupt_record"])
    assert (report["topic"], report["partition"], report["offset"]) == ("captured", 0, 1)
    assert report["reason"]
    assert bad[0]["_change_type"] is None
    assert bad[0]["id"] is None


def _batch_of_bad_and_good_events(events: int, filler: int) -> Record:
    """Return an open-protocol record of many events; every other one has a value that is no number."""
    good = b'{"u":{"id":{"t":3,"h":true,"f":11,"v":%d}}}'
    bad = b'{"u":{"id":{"t":3,"h":true,"f":11,"v":"' + b"x" * filler + b'"}}}'
    key_frame = b'{"ts":470613397578727424,"scm":"db","tbl":"t","t":1}'
    key, value = [(1).to_bytes(8, "big")], []
    for event in range(events):
        frame = bad if event % 2 else good % event
        key.append(len(key_frame).to_bytes(8, "big") + key_frame)
        value.append(len(frame).to_bytes(8, "big") + frame)
    return Record(b"".join(key), b"".join(value))


def test_a_record_is_not_copied_for_each_of_its_bad_events() -> None:
    """Of many bad events in one record the first has the record's bytes, and the others name that event."""
    captured = Captured({}, {0: [_batch_of_bad_and_good_events(8, 10)] * 2})

    rows = captured.read(protocol="open-protocol", mode="PERMISSIVE", schemaHints="id int").to_pylist()

    reports = [json.loads(row["_corrupt_record"]) for row in rows if row["_corrupt_record"]]
    assert [(report["offset"], report["index"]) for report in reports] == [(o, i) for o in (0, 1) for i in (1, 3, 5, 7)]
    assert [report.get("bytes_at_index") for report in reports] == [None, 1, 1, 1] * 2
    assert [report.keys() >= {"key", "value"} for report in reports] == [True, False, False, False] * 2
    assert base64.b64decode(reports[0]["value"]) == captured.partitions[0][0].value


def test_whole_records_in_rows_are_cut_into_small_batches() -> None:
    """The record batches of rows that hold their whole record stay small, and the rows are those of one large batch."""
    captured = Captured({}, {0: [_batch_of_bad_and_good_events(400, 300)] * 3})
    given = {"protocol": "open-protocol", "mode": "PERMISSIVE", "schemaHints": "id int", "includeMetadata": "all"}
    options, schema = make_options(**given), captured.schema(**given)
    (offset_range,) = captured.ranges()
    spec = captured.spec(schema, options, captured.context(schema, options), offset_range)

    small, large = (
        list(read(captured.fetch(offset_range), replace(spec, max_bytes=max_bytes))) for max_bytes in (1 << 20, 1 << 30)
    )

    assert len(large) == 1
    assert max(batch.nbytes for batch in small) < 3 << 20
    assert pa.Table.from_batches(small).combine_chunks() == pa.Table.from_batches(large)
