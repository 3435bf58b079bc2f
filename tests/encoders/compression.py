"""TiCDC's large-message-handle-compression: snappy as a raw block, lz4 as a frame (pkg/compression/compress.go)."""

import cramjam


def compressed(data: bytes, codec: str) -> bytes:
    """Compress the bytes of a value, or of an open-protocol value frame."""
    if codec == "snappy":
        return bytes(cramjam.snappy.compress_raw(data))
    if codec == "lz4":
        return bytes(cramjam.lz4.compress(data))
    return data
