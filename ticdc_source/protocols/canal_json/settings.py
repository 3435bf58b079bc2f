"""Which settings of the changefeed canal-json messages show (docs/wire.md, items 68 to 76)."""

from __future__ import annotations

from dataclasses import dataclass, field

from ticdc_source.events import Chunk, Split, TableName
from ticdc_source.protocols.messages import MALFORMED, JSONObject, parse_object
from ticdc_source.protocols.settings import ChangefeedSetting, Compressions, RowMessage, RowSettings, true_false

__all__ = ["CanalJSONSettings"]

# Types that content-compatible=true writes with a length, precision or labels.
_WITH_LENGTH = frozenset({"binary", "bit", "char", "decimal", "enum", "set", "varbinary", "varchar"})


@dataclass(slots=True)
class CanalJSONSettings:
    """Counts what messages of TiCDC have and lack. Official Canal's say nothing of a changefeed."""

    rows: RowSettings = field(default_factory=RowSettings)
    compressions: Compressions = field(default_factory=Compressions)
    no_commit_ts: int = 0
    _messages: int = 0
    _others: int = 0
    _extended: int = 0
    _row_keys: int = 0
    _long_types: int = 0
    _short_types: int = 0

    def add(self, chunk: Chunk, split: Split) -> None:
        """Look at the events of a chunk."""
        for value in chunk.values:
            self.compressions.add(value)
        self._messages += len(split.watermarks)
        self._extended += len(split.watermarks)
        for table, events in split.tables.items():
            for payload in events.payloads:
                try:
                    self._add(table, parse_object(payload))
                except MALFORMED:  # decoding reports it
                    continue

    def _add(self, table: TableName, message: JSONObject) -> None:
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
        for index, row in enumerate(message["data"]):
            old = olds[index] if index < len(olds) else None
            deleted = message["type"] == "DELETE"
            before, after = (row, None) if deleted else (old, row)
            self.rows.add(RowMessage(table=table, before=before, after=after, keys=keys, large=large))

    def found(self) -> list[ChangefeedSetting]:
        """Return the settings that the messages prove."""
        if self._others and not self._messages:
            return []
        settings = []
        if self._messages:
            extended = true_false(self._extended, self._messages - self._extended)
            because = f"rows and watermarks with '_tidb': {self._extended:,} of {self._messages:,}"
            settings.append(ChangefeedSetting("enable-tidb-extension", extended, because))
            if self._extended and (self._long_types or self._short_types):
                value = true_false(self._long_types, self._short_types)
                because = (
                    f"types in 'mysqlType' with a length, precision or labels: {self._long_types:,}; that lack it: "
                    f"{self._short_types:,}"
                )
                settings.append(ChangefeedSetting("content-compatible", value, because))
        if self._row_keys:
            because = f"messages with '_tidb.rowkey': {self._row_keys:,}"
            settings.append(ChangefeedSetting("output-row-key", "true", because))
        return [*settings, *self.rows.found(), *self.compressions.found()]
