"""Kernels of text, binary, enum, set, json and vector."""

from __future__ import annotations

import base64
import binascii
import re
import sys
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import SchemaError
from ticdc_source.kernels.base import Cells, Kernel, Settings, Wire, decoded, text_bytes, texts
from ticdc_source.kernels.numbers import (
    bit_numbers,
    integers_of_numbers,
    integers_of_text,
    require,
    text_cells,
    text_of_numbers,
)
from ticdc_source.schema.types import BIGINT_UNSIGNED, VECTOR, ColumnType

__all__ = [
    "BASE64_BINARY",
    "BASE64_TEXT",
    "ENUM_NUMBER",
    "ENUM_TEXT",
    "LABEL",
    "LATIN1_BINARY",
    "QUOTED_BINARY",
    "SET_NUMBER",
    "SET_TEXT",
    "TEXT",
    "VECTOR_TEXT",
    "base64_bytes",
    "unquote",
]


def _texts(_type: ColumnType, settings: Settings) -> Kernel:
    """Read JSON strings; a byte that is no UTF-8 is in them as a lone surrogate (PEP 383)."""

    def cast(cells: Cells) -> pa.Array:
        return texts(cells if isinstance(cells, pa.StringArray) else require(cells, str), settings)

    return cast


def base64_bytes(cell: str | bytes) -> bytes:
    """Undo base64 (the standard alphabet, padded).

    Raises:
        ValueError: it is not base64.
    """
    if sys.version_info >= (3, 11):  # what b64decode calls there, after half its time
        return binascii.a2b_base64(cell, strict_mode=True)
    return base64.b64decode(cell, validate=True)


_ESCAPE = re.compile(rb'\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([abfnrtv\\"\'])|)')
_LETTERS = {
    b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v",
    b"\\": b"\\", b'"': b'"', b"'": b"'",
}  # fmt: skip


def _unescape(match: re.Match[bytes]) -> bytes:
    byte, short, long, letter = match.groups()
    if byte:
        return bytes.fromhex(byte.decode())
    if letter:
        return _LETTERS[letter]
    if not (short or long):
        msg = "not the body of a Go-quoted string"
        raise ValueError(msg)
    return chr(int(short or long, 16)).encode()


def unquote(cell: str) -> bytes:
    """Undo Go's `strconv.Quote` (its body: without the outer quotes), docs/wire.md, item 64.

    Raises:
        ValueError: a backslash starts no escape that Quote writes.
    """
    raw = text_bytes(cell)
    return _ESCAPE.sub(_unescape, raw) if b"\\" in raw else raw


def _latin1(cell: str) -> bytes:
    """Undo canal-json's ISO-8859-1 reading of the bytes (docs/wire.md, item 16)."""
    try:
        return cell.encode("latin-1")
    except UnicodeEncodeError:
        msg = "not binary as canal-json writes it: a character beyond U+00FF"
        raise ValueError(msg) from None


def _latin1_array(text: pa.StringArray) -> pa.Array | None:
    """Do the same to a whole column: decode all bytes at once, and count the characters of each value."""
    text = pa.concat_arrays([text])  # whose buffers begin where it begins
    lengths = pc.fill_null(pc.utf8_length(text), 0)
    ends = pc.cumulative_sum(lengths)
    first, last = (
        int.from_bytes(text.buffers()[1][4 * place : 4 * place + 4], sys.byteorder) for place in (0, len(text))
    )
    written = _latin1(bytes(text.buffers()[2][first:last]).decode()) if text.buffers()[2] is not None else b""
    if not len(text) or ends[-1].as_py() != len(written):
        return None
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.Array.from_buffers(
        pa.binary(), len(text), [text.buffers()[0], offsets.buffers()[1], pa.py_buffer(written)], text.null_count
    )


