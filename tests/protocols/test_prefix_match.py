"""Splitting by prefix: many messages are classified together as each is alone."""

import dataclasses
import random
from collections.abc import Callable
from types import ModuleType
from typing import Any

import cramjam
import pytest

from tests.support.captured import Captured, make_options, rows
from tests.support.messages import TSO, Message, canal, debezium, debezium_ddl, open_message, open_row
from tests.support.mutations import mangled
from ticdc_source.pipeline.read import read
from ticdc_source.pipeline.spec import ReadState
from ticdc_source.protocols import PROTOCOLS, decoder_of, detect_protocol, prefix_match
from ticdc_source.protocols.base import Learned
from ticdc_source.protocols.events import Split
from ticdc_source.schema.table_name import TableName, every_table
from ticdc_source.sources.chunk import Chunk

SEED = 20261121
ID = {"id": "int"}


def chunk_of(values: list[bytes | None]) -> Chunk:
    count = len(values)
    return Chunk("t", 3, list(range(100, 100 + count)), [-1] * count, [None] * count, values)


def canal_row(number: int, table: str = "t", operation: str = "INSERT", **more: Any) -> bytes:
    made = canal(operation, [{"id": str(number)}], None, ID, {"id": 4}, table=table, es=(TSO >> 18) + number, **more)[1]
    assert made is not None
    return made


def debezium_row(number: int, table: str = "t", operation: str = "c", **more: Any) -> bytes:
    source = {"table": table, "ts_ms": (TSO >> 18) + number, "commit_ts": TSO + number, **more}
    made = debezium(operation, None if operation == "c" else {"id": 1}, {"id": number}, source=source)[1]
    assert made is not None
    return made


MAKERS: dict[str, tuple[Callable[..., bytes], tuple[str, ...], list[Message]]] = {
    "canal-json": (canal_row, ("INSERT", "UPDATE", "DELETE"), [
        canal("CREATE", isDdl=True, sql="CREATE TABLE t(id int)"),
        canal("TIDB_WATERMARK", _tidb={"watermarkTs": TSO}),
        canal("INSERT", [{"id": "1"}], None, ID, id=10**12),
        canal("INSERT", [{"id": "1"}], None, ID, table='a"b'),
        canal("INSERT", [{"id": "1"}], None, ID, pkNames=None),
    ]),
    "debezium": (debezium_row, ("c", "u", "r"), [
        debezium_ddl(TSO, "CREATE TABLE t(id int)", []),
        debezium("m", source={"db": "", "table": ""}),
        debezium("c", None, {"id": 1}, source={"ts_ms": 0, "commit_ts": 1}),
        debezium("c", None, {"id": 1}, source={"table": 'a"b'}),
    ]),
}  # fmt: skip


def contents(split: Split, first: int = 0) -> dict[str, Any]:
    """Return all that the split of a chunk holds; `first` is the position of its first record in a larger chunk."""
    tables = {}
    for table, table_events in split.tables.items():
        assert list(table_events.indexes) == [0] * len(table_events)
        assert list(table_events.event_keys) == [None] * len(table_events)
        tables[table] = [
            (first + position, payload)
            for position, payload in zip(table_events.positions, table_events.payloads, strict=True)
        ]
    return {
        "tables": tables,
        "ddl": [dataclasses.replace(event, position=first + event.position) for event in split.ddl],
        "watermarks": [dataclasses.replace(event, position=first + event.position) for event in split.watermarks],
        "corrupt": [(first + bad.position, bad.index, str(bad.error)) for bad in split.corrupt],
        "skipped": split.skipped,
        "others": split.others,
    }


def one_by_one(protocol: str, chunk: Chunk, wants: Callable[[TableName], bool]) -> dict[str, Any]:
    whole = contents(Split())
    for position in range(len(chunk)):
        alone = contents(PROTOCOLS[protocol].split(chunk.part(position, position + 1), wants), position)
        for table, events in alone.pop("tables").items():
            whole["tables"].setdefault(table, []).extend(events)
        for name, items in alone.items():
            whole[name] += items
    return whole


