# ruff: noqa: PLR2004 (127, 128: where a varint needs one more byte)
"""Records one by one: the specification of `columns`, and what is read where that declines.

The layout is that of Kafka's protocol guide ("Record", message format v2).
"""

from __future__ import annotations

from kafka.errors import CorruptRecordError

from ticdc_source.events import Chunk
from ticdc_source.kafka.batches.record_batches import LOG_APPEND_TIME, RecordBatch

__all__ = ["cut_records"]


def cut_records(
    batch: RecordBatch, chunk: Chunk, data: bytes, at: int, size: int, most: int, room: int
) -> tuple[int, int]:
    """Cut records out of `data[at:size]` and lay them onto a chunk.

    All that is done here is done for every record: varints of one byte and two are read in place, as nearly all are.

    Args:
        batch: where the records belong.
        chunk: where they go.
        data: the records, one behind the other; the last may be cut off.
        at: where the first begins.
        size: where the last ends.
        most: how many to take at most.
        room: how many bytes to take at most, but for the first record of a chunk.

    Returns:
        where the next record begins, and how many bytes of it are missing at least (0: it was not wanted).

    Raises:
        CorruptRecordError: a record's parts are not as long as the record.
    """
    first_offset, first_time = batch.offset, batch.first_timestamp
    fixed_time = batch.max_timestamp if batch.attributes & LOG_APPEND_TIME else None
    offsets, times, keys, all_headers = chunk.offsets, chunk.timestamps, chunk.keys, chunk.headers
    values = chunk.listed_values()
    limit = min(size, at + room)
    key: bytes | None
    value: bytes | None
    begin, end = at, -1
    try:
        for _ in range(most):
            begin, end = at, -1
            number = data[at]
            at += 1
            if number > 127:
                if (more := data[at]) < 128:
                    number += (more << 7) - 128
                    at += 1
                else:
                    number, at = _varint(data, begin)
            end = at + (number >> 1)
            if end > limit:
                if end > size:
                    return begin, end - size
                if offsets:
                    return begin, 0
            at += 1  # attributes: there are none as yet
            number = data[at]
            at += 1
            if number > 127:
                if (more := data[at]) < 128:
                    number += (more << 7) - 128
                    at += 1
                else:
                    number, at = _varint(data, at - 1)
            time = first_time + ((number >> 1) ^ -(number & 1))
            number = data[at]
            at += 1
            if number > 127:
                if (more := data[at]) < 128:
                    number += (more << 7) - 128
                    at += 1
                else:
                    number, at = _varint(data, at - 1)
            offset = first_offset + ((number >> 1) ^ -(number & 1))
            number = data[at]
            at += 1
            if number == 1:
                key = None
            else:
                if number > 127:
                    number, at = _varint(data, at - 1)
                if number & 1:
                    key = None
                else:
                    start = at
                    at += number >> 1
                    key = data[start:at]
            number = data[at]
            at += 1
            if number > 127:
                if (more := data[at]) < 128:
                    number += (more << 7) - 128
                    at += 1
                else:
                    number, at = _varint(data, at - 1)
            if number & 1:
                value = None
            else:
                start = at
                at += number >> 1
                value = data[start:at]
            if all_headers is not None:
                headers, at = _headers(data, at)
                if at == end:
                    all_headers.append(headers)
            elif data[at] == 0:
                at += 1
            else:
                at = end
            if at != end:
                raise CorruptRecordError(_misfit(batch))
            offsets.append(offset)
            times.append(time if fixed_time is None else fixed_time)
            keys.append(key)
            values.append(value)
    except UnicodeDecodeError as error:
        msg = f"Record batch at offset {batch.offset} has a header whose name is not UTF-8"
        raise CorruptRecordError(msg) from error
    except IndexError:
        if end >= 0:
            raise CorruptRecordError(_misfit(batch)) from None
        return begin, 1  # where even the length is cut off
    return at, 0


def _misfit(batch: RecordBatch) -> str:
    return f"Record batch at offset {batch.offset} has a record whose parts are not as long as it is"


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a varint of any length, as it stands there: the lowest bit is the sign."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > 63:
            msg = "a number of more than 64 bits"
            raise CorruptRecordError(msg)


def _headers(data: bytes, at: int) -> tuple[list[tuple[str, bytes | None]], int]:
    count, at = _varint(data, at)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count >> 1):
        size, at = _varint(data, at)
        begin = at
        at += size >> 1
        name = data[begin:at]
        size, at = _varint(data, at)
        if size & 1:
            headers.append((name.decode(), None))
        else:
            begin = at
            at += size >> 1
            headers.append((name.decode(), data[begin:at]))
    return headers, at
