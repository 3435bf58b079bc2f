"""Bytes of many records in one Arrow array: those that read by columns take it as it is, others a list made of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import pyarrow as pa

__all__ = ["Binaries"]


class Binaries(Sequence[bytes]):
    """A sequence of bytes, none of them null, which becomes Python objects when it is first looked at one by one.

    Args:
        array: the bytes, in an array that is no slice of another.
    """

    __slots__ = ("_list", "array")

    def __init__(self, array: pa.BinaryArray) -> None:
        self.array = array
        self._list: list[bytes] | None = None

    @property
    def nbytes(self) -> int:
        """How many bytes there are."""
        data = self.array.buffers()[2]
        return 0 if data is None else data.size

    def as_list(self) -> list[bytes]:
        """Return all as a list; made once, and not to be changed."""
        if self._list is None:
            self._list = self.array.to_pylist()
        return self._list

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.array)

    @overload
    def __getitem__(self, place: int) -> bytes: ...

    @overload
    def __getitem__(self, place: slice) -> list[bytes]: ...

    def __getitem__(self, place: int | slice) -> bytes | list[bytes]:
        """Return the bytes at a place, or those of a stretch as a list."""
        if self._list is None and isinstance(place, int):
            return self.array[place].as_py()  # type: ignore[no-any-return]
        return self.as_list()[place]

    def __iter__(self) -> Iterator[bytes]:
        """Return all, one by one."""
        return iter(self.as_list())

    def __eq__(self, other: object) -> bool:
        """Tell whether another sequence has the same bytes."""
        return isinstance(other, (list, Binaries)) and self.as_list() == list(other)

    __hash__ = None  # type: ignore[assignment]
