"""What inspection asks of avro: the settings that messages show, and the values that are redacted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ticdc_source.events import Chunk, Split, TableEvents
from ticdc_source.protocols.base import Inspection
from ticdc_source.protocols.changefeed import ChangefeedSetting, RowMessage, SettingsFinder
from ticdc_source.protocols.redaction import Redactor

__all__ = ["INSPECTION"]


@dataclass
class AvroSettings(SettingsFinder):
    """Counts what messages of TiCDC have and lack."""

    can_omit_old_columns: ClassVar[bool] = False

    _tombstones: int = 0
    _lost_deletes: int = 0

    def add(self, chunk: Chunk, split: Split) -> None:
        """Look at the events of a chunk."""
        self._lost_deletes += split.lost_deletes
        super().add(chunk, split)

    def _rows_of(self, events: TableEvents, index: int) -> Iterator[RowMessage]:
        self._tombstones += not events.payloads[index]
        return iter(())

    def _own_settings(self) -> Iterator[ChangefeedSetting]:
        if self._tombstones or self._lost_deletes:
            because = f"deletes without a value: {self._tombstones + self._lost_deletes:,}"
            yield ChangefeedSetting("avro-include-before-value", "false", because)
        if self.watermarks:
            yield ChangefeedSetting("avro-enable-watermark", "true", f"watermarks: {self.watermarks:,}")


def _redacted(key: bytes | None, value: bytes | None, redactor: Redactor) -> tuple[bytes | None, bytes | None]:
    """Refuse: nothing but the registry says which bytes are values."""
    msg = "records of avro cannot be redacted: the registry alone says which bytes are values"
    raise ValueError(msg)


INSPECTION = Inspection(AvroSettings, _redacted)
