"""How canal-json writes each type: every value is text."""

from __future__ import annotations

import sys
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.kernels import numbers, strings
from ticdc_source.kernels.contract import PlainCast
from ticdc_source.kernels.wire import Cells, Kernel, Settings, Wire
from ticdc_source.schema.types import BINARIES, ColumnType


def _latin1(cell: str) -> bytes:
    """Return the bytes that canal-json writes as the text they are in ISO-8859-1 (docs/wire.md, item 16).

    Raises:
        ValueError: a character is not one of ISO-8859-1.
    """
    try:
        return cell.encode("latin-1")
    except UnicodeEncodeError:
        msg = "not binary as canal-json writes it: a character beyond U+00FF"
        raise ValueError(msg) from None


def _latin1_array(text: pa.StringArray) -> pa.Array | None:
    """Do the same for a whole column: decode all bytes at once, and count the characters of each value."""
    text = pa.concat_arrays([text])  # its buffers begin with its first value
    lengths = pc.fill_null(pc.utf8_length(text), 0)
    ends = pc.cumulative_sum(lengths)
    first, last = (
        int.from_bytes(text.buffers()[1][4 * index : 4 * index + 4], sys.byteorder) for index in (0, len(text))
    )
    written = _latin1(bytes(text.buffers()[2][first:last]).decode()) if text.buffers()[2] is not None else b""
    if not len(text) or ends[-1].as_py() != len(written):
        return None
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.Array.from_buffers(
        pa.binary(), len(text), [text.buffers()[0], offsets.buffers()[1], pa.py_buffer(written)], text.null_count
    )


def _exact_floats(type_: ColumnType, settings: Settings) -> Kernel:
    """Read FLOAT and DOUBLE from the text of another type: a text with more digits than they hold is refused."""
    read = numbers.FLOAT_TEXT.natural(type_, settings)

    def cast(cells: Cells) -> pa.Array:
        array = read(cells)
        for text, shortest in zip(cells, array.cast(pa.string()).to_pylist(), strict=True):
            if shortest is not None and Decimal(str(text)) != Decimal(shortest):
                msg = f"a {type_} does not hold all of its digits"
                raise ValueError(msg)
        return array

    return cast


EXACT_FLOAT_TEXT = Wire(_exact_floats, numbers.FLOAT_TEXT.text)

LATIN1_BINARY = strings.binary_wire(_latin1, _latin1_array, PlainCast.LATIN1)

KERNELS: dict[str, Wire] = {**strings.TEXT_KERNELS, **dict.fromkeys(BINARIES, LATIN1_BINARY)}
