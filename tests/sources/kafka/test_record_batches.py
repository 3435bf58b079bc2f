"""The two record paths are one: what kafka-python unpacks record by record is what we cut out of its record batches."""

import json
import random
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from kafka import TopicPartition
from kafka.consumer.fetcher import Fetcher as KafkaFetcher
from kafka.protocol.consumer import IsolationLevel
from kafka.record import MemoryRecords
from kafka.record.memory_records import MemoryRecordsBuilder
from kafka.record.util import decode_varint

from tests.support.captured import Captured, make_options
from tests.support.messages import canal
from tests.support.record_batches import (
    CODECS,
    CONTROL,
    HEADER,
    LOG_APPEND_TIME,
    at_offset,
    batch_of,
    changed,
    made,
    next_offset,
    record_of,
)
from tests.support.seeds import each_seed
from ticdc_source.errors import DecodeError
from ticdc_source.pipeline.read import read
from ticdc_source.sources.chunk import Chunk, FetchSettings
from ticdc_source.sources.kafka import cut as cutting
from ticdc_source.sources.kafka.cut import chunks_of
from ticdc_source.sources.kafka.kafka_python.slicing import Slice, SliceLimits
from ticdc_source.sources.kafka.record_batches import Fetched, record_batches

TOPIC_PARTITION = TopicPartition("t", 3)
END = 1 << 63  # of a range without an end

Row = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


class Aborted(NamedTuple):
    """An aborted transaction, as a fetch names it."""

    producer_id: int
    first_offset: int


def marker(offset: int, producer: int, *, commit: bool) -> bytes:
    """A control batch: the end of a transaction."""
    builder = MemoryRecordsBuilder(2, 0, 1000, 0, True, producer, 0, 0)
    builder.append(1, struct.pack(">hh", 0, commit), struct.pack(">hi", 0, 0))
    builder.close()
    return at_offset(changed(bytes(builder.buffer()), flags=CONTROL), offset)


def log(rng: random.Random, *, headers: bool = True) -> tuple[list[bytes], list[Aborted]]:
    """Record batches as a broker keeps them, transactions among them, and which of those were aborted."""
    batches, aborted = [], []
    offset = rng.choice([0, 7, 1 << 40])
    for _ in range(rng.randint(1, 6)):
        producer = rng.choice([-1, -1, 5, 6])
        flags = rng.choice([0, 0, LOG_APPEND_TIME])
        batch = changed(made(rng, offset, producer=producer, headers=headers), flags=flags, epoch=rng.randint(0, 3))
        batches.append(batch)
        if producer >= 0:
            commit = rng.random() < 0.5
            if not commit:
                aborted.append(Aborted(producer, offset))
            batches.append(marker(next_offset(batch), producer, commit=commit))
        offset = next_offset(batches[-1]) + rng.choice([0, 0, 3])
    return batches, aborted


def general(data: bytes, start: int, **how: Any) -> tuple[list[Row], Any, Exception | None]:
    part = KafkaFetcher.PartitionRecords(start, TOPIC_PARTITION, MemoryRecords(data), **how)
    rows: list[Row] = []
    try:
        while part:
            for record in part.take(7):
                timestamp = -1 if record.timestamp is None else record.timestamp  # None for message format v0
                rows.append((record.offset, timestamp, record.key, record.value, record.headers))
    except Exception as error:  # noqa: BLE001 (compared)
        return rows, part, error
    return rows, part, None


def cut(data: bytes, start: int, limits: FetchSettings, **how: Any) -> tuple[list[Row], Any, Exception | None]:
    """What we make of it: the same with the native path and without."""
    rows, part, error = cut_once(data, start, limits, **how)
    without, its_part, its_error = cut_once(data, start, replace(limits, native=False), **how)
    assert rows == without
    assert repr(error) == repr(its_error)
    assert part.next_fetch_offset == its_part.next_fetch_offset
    return rows, part, error


def cut_once(data: bytes, start: int, limits: FetchSettings, **how: Any) -> tuple[list[Row], Any, Exception | None]:
    part = Slice(SliceLimits(limits, END), start, TOPIC_PARTITION, MemoryRecords(data), **how)
    rows: list[Row] = []
    try:
        for chunks in part.take(1):
            for chunk in chunks:
                size = sum(len(part or b"") for part in (*chunk.keys, *chunk.values))
                assert 0 < len(chunk) <= limits.max_records
                assert len(chunk) == 1 or size <= limits.max_bytes
                assert (chunk.topic, chunk.partition) == TOPIC_PARTITION
                headers = [[]] * len(chunk) if chunk.headers is None else chunk.headers
                rows += zip(chunk.offsets, chunk.timestamps, chunk.keys, chunk.values, headers, strict=True)
    except DecodeError as error:
        return rows, part, error
    return rows, part, None


