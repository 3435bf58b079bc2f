"""Records one by one: the specification of the native path, and the way for records that it declines.

The layout is that of Kafka's protocol guide ("Record", message format v2).
"""

from __future__ import annotations

from collections.abc import Sequence

from ticdc_source.errors import DecodeError
from ticdc_source.sources.chunk import Chunk
from ticdc_source.sources.kafka.batches.record_batches import LOG_APPEND_TIME, RecordBatch, read_varint

_2_63 = 1 << 63


def cut_records(
    batch: RecordBatch, chunk: Chunk, data: bytes, at: int, end: int, *, previous: int, max_records: int, max_bytes: int
) -> tuple[int, int]:
    """Cut records out of `data[at:end]` and append them to a chunk.

    Args:
        data: the records, one behind the other; the last may be cut off.
        at: the index of the first byte.
        end: the index behind the last byte.
        previous: the offset of the record before these, also if that one is not in the chunk; -1 for none.
        max_records: how many records to take at most.
        max_bytes: how many bytes to take at most, except for the first record of a chunk.

    Returns:
        the index of the next record's first byte, and how many of its bytes are missing at least (0: it does not fit
        the chunk, or none was left to take).

    Raises:
        DecodeError: the parts of a record are not as long as the record, its offset or its time does not fit, or the
            name of a header, if headers are wanted, is not UTF-8.
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
            msg = f"Record batch at offset {batch.offset} has a record whose time has more than 64 bits"
            raise DecodeError(msg)
        if chunk.headers is not None:
            chunk.headers.append(_named(headers, batch))
        timestamps.append(timestamp)
        offsets.append(offset)
        keys.append(key)
        values.append(value)
        at, least = after, offset + 1
    return at, 0


def offset_of(batch: RecordBatch, data: bytes, at: int) -> int:
    """Return the offset of the record that begins at `at`; its last bytes may be cut off.

    Raises:
        DecodeError: even its offset is cut off.
    """
    try:
        _, body = read_varint(data, at)
        _, part = read_varint(data, body + 1)
        return batch.offset + _signed(read_varint(data, part)[0])
    except IndexError:
        msg = f"Record batch at offset {batch.offset} ends inside a record"
        raise DecodeError(msg) from None


def check_offset(batch: RecordBatch, offset: int, previous: int) -> None:
    """Check a record's offset: above that of the record before (-1 for none), and one of the batch's own.

    In a compacted topic offsets have gaps, and they rise all the same.

    Raises:
        DecodeError: it is not.
    """
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
    """Read bytes with their length before them, and return them with the index behind them."""
    length, at = read_varint(data, at)
    if length & 1:  # negative: null
        return None, at
    end = at + (length >> 1)
    return data[at:end], end


def _read_headers(data: bytes, at: int) -> tuple[list[tuple[bytes, bytes | None]], int]:
    """Read headers, and return them with the index behind them.

    Raises:
        IndexError: there are not as many, or a length that cannot be null is negative.
    """
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
    """Return headers with their names as text."""
    try:
        return [(name.decode(), value) for name, value in headers]
    except UnicodeDecodeError as error:
        msg = f"Record batch at offset {batch.offset} has a header whose name is not UTF-8"
        raise DecodeError(msg) from error
