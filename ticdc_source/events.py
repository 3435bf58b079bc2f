"""What travels between the stages: chunks of records, and the events that they are split into.

Both are parallel lists with one entry per record or per event: no object is made for each. Below them are the Arrow
helpers that several stages need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias, overload

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import Address, DecodeError

__all__ = [
    "BOOTSTRAP",
    "CHANGE_TYPES",
    "DDL",
    "DELETE",
    "INSERT",
    "START",
    "UPDATE_POSTIMAGE",
    "UPDATE_PREIMAGE",
    "WATERMARK",
    "Binaries",
    "Chunk",
    "Corrupt",
    "DDLEvent",
    "EventKey",
    "Moment",
    "Spans",
    "Split",
    "TableChanges",
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


class Spans(NamedTuple):
    """Where some values lie in the bytes that a fetch brought.

    Attributes:
        data: those bytes.
        bounds: two int32 for each value: the index of its first byte, and of the byte behind it. They never fall.
        nbytes: the number of bytes of all values.
    """

    data: bytes
    bounds: memoryview
    nbytes: int


class Binaries(Sequence[bytes]):
    """A sequence of bytes that lie in larger bytes. The Python objects are made at the first look at more than one.

    Args:
        spans: where they lie.
    """

    __slots__ = ("_array", "_list", "spans")

    def __init__(self, spans: Spans) -> None:
        self.spans = spans
        self._array: pa.BinaryArray | None = None
        self._list: list[bytes] | None = None

    @classmethod
    def of(cls, array: pa.BinaryArray) -> Binaries:
        """Return the values of an array, none of them null; it is not a slice of another array."""
        _, offsets, data = array.buffers()
        indices = pc.shift_right(pc.add(row_indices(2 * len(array)), 1), 1)  # 0, 1, 1, 2, 2, 3, …
        bounds = pa.Array.from_buffers(pa.int32(), len(array) + 1, [None, offsets]).take(indices)
        written = b"" if data is None else data.to_pybytes()
        nbytes = bounds[-1].as_py() - bounds[0].as_py() if len(array) else 0
        return cls(Spans(written, memoryview(pa.py_buffer(bounds.buffers()[1])).cast("B").cast("i"), nbytes))

    @property
    def array(self) -> pa.BinaryArray:
        """The values as an array. They are copied, once."""
        if self._array is None:
            data, bounds, _ = self.spans
            count = len(self)
            # The values, and the bytes between each two of them: every other one is taken.
            buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
            parts = pa.Array.from_buffers(pa.binary(), max(0, 2 * count - 1), buffers)
            self._array = parts.take(pc.multiply(row_indices(count), pa.scalar(2, pa.int32())))
        return self._array

    @property
    def nbytes(self) -> int:
        """The number of bytes of all values."""
        return self.spans.nbytes

    def as_list(self) -> list[bytes]:
        """Return all values as a list. It is made once; do not change it."""
        if self._list is None:
            data = self.spans.data
            bounds = iter(self.spans.bounds)
            self._list = [data[begin:end] for begin, end in zip(bounds, bounds, strict=True)]
        return self._list

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self.spans.bounds) // 2

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        """Return one value, or a slice as a list."""
        if self._list is None and isinstance(index, int):
            index = range(len(self))[index]
            return self.spans.data[self.spans.bounds[2 * index] : self.spans.bounds[2 * index + 1]]
        return self.as_list()[index]

    def part(self, first: int, after: int) -> Binaries:
        """Return the values at the positions `[first, after)`, which exist."""
        bounds = self.spans.bounds[2 * first : 2 * after]
        return Binaries(Spans(self.spans.data, bounds, sum(bounds[1::2]) - sum(bounds[::2])))

    def picked(self, wanted: Sequence[int]) -> Binaries:
        """Return the values at some rising positions."""
        bounds = pa.Array.from_buffers(pa.int64(), len(self), [None, pa.py_buffer(self.spans.bounds)])  # both in one
        taken = pa.py_buffer(bounds.take(as_indices(wanted)).buffers()[1])
        picked = memoryview(taken).cast("B").cast("i")[: 2 * len(wanted)]
        return Binaries(Spans(self.spans.data, picked, sum(picked[1::2]) - sum(picked[::2])))

    def __iter__(self) -> Iterator[bytes]:
        """Return an iterator over the values."""
        return iter(self.as_list())

    def __eq__(self, other: object) -> bool:
        """Return whether another sequence has the same values."""
        return isinstance(other, (list, Binaries)) and self.as_list() == list(other)

    __hash__ = None  # type: ignore[assignment]


# The values of `_change_type` (Spark's `Changelog` contract, Delta's change feed). A row image has an index into them.
CHANGE_TYPES = ("insert", "update_preimage", "update_postimage", "delete")
INSERT, UPDATE_PREIMAGE, UPDATE_POSTIMAGE, DELETE = range(4)
# `outputFormat=event` has these besides row images.
DDL, WATERMARK, BOOTSTRAP = 4, 5, 6


class TableName(NamedTuple):
    """A table, named as in the messages: after TiCDC's own routing, if that is configured."""

    database: str
    table: str

    def __str__(self) -> str:
        """Return `database.table`, each part in backticks if it needs them; `database db` if the table has no name."""
        if not self.table:
            return f"database {self.database}" if self.database else "no table"
        return ".".join(part if part.replace("_", "a").isalnum() else f"`{part.replace('`', '``')}`" for part in self)

    @property
    def folded(self) -> TableName:
        """What is equal for all spellings of the name: TiDB compares names without case. It is never shown."""
        return TableName(self.database.lower(), self.table.lower())

    def is_same(self, other: TableName) -> bool:
        """Return whether two names denote one table."""
        return self == other or self.folded == other.folded


