"""TiCDC's wire formats that are not read yet, for errors that name them."""

from __future__ import annotations

__all__ = ["looks_like"]

# AWS Glue's header: 03 for the version, 00 for "not compressed", then the UUID of a schema.
_GLUE, _GLUE_HEADER = b"\x03\x00", 2 + 16
# Confluent's header: 00, then the id of a schema in four bytes. Ids begin at 1.
_CONFLUENT, _CONFLUENT_HEADER = b"\x00", 1 + 4
# Messages that avro-enable-watermark adds: 01, then DDL as JSON; 02 or 03, then a commit-ts in eight bytes.
_AVRO_DDL, _AVRO_TS, _AVRO_TS_LENGTH = b'\x01{"query":', (b"\x02", b"\x03"), 1 + 8


def looks_like(value: bytes | None) -> str | None:
    """Return the name of the protocol that an uncompressed value seems to be of; None if it looks like none of these.

    This only compares bytes, and parses nothing (docs/wire.md, item 114).
    """
    if not value:
        return None
    if value[:2] == _GLUE and len(value) >= _GLUE_HEADER:
        return "avro with an AWS Glue registry"
    if value[:1] == _CONFLUENT and len(value) >= _CONFLUENT_HEADER and any(value[1:_CONFLUENT_HEADER]):
        return "avro with a Confluent registry"
    if value.startswith(_AVRO_DDL) or (value[:1] in _AVRO_TS and len(value) == _AVRO_TS_LENGTH):
        return "avro with avro-enable-watermark=true"
    return None
