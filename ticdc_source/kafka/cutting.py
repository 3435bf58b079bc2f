# ruff: noqa: PLR2004 (127, 128: where a varint needs one more byte)
"""What a fetch has brought → chunks, cut out of its record batches without an object for each record.

The layout is that of Kafka's protocol guide ("Record", message format v2).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kafka.errors import CorruptRecordError
from kafka.record.legacy_records import LegacyRecordBatch

from ticdc_source.events import Chunk
from ticdc_source.kafka.inflating import Inflated
from ticdc_source.kafka.record_batches import Fetched, RecordBatch, visible

__all__ = ["Bounds", "between", "chunks_of"]

_CODEC, _LOG_APPEND_TIME = 0x07, 0x08  # of the attributes
_MAGIC = 16  # where the message format stands
_PIECE, _LARGE_PIECE = 1 << 20, 16 << 20  # of a compressed batch that is unpacked at a time


@dataclass(slots=True)
class Bounds:
    """How much goes into a chunk.

    Attributes:
        most_records: records in a chunk at most.
        most_bytes: bytes of keys and values in a chunk at most, unless it is a single record.
        include_headers: whether chunks have headers.
        end: no record from this offset on is wanted.
    """

    most_records: int
    most_bytes: int
    include_headers: bool
    end: int = 1 << 63


def chunks_of(fetched: Fetched, batches: Iterable[RecordBatch], damage: str | None, bounds: Bounds) -> Iterator[Chunk]:
    """Cut chunks out of record batches, from the offset that was asked for on; none is empty.

    What comes before something damaged is given first. A few records behind the end may be given.

    Args:
        fetched: what was fetched.
        batches: its record batches.
        damage: what is wrong behind them, None for nothing.
        bounds: how much goes into a chunk.

    Raises:
        CorruptRecordError: a checksum is wrong, or what should be records is none.
        UnsupportedCodecError: a batch is compressed with something unknown.
    """
    cutter = _Cutter(fetched, bounds)
    failure = None if damage is None else CorruptRecordError(damage)
    try:
        for batch in visible(fetched, batches):
            if batch.offset >= bounds.end and not batch.is_legacy:
                failure = None
                break
            yield from cutter.legacy(batch) if batch.is_legacy else cutter.cut(batch)
    except Exception as error:  # noqa: BLE001 (raised below)
        failure = error
    if cutter.chunk.offsets:
        yield cutter.chunk
    if failure is not None:
        raise failure


def between(chunk: Chunk, start: int, end: int = 1 << 63) -> Chunk:
    """Return the records of a chunk with offsets in `[start, end)`: the chunk itself where that is all."""
    offsets = chunk.offsets
    if offsets[0] >= start and offsets[-1] < end:
        return chunk
    first, after = bisect_left(offsets, start), bisect_left(offsets, end)
    return chunk.part(first, after)


class _Cutter:
    """Fills chunks, one after the other.

    Attributes:
        chunk: the one that is being filled.
    """

    def __init__(self, fetched: Fetched, bounds: Bounds) -> None:
        self._fetched = fetched
        self._bounds = bounds
        self._room = 0
        self._begin()

    def _begin(self) -> None:
        headers: list[list[tuple[str, bytes | None]]] | None = [] if self._bounds.include_headers else None
        self.chunk = Chunk(self._fetched.topic, self._fetched.partition, headers=headers)
        self._room = self._bounds.most_bytes

    def legacy(self, batch: RecordBatch) -> Iterator[Chunk]:
        """Take the records of a batch as kafka-python makes them."""
        view = memoryview(self._fetched.data)[batch.start : batch.end]
        for record in LegacyRecordBatch(view, view[_MAGIC]):
            if self._fetched.check_crcs and not record.validate_crc():
                msg = f"Record at offset {record.offset} failed crc check"
                raise CorruptRecordError(msg)
            if record.offset < self._fetched.start:
                continue
            size = len(record.key or b"") + len(record.value or b"")
            if self.chunk.offsets and (len(self.chunk) >= self._bounds.most_records or size > self._room):
                yield self.chunk
                self._begin()
            self._room -= size
            chunk = self.chunk
            chunk.offsets.append(record.offset)
            chunk.timestamps.append(record.timestamp)
            chunk.keys.append(record.key)
            chunk.values.append(record.value)
            if chunk.headers is not None:
                chunk.headers.append(record.headers)

    def cut(self, batch: RecordBatch) -> Iterator[Chunk]:
        """Cut the records of a batch out, and give the chunks that are full."""
        codec = batch.attributes & _CODEC
        data, at, size = self._fetched.data, batch.body, batch.end
        packed = None
        if codec:
            packed = Inflated(codec, memoryview(data)[at:size])
            data = packed.read(_PIECE)
            at, size = 0, len(data)
        left = batch.records
        while left > 0:
            chunk = self.chunk
            before = len(chunk)
            room = self._bounds.most_records - before
            if room <= 0:
                yield chunk
                self._begin()
                continue
            after, missing = cut_records(batch, chunk, data, at, size, min(left, room), self._room)
            cut = len(chunk) - before
            left -= cut
            self._room -= after - at
            at = after
            if chunk.offsets and chunk.offsets[0] < self._fetched.start:
                self.chunk = between(chunk, self._fetched.start)
                if not self.chunk.offsets:
                    self._begin()
            if missing:
                more = b"" if packed is None else packed.read(max(_PIECE, min(missing, _LARGE_PIECE)))
                if not more:
                    msg = f"Record batch at offset {batch.offset} ends before its last record"
                    raise CorruptRecordError(msg)
                data = data[at:] + more
                at, size = 0, len(data)
            elif left and self.chunk.offsets:
                yield self.chunk
                self._begin()
        if at != size or (packed is not None and packed.read(1)):
            msg = f"Record batch at offset {batch.offset} has unconsumed bytes after its last record"
            raise CorruptRecordError(msg)


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
    fixed_time = batch.max_timestamp if batch.attributes & _LOG_APPEND_TIME else None
    offsets, times, keys, values, all_headers = chunk.offsets, chunk.timestamps, chunk.keys, chunk.values, chunk.headers
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
