"""Records as rows of a DataFrame, on a worker: finding those that tell the schema, and decoding them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import SchemaError, each_from_one_frame
from ticdc_source.kernels.arrays import Binaries, consecutive
from ticdc_source.options.hints import spark_name
from ticdc_source.options.options import Options
from ticdc_source.options.ranges import CommitRange
from ticdc_source.options.topics import TableFilter
from ticdc_source.pipeline.context import BatchScope, ReadContext
from ticdc_source.pipeline.metadata import HEADERS
from ticdc_source.pipeline.packed_records import unpacked_if
from ticdc_source.pipeline.read import read
from ticdc_source.pipeline.spec import read_spec
from ticdc_source.pipeline.survey import Survey
from ticdc_source.protocols import PROTOCOLS, decoder_of, possible_decoders, protocol_of, recognized
from ticdc_source.protocols.decoding import commit_versions_of, small_portions, splits_of
from ticdc_source.schema.types import TIMESTAMP
from ticdc_source.sources.chunk import UNKNOWN_OFFSETS, UNKNOWN_PARTITION, Chunk

_CHUNK_RECORDS = 4000  # while the protocol is not known yet
# The columns of a record. A DataFrame may lack all but the value; missing columns are NULL.
RECORD = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)
_NO_TIME = -1
_MICROSECONDS = pa.scalar(1000, pa.int64())  # in a millisecond


def survey(batches: Iterable[pa.RecordBatch], options: Options, end: int | None = None) -> Iterator[pa.RecordBatch]:
    """Return the records that tell the schema of all: a few of each table, and all with DDL.

    A row is kept if it says something new about its table: a column, a wider type, another way to write it. So
    inference from the kept records equals inference from all. Rows and DDL from the commit-ts `end` on are left out.
    Here and below, record batches of a DataFrame have the schema `RECORD`, or hold packed records.

    Raises:
        OptionError: the protocol cannot be detected.
    """
    protocol, chunks = _with_protocol(record_chunks(batches, options), options)
    if protocol is None:
        return
    tables, native = TableFilter(options.tables or ()), options.native_code != "off"
    seen, commits = Survey(decoder_of(protocol, options), tables, native=native), CommitRange(end=end)
    places: set[tuple[str, int]] = set()
    for chunk in chunks:
        positions = seen.told_by(chunk, commits)
        place = (chunk.topic, chunk.partition)
        if end is None and place not in places:  # to know the topic partitions
            places.add(place)
            positions.add(0)
        yield from _records_at(chunk, positions)


def record_chunks(batches: Iterable[pa.RecordBatch], options: Options, *, headers: bool = False) -> Iterator[Chunk]:
    """Return record batches of the schema `RECORD` as chunks, while the protocol may be unknown."""
    cutter = RowChunks(min(_CHUNK_RECORDS, options.max_rows_per_batch), options.max_bytes_per_batch, headers)
    chunks = cutter.chunks(unpacked_if(batches, RECORD))
    return small_portions(chunks, possible_decoders(options)) if options.claim_check_location else chunks


def _with_protocol(
    chunks: Iterator[Chunk], options: Options, protocol: str | None = None
) -> tuple[str | None, Iterator[Chunk]]:
    """Return the protocol, from the first chunk that tells it if it is unknown, and all chunks."""
    first: list[Chunk] = []
    while protocol is None and (chunk := next(chunks, None)) is not None:
        first.append(chunk)
        protocol = protocol_of([chunk], options)
    return protocol, chain(first, chunks)


def protocols_in(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return each protocol of the records once, as a row with `protocol`; bad records have none."""
    found: set[str] = set()
    for batch in unpacked_if(batches, RECORD):
        keys, values = (batch.column(name).to_pylist() for name in ("key", "value"))
        names = {recognized(key, value) for key, value in zip(keys, values, strict=True)} - {None, *found}
        found |= {name for name in names if name is not None}
        if names:
            yield pa.RecordBatch.from_pydict({"protocol": pa.array(sorted(filter(None, names)), pa.string())})


def _records_at(chunk: Chunk, positions: Iterable[int]) -> Iterator[pa.RecordBatch]:
    """Yield a record batch of the schema `RECORD`; none without positions."""
    rows = [
        {
            "topic": chunk.topic,
            "partition": chunk.partition,
            "offset": chunk.offsets[position],
            "timestamp": None if chunk.timestamps[position] < 0 else chunk.timestamps[position] * 1000,
            "key": chunk.keys[position],
            "value": chunk.values[position],
            "headers": None if chunk.headers is None else chunk.headers[position],
        }
        for position in sorted(positions)
    ]
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=RECORD)


