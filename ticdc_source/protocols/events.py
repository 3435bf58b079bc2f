"""The result of splitting a chunk: the events of each table, as parallel lists, and all others."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

from ticdc_source.errors import Address, DecodeError
from ticdc_source.kernels.arrays import Binaries, as_indices
from ticdc_source.schema.ddl_event import DDLEvent, Moment
from ticdc_source.schema.table_name import TableName, Wants
from ticdc_source.sources.chunk import Chunk

# What splitting learned about an event, for the same protocol's decoder: for some, the parsed JSON of its key.
EventKey: TypeAlias = Any


@dataclass(slots=True)
class TableEvents:
    """The row events of one table in one chunk, in order.

    Attributes:
        positions: the position of each event's record in the chunk; a range if each record is one of these events.
        indexes: the index of each event in its message.
        payloads: the bytes of each event; `Binaries` if each is the whole value of a record.
    """

    chunk: Chunk
    table: TableName
    positions: list[int] | range = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)
    payloads: list[bytes] | Binaries = field(default_factory=list)
    event_keys: Sequence[EventKey] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.payloads)

    @classmethod
    def of_records(
        cls, chunk: Chunk, table: TableName, positions: Sequence[int], payloads: Sequence[bytes]
    ) -> TableEvents:
        """Make events of records with one event each."""
        count = len(payloads)
        kept_positions = range(count) if count == len(chunk) else list(positions)
        kept = payloads if isinstance(payloads, Binaries) else list(payloads)
        return cls(chunk, table, kept_positions, [0] * count, kept, [None] * count)

    def append(self, position: int, index: int, payload: bytes, event_key: EventKey = None) -> None:
        if not isinstance(self.event_keys, list):
            self.event_keys = self.keys_of(range(len(self)))
        if isinstance(self.positions, range):
            self.positions = list(self.positions)
        if isinstance(self.payloads, Binaries):
            self.payloads = list(self.payloads)
        self.positions.append(position)
        self.indexes.append(index)
        self.payloads.append(payload)
        self.event_keys.append(event_key)

    def picked(self, wanted: Sequence[int]) -> TableEvents:
        if len(wanted) == len(self):
            return self
        picked = TableEvents(self.chunk, self.table)
        for event, key in zip(wanted, self.keys_of(wanted), strict=True):
            picked.append(self.positions[event], self.indexes[event], self.payloads[event], key)
        return picked

    def keys_of(self, events: Sequence[int]) -> list[EventKey]:
        """Return the keys of events with these indexes; `event_keys` may be an array of numbers."""
        if isinstance(self.event_keys, pa.Array):
            keys: list[EventKey] = self.event_keys.take(as_indices(events)).to_pylist()
            return keys
        return [self.event_keys[event] for event in events]

    def payload_array(self) -> pa.BinaryArray:
        if isinstance(self.payloads, Binaries):
            return self.payloads.array
        return pa.array(self.payloads, pa.binary())

    def moment(self, event: int, commit_ts: int | None) -> Moment:
        return Moment(commit_ts or 0, *self.chunk.place(self.positions[event]))

    def address(self, event: int, column: str | None = None) -> Address:
        return self.chunk.address(self.positions[event], self.table, column)


def merged(parts: Sequence[TableEvents]) -> TableEvents:
    table_events = TableEvents(parts[0].chunk, parts[0].table)
    events = [
        event
        for part in parts
        for event in zip(part.positions, part.indexes, part.payloads, part.keys_of(range(len(part))), strict=True)
    ]
    for event in sorted(events, key=lambda event: event[:2]):
        table_events.append(*event)
    return table_events


@dataclass(frozen=True, slots=True)
class WatermarkEvent:
    """TiCDC's promise that all events with a commit-ts up to `ts` were sent before it to this topic partition."""

    position: int
    index: int
    ts: int
    build_ts: int | None = None
    cluster_id: str | None = None


@dataclass(frozen=True, slots=True)
class Corrupt:
    """An event, or a whole record, that cannot be read.

    Attributes:
        bytes_at_index: the index of another bad event of the record, whose row has the bytes for both.
    """

    position: int
    index: int
    error: DecodeError
    bytes_at_index: int | None = None


@dataclass(slots=True)
class Split:
    """A chunk, cut into events.

    Attributes:
        tables: the row events by table, in the order of their first events.
        bootstraps: repeated definitions of tables, which change nothing and have no commit-ts.
        skipped: the number of records without an event (tombstones, header-only and bootstrap messages).
        lost_deletes: the number of records of a deleted row that do not say which one.
        others: the number of row events of unwanted tables.
        unpacked: the number of bytes of decompressed messages.
        rest: the other events of the chunk, if all together would be too large.
    """

    tables: dict[TableName, TableEvents] = field(default_factory=dict)
    ddl: list[DDLEvent] = field(default_factory=list)
    bootstraps: list[DDLEvent] = field(default_factory=list)
    watermarks: list[WatermarkEvent] = field(default_factory=list)
    corrupt: list[Corrupt] = field(default_factory=list)
    skipped: int = 0
    lost_deletes: int = 0
    others: int = 0
    unpacked: int = 0
    rest: Iterator[Split] = field(default_factory=lambda: iter(()))

    @classmethod
    def of_parts(cls, parts: Iterator[Split]) -> Split:
        split = next(parts)
        split.rest = parts
        return split

    @classmethod
    def of_one_table(cls, chunk: Chunk, table: TableName, wants: Wants, event_key: EventKey = None) -> Split:
        """Split a chunk of which every record is a row of this table."""
        if not wants(table):
            return cls(others=len(chunk))
        events = TableEvents.of_records(chunk, table, range(len(chunk)), chunk.values)  # type: ignore[arg-type]
        events.event_keys = [event_key] * len(chunk)
        return cls(tables={table: events})

    def table_events(self, chunk: Chunk, table: TableName) -> TableEvents:
        table_events = self.tables.get(table)
        if table_events is None:
            table_events = self.tables[table] = TableEvents(chunk, table)
        return table_events

    def keep(self, wants: Wants) -> None:
        for table in [table for table in self.tables if not wants(table)]:
            self.others += len(self.tables.pop(table))

    def with_selected(self, selected: Mapping[TableName, TableEvents], start: int, end: int) -> Split:
        """Add the row events of the records at positions `[start, end)`."""
        for table, events in selected.items():
            first, after = (bisect_left(events.positions, position) for position in (start, end))
            if first == after:
                continue
            within = events if after - first == len(events) else events.picked(range(first, after))
            more = self.tables.get(table)
            self.tables[table] = within if more is None else merged([within, more])
        if selected:
            places = {table: (events.positions[0], events.indexes[0]) for table, events in self.tables.items()}
            self.tables = {table: self.tables[table] for table in sorted(places, key=places.__getitem__)}
        return self
