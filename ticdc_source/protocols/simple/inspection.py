"""What inspection asks of simple: the settings that messages show, and the values that are redacted.

The values of columns are members of `data` and `old`. Table definitions stay as they are, also the defaults in them,
and so do DDL statements.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from ticdc_source.events import TableEvents
from ticdc_source.protocols.base import Inspection
from ticdc_source.protocols.changefeed import ChangefeedSetting, RowMessage, SettingsFinder
from ticdc_source.protocols.compression import Compression
from ticdc_source.protocols.prefix_match import plain_bytes
from ticdc_source.protocols.redaction import Path, Redactor, Treatment
from ticdc_source.protocols.simple.avro import is_avro, message_of, redacted_avro

__all__ = ["INSPECTION"]

_VALUES = frozenset({"data", "old"})
_LOCATION = "location"  # of a TIMESTAMP: a time zone
_URL = "claimCheckLocation"


@dataclass
class SimpleSettings(SettingsFinder):
    """Counts what messages of TiCDC have and lack."""

    can_omit_old_columns: ClassVar[bool] = False

    _with_checksum: int = 0
    _in_avro: int = 0

    def _rows_of(self, events: TableEvents, index: int) -> Iterator[RowMessage]:
        message = message_of(events.payloads[index])
        self._with_checksum += "checksum" in message
        self._in_avro += is_avro(events.payloads[index])
        claimed, key_only = message.get(_URL), message.get("handleKeyOnly")
        large = "claim-check" if claimed else "handle-key-only" if key_only else ""
        yield RowMessage(table=events.table, before=message.get("old"), after=message.get("data"), large=large)

    def _own_settings(self) -> Iterator[ChangefeedSetting]:
        if self._in_avro:
            yield ChangefeedSetting("encoding-format", "avro", f"rows in Avro: {self._in_avro:,}")
        if self._with_checksum:
            because = f"messages with 'checksum': {self._with_checksum:,}"
            yield ChangefeedSetting("integrity-check-level", "correctness", because)


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


INSPECTION = Inspection(SimpleSettings, _redacted)
