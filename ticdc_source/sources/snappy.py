"""The size that a block compressed by snappy promises."""

from __future__ import annotations

_LAST = 0x80  # below this, a byte of a varint is its last


def uncompressed_length(block: bytes) -> int:
    """Return the uncompressed size in bytes that a snappy block begins with, a varint.

    Source: google/snappy, format_description.txt, section 1. Both Kafka's and TiCDC's compression need it, to refuse a
    block before it is unpacked.
    """
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < _LAST:
            break
    return size
