"""Coalescing chunks, and record batches, changes where they are cut, and neither rows nor counters."""

import random
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pyarrow as pa
import pytest

from tests.support.captured import Captured, Sizes, single
from tests.support.messages import (
    TSO,
    Message,
    canal,
    cell,
    debezium,
    debezium_ddl,
    dump,
    open_message,
    open_row,
    simple,
    simple_definition,
)
from tests.support.seeds import each_seed
from ticdc_source.pipeline import coalesce
from ticdc_source.pipeline.coalesce import coalesce_batches, coalesce_chunks
from ticdc_source.pipeline.read import read
from ticdc_source.pipeline.spec import ReadState, read_spec
from ticdc_source.protocols import PROTOCOLS
from ticdc_source.protocols.events import Split
from ticdc_source.sources.chunk import Chunk

SEED = 20261121
INT = {"mysqlType": "int", "charset": "binary", "length": 11}
FORMATS = ("changelog", "envelope", "event")


def row(protocol: str, number: int, table: str) -> Message:
    if protocol == "canal-json":
        types, stamp = {"id": "int", "n": "int"}, {"commitTs": TSO + number}
        return canal("INSERT", [{"id": "1", "n": str(number)}], None, types, table=table, _tidb=stamp)
    if protocol == "debezium":
        return debezium("c", None, {"id": 1, "n": number}, source={"table": table, "commit_ts": TSO + number})
    if protocol == "simple":
        return simple("INSERT", {"id": "1", "n": str(number)}, table=table, commitTs=TSO + number)
    cells = {"id": cell(3, 1, 11), "n": cell(3, number)}
    return open_message(
        open_row({"u": cells}, table, ts=TSO + number), open_row({"u": cells}, "other", ts=TSO + number)
    )


def ddl_or_watermark(protocol: str, number: int) -> Message:
    stamp = TSO + number
    if number % 2:
        return {
            "canal-json": canal("TIDB_WATERMARK", _tidb={"watermarkTs": stamp}),
            "simple": (None, dump({"version": 1, "type": "WATERMARK", "commitTs": stamp, "buildTs": 1})),
            "debezium": debezium("m", source={"db": "", "table": "", "commit_ts": stamp}),
            "open-protocol": open_message(({"ts": stamp, "t": 3}, b"")),
        }[protocol]
    return {
        "canal-json": canal("QUERY", isDdl=True, sql="ALTER TABLE t COMMENT 'x'", _tidb={"commitTs": stamp}),
        "simple": simple_definition("ALTER", {"id": INT, "n": INT}, commitTs=stamp),
        "debezium": debezium_ddl(stamp, "ALTER TABLE t COMMENT 'x'", []),
        "open-protocol": open_message(({"ts": stamp, "scm": "test", "tbl": "t", "t": 2}, {"q": "ALTER", "t": 5})),
    }[protocol]


def topic(protocol: str, chooser: random.Random, count: int = 400) -> Captured:
    """Return a topic with few rows of `t` and `u` among those of other tables, DDL, watermarks and bad records."""
    messages: list[Message] = [row(protocol, 0, "t")]
    if protocol == "simple":
        tables = ("t", "u", "other")
        messages = [*(simple_definition("BOOTSTRAP", {"id": INT, "n": INT}, table=name) for name in tables), *messages]
    bad = (messages[0][0], b'{"')
    for number in range(1, count):
        chance = chooser.random()
        if chance < 0.03:
            messages.append(ddl_or_watermark(protocol, number))
        elif chance < 0.04:
            messages.append(bad)
        else:
            name = chooser.choice(["t", "u", *(f"other{index}" for index in range(30))])
            messages.append(row(protocol, number, name))
    return Captured.of(*messages)


def read_all(captured: Captured, sizes: Sizes, **given: str) -> tuple[pa.Table, Any, int]:
    """Read all records; return the rows, the counters, and the number of record batches."""
    options = captured.options(**given)
    schema = captured.schema(**given)
    spec, state = read_spec(schema, options, captured.context(schema, options)), ReadState()
    (offset_range,) = captured.ranges()
    batches = list(read(captured.fetch(offset_range, sizes), spec, state))
    return pa.Table.from_batches(batches, schema), state.counters, len(batches)


@pytest.mark.parametrize("output", FORMATS)
@pytest.mark.parametrize("protocol", ["canal-json", "debezium", "open-protocol", "simple"])
def test_coalesced_chunks_have_the_rows_of_single_records(protocol: str, output: str) -> None:
    """Coalesced chunks of 50 records have the same rows, bad ones too, and counters as chunks of one record."""
    captured = topic(protocol, random.Random(SEED))
    given = {
        "outputFormat": output, "tables": "test.t" if output != "event" else "test.t,test.u", "includeMetadata": "all",
        "mode": "PERMISSIVE", "protocol": protocol, "schemaHints": "id int, n int",
    }  # fmt: skip
    if output == "event":
        del given["schemaHints"]

    few, counted, decoded = read_all(captured, lambda: 50, **given)
    alone, expected, _ = read_all(captured, single, **given)

    assert few == alone, SEED
    assert counted == expected
    assert decoded == 1
    assert few.num_rows > 5


def splits_of(chunks: list[Chunk]) -> Iterator[tuple[Chunk, Split]]:
    """Split chunks for the table `t`."""
    return ((chunk, PROTOCOLS["canal-json"].split(chunk, lambda table: table.table == "t")) for chunk in chunks)


