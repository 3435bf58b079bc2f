"""Assembly: columns → a RecordBatch of the read schema."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import SchemaError
from ticdc_source.kernels.arrays import Binaries, are_all, consecutive, repeated, row_indices, taken
from ticdc_source.pipeline.metadata import CORRUPT_RECORD, HEADERS, SOURCE, Layout
from ticdc_source.protocols.base import ORIGIN
from ticdc_source.protocols.events import Corrupt
from ticdc_source.schema.change_order import CHANGE_TYPES, PLACED_FIRST_INDEXES, PLACED_RANK, RANKS, SEQUENCE
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.tso import physical_ms_each
from ticdc_source.schema.types import TIMESTAMP
from ticdc_source.sources.chunk import KNOWN_OFFSETS, UNKNOWN_PARTITION, Chunk

Value = TypeVar("Value")

_MOST_MS = (1 << 63) // 1000  # the limit of timestamps in microseconds; producers may write any number
_MICROSECONDS = pa.scalar(1000, pa.int64())  # in a millisecond
_CHANGE_TYPES = pa.array(CHANGE_TYPES, pa.string())
_EVENT_TYPES = pa.array(["row", "row", "row", "row", "ddl", "watermark", "bootstrap"], pa.string())
_EVENT_OPS = pa.array(["insert", "update", "update", "delete", None, None, None], pa.string())
_ENVELOPE_OPS = pa.array(["c", "u", "u", "d"], pa.string())
_READ = pa.scalar("r", pa.string())  # the op of a row of a snapshot
_ORIGIN_OP = ORIGIN.get_field_index("op")
# What is added to the columns of `Rows`, for the assembly: with `outputFormat=envelope` the origin of each event
# (`ORIGIN`), and if there are bad records, what `_corrupt_record` says. No MySQL name ends in a space.
ORIGIN_COLUMN = "origin of the event "
_CORRUPT = "corrupt record "


# What is known of each row beside its columns: the position of its record in the chunk; the index of its event in the
# message; its change type, an index into `CHANGE_TYPES`, or DDL or WATERMARK; and what the protocol knows of the event,
# NULL if unknown.
ROW_FACTS = pa.schema(
    [
        pa.field("position", pa.int32()),
        pa.field("index", pa.int32()),
        pa.field("change_type", pa.int8()),
        pa.field("commit_ts", pa.int64()),
        pa.field("start_ts", pa.int64()),
        pa.field("build_ts", pa.int64()),
        pa.field("cluster_id", pa.string()),
        pa.field("placed", pa.bool_()),  # as in `Decoded`
    ]
)
_FACT_TYPES = {field.name: field.type for field in ROW_FACTS}


def row_facts(count: int, **given: pa.Array) -> pa.RecordBatch:
    """Return the facts (`ROW_FACTS`) of `count` rows; those not given are NULL."""
    arrays = [given.pop(name) if name in given else pa.nulls(count, type_) for name, type_ in _FACT_TYPES.items()]
    assert not given, f"{[*given]} are no facts of rows"  # noqa: S101 (a misspelt name)
    return pa.RecordBatch.from_arrays(arrays, schema=ROW_FACTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The input of assembly: one entry per row, in row order.

    Attributes:
        chunk: the records the rows come from.
        facts: what is known of each row beside its columns (`ROW_FACTS`).
        columns: the columns of the table, or of `outputFormat`, by name in the read schema.
    """

    chunk: Chunk
    protocol: str
    table: TableName | None
    facts: pa.RecordBatch
    columns: Mapping[str, pa.Array]

    def __len__(self) -> int:
        return int(self.facts.num_rows)

    @property
    def positions(self) -> pa.Array:
        return self.facts.column(0)

    @property
    def indexes(self) -> pa.Array:
        return self.facts.column(1)

    @property
    def change_types(self) -> pa.Array:
        return self.facts.column(2)

    @property
    def commit_ts(self) -> pa.Array:
        return self.facts.column(3)

    def filtered(self, keep: pa.Array) -> Rows:
        if keep.true_count == len(keep):
            return self
        columns = {name: array.filter(keep) for name, array in self.columns.items()}
        return replace(self, facts=self.facts.filter(keep), columns=columns)

    def at(self, rows: pa.Array) -> Rows:
        """Return the facts of the rows at these row indexes, without columns."""
        return replace(self, facts=self.facts.take(rows), columns={})

    def offsets(self) -> pa.Array:
        return taken(_offsets(self.chunk.offsets), self.positions)

    def picked(self, values: Sequence[Value]) -> Sequence[Value]:
        """Return the value of each row's record, given one value per record."""
        if are_all(self.positions, len(values)):
            return values
        return list(map(values.__getitem__, self.positions.to_pylist()))

    def repeated(self, value: str | int | None, arrow: pa.DataType) -> pa.Array:
        return repeated(value, arrow, len(self))


