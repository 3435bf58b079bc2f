"""The bytes of a fetch → chunks, cut out of its record batches without an object per record."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

import pyarrow as pa

from ticdc_source.errors import DecodeError
from ticdc_source.kernels.arrays import Binaries, Spans
from ticdc_source.kernels.contract import RecordRun
from ticdc_source.kernels.native import native
from ticdc_source.sources.chunk import Chunk, FetchSettings
from ticdc_source.sources.kafka.record_batches import (
    LOG_APPEND_TIME,
    Fetched,
    RecordBatch,
    check_offset,
    cut_records,
    offset_of,
    visible,
)

if TYPE_CHECKING:
    from ticdc_source.kernels._native import CutRecords

_CODEC = 0x07  # of the attributes
# By the lowest three bits of a record batch's attributes; "lz4" is Arrow's name of the frame format.
_CODECS = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_SNAPPY = 2

# snappy-java's stream: its mark, two version numbers of four bytes, then blocks with their lengths before them.
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_START, _BLOCK_LENGTH = 16, 4
_MORE = 0x80  # a byte of a varint from here on is not its last
_SNAPPY_RATIO = 32  # 3 bytes of a snappy block become at most 64: a block that promises more is damaged
_PIECE, _LARGE_PIECE = 1 << 20, 16 << 20  # bytes of a compressed batch that are decompressed at a time


def chunks_of(
    fetched: Fetched, batches: Iterable[RecordBatch], damage: str | None, limits: FetchSettings, end: int
) -> Iterator[Chunk]:
    """Cut chunks out of record batches, from the requested offset on; none is empty.

    Records before a damaged one are yielded before the error is raised; `damage` says what is wrong after the batches,
    if anything. A few records from `end` on may be yielded.

    Raises:
        DecodeError: a checksum is wrong, bytes are not a record, or a codec is unknown. The error has no address.
    """
    cutter = _Cutter(fetched, limits)
    failure: Exception | None = None if damage is None else DecodeError(damage)
    try:
        for batch in visible(fetched, batches):
            if batch.offset >= end and not batch.is_legacy:
                failure = None
                break
            yield from cutter.cut_legacy(batch) if batch.is_legacy else cutter.cut(batch)
    except Exception as error:  # noqa: BLE001 (raised below)
        failure = error
    try:
        cutter.flush()
    except DecodeError as error:  # a record before that of any other failure
        failure = error
    cutter.drop_early()
    if cutter.chunk.offsets:
        yield cutter.chunk
    if failure is not None:
        raise failure


def between(chunk: Chunk, start: int, end: int = 1 << 63) -> Chunk:
    """The records of a chunk with offsets in `[start, end)`."""
    offsets = chunk.offsets
    if offsets[0] >= start and offsets[-1] < end:
        return chunk
    first, after = bisect_left(offsets, start), bisect_left(offsets, end)
    return chunk.part(first, after)


class _Cutter:
    """Fills chunks, one after the other."""

    def __init__(self, fetched: Fetched, limits: FetchSettings) -> None:
        self._fetched = fetched
        self._limits = limits
        self._bytes_left = 0  # in the chunk
        self._runs: list[Run] = []  # records to be put into the chunk
        self._waiting = 0  # how many those are
        self._previous = -1  # the offset of the last record that was cut, whether the chunk has it or not
        self._native = native if limits.native else None  # until it declines some records
        self._begin()

    def _begin(self) -> None:
        headers: list[list[tuple[str, bytes | None]]] | None = [] if self._limits.include_headers else None
        self.chunk = Chunk(self._fetched.topic, self._fetched.partition, headers=headers)
        self._bytes_left = self._limits.max_bytes

    def cut_legacy(self, batch: RecordBatch) -> Iterator[Chunk]:
        """Take the records of a message of an older format, and yield full chunks."""
        self.flush()
        message = memoryview(self._fetched.data)[batch.start : batch.end]
        for record in self._fetched.read_legacy(message, self._fetched.check_crcs):
            check_offset(batch, record.offset, self._previous)
            self._previous = record.offset
            if record.offset < self._fetched.start:
                continue
            size = len(record.key or b"") + len(record.value or b"")
            if self.chunk.offsets and (len(self.chunk) >= self._limits.max_records or size > self._bytes_left):
                yield self.chunk
                self._begin()
            self._bytes_left -= size
            offsets, timestamps, keys, values = self.chunk.lists()
            offsets.append(record.offset)
            timestamps.append(record.timestamp)
            keys.append(record.key)
            values.append(record.value)
            if self.chunk.headers is not None:
                self.chunk.headers.append([])

    def cut(self, batch: RecordBatch) -> Iterator[Chunk]:
        codec = batch.attributes & _CODEC
        data, at, end = self._fetched.data, batch.body, batch.end
        compressed = Decompressed(codec, memoryview(data)[at:end]) if codec else None
        if compressed is not None:
            data = compressed.read(_PIECE)
            at, end = 0, len(data)
        left = batch.records
        while left > 0:
            max_records = self._limits.max_records - len(self.chunk) - self._waiting
            if max_records <= 0:
                self.flush()
                if len(self.chunk) >= self._limits.max_records:
                    yield self.chunk
                    self._begin()
                continue
            missing = 0
            if self._native is not None:
                walked = self._native.walk_records(data, at, end, min(left, max_records), max(0, self._bytes_left))
                missing = walked.missing
                if walked.count:
                    self._runs.append(Run(batch, data, at, walked.after, walked.count))
                    self._waiting += walked.count
                    left -= walked.count
                    self._bytes_left -= walked.after - at
                    at = walked.after
                    continue
                # Else the next record is cut off, too long for this chunk, or unusual: `cut_records` takes just that.
                max_records = 1
            taken = 0
            if not missing:
                self.flush()
                taken = -len(self.chunk)
                after, missing = cut_records(
                    batch,
                    self.chunk,
                    data,
                    at,
                    end,
                    previous=self._previous,
                    max_records=min(left, max_records),
                    max_bytes=self._bytes_left,
                )
                taken += len(self.chunk)
                left -= taken
                self._bytes_left -= after - at
                at = after
                self._move_on()
                self.drop_early()
            if missing and compressed is not None and end - at + missing > self._limits.max_record_bytes:
                offset = offset_of(batch, data, at)
                self.flush()
                check_offset(batch, offset, self._previous)
                self._previous = offset
                if self.chunk.offsets:
                    yield self.chunk
                    self._begin()
                data = _behind(batch, compressed, end - at + missing, data[at:])
                at, end = 0, len(data)
                left -= 1
                if offset >= self._fetched.start:
                    yield self._too_large(offset)
            elif missing:
                more = b"" if compressed is None else compressed.read(max(_PIECE, min(missing, _LARGE_PIECE)))
                if not more:
                    raise _cut_off(batch)
                data = data[at:] + more
                at, end = 0, len(data)
            elif not taken:
                yield self.chunk
                self._begin()
        if at != end or (compressed is not None and compressed.read(1)):
            raise DecodeError(f"Record batch at offset {batch.offset} has unconsumed bytes after its last record")

    def _too_large(self, offset: int) -> Chunk:
        limits = self._limits
        reason = (
            f"the record decompresses to more than {limits.max_record_bytes} bytes: set 'maxMessageBytes' higher to "
            "read it, if the workers have the memory"
        )
        headers: list[list[tuple[str, bytes | None]]] | None = [[]] if limits.include_headers else None
        return Chunk(self._fetched.topic, self._fetched.partition, [offset], [-1], [None], [None], headers, reason)

    def flush(self) -> None:
        """Put the records found into the chunk; before a DecodeError, those before the damage."""
        runs, self._runs, self._waiting = self._runs, [], 0
        if not runs:
            return
        if self._native is not None and add_runs(self._native, runs, self.chunk, self._previous):
            self._move_on()
        else:
            self._native = None
            for run in runs:
                cut_records(
                    run.batch,
                    self.chunk,
                    run.data,
                    run.begin,
                    run.end,
                    previous=self._previous,
                    max_records=run.count,
                    max_bytes=run.end,
                )
                self._move_on()
        self.drop_early()

    def _move_on(self) -> None:
        if self.chunk.offsets:
            self._previous = self.chunk.offsets[-1]

    def drop_early(self) -> None:
        """Drop the records before the requested offset: a record batch is sent whole."""
        if self.chunk.offsets and self.chunk.offsets[0] < self._fetched.start:
            self.chunk = between(self.chunk, self._fetched.start)
            if not self.chunk.offsets:
                self._begin()


def _cut_off(batch: RecordBatch) -> DecodeError:
    return DecodeError(f"Record batch at offset {batch.offset} ends before its last record")


def _behind(batch: RecordBatch, compressed: Decompressed, size: int, data: bytes) -> bytes:
    """Skip `size` bytes, of which `data` are the first; return the bytes read after them."""
    while size > len(data):
        size -= len(data)
        data = compressed.read(min(size, _LARGE_PIECE))
        if not data:
            raise _cut_off(batch)
    return data[size:]


@dataclass(slots=True)
class Run:
    """Some records of one batch, one behind the other in `data[begin:end]`."""

    batch: RecordBatch
    data: bytes
    begin: int
    end: int
    count: int


def add_runs(native: ModuleType, runs: Sequence[Run], chunk: Chunk, previous: int) -> bool:
    """Append all records of some runs to a chunk by native code, or none; return whether it did.

    Damaged and unusual records are left to `cut_records`, which is the specification. `previous` is as there.
    """
    data, begins = _joined(runs)
    record_runs = [
        RecordRun(
            begin,
            run.count,
            run.batch.offset,
            run.batch.highest_offset,
            run.batch.first_timestamp,
            run.batch.max_timestamp if run.batch.attributes & LOG_APPEND_TIME else None,
        )
        for run, begin in zip(runs, begins, strict=True)
    ]
    cut: CutRecords | None = native.cut_runs(data, record_runs, previous, chunk.headers is not None)
    if cut is None:
        return False
    offsets: list[int] | range = cut.offsets
    if cut.first_offset is not None:
        offsets = range(cut.first_offset, cut.first_offset + len(cut.keys))
    values: list[bytes | None] | Binaries = cut.values
    if cut.bounds is not None:
        values = Binaries(Spans(data, memoryview(cut.bounds).cast("i"), cut.nbytes))
    if not chunk.offsets:
        chunk.offsets, chunk.timestamps, chunk.keys, chunk.values = offsets, cut.timestamps, cut.keys, values
        chunk.headers = cut.headers
        return True
    columns = chunk.lists()
    columns.offsets.extend(offsets)
    columns.timestamps.extend(cut.timestamps)
    columns.keys.extend(cut.keys)
    columns.values.extend(values)
    if chunk.headers is not None and cut.headers is not None:
        chunk.headers += cut.headers
    return True


def _joined(runs: Sequence[Run]) -> tuple[bytes, list[int]]:
    """The bytes of all runs, and the index of each one's first byte; bytes of one fetch are not copied."""
    first = runs[0].data
    if all(run.data is first for run in runs):
        return first, [run.begin for run in runs]
    begins, at = [], 0
    for run in runs:
        begins.append(at)
        at += run.end - run.begin
    return b"".join([memoryview(run.data)[run.begin : run.end] for run in runs]), begins


