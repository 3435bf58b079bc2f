"""Row images in columns: which images a table's events have, in what order, and how they become columns.

What protocols whose messages hold an old row and a new one do alike, once they know where those stand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.events import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE, row_indices
from ticdc_source.protocols.plan import Plan, PlannedColumn

__all__ = ["LINE", "LINES", "RowImages", "cast_columns", "on_two_lines", "row_images"]

LINE, LINES = b"\n", b"}\n{"  # before a row, and between two
_REPLACEMENT = "\ufffd".encode()
_CHANGE_TYPES = {"insert": [INSERT], "update": [UPDATE_POSTIMAGE], "delete": [DELETE]}
_PREIMAGE = pa.scalar(UPDATE_PREIMAGE, pa.int8())
_ONE = pa.scalar(1, pa.int32())


class RowImages(NamedTuple):
    """What images the rows of a table's events are, in their order.

    Attributes:
        change_types: what each is.
        events: the event of each.
        wanted: which of them the plan wants; None for all.
    """

    change_types: pa.Int8Array
    events: pa.Int32Array
    wanted: pa.BooleanArray | None

    def chosen(self, values: pa.Array) -> pa.Array:
        """Return those values, one an image, that belong to images that are wanted."""
        return values if self.wanted is None else values.filter(self.wanted)


def row_images(change_types: pa.Int8Array, has_old: pa.BooleanArray, plan: Plan) -> RowImages:
    """Say what images there are: of each message the old row, if it has one, and the new one.

    Args:
        change_types: of each message the kind of its new row, or its only one.
        has_old: which of them have an old row before that.
        plan: says which images are wanted.
    """
    events, wanted = row_indices(len(change_types)), None
    if has_old.true_count:
        numbers = row_indices(2 * len(change_types))
        twice, second = pc.shift_right(numbers, _ONE), pc.bit_wise_and(numbers, _ONE).cast(pa.bool_())
        there = pc.or_(second, has_old.take(twice))
        events = twice.filter(there)
        change_types = pc.if_else(second.filter(there), change_types.take(events), _PREIMAGE)
    if len(plan.operations) < len(_CHANGE_TYPES) or not plan.preimages:
        some = [kind for operation in plan.operations for kind in _CHANGE_TYPES[operation]]
        some += [UPDATE_PREIMAGE] if plan.preimages and "update" in plan.operations else []
        wanted = pc.is_in(change_types, value_set=pa.array(some, pa.int8()))
    return RowImages(change_types, events, wanted)


def on_two_lines(bodies: pa.BinaryArray, begin: bytes, between: bytes) -> pa.BinaryArray | None:
    """Put the old row and the new one on lines of their own; None where one message has not both.

    Args:
        bodies: messages from before their old row to the end of their new one.
        begin: what stands there, to the first byte of the old row.
        between: from the last byte of the old row to the first of the new one.
    """
    if not pc.all(pc.starts_with(bodies, begin)).as_py():
        return None
    both = pc.binary_replace_slice(bodies, 0, len(begin) - 1, LINE)
    cut = pc.replace_substring(both, between, LINES, max_replacements=1)
    shorter = pc.subtract(pc.binary_length(both), pc.binary_length(cut))
    return cut if pc.all(pc.equal(shorter, len(between) - len(LINES))).as_py() else None


def cast_columns(
    planned: Sequence[PlannedColumn], columns: Mapping[str, pa.Array], images: RowImages
) -> dict[str, pa.Array] | None:
    """Cast the columns of the images that are wanted; None where a value does not fit."""
    count = len(images.chosen(images.events))
    arrays = {}
    for item in planned:
        if item.run is None or item.source is None:
            arrays[item.field.name] = pa.nulls(count, item.field.arrow)
            continue
        cells = images.chosen(columns[item.source])
        as_array = cells.type == item.arrays
        if cells.type == pa.float64() and not as_array:
            return None  # of a cell it counts whether it was 1 or 1.0
        try:
            array = item.run(cells if as_array else cells.to_pylist())
        except Exception:  # noqa: BLE001 (whatever a kernel raises on garbage: the general path says where)
            return None
        # Bytes that became texts may be no UTF-8; texts that are handed back as they were have been checked.
        data = array.buffers()[2] if item.raw is not None and array is not cells else None
        if data is not None and _REPLACEMENT in data.to_pybytes():
            return None  # it may stand for what is none, which is counted
        arrays[item.field.name] = array
    return arrays