def _offsets(offsets: Sequence[int]) -> pa.Array:
    if offsets and offsets[0] < KNOWN_OFFSETS:
        numbers = pa.array(offsets, pa.int64())
        return pc.if_else(pc.less(numbers, KNOWN_OFFSETS), pa.scalar(None, pa.int64()), numbers)
    if offsets and offsets[-1] - offsets[0] == len(offsets) - 1:  # they rise
        return consecutive(offsets[0], len(offsets))
    return pa.array(offsets, pa.int64())


def concatenated(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the facts of all rows."""
    columns = [pa.concat_arrays([part.column(name) for part in parts]) for name in ROW_FACTS.names]
    return pa.RecordBatch.from_arrays(columns, schema=ROW_FACTS)


def in_order(facts: pa.RecordBatch) -> pa.Array:
    return pc.sort_indices(facts, sort_keys=[("position", "ascending"), ("index", "ascending")])


_RANKS = pa.array(RANKS, pa.int32())
_PLACED_RANK = pa.scalar(PLACED_RANK, pa.int32())
_PLACED_FIRST_INDEXES = pa.array(PLACED_FIRST_INDEXES, pa.int32())


def _sequence(rows: Rows) -> pa.Array:
    """Return `_sequence`, by which the changes of a row, and DDL, are sorted."""
    ranks, indexes, placed = _RANKS.take(rows.change_types), rows.indexes, rows.facts.column("placed")
    if placed.true_count:
        ranks = pc.if_else(placed, _PLACED_RANK, ranks)
        indexes = pc.if_else(placed, pc.add(indexes, _PLACED_FIRST_INDEXES.take(rows.change_types)), indexes)
    return pa.StructArray.from_arrays(
        [rows.commit_ts, ranks, _partitions(rows), rows.offsets(), indexes], fields=list(SEQUENCE)
    )


def _partitions(rows: Rows) -> pa.Array:
    partition = rows.chunk.partition
    return rows.repeated(None if partition == UNKNOWN_PARTITION else partition, pa.int32())


def _source(rows: Rows) -> pa.Array:
    origin = rows.columns[ORIGIN_COLUMN]
    stated = {field.name: origin.field(index) for index, field in enumerate(origin.type)}
    children = [
        stated[field.name] if field.name in stated else _FILL[_SOURCE_FILLS.get(field.name, field.name)](rows)
        for field in _SOURCE
    ]
    return pa.StructArray.from_arrays(children, fields=_SOURCE)


_SOURCE = list(SOURCE)
_SOURCE_FILLS = {"commit_ts": "commit_version", "ts_ms": "commit_ms", "db": "database"}


def _chosen(source: pa.StructArray, wanted: pa.StructType) -> pa.StructArray:
    if wanted == source.type:
        return source
    children = [source.field(field.name.lower()) for field in wanted]
    return pa.StructArray.from_arrays(children, fields=list(wanted))


def _op(rows: Rows) -> pa.Array:
    ops = _ENVELOPE_OPS.take(rows.change_types)
    stated = rows.columns[ORIGIN_COLUMN].field(_ORIGIN_OP)
    read = pc.equal(stated, _READ)
    return pc.if_else(pc.fill_null(read, False), _READ, ops) if read.true_count else ops  # noqa: FBT003 (Arrow's)


def _timestamps(milliseconds: pa.Array) -> pa.Array:
    return pc.multiply(milliseconds, _MICROSECONDS).view(TIMESTAMP)


def _kafka_timestamps(rows: Rows) -> pa.Array:
    milliseconds = taken(pa.array(rows.chunk.timestamps, pa.int64()), rows.positions)
    has_time = pc.and_(pc.greater_equal(milliseconds, 0), pc.less(milliseconds, _MOST_MS))
    if has_time.true_count < len(has_time):
        milliseconds = pc.if_else(has_time, milliseconds, pa.scalar(None, pa.int64()))
    return _timestamps(milliseconds)


def _binaries(rows: Rows, values: Sequence[bytes | None]) -> pa.Array:
    if isinstance(values, Binaries):  # no Python object is made for a value
        return taken(values.array, rows.positions)
    return pa.array(rows.picked(values), pa.binary())


def _headers(rows: Rows) -> pa.Array:
    if rows.chunk.headers is None:
        return rows.repeated(None, HEADERS)
    lists = rows.picked(rows.chunk.headers)
    return pa.array([[{"key": key, "value": value} for key, value in headers] for headers in lists], HEADERS)


_FILL: dict[str, Callable[[Rows], pa.Array]] = {
    "change_type": lambda rows: _CHANGE_TYPES.take(rows.change_types),
    "commit_version": lambda rows: rows.commit_ts,
    "commit_ms": lambda rows: physical_ms_each(rows.commit_ts),
    "commit_timestamp": lambda rows: _timestamps(physical_ms_each(rows.commit_ts)),
    "sequence": _sequence,
    "index": lambda rows: rows.indexes,
    "event_type": lambda rows: _EVENT_TYPES.take(rows.change_types),
    "event_op": lambda rows: _EVENT_OPS.take(rows.change_types),
    "op": _op,
    "source": _source,
    "topic": lambda rows: rows.repeated(rows.chunk.topic or None, pa.string()),
    "partition": _partitions,
    "offset": lambda rows: rows.offsets(),
    "timestamp": _kafka_timestamps,
    "key": lambda rows: _binaries(rows, rows.chunk.keys),
    "value": lambda rows: _binaries(rows, rows.chunk.values),
    "database": lambda rows: rows.repeated(rows.table.database if rows.table else None, pa.string()),
    "table": lambda rows: rows.repeated(rows.table.table if rows.table else None, pa.string()),
    "protocol": lambda rows: rows.repeated(rows.protocol, pa.string()),
    "start_ts": lambda rows: rows.facts.column("start_ts"),
    "build_ts": lambda rows: rows.facts.column("build_ts"),
    "cluster_id": lambda rows: rows.facts.column("cluster_id"),
    "headers": _headers,
    "corrupt": lambda rows: rows.columns.get(_CORRUPT, pa.nulls(len(rows), CORRUPT_RECORD)),
}

# The columns that are filled for a record that cannot be read; all others are NULL in its row.
_FILLED_FOR_CORRUPT = frozenset(
    {"topic", "partition", "offset", "timestamp", "key", "value", "headers", "protocol", "corrupt"}
)


def with_corrupt(rows: Rows, corrupt: Sequence[Corrupt]) -> Rows:
    """Add bad records as rows of their own, in order. They have no change type."""
    if not corrupt:
        return rows
    bad = row_facts(
        len(corrupt),
        position=pa.array([item.position for item in corrupt], pa.int32()),
        index=pa.array([item.index for item in corrupt], pa.int32()),
    )
    facts = concatenated([rows.facts, bad])
    order = in_order(facts)
    good = pc.if_else(pc.less(order, len(rows)), order, pa.scalar(None, order.type))
    columns = {name: array.take(good) for name, array in rows.columns.items()}
    reports = [*[None] * len(rows), *(_corrupt_record(item, rows.chunk) for item in corrupt)]
    columns[_CORRUPT] = pa.array(reports, CORRUPT_RECORD).take(order)
    return replace(rows, facts=facts.take(order), columns=columns)


def portions(rows: Rows, layout: Layout, max_bytes: int) -> Iterator[Rows]:
    """Cut rows so that a portion's keys, values and headers stay within `max_bytes`.

    A record may have thousands of events, each with a row that holds the whole record. A single row may exceed the
    limit.
    """
    if not layout.repeated or not (pc.max(rows.indexes).as_py() or 0):
        yield rows  # one event per record: rows hold a record twice at most
        return
    sizes = pa.array(_record_sizes(rows.chunk, layout), pa.int64()).take(rows.positions)
    numbers = pc.divide(pc.cumulative_sum(sizes), pa.scalar(max_bytes, pa.int64()))
    for number in numbers.unique():
        yield rows.filtered(pc.equal(numbers, number))


def _record_sizes(chunk: Chunk, layout: Layout) -> list[int]:
    sizes = [0] * len(chunk)
    for name, parts in (("key", chunk.keys), ("value", chunk.values)):
        if name in layout.repeated:
            sizes = [size + len(part or b"") for size, part in zip(sizes, parts, strict=True)]
    if "headers" in layout.repeated and chunk.headers is not None:
        own = [sum(len(key) + len(value or b"") for key, value in headers) for headers in chunk.headers]
        sizes = [size + more for size, more in zip(sizes, own, strict=True)]
    return sizes


def assemble(rows: Rows, layout: Layout) -> pa.RecordBatch:
    """Return a record batch of the read schema.

    Raises:
        SchemaError: a NOT NULL column is NULL.
    """
    arrays = [rows.columns[name] if fill is None else _FILL[fill](rows) for name, fill in layout.fields]
    if layout.source is not None:
        arrays[layout.source] = _chosen(arrays[layout.source], layout.schema.field(layout.source).type)
    if _CORRUPT in rows.columns:
        good = pc.if_else(rows.change_types.is_valid(), row_indices(len(rows)), pa.scalar(None, pa.int32()))
        arrays = [
            array if fill in _FILLED_FOR_CORRUPT else array.take(good)
            for (_, fill), array in zip(layout.fields, arrays, strict=True)
        ]
    for column, field in layout.required:
        missing = _missing(field, arrays[column])
        if missing is not None:  # the JVM would only say "Value at index is null", or read a 0
            first, last = rows.chunk.address(0), rows.chunk.address(-1)
            raise SchemaError(
                f"Column {missing} is NOT NULL in the schema, but NULL in a row ({first} to {last.offset}): make it "
                "nullable"
            )
    return pa.RecordBatch.from_arrays(arrays, schema=layout.schema)


def _missing(field: pa.Field, array: pa.Array) -> str | None:
    """Return the name of a NOT NULL column that is NULL: this one, or a member of a struct that is not NULL."""
    if not field.nullable and array.null_count:
        return str(field.name)
    if pa.types.is_struct(field.type) and not all(child.nullable for child in field.type):
        structs = array.filter(array.is_valid())
        for number, child in enumerate(field.type):
            if not child.nullable and structs.field(number).null_count:
                return f"{field.name}.{child.name}"
    return None


def _corrupt_record(item: Corrupt, chunk: Chunk) -> str:
    address, place = item.error.address, chunk.address(item.position)
    report: dict[str, str | int | None] = {
        "reason": item.error.reason,
        "topic": place.topic,
        "partition": place.partition,
        "offset": place.offset,
        "index": item.index,
        "table": address.table,
        "column": address.column,
    }
    if item.bytes_at_index is None:
        report |= {"key": _base64(chunk.keys[item.position]), "value": _base64(chunk.values[item.position])}
    else:
        report["bytes_at_index"] = item.bytes_at_index
    return json.dumps(report, ensure_ascii=False)


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
