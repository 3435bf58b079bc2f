"""Find settings of the changefeed in messages: the parts that all protocols share.

A setting is reported only if the messages prove it. `output-old-value=false` of a table without updates cannot be seen.
If messages prove two values, the changefeed was changed, and the value is `mixed`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from ticdc_source.options.registry import RegistrySettings
from ticdc_source.protocols.compression import codec_of
from ticdc_source.protocols.events import Split, TableEvents
from ticdc_source.protocols.messages import MALFORMED, JSONObject
from ticdc_source.schema.table_name import TableName
from ticdc_source.sources.chunk import Chunk

__all__ = ["ChangefeedSetting", "RowMessage", "SettingsFinder", "true_false"]

_NEARLY_ALL = 0.95


@dataclass(frozen=True, slots=True)
class ChangefeedSetting:
    """A setting of the changefeed.

    Attributes:
        name: as TiCDC's configuration names it.
        value: as TiCDC's configuration writes it.
        because: what in the messages shows it.
    """

    name: str
    value: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowMessage:
    """A row event, as its message has it.

    Attributes:
        table: the table.
        before: the old row, maybe in part; None if the message has none.
        after: the new row; None for a delete.
        keys: the handle-key columns that the message names.
        large: the value of `large-message-handle-option` for a message that was too large; empty for others.
    """

    table: TableName
    before: JSONObject | None
    after: JSONObject | None
    keys: Collection[str] = ()
    large: str = ""


@dataclass(slots=True)
class _TableColumns:
    """The columns that the rows of one table have.

    Attributes:
        new_row: the largest number of columns of a new row so far.
        has_short_deletes: whether deletes have key columns only, and rows before them others too.
        has_full_deletes: whether deletes have other columns too.
        keys: the handle-key columns; empty if the messages do not name them.
    """

    new_row: int = 0
    has_short_deletes: bool = False
    has_full_deletes: bool = False
    keys: frozenset[str] = frozenset()


@dataclass
class SettingsFinder(ABC):
    """Looks for the settings of a changefeed in the messages of one protocol. It keeps counts, no messages.

    Attributes:
        can_omit_old_columns: whether the protocol has `only-output-updated-columns`.
        registry: where the schemas of Avro messages are.
        no_commit_ts: the number of row messages without a commit-ts.
        watermarks: the number of watermarks.
    """

    can_omit_old_columns: ClassVar[bool] = True

    registry: RegistrySettings = field(default_factory=RegistrySettings)
    no_commit_ts: int = 0
    watermarks: int = 0
    _partial_old_rows: int = 0  # updates whose old row lacks columns
    _full_old_rows: int = 0  # updates whose old row has columns that did not change
    _key_changes: int = 0  # updates that change the handle key
    _large_messages: Counter[str] = field(default_factory=Counter)  # by the value of large-message-handle-option
    _codecs: Counter[str] = field(default_factory=Counter)  # of what TiCDC compresses: a Kafka value, or frames of one
    _tables: dict[TableName, _TableColumns] = field(default_factory=dict)

    def add(self, chunk: Chunk, split: Split) -> None:
        """Look at the events of a chunk; `split` has them."""
        for value in chunk.values:
            self._codecs.update(codec_of(text) for text in self._texts(value) if text)
        self.watermarks += len(split.watermarks)
        for events in split.tables.values():
            for index in range(len(events)):
                try:
                    for row in self._rows_of(events, index):
                        self._add_row(row)
                except MALFORMED:  # decoding reports it
                    continue

    def found(self) -> list[ChangefeedSetting]:
        """Return the settings that the messages prove, in the order in which to show them."""
        return [*self._own_settings(), *self._settings_of_rows(), *self._compression()]

    def _texts(self, value: bytes | None) -> Collection[bytes]:
        """Return the bytes in a Kafka value that TiCDC compresses, each by itself."""
        return [value or b""]

    @abstractmethod
    def _rows_of(self, events: TableEvents, index: int) -> Iterator[RowMessage]:
        """Yield the rows of an event, and count what only this protocol has. The event may be broken."""

    @abstractmethod
    def _own_settings(self) -> Iterator[ChangefeedSetting]:
        """Yield the settings that only messages of this protocol show."""

    def _add_row(self, row: RowMessage) -> None:
        if row.large:
            self._large_messages[row.large] += 1
            return  # it may have its key columns only
        table = self._tables.setdefault(row.table, _TableColumns())
        table.keys = frozenset(row.keys) or table.keys
        if row.after is not None:
            table.new_row = max(table.new_row, len(row.after))
            if row.before is not None:
                self._add_update(row.before, row.after, row.keys)
        elif row.before is not None:
            names = frozenset(row.before)
            # Rows behind the delete say nothing of it: DDL may have added columns.
            table.has_short_deletes |= names <= table.keys and table.new_row > len(table.keys)
            table.has_full_deletes |= bool(table.keys) and not names <= table.keys

    def _add_update(self, before: JSONObject, after: JSONObject, keys: Collection[str]) -> None:
        if len(before) < len(after):
            self._partial_old_rows += 1
        elif any(name in after and after[name] == old for name, old in before.items()):
            self._full_old_rows += 1
        self._key_changes += any(name in before and name in after and before[name] != after[name] for name in keys)

    def _settings_of_rows(self) -> Iterator[ChangefeedSetting]:
        partial, full = self._partial_old_rows, self._full_old_rows
        if self.can_omit_old_columns and (partial or full):
            because = (
                f"updates whose old row has fewer columns than the new one: {partial:,}; with old values that did not "
                f"change: {full:,}"
            )
            yield ChangefeedSetting("only-output-updated-columns", true_false(partial, full), because)
        tables = [table for table in self._tables.values() if table.keys]
        short, full = sum(table.has_short_deletes for table in tables), sum(table.has_full_deletes for table in tables)
        if short or full:
            because = f"tables whose deletes have key columns only: {short:,}; other columns too: {full:,}"
            yield ChangefeedSetting("delete-only-output-handle-key-columns", true_false(short, full), because)
        if self._key_changes:
            because = (
                f"updates that change the handle key, and are not split: {self._key_changes:,} (TiCDC before v6.5.5, "
                "v7.1.2 and v7.5 splits none)"
            )
            yield ChangefeedSetting("output-raw-change-event", "true", because)
        for option, count in self._large_messages.items():
            yield ChangefeedSetting("large-message-handle-option", option, f"messages that were too large: {count:,}")

    def _compression(self) -> Iterator[ChangefeedSetting]:
        """Yield the codec of nearly all values. Some bytes look compressed and are not."""
        total = self._codecs.total()
        for codec, count in self._codecs.most_common(1):
            because = f"values compressed with {codec}: {count:,} of {total:,}"
            if codec == "none":
                because = f"values that are not compressed: {count:,} of {total:,}"
            value = codec if count >= _NEARLY_ALL * total else "mixed"
            yield ChangefeedSetting("large-message-handle-compression", value, because)


def true_false(proofs: int, contradictions: int) -> str:
    """Return the value of a setting, given how many messages prove it to be true, and to be false."""
    if proofs and contradictions:
        return "mixed"
    return "true" if proofs else "false"
