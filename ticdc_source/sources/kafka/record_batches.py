"""Finds the visible record batches of a fetch, verifies their checksums, and cuts records one by one.

Layout and transactions are those of Kafka's protocol guide ("Record Batch", message format v2). No client library is
needed, except for the formats before v2 (`read_legacy`).
"""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from crc32c import crc32c

from ticdc_source.errors import DecodeError, counted
from ticdc_source.sources.chunk import Chunk

_V2 = struct.Struct(">qiibIhiqqqhii")
_OVERHEAD = 12  # offset and length, which every format begins with
_LENGTH, _CRC_BEFORE_V2, _MAGIC, _ATTRIBUTES = 8, 12, 16, 21  # the index of each one's first byte
_SHORTEST = _OVERHEAD + 14  # a message of format v0 without key and value
_CONTROL_KEY = struct.Struct(">hh")  # of a control record: version, and type
_ABORT = 0  # that type
_VARINT_BITS = 64  # at most
_MORE = 0x80  # the highest bit of a varint's byte says that another one follows
LOG_APPEND_TIME = 0x08  # of the attributes, as these
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_2_63 = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBatch:
    """A record batch's place in a fetch, and its header. Times are milliseconds since the epoch."""

    start: int  # the index of its first byte
    body: int  # of its records' first byte
    end: int  # behind its last byte
    offset: int  # its first one; that of a legacy message is its last
    next_offset: int  # the one after it, even if its last records were compacted away
    leader_epoch: int = -1  # of the leader that wrote it
    crc: int = 0
    attributes: int = 0  # codec and flags
    first_timestamp: int = -1  # what the records' timestamps are relative to
    max_timestamp: int = -1  # the broker's time, if the topic uses that (`LOG_APPEND_TIME`)
    producer_id: int = -1
    records: int = 0  # how many
    is_legacy: bool = False  # a message of format v0 or v1, with no other fields here

    @property
    def lowest_offset(self) -> int:
        """The lowest possible offset of its records; a legacy message does not have it."""
        return 0 if self.is_legacy else self.offset

    @property
    def highest_offset(self) -> int:
        """The highest possible offset of its records; a producer's legacy message does not have it."""
        return (_2_63 if self.is_legacy else min(self.next_offset, _2_63)) - 1


class AbortedTransaction(Protocol):
    """An aborted transaction in the answer to a fetch."""

    producer_id: int
    first_offset: int


class LegacyRecord(NamedTuple):
    """A record of message format v0 or v1, which has no headers; the timestamp of v0 is -1."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


# Reads the records of one message of format v0 or v1, maybe a compressed set of messages; the second argument says
# whether to verify checksums. Raises DecodeError if the message is damaged.
ReadLegacy: TypeAlias = Callable[[memoryview, bool], Iterable[LegacyRecord]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The answer of one fetch for a topic partition.

    Attributes:
        data: the record batches, one after the other; the last may be cut off.
        aborted: the aborted transactions; None to read their records, too.
    """

    topic: str
    partition: int
    start: int
    data: bytes
    read_legacy: ReadLegacy
    check_crcs: bool = True
    aborted: Iterable[AbortedTransaction] | None = None


def record_batches(
    data: bytes, first: int = -1, end: int | None = None, *, at_batch: bool = False
) -> tuple[list[RecordBatch], str | None]:
    """Find the record batches of a fetch; the last one is left out if it is cut off.

    A batch's checksum does not cover its first offset, which is therefore compared with the request and the batches
    around it.

    Args:
        end: the partition's high watermark, None if unknown.
        at_batch: whether a record batch ends at the requested offset, so that none can begin before it.

    Returns:
        the batches, and what is wrong with the first invalid one (None if all are valid).
    """
    batches, damage = _batches_of(data)
    least = first if at_batch else -1  # where the next batch may begin
    for index, batch in enumerate(batches):
        reason = None
        if batch.is_legacy:  # its offset is its last: what is not wanted is left out record by record
            pass
        elif batch.offset < least or batch.next_offset <= first:
            reason = f", where offset {max(first, least)} or more is expected"
        elif not 0 <= batch.records <= batch.next_offset - batch.offset:
            reason = f" with {counted(batch.records, 'record')}"
        if end is not None and batch.next_offset > end:
            reason = f", but the partition ends at offset {end}"
        if reason is not None:
            return batches[:index], f"a record batch from offset {batch.offset} to {batch.next_offset - 1}{reason}"
        least = batch.next_offset
    return batches, damage


