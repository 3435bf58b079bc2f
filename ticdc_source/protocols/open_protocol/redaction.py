"""Which values of a message are those of columns: the member `v` of each column. Keys have none, and lengths stay."""

from __future__ import annotations

from collections.abc import Mapping

from ticdc_source.errors import FramingError
from ticdc_source.protocols.open_protocol.split import frames
from ticdc_source.protocols.redaction import Path, Redactor, Treatment

__all__ = ["redacted"]

_ROWS = frozenset({"u", "p", "d"})
_DEPTH = 3  # of a column's value: the row, the column, and `v`
_BASE64_CODES = frozenset({b"249", b"250", b"251", b"252"})  # texts and blobs


def redacted(key: bytes | None, value: bytes | None, redactor: Redactor) -> tuple[bytes | None, bytes | None]:
    """Return the key and the value of a record with the values of columns redacted."""
    if not value:
        return key, value
    try:
        parts = frames(value, 0, "value")
    except FramingError:
        return key, redactor.unknown(value)
    texts = [redactor.json(part, _wanted) if part else part for part in parts]
    return key, b"".join(len(text).to_bytes(8, "big") + text for text in texts)


def _wanted(path: Path, siblings: Mapping[str, bytes]) -> Treatment:
    if len(path) != _DEPTH or path[0] not in _ROWS or path[2] != "v":
        return Treatment.KEEP
    is_encoded = siblings.get("t") in _BASE64_CODES or "f" not in siblings  # without flags, any string may be
    return Treatment.BASE64 if is_encoded else Treatment.REDACT
