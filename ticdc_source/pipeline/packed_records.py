"""Records packed into rows of some KiB: how `tables` keeps a micro-batch.

A row costs Java and Python about a microsecond each time it crosses between them, whatever its size. So records that
cross more than once share rows, with the columns by which Java chooses records and finds watermarks.
"""

from __future__ import annotations

import uuid
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.kernels.arrays import row_indices, taken
from ticdc_source.pipeline.metadata import FORMAT_COLUMNS, HEADERS

# The columns of `outputFormat=record` without a prefix of the user's, and whether `consistency` has held a record back.
RECORD_ROWS = pa.schema([pa.field(f"_{column.name}", column.arrow) for column in FORMAT_COLUMNS["record"]])
HELD = pa.field("_held", pa.bool_())
TOLD = pa.field("_told", pa.bool_())  # whether a record tells something new about its tables; NULL if unknown
# The fields of packed records, each one's values one after another: numbers in little-endian bytes.
_NUMBERS = {"positions": pa.int32(), "offsets": pa.int64(), "timestamps": pa.int64(), "commit_versions": pa.int64()}
_BYTES = ("key", "value")
# What the records of a packed row have in common.
_SAME = ("_topic", "_partition", "_tables", "_event_types", "_watermark_ts", "_partitions", "_told")
_PACKED = "_packed"
PACKED = pa.schema([
    *(RECORD_ROWS.append(TOLD).field(name) for name in _SAME),
    pa.field(_PACKED, pa.struct([
        pa.field("run", pa.int64()),  # of one record batch, whose order `positions` tells
        *(pa.field(name, pa.binary()) for name in _NUMBERS),
        *(pa.field(f"{name}{part}", pa.binary()) for name in _BYTES for part in ("_sizes", "s")),
        pa.field("headers", pa.list_(HEADERS)),
    ])),
])  # fmt: skip
# Spark hands Python 10,000 rows at once, so a row must be small.
_ROW_BYTES = 4096
_RECORD_BYTES = 40  # of a record without its key and value
_PORTION_BYTES = 8 << 20  # of values that are unpacked at once
_NONE = -(2**63)
_ZERO = pa.array([0], pa.int32())


def are_packed(columns: Container[str]) -> bool:
    return _PACKED in columns


def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack record batches with columns of the schema `RECORD_ROWS`, and maybe `TOLD`; missing columns are NULL.

    The records of a packed row have the same tables and event types.
    """
    run = uuid.uuid4().int >> 66
    for number, batch in enumerate(batches, run):
        if batch.num_rows:
            yield _packed(_with_types(batch, RECORD_ROWS.append(TOLD)), number)


def unpacked(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Unpack records, in the order in which they were packed.

    `schema` is `RECORD_ROWS`, some of its columns without the underscore, or columns of the packed rows.
    """
    for batch in _whole_runs(batches):
        for portion in _portions(batch):
            yield _with_types(_unpacked(portion, schema.names), schema)


