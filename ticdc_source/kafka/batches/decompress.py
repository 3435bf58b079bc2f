"""Compressed record batches, unpacked piece by piece: a hundred times what has come never lies in memory at once.

Arrow has all of Kafka's codecs, so nothing more need be installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from kafka.errors import CorruptRecordError, UnsupportedCodecError

from ticdc_source.events import promised_size

__all__ = ["Inflated"]

# By the lowest three bits of a record batch's attributes; "lz4" is Arrow's name of the frame format.
_CODECS = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_SNAPPY = 2

# snappy-java's stream: its mark, two version numbers of four bytes, then blocks with their lengths before them.
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_START, _BLOCK_LENGTH = 16, 4
_SNAPPY_MOST = 32  # a snappy block grows to 64 bytes for each 3 at most: what promises more is none


class Inflated:
    """The inside of a compressed record batch, to be read from its beginning to its end.

    Args:
        codec: Kafka's number of the codec.
        data: what is compressed.

    Raises:
        UnsupportedCodecError: there is no such codec, or Arrow was built without it.
    """

    def __init__(self, codec: int, data: memoryview) -> None:
        name = _CODECS.get(codec)
        if name is None or not pa.Codec.is_available(name):
            msg = f"Libraries for {name or f'compression type {codec}'} compression codec not found"
            raise UnsupportedCodecError(msg)
        self._name = name
        self._blocks = _snappy_blocks(data) if codec == _SNAPPY else None
        self._stream: Any = None if codec == _SNAPPY else pa.CompressedInputStream(pa.BufferReader(data), name)

    def read(self, size: int) -> bytes:
        """Return the next bytes, about `size` of them; none at the end.

        Raises:
            CorruptRecordError: this is not what the codec writes.
        """
        try:
            if self._blocks is None:
                return bytes(self._stream.read(size))
            parts: list[bytes] = []
            while size > 0 and (part := next(self._blocks, None)) is not None:
                parts.append(part)
                size -= len(part)
            return b"".join(parts)
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            msg = f"not {self._name}: {error}"
            raise CorruptRecordError(msg) from error


def _snappy_blocks(data: memoryview) -> Iterator[bytes]:
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        yield _snappy(bytes(data))
        return
    at = _XERIAL_START
    while at < len(data):
        begin = at + _BLOCK_LENGTH
        at = begin + int.from_bytes(data[at:begin], "big")
        if at > len(data):
            msg = "a block is cut off"
            raise ValueError(msg)
        yield _snappy(bytes(data[begin:at]))


def _snappy(block: bytes) -> bytes:
    """Unpack one block, which begins with its size as a varint."""
    size = promised_size(block)
    if size > _SNAPPY_MOST * len(block):
        msg = f"{size} bytes cannot have become {len(block)}"
        raise ValueError(msg)
    return bytes(pa.decompress(block, size, codec="snappy", asbytes=True))
