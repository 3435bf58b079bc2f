"""TiCDC's large-message-handle-compression: snappy as a raw block, lz4 as a frame (pkg/compression/compress.go)."""


def compressed(data: bytes, codec: str) -> bytes:
    if codec not in ("snappy", "lz4"):
        return data
    import cramjam  # here: environments of engines, which have the package's dependencies only, write plain messages

    return bytes(cramjam.snappy.compress_raw(data) if codec == "snappy" else cramjam.lz4.compress(data))
