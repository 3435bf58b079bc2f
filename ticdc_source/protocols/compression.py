"""TiCDC's `large-message-handle-compression`, which messages do not flag (docs/wire.md, items 96, 97).

`snappy` is a raw block, `lz4` the frame format (pingcap/ticdc pkg/compression/compress.go). Kafka's compression of
record batches is separate (`sources.kafka.cut`).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import pyarrow as pa

from ticdc_source.errors import DecodeError

_JSON = (b'{"', b"{}")
# How simple's messages in Avro begin: branch 11 of a union, and twice the type, as zig-zag varints: a watermark, a
# BOOTSTRAP, a DDL event and a row.
SIMPLE_IN_AVRO = tuple(bytes([22, number, number]) for number in (0, 2, 4, 6))
_LZ4_FRAME = b"\x04\x22\x4d\x18"
_LZ4_MOST = 255  # bytes that a byte of a block becomes at most (LZ4's block format: a match's length is a sum of bytes)
_SNAPPY_MOST = 32  # 3 bytes of snappy become at most 64: a value that promises more is not snappy
_SNAPPY_LITERAL = 0b00  # the low bits of the first tag, behind the length: a block begins with plain bytes


@dataclass(frozen=True)
class Compression:
    """How messages are decompressed.

    Attributes:
        codec: the option `valueCompression`: `none`, `snappy`, `lz4`, or `auto`, which looks at the first bytes.
        max_bytes: the most bytes of one message.
        max_together: the most bytes of decompressed messages in memory, unless one alone is larger.
    """

    codec: str = "auto"
    max_bytes: int = 72 << 20
    max_together: int = 4 << 20

    def decompressed(self, value: bytes) -> bytes:
        """Decompress a value or a value frame. Uncompressed text may exceed `max_bytes`.

        Raises:
            DecodeError: the value is not compressed like this, the text is too large, or the library is missing.
        """
        if self.codec == "none" or not value:
            return value
        guessed = self.codec == "auto"
        codec = codec_of(value) if guessed else self.codec
        if codec == "none":
            return value
        try:
            import cramjam  # noqa: PLC0415 (only compressed topics need it)
        except ImportError:
            raise DecodeError(
                "the message is compressed (TiCDC's large-message-handle-compression): install cramjam on driver and "
                "executors (pip install cramjam)"
            ) from None
        try:
            if codec == "snappy":
                plain = _unpacked(cramjam, value, self.max_bytes)
            elif len(value) * _LZ4_MOST <= self.max_bytes:
                plain = bytes(cramjam.lz4.decompress(value))
            else:
                plain = pa.CompressedInputStream(pa.BufferReader(value), "lz4").read(self.max_bytes + 1)
        except (cramjam.DecompressionError, pa.ArrowException, OSError) as error:
            if guessed:  # it only looked compressed
                return value
            raise DecodeError(
                f"the message is not compressed with {codec} (TiCDC's large-message-handle-compression): {error}"
            ) from None
        if len(plain) > self.max_bytes:
            del plain  # an error keeps what its frames hold
            raise DecodeError(too_large(self.max_bytes))
        return plain


def _unpacked(cramjam: ModuleType, block: bytes, max_bytes: int) -> bytes:
    length: int = cramjam.snappy.decompress_raw_len(block)  # cramjam allocates that much
    if length > _SNAPPY_MOST * len(block):
        raise cramjam.DecompressionError(f"{len(block)} bytes cannot decompress to {length}")
    if length > max_bytes:
        raise DecodeError(too_large(max_bytes))
    return bytes(cramjam.snappy.decompress_raw(block))


def too_large(max_bytes: int) -> str:
    return (
        f"the message decompresses to more than {max_bytes} bytes: set 'maxMessageBytes' higher to read it, if the "
        "workers have the memory"
    )


def looks_compressed(value: bytes) -> bool:
    """Whether an unreadable value looks compressed by its first bytes, for errors."""
    return value[:4] == _LZ4_FRAME or b'{"' in value[1:8]  # a raw snappy block begins with plain text


def codec_of(value: bytes) -> str:
    """Return `lz4` for an LZ4 frame, `snappy` for a raw snappy block, `none` for JSON and anything else."""
    if value[:4] == _LZ4_FRAME:
        return "lz4"
    if value[:2] in _JSON or value.startswith(SIMPLE_IN_AVRO):
        return "none"
    length_ends = next((index for index, byte in enumerate(value[:5]) if byte < 0x80), None)  # noqa: PLR2004 (a varint)
    if length_ends is None or len(value) <= length_ends + 1 or value[length_ends + 1] & 0b11 != _SNAPPY_LITERAL:
        return "none"
    begins = value[length_ends + 2 : length_ends + 8]
    return "snappy" if b"{" in begins[:4] or any(each in begins for each in SIMPLE_IN_AVRO) else "none"
