"""The native path reads a part of what the specification reads, record by record, and gives the same."""

import random
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.support.record_batches import HEADER, made
from ticdc_source.errors import DecodeError
from ticdc_source.sources.chunk import Chunk
from ticdc_source.sources.kafka.batches.cut import Run, add_runs
from ticdc_source.sources.kafka.batches.one_by_one import cut_records
from ticdc_source.sources.kafka.batches.record_batches import LOG_APPEND_TIME, RecordBatch

MUTANTS = 4_000  # of each seed


def mutants(rng: random.Random) -> Iterator[bytes]:
    """Yield records with flipped bits, changed bytes, parts left out, doubled or taken from others; and noise."""
    bodies = [made(rng, 0, largest=200, headers=bool(number % 2))[HEADER:][:2000] for number in range(40)]
    for _ in range(MUTANTS):
        data = bytearray(rng.choice(bodies) or b"\0")
        for _ in range(rng.choice([1, 1, 2, 5])):
            at, size = rng.randrange(len(data) + 1), rng.choice([1, 2, 8, 50])
            match rng.randrange(6):
                case 0 if at < len(data):
                    data[at] ^= 1 << rng.randrange(8)
                case 1 if at < len(data):
                    data[at] = rng.choice([0, 1, 2, 127, 128, 129, 255])
                case 2:
                    del data[at : at + size]
                case 3:
                    data[at:at] = data[at : at + size]
                case 4:
                    other = rng.choice(bodies)
                    data[at:] = other[rng.randrange(len(other) + 1) :]
                case _:
                    data[at : at + size] = rng.randbytes(size)
        yield bytes(data)


def one_by_one(batch: RecordBatch, data: bytes, count: int, *, headers: bool) -> tuple[Chunk, int, int]:
    """Cut records as the specification says: the chunk, the index behind them, and how many bytes are missing."""
    chunk = Chunk("t", 0, headers=[] if headers else None)
    after, missing = cut_records(batch, chunk, data, 0, len(data), previous=-1, max_records=count, max_bytes=len(data))
    return chunk, after, missing


@pytest.mark.parametrize("seed", range(5))
def test_what_the_native_path_takes_is_what_the_specification_reads(native_path: ModuleType, seed: int) -> None:
    """Of changed bytes both give equal records, or only the specification gives any; neither reads behind the end."""
    rng = random.Random(seed)
    taken = declined = 0
    for data in mutants(rng):
        flags, headers = rng.choice([0, LOG_APPEND_TIME]), rng.random() < 0.5
        base, time = rng.choice([0, 1 << 40, -5, (1 << 63) - 1]), rng.choice([-1, 1_700_000_000_000, -(1 << 63)])
        batch = RecordBatch(
            start=0,
            body=0,
            end=len(data),
            offset=base,
            next_offset=base + (1 << 40),
            attributes=flags,
            first_timestamp=time,
            max_timestamp=7,
        )
        walked = native_path.walk_records(data, 0, len(data), 1000, len(data))
        count, after, missing = walked.count, walked.after, walked.missing
        assert after <= len(data)
        chunk = Chunk("t", 0, headers=[] if headers else None)
        if not count or not add_runs(native_path, [Run(batch, data, 0, after, count)], chunk, -1):
            declined += 1
            assert len(chunk) == 0
            continue
        taken += 1
        expected, its_after, _ = one_by_one(batch, data, count, headers=headers)
        assert (list(chunk.offsets), chunk.timestamps) == (expected.offsets, expected.timestamps)
        assert (chunk.keys, list(chunk.values), chunk.headers) == (expected.keys, expected.values, expected.headers)
        assert after == its_after
        if missing:
            nothing, at, its_missing = cut_rest(batch, data, after)
            assert (len(nothing), at, its_missing) == (0, after, missing)
    assert min(taken, declined) > MUTANTS // 50, (taken, declined)


def cut_rest(batch: RecordBatch, data: bytes, at: int) -> tuple[Chunk, int, int]:
    """Cut the next record, as the specification says."""
    chunk = Chunk("t", 0)
    return chunk, *cut_records(batch, chunk, data, at, len(data), previous=-1, max_records=1, max_bytes=len(data))


@pytest.mark.parametrize("headers", [False, True])
def test_a_chunk_of_several_pieces(native_path: ModuleType, *, headers: bool) -> None:
    """Records that lie in different bytes form one chunk, behind those that it has already."""
    rng = random.Random(3)
    bodies = [made(rng, 0, largest=100, count=20)[HEADER:] for _ in range(4)]
    batches = [
        RecordBatch(start=0, body=0, end=len(body), offset=20 * number, next_offset=20 * number + 20)
        for number, body in enumerate(bodies)
    ]
    chunk, expected = (Chunk("t", 0, headers=[] if headers else None) for _ in range(2))
    for batch, body in zip(batches, bodies, strict=True):
        cut_records(batch, expected, body, 0, len(body), previous=-1, max_records=20, max_bytes=len(body))
    runs = [Run(batch, body, 0, len(body), 20) for batch, body in zip(batches, bodies, strict=True)]
    assert add_runs(native_path, runs[:1], chunk, -1)
    assert add_runs(native_path, runs[1:], chunk, 19)
    assert list(chunk.offsets) == expected.offsets == list(range(80))
    assert (chunk.timestamps, chunk.keys, list(chunk.values), chunk.headers) == (
        expected.timestamps,
        expected.keys,
        expected.values,
        expected.headers,
    )


def test_a_header_that_is_not_utf8_is_left_to_the_specification(native_path: ModuleType) -> None:
    """Its error says what is wrong; the native path takes none of the records."""
    body = bytes([0, 0, 0, 1, 1, 2, 2, 0xFF, 1])  # attributes, time, offset, no key, no value, one header
    data = bytes([2 * len(body)]) + body
    batch = RecordBatch(start=0, body=0, end=len(data), offset=0, next_offset=1)
    chunk = Chunk("t", 0, headers=[])
    walked = native_path.walk_records(data, 0, len(data), 5, 100)
    assert (walked.count, walked.after, walked.missing) == (1, len(data), 1)
    assert not add_runs(native_path, [Run(batch, data, 0, len(data), 1)], chunk, -1)
    with pytest.raises(DecodeError, match="not UTF-8"):
        one_by_one(batch, data, 1, headers=True)
    assert add_runs(native_path, [Run(batch, data, 0, len(data), 1)], Chunk("t", 0), -1)
