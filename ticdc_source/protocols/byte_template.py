"""A byte template: what many messages have in common, byte for byte, with gaps of fixed width.

Arrow compares a part of a thousand messages in the time that Python needs for a few statements.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.events import Binaries

__all__ = ["ByteTemplate", "are_numbers", "bytes_of", "messages_of", "numbers_of"]


class ByteTemplate:
    """Constant bytes and gaps that follow one another at the same offset in each message.

    Args:
        *parts: constant bytes, or the width of a gap.
        start: the offset of the first part.

    Attributes:
        end: the offset behind the last part.
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
        """Return whether all messages have all constants at their offsets (and so are long enough for the gaps)."""
        try:
            return all(pc.all(_has(messages, start, part)).as_py() for start, part in self._constants)
        except pa.ArrowInvalid:
            return False  # binary_slice refuses messages that end before the slice begins

    def fitting(self, messages: pa.BinaryArray) -> pa.BooleanArray:
        """Return of each message whether it has all constants at their offsets."""
        try:
            masks = [_has(messages, start, part) for start, part in self._constants]
        except pa.ArrowInvalid:
            return pa.repeat(pa.scalar(value=False), len(messages))
        fitting = masks[0]
        for mask in masks[1:]:
            fitting = pc.and_(fitting, mask)
        return fitting

    def gap(self, messages: pa.BinaryArray, number: int) -> pa.BinaryArray:
        """Return what messages that fit have in a gap; gaps are numbered from 0."""
        start, stop = self._gaps[number]
        return pc.binary_slice(messages, start, stop)


def _has(messages: pa.BinaryArray, start: int, part: bytes) -> pa.BooleanArray:
    if start == 0:
        return pc.starts_with(messages, pattern=part)
    return pc.equal(pc.binary_slice(messages, start, start + len(part)), part)


def messages_of(payloads: Sequence[bytes]) -> pa.BinaryArray | None:
    """Return messages as an array; None if one array cannot hold them (2 GiB)."""
    if isinstance(payloads, Binaries):
        return payloads.array
    array = pa.array(payloads, pa.binary())
    return array if isinstance(array, pa.BinaryArray) else None


def bytes_of(array: pa.BinaryArray) -> bytes:
    """Return the values of an array, one after the other. The array must not be a slice of another."""
    data = array.buffers()[2]
    if data is None:
        return b""
    ends = memoryview(array.buffers()[1]).cast("i")
    return data[: ends[len(array)]].to_pybytes()  # type: ignore[no-any-return]


def are_numbers(gaps: pa.BinaryArray, width: int) -> bool:
    """Return whether a gap of this width holds a number without leading zeros in each message."""
    digits = bytes_of(gaps)
    return not digits.translate(None, b"0123456789") and b"0" not in digits[::width]


def numbers_of(gaps: pa.BinaryArray, width: int) -> pa.Int64Array | None:
    """Return the numbers in a gap of this width; None if one is no number or has leading zeros."""
    return gaps.view(pa.string()).cast(pa.int64()) if are_numbers(gaps, width) else None
