"""The order of changes: what `_sequence` has, by which the changes of a row, and DDL, are sorted."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.pipeline.metadata import SEQUENCE

__all__ = ["sequences"]

# By change type (`CHANGE_TYPES`, then DDL, watermark and bootstrap). At one commit-ts old rows come first and DDL after
# the rows, because a row with the commit-ts of a DDL belongs to the schema before it (docs/wire.md, item 31).
_RANKS = pa.array([1, 0, 1, 0, 2, 3, 2], pa.int32())
# Where a time, or the commit-ts of another row, stands for a commit-ts (`Decoded.placed`), the topic partition and the
# offset alone order changes, and DDL too: one rank for all. It is that of a snapshot, so that at one commit-ts its rows
# come before.
_RANK_OF_PLACED = pa.scalar(1, pa.int32())
# By change type: without ranks, indexes from the smallest int on put the old rows of a message before its new rows.
_FIRST_INDEXES = pa.array([0, -(1 << 31), 0, 0, 0, 0, 0], pa.int32())
_MEMBERS = list(SEQUENCE)


def sequences(
    commit_ts: pa.Array,
    change_types: pa.Array,
    placed: pa.Array,
    partitions: pa.Array,
    offsets: pa.Array,
    indexes: pa.Array,
) -> pa.StructArray:
    """Return `_sequence` of events.

    Args:
        commit_ts: int64; of an event without one, what stands for it.
        change_types: int8, indexes into `CHANGE_TYPES`, or DDL, WATERMARK or BOOTSTRAP.
        placed: bool, whether something else than the event's own commit-ts stands in `commit_ts`.
        partitions: int32, of the topic.
        offsets: int64, of the Kafka record.
        indexes: int32, the place of the event in its message.
    """
    ranks = _RANKS.take(change_types)
    if placed.true_count:
        ranks = pc.if_else(placed, _RANK_OF_PLACED, ranks)
        indexes = pc.if_else(placed, pc.add(indexes, _FIRST_INDEXES.take(change_types)), indexes)
    return pa.StructArray.from_arrays([commit_ts, ranks, partitions, offsets, indexes], fields=_MEMBERS)
