"""What inspection asks of debezium-avro: the settings that messages show, and the values that are redacted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ticdc_source.options.registry import RegistrySettings
from ticdc_source.protocols.avro_bytes import redacted
from ticdc_source.protocols.base import Inspection
from ticdc_source.protocols.changefeed import ChangefeedSetting
from ticdc_source.protocols.debezium.avro import message_of, names_in_key
from ticdc_source.protocols.debezium.inspection import DebeziumSettings
from ticdc_source.protocols.events import TableEvents
from ticdc_source.protocols.messages import JSONObject
from ticdc_source.protocols.redaction import Redactor
from ticdc_source.protocols.registry_framing import body_of, has_header, schema_of

__all__ = ["INSPECTION"]


@dataclass
class DebeziumAvroSettings(DebeziumSettings):
    """Counts what messages of TiCDC have and lack."""

    registry: RegistrySettings = field(default_factory=RegistrySettings)

    def _parsed(self, events: TableEvents, index: int) -> tuple[JSONObject, frozenset[str]]:
        key = events.chunk.keys[events.positions[index]]
        return message_of(self.registry, events.payloads[index]), names_in_key(self.registry, key)

    def _own_settings(self) -> Iterator[ChangefeedSetting]:
        for setting in super()._own_settings():
            if setting.name != "debezium-disable-schema":
                yield setting
        if self.watermarks:
            yield ChangefeedSetting("avro-enable-watermark", "true", f"watermarks: {self.watermarks:,}")


def _redacted(key: bytes | None, value: bytes | None, redactor: Redactor) -> tuple[bytes | None, bytes | None]:
    """Return the key and the value of a record with the values of columns redacted."""
    return _redacted_part(key, redactor, ()), _redacted_part(value, redactor, ("before", "after"))


def _redacted_part(data: bytes | None, redactor: Redactor, rows: tuple[str, ...]) -> bytes | None:
    """Return a key or a value, redacted.

    Args:
        data: it.
        redactor: redacts.
        rows: the members that hold rows; none if the record itself is a row.
    """
    if data is None or not has_header(data):
        return data
    schema_id, start = body_of(data)
    declared = schema_of(redactor.registry, schema_id).declared
    return redacted(declared, data, start, redactor, lambda path: not rows or path[0] in rows)


INSPECTION = Inspection(lambda registry: DebeziumAvroSettings(registry=registry), _redacted)
