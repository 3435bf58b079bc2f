"""The checksum of a row, which TiDB computes and TiCDC sends (docs/wire.md, item 50).

CRC-32 (IEEE) over the columns in the table's order: a number as eight bytes, little-endian; a text as its length in
four bytes and its bytes; nothing for NULL and virtual columns (pingcap/ticdc pkg/sink/codec/common/verify_checksum.go).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable
from datetime import timezone
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import DecodeError
from ticdc_source.protocols.images import Parsed
from ticdc_source.schema.json_text import loads
from ticdc_source.schema.types import FLOATS, INTEGERS, TIMESTAMP_NTZ, TYPES, ColumnType

_2_64 = 1 << 64
_OF_FLOATS = frozenset(name for name, row in TYPES.items() if row.arrow == FLOATS)
NUMBERED = frozenset({*INTEGERS, "year", "bit", "enum", "set"})  # types that are summed as numbers
CORRUPTED = "TiCDC found that the row does not match its checksum (corrupted=true), and sent it anyway"
_BAD_CELL = (ValueError, TypeError, KeyError, ArithmeticError, struct.error, RecursionError)


def verify(event: int, parsed: Parsed, mode: str, check: Callable[[], str | None]) -> None:
    """Verify the checksum of an event's row; with `mode` `warn`, a wrong one becomes suspect.

    Args:
        check: returns what is wrong with the row. It raises an error if the row cannot be verified, because casting
            will report a cell, or a cell stands for several values.

    Raises:
        DecodeError: the checksum is wrong, and the mode is `fail`.
    """
    try:
        wrong = check()
    except _BAD_CELL:
        return
    parsed.verified += 1
    if wrong is None:
        return
    if mode == "fail":
        raise DecodeError(f"{wrong}. Set verifyChecksum=warn to return such rows and count them")
    parsed.suspect[event] = wrong


def mismatch(row: str, expected: int, computed: int) -> str:
    return f"{row} does not match its checksum: TiDB computed {expected}, the values in the message give {computed}"


def row_checksum(cells: Iterable[tuple[ColumnType, object]]) -> int:
    """Return the checksum of a row; 0 if all of its values are NULL.

    Args:
        cells: the type and the value of each column, in the order of the table: an integer for integers, YEAR, BIT,
            ENUM and SET; a float for FLOAT and DOUBLE; bytes for all other types. A TIMESTAMP is MySQL's text in UTC.

    Raises:
        ValueError, TypeError, ArithmeticError, struct.error, RecursionError: a value is of another kind.
    """
    return crc32(b"".join(_summed(type_, value) for type_, value in cells))


def text_in_utc(text: str, zone: str) -> bytes:
    """Return the text in UTC of a TIMESTAMP, given that in another zone.

    Raises:
        ValueError: it stands for two instants, as clocks were turned back; or for none.
    """
    if zone == "UTC" or text.startswith("0000"):
        return text.encode()
    seconds, point, fraction = text.partition(".")
    local = pa.array([seconds]).cast(TIMESTAMP_NTZ)
    moment = pc.assume_timezone(local, zone, ambiguous="raise", nonexistent="raise")[0].as_py()
    return f"{moment.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S}{point}{fraction}".encode()


def _summed(type_: ColumnType, value: object) -> bytes:
    if value is None:
        return b""
    if type_.name in NUMBERED:
        return struct.pack("<Q", int(value) % _2_64)  # type: ignore[call-overload]
    if type_.family == "float":
        number = float(value)  # type: ignore[arg-type]
        return struct.pack("<d", number if math.isfinite(number) else 0.0)
    return _numbers(value) if type_.name in _OF_FLOATS else _text(value)


def _text(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"a value of {type(value).__name__} where bytes are expected")
    return struct.pack("<I", len(value)) + value


def _numbers(value: object) -> bytes:
    numbers = loads(value, parse_int=float)  # type: ignore[arg-type]  # the integer -0 has no sign
    return struct.pack(f"<I{len(numbers)}f", len(numbers), *numbers)
