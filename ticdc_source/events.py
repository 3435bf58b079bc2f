"""What travels between the stages: chunks of Kafka records, and the events split out of them.

All of them are parallel lists: one entry a record, or one entry an event. No object is made per record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, overload

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import Address, DecodeError

__all__ = [
    "CHANGE_TYPES",
    "DDL",
    "DELETE",
    "INSERT",
    "UPDATE_POSTIMAGE",
    "UPDATE_PREIMAGE",
    "WATERMARK",
    "Binaries",
    "Chunk",
    "Corrupt",
    "DDLEvent",
    "Split",
    "TableEvents",
    "TableName",
    "Wants",
    "WatermarkEvent",
    "are_all",
    "as_indices",
    "counted",
    "every_table",
    "merged",
    "promised_size",
    "repeated",
    "row_indices",
    "taken",
]


class Binaries(Sequence[bytes]):
    """A sequence of bytes, none of them null, which becomes Python objects when it is first looked at one by one.

    Args:
        array: the bytes, in an array that is no slice of another.
    """

    __slots__ = ("_list", "array")

    def __init__(self, array: pa.BinaryArray) -> None:
        self.array = array
        self._list: list[bytes] | None = None

    @property
    def nbytes(self) -> int:
        """How many bytes there are."""
        data = self.array.buffers()[2]
        return 0 if data is None else data.size

    def as_list(self) -> list[bytes]:
        """Return all as a list; made once, and not to be changed."""
        if self._list is None:
            self._list = self.array.to_pylist()
        return self._list

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.array)

    @overload
    def __getitem__(self, place: int) -> bytes: ...

    @overload
    def __getitem__(self, place: slice) -> list[bytes]: ...

    def __getitem__(self, place: int | slice) -> bytes | list[bytes]:
        """Return the bytes at a place, or those of a stretch as a list."""
        if self._list is None and isinstance(place, int):
            return self.array[place].as_py()  # type: ignore[no-any-return]
        return self.as_list()[place]

    def __iter__(self) -> Iterator[bytes]:
        """Return all, one by one."""
        return iter(self.as_list())

    def __eq__(self, other: object) -> bool:
        """Tell whether another sequence has the same bytes."""
        return isinstance(other, (list, Binaries)) and self.as_list() == list(other)

    __hash__ = None  # type: ignore[assignment]


# The values of `_change_type` (Spark's `Changelog` contract, Delta's change feed); an image's kind is an index.
CHANGE_TYPES = ("insert", "update_preimage", "update_postimage", "delete")
INSERT, UPDATE_PREIMAGE, UPDATE_POSTIMAGE, DELETE = range(4)
# What `outputFormat=event` has beside row images.
DDL, WATERMARK = 4, 5


class TableName(NamedTuple):
    """A table as TiCDC names it on the wire (after its own routing, where that is configured)."""

    database: str
    table: str

    def __str__(self) -> str:
        """Return `database.table`, each part in backticks where it needs them."""
        return ".".join(part if part.replace("_", "a").isalnum() else f"`{part.replace('`', '``')}`" for part in self)

    def is_same(self, other: TableName) -> bool:
        """Tell whether two names denote one table: TiDB compares names without case."""
        return self == other or [part.lower() for part in self] == [part.lower() for part in other]


# Tells which tables are wanted.
Wants = Callable[[TableName], bool]


def every_table(_table: TableName) -> bool:
    """Want all."""
    return True


@dataclass(slots=True)
class Chunk:
    """A bounded run of records of one topic partition, in offset order.

    Attributes:
        topic: the topic.
        partition: the topic partition.
        offsets: one offset a record, rising, not always by one.
        timestamps: Kafka's record timestamps in milliseconds since the epoch (-1: none).
        keys: the records' keys; None is Kafka's null, b"" an empty key.
        values: the records' values, likewise; where none is null it may be an array.
        headers: one list of (key, value) a record, or None where headers were not asked for.
    """

    topic: str
    partition: int
    offsets: list[int] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] | Binaries = field(default_factory=list)
    headers: list[list[tuple[str, bytes | None]]] | None = None

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.offsets)

    def listed_values(self) -> list[bytes | None]:
        """Return the values as the list that they are from now on."""
        if isinstance(self.values, Binaries):
            self.values = list[bytes | None](self.values)
        return self.values

    def part(self, first: int, after: int) -> Chunk:
        """Return the records at the positions from `first` to before `after`."""
        return Chunk(
            self.topic,
            self.partition,
            self.offsets[first:after],
            self.timestamps[first:after],
            self.keys[first:after],
            list(self.values[first:after]),
            None if self.headers is None else self.headers[first:after],
        )

    def address(self, position: int, table: TableName | None = None, column: str | None = None) -> Address:
        """Return the address of the record at `position` (its place in this chunk, from 0)."""
        return Address(
            self.topic, self.partition, self.offsets[position], None if table is None else str(table), column
        )


@dataclass(slots=True)
class TableEvents:
    """One table's table events: its row events of one chunk, in order.

    Attributes:
        chunk: where the events come from.
        table: the table.
        positions: each event's record, as a place in the chunk; a range where each record is one of these events.
        indexes: each event's place in its message, from 0.
        payloads: each event's bytes (for open-protocol one value frame); those of an array where each record is one of
            these events.
        headers: what the protocol learned of each event while splitting (for open-protocol the parsed key
            frame); nothing outside that protocol reads it.
    """

    chunk: Chunk
    table: TableName
    positions: list[int] | range = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)
    payloads: list[bytes] | Binaries = field(default_factory=list)
    headers: list[Any] = field(default_factory=list)

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self.payloads)

    @classmethod
    def of_records(
        cls, chunk: Chunk, table: TableName, positions: Sequence[int], payloads: Sequence[bytes]
    ) -> TableEvents:
        """Make the table events of records that are one event each."""
        count = len(payloads)
        places = range(count) if count == len(chunk) else list(positions)
        kept = payloads if isinstance(payloads, Binaries) else list(payloads)
        return cls(chunk, table, places, [0] * count, kept, [None] * count)

    def append(self, position: int, index: int, payload: bytes, header: Any = None) -> None:
        """Lay one event onto the table events."""
        positions, payloads = self._lists()
        positions.append(position)
        self.indexes.append(index)
        payloads.append(payload)
        self.headers.append(header)

    def extend(self, position: int, payloads: Sequence[bytes], headers: Sequence[Any]) -> None:
        """Lay the events of one record onto the table events: all that it has."""
        count = len(payloads)
        positions, mine = self._lists()
        positions += [position] * count
        self.indexes += range(count)
        mine += payloads
        self.headers += headers

    def _lists(self) -> tuple[list[int], list[bytes]]:
        """Return the positions and payloads as the lists that they are from now on."""
        if isinstance(self.positions, range):
            self.positions = list(self.positions)
        if isinstance(self.payloads, Binaries):
            self.payloads = list(self.payloads)
        return self.positions, self.payloads

    def address(self, event: int, column: str | None = None) -> Address:
        """Return the address of the event at place `event` of this table events."""
        return self.chunk.address(self.positions[event], self.table, column)


def merged(parts: Sequence[TableEvents]) -> TableEvents:
    """Merge parts of one table's events, in order."""
    table_events = TableEvents(parts[0].chunk, parts[0].table)
    events = [
        event for one in parts for event in zip(one.positions, one.indexes, one.payloads, one.headers, strict=True)
    ]
    for event in sorted(events, key=lambda event: event[:2]):
        table_events.append(*event)
    return table_events


