"""What inspection asks of simple: the settings that messages show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from ticdc_source.protocols.changefeed import ChangefeedSetting, RowMessage, SettingsFinder
from ticdc_source.protocols.events import Split, TableEvents
from ticdc_source.protocols.simple.avro import is_avro, message_of
from ticdc_source.protocols.simple.definitions import definitions_of
from ticdc_source.schema.table_name import TableName
from ticdc_source.sources.chunk import Chunk

__all__ = ["SimpleSettings"]


@dataclass
class SimpleSettings(SettingsFinder):
    """Counts what messages of TiCDC have and lack."""

    can_omit_old_columns: ClassVar[bool] = False

    _with_checksum: int = 0
    _in_json: int = 0
    _in_avro: int = 0
    _keys: dict[tuple[TableName, int], frozenset[str]] = field(default_factory=dict)

    def add(self, chunk: Chunk, split: Split) -> None:
        """Look at the events of a chunk, and at the keys of the tables that it defines."""
        for version, columns in definitions_of([*split.ddl, *split.bootstraps]).items():
            self._keys[version] = frozenset(column.name for column in columns if column.key)
        super().add(chunk, split)

    def _rows_of(self, events: TableEvents, index: int) -> Iterator[RowMessage]:
        message = message_of(events.payloads[index])
        self._with_checksum += "checksum" in message
        in_avro = is_avro(events.payloads[index])
        self._in_avro += in_avro
        self._in_json += not in_avro
        keys = self._keys.get((events.table.folded, message["schemaVersion"]), frozenset())
        claimed, key_only = message.get("claimCheckLocation"), message.get("handleKeyOnly")
        large = "claim-check" if claimed else "handle-key-only" if key_only else ""
        before, after = message.get("old"), message.get("data")
        yield RowMessage(table=events.table, before=before, after=after, keys=keys, large=large)

    def _own_settings(self) -> Iterator[ChangefeedSetting]:
        if self._in_json or self._in_avro:
            value = "mixed" if self._in_json and self._in_avro else "avro" if self._in_avro else "json"
            because = f"rows in JSON: {self._in_json:,}; in Avro: {self._in_avro:,}"
            yield ChangefeedSetting("encoding-format", value, because)
        if self._with_checksum:
            because = f"messages with 'checksum': {self._with_checksum:,}"
            yield ChangefeedSetting("integrity.integrity-check-level", "correctness", because)
