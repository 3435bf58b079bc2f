"""Few events of several chunks are read as those of one, and nobody can tell."""

import random
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import pyarrow as pa
import pytest

from tests.support.captured import Captured, Sizes, make_options, single
from tests.support.messages import TSO, Message, canal, cell, debezium, debezium_ddl, open_message, open_row
from ticdc_source.driver.context import context_of_schema
from ticdc_source.driver.plan import read_spec
from ticdc_source.events import Chunk, Split, TableName
from ticdc_source.pipeline import coalesce as gathering
from ticdc_source.pipeline import read as reading
from ticdc_source.pipeline.coalesce import coalesce_chunks
from ticdc_source.protocols import PROTOCOLS

SEED = 20261121
FORMATS = ("changelog", "envelope", "event")


def row(protocol: str, number: int, table: str) -> Message:
    """Make a row that knows its number."""
    if protocol == "canal-json":
        types, stamp = {"id": "int", "n": "int"}, {"commitTs": TSO + number}
        return canal("INSERT", [{"id": "1", "n": str(number)}], None, types, table=table, _tidb=stamp)
    if protocol == "debezium":
        return debezium("c", None, {"id": 1, "n": number}, source={"table": table, "commit_ts": TSO + number})
    cells = {"id": cell(3, 1, 11), "n": cell(3, number)}
    return open_message(
        open_row({"u": cells}, table, ts=TSO + number), open_row({"u": cells}, "other", ts=TSO + number)
    )


def rarity(protocol: str, number: int) -> Message:
    """Make a DDL event or a watermark."""
    stamp = TSO + number
    if number % 2:
        return {
            "canal-json": canal("TIDB_WATERMARK", _tidb={"watermarkTs": stamp}),
            "debezium": debezium("m", source={"db": "", "table": "", "commit_ts": stamp}),
            "open-protocol": open_message(({"ts": stamp, "t": 3}, b"")),
        }[protocol]
    return {
        "canal-json": canal("QUERY", isDdl=True, sql="ALTER TABLE t COMMENT 'x'", _tidb={"commitTs": stamp}),
        "debezium": debezium_ddl(stamp, "ALTER TABLE t COMMENT 'x'", []),
        "open-protocol": open_message(({"ts": stamp, "scm": "test", "tbl": "t", "t": 2}, {"q": "ALTER", "t": 5})),
    }[protocol]


def topic(protocol: str, chooser: random.Random, count: int = 400) -> Captured:
    """Make a topic of many tables, of which `t` and `u` have few rows, with all else that there is now and then."""
    messages: list[Message] = [row(protocol, 0, "t")]
    for number in range(1, count):
        chance = chooser.random()
        if chance < 0.03:
            messages.append(rarity(protocol, number))
        elif chance < 0.04:
            messages.append((messages[0][0], b'{"'))
        else:
            name = chooser.choice(["t", "u", *(f"other{place}" for place in range(30))])
            messages.append(row(protocol, number, name))
    return Captured.of(*messages)


def read_all(captured: Captured, sizes: Sizes, **given: str) -> tuple[pa.Table, Any, int]:
    """Read; return the rows, what was counted, and how many chunks were decoded."""
    options = make_options(**given)
    schema = captured.schema(**given)
    known = (
        captured.context(schema, options) if given["outputFormat"] == "event" else context_of_schema(schema, options)
    )
    assert known is not None
    spec, state = read_spec(schema, options, known), reading.ReadState()
    (whole,) = captured.ranges()
    batches = list(reading.read(captured.fetch(whole, sizes), spec, state))
    return pa.Table.from_batches(batches, schema), state.counters, len(batches)


