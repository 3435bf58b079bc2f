"""Bytes inside larger bytes (`Binaries`), and arrays that every chunk needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, overload

import pyarrow as pa
import pyarrow.compute as pc


class Spans(NamedTuple):
    """Where values lie in the bytes of a fetch.

    Attributes:
        bounds: two int32 for each value, its start and its exclusive end in `data`; they never decrease.
        nbytes: the number of bytes of all values.
    """

    data: bytes
    bounds: memoryview
    nbytes: int


class Binaries(Sequence[bytes]):
    """Values that are slices of larger bytes. Python objects are made when more than one value is first used."""

    __slots__ = ("_array", "_list", "spans")

    def __init__(self, spans: Spans) -> None:
        self.spans = spans
        self._array: pa.BinaryArray | None = None
        self._list: list[bytes] | None = None

    @classmethod
    def of(cls, array: pa.BinaryArray) -> Binaries:
        """Wrap an array without nulls that is not a slice of another array."""
        _, offsets, data = array.buffers()
        indices = pc.shift_right(pc.add(row_indices(2 * len(array)), 1), 1)  # 0, 1, 1, 2, 2, 3, …
        bounds = pa.Array.from_buffers(pa.int32(), len(array) + 1, [None, offsets]).take(indices)
        written = b"" if data is None else data.to_pybytes()
        nbytes = bounds[-1].as_py() - bounds[0].as_py() if len(array) else 0
        return cls(Spans(written, memoryview(pa.py_buffer(bounds.buffers()[1])).cast("B").cast("i"), nbytes))

    @property
    def array(self) -> pa.BinaryArray:
        """The values as an array, copied once."""
        if self._array is None:
            data, bounds, _ = self.spans
            count = len(self)
            # The values, and the bytes between each two of them: every other one is taken.
            buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
            parts = pa.Array.from_buffers(pa.binary(), max(0, 2 * count - 1), buffers)
            self._array = parts.take(pc.multiply(row_indices(count), pa.scalar(2, pa.int32())))
        return self._array

    @property
    def nbytes(self) -> int:
        return self.spans.nbytes

    def as_list(self) -> list[bytes]:
        """Return all values as a shared list: do not change it."""
        if self._list is None:
            data = self.spans.data
            bounds = iter(self.spans.bounds)
            self._list = [data[begin:end] for begin, end in zip(bounds, bounds, strict=True)]
        return self._list

    def __len__(self) -> int:
        return len(self.spans.bounds) // 2

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if self._list is None and isinstance(index, int):
            index = range(len(self))[index]
            return self.spans.data[self.spans.bounds[2 * index] : self.spans.bounds[2 * index + 1]]
        return self.as_list()[index]

    def part(self, first: int, after: int) -> Binaries:
        bounds = self.spans.bounds[2 * first : 2 * after]
        return Binaries(Spans(self.spans.data, bounds, sum(bounds[1::2]) - sum(bounds[::2])))

    def picked(self, wanted: Sequence[int]) -> Binaries:
        """Return the values at ascending positions."""
        bounds = pa.Array.from_buffers(pa.int64(), len(self), [None, pa.py_buffer(self.spans.bounds)])  # both in one
        taken = pa.py_buffer(bounds.take(as_indices(wanted)).buffers()[1])
        picked = memoryview(taken).cast("B").cast("i")[: 2 * len(wanted)]
        return Binaries(Spans(self.spans.data, picked, sum(picked[1::2]) - sum(picked[::2])))

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.as_list())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (list, Binaries)) and self.as_list() == list(other)

    __hash__ = None  # type: ignore[assignment]


# Arrays that are alike in every chunk are made once and then sliced: a slice costs less than any kernel. These are the
# shortest and the longest length to keep.
_LEAST, _MOST = 1 << 13, 1 << 16


def repeated(value: str | float | None, arrow: pa.DataType, count: int) -> pa.Array:
    if count > _MOST:
        return pa.repeat(pa.scalar(value, arrow), count)
    return _repeated(value, arrow, _kept_length(count)).slice(0, count)


def row_indices(count: int) -> pa.Array:
    """Return 0, 1, 2, … as int32."""
    return _consecutive(pa.int32(), _kept_length(count)).slice(0, count)


def consecutive(first: int, count: int) -> pa.Array:
    """Return `first`, `first + 1`, … as int64."""
    return pc.add(_consecutive(pa.int64(), _kept_length(count)).slice(0, count), pa.scalar(first, pa.int64()))


def as_indices(values: Sequence[int]) -> pa.Array:
    """Return int32 indexes; a range from 0 is not copied."""
    return row_indices(len(values)) if values == range(len(values)) else pa.array(values, pa.int32())


def are_all(order: pa.Array, count: int) -> bool:
    """Whether row indexes (int32) are 0, 1, 2, … up to `count`."""
    return len(order) == count and bool(order.equals(row_indices(count)))


def taken(values: pa.Array, order: pa.Array) -> pa.Array:
    """Like `values.take(order)`, without a copy if `order` (int32) has all row indexes in order."""
    if are_all(order, len(values)):
        return values
    return pa.nulls(len(order), values.type) if values.null_count == len(values) else values.take(order)


def _kept_length(count: int) -> int:
    return max(_LEAST, 1 << (count - 1).bit_length())


@lru_cache(maxsize=64)
def _repeated(value: str | float | None, arrow: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, arrow), count)


@lru_cache(maxsize=8)
def _consecutive(arrow: pa.DataType, count: int) -> pa.Array:
    return pa.array(range(count), arrow)
