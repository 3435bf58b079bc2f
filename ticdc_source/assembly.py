"""Assembly: the columns of one tray, its metadata columns and its bad records → a RecordBatch of the read schema."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import SchemaError
from ticdc_source.events import CHANGE_TYPES, Chunk, Corrupt, TableName
from ticdc_source.metadata import CORRUPT_RECORD, JSON_COLUMNS, METADATA, RESCUED_DATA, SEQUENCE, SHAPES, SOURCE
from ticdc_source.options import Options
from ticdc_source.schema import TABLE
from ticdc_source.types import VARIANT

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Layout", "Rows", "assemble"]

_MOST_MS = (1 << 63) // 1000  # of a timestamp in microseconds; producers may write what they like
_LOGICAL_BITS = 18  # of a TSO: physical milliseconds above, logical counter below
# By kind (`CHANGE_TYPES`, then DDL and watermark). At one commit-ts old rows come first, and a DDL after the rows: a
# row with the commit-ts of a DDL belongs to the schema before it (wire.md item 31).
_RANKS = (1, 0, 1, 0, 2, 3)
_EVENT_TYPES = ("row", "row", "row", "row", "ddl", "watermark")
_EVENT_OPS = ("insert", "update", "update", "delete", None, None)
_ENVELOPE_OPS = ("c", "u", "u", "d")


@dataclass(frozen=True, slots=True)
class Layout:
    """What each field of the read schema is.

    Attributes:
        schema: the read schema.
        metadata: name in the schema → name in `_FILL`.
        corrupt: the name of the corrupt-record column, None where the schema has none.
        rescued: the name of the rescued column, None where the schema has none.
        output: the option `outputFormat`.
        own: for `outputFormat` other than changelog, what the rows bring: its name → the name in the schema.
    """

    schema: pa.Schema
    metadata: Mapping[str, str]
    corrupt: str | None
    rescued: str | None = None
    output: str = "changelog"
    own: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, schema: pa.Schema, options: Options) -> Layout:
        """Tell the fields apart by their names, without case.

        Raises:
            SchemaError: a metadata column has another type than it must have, or `outputFormat` has no such column.
        """
        output, corrupt, rescued = (
            options.output_format, options.column_name_of_corrupt_record, options.rescued_data_column,
        )  # fmt: skip
        if SHAPES[output]:
            return cls._of_shape(schema, options)
        by_name = {(options.metadata_column_prefix + column.name).lower(): column for column in METADATA}
        metadata, corrupt_name, rescued_name = {}, None, None
        for field in schema:
            if field.metadata and TABLE.encode() in field.metadata:
                continue  # inference found it in the table, whatever metadata columns there might have been
            column = by_name.get(field.name.lower())
            expected = column.arrow if column else None
            if field.name.lower() == corrupt.lower():
                corrupt_name, expected = field.name, CORRUPT_RECORD
            elif rescued is not None and field.name.lower() == rescued.lower():
                rescued_name, expected = field.name, RESCUED_DATA
            elif column:
                metadata[field.name] = column.name
            _require_type(field, expected)
        return cls(schema, metadata, corrupt_name, rescued_name)

    @classmethod
    def _of_shape(cls, schema: pa.Schema, options: Options) -> Layout:
        output, prefix = options.output_format, options.metadata_column_prefix
        corrupt, rescued = options.column_name_of_corrupt_record, options.rescued_data_column
        extra = {(prefix + column.name).lower(): column for column in METADATA if column.level != "core"}
        shape = {((prefix if column.prefixed else "") + column.name).lower(): column for column in SHAPES[output]}
        metadata, own, corrupt_name, rescued_name = {}, {}, None, None
        for field in schema:
            name = field.name.lower()
            if name in shape:
                if not (output == "event" and name in JSON_COLUMNS and field.type == VARIANT):
                    _require_type(field, shape[name].arrow)
                if shape[name].arrow is None and not pa.types.is_struct(field.type):
                    msg = f"Column {field.name} has the type {field.type}; it must be a struct of the table's columns"
                    raise SchemaError(msg)
                if shape[name].fill:
                    metadata[field.name] = shape[name].fill
                else:
                    own[shape[name].name] = field.name
            elif name == corrupt.lower():
                corrupt_name = field.name
                _require_type(field, CORRUPT_RECORD)
            elif rescued is not None and name == rescued.lower():
                rescued_name = field.name
                _require_type(field, RESCUED_DATA)
            elif name in extra:
                metadata[field.name] = extra[name].name
                _require_type(field, extra[name].arrow)
            else:
                msg = f"Column {field.name}: outputFormat={output} has no such column; it has {', '.join(shape)}"
                raise SchemaError(msg)
        return cls(schema, metadata, corrupt_name, rescued_name, output, own)

    def data_fields(self) -> list[pa.Field]:
        """Return the fields that are table columns.

        Raises:
            SchemaError: `before` and `after` give one column different types.
        """
        if self.output == "changelog":
            others = {*self.metadata, self.corrupt, self.rescued}
            return [field for field in self.schema if field.name not in others]
        fields: dict[str, pa.Field] = {}
        for image in ("before", "after") if self.output == "envelope" else ():
            for field in self.schema.field(self.own[image]).type if image in self.own else ():
                if fields.setdefault(field.name.lower(), field).type != field.type:
                    msg = f"Column {field.name} has one type in 'before' and another in 'after'"
                    raise SchemaError(msg)
        return list(fields.values())


def _require_type(field: pa.Field, expected: pa.DataType | None) -> None:
    if expected is not None and field.type != expected:
        msg = f"Column {field.name} has the type {field.type}; as a metadata column it must be {expected}"
        raise SchemaError(msg)


@dataclass(slots=True)
class Rows:
    """What assembly is given: one entry a row, in row order.

    Attributes:
        chunk: the records they come from.
        protocol: the wire format.
        table: the table, None for bad records alone.
        positions: each row's record, as a place in the chunk.
        indexes: each row's event, as a place in its message.
        kinds: indexes into `CHANGE_TYPES`; DDL and WATERMARK with `outputFormat=event`.
        commit_ts, build_ts, cluster_id: per row; None where unknown.
        columns: what the table, or `outputFormat`, brings, by its name in the read schema.
    """

    chunk: Chunk
    protocol: str
    table: TableName | None
    positions: list[int]
    indexes: list[int]
    kinds: list[int]
    commit_ts: list[int | None]
    build_ts: list[int | None]
    cluster_id: list[str | None]
    columns: Mapping[str, pa.Array]

    def filtered(self, keep: Sequence[bool]) -> Rows:
        """Return the rows of which `keep` says so."""
        mask = pa.array(keep, pa.bool_())
        return Rows(
            self.chunk,
            self.protocol,
            self.table,
            list(compress(self.positions, keep)),
            list(compress(self.indexes, keep)),
            list(compress(self.kinds, keep)),
            list(compress(self.commit_ts, keep)),
            list(compress(self.build_ts, keep)),
            list(compress(self.cluster_id, keep)),
            {name: array.filter(mask) for name, array in self.columns.items()},
        )


def _pick(values: Sequence[Any]) -> Callable[[Rows], list[Any]]:
    def pick(rows: Rows) -> list[Any]:
        return [values[position] for position in rows.positions]

    return pick


def _sequence(rows: Rows) -> pa.Array:
    chunk, count = rows.chunk, len(rows.positions)
    children = [
        pa.array(rows.commit_ts, pa.int64()),
        pa.array([_RANKS[kind] for kind in rows.kinds], pa.int32()),
        pa.repeat(pa.scalar(chunk.partition, pa.int32()), count),
        pa.array(_pick(chunk.offsets)(rows), pa.int64()),
        pa.array(rows.indexes, pa.int32()),
    ]
    return pa.StructArray.from_arrays(children, fields=list(SEQUENCE))


def _source(rows: Rows) -> pa.Array:
    children = [_FILL[_SOURCE_FILLS.get(field.name, field.name)](rows) for field in SOURCE]
    return pa.StructArray.from_arrays(children, fields=list(SOURCE))


_SOURCE_FILLS = {"commit_ts": "commit_version"}


def _milliseconds(values: pa.Array) -> pa.Array:
    return values.cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))


def _repeat(value: str | None, rows: Rows) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string()), len(rows.positions))


_FILL: dict[str, Callable[[Rows], pa.Array]] = {
    "change_type": lambda rows: pa.array([CHANGE_TYPES[kind] for kind in rows.kinds], pa.string()),
    "commit_version": lambda rows: pa.array(rows.commit_ts, pa.int64()),
    "commit_timestamp": lambda rows: _milliseconds(pc.shift_right(pa.array(rows.commit_ts, pa.int64()), _LOGICAL_BITS)),
    "sequence": _sequence,
    "index": lambda rows: pa.array(rows.indexes, pa.int32()),
    "event_type": lambda rows: pa.array([_EVENT_TYPES[kind] for kind in rows.kinds], pa.string()),
    "event_op": lambda rows: pa.array([_EVENT_OPS[kind] for kind in rows.kinds], pa.string()),
    "envelope_op": lambda rows: pa.array([_ENVELOPE_OPS[kind] for kind in rows.kinds], pa.string()),
    "source": _source,
    "topic": lambda rows: _repeat(rows.chunk.topic, rows),
    "partition": lambda rows: pa.repeat(pa.scalar(rows.chunk.partition, pa.int32()), len(rows.positions)),
    "offset": lambda rows: pa.array(_pick(rows.chunk.offsets)(rows), pa.int64()),
    "timestamp": lambda rows: _milliseconds(
        pa.array([t if 0 <= t < _MOST_MS else None for t in _pick(rows.chunk.timestamps)(rows)], pa.int64())
    ),
    "key": lambda rows: pa.array(_pick(rows.chunk.keys)(rows), pa.binary()),
    "value": lambda rows: pa.array(_pick(rows.chunk.values)(rows), pa.binary()),
    "database": lambda rows: _repeat(rows.table.database if rows.table else None, rows),
    "table": lambda rows: _repeat(rows.table.table if rows.table else None, rows),
    "protocol": lambda rows: _repeat(rows.protocol, rows),
    "build_ts": lambda rows: pa.array(rows.build_ts, pa.int64()),
    "cluster_id": lambda rows: pa.array(rows.cluster_id, pa.string()),
    "headers": lambda rows: pa.array(
        [[{"key": key, "value": value} for key, value in headers] for headers in _pick(rows.chunk.headers or [])(rows)]
        if rows.chunk.headers is not None else [None] * len(rows.positions),
        METADATA[-1].arrow,
    ),
}  # fmt: skip

# What is known of a record that cannot be read; all else is NULL in its row.
_KNOWN_OF_CORRUPT = frozenset({"topic", "partition", "offset", "timestamp", "key", "value", "headers", "protocol"})


def assemble(rows: Rows, corrupt: Sequence[Corrupt], layout: Layout) -> pa.RecordBatch:
    """Put the columns together as the read schema wants them; bad records become rows of their own, in order.

    Raises:
        SchemaError: a column that may not be NULL is.
    """
    count = len(rows.positions)
    arrays = [_column(field, rows, layout, count) for field in layout.schema]
    if corrupt:
        bad = Rows(
            rows.chunk, rows.protocol, None, [item.position for item in corrupt], [item.index for item in corrupt],
            [], [], [], [], {},
        )  # fmt: skip
        places = sorted(
            range(count + len(corrupt)),
            key=lambda place: (
                (rows.positions[place], rows.indexes[place])
                if place < count
                else (corrupt[place - count].position, corrupt[place - count].index)
            ),
        )
        take = pa.array(places, pa.int64())
        arrays = [
            pa.concat_arrays([array, _corrupt_column(field, bad, corrupt, layout)]).take(take)
            for field, array in zip(layout.schema, arrays, strict=True)
        ]
    for field, array in zip(layout.schema, arrays, strict=True):
        missing = _missing(field, array)
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


def _column(field: pa.Field, rows: Rows, layout: Layout, count: int) -> pa.Array:
    name = layout.metadata.get(field.name)
    if name is not None:
        return _FILL[name](rows)
    if field.name == layout.corrupt:
        return pa.nulls(count, CORRUPT_RECORD)
    return rows.columns[field.name]


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