def assert_same(
    protocol: str,
    values: list[bytes | None],
    wants: Callable[[TableName], bool] = every_table,
    learned: Learned | None = None,
) -> Split:
    """Check that a chunk splits as its messages do one by one, with the tables in the same order."""
    chunk = chunk_of(values)
    split = PROTOCOLS[protocol].split(chunk, wants, learned)
    at_once, expected = contents(split), one_by_one(protocol, chunk, wants)
    assert at_once == expected, SEED
    assert list(at_once["tables"]) == list(expected["tables"])
    return split


def mixture(protocol: str, chooser: random.Random) -> list[bytes | None]:
    """Make messages of a few tables, mostly of one, with some of everything else among them."""
    make, operations, rare = MAKERS[protocol]
    tables = chooser.sample(["t", "u", "T", "other", "o1", "o2", "é"], chooser.randrange(1, 5))
    strange = chooser.choice([0, 0.02, 0.5])
    values: list[bytes | None] = []
    for number in range(chooser.choice([1, 2, 5, 60])):
        table = chooser.choice([tables[0]] * 4 + tables)
        value: bytes | None = make(number, table, chooser.choice(operations))
        if chooser.random() < strange:
            assert value is not None
            value = chooser.choice([
                None, b"", mangled(value[:300], chooser), mangled(value, chooser), chooser.choice(rare)[1],
                bytes(cramjam.lz4.compress(value)), bytes(cramjam.snappy.compress_raw(value)), value[:40],
            ])  # fmt: skip
        values.append(value)
    return values


@pytest.mark.parametrize("protocol", MAKERS)
def test_any_mixture_is_classified_as_each_message_alone(protocol: str) -> None:
    """Tables, DDL, watermarks, tombstones, compressed and broken messages: the same events in the same order."""
    chooser = random.Random(SEED)
    wanted, learned = frozenset({"t", "o1", "é"}), Learned()
    for _ in range(150):
        values = mixture(protocol, chooser)
        assert_same(protocol, values, learned=learned)
        assert_same(protocol, values, lambda table: table.table in wanted, learned)


@pytest.mark.parametrize("protocol", MAKERS)
def test_a_message_that_differs_at_any_byte_of_its_prefix_is_classified_by_itself(protocol: str) -> None:
    """Among equal messages, one with another byte anywhere, or one that ends there, is not taken for one of them."""
    make, operations, _ = MAKERS[protocol]
    length = make(0).index(operations[0].encode() + b'",') + len(operations[0]) + 2
    for index in range(length):
        value = make(1)
        others = [value[:index] + bytes([byte]) + value[index + 1 :] for byte in b'0x"{']
        assert_same(protocol, [make(0), others[0], make(2), others[1], make(3), others[2], value[:index], others[3]])


@pytest.mark.parametrize("protocol", MAKERS)
def test_a_chunk_of_one_table_is_one_range(protocol: str) -> None:
    """If all messages are rows of one table, their positions are a range, whatever the operations."""
    make, operations, _ = MAKERS[protocol]
    values: list[bytes | None] = [make(number, "t", operations[number % 3]) for number in range(30)]

    (table_events,) = assert_same(protocol, values).tables.values()

    assert table_events.positions == range(30)
    table_events.append(30, 0, b"one more")
    assert list(table_events.positions) == list(range(31))
    assert len(values) == 30


@pytest.mark.parametrize("protocol", MAKERS)
def test_values_without_bytes_are_no_event(protocol: str) -> None:
    """Null and empty values, also compressed ones, are counted and not corrupt, alone and beside events."""
    make = MAKERS[protocol][0]
    nothing: list[bytes | None] = [None, b"", None]
    for values, tables in ((nothing, 0), ([b"", make(0), None, make(1), b""], 1), ([*nothing, b"{"], 0)):
        split = assert_same(protocol, values)
        assert (split.skipped, len(split.tables)) == (3, tables)
        assert len(split.corrupt) == values.count(b"{")

    compressed = decoder_of(protocol, make_options(valueCompression="snappy"))
    split = compressed.split(chunk_of([bytes(cramjam.snappy.compress_raw(b"")), None, b""]))
    assert (split.skipped, split.corrupt) == (3, [])