@each_from_one_frame
def held_back(batches: Iterable[pa.RecordBatch], options: Options, end: int) -> Iterator[pa.RecordBatch]:
    """Return the records with a row of a wanted table, or a DDL event, from the commit-ts `end` on.

    Raises:
        OptionError: the protocol cannot be detected.
    """
    protocol, chunks = _with_protocol(record_chunks(batches, options, headers=True), options)
    if protocol is None:
        return
    decoder, tables = decoder_of(protocol, options), TableFilter(options.tables or ())
    for chunk in chunks:
        positions: set[int] = set()
        for split in splits_of(decoder, chunk, tables.matches):
            positions |= {event.position for event in split.ddl if (event.commit_ts or 0) >= end}
            for events in split.tables.values():
                late = pc.greater_equal(commit_versions_of(events, decoder), end)
                late = pc.indices_nonzero(pc.fill_null(late, False))  # noqa: FBT003 (Arrow's)
                positions |= {events.positions[event] for event in late.to_pylist()}
        yield from _records_at(chunk, positions)


@each_from_one_frame
def decode_rows(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, options: Options, context: ReadContext, scope: BatchScope
) -> Iterator[pa.RecordBatch]:
    """Decode the records of a DataFrame on a worker.

    If the context has no protocol, the first record with an event determines it.
    """
    cutter = RowChunks(_CHUNK_RECORDS, options.max_bytes_per_batch)
    cutter.headers = options.include_headers or options.output_format == "record"
    protocol, chunks = _with_protocol(cutter.chunks(unpacked_if(batches, RECORD)), options, context.protocol)
    protocol = protocol or next(iter(PROTOCOLS))  # no record has an event: any decoder finds none
    cutter.max_records = min(PROTOCOLS[protocol].facts.chunk_records, options.max_rows_per_batch)
    spec = read_spec(schema, options, context, scope, protocol=protocol)
    yield from spec.packed(read(chunks, spec))


def column_names(names: Iterable[str]) -> dict[str, str]:
    """Map the columns of a DataFrame to those of `RECORD`.

    Raises:
        SchemaError: there is no `value`.
    """
    by_name = {name.lower(): name for name in names}
    columns = {name: by_name.get(name, by_name.get(f"_{name}")) for name in RECORD.names}
    if columns["value"] is None:
        listed = ", ".join(by_name.values())
        raise SchemaError(f"The DataFrame has no column `value` (nor `_value`) with the messages; it has {listed}")
    return {name: column for name, column in columns.items() if column is not None}


@each_from_one_frame
def decode_structs(
    arrays: Iterable[pa.StructArray], schema: pa.Schema, options: Options, context: ReadContext
) -> Iterator[pa.ListArray]:
    """Decode a DataFrame's rows, as structs of its columns, into as many lists of rows.

    The lists do not correspond to the structs: the first one takes all rows that are ready, and others are empty.

    Raises:
        SchemaError: there is no `value`, or a column has another type than a record's.
    """
    arrays = iter(arrays)
    first = next(arrays, None)
    if first is None:
        return
    columns = column_names(field.name for field in first.type)
    asked: deque[int] = deque()

    def records() -> Iterator[pa.RecordBatch]:
        for array in filter(len, chain([first], arrays)):  # an empty one asks for no list that could hold rows
            asked.append(len(array))
            yield _as_records(array, columns)

    ready: list[pa.RecordBatch] = []
    for batch in decode_rows(records(), schema, options, context, BatchScope()):
        ready.append(batch)
        if len(asked) > 1:
            yield _lists(ready, schema, asked.popleft())
            ready = []
    for count in asked:
        yield _lists(ready, schema, count)
        ready = []


def _is_bytes(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_binary(arrow) or pa.types.is_string(arrow))


def is_time_in_ms(arrow: pa.DataType) -> bool:
    """Whether a `timestamp` of this type is Kafka's number of milliseconds."""
    return bool(pa.types.is_int64(arrow))


# The types that a column may have, by the name of the record's part.
_TYPES: dict[str, Callable[[pa.DataType], bool]] = {
    "topic": pa.types.is_string,
    "partition": pa.types.is_integer,
    "offset": pa.types.is_integer,
    "timestamp": lambda arrow: is_time_in_ms(arrow) or (pa.types.is_timestamp(arrow) and arrow.tz is not None),
    "key": _is_bytes,
    "value": _is_bytes,
    "headers": lambda arrow: pa.types.is_list(arrow) and pa.types.is_struct(arrow.value_type),
}


def check_column(name: str, arrow: pa.DataType, wanted: pa.Field) -> None:
    """Check that a column can be this part of a record.

    Raises:
        SchemaError: it has another type.
    """
    if not _TYPES[wanted.name](arrow):
        raise SchemaError(
            f"Column {name} has the type {spark_name(arrow)}; as a record's {wanted.name} it must be "
            f"{spark_name(wanted.type)}"
        )


def _as_records(rows: pa.StructArray, columns: Mapping[str, str]) -> pa.RecordBatch:
    arrays = []
    for wanted in RECORD:
        name = columns.get(wanted.name)
        array = pa.nulls(len(rows), wanted.type) if name is None else rows.field(name)
        if name is not None:
            check_column(name, array.type, wanted)
            if wanted.name == "timestamp" and is_time_in_ms(array.type):
                array = array.cast(pa.timestamp("ms"))
        arrays.append(array.cast(wanted.type))
    return pa.RecordBatch.from_arrays(arrays, schema=RECORD)


