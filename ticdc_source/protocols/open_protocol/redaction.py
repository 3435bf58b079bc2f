"""Which values of a message stay: types and flags of columns, what keys say of an event, and DDL. Lengths stay too."""

from __future__ import annotations

from collections.abc import Mapping

from ticdc_source.errors import FramingError
from ticdc_source.protocols.open_protocol.split import VERSION, frames
from ticdc_source.protocols.redaction import Path, Redactor, Treatment, Wanted

__all__ = ["redacted"]

_ROWS = frozenset({"u", "p", "d"})
_DEPTH = 3  # of a column's value: the row, the column, and `v`
_KEPT_OF_COLUMN = frozenset({"t", "h", "f"})
_KEPT_OF_KEY = frozenset({"ts", "scm", "tbl", "t", "rid", "ptn", "ohk"})  # not `ccl`, the URL of a claim-check file
_BASE64_CODES = frozenset({b"249", b"250", b"251", b"252"})  # texts and blobs


def redacted(key: bytes | None, value: bytes | None, redactor: Redactor) -> tuple[bytes | None, bytes | None]:
    """Return the key and the value of a record with the values of columns redacted."""
    redacted_key = key and key[: len(VERSION)] + _frames(key[len(VERSION) :], redactor, _wanted_of_key)
    return redacted_key, value and _frames(value, redactor, _wanted)


def _frames(data: bytes, redactor: Redactor, wanted: Wanted) -> bytes:
    try:
        parts = frames(data, 0, "value")
    except FramingError:
        return redactor.unknown(data)
    texts = [redactor.json(part, wanted) if part else part for part in parts]
    return b"".join(len(text).to_bytes(8, "big") + text for text in texts)


def _wanted_of_key(path: Path, _siblings: Mapping[str, bytes]) -> Treatment:
    return Treatment.KEEP if path and path[0] in _KEPT_OF_KEY else Treatment.REDACT


def _wanted(path: Path, siblings: Mapping[str, bytes]) -> Treatment:
    if len(path) != _DEPTH or path[0] not in _ROWS or path[2] in _KEPT_OF_COLUMN:
        return Treatment.KEEP
    is_encoded = siblings.get("t") in _BASE64_CODES or "f" not in siblings  # without flags, any string may be
    return Treatment.BASE64 if is_encoded and path[2] == "v" else Treatment.REDACT
