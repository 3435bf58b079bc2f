"""What inspection asks of canal-json: the settings that messages show (docs/wire.md, items 68 to 76)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ticdc_source.protocols.changefeed import ChangefeedSetting, RowMessage, SettingsFinder, true_false
from ticdc_source.protocols.events import TableEvents
from ticdc_source.protocols.messages import parse_object

__all__ = ["CanalJSONSettings"]

# Types that content-compatible=true writes with a length, precision or labels.
_WITH_LENGTH = frozenset({"binary", "bit", "char", "decimal", "enum", "set", "varbinary", "varchar"})


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
