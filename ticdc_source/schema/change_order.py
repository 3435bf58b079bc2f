"""The order of changes: their types, and `_sequence`, which sorts the changes of a row, and DDL.

`_sequence` is compared field by field. At one commit-ts, `rank` decides, then the place in the topic.
"""

from __future__ import annotations

import pyarrow as pa

# The values of `_change_type` (Spark's `Changelog` contract, Delta's change feed). A row image has an index into them.
CHANGE_TYPES = ("insert", "update_preimage", "update_postimage", "delete")
INSERT, UPDATE_PREIMAGE, UPDATE_POSTIMAGE, DELETE = range(4)
# `outputFormat=event` has these besides row images.
DDL, WATERMARK, BOOTSTRAP = 4, 5, 6

SEQUENCE = pa.struct(
    [
        pa.field("commit_ts", pa.int64()),
        pa.field("rank", pa.int32()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("index", pa.int32()),
    ]
)

# `rank` by change type. At one commit-ts old rows come first and DDL after the rows, as a row with the commit-ts of a
# DDL belongs to the schema before it (docs/wire.md, item 31).
RANKS = (1, 0, 1, 0, 2, 3, 2)
# The rows of a snapshot have that of inserts.
SNAPSHOT_RANK = RANKS[INSERT]
# If a time or another row's commit-ts replaces the commit-ts (`Decoded.placed`), only topic partition and offset order
# changes and DDL: one rank for all. At one commit-ts, a snapshot's rows come first.
PLACED_RANK = SNAPSHOT_RANK
# By change type: without ranks, indexes from the smallest int on put a message's old rows before its new ones.
PLACED_FIRST_INDEXES = (0, -(1 << 31), 0, 0, 0, 0, 0)
# A repair comes after every change of its commit-ts, including DDL that empties a table.
REPAIR_RANK = max(RANKS) + 1
EMPTYING_RANK = min(RANKS) - 1