def _lists(batches: Sequence[pa.RecordBatch], schema: pa.Schema, count: int) -> pa.ListArray:
    """Return `count` lists: one with all rows of the record batches, and empty ones."""
    table = pa.Table.from_batches(batches, schema)
    columns = [column.combine_chunks() for column in table.columns]
    rows = pa.StructArray.from_arrays(columns, fields=list(schema))
    return pa.ListArray.from_arrays(pa.array([0, *[len(rows)] * count], pa.int32()), rows)


@dataclass(slots=True)
class RowChunks:
    """Cuts rows into chunks: runs of one topic partition with rising offsets.

    A chunk has at most `max_records`, and `max_bytes` of values unless it has only one record. `rows` counts the rows
    cut so far, and numbers records without an offset.
    """

    max_records: int
    max_bytes: int
    headers: bool = False
    rows: int = 0

    def chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Chunk]:
        """Yield all records in order, except that a batch with many alternating topic partitions is sorted."""
        for batch in batches:
            if batch.num_rows:
                yield from self._cut(self._complete(batch))

    def _complete(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Fill in what is unknown."""
        count = batch.num_rows
        numbers = consecutive(UNKNOWN_OFFSETS + self.rows, count)
        self.rows += count
        columns = {field.name: batch.column(index).cast(field.type) for index, field in enumerate(RECORD)}
        columns["topic"] = pc.fill_null(columns["topic"], "")
        columns["partition"] = pc.fill_null(columns["partition"], UNKNOWN_PARTITION)
        columns["offset"] = pc.coalesce(columns["offset"], numbers)
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=RECORD)

    def _cut(self, batch: pa.RecordBatch) -> Iterator[Chunk]:
        starts = _starts(batch)
        places = batch.select(["topic", "partition"])
        if len(starts) > 2 * len(pa.Table.from_batches([places]).group_by(["topic", "partition"]).aggregate([])):
            keys = [(name, "ascending") for name in ("topic", "partition", "offset")]
            batch = batch.take(pc.sort_indices(batch, sort_keys=keys))
            starts = _starts(batch)
        sizes = pc.fill_null(pc.binary_length(batch.column("value")), 0).to_pylist()
        for start, end in zip(starts, [*starts[1:], batch.num_rows], strict=True):
            for first, after in self._portions(sizes, start, end):
                yield self._chunk(batch.slice(first, after - first))

    def _portions(self, sizes: Sequence[int], start: int, end: int) -> Iterator[tuple[int, int]]:
        first, size = start, 0
        for row in range(start, end):
            if row > first and (row - first >= self.max_records or size + sizes[row] > self.max_bytes):
                yield first, row
                first, size = row, 0
            size += sizes[row]
        if end > first:
            yield first, end

    def _chunk(self, batch: pa.RecordBatch) -> Chunk:
        values, headers = batch.column("value"), batch.column("headers")
        times = pc.divide(batch.column("timestamp").view(pa.int64()), _MICROSECONDS)
        return Chunk(
            batch.column("topic")[0].as_py(),
            batch.column("partition")[0].as_py(),
            batch.column("offset").to_pylist(),
            pc.fill_null(times, _NO_TIME).to_pylist(),
            batch.column("key").to_pylist(),
            values.to_pylist() if values.null_count else Binaries.of(_alone(values)),
            list(map(_pairs, headers.to_pylist())) if self.headers and headers.null_count < len(headers) else None,
        )


def _starts(batch: pa.RecordBatch) -> list[int]:
    """Return the rows where a run begins: at another topic partition, or an offset that does not rise."""
    count = batch.num_rows
    if count < 2:  # noqa: PLR2004 (nothing to compare)
        return list(range(count))
    topic, partition, offset = (batch.column(name) for name in ("topic", "partition", "offset"))
    same = pc.and_(pc.equal(topic[1:], topic[:-1]), pc.equal(partition[1:], partition[:-1]))
    follows = pc.and_(same, pc.greater(offset[1:], offset[:-1]))
    rows = pa.array(range(1, count), pa.int64())
    return [0, *rows.filter(pc.invert(follows)).to_pylist()]


def _alone(values: pa.BinaryArray) -> pa.BinaryArray:
    return values if values.offset == 0 and _is_whole(values) else pa.concat_arrays([values, values[:0]])


def _is_whole(values: pa.BinaryArray) -> bool:
    data = values.buffers()[2]
    return data is None or data.size == pc.sum(pc.binary_length(values)).as_py()


def _pairs(headers: Sequence[dict[str, object]] | None) -> list[tuple[str, bytes | None]]:
    return [(str(header["key"]), header["value"]) for header in headers or ()]  # type: ignore[misc]
