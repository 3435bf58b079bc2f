"""How open-protocol writes each type: numbers as numbers, binary as base64 or as the body of a Go-quoted string."""

from __future__ import annotations

import re

from ticdc_source.kernels import numbers, strings
from ticdc_source.kernels.wire import Wire, text_bytes
from ticdc_source.schema.types import INTEGERS, TEXTS

_ESCAPE = re.compile(rb'\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([abfnrtv\\"\'])|)')
_LETTERS = {
    b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v",
    b"\\": b"\\", b'"': b'"', b"'": b"'",
}  # fmt: skip


def unquoted(cell: str) -> bytes:
    """Return the bytes whose form under Go's `strconv.Quote` has this body, without quotes (docs/wire.md, item 64).

    Raises:
        ValueError: a backslash starts no escape that Quote writes.
    """
    raw = text_bytes(cell)
    return _ESCAPE.sub(_unescape, raw) if b"\\" in raw else raw


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


QUOTED_BINARY = strings.binary_wire(unquoted)

KERNELS: dict[str, Wire] = {
    **strings.TEXT_KERNELS,
    **dict.fromkeys(INTEGERS, numbers.INTEGER_NUMBER),
    "year": numbers.YEAR_NUMBER,
    "float": numbers.FLOAT_NUMBER,
    "double": numbers.FLOAT_NUMBER,
    "bit": numbers.BIT_NUMBER,
    **dict.fromkeys(TEXTS, strings.BASE64_TEXT),
    "char": strings.TEXT,
    "varchar": strings.TEXT,
    "binary": QUOTED_BINARY,
    "varbinary": QUOTED_BINARY,
    "enum": strings.ENUM_NUMBER,
    "set": strings.SET_NUMBER,
}
