"""Which values of a message are those of columns: members of `before` and `after`, and of a key's payload.

Schemas stay as they are, also the defaults in them, and so do DDL statements.
"""

from __future__ import annotations

from collections.abc import Mapping

from ticdc_source.protocols.redaction import Path, Redactor, Treatment

__all__ = ["redacted"]

_ROWS = frozenset({"before", "after"})
_OF_DDL = frozenset({"databaseName", "ddl", "tableChanges"})
_SQL = ("source", "query")


def redacted(key: bytes | None, value: bytes | None, redactor: Redactor) -> tuple[bytes | None, bytes | None]:
    """Return the key and the value of a record with the values of columns redacted."""
    return key and redactor.json(key, _wanted_of_key), value and redactor.json(value, _wanted)


def _wanted(path: Path, _siblings: Mapping[str, bytes]) -> Treatment:
    within = path[1:] if path[:1] == ("payload",) else path
    is_value = (len(within) > 1 and within[0] in _ROWS) or within == _SQL
    return Treatment.REDACT if is_value and path[:1] != ("schema",) else Treatment.KEEP


def _wanted_of_key(path: Path, _siblings: Mapping[str, bytes]) -> Treatment:
    within = path[1:] if path[:1] == ("payload",) else path
    is_value = path[:1] != ("schema",) and len(within) == 1 and within[0] not in _OF_DDL
    return Treatment.REDACT if is_value else Treatment.KEEP