def _batches_of(data: bytes) -> tuple[list[RecordBatch], str | None]:
    batches: list[RecordBatch] = []
    size, start = len(data), 0
    while start + _OVERHEAD <= size:
        end = start + _OVERHEAD + int.from_bytes(data[start + _LENGTH : start + _OVERHEAD], "big", signed=True)
        if end > size:
            break
        if end - start < _SHORTEST:
            return batches, f"a record batch of {end - start} bytes"
        magic = data[start + _MAGIC]
        body = start + _V2.size
        if magic < 2:  # noqa: PLR2004 (the format's number)
            offset = int.from_bytes(data[start : start + _LENGTH], "big", signed=True)
            batches.append(
                RecordBatch(start=start, body=body, end=end, offset=offset, next_offset=offset + 1, is_legacy=True)
            )
        elif magic > 2 or body > end:  # noqa: PLR2004
            return batches, f"a record batch of {end - start} bytes in message format {magic}"
        else:
            offset, _, epoch, _, crc, flags, last, first_time, max_time, producer, _, _, records = _V2.unpack_from(
                data, start
            )
            batches.append(
                RecordBatch(
                    start=start,
                    body=body,
                    end=end,
                    offset=offset,
                    next_offset=offset + last + 1,
                    leader_epoch=epoch,
                    crc=crc,
                    attributes=flags,
                    first_timestamp=first_time,
                    max_timestamp=max_time,
                    producer_id=producer,
                    records=records,
                )
            )
        start = end
    return batches, None


def visible(fetched: Fetched, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """Yield the batches without transaction markers and, unless `aborted` is None, without aborted records.

    Raises:
        DecodeError: a checksum is wrong, or a transaction marker cannot be read.
    """
    aborted = None if fetched.aborted is None else deque(sorted(fetched.aborted, key=lambda txn: txn.first_offset))
    aborting: set[int] = set()  # producers with an aborted transaction under way
    view = memoryview(fetched.data)
    for batch in batches:
        if fetched.check_crcs and not _is_intact(view, batch):
            where = f"partition {fetched.topic}-{fetched.partition} at offset {batch.offset}"
            raise DecodeError(f"Record batch for {where} failed crc check")
        is_control = batch.attributes & _CONTROL
        if aborted is not None and batch.producer_id >= 0:
            while aborted and aborted[0].first_offset < batch.next_offset:
                aborting.add(aborted.popleft().producer_id)
            if is_control:
                # Compaction leaves an empty batch of a marker that is no longer needed. Any marker ends its producer's
                # transaction, so nothing after it belongs to the aborted one.
                if not batch.records or _is_abort_marker(batch, fetched.data[batch.body : batch.end]):
                    aborting.discard(batch.producer_id)
            elif batch.attributes & _TRANSACTIONAL and batch.producer_id in aborting:
                continue
        if not is_control:
            yield batch


def _is_intact(view: memoryview, batch: RecordBatch) -> bool:
    if batch.is_legacy:
        crc = int.from_bytes(view[batch.start + _CRC_BEFORE_V2 : batch.start + _MAGIC], "big")
        return zlib.crc32(view[batch.start + _MAGIC : batch.end]) == crc
    return crc32c(view[batch.start + _ATTRIBUTES : batch.end]) == batch.crc


def _is_abort_marker(batch: RecordBatch, data: bytes) -> bool:
    """Whether a control batch marks an aborted transaction, by the key of its record."""
    try:
        _, at = read_varint(data, 0)  # the length of the record
        _, at = read_varint(data, at + 1)  # its time, behind its attributes
        _, at = read_varint(data, at)  # its offset
        length, at = read_varint(data, at)  # of its key; an odd number means null
        key = b"" if length & 1 else data[at : at + (length >> 1)]
        _, marker = _CONTROL_KEY.unpack_from(key)
    except (IndexError, struct.error):
        raise DecodeError(
            f"Record batch at offset {batch.offset} has a transaction marker that cannot be read"
        ) from None
    return bool(marker == _ABORT)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a raw varint; return it with the index after it.

    Its lowest bit is the sign: `number >> 1` is a length that is not negative.

    Raises:
        IndexError: it is cut off.
        DecodeError: it has more than 64 bits.
    """
    number = data[at]
    if number < _MORE:
        return number, at + 1
    byte = data[at + 1]
    if byte < _MORE:
        return number - _MORE + (byte << 7), at + 2
    number = shift = 0
    while shift < _VARINT_BITS:
        byte = data[at]
        at += 1
        number |= (byte & ~_MORE) << shift
        if byte < _MORE:
            return number, at
        shift += 7
    raise DecodeError("a number of more than 64 bits")


# Records one by one: the specification of the native path, and the way for records that it declines.


def cut_records(
    batch: RecordBatch, chunk: Chunk, data: bytes, at: int, end: int, *, previous: int, max_records: int, max_bytes: int
) -> tuple[int, int]:
    """Cut records out of `data[at:end]` and append them to a chunk.

    Args:
        data: the records, one after the other; the last may be cut off.
        previous: the offset of the previous record, even if it is not in the chunk; -1 for none.
        max_bytes: the most bytes to take, except for the first record of a chunk.

    Returns:
        the index of the next record's first byte, and the least number of its missing bytes (0: it does not fit the
        chunk, or no more records were allowed).

    Raises:
        DecodeError: a record's length, offset or time is wrong, or a wanted header's name is not UTF-8.
    """
    offsets, timestamps, keys, values = chunk.lists()
    limit = min(end, at + max_bytes)
    base, time = batch.offset, batch.first_timestamp
    least, highest = max(previous + 1, batch.lowest_offset), batch.highest_offset
    appended = batch.max_timestamp if batch.attributes & LOG_APPEND_TIME else None
    for _ in range(max_records):
        try:
            length, body = read_varint(data, at)
        except IndexError:
            return at, 1  # even the length is cut off
        if length & 1:  # negative
            raise _wrong_lengths(batch)
        after = body + (length >> 1)
        if after > end:
            return at, after - end
        if after > limit and offsets:
            return at, 0
        try:
            time_delta, part = read_varint(data, body + 1)  # behind the attributes, which have no meaning yet
            offset_delta, part = read_varint(data, part)
            key, part = _read_bytes(data, part)
            value, part = _read_bytes(data, part)
            headers, part = _read_headers(data, part) if data[part] else ((), part + 1)
        except IndexError:
            part = -1
        if part != after:
            raise _wrong_lengths(batch)
        offset = base + ((offset_delta >> 1) ^ -(offset_delta & 1))
        if not least <= offset <= highest:
            raise _wrong_offset(batch, offset, least)
        timestamp = time + ((time_delta >> 1) ^ -(time_delta & 1)) if appended is None else appended
        if not -_2_63 <= timestamp < _2_63:
            raise DecodeError(f"Record batch at offset {batch.offset} has a record whose time has more than 64 bits")
        if chunk.headers is not None:
            chunk.headers.append(_named(headers, batch))
        timestamps.append(timestamp)
        offsets.append(offset)
        keys.append(key)
        values.append(value)
        at, least = after, offset + 1
    return at, 0


def offset_of(batch: RecordBatch, data: bytes, at: int) -> int:
    """The offset of the record that begins at `at`, and may be cut off.

    Raises:
        DecodeError: its offset is cut off.
    """
    try:
        _, body = read_varint(data, at)
        _, part = read_varint(data, body + 1)
        return batch.offset + _signed(read_varint(data, part)[0])
    except IndexError:
        raise DecodeError(f"Record batch at offset {batch.offset} ends inside a record") from None


def check_offset(batch: RecordBatch, offset: int, previous: int) -> None:
    """Raise DecodeError unless an offset is in the batch, and above the previous record's (-1 for none)."""
    least = max(previous + 1, batch.lowest_offset)
    if not least <= offset <= batch.highest_offset:
        raise _wrong_offset(batch, offset, least)


