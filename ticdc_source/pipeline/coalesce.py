"""Coalescing: chunks with few wanted events before decoding, small record batches after it.

Decoding five events costs as much as decoding fifty. Waiting events and rows are lost if a later record raises an
error,
which is harmless: a Spark task fails as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

import pyarrow as pa

from ticdc_source.protocols.events import Split
from ticdc_source.sources.chunk import Chunk

_MOST_RECORDS = 1000  # as many as in a chunk
_MOST_BYTES = 4 << 20


def coalesce_chunks(splits: Iterable[tuple[Chunk, Split]]) -> Iterator[tuple[Chunk, Split]]:
    """Yield chunks and their events; the records with events of sparse chunks are merged into one chunk.

    Every event is yielded once, in order and with its address. Chunks without events are not yielded. Counts
    (`skipped`, `others`) stay with the original chunks.
    """
    coalesced: _Coalesced | None = None
    for chunk, split in splits:
        others = len(split.ddl) + len(split.bootstraps) + len(split.watermarks) + len(split.corrupt)
        events = sum(map(len, split.tables.values())) + others
        if not events:
            continue
        is_few = 2 * events < len(chunk) and split.unpacked < _MOST_BYTES
        if coalesced is not None and not (is_few and coalesced.takes(chunk)):
            yield coalesced.chunk, coalesced.split
            coalesced = None
        if is_few:
            coalesced = coalesced or _Coalesced(chunk)
            coalesced.append(chunk, split)
        else:
            yield chunk, split
        del chunk, split
    if coalesced is not None:
        yield coalesced.chunk, coalesced.split


class _Coalesced:
    __slots__ = ("_bytes", "chunk", "split")

    def __init__(self, first: Chunk) -> None:
        self.chunk = first.part(0, 0)
        self.split = Split()
        self._bytes = 0

    def takes(self, chunk: Chunk) -> bool:
        last = self.chunk
        is_full = len(last) >= _MOST_RECORDS or self._bytes >= _MOST_BYTES
        is_same = (last.topic, last.partition) == (chunk.topic, chunk.partition)
        return is_same and last.offsets[-1] < chunk.offsets[0] and not is_full

    def append(self, chunk: Chunk, split: Split) -> None:
        event_positions = [table_events.positions for table_events in split.tables.values()]
        others = (split.ddl, split.bootstraps, split.watermarks, split.corrupt)
        event_positions += [[event.position for event in events] for events in others]
        positions = sorted(set(chain.from_iterable(event_positions)))
        moved = {position: new for new, position in enumerate(positions, len(self.chunk))}
        coalesced, lists = self.chunk, self.chunk.lists()
        lists.offsets.extend(chunk.offsets[position] for position in positions)
        lists.timestamps.extend(chunk.timestamps[position] for position in positions)
        lists.keys.extend(chunk.keys[position] for position in positions)
        lists.values.extend(chunk.values[position] for position in positions)
        if coalesced.headers is not None and chunk.headers is not None:
            coalesced.headers += [chunk.headers[position] for position in positions]
        self._bytes += split.unpacked + sum(
            len(chunk.keys[position] or b"") + len(chunk.values[position] or b"") for position in positions
        )
        for table, table_events in split.tables.items():
            appended = self.split.table_events(coalesced, table)
            for position, *event in zip(
                table_events.positions,
                table_events.indexes,
                table_events.payloads,
                table_events.keys_of(range(len(table_events))),
                strict=True,
            ):
                appended.append(moved[position], *event)
        self.split.ddl += [replace(event, position=moved[event.position]) for event in split.ddl]
        self.split.bootstraps += [replace(event, position=moved[event.position]) for event in split.bootstraps]
        self.split.watermarks += [replace(event, position=moved[event.position]) for event in split.watermarks]
        self.split.corrupt += [replace(event, position=moved[event.position]) for event in split.corrupt]


def coalesce_batches(batches: Iterable[pa.RecordBatch], max_rows: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """Merge record batches, in order and without cutting one, into as few as the limits allow."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        more = batch.nbytes
        if waiting and (rows + batch.num_rows > max_rows or size + more > max_bytes):
            yield from _concatenated(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows += batch.num_rows
        size += more
    yield from _concatenated(waiting)


def _concatenated(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Concatenate record batches; more than 2 GiB of text remain several."""
    if len(batches) < 2:  # noqa: PLR2004 (nothing to concatenate)
        return batches
    return list(pa.Table.from_batches(batches).combine_chunks().to_batches())
