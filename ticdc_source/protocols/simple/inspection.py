"""What inspection asks of simple: the settings that messages show, and the values that are redacted.

The values of columns are members of `data` and `old`. Table definitions stay as they are, also the defaults in them,
and so do DDL statements.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from ticdc_source.protocols.base import Inspection
from ticdc_source.protocols.changefeed import ChangefeedSetting, RowMessage, SettingsFinder
from ticdc_source.protocols.compression import Compression
from ticdc_source.protocols.events import Split, TableEvents
from ticdc_source.protocols.prefix_match import plain_bytes
from ticdc_source.protocols.redaction import Path, Redactor, Treatment
from ticdc_source.protocols.simple.avro import is_avro, message_of, redacted_avro
from ticdc_source.protocols.simple.definitions import definitions_of
from ticdc_source.schema.table_name import TableName
from ticdc_source.sources.chunk import Chunk

__all__ = ["INSPECTION"]

_VALUES = frozenset({"data", "old"})
_LOCATION = "location"  # of a TIMESTAMP: a time zone
_URL = "claimCheckLocation"


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
        claimed, key_only = message.get(_URL), message.get("handleKeyOnly")
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


def _redacted(key: bytes | None, value: bytes | None, redactor: Redactor) -> tuple[bytes | None, bytes | None]:
    """Return the key and the value of a record with the values of columns redacted."""
    plain = plain_bytes(value, Compression())
    if value and is_avro(plain):
        try:
            return key and redactor.unknown(key), redactor.plain(value, lambda _: redacted_avro(plain, redactor))
        except (ValueError, struct.error):  # broken Avro
            return key and redactor.unknown(key), redactor.unknown(value)
    return key and redactor.unknown(key), value and redactor.json(value, _wanted)


def _wanted(path: Path, siblings: Mapping[str, bytes]) -> Treatment:  # noqa: ARG001 (the path tells)
    if not path or path[0] in (*_VALUES, _URL):
        return Treatment.KEEP if path and path[-1] == _LOCATION and len(path) > 2 else Treatment.REDACT  # noqa: PLR2004
    return Treatment.KEEP


INSPECTION = Inspection(lambda _: SimpleSettings(), _redacted)
