"""Coalescing the events of several chunks changes neither the rows nor the counters."""

import random
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pyarrow as pa
import pytest

from tests.encoders.avro import Avro, DebeziumAvro
from tests.encoders.tables import Column, Table
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
from ticdc_source.pipeline import coalesce
from ticdc_source.pipeline.coalesce import coalesce_chunks
from ticdc_source.pipeline.read import read
from ticdc_source.pipeline.spec import ReadState, read_spec
from ticdc_source.planning.read_context import context_of_schema
from ticdc_source.protocols import PROTOCOLS
from ticdc_source.protocols.events import Split
from ticdc_source.sources.chunk import Chunk

SEED = 20261121
INT = {"mysqlType": "int", "charset": "binary", "length": 11}
FORMATS = ("changelog", "envelope", "event")


REGISTERED: dict[str, Avro | DebeziumAvro] = {
    "avro": Avro(extension=True, watermarks=True),
    "debezium-avro": DebeziumAvro(extension=True),
}


def registered(protocol: str, number: int, table: str, op: str = "insert") -> Message:
    """Return a row, a DDL event or a watermark in Avro behind the id of a schema."""
    columns = (Column("id", "int", nullable=False), Column("n", "int"))
    values = [
        {"name": "id", "mysql_type": "int", "after": "1"},
        {"name": "n", "mysql_type": "int", "after": str(number)},
    ]
    event = {
        "op": op,
        "schema": "test",
        "table": table,
        "commit_ts": TSO + number,
        "columns": values,
        "ddl_query": "ALTER TABLE t COMMENT 'x'",
        "ddl_type_code": 15,
    }
    described = None if op == "watermark" else Table("test", table, columns, ("id",), ("id",))
    return REGISTERED[protocol].message([event], [described])


def row(protocol: str, number: int, table: str) -> Message:
    """Return a row that holds its number."""
    if protocol in REGISTERED:
        return registered(protocol, number, table)
    if protocol == "canal-json":
        types, stamp = {"id": "int", "n": "int"}, {"commitTs": TSO + number}
        return canal("INSERT", [{"id": "1", "n": str(number)}], None, types, table=table, _tidb=stamp)
    if protocol == "debezium":
        return debezium("c", None, {"id": 1, "n": number}, source={"table": table, "commit_ts": TSO + number})
    if protocol == "csv":
        return dump({"TableVersion": 1}), f'"I","{table}","test",{TSO + number},1,{number}'.encode()
    if protocol == "simple":
        return simple("INSERT", {"id": "1", "n": str(number)}, table=table, commitTs=TSO + number)
    cells = {"id": cell(3, 1, 11), "n": cell(3, number)}
    return open_message(
        open_row({"u": cells}, table, ts=TSO + number), open_row({"u": cells}, "other", ts=TSO + number)
    )


def csv_definition(table: str, version: int, query: str = "") -> Message:
    """Return a file with a version of a table as a message."""
    columns = [{"ColumnName": name, "ColumnType": "INT"} for name in ("id", "n")]
    schema = {"Table": table, "Schema": "test", "TableVersion": version, "Query": query, "Type": 5}
    return None, dump({**schema, "TableColumns": columns, "TableColumnsTotal": 2})


def ddl_or_watermark(protocol: str, number: int) -> Message:
    """Return a DDL event or a watermark."""
    stamp = TSO + number
    if protocol in REGISTERED:
        return registered(protocol, number, "t", "watermark" if number % 2 or protocol != "avro" else "ddl")
    if number % 2:
        return {
            "canal-json": canal("TIDB_WATERMARK", _tidb={"watermarkTs": stamp}),
            "csv": (None, dump({"checkpoint-ts": stamp})),
            "simple": (None, dump({"version": 1, "type": "WATERMARK", "commitTs": stamp, "buildTs": 1})),
            "debezium": debezium("m", source={"db": "", "table": "", "commit_ts": stamp}),
            "open-protocol": open_message(({"ts": stamp, "t": 3}, b"")),
        }[protocol]
    return {
        "canal-json": canal("QUERY", isDdl=True, sql="ALTER TABLE t COMMENT 'x'", _tidb={"commitTs": stamp}),
        "csv": csv_definition("t", stamp, "ALTER TABLE t COMMENT 'x'"),
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
    if protocol == "csv":
        messages = [*(csv_definition(name, 1) for name in ("t", "u", "other")), *messages]
    bad = (dump({"TableVersion": 1}) if protocol == "csv" else messages[0][0], b'{"')
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
    context = (
        captured.context(schema, options) if given["outputFormat"] == "event" else context_of_schema(schema, options)
    )
    assert context is not None
    spec, state = read_spec(schema, options, context), ReadState()
    (offset_range,) = captured.ranges()
    batches = list(read(captured.fetch(offset_range, sizes), spec, state))
    return pa.Table.from_batches(batches, schema), state.counters, len(batches)


@pytest.mark.parametrize("output", FORMATS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
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
    """Count the events, each with its record."""
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
    """Return chunks with headers."""
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
