"""Many records at once: only how long each is, is read one by one; what else they hold is read by columns.

`records.cut_records` is the specification. Here nothing is reported: what is not as it should be is left to it.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ticdc_source.events import Binaries, Chunk
from ticdc_source.kafka.batches.record_batches import LOG_APPEND_TIME, RecordBatch

__all__ = ["Run", "add_runs", "walk"]

_HIGHEST_SHIFT = 49  # of a varint's byte, so that no number leaves 57 bits
_FARTHEST = 1 << 62  # an offset or a time to which such a number can be added

# What the two bytes of a length add to where the next record begins, as nearly all lengths are varints of two bytes;
# None where it is another. The lowest bit of the first is the sign of a number that has none here.
_FIRST = [None if byte < 128 or byte & 1 else ((byte - 128) >> 1) + 2 for byte in range(256)]  # noqa: PLR2004
_SECOND = [byte << 6 if byte < 128 else None for byte in range(256)]  # noqa: PLR2004

Numbers = Any  # an array of numbers: a name for what NumPy's own types say at length


class Run(NamedTuple):
    """Records of one batch, one behind the other.

    Attributes:
        batch: where they belong.
        marks: where each begins, and behind them where the last ends.
    """

    batch: RecordBatch
    marks: list[int]


def walk(data: bytes, at: int, size: int, most: int, room: int) -> list[int]:
    """Find out where records begin, by their lengths.

    Args:
        data: records, one behind the other.
        at: where the first begins.
        size: where the last ends.
        most: how many to find at most.
        room: how many bytes they may take at most.

    Returns:
        where each begins, and behind them where the last ends. One that does not fit, or is cut off, is left out.
    """
    marks = [at]
    limit = min(size, at + room)
    first, second = _FIRST, _SECOND
    try:
        while len(marks) <= most:
            try:
                for _ in range(most + 1 - len(marks)):
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
    """Read a varint of one byte to three, and say where it ends; negative for a longer one."""
    number = shift = 0
    for place in range(at, at + 3):
        byte = data[place]
        number += (byte & 127) << shift
        if byte < 128:  # noqa: PLR2004 (where there is one byte more)
            return number, place + 1
        shift += 7
    return -1, at


def add_runs(data: bytes, runs: list[Run], chunk: Chunk) -> bool:
    """Lay the records of some runs onto a chunk: all of them, or none.

    Returns:
        whether they are there; if not, something in them is not as it should be, or as it mostly is.
    """
    if any(max(abs(batch.offset), abs(batch.first_timestamp)) > _FARTHEST for batch, _ in runs):
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
    chunk.keys.extend(_cells(data, *keys))
    _add_values(chunk, data, *values)
    if chunk.headers is not None:
        chunk.headers.extend([] for _ in range(first))
    return True


def _columns(data: Numbers, runs: list[Run], *, wants_headers: bool) -> tuple[Any, ...] | None:
    """Return the records' timestamps and offsets as differences, and where keys and values are."""
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
    times, at = _varints(data, at + 1)  # behind the attributes: there are none as yet
    deltas, at = _varints(data, at)
    keys = _stretches(data, at)
    values = _stretches(data, keys[1])
    at = values[1]
    if not (at < ends).all():
        return None
    has_headers = data[at] != 0
    is_whole = at + 1 == ends
    if not (is_whole & ~has_headers if wants_headers else is_whole | has_headers).all():
        return None
    return _signed(times), _signed(deltas), keys, values


def _varints(data: Numbers, at: Numbers) -> tuple[Numbers, Numbers]:
    """Read varints as they stand there, the lowest bit the sign; and say where each ends."""
    byte = data[at]
    numbers = byte.astype(np.int64)
    at = at + 1  # a new array: what is given is kept
    more = byte > 127  # noqa: PLR2004
    shift = 7
    while more.any():
        if shift > _HIGHEST_SHIFT:
            raise IndexError
        byte = data[at] * more
        # What is above seven bits said that there is more: it is taken away again.
        numbers += (byte.astype(np.int64) - more) << shift
        at += more
        more = byte > 127  # noqa: PLR2004
        shift += 7
    return numbers, at


def _signed(numbers: Numbers) -> Numbers:
    return (numbers >> 1) ^ -(numbers & 1)


def _stretches(data: Numbers, at: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Read the length before each stretch of bytes: where it begins and ends, and whether it is null."""
    numbers, at = _varints(data, at)
    is_null = (numbers & 1).astype(bool)
    numbers >>= 1
    numbers[is_null] = 0
    return at, at + numbers, is_null


def _add_values(chunk: Chunk, data: bytes, begins: Numbers, ends: Numbers, is_null: Numbers) -> None:
    """Lay values onto a chunk: as one array, where none is null."""
    before = chunk.values
    if is_null.any() or not (isinstance(before, Binaries) or not before):
        chunk.values = [*before, *_cells(data, begins, ends, is_null)]
        return
    # The values, and between two of them what lies there: every other is taken.
    offsets = np.stack((begins, ends), axis=1).astype(np.int32)
    count = len(begins)
    parts = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    values = parts.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))
    chunk.values = Binaries(pa.concat_arrays([before.array, values]) if isinstance(before, Binaries) else values)


def _cells(data: bytes, begins: Numbers, ends: Numbers, is_null: Numbers) -> list[bytes | None]:
    if is_null.all():
        return [None] * len(is_null)
    if (begins == ends).all() and not is_null.any():
        return [b""] * len(is_null)
    cells: list[bytes | None] = [data[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
    for place in np.flatnonzero(is_null).tolist():
        cells[place] = None
    return cells