def unpacked_if(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Unpack records if they are packed."""
    batches = iter(batches)
    first = next(batches, None)
    if first is not None:
        every = chain([first], batches)
        yield from unpacked(every, schema) if are_packed(first.schema.names) else every


def _with_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return columns with these types, or NULL: Java's lists have other members' names, and its texts may be large."""
    count, names = batch.num_rows, set(batch.schema.names)
    arrays = [
        batch.column(field.name).cast(field.type) if field.name in names else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _packed(batch: pa.RecordBatch, run: int) -> pa.RecordBatch:
    batch, positions, starts = _grouped(batch)
    count = len(starts)
    bounds = pa.concat_arrays([starts, pa.array([batch.num_rows], pa.int32())])
    of_rows = [batch.column(name).take(starts) for name in _SAME]
    numbers = {
        "positions": positions,
        "offsets": batch.column("_offset"),
        "timestamps": batch.column("_timestamp").view(pa.int64()),
        "commit_versions": batch.column("_commit_version"),
    }
    packed = {"run": pa.repeat(pa.scalar(run, pa.int64()), count)}
    packed |= {name: _bytes_of(values, bounds, _NONE) for name, values in numbers.items()}
    for name in _BYTES:
        texts = batch.column(f"_{name}")
        packed[f"{name}_sizes"] = _bytes_of(pc.binary_length(texts), bounds, -1)
        packed[f"{name}s"] = _joined(texts, bounds)
    headers = batch.column("_headers")
    has_none = headers.null_count == len(headers)
    packed["headers"] = (
        pa.nulls(count, PACKED.field(_PACKED).type.field("headers").type)
        if has_none
        else pa.ListArray.from_arrays(bounds, headers)
    )
    struct = pa.StructArray.from_arrays(list(packed.values()), fields=list(PACKED.field(_PACKED).type))
    return pa.RecordBatch.from_arrays([*of_rows, struct], schema=PACKED)


def _grouped(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Int32Array, pa.Int32Array]:
    """Bring records of a packed row together: the records, their positions before, and where each row starts."""
    count = batch.num_rows
    columns = (batch.column(name) for name in _SAME)
    # No name has a NUL or is empty.
    texts = (pc.binary_join(each, "\0") if pa.types.is_list(each.type) else each.cast(pa.string()) for each in columns)
    same = pc.binary_join_element_wise(*texts, "\0\0", null_handling="replace", null_replacement="\0-")
    groups = same.dictionary_encode()
    kinds = groups.indices
    positions = row_indices(count)
    if len(groups.dictionary) > 1:
        positions = pc.sort_indices(kinds).cast(pa.int32())
        batch, kinds = batch.take(positions), kinds.take(positions)
    sizes = (pc.fill_null(pc.binary_length(batch.column(f"_{name}")), 0).cast(pa.int64()) for name in _BYTES)
    total = pc.cumulative_sum(pc.add(pc.add(*sizes), pa.scalar(_RECORD_BYTES, pa.int64())))
    rows = pc.divide(total, pa.scalar(_ROW_BYTES, pa.int64()))
    differs = pc.or_(pc.not_equal(rows[1:], rows[:-1]), pc.not_equal(kinds[1:], kinds[:-1]))
    later = pc.add(pc.indices_nonzero(differs).cast(pa.int32()), pa.scalar(1, pa.int32()))
    return batch, positions, pa.concat_arrays([_ZERO, later])


def _bytes_of(values: pa.Array, bounds: pa.Int32Array, missing: int) -> pa.BinaryArray:
    """Return the bytes of the numbers between each two bounds."""
    values = values.fill_null(pa.scalar(missing, values.type)) if values.null_count else values
    width = values.type.bit_width // 8
    data = values.buffers()[1].slice(values.offset * width, len(values) * width)
    starts = pc.multiply(bounds, pa.scalar(width, pa.int32()))
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, starts.buffers()[1], data])


def _joined(texts: pa.BinaryArray, bounds: pa.Int32Array) -> pa.BinaryArray:
    """Return the texts between each two bounds, joined."""
    texts = pc.fill_null(texts, b"")
    _, offsets, data = texts.buffers()
    ends = pa.Array.from_buffers(pa.int32(), len(texts) + 1, [None, offsets], offset=texts.offset)
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, ends.take(bounds).buffers()[1], data])


