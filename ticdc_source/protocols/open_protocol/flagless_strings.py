"""Strings without flags: the messages do not say whether they are text or binary, nor how they are written.

CHAR, VARCHAR, BINARY and VARBINARY have three forms without flags (docs/wire.md, items 65 and 113):

* TiCDC v4.0.0 to v4.0.4 write the text as it is, binary too; U+FFFD stands for each byte that is not UTF-8.
* The log in TiCDC's documentation has base64, as releases before v4.0.0 wrote it.
* The table of types in TiCDC's documentation has binary as the body of a Go-quoted string.

`written_in` looks at all strings of a sample, and `wire_of_strings` chooses how they are read. A string that can be
read in two ways is an error: nothing is replaced or guessed.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from ticdc_source.kernels import strings
from ticdc_source.kernels.numbers import require
from ticdc_source.kernels.wire import Cells, Kernel, Settings, Wire, text_bytes, texts
from ticdc_source.protocols.open_protocol.kernels import QUOTED_BINARY, unquoted
from ticdc_source.schema.model import Written
from ticdc_source.schema.types import ColumnType

__all__ = ["wire_of_strings", "written_in"]

_BYTE = re.compile(r"(?<!\\)(?:\\\\)*\\x[0-9a-f]{2}")
_QUOTE = re.compile(r'(?<!\\)(?:\\\\)*"')
_LOST = "\ufffd"


def written_in(columns: Mapping[str, Iterable[str]]) -> dict[str, tuple[Written, bool]]:
    """Return how the strings of each column are written, and whether they can only be binary.

    One producer writes all columns alike: a string that is no base64 makes base64 of no other.

    Args:
        columns: the strings of a sample by column.
    """
    forms: dict[str, tuple[Written, bool]] = {}
    armoured: dict[str, list[tuple[str, bytes]]] = {}
    for name, cells in columns.items():
        present = {cell for cell in cells if cell}
        decoded = [(cell, data) for cell in present if (data := _of_base64(cell)) is not None]
        if not present:
            continue
        if len(decoded) == len(present):
            armoured[name] = decoded
        else:
            forms[name] = _of_other(present)
    padded = any(cell.endswith("=") for decoded in armoured.values() for cell, _ in decoded)
    sure = padded or all(_is_printable(data) for decoded in armoured.values() for _, data in decoded)
    for name, decoded in armoured.items():
        if forms.keys() - armoured.keys():
            forms[name] = (Written.PLAIN, False)
        elif sure:
            text = all(_is_text(data) for _, data in decoded)
            forms[name] = (Written.BASE64, False) if text else (Written.BASE64_OF_BYTES, True)
        else:
            forms[name] = (Written.EITHER, False)
    return forms


def _of_other(cells: Iterable[str]) -> tuple[Written, bool]:
    """Return how strings are written that are not base64."""
    quoted = [_of_quoted(cell) for cell in cells]
    unescaped = [data for data in quoted if data is not None]
    if len(unescaped) < len(quoted) or not any(map(_BYTE.search, cells)):
        return Written.PLAIN, False
    return Written.QUOTED, not all(map(_is_text, unescaped))


def _of_base64(cell: str) -> bytes | None:
    """Return the bytes behind base64 exactly as Go writes it; None if the string is something else."""
    try:
        data = strings.base64_bytes(cell)
    except ValueError:
        return None
    return data if base64.b64encode(data).decode() == cell else None


def _of_quoted(cell: str) -> bytes | None:
    """Return the bytes behind the body of a Go-quoted string; None if the string is something else."""
    try:
        return None if _QUOTE.search(cell) or not cell.isprintable() else unquoted(cell)
    except ValueError:
        return None


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_printable(data: bytes) -> bool:
    return _is_text(data) and all(character.isprintable() or character in "\t\r\n" for character in data.decode())


# One cell, as each form of `Written` has it


def _ambiguous(cell: str) -> ValueError:
    msg = (
        f"messages without flags do not say whether {cell[:20]!r} is base64. If it is not, declare the column as "
        "VARCHAR in 'tableDDL'"
    )
    return ValueError(msg)


def _text_of_any(cell: str) -> str:
    """Return the text that a string without flags can only be.

    Raises:
        ValueError: it can be the text as it is, and also base64.
    """
    data = _of_base64(cell)
    if not cell or data is None or not _is_text(data):
        return cell
    if cell.endswith("="):
        return data.decode()
    if _is_printable(data):
        raise _ambiguous(cell)
    return cell


def _bytes_of_any(cell: str, type_: ColumnType) -> bytes:
    """Return the bytes that a string without flags can only be.

    Args:
        cell: the string.
        type_: the declared type. A BINARY has as many bytes as it says, a VARBINARY no more.

    Raises:
        ValueError: it can be the bytes of the text, and also base64; or some of its bytes are lost.
    """
    data = _of_base64(cell)
    if data is not None and cell:
        if cell.endswith("=") or (_has_length_of(data, type_) and not _has_length_of(cell.encode(), type_)):
            return data
        if _has_length_of(data, type_):
            raise _ambiguous(cell)
        return cell.encode()
    quoted = _of_quoted(cell) if _BYTE.search(cell) else None
    return _bytes_of_plain(cell) if quoted is None else quoted


def _has_length_of(data: bytes, type_: ColumnType) -> bool:
    if type_.length is None:
        return True
    return len(data) == type_.length if type_.name == "binary" else len(data) <= type_.length


def _bytes_of_plain(cell: str) -> bytes:
    if _LOST in cell:
        msg = "bytes that are not UTF-8 are lost: TiCDC v4.0.0 to v4.0.4 wrote U+FFFD in their place"
        raise ValueError(msg)
    return text_bytes(cell)


def _text_of_base64(cell: str) -> str:
    try:
        return strings.base64_bytes(cell).decode()
    except UnicodeDecodeError:
        msg = "base64 of bytes that are not text: declare the column as VARBINARY in 'tableDDL'"
        raise ValueError(msg) from None


def _text(read: Callable[[str], str]) -> Wire:
    """Make the wire form of texts that `read` returns, or refuses."""

    def make(_type: ColumnType, settings: Settings) -> Kernel:
        def cast(cells: Cells) -> pa.Array:
            return texts([None if cell is None else read(cell) for cell in require(cells, str)], settings)

        return cast

    return Wire(make, make, raw=strings.binary_wire(lambda cell: text_bytes(read(cell))).natural)


def _binary(read: Callable[[str], bytes]) -> Wire:
    """Make the wire form of bytes that `read` returns, or refuses; read as string, they must be UTF-8."""
    return Wire(strings.binary_wire(read).natural, _text(lambda cell: read(cell).decode()).text)


_WIRES: Mapping[tuple[Written, str], Wire] = {
    (Written.UNKNOWN, "text"): _text(_text_of_any),
    (Written.EITHER, "text"): strings.TEXT,
    (Written.BASE64, "text"): _text(_text_of_base64),
    (Written.BASE64, "binary"): _binary(strings.base64_bytes),
    (Written.BASE64_OF_BYTES, "text"): strings.TEXT,
    (Written.BASE64_OF_BYTES, "binary"): _binary(strings.base64_bytes),
    (Written.QUOTED, "text"): strings.TEXT,
    (Written.QUOTED, "binary"): QUOTED_BINARY,
    (Written.PLAIN, "text"): strings.TEXT,
    (Written.PLAIN, "binary"): _binary(_bytes_of_plain),
}


def wire_of_strings(written: Written, type_: ColumnType) -> Wire:
    """Return how strings are read that are written so, as a type of the family text or binary."""
    if type_.family == "binary" and written in (Written.UNKNOWN, Written.EITHER):
        return _binary(lambda cell: _bytes_of_any(cell, type_))
    return _WIRES[written, type_.family]
