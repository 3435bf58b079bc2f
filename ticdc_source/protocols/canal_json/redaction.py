"""Which values of a message are those of columns: members of `data` and `old`. DDL statements stay as they are."""

from __future__ import annotations

from collections.abc import Mapping

from ticdc_source.protocols.redaction import Path, Redactor, Treatment

__all__ = ["redacted"]

_ROWS = frozenset({"data", "old"})
_ROW_KEY = ("_tidb", "rowkey")  # of output-row-key: the values of the handle key, encoded
_DEPTH = 2  # of a column's value: the member of the message, and the column


def redacted(key: bytes | None, value: bytes | None, redactor: Redactor) -> tuple[bytes | None, bytes | None]:
    """Return the key and the value of a record with the values of columns redacted."""
    # TiCDC writes no key; who else does writes values of columns into it.
    return key and redactor.unknown(key), value and redactor.json(value, _wanted)


def _wanted(path: Path, _siblings: Mapping[str, bytes]) -> Treatment:
    is_value = not path or path == _ROW_KEY or (len(path) >= _DEPTH and path[0] in _ROWS)
    return Treatment.REDACT if is_value else Treatment.KEEP