# Returns whether a table is wanted.
Wants = Callable[[TableName], bool]
# What splitting learned of one event, for the decoder of the same protocol alone: for some, the parsed JSON of its key.
EventKey: TypeAlias = Any
# A wire format's own description of tables after a DDL event, parsed JSON; the decoder of the same protocol reads it.
TableChanges: TypeAlias = Sequence[dict[str, Any]]


def every_table(_table: TableName) -> bool:
    """Return true: every table is wanted."""
    return True


class _Lists(NamedTuple):
    """The parts of a chunk's records, to which those of more records can be appended."""

    offsets: list[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]


@dataclass(slots=True)
class Chunk:
    """A bounded run of records of one topic partition, in offset order.

    Attributes:
        topic: the topic.
        partition: the topic partition.
        offsets: one per record, rising, not always by one; a range if always by one and the native path cut them.
        timestamps: Kafka's record timestamps, in milliseconds since the epoch; -1 for none.
        keys: the records' keys; None is Kafka's null, b"" an empty key.
        values: the records' values; None is Kafka's null. They may be an array if none is null.
        headers: one list of (key, value) per record; None if headers were not asked for.
        failure: why the only record of the chunk could not be taken out of its record batch; its key and value are
            None then.
    """

    topic: str
    partition: int
    offsets: list[int] | range = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] | Binaries = field(default_factory=list)
    headers: list[list[tuple[str, bytes | None]]] | None = None
    failure: str | None = None

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.offsets)

    def lists(self) -> _Lists:
        """Return offsets, timestamps, keys and values as lists, and keep them as lists from now on."""
        if not isinstance(self.offsets, list):
            self.offsets = list(self.offsets)
        if isinstance(self.values, Binaries):
            self.values = list[bytes | None](self.values)
        return _Lists(self.offsets, self.timestamps, self.keys, self.values)

    def place(self, position: int) -> tuple[int, int]:
        """Return the topic partition and the offset of a record."""
        return self.partition, self.offsets[position]

    def part(self, first: int, after: int) -> Chunk:
        """Return the records at the positions `[first, after)`."""
        values = self.values
        return Chunk(
            self.topic,
            self.partition,
            self.offsets[first:after],
            self.timestamps[first:after],
            self.keys[first:after],
            values.part(first, after) if isinstance(values, Binaries) else values[first:after],
            None if self.headers is None else self.headers[first:after],
            self.failure,
        )

    def address(self, position: int, table: TableName | None = None, column: str | None = None) -> Address:
        """Return the address of the record at `position`, its index in this chunk.

        A table without a name stands for its database.
        """
        return Address(
            topic=self.topic,
            partition=self.partition,
            offset=self.offsets[position],
            database=None if table is None or table.table else table.database or None,
            table=None if table is None or not table.table else str(table),
            column=column,
        )


