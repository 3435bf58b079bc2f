"""What inspection asks of open-protocol: the settings that messages show (docs/wire.md, items 58 to 67)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from ticdc_source.errors import FramingError
from ticdc_source.protocols.changefeed import ChangefeedSetting, RowMessage, SettingsFinder
from ticdc_source.protocols.events import Split, TableEvents
from ticdc_source.protocols.messages import parse_object
from ticdc_source.protocols.open_protocol.split import frames
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.ddl_kinds import removes_rows_of
from ticdc_source.schema.table_name import TableName
from ticdc_source.sources.chunk import Chunk

__all__ = ["OpenProtocolSettings"]

_HANDLE_KEY = 2  # the flag of a column (docs/wire.md, item 61)
_MANY = 3  # records of one transaction with one event each, from which on that is no accident
_Key = tuple[TableName, tuple[str, ...]]


@dataclass
class OpenProtocolSettings(SettingsFinder):
    """Counts what messages have and lack. Each key frame has a commit-ts."""

    _split: int = 0  # records with one event that follow another one of the same transaction
    _most: int = 0
    _twice: int = 0
    _with_old: int = 0
    _written: dict[_Key, set[int]] = field(default_factory=dict)  # commit-ts of new rows without an old one, by key
    _deleted: dict[_Key, set[int]] = field(default_factory=dict)
    _removals: list[DDLEvent] = field(default_factory=list)
    _next: dict[tuple[str, int], int] = field(default_factory=dict)  # offsets, by topic partition

    def add(self, chunk: Chunk, split: Split) -> None:
        """Look at the events of a chunk."""
        if len(chunk) and self._next.get((chunk.topic, chunk.partition), chunk.offsets[0]) != chunk.offsets[0]:
            self._count_twice()  # a row may have been deleted in between
        if len(chunk):
            self._next[chunk.topic, chunk.partition] = chunk.offsets[-1] + 1
        self._removals += [event for event in split.ddl if removes_rows_of(event, event.table)]
        self._split += _split_transactions(split)
        self._most = max([self._most, *(index + 1 for events in split.tables.values() for index in events.indexes)])
        super().add(chunk, split)

    def _texts(self, value: bytes | None) -> Collection[bytes]:
        try:
            return frames(value or b"", 0, "value")
        except FramingError:  # splitting reports it
            return ()

    def _rows_of(self, events: TableEvents, index: int) -> Iterator[RowMessage]:
        table, key_frame = events.table, events.event_keys[index]
        large = "claim-check" if "ccl" in key_frame else "handle-key-only" if "ohk" in key_frame else ""
        if large:  # the value may be compressed, or not be there
            yield RowMessage(table=table, before=None, after=None, large=large)
            return
        message, commit_ts = parse_object(events.payloads[index]), key_frame["ts"]
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
        yield RowMessage(table=table, before=values, after=new, keys=keys)

    def _own_settings(self) -> Iterator[ChangefeedSetting]:
        if self._with_old:
            yield ChangefeedSetting("open.output-old-value", "true", f"updates with 'p': {self._with_old:,}")
        else:
            self._count_twice()
            if self._twice:
                because = f"rows that are written again without 'p': {self._twice:,}"
                yield ChangefeedSetting("open.output-old-value", "false", because)
        if self._most > 1:
            because = f"events in the largest record: {self._most:,}"
            yield ChangefeedSetting("max-batch-size", f"at least {self._most}", because)
        elif self._split >= _MANY:
            because = f"records with one event behind another one of the same transaction: {self._split:,}"
            yield ChangefeedSetting("max-batch-size", "1", because)

    def _count_twice(self) -> None:
        """Count the rows that were written twice, and neither deleted in between nor removed by DDL: updated ones."""
        for row, times in self._written.items():
            if len(times) > len(self._deleted.get(row, ())) + 1:
                self._twice += not any(removes_rows_of(event, row[0]) for event in self._removals)
        self._written.clear()
        self._deleted.clear()


def _split_transactions(split: Split) -> int:
    """Return how many records have one event, and the commit-ts of the record before, which has one event too."""
    commits: dict[int, set[int]] = {}
    several: set[int] = set()
    for events in split.tables.values():
        for position, index, key in zip(events.positions, events.indexes, events.event_keys, strict=True):
            commits.setdefault(position, set()).add(key["ts"])
            if index:
                several.add(position)
    return sum(
        position not in several and position - 1 not in several and commits.get(position - 1) == versions
        for position, versions in commits.items()
    )
