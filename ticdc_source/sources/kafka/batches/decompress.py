"""Compressed record batches, decompressed piece by piece: one may unpack to a hundred times its size.

Arrow has all of Kafka's codecs, so nothing more need be installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from ticdc_source.errors import DecodeError

# By the lowest three bits of a record batch's attributes; "lz4" is Arrow's name of the frame format.
_CODECS = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_SNAPPY = 2

# snappy-java's stream: its mark, two version numbers of four bytes, then blocks with their lengths before them.
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_START, _BLOCK_LENGTH = 16, 4
_MORE = 0x80  # a byte of a varint from here on is not its last
_SNAPPY_RATIO = 32  # a snappy block grows to 64 bytes for each 3 at most: one that promises more is damaged


class Decompressed:
    """The inside of a compressed record batch, to be read from its beginning to its end; `codec` is Kafka's number.

    Raises:
        DecodeError: there is no such codec, or Arrow was built without it.
    """

    def __init__(self, codec: int, data: memoryview) -> None:
        name = _CODECS.get(codec)
        if name is None or not pa.Codec.is_available(name):
            msg = f"Libraries for {name or f'compression type {codec}'} compression codec not found"
            raise DecodeError(msg)
        self._name = name
        if codec == _SNAPPY:
            self._read = partial(_joined, _snappy_blocks(data))
        else:
            self._read = pa.CompressedInputStream(pa.BufferReader(data), name).read

    def read(self, size: int) -> bytes:
        """Return the next bytes, about `size` of them; none at the end.

        Raises:
            DecodeError: the codec does not write such bytes.
        """
        try:
            return bytes(self._read(size))
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            msg = f"not {self._name}: {error}"
            raise DecodeError(msg) from error


def _joined(blocks: Iterator[bytes], size: int) -> bytes:
    """Return the next bytes, about `size` of them: whole blocks only."""
    parts: list[bytes] = []
    while size > 0 and (part := next(blocks, None)) is not None:
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


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
    """Decompress one block.

    It begins with its decompressed size as a varint (google/snappy, format_description.txt, section 1), which is
    checked before memory is taken for it.
    """
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < _MORE:
            break
    if size > _SNAPPY_RATIO * len(block):
        msg = f"{size} bytes cannot have become {len(block)}"
        raise ValueError(msg)
    return bytes(pa.decompress(block, size, codec="snappy", asbytes=True))
