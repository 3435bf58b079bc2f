"""Records that come as rows of a DataFrame: Arrow record batches → chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.kernels.arrays import Binaries
from ticdc_source.pipeline.metadata import HEADERS
from ticdc_source.schema.types import TIMESTAMP
from ticdc_source.sources.chunk import Chunk

__all__ = ["RECORD", "UNKNOWN_PARTITION", "RowChunks", "without_unknown"]

# What a row has of its record. A DataFrame may lack all but the value; its column is NULL then.
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
UNKNOWN_PARTITION = -1
_NAMES = {name: index for index, name in enumerate(RECORD.names)}
_NO_TIME = -1
_MICROSECONDS = pa.scalar(1000, pa.int64())  # in a millisecond


@dataclass(slots=True)
class RowChunks:
    """Cuts rows into chunks: runs of one topic partition with rising offsets.

    Attributes:
        max_records: the maximum number of records in a chunk.
        max_bytes: the maximum size of its values in bytes, if it has more than one record.
        headers: whether to keep headers.
        rows: the number of rows cut so far, which numbers records without an offset.
    """

    max_records: int
    max_bytes: int
    headers: bool = False
    rows: int = 0

    def chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Chunk]:
        """Yield all records, in order; only within a record batch they are sorted if many topic partitions alternate.

        Args:
            batches: record batches of the schema `RECORD`.
        """
        for batch in batches:
            if batch.num_rows:
                yield from self._cut(self._complete(batch))

    def _complete(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Replace what is unknown: offsets by the number of the row, topic and partition by none."""
        count = batch.num_rows
        numbers = pa.array(range(self.rows, self.rows + count), pa.int64())
        self.rows += count
        columns = {name: batch.column(index).cast(RECORD.field(name).type) for name, index in _NAMES.items()}
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
    """Return the rows at which a run begins: another topic partition, or an offset that does not rise."""
    count = batch.num_rows
    if count < 2:  # noqa: PLR2004 (nothing to compare)
        return list(range(count))
    topic, partition, offset = (batch.column(name) for name in ("topic", "partition", "offset"))
    same = pc.and_(pc.equal(topic[1:], topic[:-1]), pc.equal(partition[1:], partition[:-1]))
    follows = pc.and_(same, pc.greater(offset[1:], offset[:-1]))
    rows = pa.array(range(1, count), pa.int64())
    return [0, *rows.filter(pc.invert(follows)).to_pylist()]


def _alone(values: pa.BinaryArray) -> pa.BinaryArray:
    """Return the values in an array of their own."""
    return values if values.offset == 0 and _is_whole(values) else pa.concat_arrays([values, values[:0]])


def _is_whole(values: pa.BinaryArray) -> bool:
    data = values.buffers()[2]
    return data is None or data.size == pc.sum(pc.binary_length(values)).as_py()


def _pairs(headers: Sequence[dict[str, object]] | None) -> list[tuple[str, bytes | None]]:
    return [(str(header["key"]), header["value"]) for header in headers or ()]  # type: ignore[misc]


def without_unknown(batch: pa.RecordBatch, unknown: frozenset[str]) -> pa.RecordBatch:
    """Return the record batch with NULL in the metadata columns that say what the DataFrame does not know.

    Args:
        batch: rows of the read schema.
        unknown: the metadata columns, or members of metadata columns as `_sequence.offset`, that are not known.
    """
    if not unknown:
        return batch
    arrays = [
        _nulled(array, field, field.name, unknown) for field, array in zip(batch.schema, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _nulled(array: pa.Array, field: pa.Field, path: str, unknown: frozenset[str]) -> pa.Array:
    if path in unknown:
        return pa.nulls(len(array), field.type)
    if pa.types.is_struct(field.type) and any(name.startswith(f"{path}.") for name in unknown):
        children = [
            _nulled(array.field(index), child, f"{path}.{child.name}", unknown)
            for index, child in enumerate(field.type)
        ]
        return pa.StructArray.from_arrays(children, fields=list(field.type), mask=array.is_null())
    return array
