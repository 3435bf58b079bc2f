"""open-protocol's frames (pingcap/ticdc pkg/sink/codec/open/encoder.go:157-191)."""

from __future__ import annotations

import struct

from ticdc_source.errors import FramingError

__all__ = ["frames"]

_LENGTH = struct.Struct(">Q")


def frames(data: bytes, start: int, what: str) -> list[bytes]:
    """Return the frames of a key or a value (`what`, for the error) from `start` on: a u64 length each, then JSON.

    Raises:
        FramingError: they do not add up.
    """
    found = []
    end = len(data)
    while start < end:
        if start + 8 > end:
            msg = f"the {what} ends inside a frame's length"
            raise FramingError(msg)
        (length,) = _LENGTH.unpack_from(data, start)
        start += 8
        if length > end - start:
            msg = f"a {what} frame of {length} bytes where {end - start} are left; is the message cut short?"
            raise FramingError(msg)
        found.append(data[start : start + length])
        start += length
    return found
