"""Which settings of the changefeed open-protocol messages show (docs/wire.md, items 58 to 67)."""

from __future__ import annotations

from dataclasses import dataclass, field

from ticdc_source.errors import FramingError
from ticdc_source.events import Chunk, Split, TableName
from ticdc_source.protocols.messages import MALFORMED, JSONObject, parse_object
from ticdc_source.protocols.open_protocol.split import frames
from ticdc_source.protocols.settings import ChangefeedSetting, Compressions, RowMessage, RowSettings

__all__ = ["OpenProtocolSettings"]

_HANDLE_KEY = 2  # the flag of a column (docs/wire.md, item 61)
_MANY = 100  # records with one event each, from which on that is no accident
_Key = tuple[TableName, tuple[str, ...]]


@dataclass(slots=True)
class OpenProtocolSettings:
    """Counts what messages have and lack."""

    rows: RowSettings = field(default_factory=RowSettings)
    compressions: Compressions = field(default_factory=Compressions)
    no_commit_ts: int = 0  # each key frame has one
    _records: int = 0
    _most: int = 0
    _with_old: int = 0
    _written: dict[_Key, set[int]] = field(default_factory=dict)  # commit-ts of new rows without an old one, by key
    _deleted: dict[_Key, set[int]] = field(default_factory=dict)

    def add(self, chunk: Chunk, split: Split) -> None:
        """Look at the events of a chunk."""
        for value in chunk.values:
            try:
                for value_frame in frames(value or b"", 0, "value"):
                    self.compressions.add(value_frame)
            except FramingError:  # splitting reports it
                continue
        for table, events in split.tables.items():
            self._records += len(set(events.positions))
            self._most = max(self._most, *(index + 1 for index in events.indexes), 0)
            for key_frame, payload in zip(events.event_keys, events.payloads, strict=True):
                large = "claim-check" if "ccl" in key_frame else "handle-key-only" if "ohk" in key_frame else ""
                if large:  # the value may be compressed, or not be there
                    self.rows.add(RowMessage(table=table, before=None, after=None, large=large))
                    continue
                try:
                    self._add(table, key_frame["ts"], parse_object(payload))
                except MALFORMED:  # decoding reports it
                    continue

    def _add(self, table: TableName, commit_ts: int, message: JSONObject) -> None:
        after, before, deleted = (message.get(member) for member in ("u", "p", "d"))
        described = after or deleted or {}
        keys = [name for name, cell in described.items() if cell.get("h") or (cell.get("f") or 0) & _HANDLE_KEY]
        self._with_old += before is not None
        if keys and before is None:
            row = (table, tuple(str(described[name]["v"]) for name in keys))
            kept = self._deleted if after is None else self._written
            kept.setdefault(row, set()).add(commit_ts)
        old = before if after is not None else deleted
        new = {name: cell["v"] for name, cell in after.items()} if after is not None else None
        values = None if old is None else {name: cell["v"] for name, cell in old.items()}
        self.rows.add(RowMessage(table=table, before=values, after=new, keys=keys))

    def found(self) -> list[ChangefeedSetting]:
        """Return the settings that the messages prove."""
        settings = []
        if self._with_old:
            because = f"updates with 'p': {self._with_old:,}"
            settings.append(ChangefeedSetting("open.output-old-value", "true", because))
        else:
            # A row that was written twice, and not deleted in between, was updated.
            twice = sum(
                len(times) > len(self._deleted.get(row, ())) + 1 for row, times in self._written.items()
            )  # fmt: skip
            if twice:
                because = f"rows that are written again without 'p': {twice:,}"
                settings.append(ChangefeedSetting("open.output-old-value", "false", because))
        if self._most > 1:
            because = f"events in the largest record: {self._most:,}"
            settings.append(ChangefeedSetting("max-batch-size", f"at least {self._most}", because))
        elif self._records >= _MANY:
            because = f"each of {self._records:,} records has one event"
            settings.append(ChangefeedSetting("max-batch-size", "1", because))
        return [*settings, *self.rows.found(), *self.compressions.found()]
