"""`outputFormat=record`: Kafka records, not decoded, with what telling tables apart knows of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import DecodeError
from ticdc_source.kernels.arrays import as_indices, repeated, row_indices
from ticdc_source.pipeline.assemble import ROW_FACTS, Rows
from ticdc_source.pipeline.metadata import NAMES
from ticdc_source.pipeline.spec import ReadSpec
from ticdc_source.protocols.events import Split
from ticdc_source.schema.change_types import INSERT
from ticdc_source.sources.chunk import Chunk

__all__ = ["record_rows"]

_ROW, _DDL, _BOOTSTRAP, _WATERMARK, _CORRUPT = "row", "ddl", "bootstrap", "watermark", "corrupt"
_NUMBER_BITS, _NUMBER_MASK = pa.scalar(24, pa.int64()), pa.scalar((1 << 24) - 1, pa.int64())
_MOST = pa.scalar((1 << 63) - 1, pa.int64())  # more than any commit-ts


class _Names:
    """Which names each record of a chunk has: tables, or types of events."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._numbers: dict[str, int] = {}
        self._pairs: list[pa.Int64Array] = []  # a position above, the number of a name below

    def add(self, name: str, positions: Sequence[int]) -> None:
        """Add a name to the records at some positions."""
        number = self._numbers.setdefault(name, len(self._numbers))
        self._pairs.append(pc.add(pc.shift_left(as_indices(positions).cast(pa.int64()), _NUMBER_BITS), number))

    def array(self) -> pa.ListArray:
        """Return the names of each record, each name once, in the order in which they were first added."""
        if not self._pairs:
            return pa.repeat(pa.scalar([], NAMES), self._count)
        pairs = pc.unique(pa.concat_arrays(self._pairs))
        pairs = pairs.take(pc.array_sort_indices(pairs))
        positions = pc.shift_right(pairs, _NUMBER_BITS).cast(pa.int32())
        # Each record once more, so that those without a name are counted too.
        counted = pc.value_counts(pa.concat_arrays([row_indices(self._count), positions]))
        ends = pc.cumulative_sum(pc.subtract(counted.field("counts"), 1)).cast(pa.int32())
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
        names = pa.array(list(self._numbers), pa.string()).take(pc.bit_wise_and(pairs, _NUMBER_MASK))
        return pa.ListArray.from_arrays(offsets, names, type=NAMES)


class _Smallest:
    """The smallest number of each record of a chunk: NULL if it has none, or one that is unknown."""

    def __init__(self, count: int) -> None:
        # Each record once, so that the groups below are in order.
        self._positions = [row_indices(count)]
        self._numbers = [pa.repeat(_MOST, count)]

    def add(self, positions: Sequence[int], numbers: pa.Int64Array) -> None:
        """Add a number to the record at each position."""
        self._positions.append(as_indices(positions))
        self._numbers.append(numbers)

    def array(self) -> pa.Int64Array:
        """Return the smallest number of each record."""
        columns = [pa.concat_arrays(self._positions), pa.concat_arrays(self._numbers)]
        groups = pa.table(columns, names=["position", "number"]).group_by("position", use_threads=False)
        # Without threads, groups are in the order in which they first occur.
        least = groups.aggregate([("number", "min", pc.ScalarAggregateOptions(skip_nulls=False))])
        smallest = least.column("number_min").combine_chunks()
        return pc.if_else(pc.equal(smallest, _MOST), pa.scalar(None, pa.int64()), smallest)


def record_rows(chunk: Chunk, splits: Iterable[Split], spec: ReadSpec) -> Rows:
    """Return one row for each record of a chunk.

    With the option `tables`, tombstones and the records of other tables are left out. A record that cannot be split is
    always kept: which tables it holds is unknown.

    Raises:
        DecodeError: a record could not be taken out of its record batch.
    """
    if chunk.failure is not None:
        raise DecodeError(chunk.failure, chunk.address(0))
    count = len(chunk)
    tables, event_types, commit_ts, watermarks = _Names(count), _Names(count), _Smallest(count), _Smallest(count)
    for split in splits:
        for table, events in split.tables.items():
            tables.add(str(table), events.positions)
            event_types.add(_ROW, events.positions)
            commit_ts.add(events.positions, spec.decoder.commit_versions(events))
        ddl = [event for event in split.ddl if spec.tables.matches_ddl(event.table)]
        for event in ddl:
            if event.table.table:
                tables.add(str(event.table), [event.position])
        positions = [event.position for event in ddl]
        event_types.add(_DDL, positions)
        commit_ts.add(positions, pa.array([event.commit_ts for event in ddl], pa.int64()))
        for event in split.bootstraps:
            if spec.tables.matches(event.table):
                tables.add(str(event.table), [event.position])
                event_types.add(_BOOTSTRAP, [event.position])
        positions = [event.position for event in split.watermarks]
        event_types.add(_WATERMARK, positions)
        watermarks.add(positions, pa.array([event.ts for event in split.watermarks], pa.int64()))
        event_types.add(_CORRUPT, [item.position for item in split.corrupt])
    marks, partitions = watermarks.array(), repeated(spec.scope.partitions, pa.int32(), count)
    if spec.scope.one_watermark:
        partitions = pc.if_else(marks.is_valid(), partitions, pa.scalar(0, pa.int32()))
    columns = {
        "tables": tables.array(),
        "event_types": event_types.array(),
        "watermark_ts": marks,
        "partitions": partitions,
    }
    facts = [
        row_indices(count),
        repeated(0, pa.int32(), count),
        repeated(INSERT, pa.int8(), count),
        commit_ts.array(),
        pa.nulls(count, pa.int64()),
        pa.nulls(count, pa.int64()),
        pa.nulls(count, pa.string()),
        repeated(False, pa.bool_(), count),  # noqa: FBT003 (a value)
    ]
    rows = Rows(
        chunk=chunk,
        protocol=spec.decoder.facts.name,
        table=None,
        facts=pa.RecordBatch.from_arrays(facts, schema=ROW_FACTS),
        columns={spec.layout.own[name]: array for name, array in columns.items() if name in spec.layout.own},
    )
    if spec.tables.patterns:
        return rows.filtered(pc.greater(pc.list_value_length(columns["event_types"]), 0))
    return rows