def _base64_array(text: pa.StringArray) -> pa.Array | None:
    """Undo base64 of a whole column at once: padding is read as zeros, and cut off; None where that is not all."""
    text = pa.concat_arrays([text])
    validity, offsets, data = text.buffers()
    ends = pa.Array.from_buffers(pa.int32(), len(text) + 1, [None, offsets])
    written = b"" if data is None else data[: ends[-1].as_py()].to_pybytes()
    one, two = (pc.ends_with(text, pattern=padding) for padding in ("=", "=="))
    whole = pc.all(pc.equal(pc.bit_wise_and(ends, 3), 0)).as_py()
    if not whole or written.count(b"=") != one.true_count + two.true_count:
        return None  # there is more behind the padding
    ends = pc.multiply(pc.shift_right(ends, pa.scalar(2, pa.int32())), pa.scalar(3, pa.int32()))
    read = pa.py_buffer(base64_bytes(written.replace(b"=", b"A")))
    array = pa.Array.from_buffers(pa.binary(), len(text), [validity, ends.buffers()[1], read], text.null_count)
    if not one.true_count:
        return array
    shorter = pc.if_else(two, pc.binary_slice(array, 0, -2), pc.binary_slice(array, 0, -1))
    return shorter if one.true_count == len(text) - text.null_count else pc.if_else(one, shorter, array)


def _binary_by(
    decode: Callable[[str], bytes], written: str, whole: Callable[[pa.StringArray], pa.Array | None] | None = None
) -> Wire:
    """Make the wire of bytes in text: `whole` decodes a column, if it can."""

    def natural(_type: ColumnType, _settings: Settings) -> Kernel:
        def cast(cells: Cells) -> pa.Array:
            if whole is not None and isinstance(cells, pa.StringArray):
                array = whole(cells)
                if array is not None:
                    return array
            return pa.array([None if c is None else decode(c) for c in _cells(cells)], pa.binary())

        return cast

    def text(_type: ColumnType, settings: Settings) -> Kernel:
        def cast(cells: Cells) -> pa.Array:
            raw = [None if c is None else decode(c) for c in _cells(cells)]
            try:
                return pa.array(raw, pa.binary()).cast(pa.string())
            except pa.ArrowInvalid:
                return pa.array([None if c is None else decoded(c, settings) for c in raw], pa.string())

        return cast

    return Wire(natural, text, written=written, arrays=None if whole is None else pa.string())


def _cells(cells: Cells) -> Sequence[str | None]:
    """Return the cells of an array of texts, or cells that must be JSON strings."""
    if isinstance(cells, pa.StringArray):
        texts: list[str | None] = cells.to_pylist()
        return texts
    return require(cells, str)


def _enum_label(labels: tuple[str, ...], index: int) -> str:
    if index == 0:  # MySQL's value for what was invalid when it was written
        return ""
    if not 0 < index <= len(labels):
        msg = f"member {index} of an enum with {len(labels)} labels"
        raise ValueError(msg)
    return labels[index - 1]


def _set_labels(labels: tuple[str, ...], mask: int) -> str:
    if not 0 <= mask < 1 << len(labels):
        msg = f"mask {mask} of a set with {len(labels)} labels"
        raise ValueError(msg)
    return ",".join(label for bit, label in enumerate(labels) if mask >> bit & 1)


def _members(
    read: Callable[[pa.DataType], Kernel], label: Callable[[tuple[str, ...], int], str]
) -> Callable[[ColumnType, Settings], Kernel]:
    """Make kernels for enum or set: labels where they are known, else the number."""

    def make(type_: ColumnType, _settings: Settings) -> Kernel:
        labels = type_.labels
        if labels is None:
            return read(type_.arrow)
        as_numbers = read(pa.decimal128(20, 0))

        def cast(cells: Cells) -> pa.Array:
            known: dict[int | None, str | None] = {None: None}
            numbers = [None if n is None else int(n) for n in as_numbers(cells).to_pylist()]
            for number in set(numbers) - {None}:
                known[number] = label(labels, number)  # type: ignore[arg-type]
            return pa.array([known[number] for number in numbers], pa.string())

        return cast

    return make


