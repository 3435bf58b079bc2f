"""Which values of a message stay: those that say what it is about, and DDL statements. All others are redacted."""

from __future__ import annotations

from collections.abc import Mapping

from ticdc_source.protocols.redaction import Path, Redactor, Treatment

__all__ = ["redacted"]

_KEPT = frozenset({"id", "database", "table", "pkNames", "isDdl", "type", "es", "ts", "sqlType", "mysqlType"})
# Not the encoded handle key of output-row-key, and not the URL of a claim-check file.
_KEPT_OF_EXTENSION = frozenset({"commitTs", "watermarkTs", "onlyHandleKey"})


def redacted(key: bytes | None, value: bytes | None, redactor: Redactor) -> tuple[bytes | None, bytes | None]:
    """Return the key and the value of a record with the values of columns redacted."""
    # TiCDC writes no key; who else does writes values of columns into it.
    return key and redactor.unknown(key), value and redactor.json(value, _wanted)


def _wanted(path: Path, siblings: Mapping[str, bytes]) -> Treatment:
    if not path:
        return Treatment.REDACT
    if path[0] == "sql":  # official Canal has the statement of a row, with its values
        kept = siblings.get("isDdl") == b"true"
    elif path[0] == "_tidb":
        kept = path[-1] in _KEPT_OF_EXTENSION
    else:
        kept = path[0] in _KEPT
    return Treatment.KEEP if kept else Treatment.REDACT
