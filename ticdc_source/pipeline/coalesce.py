"""Coalescing of chunks with few wanted events: decoding five events costs as much as decoding fifty.

Events that wait for others are lost to an error behind them, as rows that wait to be joined are: nobody misses them,
as a Spark task fails as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

import pyarrow as pa

from ticdc_source.events import Chunk, Split

__all__ = ["coalesce_chunks", "joined"]

_MOST_RECORDS = 1000  # as many as in a chunk
_MOST_BYTES = 4 << 20


def coalesce_chunks(splits: Iterable[tuple[Chunk, Split]]) -> Iterator[tuple[Chunk, Split]]:
    """Yield chunks and their events; of chunks that hold few events, those records that do as one chunk.

    Every event comes once, in the same order and with the same address. Chunks without an event do not come. Counts
    (`skipped`, `others`) stay with the chunks that were given.
    """
    few: _Few | None = None
    for chunk, split in splits:
        events = sum(map(len, split.tables.values())) + len(split.ddl) + len(split.watermarks) + len(split.corrupt)
        if not events:
            continue
        is_few = 2 * events < len(chunk)
        if few is not None and not (is_few and few.takes(chunk)):
            yield few.chunk, few.split
            few = None
        if is_few:
            few = few or _Few(chunk)
            few.lay(chunk, split)
        else:
            yield chunk, split
    if few is not None:
        yield few.chunk, few.split


class _Few:
    """A chunk of records from several, and their events."""

    __slots__ = ("_bytes", "chunk", "split")

    def __init__(self, first: Chunk) -> None:
        self.chunk = first.part(0, 0)
        self.split = Split()
        self._bytes = 0

    def takes(self, chunk: Chunk) -> bool:
        """Tell whether a chunk's records may come next, and there is room for them."""
        mine = self.chunk
        full = len(mine) >= _MOST_RECORDS or self._bytes >= _MOST_BYTES
        follows = (mine.topic, mine.partition) == (chunk.topic, chunk.partition) and mine.offsets[-1] < chunk.offsets[0]
        return follows and not full

    def lay(self, chunk: Chunk, split: Split) -> None:
        """Lay the records of a chunk that hold an event behind those that are there, and their events."""
        found = [table_events.positions for table_events in split.tables.values()]
        found += ([event.position for event in split.ddl], [event.position for event in split.watermarks])
        found.append([event.position for event in split.corrupt])
        positions = sorted(set(chain.from_iterable(found)))
        places = {position: place for place, position in enumerate(positions, len(self.chunk))}
        mine = self.chunk
        mine.offsets += [chunk.offsets[position] for position in positions]
        mine.timestamps += [chunk.timestamps[position] for position in positions]
        mine.keys += [chunk.keys[position] for position in positions]
        mine.listed_values().extend(chunk.values[position] for position in positions)
        if mine.headers is not None and chunk.headers is not None:
            mine.headers += [chunk.headers[position] for position in positions]
        self._bytes += sum(
            len(chunk.keys[position] or b"") + len(chunk.values[position] or b"") for position in positions
        )
        for table, table_events in split.tables.items():
            laid = self.split.table_events(mine, table)
            for position, *event in zip(
                table_events.positions, table_events.indexes, table_events.payloads, table_events.headers, strict=True
            ):
                laid.append(places[position], *event)
        self.split.ddl += [replace(event, position=places[event.position]) for event in split.ddl]
        self.split.watermarks += [replace(event, position=places[event.position]) for event in split.watermarks]
        self.split.corrupt += [replace(event, position=places[event.position]) for event in split.corrupt]


def joined(batches: Iterable[pa.RecordBatch], max_rows: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in the same order, in as few record batches as the bounds allow without cutting one.

    Args:
        batches: record batches of one schema.
        max_rows: rows in a record batch at most, unless it came so.
        max_bytes: bytes in a record batch at most, unless it came so.
    """
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        more = batch.nbytes
        if waiting and (rows + batch.num_rows > max_rows or size + more > max_bytes):
            yield from _one(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows += batch.num_rows
        size += more
    yield from _one(waiting)


def _one(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Join record batches; those of more than 2 GiB of text stay several."""
    if len(batches) < 2:  # noqa: PLR2004 (nothing to join)
        return batches
    return list(pa.Table.from_batches(batches).combine_chunks().to_batches())