def _labels(type_: ColumnType, settings: Settings) -> Kernel:
    """Read enum and set of debezium, which sends the labels themselves.

    Raises:
        SchemaError: a number is wanted, and the labels that it counts are not known.
    """
    if type_.labels is None:
        msg = f"{type_} comes as text, and its labels are not known: it can be read as string"
        raise SchemaError(msg)
    return _texts(type_, settings)


def _numbers_of_labels(type_: ColumnType, _settings: Settings) -> Kernel:
    """Make the kernel for the index of an enum's label, or the mask of a set's; needs to know the labels."""
    places = {label: place for place, label in enumerate(type_.labels or ())}

    def number(cell: str) -> int:
        if type_.name == "enum":
            return places[cell] + 1 if cell in places else _nothing(cell)
        return sum(1 << places[label] if label in places else _nothing(label) for label in cell.split(",") if label)

    def cast(cells: Cells) -> pa.Array:
        labels = text_cells(cells).to_pylist()
        return pa.array([None if label is None else number(label) for label in labels], BIGINT_UNSIGNED)

    return cast


def _nothing(label: str) -> int:
    """Return the number of what is no member: 0 for the empty text, MySQL's value for what was invalid."""
    if label:
        msg = f"{label!r} is not among the labels"
        raise ValueError(msg)
    return 0


def _vectors(_type: ColumnType, _settings: Settings) -> Kernel:
    def parse(cell: str) -> list[float]:
        if len(cell) < 2 or cell[0] != "[" or cell[-1] != "]":  # noqa: PLR2004 (two brackets)
            msg = "not a vector"
            raise ValueError(msg)
        body = cell[1:-1].strip()
        return [float(part) for part in body.split(",")] if body else []

    def cast(cells: Cells) -> pa.Array:
        array = pa.array([None if c is None else parse(c) for c in require(cells, str)], VECTOR)
        if not pc.all(pc.is_finite(array.values), min_count=0).as_py():
            msg = "a number that a float does not hold"
            raise ValueError(msg)
        return array

    return cast


def _as_text(_type: ColumnType, _settings: Settings) -> Kernel:
    return text_cells


TEXT = Wire(_texts, _texts, raw=_binary_by(text_bytes, "text").natural, written="text", arrays=pa.string())
BASE64_BINARY = _binary_by(base64_bytes, "base64", _base64_array)
BASE64_TEXT = Wire(BASE64_BINARY.text, BASE64_BINARY.text, raw=BASE64_BINARY.natural, written="base64 of the text")
QUOTED_BINARY = _binary_by(unquote, "the body of a Go-quoted string")
LATIN1_BINARY = _binary_by(_latin1, "the text that the bytes are in ISO-8859-1", _latin1_array)
ENUM_NUMBER = Wire(
    _members(integers_of_numbers, _enum_label),
    text_of_numbers,
    number=bit_numbers(integers_of_numbers),
    written="a number: the index of the label, from 1",
)
ENUM_TEXT = Wire(
    _members(integers_of_text, _enum_label),
    _as_text,
    number=bit_numbers(integers_of_text),
    written="digits in text: the index of the label, from 1",
    arrays=pa.string(),
)
SET_NUMBER = Wire(
    _members(integers_of_numbers, _set_labels),
    text_of_numbers,
    number=bit_numbers(integers_of_numbers),
    written="a number: a bit for each label",
)
SET_TEXT = Wire(
    _members(integers_of_text, _set_labels),
    _as_text,
    number=bit_numbers(integers_of_text),
    written="digits in text: a bit for each label",
    arrays=pa.string(),
)
LABEL = Wire(_labels, _texts, number=_numbers_of_labels, written="the labels", arrays=pa.string(), labels=True)
VECTOR_TEXT = Wire(_vectors, _as_text, written="text: `[1,2,3.5]`")
