"""Arrays that are alike in every chunk: made once, then sliced, as a slice costs less than any kernel."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["are_all", "as_places", "counted", "places", "repeated", "taken"]

_LEAST, _MOST = 1 << 13, 1 << 16  # rows of the arrays that are kept


def repeated(value: Any, arrow: pa.DataType, count: int) -> pa.Array:
    """Return an array of so many times one value."""
    if count > _MOST:
        return pa.repeat(pa.scalar(value, arrow), count)
    return _repeated(value, arrow, _room(count)).slice(0, count)


def places(count: int) -> pa.Array:
    """Return 0, 1, 2, … as int32."""
    return _counted(pa.int32(), _room(count)).slice(0, count)


def counted(first: int, count: int) -> pa.Array:
    """Return so many numbers that rise by one, as int64."""
    return pc.add(_counted(pa.int64(), _room(count)).slice(0, count), pa.scalar(first, pa.int64()))


def as_places(values: Sequence[int]) -> pa.Array:
    """Return numbers as int32; those of a range from 0 cost nothing."""
    return places(len(values)) if values == range(len(values)) else pa.array(values, pa.int32())


def are_all(order: pa.Array, count: int) -> bool:
    """Tell whether places (int32) are all of so many, in order."""
    return len(order) == count and bool(order.equals(places(count)))


def taken(values: pa.Array, order: pa.Array) -> pa.Array:
    """Return the values at some places (int32), or the values themselves where those are all of them, in order."""
    if are_all(order, len(values)):
        return values
    return pa.nulls(len(order), values.type) if values.null_count == len(values) else values.take(order)


def _room(count: int) -> int:
    return max(_LEAST, 1 << (count - 1).bit_length())


@lru_cache(maxsize=64)
def _repeated(value: Any, arrow: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, arrow), count)


@lru_cache(maxsize=8)
def _counted(arrow: pa.DataType, count: int) -> pa.Array:
    return pa.array(range(count), arrow)
