"""Many records at once, by the native path: their lengths first, their parts when a chunk is full.

`records.cut_records` is the specification. Nothing is reported here: damaged and unusual records are left to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TypeAlias

from ticdc_source.events import Binaries, Chunk, Spans
from ticdc_source.kafka.batches.record_batches import LOG_APPEND_TIME, RecordBatch

__all__ = ["Run", "add_runs", "walk"]

_Headers: TypeAlias = list[list[tuple[str, bytes | None]]]
# Offsets (the first, if each is one more than that before it), timestamps, keys, values (their bounds and the number of
# their bytes, or a list if some are null), headers.
_Columns: TypeAlias = tuple[
    int | list[int], list[int], list[bytes | None], tuple[bytes, int] | list[bytes | None], _Headers | None
]


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


def walk(native: ModuleType, data: bytes, at: int, end: int, max_records: int, max_bytes: int) -> tuple[int, int, int]:
    """Find records by their lengths.

    Args:
        native: the extension module.
        data: records, one behind the other.
        at: the index of the first byte.
        end: the index behind the last byte.
        max_records: how many to find at most.
        max_bytes: how many bytes they may take at most.

    Returns:
        how many were found, the index behind them, and how many bytes of the next one are missing at least (0: it is
        not cut off, or it cannot be found so).
    """
    walked: tuple[int, int, int] = native.walk_records(data, at, end, max_records, max(0, max_bytes))
    return walked


def add_runs(native: ModuleType, runs: Sequence[Run], chunk: Chunk) -> bool:
    """Append the records of some runs to a chunk: all of them, or none.

    Args:
        native: the extension module.
        runs: the records.
        chunk: the chunk.

    Returns:
        whether they were appended; if not, some record is damaged or unusual.
    """
    data, begins = _joined(runs)
    described = [
        (
            begin,
            run.count,
            run.batch.offset,
            run.batch.first_timestamp,
            run.batch.max_timestamp if run.batch.attributes & LOG_APPEND_TIME else None,
        )
        for run, begin in zip(runs, begins, strict=True)
    ]
    parts: _Columns | None = native.cut_runs(data, described, chunk.headers is not None)
    if parts is None:
        return False
    found_offsets, timestamps, keys, found, headers = parts
    count = len(keys)
    offsets = range(found_offsets, found_offsets + count) if isinstance(found_offsets, int) else found_offsets
    values = found if isinstance(found, list) else Binaries(Spans(data, memoryview(found[0]).cast("i"), found[1]))
    if not chunk.offsets:
        chunk.offsets, chunk.timestamps, chunk.keys, chunk.values = offsets, timestamps, keys, values
        chunk.headers = headers
        return True
    mine = chunk.lists()
    mine.offsets.extend(offsets)
    mine.timestamps.extend(timestamps)
    mine.keys.extend(keys)
    mine.values.extend(values)
    if chunk.headers is not None and headers is not None:
        chunk.headers += headers
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
