"""What inspection asks of debezium-avro: the settings that messages show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ticdc_source.protocols.changefeed import ChangefeedSetting
from ticdc_source.protocols.debezium.avro import message_of, names_in_key
from ticdc_source.protocols.debezium.inspection import DebeziumSettings
from ticdc_source.protocols.events import TableEvents
from ticdc_source.protocols.messages import JSONObject

__all__ = ["DebeziumAvroSettings"]


@dataclass
class DebeziumAvroSettings(DebeziumSettings):
    """Counts what messages of TiCDC have and lack."""

    def _parsed(self, events: TableEvents, index: int) -> tuple[JSONObject, frozenset[str]]:
        key = events.chunk.keys[events.positions[index]]
        return message_of(self.registry, events.payloads[index]), names_in_key(self.registry, key)

    def _own_settings(self) -> Iterator[ChangefeedSetting]:
        for setting in super()._own_settings():
            if setting.name != "debezium-disable-schema":
                yield setting
        if self.watermarks:
            yield ChangefeedSetting("avro-enable-watermark", "true", f"watermarks: {self.watermarks:,}")