def limits_of(max_records: int, max_bytes: int = 1 << 30, *, include_headers: bool = True) -> FetchSettings:
    return FetchSettings(max_records=max_records, max_bytes=max_bytes, include_headers=include_headers)


def some_limits(rng: random.Random) -> FetchSettings:
    return limits_of(rng.choice([1, 7, 100, 1000]), rng.choice([1, 500, 1 << 20]))


@each_seed(300)
def test_both_paths_give_the_same_records(seed: int) -> None:
    """Nulls, headers, times of both kinds, holes, transactions, and a start anywhere: the same, and then the same."""
    rng = random.Random(seed)
    batches, aborted = log(rng, headers=bool(seed % 2))
    data = b"".join(batches)
    (first,) = struct.unpack_from(">q", data)
    start = rng.randint(first, min(next_offset(batches[0]) - 1, first + 400))
    data = data[: len(data) - rng.choice([0, 0, 1, 30])]  # a broker sends as many bytes as it was asked for
    level = rng.choice([IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED])
    how = {"isolation_level": level, "aborted_transactions": aborted}
    expected, theirs, failure = general(data, start, **how)
    rows, ours, error = cut(data, start, some_limits(rng), **how)
    assert failure is error is None
    assert rows == expected
    assert (ours.next_fetch_offset, ours.leader_epoch) == (theirs.next_fetch_offset, theirs.leader_epoch)
    assert bool(ours) is bool(theirs) is False


