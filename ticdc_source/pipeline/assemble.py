"""Assembly: table columns, metadata columns and bad records → a RecordBatch of the read schema."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import SchemaError
from ticdc_source.events import CHANGE_TYPES, Chunk, Corrupt, TableName, are_all, counted, repeated, taken
from ticdc_source.pipeline.layout import Layout
from ticdc_source.pipeline.metadata import CORRUPT_RECORD, HEADERS, SEQUENCE, SOURCE
from ticdc_source.schema.types import TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Rows", "assemble", "in_order"]

_MOST_MS = (1 << 63) // 1000  # of a timestamp in microseconds; producers may write what they like
_LOGICAL_BITS = pa.scalar(18, pa.int64())  # of a TSO: physical milliseconds above, logical counter below
_MICROSECONDS = pa.scalar(1000, pa.int64())  # in a millisecond
# By kind (`CHANGE_TYPES`, then DDL and watermark). At one commit-ts old rows come first, and a DDL after the rows: a
# row with the commit-ts of a DDL belongs to the schema before it (docs/wire.md, item 31).
_RANKS = pa.array([1, 0, 1, 0, 2, 3], pa.int32())
_CHANGE_TYPES = pa.array(CHANGE_TYPES, pa.string())
_EVENT_TYPES = pa.array(["row", "row", "row", "row", "ddl", "watermark"], pa.string())
_EVENT_OPS = pa.array(["insert", "update", "update", "delete", None, None], pa.string())
_ENVELOPE_OPS = pa.array(["c", "u", "u", "d"], pa.string())


@dataclass(slots=True)
class Rows:
    """What assembly is given: one entry a row, in row order.

    Attributes:
        chunk: the records they come from.
        protocol: the wire format.
        table: the table, None for bad records alone.
        positions: each row's record, as a place in the chunk; int32.
        indexes: each row's event, as a place in its message; int32.
        change_types: indexes into `CHANGE_TYPES`; DDL and WATERMARK with `outputFormat=event`; int8.
        commit_ts, build_ts, cluster_id: per row; int64, int64, string; NULL where unknown.
        columns: what the table, or `outputFormat`, brings, by its name in the read schema.
    """

    chunk: Chunk
    protocol: str
    table: TableName | None
    positions: pa.Array
    indexes: pa.Array
    change_types: pa.Array
    commit_ts: pa.Array
    build_ts: pa.Array
    cluster_id: pa.Array
    columns: Mapping[str, pa.Array]
    _offsets: pa.Array | None = None

    def filtered(self, keep: pa.Array) -> Rows:
        """Return the rows of which `keep` says so."""
        rows = self._through(lambda array: array.filter(keep))
        rows.columns = {name: array.filter(keep) for name, array in self.columns.items()}
        return rows

    def at(self, places: pa.Array) -> Rows:
        """Return what is known of the rows at some places, without their columns."""
        return self._through(lambda array: array.take(places))

    def _through(self, run: Callable[[pa.Array], pa.Array]) -> Rows:
        return Rows(
            self.chunk, self.protocol, self.table, run(self.positions), run(self.indexes), run(self.change_types),
            run(self.commit_ts), run(self.build_ts), run(self.cluster_id), {},
        )  # fmt: skip

    def offsets(self) -> pa.Array:
        """Return each row's offset."""
        if self._offsets is None:
            self._offsets = taken(_offsets(self.chunk.offsets), self.positions)
        return self._offsets

    def picked(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return what each row's record has: of these, one a record."""
        if are_all(self.positions, len(values)):
            return values
        return list(map(values.__getitem__, self.positions.to_pylist()))

    def repeated(self, value: Any, arrow: pa.DataType) -> pa.Array:
        """Return the same value for each row."""
        return repeated(value, arrow, len(self.positions))


def _offsets(offsets: Sequence[int]) -> pa.Array:
    if offsets and offsets[-1] - offsets[0] == len(offsets) - 1:  # they rise
        return counted(offsets[0], len(offsets))
    return pa.array(offsets, pa.int64())


def in_order(positions: pa.Array, indexes: pa.Array) -> pa.Array:
    """Return the places of events in the order in which they were written."""
    events = pa.RecordBatch.from_arrays([positions, indexes], names=["position", "index"])
    return pc.sort_indices(events, sort_keys=[("position", "ascending"), ("index", "ascending")])


def _sequence(rows: Rows) -> pa.Array:
    children = [
        rows.commit_ts,
        _RANKS.take(rows.change_types),
        rows.repeated(rows.chunk.partition, pa.int32()),
        rows.offsets(),
        rows.indexes,
    ]
    return pa.StructArray.from_arrays(children, fields=_SEQUENCE)


def _source(rows: Rows) -> pa.Array:
    children = [_FILL[_SOURCE_FILLS.get(field.name, field.name)](rows) for field in _SOURCE]
    return pa.StructArray.from_arrays(children, fields=_SOURCE)


_SEQUENCE, _SOURCE = list(SEQUENCE), list(SOURCE)
_SOURCE_FILLS = {"commit_ts": "commit_version"}


def _timestamps(milliseconds: pa.Array) -> pa.Array:
    return pc.multiply(milliseconds, _MICROSECONDS).view(TIMESTAMP)


def _kafka_timestamps(rows: Rows) -> pa.Array:
    milliseconds = taken(pa.array(rows.chunk.timestamps, pa.int64()), rows.positions)
    known = pc.and_(pc.greater_equal(milliseconds, 0), pc.less(milliseconds, _MOST_MS))
    if known.true_count < len(known):
        milliseconds = pc.if_else(known, milliseconds, pa.scalar(None, pa.int64()))
    return _timestamps(milliseconds)


def _headers(rows: Rows) -> pa.Array:
    if rows.chunk.headers is None:
        return rows.repeated(None, HEADERS)
    lists = rows.picked(rows.chunk.headers)
    return pa.array([[{"key": key, "value": value} for key, value in headers] for headers in lists], HEADERS)


_FILL: dict[str, Callable[[Rows], pa.Array]] = {
    "change_type": lambda rows: _CHANGE_TYPES.take(rows.change_types),
    "commit_version": lambda rows: rows.commit_ts,
    "commit_timestamp": lambda rows: _timestamps(pc.shift_right(rows.commit_ts, _LOGICAL_BITS)),
    "sequence": _sequence,
    "index": lambda rows: rows.indexes,
    "event_type": lambda rows: _EVENT_TYPES.take(rows.change_types),
    "event_op": lambda rows: _EVENT_OPS.take(rows.change_types),
    "envelope_op": lambda rows: _ENVELOPE_OPS.take(rows.change_types),
    "source": _source,
    "topic": lambda rows: rows.repeated(rows.chunk.topic, pa.string()),
    "partition": lambda rows: rows.repeated(rows.chunk.partition, pa.int32()),
    "offset": lambda rows: rows.offsets(),
    "timestamp": _kafka_timestamps,
    "key": lambda rows: pa.array(rows.picked(rows.chunk.keys), pa.binary()),
    "value": lambda rows: pa.array(rows.picked(rows.chunk.values), pa.binary()),
    "database": lambda rows: rows.repeated(rows.table.database if rows.table else None, pa.string()),
    "table": lambda rows: rows.repeated(rows.table.table if rows.table else None, pa.string()),
    "protocol": lambda rows: rows.repeated(rows.protocol, pa.string()),
    "build_ts": lambda rows: rows.build_ts,
    "cluster_id": lambda rows: rows.cluster_id,
    "headers": _headers,
    "corrupt": lambda rows: pa.nulls(len(rows.positions), CORRUPT_RECORD),
}

# What is known of a record that cannot be read; all else is NULL in its row.
_KNOWN_OF_CORRUPT = frozenset({"topic", "partition", "offset", "timestamp", "key", "value", "headers", "protocol"})


def assemble(rows: Rows, corrupt: Sequence[Corrupt], layout: Layout) -> pa.RecordBatch:
    """Put the columns together as the read schema wants them; bad records become rows of their own, in order.

    Raises:
        SchemaError: a column that may not be NULL is.
    """
    arrays = [rows.columns[name] if fill is None else _FILL[fill](rows) for name, fill in layout.fields]
    if corrupt:
        positions = pa.array([item.position for item in corrupt], pa.int32())
        indexes = pa.array([item.index for item in corrupt], pa.int32())
        none = pa.nulls(0)
        bad = Rows(rows.chunk, rows.protocol, None, positions, indexes, none, none, none, none, {})
        order = in_order(pa.concat_arrays([rows.positions, positions]), pa.concat_arrays([rows.indexes, indexes]))
        arrays = [
            pa.concat_arrays([array, _corrupt_column(field, bad, corrupt, layout)]).take(order)
            for field, array in zip(layout.schema, arrays, strict=True)
        ]
    for place, field in layout.required:
        missing = _missing(field, arrays[place])
        if missing is not None:  # the JVM would say no more than "Value at index is null", or take it for a 0
            chunk = rows.chunk
            msg = (
                f"Column {missing} is NOT NULL in the schema that was given, and has NULL in a row of "
                f"{chunk.topic}-{chunk.partition}, offsets {chunk.offsets[0]} to {chunk.offsets[-1]}"
            )
            raise SchemaError(msg)
    return pa.RecordBatch.from_arrays(arrays, schema=layout.schema)


def _missing(field: pa.Field, array: pa.Array) -> str | None:
    """Return the name of a column that may not be NULL and is: this one, or one of those in a struct that is there."""
    if not field.nullable and array.null_count:
        return str(field.name)
    if pa.types.is_struct(field.type) and not all(child.nullable for child in field.type):
        there = array.filter(array.is_valid())
        for place, child in enumerate(field.type):
            if not child.nullable and there.field(place).null_count:
                return f"{field.name}.{child.name}"
    return None


def _corrupt_column(field: pa.Field, bad: Rows, corrupt: Sequence[Corrupt], layout: Layout) -> pa.Array:
    name = layout.metadata.get(field.name)
    if name in _KNOWN_OF_CORRUPT:
        return _FILL[name](bad)
    if field.name == layout.corrupt:
        return pa.array([_corrupt_record(item, bad.chunk) for item in corrupt], CORRUPT_RECORD)
    return pa.nulls(len(corrupt), field.type)


def _corrupt_record(item: Corrupt, chunk: Chunk) -> str:
    address = item.error.address
    return json.dumps({
        "reason": item.error.reason,
        "topic": chunk.topic,
        "partition": chunk.partition,
        "offset": chunk.offsets[item.position],
        "index": item.index,
        "table": address.table,
        "column": address.column,
        "key": _base64(chunk.keys[item.position]),
        "value": _base64(chunk.values[item.position]),
    }, ensure_ascii=False)  # fmt: skip


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
