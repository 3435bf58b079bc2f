"""Compressed messages: TiCDC's `large-message-handle-compression`, which nothing marks (docs/wire.md, items 96, 97).

`snappy` is a raw block, `lz4` is the frame format (pingcap/ticdc pkg/compression/compress.go). Kafka's own compression
of record batches is another thing: `kafka.batches.decompress` undoes that.
"""

from __future__ import annotations

from ticdc_source.errors import DecodeError
from ticdc_source.events import promised_size

__all__ = ["decompressed", "looks_compressed"]

_LZ4_FRAME = b"\x04\x22\x4d\x18"
_SNAPPY_MOST = 32  # a snappy block of 3 bytes becomes 64 bytes at most: one that promises more is not snappy
_SNAPPY_LITERAL = 0b00  # the low bits of the first tag, behind the length: a block begins with plain bytes


def decompressed(value: bytes, codec: str) -> bytes:
    """Return the JSON text of a value, or of a value frame.

    Args:
        value: the bytes.
        codec: the option `valueCompression`: `none`, `snappy`, `lz4`, or `auto`, which looks at the first bytes.

    Raises:
        DecodeError: the value is not compressed like this, or the library is not installed.
    """
    if codec == "none" or not value:
        return value
    guessed = codec == "auto"
    if guessed:
        codec = _guess(value)
        if codec == "none":
            return value
    try:
        import cramjam  # noqa: PLC0415 (only compressed topics need it)
    except ImportError:
        msg = (
            "the message is compressed (TiCDC's large-message-handle-compression): install cramjam on driver and "
            "executors (pip install cramjam)"
        )
        raise DecodeError(msg) from None
    if codec == "snappy" and promised_size(value) > _SNAPPY_MOST * len(value):  # cramjam would allocate that much
        if guessed:
            return value
        msg = f"the message is not compressed with snappy: {len(value)} bytes cannot become {promised_size(value)}"
        raise DecodeError(msg)
    try:
        plain = cramjam.lz4.decompress(value) if codec == "lz4" else cramjam.snappy.decompress_raw(value)
    except cramjam.DecompressionError as error:
        if guessed:  # it only looked compressed
            return value
        msg = f"the message is not compressed with {codec} (TiCDC's large-message-handle-compression): {error}"
        raise DecodeError(msg) from None
    return bytes(plain)


def looks_compressed(value: bytes) -> bool:
    """Return whether a value that cannot be read looks compressed. This is for errors; it looks at few bytes only."""
    return value[:4] == _LZ4_FRAME or b'{"' in value[1:8]  # a raw snappy block begins with plain text


def _guess(value: bytes) -> str:
    """Return `lz4` for an LZ4 frame, `snappy` for a raw snappy block, `none` for JSON and for anything else."""
    if value[:4] == _LZ4_FRAME:
        return "lz4"
    if value[:2] in (b'{"', b"{}"):
        return "none"
    length_ends = next((index for index, byte in enumerate(value[:5]) if byte < 0x80), None)  # noqa: PLR2004 (a varint)
    if length_ends is None or len(value) <= length_ends + 1 or value[length_ends + 1] & 0b11 != _SNAPPY_LITERAL:
        return "none"
    return "snappy" if b"{" in value[length_ends + 2 : length_ends + 6] else "none"