def _wrong_offset(batch: RecordBatch, offset: int, least: int) -> DecodeError:
    msg = (
        f"Record batch at offset {batch.offset} has a record at offset {offset}, where one from {least} to "
        f"{batch.highest_offset} is expected"
    )
    return DecodeError(msg)


def _wrong_lengths(batch: RecordBatch) -> DecodeError:
    return DecodeError(f"Record batch at offset {batch.offset} has a record whose parts are not as long as it is")


def _signed(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


def _read_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = read_varint(data, at)
    if length & 1:  # negative: null
        return None, at
    end = at + (length >> 1)
    return data[at:end], end


def _read_headers(data: bytes, at: int) -> tuple[list[tuple[bytes, bytes | None]], int]:
    """Read headers; return them with the index after them."""
    count, at = read_varint(data, at)
    headers: list[tuple[bytes, bytes | None]] = []
    for _ in range(_length(count)):
        length, at = read_varint(data, at)
        name, at = data[at : at + _length(length)], at + _length(length)
        value, at = _read_bytes(data, at)
        headers.append((name, value))
    return headers, at


def _length(number: int) -> int:
    if number & 1:
        raise IndexError
    return number >> 1


def _named(headers: Sequence[tuple[bytes, bytes | None]], batch: RecordBatch) -> list[tuple[str, bytes | None]]:
    try:
        return [(name.decode(), value) for name, value in headers]
    except UnicodeDecodeError as error:
        raise DecodeError(f"Record batch at offset {batch.offset} has a header whose name is not UTF-8") from error
