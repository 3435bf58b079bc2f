"""What a fetch has brought → chunks, cut out of its record batches without an object for each record."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kafka.errors import CorruptRecordError
from kafka.record.legacy_records import LegacyRecordBatch

from ticdc_source.events import Chunk
from ticdc_source.kafka.batches.columnar import Run, add_runs, walk
from ticdc_source.kafka.batches.decompress import Inflated
from ticdc_source.kafka.batches.record_batches import Fetched, RecordBatch, visible
from ticdc_source.kafka.batches.records import cut_records

__all__ = ["Bounds", "between", "chunks_of"]

_CODEC = 0x07  # of the attributes
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
    try:
        cutter.settle()
    except CorruptRecordError as error:  # in a record before that of any other failure
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
        self._data = fetched.data
        self._runs: list[Run] = []  # in `_data`: records of the chunk that are not in it as yet
        self._walked = 0  # how many those are
        self._by_columns = True  # until that cannot be done with some
        self._begin()

    def _begin(self) -> None:
        headers: list[list[tuple[str, bytes | None]]] | None = [] if self._bounds.include_headers else None
        self.chunk = Chunk(self._fetched.topic, self._fetched.partition, headers=headers)
        self._room = self._bounds.most_bytes

    def legacy(self, batch: RecordBatch) -> Iterator[Chunk]:
        """Take the records of a batch as kafka-python makes them."""
        self.settle()
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
            chunk, values = self.chunk, self.chunk.listed_values()
            chunk.offsets.append(record.offset)
            chunk.timestamps.append(record.timestamp)
            chunk.keys.append(record.key)
            values.append(record.value)
            if chunk.headers is not None:
                chunk.headers.append(record.headers)

    def cut(self, batch: RecordBatch) -> Iterator[Chunk]:
        """Take the records of a batch, and give the chunks that are full."""
        codec = batch.attributes & _CODEC
        at, size = batch.body, batch.end
        packed = Inflated(codec, memoryview(self._fetched.data)[at:size]) if codec else None
        if packed is not None:
            at, size = 0, self._go_on_with(packed.read(_PIECE))
        elif self._data is not self._fetched.data:
            self._go_on_with(self._fetched.data)
        left = batch.records
        while left > 0:
            room = self._bounds.most_records - len(self.chunk) - self._walked
            if room <= 0:
                self.settle()
                if len(self.chunk) >= self._bounds.most_records:
                    yield self.chunk
                    self._begin()
                continue
            if self._by_columns:
                marks = walk(self._data, at, size, min(left, room), self._room)
                found = len(marks) - 1
                if found:
                    self._runs.append(Run(batch, marks))
                    self._walked += found
                    left -= found
                    self._room -= marks[-1] - at
                    at = marks[-1]
                    continue
                # Else the next record is cut off, too long for this chunk, or none: one of those is for `cut_records`.
                room = 1
                self.settle()
            taken = -len(self.chunk)
            after, missing = cut_records(batch, self.chunk, self._data, at, size, min(left, room), self._room)
            taken += len(self.chunk)
            left -= taken
            self._room -= after - at
            at = after
            self._drop_early()
            if missing:
                more = b"" if packed is None else packed.read(max(_PIECE, min(missing, _LARGE_PIECE)))
                if not more:
                    msg = f"Record batch at offset {batch.offset} ends before its last record"
                    raise CorruptRecordError(msg)
                at, size = 0, self._go_on_with(self._data[at:] + more)
            elif not taken:
                yield self.chunk
                self._begin()
        if at != size or (packed is not None and packed.read(1)):
            msg = f"Record batch at offset {batch.offset} has unconsumed bytes after its last record"
            raise CorruptRecordError(msg)

    def settle(self) -> None:
        """Put into the chunk what has been found of it.

        Raises:
            CorruptRecordError: something is no record; those before it are in the chunk.
        """
        runs, self._runs, self._walked = self._runs, [], 0
        if not runs:
            return
        if not add_runs(self._data, runs, self.chunk):
            self._by_columns = False
            for batch, marks in runs:
                size = marks[-1]
                cut_records(batch, self.chunk, self._data, marks[0], size, len(marks) - 1, size)
        self._drop_early()

    def _go_on_with(self, data: bytes) -> int:
        """Take what comes next from other bytes; return how many they are."""
        self.settle()
        self._data = data
        return len(data)

    def _drop_early(self) -> None:
        """Drop what comes before the offset that was asked for: a record batch is sent whole."""
        if self.chunk.offsets and self.chunk.offsets[0] < self._fetched.start:
            self.chunk = between(self.chunk, self._fetched.start)
            if not self.chunk.offsets:
                self._begin()
