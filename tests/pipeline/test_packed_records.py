"""Packed records: what is in them comes back, and says as much about tables as the records themselves."""

import random
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

from tests.support.captured import Captured, load, rows_of
from tests.support.messages import TSO, Message, canal, open_message
from ticdc_source.pipeline.context import BatchScope
from ticdc_source.pipeline.packed_records import PACKED, RECORD_ROWS, pack, unpacked
from ticdc_source.pipeline.record_frames import RECORD, decode_rows, survey
from ticdc_source.planning.frame_sample import context_of_records, find_tables, frame_options
from ticdc_source.schema.table_name import TableName

BEGAN = datetime(2026, 1, 1, tzinfo=timezone.utc)
NOTHING = pa.RecordBatch.from_pylist([], schema=RECORD)
SCENARIOS = [
    "open-protocol.default.ops",
    "canal-json.tidb-extension.ops",
    "canal-json.plain.ops",
    "debezium.tidb-extension.disable-schema.ops",
]
ROW = TableName("shop", "a")


def cut(packed: pa.RecordBatch, chance: random.Random) -> Iterator[pa.RecordBatch]:
    """Cut packed rows anywhere, as Spark does."""
    first = 0
    while first < packed.num_rows:
        size = chance.randrange(1, 9)
        yield packed.slice(first, size)
        first += size


def made_up(count: int, chance: random.Random) -> pa.RecordBatch:
    """Return records with all that records may have, in any combination."""
    has_headers = chance.random() < 0.5
    headers: list[Any] = [None, [], [{"key": "h", "value": b"x"}, {"key": "g", "value": None}]]
    rows = [
        {
            "_topic": chance.choice(["a", "a", "a", "b", None]),
            "_partition": chance.choice([0, 1, None]),
            "_offset": chance.choice([None, offset, offset, offset]),
            "_timestamp": chance.choice([None, BEGAN + timedelta(seconds=offset)]),
            "_key": chance.choice([None, b"", b"k" * chance.randrange(9)]),
            "_value": chance.choice([None, b"", bytes(chance.randrange(3000))]),
            "_headers": chance.choice(headers) if has_headers else None,
            "_tables": chance.choice([[], ["s.t"], ["s.u", "s.t"], ["s.`x y`"]]),
            "_event_types": chance.choice([["row"], ["ddl"], ["watermark"], ["row", "ddl"], []]),
            "_commit_version": chance.choice([None, offset * 7]),
            "_watermark_ts": chance.choice([None, 5, offset]),
            "_partitions": chance.choice([None, 0, 4]),
        }
        for offset in range(count)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_ROWS)


@pytest.mark.parametrize("seed", range(30))
def test_records_come_back_in_their_order(seed: int) -> None:
    chance = random.Random(seed)
    batches = [made_up(chance.choice([1, 2, 50, 300]), chance) for _ in range(chance.randrange(1, 4))]

    parts = [part for packed in pack(batches) for part in cut(packed, chance)]

    found = [row for batch in unpacked(parts, RECORD_ROWS) for row in batch.to_pylist()]
    assert found == [row for batch in batches for row in batch.to_pylist()]


def test_records_of_a_table_share_rows() -> None:
    """Ten thousand records of half a KiB are less than a fifth as many rows, of 4 KiB."""
    records = Captured.of(*[changed("INSERT", id=str(number), text="x" * 300) for number in range(10_000)])

    packed = list(packed_of(rows_of(records)))

    assert sum(batch.num_rows for batch in packed) < 2000
    assert max(len(row["values"]) for batch in packed for row in batch.column("_packed").to_pylist()) < 5000


@pytest.mark.corpus
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_marked_records_tell_what_a_survey_tells(scenario: str) -> None:
    """The records that are marked while they are read tell the same tables, columns and DDL as a survey."""
    captured = load(scenario)
    options = frame_options({})
    batch = rows_of(captured)
    packed = pa.Table.from_batches(packed_of(batch))

    marked = [each for each in packed.to_batches() for each in [each.filter(each.column("_told"))] if each.num_rows]

    telling = one(list(unpacked(marked, RECORD)))
    found = find_tables(telling, NOTHING, options)
    expected = find_tables(one(list(survey([batch], options))), NOTHING, options)
    assert found.schemas == expected.schemas
    assert {name: str(error) for name, error in found.errors.items()} == {
        name: str(error) for name, error in expected.errors.items()
    }
    assert found.ddl == expected.ddl
    assert telling.num_rows < batch.num_rows


