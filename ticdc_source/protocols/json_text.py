"""Parsing JSON as TiCDC writes it: orjson, and a slower parse for what orjson refuses."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import orjson

__all__ = ["parse_json", "parse_object"]


def _no_constant(name: str) -> NoReturn:
    msg = f"{name} is not JSON"
    raise ValueError(msg)


def parse_json(payload: bytes) -> Any:
    r"""Parse one JSON document. A repeated member's last value stands (wire.md item 12).

    TiCDC writes bytes of text columns that are no UTF-8 as they are (wire.md item 13), which orjson refuses, as
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
    if payload[:4] == b"\x04\x22\x4d\x18" or b'{"' in payload[1:8]:  # raw snappy begins with the plain text
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
