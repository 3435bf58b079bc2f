"""Row events: the images of one event folded into one row, with a before and an after."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from ticdc_source.assembly import Rows
from ticdc_source.events import DELETE, UPDATE_POSTIMAGE, UPDATE_PREIMAGE

__all__ = ["Folded", "fold"]


class Folded(NamedTuple):
    """Image rows by event.

    Attributes:
        rows: one row an event, with the metadata of its last image, and no columns.
        before: the place of each event's before image, NULL without one.
        after: likewise.
    """

    rows: Rows
    before: pa.Array
    after: pa.Array


def fold(images: Rows) -> Folded:
    """Fold the rows of `outputFormat=changelog` into one row an event."""
    last: list[int] = []
    before: list[int | None] = []
    after: list[int | None] = []
    old: int | None = None
    for place, kind in enumerate(images.kinds):
        if kind == UPDATE_PREIMAGE:  # its postimage follows at once
            old = place
            continue
        last.append(place)
        before.append(place if kind == DELETE else old if kind == UPDATE_POSTIMAGE else None)
        after.append(None if kind == DELETE else place)
        old = None
    rows = Rows(
        images.chunk, images.protocol, images.table,
        [images.positions[place] for place in last],
        [images.indexes[place] for place in last],
        [images.kinds[place] for place in last],
        [images.commit_ts[place] for place in last],
        [images.build_ts[place] for place in last],
        [images.cluster_id[place] for place in last],
        {},
    )  # fmt: skip
    return Folded(rows, pa.array(before, pa.int64()), pa.array(after, pa.int64()))