def _whole_runs(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Cut packed rows anew, so that those of a run are in one record batch."""
    rest: pa.RecordBatch | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        fields = [
            PACKED.field(name) if name in PACKED.names else batch.schema.field(name) for name in batch.schema.names
        ]
        batch = _with_types(batch, pa.schema(fields))  # noqa: PLW2901
        if rest is not None:
            (batch,) = pa.Table.from_batches([rest, batch]).combine_chunks().to_batches()  # noqa: PLW2901
        runs = batch.column(_PACKED).field("run")
        first = pc.index(runs, runs[-1]).as_py()
        if first:
            yield batch.slice(0, first)
        rest = batch.take(pa.array(range(first, batch.num_rows), pa.int32()))  # without the memory of the others
    if rest is not None:
        yield rest


def _portions(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut packed rows of whole runs into some MiB."""
    runs = batch.column(_PACKED).field("run")
    starts = pc.add(pc.indices_nonzero(pc.not_equal(runs[1:], runs[:-1])), pa.scalar(1, pa.uint64())).to_pylist()
    sizes = pc.cumulative_sum(pc.binary_length(batch.column(_PACKED).field("values")).cast(pa.int64()))
    first, size = 0, 0
    for start in starts:
        before = sizes[start - 1].as_py()
        if before - size >= _PORTION_BYTES:
            yield batch.slice(first, start - first)
            first, size = start, before
    yield batch.slice(first)


def _unpacked(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    packed = batch.column(_PACKED)
    numbers = {name: _numbers_in(packed.field(name), type_) for name, type_ in _NUMBERS.items()}
    counts = pc.divide(pc.binary_length(packed.field("offsets")), pa.scalar(8, pa.int32()))
    bounds = pa.concat_arrays([_ZERO, pc.cumulative_sum(counts)])
    rows = pc.list_parent_indices(pa.ListArray.from_arrays(bounds, numbers["positions"])).cast(pa.int32())
    columns: dict[str, pa.Array] = {
        "offset": _with_nulls(numbers["offsets"]),
        "timestamp": _with_nulls(numbers["timestamps"]).view(RECORD_ROWS.field("_timestamp").type),
        "commit_version": _with_nulls(numbers["commit_versions"]),
        "headers": _headers_in(packed.field("headers"), rows, bounds),
    }
    for name in _BYTES:
        sizes = _numbers_in(packed.field(f"{name}_sizes"), pa.int32())
        columns[name] = _cut(packed.field(f"{name}s"), sizes)
    order = _order(packed.field("run").take(rows), numbers["positions"])
    rows = taken(rows, order)
    arrays = []
    for name in names:
        part = name.removeprefix("_")
        arrays.append(taken(columns[part], order) if part in columns else batch.column(f"_{part}").take(rows))
    return pa.RecordBatch.from_arrays(arrays, names)


def _numbers_in(values: pa.BinaryArray, type_: pa.DataType) -> pa.Array:
    data = _data(values)
    return pa.Array.from_buffers(type_, data.size * 8 // type_.bit_width, [None, data])


def _data(values: pa.BinaryArray) -> pa.Buffer:
    _, offsets, data = values.buffers()
    bounds = pa.Array.from_buffers(pa.int32(), len(values) + 1, [None, offsets], offset=values.offset)
    begin, end = bounds[0].as_py(), bounds[-1].as_py()
    return pa.py_buffer(b"") if data is None else data.slice(begin, end - begin)


def _with_nulls(values: pa.Int64Array) -> pa.Int64Array:
    missing = pc.equal(values, _NONE)
    return pc.if_else(missing, pa.scalar(None, values.type), values) if missing.true_count else values


def _cut(joined: pa.BinaryArray, sizes: pa.Int32Array) -> pa.BinaryArray:
    """Return the values with these sizes, of which -1 is that of NULL."""
    exists = pc.greater_equal(sizes, 0)
    ends = pc.cumulative_sum(pc.max_element_wise(sizes, pa.scalar(0, pa.int32())))
    offsets = pa.concat_arrays([_ZERO, ends])
    validity = exists.buffers()[1] if exists.false_count else None
    return pa.Array.from_buffers(pa.binary(), len(sizes), [validity, offsets.buffers()[1], _data(joined)])


def _headers_in(headers: pa.ListArray, rows: pa.Int32Array, bounds: pa.Int32Array) -> pa.Array:
    if headers.null_count == len(headers):
        return pa.nulls(len(rows), HEADERS)
    within = pc.subtract(row_indices(len(rows)), bounds.take(rows))
    starts = pc.if_else(headers.is_valid(), headers.offsets[:-1], pa.scalar(None, pa.int32()))
    return headers.values.take(pc.add(starts.take(rows), within))


def _order(runs: pa.Int64Array, positions: pa.Int32Array) -> pa.Int32Array:
    """Return how records, whose runs follow each other, come into the order of their positions."""
    count = len(positions)
    falls = pc.and_(pc.less(positions[1:], positions[:-1]), pc.equal(runs[1:], runs[:-1]))
    if not falls.true_count:
        return row_indices(count)
    begins = pc.not_equal(runs[1:], runs[:-1]).cast(pa.int32())
    numbers = pa.concat_arrays([_ZERO, pc.cumulative_sum(begins)])
    keys = [("run", "ascending"), ("position", "ascending")]
    return pc.sort_indices(pa.table({"run": numbers, "position": positions}), sort_keys=keys).cast(pa.int32())
