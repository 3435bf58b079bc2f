"""Which values of a message are those of columns: members of `data` and `old`. DDL statements stay as they are."""

from __future__ import annotations

from collections.abc import Mapping

from ticdc_source.protocols.redaction import Path, Redactor, Treatment

__all__ = ["redacted"]

_ROWS = frozenset({"data", "old"})
_DEPTH = 2  # of a column's value: the member of the message, and the column


def redacted(key: bytes | None, value: bytes | None, redactor: Redactor) -> tuple[bytes | None, bytes | None]:
    """Return the key and the value of a record with the values of columns redacted."""
    return key and redactor.json(key, _wanted), value and redactor.json(value, _wanted)


def _wanted(path: Path, _siblings: Mapping[str, bytes]) -> Treatment:
    is_value = len(path) >= _DEPTH and path[0] in _ROWS
    return Treatment.REDACT if is_value else Treatment.KEEP
