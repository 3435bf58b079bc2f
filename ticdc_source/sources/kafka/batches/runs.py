"""Many records at once, by the native path: their lengths first, their parts when a chunk is full.

`one_by_one.cut_records` is the specification. Nothing is reported here: damaged and unusual records are left to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from ticdc_source.kernels.arrays import Binaries, Spans
from ticdc_source.kernels.contract import RecordRun
from ticdc_source.sources.chunk import Chunk
from ticdc_source.sources.kafka.batches.record_batches import LOG_APPEND_TIME, RecordBatch

if TYPE_CHECKING:
    from ticdc_source.kernels._native import CutRecords

__all__ = ["Run", "add_runs"]


@dataclass(slots=True)
class Run:
    """Records of one batch, one behind the other.

    Attributes:
        batch: the record batch that holds them.
        data: the bytes that they lie in.
        begin: the index of the first one's first byte.
        end: the index behind the last one's last byte.
        count: how many they are.
    """

    batch: RecordBatch
    data: bytes
    begin: int
    end: int
    count: int


def add_runs(native: ModuleType, runs: Sequence[Run], chunk: Chunk, previous: int) -> bool:
    """Append the records of some runs to a chunk: all of them, or none.

    Args:
        native: the extension module.
        runs: the records.
        chunk: the chunk.
        previous: the offset of the record before these, also if that one is not in the chunk; -1 for none.

    Returns:
        whether they were appended; if not, some record is damaged or unusual.
    """
    data, begins = _joined(runs)
    record_runs = [
        RecordRun(
            begin,
            run.count,
            run.batch.offset,
            run.batch.highest_offset,
            run.batch.first_timestamp,
            run.batch.max_timestamp if run.batch.attributes & LOG_APPEND_TIME else None,
        )
        for run, begin in zip(runs, begins, strict=True)
    ]
    cut: CutRecords | None = native.cut_runs(data, record_runs, previous, chunk.headers is not None)
    if cut is None:
        return False
    offsets: list[int] | range = cut.offsets
    if cut.first_offset is not None:
        offsets = range(cut.first_offset, cut.first_offset + len(cut.keys))
    values: list[bytes | None] | Binaries = cut.values
    if cut.bounds is not None:
        values = Binaries(Spans(data, memoryview(cut.bounds).cast("i"), cut.nbytes))
    if not chunk.offsets:
        chunk.offsets, chunk.timestamps, chunk.keys, chunk.values = offsets, cut.timestamps, cut.keys, values
        chunk.headers = cut.headers
        return True
    columns = chunk.lists()
    columns.offsets.extend(offsets)
    columns.timestamps.extend(cut.timestamps)
    columns.keys.extend(cut.keys)
    columns.values.extend(values)
    if chunk.headers is not None and cut.headers is not None:
        chunk.headers += cut.headers
    return True


def _joined(runs: Sequence[Run]) -> tuple[bytes, list[int]]:
    """Return the bytes that all runs lie in, and the index of each one's first byte: those of a fetch as they are."""
    first = runs[0].data
    if all(run.data is first for run in runs):
        return first, [run.begin for run in runs]
    begins, at = [], 0
    for run in runs:
        begins.append(at)
        at += run.end - run.begin
    return b"".join([memoryview(run.data)[run.begin : run.end] for run in runs]), begins