@pytest.mark.usefixtures("native_path")
@each_seed(30)
def test_whole_record_batches_are_read_natively(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whole record batches none is read one by one, whatever their keys, values, headers, times and offsets are."""

    def one_by_one(*_: Any, **__: Any) -> None:
        pytest.fail("read one by one")

    rng = random.Random(seed)
    batches, _ = log(rng, headers=bool(seed % 3))
    data = b"".join(changed(batch, codec=rng.choice([None, *CODECS])) for batch in batches)
    expected, _, _ = general(b"".join(batches), 0)
    monkeypatch.setattr(cutting, "cut_records", one_by_one)
    rows, _, error = cut_once(data, 0, limits_of(rng.choice([1, 7, 100, 1000]), include_headers=bool(seed % 2)))
    assert error is None
    assert [row[: 4 + seed % 2] for row in rows] == [row[: 4 + seed % 2] for row in expected]


@pytest.mark.usefixtures("native_path")
@each_seed(60)
def test_records_that_are_declined_are_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the native path has found and then declines, is read one by one."""
    rng = random.Random(seed)
    data = b"".join(log(rng)[0])
    expected, _, _ = general(data, 0)
    monkeypatch.setattr(cutting, "add_runs", lambda *_: False)
    rows, _, error = cut_once(data, 0, some_limits(rng))
    assert error is None
    assert rows == expected


def test_offsets_at_the_end_of_all_numbers() -> None:
    """Offsets and times that 64 bits hardly hold are those that the general path gives."""
    batch = bytearray(made(random.Random(5), (1 << 63) - 1_000, count=300, headers=False))
    struct.pack_into(">q", batch, 27, -(1 << 63) + 2 * 10**9)
    data = changed(bytes(batch))
    expected, _, _ = general(data, 0)
    rows, _, error = cut(data, 0, limits_of(1000, include_headers=False))
    assert error is None
    assert rows == expected
    assert len(rows) == 300


@each_seed(20)
def test_headers_that_nobody_wants_are_passed_over(seed: int) -> None:
    """Without headers the other parts are the same."""
    rng = random.Random(seed)
    data = b"".join(log(rng)[0])
    expected, _, _ = general(data, 0)
    rows, _, error = cut(data, 0, limits_of(100, 1 << 20, include_headers=False))
    assert error is None
    assert [row[:4] for row in rows] == [row[:4] for row in expected]


@pytest.mark.parametrize("codec", CODECS)
@each_seed(8)
def test_compressed_batches(codec: str, seed: int) -> None:
    """Each codec gives what the same records give without it, wherever the pieces it comes in are cut."""
    rng = random.Random(seed)
    plain = [made(rng, 0)]
    for _ in range(3):
        plain.append(made(rng, next_offset(plain[-1])))
    start = min(3, next_offset(plain[0]) - 1)
    expected, _, _ = general(b"".join(plain), start)
    data = b"".join(changed(batch, codec=codec) for batch in plain)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ticdc_source.sources.kafka.cut._PIECE", rng.choice([1, 100, 5_000, 1 << 20]))
        rows, _, error = cut(data, start, some_limits(rng))
    assert error is None
    assert rows == expected


def test_snappy_without_blocks() -> None:
    """A batch that is one block of snappy, as some producers write it, is read too."""
    batch = made(random.Random(1), 0)
    head, body = batch[:HEADER], pa.compress(batch[HEADER:], codec="snappy", asbytes=True)
    rows, _, error = cut(changed(head + body, flags=2), 0, some_limits(random.Random(1)))
    assert error is None
    assert rows == general(batch, 0)[0]


@pytest.mark.parametrize("magic", [0, 1])
@each_seed(10)
def test_old_message_formats(magic: int, seed: int) -> None:
    """Formats v0 and v1, compressed or not, which old topics still hold, also before batches of format v2."""
    rng = random.Random(seed)
    old = made(rng, 0, magic)
    data = old + made(rng, 500)
    expected, theirs, failure = general(data, 1)
    rows, ours, error = cut(data, 1, some_limits(rng))
    assert failure is error is None
    assert rows == expected
    assert ours.next_fetch_offset == theirs.next_fetch_offset


@each_seed(200)
def test_damage_is_never_read_otherwise(seed: int) -> None:
    """Of a damaged fetch both paths give the same records before they fail, and neither fails alone."""
    rng = random.Random(seed)
    data = bytearray().join(log(rng)[0])
    at = rng.randrange(HEADER if seed % 2 else 0, len(data))
    data[at] ^= 1 << rng.randrange(8)
    expected, _, failure = general(bytes(data), 0)
    rows, _, error = cut(bytes(data), 0, some_limits(rng))
    assert (failure is None) is (error is None)
    assert rows == expected


def attributes_of(batch: bytes) -> Iterator[int]:
    """Where the attributes of records are: a byte in Kafka's guide and client, a varint in kafka-python."""
    at = HEADER
    while at < len(batch):
        length, at = decode_varint(batch, at)
        yield at
        at += length


@each_seed(400)
def test_damage_inside_a_batch_that_nobody_checks(seed: int) -> None:
    """With check.crcs=false damage is an error, or the same records, as long as offsets rise."""
    rng = random.Random(seed)
    plain = made(rng, 0, largest=128, headers=bool(seed % 2))
    data = bytearray(plain)
    at = rng.choice(sorted(set(range(HEADER, len(data))) - set(attributes_of(plain))))
    data[at] = rng.choice([0, 1, 127, 128, 255, data[at] ^ 1])
    expected, _, failure = general(bytes(data), 0, check_crcs=False)
    limits = some_limits(rng)
    rows, _, error = cut(bytes(data), 0, limits, check_crcs=False)
    both = min(len(rows), len(expected)) if failure or error else max(len(rows), len(expected))
    offsets = [row[0] for row in expected[:both]]
    if offsets == sorted(set(offsets)) and offsets[:1] >= [0]:
        assert rows[:both] == expected[:both]


def test_damage_keeps_what_comes_before_it() -> None:
    """The records before a batch with a wrong checksum are given, and then the error names its offset."""
    rng = random.Random(0)
    one = made(rng, 0)
    other = bytearray(made(rng, next_offset(one)))
    other[-1] ^= 1
    rows, _, error = cut(one + bytes(other), 0, limits_of(10_000))
    assert rows == general(one, 0)[0]
    assert isinstance(error, DecodeError)
    assert f"t-3 at offset {next_offset(one)} failed crc check" in str(error)


GOOD = [record_of(delta) for delta in range(6)]
LIES = {
    "a value that reaches into the next record": (record_of(3, value_length=4), GOOD[4], GOOD[5]),
    "a value that reaches behind the batch": (GOOD[3], GOOD[4], record_of(5, value_length=100)),
    "a value that reaches into its own headers": (record_of(3, value_length=2, headers=b"\2\2h\2x"), GOOD[4], GOOD[5]),
    "no count of headers": (record_of(3, headers=b""), GOOD[4], GOOD[5]),
    "no count of headers at the end": (GOOD[3], GOOD[4], record_of(5, headers=b"")),
    "more headers than there are": (record_of(3, headers=b"\4\2h\1"), GOOD[4], GOOD[5]),
    "fewer headers than there are": (record_of(3, headers=b"\0\2h\1"), GOOD[4], GOOD[5]),
    "a negative count of headers": (record_of(3, headers=b"\1"), GOOD[4], GOOD[5]),
    "a header whose name has a negative length": (record_of(3, headers=b"\2\1\1"), GOOD[4], GOOD[5]),
    "a record that is longer than its parts": (record_of(3, longer=1), GOOD[4], GOOD[5]),
    "a record that is shorter than its parts": (record_of(3, longer=-1), GOOD[4], GOOD[5]),
    "a record of negative length": (b"\1" + GOOD[3][1:], GOOD[4], GOOD[5]),
    "a number of more than 64 bits": (record_of(3, headers=b"\x80" * 10 + b"\0"), GOOD[4], GOOD[5]),
    "a time of more than 64 bits": (record_of(3, time_delta=(1 << 63) - 1), GOOD[4], GOOD[5]),
    "an offset that is there already": (record_of(2), GOOD[4], GOOD[5]),
    "an offset that falls": (record_of(0), GOOD[3], GOOD[5]),
    "an offset before the batch": (record_of(-1), GOOD[4], GOOD[5]),
    "an offset behind the batch": (record_of(6), GOOD[4], GOOD[5]),
    "an offset far behind the batch": (record_of(1 << 62), GOOD[4], GOOD[5]),
    "a last offset behind the batch": (GOOD[3], GOOD[4], record_of(6)),
}


@pytest.mark.parametrize("codec", [None, "zstd"])
@pytest.mark.parametrize("lie", LIES)
def test_a_record_that_lies_is_an_error(lie: str, codec: str | None) -> None:
    """Behind a valid checksum too, a wrong length or offset is an error: the same for all limits, on both paths."""
    records = [*GOOD[:3], *LIES[lie]]
    first_lie = next(index for index, pair in enumerate(zip(records, GOOD, strict=True)) if pair[0] != pair[1])
    compacted = batch_of([record_of(0), record_of(2)], 10, 4)
    lying = changed(batch_of(records, 15, 5), codec=codec)
    reasons = set()
    for start, data in ((10, compacted + lying), (12, compacted + lying), (16, lying)):
        expected = [offset for offset in (10, 12, *range(15, 15 + first_lie)) if offset >= start]
        for sizes in ((1, 1), (1, 1000), (2, 1000), (3, 1000), (4, 1000), (1000, 20), (1000, 1000)):
            for headers in (False, True):
                rows, _, error = cut(data, start, limits_of(*sizes, include_headers=headers))
                assert isinstance(error, DecodeError)
                assert [row[0] for row in rows] == expected
                reasons.add(error.reason)
    (reason,) = reasons
    assert ("Record batch at offset 15 has a record at offset " in reason) is ("offset" in lie)


def test_a_header_whose_name_is_not_utf8_is_an_error_if_headers_are_wanted() -> None:
    """The native path takes none of the records then: the error says what is wrong."""
    data = batch_of([record_of(0, headers=b"\2\2\xff\1")], 10, 0)
    _, _, error = cut(data, 10, limits_of(10))
    rows, _, none = cut(data, 10, limits_of(10, include_headers=False))
    assert "not UTF-8" in str(error)
    assert none is None
    assert len(rows) == 1


@each_seed(60)
def test_offsets_that_do_not_rise_are_an_error_for_all_limits(seed: int) -> None:
    """Whatever offsets the records have, and wherever a read starts: all that rise are given, and then the error."""
    rng = random.Random(seed)
    deltas = [rng.randrange(-1, 9) for _ in range(rng.randint(2, 6))] if seed % 2 else sorted(rng.sample(range(8), 5))
    rising = next((at for at, delta in enumerate(deltas) if not max([-1, *deltas[:at]]) < delta < 8), len(deltas))
    data = batch_of([record_of(delta) for delta in deltas], 100, 7)
    for start in range(100, 108):
        for max_records in (1, 2, 3, 1000):
            rows, _, error = cut(data, start, limits_of(max_records, include_headers=False))
            assert [row[0] - 100 for row in rows] == [delta for delta in deltas[:rising] if delta >= start - 100]
            assert (error is None) is (rising == len(deltas))


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_not_compressed_so_is_an_error(codec: str) -> None:
    """A batch that says a codec it was not compressed with, or that was cut off inside, is damaged."""
    batch = made(random.Random(3), 0)
    cut_off = changed(batch, codec=codec)[:-20]
    for damaged in (changed(batch, flags=CODECS[codec]), changed(cut_off)):
        rows, _, error = cut(damaged, 0, some_limits(random.Random(0)))
        assert isinstance(error, DecodeError)
        assert rows == general(batch, 0)[0][: len(rows)]


def test_an_unknown_codec_is_named() -> None:
    """A codec that nobody has is an error that says so."""
    _, _, error = cut(changed(made(random.Random(0), 0), flags=7), 0, some_limits(random.Random(0)))
    assert isinstance(error, DecodeError)
    assert "compression type 7" in str(error)


def test_a_batch_that_unpacks_to_a_hundred_times_its_size_is_cut_as_it_comes() -> None:
    """Of 100 MB in 100 kB no more than some megabytes lie in memory at once."""
    values = MemoryRecordsBuilder(2, 0, 1 << 30)
    for _ in range(100):
        values.append(0, None, bytes(1 << 20))
    values.close()
    data = changed(bytes(values.buffer()), codec="zstd")
    del values
    assert len(data) < 1 << 20
    before = pa.total_allocated_bytes()
    limits = SliceLimits(limits_of(1000, 4 << 20, include_headers=False), END)
    (chunks,) = Slice(limits, 0, TOPIC_PARTITION, MemoryRecords(data)).take(1)
    sizes = []
    for chunk in chunks:
        sizes.append(sum(len(value or b"") for value in chunk.values))
        assert pa.total_allocated_bytes() - before < 16 << 20
    assert sum(sizes) == 100 << 20
    assert max(sizes) <= 4 << 20


def test_nothing_is_fetched_behind_the_end_of_a_range() -> None:
    """A fetch that reaches the range's end stays in the way of the next one, which gets none of its records."""
    data = made(random.Random(0), 0)
    for end, wants_more in ((next_offset(data), False), (next_offset(data) + 1, True)):
        drained: list[Any] = []
        limits = SliceLimits(limits_of(10, 1 << 20, include_headers=False), end)
        part = Slice(limits, 0, TOPIC_PARTITION, MemoryRecords(data), on_drain=drained.append)
        part.take(1)
        assert part.next_fetch_offset == next_offset(data)
        assert bool(part) is not wants_more
        assert part.take(1) == []
        assert not part
        assert drained == [part]


@pytest.mark.parametrize("key", [None, b"", b"\0\0"])
def test_a_marker_without_its_key_is_damage(key: bytes | None) -> None:
    """A transaction marker whose key is missing or short is an error, and never read from the bytes behind it."""
    builder = MemoryRecordsBuilder(2, 0, 1000, 0, True, 7, 0, 0)
    builder.append(1, key, struct.pack(">hi", 0, 0), [])
    builder.close()
    data = at_offset(changed(bytes(builder.buffer()), flags=CONTROL), 1)

    committed = {"isolation_level": IsolationLevel.READ_COMMITTED, "aborted_transactions": [Aborted(7, 0)]}
    rows, _, error = cut(data, 0, FetchSettings(max_records=10, max_bytes=1 << 20, include_headers=False), **committed)

    assert not rows
    assert isinstance(error, DecodeError)


@pytest.mark.parametrize("others_data_follows", [False, True])
def test_a_marker_that_the_cleaner_emptied_ends_its_transaction(*, others_data_follows: bool) -> None:
    """A control batch without records, as a compacted topic keeps it, is no error and aborts nothing behind it."""
    rng = random.Random(4)
    first, last = made(rng, 0, producer=7, count=3), made(rng, 9, producer=7, count=2)
    empty = bytearray(marker(next_offset(first), 7, commit=False)[:HEADER])
    struct.pack_into(">i", empty, 57, 0)  # the count of records
    data = first + changed(bytes(empty)) + (last if others_data_follows else b"")

    committed = {"isolation_level": IsolationLevel.READ_COMMITTED, "aborted_transactions": [Aborted(7, 0)]}
    rows, part, error = cut(data, 0, some_limits(rng), **committed)

    assert error is None
    assert rows == (general(last, 9)[0] if others_data_follows else [])
    assert part.next_fetch_offset == next_offset(last if others_data_follows else bytes(empty))


def test_an_offset_that_was_changed_on_its_way_is_damage() -> None:
    """A batch's first offset, which no checksum covers, must fit the request, its neighbours and the end of the log."""
    rng = random.Random(5)
    start = 1000
    batches = [made(rng, start, count=10)]
    for _ in range(3):
        batches.append(made(rng, next_offset(batches[-1]), count=10))
    end = next_offset(batches[-1])
    missed = 0
    for index in range(len(batches)):
        for bit in range(64):
            damaged = list(batches)
            damaged[index] = at_offset(batches[index], _signed(1000 + 10 * index ^ 1 << bit))
            limits = SliceLimits(limits_of(100), END, lambda _: end, start)
            part = Slice(limits, start, TOPIC_PARTITION, MemoryRecords(b"".join(damaged)))
            rows = []
            try:
                for chunks in part.take(1):
                    rows += [offset for chunk in chunks for offset in chunk.offsets]
            except DecodeError:
                assert rows == list(range(start, start + len(rows)))
            else:
                missed += 1
    assert missed == 0


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


@pytest.mark.parametrize("records", [-1, 11])
def test_a_batch_cannot_hold_more_records_than_offsets(records: int) -> None:
    """A count of records that the batch's offsets have no room for is damage, also if its checksum is right."""
    batch = bytearray(made(random.Random(6), 0, count=10))
    struct.pack_into(">i", batch, 57, records)
    _, _, error = cut(changed(bytes(batch)), 0, limits_of(100))
    assert isinstance(error, DecodeError)
    assert f"with {records} records" in str(error)


@pytest.mark.parametrize("codec", CODECS)
def test_a_record_that_becomes_too_large_is_a_chunk_that_says_so(codec: str) -> None:
    """Of a compressed record batch no more than the limit is held for one record; the records around it are read."""
    builder = MemoryRecordsBuilder(2, 0, 1 << 30, 0, False, -1, -1, -1)
    sizes = [10, 5 << 20, 20, 6 << 20, (2 << 20) - 100, 30]
    for size in sizes:
        builder.append(1_700_000_000_000, b"k", b"v" * size, [])
    builder.close()
    data = at_offset(changed(bytes(builder.buffer()), codec=codec), 7)

    def found(start: int) -> list[tuple[int, int | None, bool]]:
        fetched = Fetched(topic="t", partition=3, start=start, data=data, read_legacy=lambda *_: ())
        batches, damage = record_batches(data, start)
        limits = FetchSettings(max_records=100, max_bytes=4 << 20, include_headers=True, max_record_bytes=2 << 20)
        return [
            (offset, None if value is None else len(value), "maxMessageBytes" in (chunk.failure or ""))
            for chunk in chunks_of(fetched, batches, damage, limits, END)
            for offset, value in zip(chunk.offsets, chunk.values, strict=True)
        ]

    expected = [(7 + index, size if size < 2 << 20 else None, size > 2 << 20) for index, size in enumerate(sizes)]
    assert found(7) == expected
    assert found(9) == expected[2:]


def test_such_a_record_is_a_bad_record() -> None:
    """`mode` decides about it."""
    message = canal("INSERT", [{"id": "7"}], None, {"id": "int"})
    captured = Captured.of(message, message, message)
    options = make_options(mode="PERMISSIVE")
    schema = captured.schema(mode="PERMISSIVE")
    (chunk,) = captured.fetch(captured.ranges()[0])
    too_large = Chunk("captured", 0, [1], [-1], [None], [None], failure="the record is too large")
    chunks = [chunk.part(0, 1), too_large, chunk.part(2, 3)]

    spec = captured.spec(schema, options, captured.context(schema, options), captured.ranges()[0])
    found = pa.Table.from_batches(read(chunks, spec)).to_pylist()

    assert [row["id"] for row in found] == [7, None, 7]
    bad = json.loads(found[1]["_corrupt_record"])
    assert (bad["reason"], bad["offset"], bad["key"]) == ("the record is too large", 1, None)
