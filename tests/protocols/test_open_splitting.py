"""Records of open-protocol whose events are rows of one table split as their frames say."""

import random
from typing import Any

import cramjam
import pyarrow as pa
import pytest

from tests.support.messages import TSO, Message, open_message, open_row
from tests.support.mutations import mangled
from ticdc_source.kernels.arrays import Binaries
from ticdc_source.kernels.native import messages_of, native
from ticdc_source.protocols import PROTOCOLS
from ticdc_source.protocols.base import Learned
from ticdc_source.protocols.decoding import splits_of
from ticdc_source.protocols.events import Split
from ticdc_source.schema.table_name import TableName, every_table
from ticdc_source.sources.chunk import Chunk

pytestmark = pytest.mark.usefixtures("native_path")
DECODER = PROTOCOLS["open-protocol"]
SEED = 20261121


def large_marks(key_frame: dict[str, Any]) -> dict[str, Any]:
    return {name: key_frame[name] for name in ("ccl", "ohk") if name in key_frame}


def contents(split: Split) -> Any:
    """Return all that a split holds, and of each key frame what decoding needs."""
    tables = {
        table: [
            (position, index, payload, *((key, {}) if isinstance(key, int) else (key["ts"], large_marks(key))))
            for position, index, payload, key in zip(
                table_events.positions,
                table_events.indexes,
                table_events.payloads,
                table_events.keys_of(range(len(table_events))),
                strict=True,
            )
        ]
        for table, table_events in split.tables.items()
    }
    corrupt = [(bad.position, bad.index, str(bad.error)) for bad in split.corrupt]
    return list(tables), tables, split.ddl, split.watermarks, corrupt, split.skipped, split.others


def together(parts: list[Any]) -> Any:
    """Return the contents of several splits of one chunk as those of one."""
    tables: dict[TableName, list[Any]] = {}
    for _, some, *_ in parts:
        for table, events in some.items():
            tables.setdefault(table, []).extend(events)
    others = [[each for part in parts for each in part[number]] for number in (2, 3, 4)]
    return tables, others, [sum(part[number] for part in parts) for number in (5, 6)]


def assert_same(records: list[Message], wanted: str = "") -> int:
    """Check that records split alike in native code and without; return how many records native code took."""
    count, keys, values = len(records), [key for key, _ in records], [value for _, value in records]
    chunk = Chunk("t", 0, list(range(count)), [-1] * count, keys, values)
    wants = (lambda table: table.table == wanted) if wanted else every_table
    expected = [contents(split) for split in splits_of(DECODER, chunk, wants)]
    if any(value is None for value in values):  # only such as the fetch puts side by side are split in native code
        return 0
    chunk.values = Binaries.of(pa.array(values, pa.binary()))
    in_native = [contents(split) for split in splits_of(DECODER, chunk, wants, Learned())]
    assert together(in_native) == together(expected), SEED  # parts may end at another record
    assert native is not None
    return count - len(native.split_frames(keys, messages_of(chunk.values)).declined)


def record(chooser: random.Random) -> Message:
    tables = chooser.choice([["t"], ["u"], ["é"], ["t", "u"], ['a"b'], ["a\\b"], ["x\x01"], [""]])
    more: dict[str, Any] = chooser.choice([{}] * 9 + [{"ohk": True}, {"ccl": "s3://x"}, {"t": 3}, {"rid": 1}])
    commit_ts = chooser.choice([TSO] * 6 + [7, 0, (1 << 63) - 1, 1 << 63, 10**17, 10**18])
    events = [
        open_row({"u": {"n": number}}, chooser.choice(tables), ts=commit_ts + number, **more)
        for number in range(chooser.choice([1, 2, 16]))
    ]
    return open_message(*events)


def test_any_record_splits_as_its_frames_say() -> None:
    """Rows of one table and of several, large messages, other events, broken keys and values."""
    chooser = random.Random(SEED)
    hits = 0
    for _ in range(300):
        records = [record(chooser) for _ in range(10)]
        for number, (key, value) in enumerate(records):
            chance = chooser.random()
            if chance < 0.1:
                records[number] = (mangled(key or b"", chooser), value)
            elif chance < 0.2:
                records[number] = (key, mangled(value or b"", chooser))
            elif chance < 0.23:
                records[number] = chooser.choice([(None, value), (key, None), (b"", b""), (key, b"")])
        hits += assert_same(records, chooser.choice(["", "t"]))
    assert hits > 400


def test_a_key_that_differs_at_any_byte_is_read_as_its_frames_say() -> None:
    """Lengths, digits, names and types, in the first event and in later ones; and keys that end at any byte."""
    key, value = open_message(*(open_row({"u": {}}, ts=TSO + number) for number in range(3)))
    assert key is not None
    for offset in range(len(key)):
        others = [key[:offset] + bytes([byte]) + key[offset + 1 :] for byte in b'0x"{\x00\xff']
        assert_same([(other, value) for other in (key, key[:offset], *others)])


@pytest.mark.parametrize("second", [b"0123", b"12 3", b"1e99", b"-123", b"12.5", b"567", b"56789", b""])
def test_only_plain_numbers_are_commit_ts(second: bytes) -> None:
    """Anything that a parser reads differently or refuses is left to the parser, also behind a correct event."""
    first, value = open_message(open_row({}, ts=1234), open_row({}, ts=5678))
    assert first is not None

    assert not assert_same([(first.replace(b"5678", second), value)])
    assert not assert_same([(first.replace(b"1234", second), value)])


def test_a_table_that_is_not_wanted_is_counted() -> None:
    """Its rows are counted and not kept, in a record of their own or beside rows of other tables."""
    records = [
        open_message(open_row({"u": {}}, "u"), open_row({"u": {}}, "u")),
        open_message(open_row({"u": {}}, "t"), open_row({"u": {}}, "u")),
        open_message(open_row({"u": {}}, "t")),
    ]

    assert assert_same(records, "t") == 2
    chunk = Chunk("t", 0, [0, 1, 2], [-1] * 3, [key for key, _ in records], [value for _, value in records])
    split = DECODER.split(chunk, lambda table: table == TableName("test", "t"))
    assert [(str(table), len(table_events)) for table, table_events in split.tables.items()] == [("test.t", 2)]
    assert split.others == 3


def test_a_compressed_frame_may_begin_with_a_brace() -> None:
    """A raw snappy block of 123 bytes begins with a brace, its length: it is no JSON."""
    plain = b'{"u":{"c":{"t":15,"f":64,"v":"' + b'"}}}'.rjust(93, b"x")
    block = bytes(cramjam.snappy.compress_raw(plain))
    assert (len(plain), block[:1]) == (123, b"{")
    key, _ = open_message(open_row({"u": {}}))

    assert_same([(key, len(frame).to_bytes(8, "big") + frame) for frame in (block, plain)])
