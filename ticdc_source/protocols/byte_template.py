"""Many messages held against one template: what all of them begin with, but for gaps of fixed width.

Arrow compares a stretch of a thousand messages in the time that a few statements of Python take for one of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.events import Binaries

__all__ = ["ByteTemplate", "are_numbers", "bytes_of", "messages_of", "numbers_of"]


class ByteTemplate:
    """Bytes that follow one another in each message, from a place that is the same in all.

    Args:
        *parts: constant bytes, or the width of a gap.
        start: where the first part begins.

    Attributes:
        end: where what comes behind the last part begins.
    """

    __slots__ = ("_constants", "_gaps", "end")

    def __init__(self, *parts: bytes | int, start: int = 0) -> None:
        self._constants: list[tuple[int, bytes]] = []
        self._gaps: list[tuple[int, int]] = []
        for part in parts:
            if isinstance(part, int):
                self._gaps.append((start, start + part))
                start += part
            else:
                self._constants.append((start, part))
                start += len(part)
        self.end = start

    def fits(self, messages: pa.BinaryArray) -> bool:
        """Tell whether all messages have the constants where they should be (and so are long enough for the gaps)."""
        try:
            return all(pc.all(_has(messages, start, part)).as_py() for start, part in self._constants)
        except pa.ArrowInvalid:
            return False  # binary_slice, of messages that end before the slice begins

    def fitting(self, messages: pa.BinaryArray) -> pa.BooleanArray:
        """Tell of each message whether it has the constants where they should be."""
        try:
            masks = [_has(messages, start, part) for start, part in self._constants]
        except pa.ArrowInvalid:
            return pa.repeat(pa.scalar(value=False), len(messages))
        whole = masks[0]
        for mask in masks[1:]:
            whole = pc.and_(whole, mask)
        return whole

    def gap(self, messages: pa.BinaryArray, number: int) -> pa.BinaryArray:
        """Return what messages that fit have in a gap; the first is 0."""
        start, stop = self._gaps[number]
        return pc.binary_slice(messages, start, stop)


def _has(messages: pa.BinaryArray, start: int, part: bytes) -> pa.BooleanArray:
    if start == 0:
        return pc.starts_with(messages, pattern=part)
    return pc.equal(pc.binary_slice(messages, start, start + len(part)), part)


def messages_of(payloads: Sequence[bytes]) -> pa.BinaryArray | None:
    """Make an array of messages; None where they are too much for one (2 GiB)."""
    if isinstance(payloads, Binaries):
        return payloads.array
    array = pa.array(payloads, pa.binary())
    return array if isinstance(array, pa.BinaryArray) else None


def bytes_of(array: pa.BinaryArray) -> bytes:
    """Return the bytes of an array that was just made, one value after the other."""
    data = array.buffers()[2]
    if data is None:
        return b""
    ends = memoryview(array.buffers()[1]).cast("i")
    return data[: ends[len(array)]].to_pybytes()  # type: ignore[no-any-return]


def are_numbers(gaps: pa.BinaryArray, width: int) -> bool:
    """Tell whether a gap of fixed width has numbers only, without leading zeros."""
    digits = bytes_of(gaps)
    return not digits.translate(None, b"0123456789") and b"0" not in digits[::width]


def numbers_of(gaps: pa.BinaryArray, width: int) -> pa.Int64Array | None:
    """Read a gap of fixed width as a number without leading zeros; None where one is something else."""
    return gaps.view(pa.string()).cast(pa.int64()) if are_numbers(gaps, width) else None
