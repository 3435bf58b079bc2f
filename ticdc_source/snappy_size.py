"""How many bytes a snappy block says that it becomes: to be looked at before anything is unpacked."""

from __future__ import annotations

__all__ = ["promised_size"]

_LAST = 0x80  # below this, a byte of a varint is its last


def promised_size(block: bytes) -> int:
    """Return the size that a block begins with, a varint (google/snappy format_description.txt, section 1)."""
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < _LAST:
            break
    return size
