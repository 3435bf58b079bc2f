"""Which settings of the changefeed its messages show: what the wire formats have in common.

A setting is reported only if the messages prove it. `output-old-value=false` of a table without updates cannot be seen.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Protocol

from ticdc_source.events import Chunk, Split, TableName
from ticdc_source.protocols.compression import codec_of
from ticdc_source.protocols.messages import JSONObject

__all__ = ["ChangefeedSetting", "Compressions", "RowMessage", "RowSettings", "SettingsFinder"]


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
    """Looks for the settings of a changefeed in the messages of one wire format. It keeps counts, no messages."""

    @property
    def no_commit_ts(self) -> int:
        """The number of row messages without a commit-ts."""

    def add(self, chunk: Chunk, split: Split) -> None:
        """Look at the events of a chunk."""

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
        large: how TiCDC handled a message that was too large, as its option says it; empty for one that was not.
    """

    table: TableName
    before: JSONObject | None
    after: JSONObject | None
    keys: Collection[str] = ()
    large: str = ""


@dataclass(slots=True)
class _Deletes:
    """The columns of one table's rows: the most of a new row, and those of deleted rows."""

    widest: int = 0
    deleted: set[frozenset[str]] = field(default_factory=set)
    keys: frozenset[str] = frozenset()


@dataclass(slots=True)
class RowSettings:
    """Settings that row messages of every wire format show alike.

    Attributes:
        partial: number of updates whose old row lacks columns.
        whole: number of updates whose old row has columns that did not change.
        moved: number of updates that change the handle key.
        large: number of messages that were too large, by how TiCDC handled them.
    """

    partial: int = 0
    whole: int = 0
    moved: int = 0
    large: dict[str, int] = field(default_factory=dict)
    _tables: dict[TableName, _Deletes] = field(default_factory=dict)

    def add(self, row: RowMessage) -> None:
        """Look at a row event."""
        if row.large:
            self.large[row.large] = self.large.get(row.large, 0) + 1
            return  # it may have its key columns only
        table = self._tables.setdefault(row.table, _Deletes())
        if row.after is not None:
            table.widest = max(table.widest, len(row.after))
            if row.before is not None:
                self._add_update(row.before, row.after, row.keys)
        elif row.before is not None:
            table.deleted.add(frozenset(row.before))
            table.keys = frozenset(row.keys) or table.keys

    def _add_update(self, before: JSONObject, after: JSONObject, keys: Collection[str]) -> None:
        if len(before) < len(after):
            self.partial += 1
        elif any(name in after and after[name] == old for name, old in before.items()):
            self.whole += 1
        self.moved += any(name in before and name in after and before[name] != after[name] for name in keys)

    def found(self, *, old_rows: bool = True) -> list[ChangefeedSetting]:
        """Return the settings.

        Args:
            old_rows: whether the wire format can leave columns out of old rows (`only-output-updated-columns`).
        """
        settings = []
        if old_rows and (self.partial or self.whole):
            because = (
                f"updates whose old row has fewer columns than the new one: {self.partial:,}"
                if self.partial
                else f"updates with old values that did not change: {self.whole:,}"
            )
            settings.append(ChangefeedSetting("only-output-updated-columns", _bool(self.partial > 0), because))
        settings += self._deletes()
        if self.moved:
            because = (
                f"updates that change the handle key, and are not split into a delete and an insert: {self.moved:,}"
            )
            settings.append(ChangefeedSetting("output-raw-change-event", "true", because))
        settings += [
            ChangefeedSetting(
                "large-message-handle-option", option, f"messages that were too large for Kafka: {count:,}"
            )
            for option, count in self.large.items()
        ]
        return settings

    def _deletes(self) -> list[ChangefeedSetting]:
        """Say whether deletes have their key columns only. A table whose columns are all in its key says nothing."""
        short = whole = 0
        for table in self._tables.values():
            for names in table.deleted:
                if len(names) < table.widest and (not table.keys or names <= table.keys):
                    short += 1
                elif not names <= table.keys and len(names) >= table.widest:
                    whole += 1
        if not short and not whole:
            return []
        because = "deletes have their key columns only" if short else "deletes have columns outside the handle key"
        return [ChangefeedSetting("delete-only-output-handle-key-columns", _bool(short > 0), because)]


@dataclass(slots=True)
class Compressions:
    """How messages are compressed by `large-message-handle-compression`.

    Attributes:
        counts: number of values, by codec.
    """

    counts: dict[str, int] = field(default_factory=dict)

    def add(self, value: bytes | None) -> None:
        """Look at a value, or at a value frame."""
        if value:
            codec = codec_of(value)
            self.counts[codec] = self.counts.get(codec, 0) + 1

    def found(self) -> list[ChangefeedSetting]:
        """Return the codec that most values have."""
        if not self.counts:
            return []
        codec = max(self.counts, key=lambda name: self.counts[name])
        because = f"values that begin like that: {self.counts[codec]:,} of {sum(self.counts.values()):,}"
        return [ChangefeedSetting("large-message-handle-compression", codec, because)]


def _bool(value: bool) -> str:  # noqa: FBT001 (it is the value)
    return "true" if value else "false"
