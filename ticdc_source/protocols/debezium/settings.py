"""Which settings of the changefeed debezium messages show (docs/wire.md, items 77 to 91)."""

from __future__ import annotations

from dataclasses import dataclass, field

from ticdc_source.events import Chunk, Split, TableName
from ticdc_source.protocols.compression import Compression
from ticdc_source.protocols.debezium.native import payload_of
from ticdc_source.protocols.messages import MALFORMED, JSONObject, parse_object
from ticdc_source.protocols.settings import ChangefeedSetting, Compressions, RowMessage, RowSettings, true_false

__all__ = ["DebeziumSettings"]

_TICDC = "TiCDC"  # `source.connector`
_TYPE = b'"tidb_type":'


@dataclass(slots=True)
class DebeziumSettings:
    """Counts what messages of TiCDC have and lack. Native Debezium's say nothing of a changefeed."""

    compression: Compression
    rows: RowSettings = field(default_factory=RowSettings)
    compressions: Compressions = field(default_factory=Compressions)
    no_commit_ts: int = 0
    _messages: int = 0
    _with_schema: int = 0
    _with_types: int = 0
    _with_start_ts: int = 0
    _updates: int = 0
    _without_old: int = 0
    _watermarks: int = 0

    def add(self, chunk: Chunk, split: Split) -> None:
        """Look at the events of a chunk."""
        for value in chunk.values:
            self.compressions.add(value)
        self._watermarks += len(split.watermarks)
        for table, events in split.tables.items():
            for position, payload in zip(events.positions, events.payloads, strict=True):
                try:
                    message = parse_object(payload)
                    self._add(table, message, payload, self._keys(chunk.keys[position]))
                except MALFORMED:  # decoding reports it
                    continue

    def _keys(self, key: bytes | None) -> frozenset[str]:
        return frozenset(payload_of(parse_object(self.compression.decompressed(key)))) if key else frozenset()

    def _add(self, table: TableName, message: JSONObject, payload: bytes, keys: frozenset[str]) -> None:
        row = payload_of(message)
        source, op = row["source"], row["op"]
        self.no_commit_ts += source.get("commit_ts") is None
        if source.get("connector") != _TICDC:
            return
        self._messages += 1
        if message.get("schema"):
            self._with_schema += 1
            self._with_types += _TYPE in payload
        self._with_start_ts += "start_ts" in source
        before, after = row.get("before"), row.get("after")
        if op == "u":
            self._updates += 1
            self._without_old += before is None
        self.rows.add(RowMessage(table=table, before=before, after=None if op == "d" else after, keys=keys))

    def found(self) -> list[ChangefeedSetting]:
        """Return the settings that the messages prove."""
        if not self._messages and not self._watermarks:
            return []
        settings = []
        if self._messages:
            because = f"messages with 'schema': {self._with_schema:,} of {self._messages:,}"
            value = true_false(self._messages - self._with_schema, self._with_schema)
            settings.append(ChangefeedSetting("debezium-disable-schema", value, because))
        if self._watermarks:
            because = f"watermarks: {self._watermarks:,}"
            settings.append(ChangefeedSetting("enable-tidb-extension", "true", because))
        elif self._with_schema:
            because = f"schemas with 'tidb_type': {self._with_types:,} of {self._with_schema:,}"
            value = true_false(self._with_types, self._with_schema - self._with_types)
            settings.append(ChangefeedSetting("enable-tidb-extension", value, because))
        if self._with_start_ts:
            because = f"messages with 'source.start_ts': {self._with_start_ts:,}"
            settings.append(ChangefeedSetting("debezium-include-start-ts", "true", because))
        if self._updates:
            with_old = self._updates - self._without_old
            because = f"updates with 'before': {with_old:,} of {self._updates:,}"
            settings.append(
                ChangefeedSetting("debezium.output-old-value", true_false(with_old, self._without_old), because)
            )
        return [*settings, *self.rows.found(can_omit_old_columns=False), *self.compressions.found()]