@dataclass(slots=True)
class TableEvents:
    """The row events of one table in one chunk, in order.

    Attributes:
        chunk: the records that hold the events.
        table: the table.
        positions: the position of each event's record in the chunk; a range if each record is one of these events.
        indexes: the index of each event in its message, from 0.
        payloads: the bytes of each event; `Binaries` if each is the whole value of a record.
        event_keys: what splitting learned of each event (`EventKey`).
    """

    chunk: Chunk
    table: TableName
    positions: list[int] | range = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)
    payloads: list[bytes] | Binaries = field(default_factory=list)
    event_keys: Sequence[EventKey] = field(default_factory=list)

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self.payloads)

    @classmethod
    def of_records(
        cls, chunk: Chunk, table: TableName, positions: Sequence[int], payloads: Sequence[bytes]
    ) -> TableEvents:
        """Return the events of records that are one event each."""
        count = len(payloads)
        kept_positions = range(count) if count == len(chunk) else list(positions)
        kept = payloads if isinstance(payloads, Binaries) else list(payloads)
        return cls(chunk, table, kept_positions, [0] * count, kept, [None] * count)

    def append(self, position: int, index: int, payload: bytes, event_key: EventKey = None) -> None:
        """Append one event."""
        positions, payloads, event_keys = self._lists()
        positions.append(position)
        self.indexes.append(index)
        payloads.append(payload)
        event_keys.append(event_key)

    def extend(self, position: int, payloads: Sequence[bytes], event_keys: Sequence[EventKey]) -> None:
        """Append all events of one record."""
        count = len(payloads)
        own_positions, own_payloads, own_keys = self._lists()
        own_positions += [position] * count
        self.indexes += range(count)
        own_payloads += payloads
        own_keys += event_keys

    def _lists(self) -> tuple[list[int], list[bytes], list[EventKey]]:
        """Return positions, payloads and event keys as lists, and keep them as lists from now on."""
        if not isinstance(self.event_keys, list):
            self.event_keys = list(self.event_keys)
        if isinstance(self.positions, range):
            self.positions = list(self.positions)
        if isinstance(self.payloads, Binaries):
            self.payloads = list(self.payloads)
        return self.positions, self.payloads, self.event_keys

    def picked(self, wanted: Sequence[int]) -> TableEvents:
        """Return the events at some rising indexes among these."""
        if len(wanted) == len(self):
            return self
        picked = TableEvents(self.chunk, self.table)
        for event in wanted:
            picked.append(self.positions[event], self.indexes[event], self.payloads[event], self.event_keys[event])
        return picked

    def payload_array(self) -> pa.BinaryArray:
        """Return the bytes of each event as one array."""
        if isinstance(self.payloads, Binaries):
            return self.payloads.array
        return pa.array(self.payloads, pa.binary())

    def moment(self, event: int, commit_ts: int | None) -> Moment:
        """Return when an event of a commit-ts happened, given its index among these."""
        return Moment(commit_ts or 0, *self.chunk.place(self.positions[event]))

    def address(self, event: int, column: str | None = None) -> Address:
        """Return the address of an event, given its index among these."""
        return self.chunk.address(self.positions[event], self.table, column)


def merged(parts: Sequence[TableEvents]) -> TableEvents:
    """Return the events of several parts of one table in one chunk, in order."""
    table_events = TableEvents(parts[0].chunk, parts[0].table)
    events = [
        event
        for part in parts
        for event in zip(part.positions, part.indexes, part.payloads, part.event_keys, strict=True)
    ]
    for event in sorted(events, key=lambda event: event[:2]):
        table_events.append(*event)
    return table_events


_BEHIND = 1 << 31  # every partition


class Moment(NamedTuple):
    """When a change happened, among the rows of its table: its commit-ts, then its place in the topic partition.

    Without a place, it comes behind every row of its commit-ts: a row with the commit-ts of a DDL event belongs to the
    schema before it (docs/wire.md, item 31). Where a time stands for the commit-ts, the place decides.

    Attributes:
        commit_ts: the commit-ts.
        partition, offset: the place.
    """

    commit_ts: int
    partition: int = _BEHIND
    offset: int = 0

    @property
    def last_before(self) -> int:
        """The last commit-ts of which all rows lie before it."""
        return self.commit_ts - (self.partition < _BEHIND)