@dataclass(frozen=True, slots=True)
class DDLEvent:
    """A DDL event. `table_changes` is debezium's description of the table afterwards, if there is one."""

    position: int
    index: int
    commit_ts: int | None
    table: TableName
    query: str
    type: str
    type_code: int | None = None
    table_changes: Any = None


@dataclass(frozen=True, slots=True)
class WatermarkEvent:
    """The promise that all events with commit_ts <= `ts` were sent before on this topic partition."""

    position: int
    index: int
    ts: int


@dataclass(frozen=True, slots=True)
class Corrupt:
    """An event, or a whole record, that cannot be read."""

    position: int
    index: int
    error: DecodeError


@dataclass(slots=True)
class Split:
    """A chunk, cut into events.

    Attributes:
        tables: the row events by table, in the order of their first events.
        ddl: DDL events, in order.
        watermarks: watermark events, in order.
        corrupt: what could not be cut, in order.
        skipped: records that carry no event on purpose (tombstones, header-only and bootstrap messages).
        others: row events of tables that are not wanted, which have no table events.
    """

    tables: dict[TableName, TableEvents] = field(default_factory=dict)
    ddl: list[DDLEvent] = field(default_factory=list)
    watermarks: list[WatermarkEvent] = field(default_factory=list)
    corrupt: list[Corrupt] = field(default_factory=list)
    skipped: int = 0
    others: int = 0

    def table_events(self, chunk: Chunk, table: TableName) -> TableEvents:
        """Return the table events of `table`, a new one at its first event."""
        table_events = self.tables.get(table)
        if table_events is None:
            table_events = self.tables[table] = TableEvents(chunk, table)
        return table_events

    def keep(self, wants: Wants) -> None:
        """Drop the events of tables that are not wanted, and count them."""
        for table in [table for table in self.tables if not wants(table)]:
            self.others += len(self.tables.pop(table))


_LEAST, _MOST = 1 << 13, 1 << 16  # rows of the arrays that are kept


def repeated(value: Any, arrow: pa.DataType, count: int) -> pa.Array:
    """Return an array of so many times one value."""
    if count > _MOST:
        return pa.repeat(pa.scalar(value, arrow), count)
    return _repeated(value, arrow, _room(count)).slice(0, count)


def row_indices(count: int) -> pa.Array:
    """Return 0, 1, 2, … as int32."""
    return _counted(pa.int32(), _room(count)).slice(0, count)


def counted(first: int, count: int) -> pa.Array:
    """Return so many numbers that rise by one, as int64."""
    return pc.add(_counted(pa.int64(), _room(count)).slice(0, count), pa.scalar(first, pa.int64()))


def as_indices(values: Sequence[int]) -> pa.Array:
    """Return numbers as int32; those of a range from 0 cost nothing."""
    return row_indices(len(values)) if values == range(len(values)) else pa.array(values, pa.int32())


def are_all(order: pa.Array, count: int) -> bool:
    """Tell whether places (int32) are all of so many, in order."""
    return len(order) == count and bool(order.equals(row_indices(count)))


def taken(values: pa.Array, order: pa.Array) -> pa.Array:
    """Return the values at some places (int32), or the values themselves where those are all of them, in order."""
    if are_all(order, len(values)):
        return values
    return pa.nulls(len(order), values.type) if values.null_count == len(values) else values.take(order)


def _room(count: int) -> int:
    return max(_LEAST, 1 << (count - 1).bit_length())


@lru_cache(maxsize=64)
def _repeated(value: Any, arrow: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, arrow), count)


@lru_cache(maxsize=8)
def _counted(arrow: pa.DataType, count: int) -> pa.Array:
    return pa.array(range(count), arrow)


_LAST = 0x80  # below this, a byte of a varint is its last


def promised_size(block: bytes) -> int:
    """Return the size that a block begins with, a varint (google/snappy format_description.txt, section 1)."""
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < _LAST:
            break
    return size
