"""Find settings of the changefeed in messages: the parts that all protocols share.

A setting is reported only if the messages prove it. `output-old-value=false` of a table without updates cannot be seen.
If messages prove two values, the changefeed was changed, and the value is `mixed`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Protocol

from ticdc_source.events import Chunk, Split, TableName
from ticdc_source.protocols.compression import codec_of
from ticdc_source.protocols.messages import JSONObject

__all__ = ["ChangefeedSetting", "Compressions", "RowMessage", "RowSettings", "SettingsFinder", "true_false"]

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


class SettingsFinder(Protocol):
    """Looks for the settings of a changefeed in the messages of one protocol. It keeps counts, no messages."""

    @property
    def no_commit_ts(self) -> int:
        """The number of row messages without a commit-ts."""

    def add(self, chunk: Chunk, split: Split) -> None:
        """Look at the events of a chunk; `split` has them."""

    def found(self) -> list[ChangefeedSetting]:
        """Return the settings that the messages prove, in the order in which to show them."""


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


@dataclass(slots=True)
class RowSettings:
    """Settings that row messages of every protocol show alike.

    Attributes:
        partial_old_rows: the number of updates whose old row lacks columns.
        full_old_rows: the number of updates whose old row has columns that did not change.
        key_changes: the number of updates that change the handle key.
        large_messages: the number of messages that were too large, by the value of `large-message-handle-option`.
    """

    partial_old_rows: int = 0
    full_old_rows: int = 0
    key_changes: int = 0
    large_messages: Counter[str] = field(default_factory=Counter)
    _tables: dict[TableName, _TableColumns] = field(default_factory=dict)

    def add(self, row: RowMessage) -> None:
        """Look at a row event."""
        if row.large:
            self.large_messages[row.large] += 1
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
            self.partial_old_rows += 1
        elif any(name in after and after[name] == old for name, old in before.items()):
            self.full_old_rows += 1
        self.key_changes += any(name in before and name in after and before[name] != after[name] for name in keys)

    def found(self, *, can_omit_old_columns: bool = True) -> list[ChangefeedSetting]:
        """Return the settings.

        Args:
            can_omit_old_columns: whether the protocol has `only-output-updated-columns`.
        """
        settings = []
        if can_omit_old_columns and (self.partial_old_rows or self.full_old_rows):
            because = (
                f"updates whose old row has fewer columns than the new one: {self.partial_old_rows:,}; with old values "
                f"that did not change: {self.full_old_rows:,}"
            )
            value = true_false(self.partial_old_rows, self.full_old_rows)
            settings.append(ChangefeedSetting("only-output-updated-columns", value, because))
        settings += self._deletes()
        if self.key_changes:
            because = (
                f"updates that change the handle key, and are not split: {self.key_changes:,} (TiCDC before v6.5.5, "
                "v7.1.2 and v7.5 splits none)"
            )
            settings.append(ChangefeedSetting("output-raw-change-event", "true", because))
        settings += [
            ChangefeedSetting("large-message-handle-option", option, f"messages that were too large: {count:,}")
            for option, count in self.large_messages.items()
        ]
        return settings

    def _deletes(self) -> list[ChangefeedSetting]:
        """Say whether deletes have their key columns only. A table says nothing if all its columns are in the key."""
        tables = [table for table in self._tables.values() if table.keys]
        key_only = sum(table.has_short_deletes for table in tables)
        full = sum(table.has_full_deletes for table in tables)
        if not key_only and not full:
            return []
        because = f"tables whose deletes have key columns only: {key_only:,}; other columns too: {full:,}"
        return [ChangefeedSetting("delete-only-output-handle-key-columns", true_false(key_only, full), because)]


@dataclass(slots=True)
class Compressions:
    """How messages are compressed by `large-message-handle-compression`.

    Attributes:
        counts: the number of values, by codec.
    """

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, value: bytes | None) -> None:
        """Look at the bytes that TiCDC compresses: a Kafka value, or a frame of one."""
        if value:
            self.counts[codec_of(value)] += 1

    def found(self) -> list[ChangefeedSetting]:
        """Return the setting: the codec of nearly all values. Some bytes look compressed and are not."""
        if not self.counts:
            return []
        ((codec, count),) = self.counts.most_common(1)
        total = self.counts.total()
        because = f"values compressed with {codec}: {count:,} of {total:,}"
        if codec == "none":
            because = f"values that are not compressed: {count:,} of {total:,}"
        value = codec if count >= _NEARLY_ALL * total else "mixed"
        return [ChangefeedSetting("large-message-handle-compression", value, because)]


def true_false(proofs: int, contradictions: int) -> str:
    """Return the value of a setting, given how many messages prove it to be true, and to be false."""
    if proofs and contradictions:
        return "mixed"
    return "true" if proofs else "false"
