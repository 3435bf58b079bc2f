"""What inspection asks of CSV: nothing, because it comes in no topic. What looks like it is redacted as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ticdc_source.events import TableEvents
from ticdc_source.protocols.base import Inspection
from ticdc_source.protocols.changefeed import ChangefeedSetting, RowMessage, SettingsFinder
from ticdc_source.protocols.redaction import Redactor

__all__ = ["INSPECTION"]


@dataclass
class CSVSettings(SettingsFinder):
    """Finds no settings."""

    can_omit_old_columns: ClassVar[bool] = False

    def _rows_of(self, events: TableEvents, index: int) -> Iterator[RowMessage]:  # noqa: ARG002
        return iter(())

    def _own_settings(self) -> Iterator[ChangefeedSetting]:
        return iter(())


def _redacted(key: bytes | None, value: bytes | None, redactor: Redactor) -> tuple[bytes | None, bytes | None]:
    """Return the key, which has no values, and the redacted value of a record."""
    return key, value and redactor.unknown(value)


INSPECTION = Inspection(lambda _: CSVSettings(), _redacted)
