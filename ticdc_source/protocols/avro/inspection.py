"""What inspection asks of avro: the settings that messages show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ticdc_source.protocols.avro.row_schema import BEFORE, CHECKSUM, COMMIT_TS, OP, row_schema_of
from ticdc_source.protocols.changefeed import ChangefeedSetting, RowMessage, SettingsFinder, true_false
from ticdc_source.protocols.events import Split, TableEvents
from ticdc_source.protocols.registry_framing import body_of, has_header
from ticdc_source.sources.chunk import Chunk

__all__ = ["AvroSettings"]


@dataclass
class AvroSettings(SettingsFinder):
    """Counts what messages of TiCDC have and lack."""

    can_omit_old_columns: ClassVar[bool] = False

    _rows: int = 0
    _with_extension: int = 0
    _with_before: int = 0
    _with_checksum: int = 0
    _deletes_by_key: int = 0

    def add(self, chunk: Chunk, split: Split) -> None:
        """Look at the events of a chunk."""
        self._deletes_by_key += split.lost_deletes
        super().add(chunk, split)

    def _rows_of(self, events: TableEvents, index: int) -> Iterator[RowMessage]:
        payload = events.payloads[index]
        if not has_header(payload):
            self._deletes_by_key += 1
            return
        schema_id, start = body_of(payload)
        schema = row_schema_of(self.registry, schema_id)
        row = schema.schema.read(payload, start)
        own = {name: row.pop(name) for name in schema.own}
        self._rows += 1
        self._with_extension += COMMIT_TS in own
        self._with_before += BEFORE in own
        self._with_checksum += CHECKSUM in own
        self.no_commit_ts += COMMIT_TS not in own
        key = events.chunk.keys[events.positions[index]]
        in_key = row_schema_of(self.registry, body_of(key).schema_id).columns if key else ()
        keys = frozenset(column.name for column in in_key)
        is_delete = own.get(OP) == "d"
        before = row if is_delete else own.get(BEFORE)
        yield RowMessage(table=events.table, before=before, after=None if is_delete else row, keys=keys)

    def _own_settings(self) -> Iterator[ChangefeedSetting]:
        if not self._rows and not self._deletes_by_key:
            return
        for name, count in (
            ("enable-tidb-extension", self._with_extension),
            ("avro-include-before-value", self._with_before),
        ):
            because = f"rows with its fields: {count:,} of {self._rows:,}"
            yield ChangefeedSetting(name, true_false(count, self._rows - count), because)
        if self._with_checksum:
            because = f"rows with a checksum: {self._with_checksum:,}"
            yield ChangefeedSetting("integrity.integrity-check-level", "correctness", because)
        if self.watermarks:
            yield ChangefeedSetting("avro-enable-watermark", "true", f"watermarks: {self.watermarks:,}")
