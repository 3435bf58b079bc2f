"""Random record batches as Kafka stores them, with correct checksums."""

import random
import struct
from collections.abc import Sequence

import pyarrow as pa
from kafka.record.memory_records import MemoryRecordsBuilder
from kafka.record.util import calc_crc32c, encode_varint

HEADER = 61  # bytes before a batch's records
CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
LOG_APPEND_TIME, CONTROL = 0x08, 0x20  # of a batch's attributes
SIZES = (0, 1, 50, 63, 64, 127, 128, 8191, 8192, 70_000)


def changed(batch: bytes, *, flags: int = 0, codec: str | None = None, epoch: int = 0) -> bytes:
    head, body = bytearray(batch[:HEADER]), batch[HEADER:]
    if codec == "snappy":
        body = xerial(body)
    elif codec == "lz4":
        body = lz4_frame(body)
    elif codec is not None:
        body = pa.compress(body, codec=codec, asbytes=True)
    (attributes,) = struct.unpack_from(">h", head, 21)
    struct.pack_into(">h", head, 21, attributes | flags | CODECS.get(codec or "", 0))
    struct.pack_into(">ii", head, 8, len(head) + len(body) - 12, epoch)
    struct.pack_into(">I", head, 17, calc_crc32c(bytes(head[21:]) + body))
    return bytes(head) + body


def xerial(body: bytes, block: int = 1000) -> bytes:
    """Return what snappy-java's stream writes: blocks, each after its length."""
    parts = [b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)]
    for start in range(0, len(body), block):
        packed = pa.compress(body[start : start + block], codec="snappy", asbytes=True)
        parts.append(struct.pack(">i", len(packed)) + packed)
    return b"".join(parts)


def made(
    rng: random.Random,
    offset: int,
    magic: int = 2,
    producer: int = -1,
    largest: int = 70_000,
    count: int = 0,
    *,
    headers: bool = True,
) -> bytes:
    """Return a batch of random records; if `count` is 0, some batches have gaps, as after compaction."""
    compressed = magic < 2 and rng.random() < 0.3
    numbers = (producer, 0, 0) if producer >= 0 else (-1, -1, -1)
    begin = offset if magic < 2 else 0  # a broker writes it into a batch of format v2
    builder = MemoryRecordsBuilder(magic, int(compressed), 1 << 30, begin, producer >= 0, *numbers)
    gaps = not count and magic == 2 and rng.random() < 0.3
    count = count or rng.choice([1, 1, 2, 10, 70, 300])
    sizes = [size for size in SIZES if size <= largest] if count < 20 else SIZES[:6]
    for _ in range(count):
        key = rng.choice([None, b"", b"k", rng.randbytes(rng.choice(sizes))])
        value = rng.choice([None, b"", rng.randbytes(rng.choice(sizes)), rng.randbytes(rng.choice(sizes))])
        own = [("naïve", rng.choice([None, b"", b"v" * 200]))] * rng.choice([0, 0, 0, 1, 3])
        time = 1_700_000_000_000 + rng.choice([0, 5, -5, 70, 9_000, -9_000, 10**9])
        builder.append(time, key, value, own if headers and magic == 2 else [])
        if gaps and rng.random() < 0.5:
            builder.skip(rng.choice([1, 3, 100, 20_000]))
    builder.close()
    return at_offset(bytes(builder.buffer()), offset) if magic == 2 else bytes(builder.buffer())


def batch_of(records: Sequence[bytes], offset: int, last_delta: int) -> bytes:
    """Return a batch of records as they are given, with a correct checksum, whatever they say."""
    batch = bytearray(made(random.Random(0), offset, count=1, headers=False)[:HEADER])
    struct.pack_into(">i", batch, 23, last_delta)
    struct.pack_into(">i", batch, 57, len(records))
    return changed(bytes(batch) + b"".join(records))


def record_of(
    offset_delta: int,
    *,
    value: bytes = b"v",
    value_length: int | None = None,
    headers: bytes = b"\0",
    longer: int = 0,
    time_delta: int = 0,
) -> bytes:
    """Return one record; the length of its value, its headers and its own length may be others than it has."""
    parts = [b"\0", _varint(time_delta), _varint(offset_delta), _varint(-1)]
    body = b"".join([*parts, _varint(len(value) if value_length is None else value_length), value, headers])
    return _varint(len(body) + longer) + body


def _varint(number: int) -> bytes:
    into = bytearray()
    encode_varint(number, into.append)
    return bytes(into)


def lz4_frame(body: bytes, block: int = 32_000) -> bytes:
    """Return an LZ4 frame of independent blocks: Kafka accepts only these, and Arrow writes others."""
    parts = [b"\x04\x22\x4d\x18\x60\x40\x82"]  # version 1, independent blocks of 64 KB at most; a checksum of that
    for start in range(0, len(body), block):
        packed = pa.compress(body[start : start + block], codec="lz4_raw", asbytes=True)
        parts.append(struct.pack("<i", len(packed)) + packed)
    return b"".join([*parts, bytes(4)])


def at_offset(batch: bytes, offset: int) -> bytes:
    """Return a batch of format v2 with another first offset, which the checksum does not cover."""
    return struct.pack(">q", offset) + batch[8:]


def next_offset(batch: bytes) -> int:
    offset, last = struct.unpack_from(">q", batch)[0], struct.unpack_from(">i", batch, 23)[0]
    return int(offset + last + 1)
