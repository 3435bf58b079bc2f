"""open-protocol's frames (pingcap/ticdc pkg/sink/codec/open/encoder.go:157-191)."""

from __future__ import annotations

import struct

from ticdc_source.errors import FramingError

__all__ = ["frames"]

_length_at = struct.Struct(">Q").unpack_from


def frames(data: bytes, start: int, what: str) -> list[bytes]:
    """Return the frames of a key or a value (`what`, for the error) from `start` on: a u64 length each, then JSON.

    Raises:
        FramingError: they do not add up.
    """
    found = []
    end = len(data)
    while start < end:
        begin = start + 8
        if begin > end:
            msg = f"the {what} ends inside a frame's length"
            raise FramingError(msg)
        start = begin + _length_at(data, start)[0]
        if start > end:
            msg = f"a {what} frame of {start - begin} bytes where {end - begin} are left; is the message cut short?"
            raise FramingError(msg)
        found.append(data[begin:start])
    return found