class Decompressed:
    """The content of a compressed record batch, read piece by piece: it may be a hundred times as large.

    Arrow has all of Kafka's codecs. `codec` is Kafka's number.

    Raises:
        DecodeError: there is no such codec, or Arrow was built without it.
    """

    def __init__(self, codec: int, data: memoryview) -> None:
        name = _CODECS.get(codec)
        if name is None or not pa.Codec.is_available(name):
            raise DecodeError(f"Libraries for {name or f'compression type {codec}'} compression codec not found")
        self._name = name
        if codec == _SNAPPY:
            self._read = partial(_whole_blocks, _snappy_blocks(data))
        else:
            self._read = pa.CompressedInputStream(pa.BufferReader(data), name).read

    def read(self, size: int) -> bytes:
        """Return about `size` more bytes; b"" at the end.

        Raises:
            DecodeError: the codec does not write such bytes.
        """
        try:
            return bytes(self._read(size))
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            raise DecodeError(f"not {self._name}: {error}") from error


def _whole_blocks(blocks: Iterator[bytes], size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0 and (part := next(blocks, None)) is not None:
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _snappy_blocks(data: memoryview) -> Iterator[bytes]:
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        yield _snappy(bytes(data))
        return
    at = _XERIAL_START
    while at < len(data):
        begin = at + _BLOCK_LENGTH
        at = begin + int.from_bytes(data[at:begin], "big")
        if at > len(data):
            raise ValueError("a block is cut off")
        yield _snappy(bytes(data[begin:at]))


def _snappy(block: bytes) -> bytes:
    """Decompress one block.

    It begins with its decompressed size as a varint (google/snappy, format_description.txt, section 1), which is
    checked before allocating the memory.
    """
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < _MORE:
            break
    if size > _SNAPPY_RATIO * len(block):
        raise ValueError(f"{size} bytes cannot have become {len(block)}")
    return bytes(pa.decompress(block, size, codec="snappy", asbytes=True))
