"""Small record batches → few large ones: decoding is fastest a thousand rows at a time, Spark likes eight thousand.

Rows that wait to be joined are lost to an error behind them: nobody misses them, as a Spark task fails as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

__all__ = ["joined"]


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