def events_of(splits: Iterator[tuple[Chunk, Split]]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for chunk, split in splits:
        records = list(zip(chunk.offsets, chunk.timestamps, chunk.keys, chunk.values, chunk.headers or [], strict=True))
        for table, table_events in split.tables.items():
            assert table_events.chunk is chunk
            found.update(
                (str(table), str(records[position]), index, payload)
                for position, index, payload in zip(
                    table_events.positions, table_events.indexes, table_events.payloads, strict=True
                )
            )
        for event in chain[Any](split.ddl, split.watermarks, split.corrupt):
            found[type(event).__name__, str(records[event.position])] += 1
    return found


def chunks_of(captured: Captured, size: int, partition: int = 0) -> list[Chunk]:
    (offset_range,) = captured.ranges()
    chunks = list(captured.fetch(offset_range, lambda: size))
    for chunk in chunks:
        chunk.headers = [[("number", b"%d" % offset)] for offset in chunk.offsets]
        chunk.partition = partition
    return chunks


def test_every_event_keeps_its_record() -> None:
    """Each event keeps its offset, timestamp, key, value and headers, and records without an event are left out."""
    chunks = chunks_of(topic("canal-json", random.Random(SEED)), 40)

    ((chunk, split),) = coalesce_chunks(splits_of(chunks))

    assert events_of(iter([(chunk, split)])) == events_of(splits_of(chunks)), SEED
    assert chunk.offsets == sorted(chunk.offsets)
    assert len(chunk) < 60


def test_coalesced_chunks_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coalesced chunk has limits and one topic partition, and a chunk of mostly wanted rows passes unchanged."""
    chooser = random.Random(SEED)
    captured = topic("canal-json", chooser)
    chunks = chunks_of(captured, 20) + chunks_of(captured, 20, partition=1)
    full = Captured.of(*(row("canal-json", number, "t") for number in range(20)))
    chunks[7:7] = chunks_of(full, 20)
    plain = [(chunk.partition, chunk.offsets[0]) for chunk in chunks]

    for limit, value in (("_MOST_RECORDS", 10), ("_MOST_BYTES", 3000)):
        with monkeypatch.context() as patch:
            patch.setattr(coalesce, limit, value)
            found = list(coalesce_chunks(splits_of(chunks)))
        assert events_of(iter(found)) == events_of(splits_of(chunks)), SEED
        assert max(len(chunk) for chunk, _ in found) < 30
        assert {chunk.partition for chunk, _ in found} == {0, 1}
    found = list(coalesce_chunks(splits_of(chunks)))
    assert [chunk.partition for chunk, _ in found] == [0, 0, 0, 1]
    assert found[1][0] is chunks[plain.index((0, 0), 1)]


def test_offsets_rise_in_a_coalesced_chunk() -> None:
    """An offset that is not larger than the one before it, as in a second read of a range, starts another chunk."""
    chunks = chunks_of(topic("canal-json", random.Random(SEED)), 40)

    found = list(coalesce_chunks(splits_of(chunks * 2)))

    assert len(found) == 2
    assert all(chunk.offsets == sorted(chunk.offsets) for chunk, _ in found)
    assert events_of(iter(found)) == events_of(splits_of(chunks * 2))


SCHEMA = pa.schema([
    pa.field("id", pa.int64(), metadata={"ticdc.key": "true"}),
    pa.field("text", pa.string()),
    pa.field("bits", pa.bool_()),
    pa.field("at", pa.struct([pa.field("offset", pa.int64(), nullable=False)])),
    pa.field("many", pa.list_(pa.float32())),
])  # fmt: skip


def batch_of(rng: random.Random, first: int, rows: int) -> pa.RecordBatch:
    """Return a record batch of numbered rows, sometimes a slice of a longer one, as `read` yields them."""
    spare = rng.choice([0, 0, 5])
    table = pa.RecordBatch.from_pylist(
        [
            {
                "id": number,
                "text": rng.choice([None, "", "é" * rng.randint(0, 50)]),
                "bits": rng.choice([None, True, False]),
                "at": rng.choice([None, {"offset": number}]),
                "many": rng.choice([None, [], [1.5, None]]),
            }
            for number in range(first - spare, first + rows)
        ],
        schema=SCHEMA,
    )
    return table.slice(spare, rows)


@each_seed(50)
def test_coalesced_batches_have_the_same_rows(seed: int) -> None:
    """Coalesced batches have the same rows in order, keep to the limits, and are as few as the limits allow."""
    rng = random.Random(seed)
    given: list[pa.RecordBatch] = []
    for _ in range(rng.randint(0, 30)):
        given.append(batch_of(rng, sum(part.num_rows for part in given), rng.choice([1, 2, 10, 60])))
    max_rows, max_bytes = rng.choice([1, 30, 100, 10_000]), rng.choice([1, 3000, 1 << 20])
    coalesced = list(coalesce_batches(iter(given), max_rows, max_bytes))
    rows, expected = (pa.Table.from_batches(batches, SCHEMA).to_pylist() for batches in (coalesced, given))
    assert rows == expected, seed
    sizes = [part.num_rows for part in given]
    for part in coalesced:
        assert part.schema.equals(SCHEMA, check_metadata=True)
        part.validate(full=True)
        if part.num_rows > max_rows or part.nbytes > max_bytes * 1.1 + 100:
            assert part.num_rows in sizes
    if max_rows == 10_000 and max_bytes == 1 << 20:
        assert len(coalesced) == min(1, len(given))


def test_a_batch_that_stays_alone_is_not_copied() -> None:
    """A record batch that stays alone is not copied, and only one more is read before it comes out."""
    given = [batch_of(random.Random(0), 0, 10), batch_of(random.Random(0), 10, 10)]
    reads = []

    def source() -> object:
        for part in given:
            reads.append(part)
            yield part

    out = coalesce_batches(source(), 10, 1 << 20)  # type: ignore[arg-type]
    assert next(out) is given[0]
    assert len(reads) == 2  # the second had to be seen to know that it does not fit
    assert next(out) is given[1]
    assert next(out, None) is None
