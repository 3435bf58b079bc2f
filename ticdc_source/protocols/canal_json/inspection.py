"""What inspection asks of canal-json: the settings that messages show, and the values that are redacted.

Which settings of the changefeed messages show: docs/wire.md, items 68 to 76. Values stay that say what a message is
about, and DDL statements. All others are redacted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ticdc_source.protocols.base import Inspection
from ticdc_source.protocols.changefeed import ChangefeedSetting, RowMessage, SettingsFinder, true_false
from ticdc_source.protocols.events import TableEvents
from ticdc_source.protocols.messages import parse_object
from ticdc_source.protocols.redaction import Path, Redactor, Treatment

__all__ = ["INSPECTION"]

# Types that content-compatible=true writes with a length, precision or labels.
_WITH_LENGTH = frozenset({"binary", "bit", "char", "decimal", "enum", "set", "varbinary", "varchar"})

_KEPT = frozenset({"id", "database", "table", "pkNames", "isDdl", "type", "es", "ts", "sqlType", "mysqlType"})
# Not the encoded handle key of output-row-key, and not the URL of a claim-check file.
_KEPT_OF_EXTENSION = frozenset({"commitTs", "watermarkTs", "onlyHandleKey"})


@dataclass
class CanalJSONSettings(SettingsFinder):
    """Counts what messages of TiCDC have and lack. Official Canal's say nothing of a changefeed."""

    _messages: int = 0
    _others: int = 0
    _extended: int = 0
    _row_keys: int = 0
    _long_types: int = 0
    _short_types: int = 0

    def _rows_of(self, events: TableEvents, index: int) -> Iterator[RowMessage]:
        message = parse_object(events.payloads[index])
        extension = message.get("_tidb") or {}
        self.no_commit_ts += extension.get("commitTs") is None
        if message.get("id") or "gtid" in message:  # TiCDC writes 0, and no gtid
            self._others += 1
            return
        self._messages += 1
        self._extended += bool(extension)
        self._row_keys += "rowkey" in extension
        for text in (message.get("mysqlType") or {}).values():
            if "(" in text:
                self._long_types += 1
            elif text in _WITH_LENGTH:
                self._short_types += 1
        claimed, key_only = extension.get("claimCheckLocation"), extension.get("onlyHandleKey")
        large = "claim-check" if claimed else "handle-key-only" if key_only else ""
        keys = message.get("pkNames") or ()
        olds = message.get("old") or ()
        for number, row in enumerate(message["data"]):
            old = olds[number] if number < len(olds) else None
            before, after = (row, None) if message["type"] == "DELETE" else (old, row)
            yield RowMessage(table=events.table, before=before, after=after, keys=keys, large=large)

    def found(self) -> list[ChangefeedSetting]:
        """Return the settings that the messages prove; none if they are official Canal's."""
        return super().found() if self._messages or self.watermarks or not self._others else []

    def _own_settings(self) -> Iterator[ChangefeedSetting]:
        messages, extended = self._messages + self.watermarks, self._extended + self.watermarks
        if messages:
            because = f"rows and watermarks with '_tidb': {extended:,} of {messages:,}"
            yield ChangefeedSetting("enable-tidb-extension", true_false(extended, messages - extended), because)
        long, short = self._long_types, self._short_types
        if extended and (long or short):
            because = f"types in 'mysqlType' with a length, precision or labels: {long:,}; that lack it: {short:,}"
            yield ChangefeedSetting("content-compatible", true_false(long, short), because)
        if self._row_keys:
            yield ChangefeedSetting("output-row-key", "true", f"messages with '_tidb.rowkey': {self._row_keys:,}")


def _redacted(key: bytes | None, value: bytes | None, redactor: Redactor) -> tuple[bytes | None, bytes | None]:
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


INSPECTION = Inspection(lambda _: CanalJSONSettings(), _redacted)
