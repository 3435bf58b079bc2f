"""What inspection asks of debezium: the settings that messages show (docs/wire.md, items 77 to 91)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ticdc_source.protocols.changefeed import ChangefeedSetting, RowMessage, SettingsFinder, true_false
from ticdc_source.protocols.compression import Compression
from ticdc_source.protocols.debezium.decoder import row_fields
from ticdc_source.protocols.debezium.native_debezium import payload_of
from ticdc_source.protocols.events import TableEvents
from ticdc_source.protocols.messages import JSONObject, parse_object

__all__ = ["DebeziumSettings"]

_TICDC = "TiCDC"  # `source.connector`


@dataclass
class DebeziumSettings(SettingsFinder):
    """Counts what messages of TiCDC have and lack. Native Debezium's say nothing of a changefeed."""

    can_omit_old_columns: ClassVar[bool] = False

    _messages: int = 0
    _with_schema: int = 0
    _with_types: int = 0
    _with_start_ts: int = 0
    _updates: int = 0
    _without_old: int = 0

    def _rows_of(self, events: TableEvents, index: int) -> Iterator[RowMessage]:
        message, keys = self._parsed(events, index)
        row = payload_of(message)
        source, op = row["source"], row["op"]
        self.no_commit_ts += source.get("commit_ts") is None
        if source.get("connector") != _TICDC:
            return
        self._messages += 1
        if message.get("schema"):
            self._with_schema += 1
            self._with_types += any("tidb_type" in field for field in row_fields(message) or ())
        self._with_start_ts += "start_ts" in source
        before, after = row.get("before"), row.get("after")
        if op == "u":
            self._updates += 1
            self._without_old += before is None
        yield RowMessage(table=events.table, before=before, after=None if op == "d" else after, keys=keys)

    def _parsed(self, events: TableEvents, index: int) -> tuple[JSONObject, frozenset[str]]:
        """Return a message, and the names of the members of its key."""
        key = events.chunk.keys[events.positions[index]]
        keys = frozenset(payload_of(parse_object(Compression().decompressed(key)))) if key else frozenset()
        return parse_object(events.payloads[index]), keys

    def found(self) -> list[ChangefeedSetting]:
        """Return the settings that the messages prove; none if they are native Debezium's."""
        return super().found() if self._messages or self.watermarks else []

    def _own_settings(self) -> Iterator[ChangefeedSetting]:
        with_schema, with_types = self._with_schema, self._with_types
        if self._messages:
            value = true_false(self._messages - with_schema, with_schema)
            because = f"messages with 'schema': {with_schema:,} of {self._messages:,}"
            yield ChangefeedSetting("debezium-disable-schema", value, because)
        if self.watermarks:
            yield ChangefeedSetting("enable-tidb-extension", "true", f"watermarks: {self.watermarks:,}")
        elif with_schema:
            value = true_false(with_types, with_schema - with_types)
            because = f"schemas with 'tidb_type': {with_types:,} of {with_schema:,}"
            yield ChangefeedSetting("enable-tidb-extension", value, because)
        if self._with_start_ts:
            because = f"messages with 'source.start_ts': {self._with_start_ts:,}"
            yield ChangefeedSetting("debezium-include-start-ts", "true", because)
        if self._updates:
            with_old = self._updates - self._without_old
            because = f"updates with 'before': {with_old:,} of {self._updates:,}"
            yield ChangefeedSetting("debezium.output-old-value", true_false(with_old, self._without_old), because)
