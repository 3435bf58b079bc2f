"""Row events: the images of one event folded into one row, with a before and an after."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.assembly import Rows
from ticdc_source.events import DELETE, UPDATE_POSTIMAGE, UPDATE_PREIMAGE
from ticdc_source.repeated import places

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
    nothing = pa.scalar(None, pa.int32())
    last, old = places(len(images.kinds)), nothing
    rows = images
    is_old = pc.equal(images.kinds, UPDATE_PREIMAGE)
    if is_old.true_count:  # the postimage of each follows at once
        new = pc.invert(is_old)
        last = last.filter(new)
        rows = images.at(last)
        follows = pa.concat_arrays([pa.array([False]), is_old[:-1]]).filter(new)
        updated = pc.and_(follows, pc.equal(rows.kinds, UPDATE_POSTIMAGE))
        old = pc.if_else(updated, pc.subtract(last, pa.scalar(1, pa.int32())), nothing)
    deleted = pc.equal(rows.kinds, DELETE)
    rows = replace(rows, columns={})
    return Folded(rows, pc.if_else(deleted, last, old), pc.if_else(deleted, nothing, last))
