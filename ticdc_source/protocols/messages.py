"""Parsing JSON as TiCDC writes it: orjson, and a slower parse for what orjson refuses."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

import orjson

from ticdc_source.errors import DecodeError
from ticdc_source.events import TableName
from ticdc_source.protocols.compression import looks_compressed

__all__ = [
    "MALFORMED",
    "milliseconds",
    "parse_failure",
    "parse_json",
    "parse_object",
    "readable",
    "table_name",
    "text",
    "tso",
]


def _no_constant(name: str) -> NoReturn:
    msg = f"{name} is not JSON"
    raise ValueError(msg)


def parse_json(payload: bytes) -> Any:
    r"""Parse one JSON document. A repeated member's last value stands (docs/wire.md, item 12).

    TiCDC writes bytes of text columns that are no UTF-8 as they are (docs/wire.md, item 13), which orjson refuses, as
    it refuses lone surrogates in \u escapes: the slower parse keeps both as lone surrogates (PEP 383), and the
    text kernels decide by `invalidUtf8`.

    Raises:
        ValueError: the bytes are not JSON.
    """
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        try:
            return json.loads(payload.decode(errors="surrogateescape"), parse_constant=_no_constant)
        except (ValueError, RecursionError):
            msg = f"the JSON is broken: {error}{_guess(payload)}"
            raise ValueError(msg) from None


def _guess(payload: bytes) -> str:
    if looks_compressed(payload):
        return " (it looks compressed: is 'valueCompression' TiCDC's large-message-handle-compression?)"
    if payload[:1] in (b"{", b"["):
        return " (is the message cut short?)"
    return " (it does not begin as JSON)"


def parse_object(payload: bytes) -> dict[str, Any]:
    """Parse one JSON object.

    Raises:
        ValueError: the bytes are not JSON, or not an object.
    """
    parsed = parse_json(payload)
    if type(parsed) is not dict:
        msg = f"a JSON {type(parsed).__name__} where an object is expected"
        raise ValueError(msg)
    return parsed


# What taking a message apart raises where it is not of the shape its protocol promises.
MALFORMED = (DecodeError, ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError)

_2_63 = 1 << 63
_NO_CHARACTER = re.compile("[\ud800-\udfff]")


def tso(value: Any) -> int:
    """Return a commit-ts or watermark that a message holds.

    Raises:
        TypeError: it is not a JSON integer.
        ValueError: it is not a TSO: these are positive and have 63 bits.
    """
    if type(value) is not int:
        msg = f"a timestamp {value!r}"
        raise TypeError(msg)
    if not 0 <= value < _2_63:
        msg = f"a timestamp {value!r}"
        raise ValueError(msg)
    return value


def milliseconds(value: Any) -> int | None:
    """Return a wall-clock time that a message holds, in ms since the epoch; None for none and for 0 (unset).

    Raises:
        TypeError, ValueError: as `tso`, and it must leave room for a TSO's logical bits.
    """
    return tso(value << 18) >> 18 if value else None


def text(value: Any) -> str:
    """Return a name that a message holds.

    Raises:
        TypeError: it is not a JSON string.
        ValueError: it is not UTF-8 (a lone surrogate stands for a byte that is none).
    """
    if type(value) is not str:
        msg = f"{value!r} where a name is expected"
        raise TypeError(msg)
    if not value.isascii():
        value.encode()
    return value


def readable(value: Any) -> str:
    """Return a text that only people read, as that of a DDL: U+FFFD stands for each byte that is no UTF-8."""
    return _NO_CHARACTER.sub("\ufffd", str(value))


def table_name(database: Any, table: Any) -> TableName:
    """Return the table that a message names; None stands for no name.

    Raises:
        TypeError, ValueError: as `text`.
    """
    return TableName(text("" if database is None else database), text("" if table is None else table))


def parse_failure(error: Exception, what: str) -> DecodeError:
    """Make the error for an event that is not what its protocol promises."""
    if isinstance(error, DecodeError):
        return error
    detail = f"no member {error}" if isinstance(error, KeyError) else str(error)
    return DecodeError(f"not {what}: {detail.splitlines()[0] if detail else type(error).__name__}")
