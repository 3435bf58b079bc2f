"""What messages look like that no decoder of this version reads, for errors: TiCDC's other protocols."""

from __future__ import annotations

__all__ = ["looks_like"]

_GLUE, _GLUE_HEADER = b"\x03\x00", 2 + 16  # a version, no compression, and the UUID of a schema
_CONFLUENT, _CONFLUENT_HEADER = b"\x00", 1 + 4  # and the id of a schema, from 1
# What avro-enable-watermark adds: a byte before JSON, or before a commit-ts of eight bytes.
_AVRO_DDL, _AVRO_TS, _AVRO_TS_LENGTH = b'\x01{"query":', (b"\x02", b"\x03"), 1 + 8
# The branch of a union, a number, the same number: watermark, bootstrap, DDL and row.
_SIMPLE_AVRO = tuple(bytes([0x16, number, number]) for number in (0, 2, 4, 6))
_SIMPLE_BEGIN, _SIMPLE_MEMBERS = b'{"version":', (b'"type":', b'"commitTs":', b'"buildTs":')


def looks_like(value: bytes | None) -> str | None:
    """Return the format that a plain value seems to have; None if it looks like none of these (docs/wire.md, item 114).

    Only bytes are compared; nothing is parsed.
    """
    if not value:
        return None
    if value[:2] == _GLUE and len(value) >= _GLUE_HEADER:
        return "avro with an AWS Glue registry"
    if value[:1] == _CONFLUENT and len(value) >= _CONFLUENT_HEADER and any(value[1:_CONFLUENT_HEADER]):
        return "avro with a Confluent registry"
    if value.startswith(_AVRO_DDL) or (value[:1] in _AVRO_TS and len(value) == _AVRO_TS_LENGTH):
        return "avro with avro-enable-watermark=true"
    if value.startswith(_SIMPLE_BEGIN) and all(member in value for member in _SIMPLE_MEMBERS):
        return "simple"
    return "simple with encoding-format=avro" if value.startswith(_SIMPLE_AVRO) else None