START = Moment(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DDLEvent:
    """A DDL event.

    Attributes:
        position: the position of its record in the chunk.
        index: its index in the message.
        commit_ts: its commit-ts; None if the wire format has none.
        table: the table; its name is empty for the DDL of a database.
        query: the SQL text.
        type: the name of the DDL's type; empty if the message has none.
        type_code: TiDB's code of the DDL's type; None if the wire format lacks it.
        table_changes: the wire format's own description of the table afterwards, parsed JSON; None if there is none.
        build_ts: when TiCDC encoded it, in ms since the epoch; None if the message lacks it.
        cluster_id: TiCDC's cluster id; None if the message lacks it.
        place: its topic partition and offset, by which it is ordered among the changes with its commit-ts if a time
            stands for that; None if it has a commit-ts of its own.
    """

    position: int
    index: int
    commit_ts: int | None
    table: TableName
    query: str
    type: str
    type_code: int | None = None
    table_changes: TableChanges | None = None
    build_ts: int | None = None
    cluster_id: str | None = None
    place: tuple[int, int] | None = None

    @property
    def moment(self) -> Moment:
        """When it happened; at 0 if it has no commit-ts."""
        return Moment(self.commit_ts or 0, *(self.place or ()))

    @property
    def identity(self) -> str:
        """What its copies in other topic partitions, and those that TiCDC sends again, have in common.

        Where a time stands for the commit-ts, two events may have the same text and time: each is another one.
        """
        text = f"{self.table.database}\0{self.table.table}\0{self.query}"
        text += "" if self.place is None else f"\0{self.place}"
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
        return f"{self.commit_ts}-{digest.hexdigest()}"


@dataclass(frozen=True, slots=True)
class WatermarkEvent:
    """TiCDC's promise that all events with a commit-ts up to `ts` were sent before on this topic partition.

    Attributes:
        position, index: as in `DDLEvent`.
        ts: the watermark.
        build_ts, cluster_id: as in `DDLEvent`.
    """

    position: int
    index: int
    ts: int
    build_ts: int | None = None
    cluster_id: str | None = None


@dataclass(frozen=True, slots=True)
class Corrupt:
    """An event, or a whole record, that cannot be read.

    Attributes:
        position: the position of its record in the chunk.
        index: its index in the message.
        error: why it cannot be read.
        bytes_at_index: the index of another bad event of the same record, whose row has the record's bytes for both;
            None if its own row has them.
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
        ddl: DDL events, in order.
        bootstraps: what TiCDC sends again and again to define a table, in order. It changes nothing, and has no
            commit-ts.
        watermarks: watermark events, in order.
        corrupt: records and events that cannot be cut, in order.
        skipped: the number of records without an event (tombstones, header-only and bootstrap messages).
        lost_deletes: the number of records that say that some row was deleted, and not which one.
        others: the number of row events of tables that are not wanted.
        unpacked: the number of bytes that its events have and the chunk has not: those of decompressed messages.
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

    def table_events(self, chunk: Chunk, table: TableName) -> TableEvents:
        """Return the events of a table; none at first."""
        table_events = self.tables.get(table)
        if table_events is None:
            table_events = self.tables[table] = TableEvents(chunk, table)
        return table_events

    def keep(self, wants: Wants) -> None:
        """Drop the events of tables that are not wanted, and count them."""
        for table in [table for table in self.tables if not wants(table)]:
            self.others += len(self.tables.pop(table))


# Arrays that are alike in every chunk are made once and then sliced: a slice costs less than any kernel. These are the
# lengths of the shortest and the longest array that is kept.
_LEAST, _MOST = 1 << 13, 1 << 16


def repeated(value: str | float | None, arrow: pa.DataType, count: int) -> pa.Array:
    """Return an array that holds one value `count` times."""
    if count > _MOST:
        return pa.repeat(pa.scalar(value, arrow), count)
    return _repeated(value, arrow, _kept_length(count)).slice(0, count)


def row_indices(count: int) -> pa.Array:
    """Return 0, 1, 2, … as int32."""
    return _counted(pa.int32(), _kept_length(count)).slice(0, count)


def counted(first: int, count: int) -> pa.Array:
    """Return `first`, `first + 1`, … as int64."""
    return pc.add(_counted(pa.int64(), _kept_length(count)).slice(0, count), pa.scalar(first, pa.int64()))


def as_indices(values: Sequence[int]) -> pa.Array:
    """Return numbers as int32; a range from 0 costs nothing."""
    return row_indices(len(values)) if values == range(len(values)) else pa.array(values, pa.int32())


def are_all(order: pa.Array, count: int) -> bool:
    """Return whether row indexes (int32) are 0, 1, 2, … up to `count`."""
    return len(order) == count and bool(order.equals(row_indices(count)))


def taken(values: pa.Array, order: pa.Array) -> pa.Array:
    """Return the values at some row indexes (int32); the array itself if these are all, in order."""
    if are_all(order, len(values)):
        return values
    return pa.nulls(len(order), values.type) if values.null_count == len(values) else values.take(order)


def _kept_length(count: int) -> int:
    return max(_LEAST, 1 << (count - 1).bit_length())


@lru_cache(maxsize=64)
def _repeated(value: str | float | None, arrow: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, arrow), count)


@lru_cache(maxsize=8)
def _counted(arrow: pa.DataType, count: int) -> pa.Array:
    return pa.array(range(count), arrow)


_LAST = 0x80  # below this, a byte of a varint is its last


def promised_size(block: bytes) -> int:
    """Return the uncompressed size in bytes that a snappy block begins with, a varint.

    Source: google/snappy, format_description.txt, section 1. Both Kafka's and TiCDC's compression need it, to refuse a
    block before it is unpacked.
    """
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < _LAST:
            break
    return size