@pytest.mark.parametrize("output", FORMATS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_rows_of_few_records_are_those_of_each_record_alone(protocol: str, output: str) -> None:
    """Chunks of 50 records with few of the wanted rows give the rows, bad ones too, and the counts of single ones."""
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
    """Split for the table `t`."""
    return ((chunk, PROTOCOLS["canal-json"].split(chunk, lambda table: table.table == "t")) for chunk in chunks)


def events_of(splits: Iterator[tuple[Chunk, Split]]) -> Counter[Any]:
    """Tell of each event what it is and where it stands."""
    found: Counter[Any] = Counter()
    for chunk, split in splits:
        records = list(zip(chunk.offsets, chunk.timestamps, chunk.keys, chunk.values, chunk.headers or [], strict=True))
        for table, table_events in split.tables.items():
            assert table_events.chunk is chunk
            found.update(
                (str(table), str(records[place]), index, payload)
                for place, index, payload in zip(
                    table_events.positions, table_events.indexes, table_events.payloads, strict=True
                )
            )
        for event in chain[Any](split.ddl, split.watermarks, split.corrupt):
            found[type(event).__name__, str(records[event.position])] += 1
    return found


def chunks_of(captured: Captured, size: int, partition: int = 0) -> list[Chunk]:
    """Make chunks that have headers."""
    (whole,) = captured.ranges()
    chunks = list(captured.fetch(whole, lambda: size))
    for chunk in chunks:
        chunk.headers = [[("number", b"%d" % offset)] for offset in chunk.offsets]
        chunk.partition = partition
    return chunks


def test_every_event_keeps_its_record() -> None:
    """Offsets, timestamps, keys, values and headers; records without an event are left out."""
    chunks = chunks_of(topic("canal-json", random.Random(SEED)), 40)

    ((chunk, split),) = coalesce_chunks(splits_of(chunks))

    assert events_of(iter([(chunk, split)])) == events_of(splits_of(chunks)), SEED
    assert chunk.offsets == sorted(chunk.offsets)
    assert len(chunk) < 60


def test_what_is_gathered_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many records or bytes, and one topic partition; a chunk that is mostly wanted goes by itself, in its turn."""
    chooser = random.Random(SEED)
    captured = topic("canal-json", chooser)
    chunks = chunks_of(captured, 20) + chunks_of(captured, 20, partition=1)
    full = Captured.of(*(row("canal-json", number, "t") for number in range(20)))
    chunks[7:7] = chunks_of(full, 20)
    plain = [(chunk.partition, chunk.offsets[0]) for chunk in chunks]

    for limit, value in (("_MOST_RECORDS", 10), ("_MOST_BYTES", 3000)):
        with monkeypatch.context() as patch:
            patch.setattr(gathering, limit, value)
            found = list(coalesce_chunks(splits_of(chunks)))
        assert events_of(iter(found)) == events_of(splits_of(chunks)), SEED
        assert max(len(chunk) for chunk, _ in found) < 30
        assert {chunk.partition for chunk, _ in found} == {0, 1}
    found = list(coalesce_chunks(splits_of(chunks)))
    assert [chunk.partition for chunk, _ in found] == [0, 0, 0, 1]
    assert found[1][0] is chunks[plain.index((0, 0), 1)]


def test_chunks_without_events_do_not_come() -> None:
    """Whatever else they hold."""
    captured = Captured.of(*islice((row("canal-json", number, "other") for number in range(90)), 90))

    assert not list(coalesce_chunks(splits_of(chunks_of(captured, 30))))
    assert TableName("test", "t") not in next(splits_of(chunks_of(captured, 30)))[1].tables


def test_records_are_gathered_in_rising_order_only() -> None:
    """Where an offset comes again, as a second read of a range would bring it, another chunk begins."""
    chunks = chunks_of(topic("canal-json", random.Random(SEED)), 40)

    found = list(coalesce_chunks(splits_of(chunks * 2)))

    assert len(found) == 2
    assert all(chunk.offsets == sorted(chunk.offsets) for chunk, _ in found)
    assert events_of(iter(found)) == events_of(splits_of(chunks * 2))
