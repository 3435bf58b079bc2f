"""Many records at once: only their lengths are read one by one; their parts are read by columns.

`records.cut_records` is the specification. Nothing is reported here: damaged and unusual records are left to it.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ticdc_source.events import Binaries, Chunk
from ticdc_source.kafka.batches.record_batches import LOG_APPEND_TIME, RecordBatch

__all__ = ["Run", "add_runs", "walk"]

_HIGHEST_SHIFT = 49  # of a varint's byte: no number has more than 57 bits
_HIGHEST = 1 << 62  # an offset or a time to which such a number can be added

# How far behind the first byte of a length the next record begins, by its first and its second byte: nearly all lengths
# are varints of two bytes. None for a byte of another varint. The lowest bit of the first byte is the sign, here 0.
_FIRST = [None if byte < 128 or byte & 1 else ((byte - 128) >> 1) + 2 for byte in range(256)]  # noqa: PLR2004
_SECOND = [byte << 6 if byte < 128 else None for byte in range(256)]  # noqa: PLR2004

Numbers: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Bytes: TypeAlias = npt.NDArray[np.uint8]
ByteRanges: TypeAlias = tuple[Numbers, Numbers, Flags]  # begins, ends, and which are null


class Run(NamedTuple):
    """Records of one batch, one behind the other.

    Attributes:
        batch: the record batch that holds them.
        marks: the index of each record's first byte, and of the byte behind the last record.
    """

    batch: RecordBatch
    marks: list[int]


def walk(data: bytes, at: int, end: int, max_records: int, max_bytes: int) -> list[int]:
    """Find records by their lengths.

    Args:
        data: records, one behind the other.
        at: the index of the first byte.
        end: the index behind the last byte.
        max_records: how many to find at most.
        max_bytes: how many bytes they may take at most.

    Returns:
        the marks of a `Run`. A record that does not fit, or is cut off, is left out.
    """
    marks = [at]
    limit = min(end, at + max_bytes)
    first, second = _FIRST, _SECOND
    try:
        while len(marks) <= max_records:
            try:
                for _ in range(max_records + 1 - len(marks)):
                    at += first[data[at]] + second[data[at + 1]]  # type: ignore[operator]  # None is caught
                    if at > limit:
                        return marks
                    marks.append(at)
            except TypeError:
                number, body = _varint(data, at)
                at = body + (number >> 1)
                if number < 0 or at > limit:
                    return marks
                marks.append(at)
    except IndexError:
        pass
    return marks


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a varint of one byte to three, and return it with the index behind it; -1 for a longer one."""
    number = shift = 0
    for index in range(at, at + 3):
        byte = data[index]
        number += (byte & 127) << shift
        if byte < 128:  # noqa: PLR2004 (the highest bit says that another byte follows)
            return number, index + 1
        shift += 7
    return -1, at


def add_runs(data: bytes, runs: list[Run], chunk: Chunk) -> bool:
    """Append the records of some runs to a chunk: all of them, or none.

    Returns:
        whether they were appended; if not, some record is damaged or unusual.
    """
    if any(max(abs(batch.offset), abs(batch.first_timestamp)) > _HIGHEST for batch, _ in runs):
        return False
    try:
        columns = _columns(np.frombuffer(data, np.uint8), runs, wants_headers=chunk.headers is not None)
    except IndexError:
        return False
    if columns is None:
        return False
    times, deltas, keys, values = columns
    first = 0
    for batch, marks in runs:
        after = first + len(marks) - 1
        chunk.offsets.extend((deltas[first:after] + batch.offset).tolist())
        if batch.attributes & LOG_APPEND_TIME:
            chunk.timestamps.extend([batch.max_timestamp] * (after - first))
        else:
            chunk.timestamps.extend((times[first:after] + batch.first_timestamp).tolist())
        first = after
    chunk.keys.extend(_byte_strings(data, *keys))
    _add_values(chunk, data, *values)
    if chunk.headers is not None:
        chunk.headers.extend([] for _ in range(first))
    return True


def _columns(
    data: Bytes, runs: list[Run], *, wants_headers: bool
) -> tuple[Numbers, Numbers, ByteRanges, ByteRanges] | None:
    """Return the records' times and offsets relative to their batch, and the byte ranges of their keys and values.

    None if a record is damaged or unusual.
    """
    ends: Numbers = np.fromiter(chain.from_iterable(run.marks for run in runs), np.int64)
    lasts = np.cumsum([len(run.marks) for run in runs])
    is_begin = np.ones(len(ends), bool)
    is_begin[lasts - 1] = False
    at = ends[is_begin]
    is_end = np.ones(len(ends), bool)
    is_end[0] = False
    is_end[lasts[:-1]] = False
    ends = ends[is_end]
    _, at = _varints(data, at)
    times, at = _varints(data, at + 1)  # behind the attributes, which have no meaning yet
    deltas, at = _varints(data, at)
    keys = _byte_ranges(data, at)
    values = _byte_ranges(data, keys[1])
    at = values[1]
    if not (at < ends).all():
        return None
    has_headers = data[at] != 0
    is_whole = at + 1 == ends
    if not (is_whole & ~has_headers if wants_headers else is_whole | has_headers).all():
        return None
    return _signed(times), _signed(deltas), keys, values


def _varints(data: Bytes, at: Numbers) -> tuple[Numbers, Numbers]:
    """Read varints as they are written, with the sign in the lowest bit, and return them with the index behind each."""
    byte = data[at]
    numbers = byte.astype(np.int64)
    at = at + 1  # a new array: the caller keeps its own
    more = byte > 127  # noqa: PLR2004
    shift = 7
    while more.any():
        if shift > _HIGHEST_SHIFT:
            raise IndexError
        byte = data[at] * more
        # The eighth bit, which said that another byte follows, was added too: it is subtracted again.
        numbers += (byte.astype(np.int64) - more) << shift
        at += more
        more = byte > 127  # noqa: PLR2004
        shift += 7
    return numbers, at


def _signed(numbers: Numbers) -> Numbers:
    return (numbers >> 1) ^ -(numbers & 1)


def _byte_ranges(data: Bytes, at: Numbers) -> ByteRanges:
    """Read the length before each key or value, and return its byte range, and whether it is null."""
    numbers, at = _varints(data, at)
    is_null = (numbers & 1).astype(bool)
    numbers >>= 1
    numbers[is_null] = 0
    return at, at + numbers, is_null


def _add_values(chunk: Chunk, data: bytes, begins: Numbers, ends: Numbers, is_null: Flags) -> None:
    """Append values to a chunk: as one array, if none is null."""
    before = chunk.values
    if is_null.any() or not (isinstance(before, Binaries) or not before):
        chunk.values = [*before, *_byte_strings(data, begins, ends, is_null)]
        return
    # The values, and the bytes between each two of them: every other one is taken.
    offsets = np.stack((begins, ends), axis=1).astype(np.int32)
    count = len(begins)
    parts = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    values = parts.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))
    chunk.values = Binaries(pa.concat_arrays([before.array, values]) if isinstance(before, Binaries) else values)


def _byte_strings(data: bytes, begins: Numbers, ends: Numbers, is_null: Flags) -> list[bytes | None]:
    if is_null.all():
        return [None] * len(is_null)
    if (begins == ends).all() and not is_null.any():
        return [b""] * len(is_null)
    found: list[bytes | None] = [data[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
    for index in np.flatnonzero(is_null).tolist():
        found[index] = None
    return found
