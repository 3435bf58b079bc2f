"""Row images in columns: which images the messages of a table have, in which order, and how they are cast.

This is what the columnar paths share. The messages of their protocols hold an old row and a new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.events import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE, row_indices
from ticdc_source.protocols.plan import Plan, PlannedColumn

__all__ = ["LINE", "LINES", "RowImages", "cast_columns", "on_two_lines", "row_images"]

LINE, LINES = b"\n", b"}\n{"  # what stands before a row, and between two rows
_REPLACEMENT = "\ufffd".encode()
_CHANGE_TYPES = {"insert": [INSERT], "update": [UPDATE_POSTIMAGE], "delete": [DELETE]}
_PREIMAGE = pa.scalar(UPDATE_PREIMAGE, pa.int8())
_ONE = pa.scalar(1, pa.int32())


class RowImages(NamedTuple):
    """The images of a table's events, in order.

    Attributes:
        change_types: of each image, an index into `events.CHANGE_TYPES`.
        events: of each image, the index of its event.
        wanted: of each image, whether the plan wants it; None if it wants all.
    """

    change_types: pa.Int8Array
    events: pa.Int32Array
    wanted: pa.BooleanArray | None

    def filter(self, values: pa.Array) -> pa.Array:
        """Return the values of the images that are wanted; `values` has one for each image."""
        return values if self.wanted is None else values.filter(self.wanted)


def row_images(change_types: pa.Int8Array, has_old: pa.BooleanArray, plan: Plan) -> RowImages:
    """Return the images of messages: the old row of each message that has one, then its new row.

    Args:
        change_types: of each message, the change type of its new row, or of its only row.
        has_old: of each message, whether it has an old row.
        plan: which images are wanted.
    """
    events, wanted = row_indices(len(change_types)), None
    if has_old.true_count:
        numbers = row_indices(2 * len(change_types))
        twice, second = pc.shift_right(numbers, _ONE), pc.bit_wise_and(numbers, _ONE).cast(pa.bool_())
        there = pc.or_(second, has_old.take(twice))
        events = twice.filter(there)
        change_types = pc.if_else(second.filter(there), change_types.take(events), _PREIMAGE)
    if len(plan.operations) < len(_CHANGE_TYPES) or not plan.preimages:
        wanted_types = [change_type for operation in plan.operations for change_type in _CHANGE_TYPES[operation]]
        wanted_types += [UPDATE_PREIMAGE] if plan.preimages and "update" in plan.operations else []
        wanted = pc.is_in(change_types, value_set=pa.array(wanted_types, pa.int8()))
    return RowImages(change_types, events, wanted)


def on_two_lines(bodies: pa.BinaryArray, begin: bytes, between: bytes) -> pa.BinaryArray | None:
    """Put the old row and the new row of each message on lines of their own; None if a message lacks one of them.

    Args:
        bodies: messages from before their old row to the end of their new one.
        begin: the bytes before the old row, and its first byte.
        between: the last byte of the old row, the bytes up to the new row, and its first byte.
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
    """Cast the columns of the images that are wanted; None if a value does not fit."""
    count = len(images.filter(images.events))
    arrays = {}
    for column in planned:
        if column.run is None or column.source is None:
            arrays[column.field.name] = pa.nulls(count, column.field.arrow)
            continue
        cells = images.filter(columns[column.source])
        as_array = cells.type == column.arrays
        if cells.type == pa.float64() and not as_array:
            return None  # the kernel tells a cell 1 from a cell 1.0
        try:
            array = column.run(cells if as_array else cells.to_pylist())
        except Exception:  # noqa: BLE001 (a kernel may raise anything on garbage; the general path finds the cell)
            return None
        # Bytes that became text may not be UTF-8. Texts that come back as they were have been checked.
        data = array.buffers()[2] if column.raw is not None and array is not cells else None
        if data is not None and _REPLACEMENT in data.to_pybytes():
            return None  # it may stand for a bad byte, and those are counted
        arrays[column.field.name] = array
    return arrays