def changed(kind: str, old: dict[str, str] | None = None, **cells: str) -> Message:
    types = dict.fromkeys(cells, "int") | ({"text": "text"} if "text" in cells else {})
    return canal(kind, [cells], None if old is None else [old], types, database="shop", table="a", pkNames=["id"],
                 _tidb={"commitTs": TSO})  # fmt: skip


def test_a_merge_gets_the_pre_images_that_change_its_key() -> None:
    messages = [
        changed("INSERT", id="1", n="1"),
        changed("UPDATE", {"id": "1", "n": "1"}, id="1", n="2"),
        changed("UPDATE", {"id": "1", "n": "2"}, id="7", n="2"),
        changed("UPDATE", {"n": "2"}, id="7", n="3"),
        changed("DELETE", id="7", n="3"),
    ]
    options = frame_options({"tables": "shop.a"})
    schema = find_tables(one(list(survey([rows_of(Captured.of(*messages))], options))), NOTHING, options).schemas[ROW]

    def kinds(*keys: str) -> list[str]:
        context, scope = context_of_records(schema, None, options), BatchScope(merged_by=keys)
        rows = decode_rows([rows_of(Captured.of(*messages))], schema, options, context, scope)
        return [kind for batch in rows for kind in batch.column("_change_type").to_pylist()]

    update = ["update_preimage", "update_postimage"]
    assert kinds() == ["insert", *update, *update, *update, "delete"]
    assert kinds("id") == kinds("ID") == ["insert", "update_postimage", *update, "update_postimage", "delete"]
    assert kinds("id", "n") == kinds()
    assert kinds("other") == kinds()  # a column that the changes lack


def test_large_texts_of_arrow_are_unpacked() -> None:
    """Spark sends them with `spark.sql.execution.arrow.useLargeVarTypes=true`."""
    batch = made_up(50, random.Random(1))
    (packed,) = pack([batch])
    large = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    members = [each.with_type(large.get(each.type, each.type)) for each in packed.schema.field("_packed").type]
    columns = [
        packed.column(name).cast(pa.struct(members) if name == "_packed" else large.get(type_, type_))
        for name, type_ in zip(packed.schema.names, packed.schema.types, strict=True)
    ]

    (found,) = unpacked([pa.RecordBatch.from_arrays(columns, packed.schema.names)], RECORD_ROWS)

    assert found == batch


def test_columns_that_records_lack_are_null() -> None:
    batch = made_up(50, random.Random(2))
    lacking = {"_headers", "_timestamp"}

    (found,) = unpacked(pack([batch.select([name for name in RECORD_ROWS.names if name not in lacking])]), RECORD_ROWS)

    assert found.to_pylist() == [{**row, **dict.fromkeys(lacking)} for row in batch.to_pylist()]


def test_messages_with_only_a_key_tell_its_type() -> None:
    """The worker does not know `onHandleKeyOnly`, so it marks what they tell."""
    messages = [
        open_message(({"ts": TSO + number, "scm": "shop", "tbl": "a", "t": 1, "ohk": True}, {"u": {"id": cell}}))
        for number, value in enumerate(("1.5", "12345.75", "99.123"))
        for cell in [{"t": 246, "h": True, "f": 11, "v": value}]
    ]
    options = frame_options({"onHandleKeyOnly": "null", "tables": "shop.a"})
    packed = pa.Table.from_batches(packed_of(rows_of(Captured.of(*messages))))
    marked = [each for each in [each.filter(each.column("_told")) for each in packed.to_batches()] if each.num_rows]

    schema = find_tables(one(list(unpacked(marked, RECORD))), NOTHING, options).schemas[ROW]

    assert schema.field("id").type == pa.decimal128(38, 3)


def packed_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    options = frame_options({"outputFormat": "record"})
    return decode_rows([batch], PACKED, options, context_of_records(PACKED, None, options), BatchScope())


def one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(batches, RECORD).combine_chunks().to_batches()[0]
