"""Records one by one: the specification of the native path, and the way for records that it declines.

The layout is that of Kafka's protocol guide ("Record", message format v2).
"""

from __future__ import annotations

from ticdc_source.errors import DecodeError
from ticdc_source.events import Chunk
from ticdc_source.kafka.batches.record_batches import LOG_APPEND_TIME, RecordBatch, read_varint

__all__ = ["cut_records", "offset_of"]


def cut_records(
    batch: RecordBatch, chunk: Chunk, data: bytes, at: int, end: int, *, max_records: int, max_bytes: int
) -> tuple[int, int]:
    """Cut records out of `data[at:end]` and append them to a chunk.

    Args:
        batch: the record batch that holds the records.
        chunk: the chunk.
        data: the records, one behind the other; the last may be cut off.
        at: the index of the first byte.
        end: the index behind the last byte.
        max_records: how many records to take at most.
        max_bytes: how many bytes to take at most, except for the first record of a chunk.

    Returns:
        the index of the next record's first byte, and how many of its bytes are missing at least (0: it does not fit
        the chunk, or none was left to take).

    Raises:
        DecodeError: the parts of a record are not as long as the record, or a header's name is not UTF-8.
    """
    offsets, timestamps, keys, values = chunk.lists()
    limit = min(end, at + max_bytes)
    base, time = batch.offset, batch.first_timestamp
    appended = batch.max_timestamp if batch.attributes & LOG_APPEND_TIME else None
    for _ in range(max_records):
        try:
            length, body = read_varint(data, at)
        except IndexError:
            return at, 1  # even the length is cut off
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
            if chunk.headers is not None:
                headers, part = _read_headers(data, part)
            else:  # they are skipped; no record ends without their number
                part = part + 1 if data[part] == 0 else after
        except UnicodeDecodeError as error:
            msg = f"Record batch at offset {batch.offset} has a header whose name is not UTF-8"
            raise DecodeError(msg) from error
        except IndexError:
            part = -1
        if part != after:
            msg = f"Record batch at offset {batch.offset} has a record whose parts are not as long as it is"
            raise DecodeError(msg)
        timestamps.append(time + ((time_delta >> 1) ^ -(time_delta & 1)) if appended is None else appended)
        offsets.append(base + ((offset_delta >> 1) ^ -(offset_delta & 1)))
        keys.append(key)
        values.append(value)
        if chunk.headers is not None:
            chunk.headers.append(headers)
        at = after
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


def _signed(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


def _read_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Read bytes with their length before them, and return them with the index behind them."""
    length, at = read_varint(data, at)
    if length & 1:  # negative: null
        return None, at
    end = at + (length >> 1)
    return data[at:end], end


def _read_headers(data: bytes, at: int) -> tuple[list[tuple[str, bytes | None]], int]:
    count, at = read_varint(data, at)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count >> 1):
        length, at = read_varint(data, at)
        name, at = data[at : at + (length >> 1)], at + (length >> 1)
        value, at = _read_bytes(data, at)
        headers.append((name.decode(), value))
    return headers, at