@pytest.mark.parametrize("protocol", MAKERS)
def test_a_topic_that_begins_with_values_without_bytes_is_read(protocol: str) -> None:
    """They tell no protocol, contradict none, and fail no read, whose metrics count them."""
    nothing: list[Message] = [(None, b""), (b"", None), (b"", b"")]
    row = (b"", MAKERS[protocol][0](5))

    assert detect_protocol([chunk_of([value for _, value in nothing])]) is None
    assert detect_protocol([chunk_of([b"", row[1]])]) == protocol
    assert [found["id"] for found in rows(*nothing, row, row, schemaHints="id int")] == [5, 5]
    captured = Captured.of(*nothing, row, *nothing)
    assert captured.read(outputFormat="record")["_event_types"].to_pylist() == [*[[]] * 3, ["row"], *[[]] * 3]
    schema, options = captured.schema(schemaHints="id int"), make_options(schemaHints="id int")
    (offset_range,) = captured.ranges()
    spec = captured.spec(schema, options, captured.context(schema, options), offset_range)
    state = ReadState.of(spec)
    assert sum(batch.num_rows for batch in read(captured.fetch(offset_range), spec, state)) == 1
    assert state.counters.skipped == 6


@pytest.mark.parametrize("protocol", [*MAKERS, "open-protocol"])
def test_tables_that_are_not_wanted_are_counted(protocol: str) -> None:
    """Their row events are counted and not kept."""
    if protocol == "open-protocol":
        records = [open_message(open_row({}), open_row({}, "u")), open_message(open_row({}, "u"))]
        chunk = Chunk("t", 0, [0, 1], [-1, -1], [key for key, _ in records], [value for _, value in records])
    else:
        make = MAKERS[protocol][0]
        chunk = chunk_of([make(0), make(1, "u"), bytes(cramjam.lz4.compress(make(2, "u")))])

    split = PROTOCOLS[protocol].split(chunk, lambda table: table == TableName("test", "t"))

    assert list(split.tables) == [TableName("test", "t")]
    assert (split.others, split.corrupt) == (2, [])


def test_what_the_native_path_learns_has_a_limit(native_path: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The native path forgets its prefixes before a chunk if there are too many, and classifies messages rightly."""
    monkeypatch.setattr(prefix_match, "_MOST_LEARNED", 10)
    learned = Learned()
    for first in range(0, 40, 8):
        values: list[bytes | None] = [canal_row(number, f"t{number}") for number in range(first, first + 8)]
        assert len(assert_same("canal-json", values, learned=learned).tables) == len(values)
        assert isinstance(learned.prefixes, native_path.Prefixes)
        assert 0 < len(learned.prefixes) <= 10 + 8


def test_numbers_that_differ_in_each_message_are_not_learned() -> None:
    """A producer that numbers its messages in `id` does not fill the memory; they are classified rightly."""
    values: list[bytes | None] = [canal_row(number, id=number) for number in range(20)]
    learned = Learned()

    assert_same("canal-json", values, learned=learned)

    assert learned.prefixes is None or len(learned.prefixes) == 1


@pytest.mark.parametrize("protocol", MAKERS)
def test_names_that_look_like_values_are_told_apart(protocol: str) -> None:
    """Tables whose names are a colon and a number are different tables."""
    make, operations, _ = MAKERS[protocol]
    values: list[bytes | None] = [make(number, f":{number % 3}", operations[0]) for number in range(30)]
    learned = Learned()

    for some in (values[:1], values[1:2], values):
        assert_same(protocol, some, learned=learned)
    split = assert_same(protocol, values, lambda table: table.table == ":2", learned)

    assert [(table.table, len(events)) for table, events in split.tables.items()] == [(":2", 10)]
