"""The template of an open-protocol row event as TiCDC writes it (pingcap/ticdc pkg/sink/codec/open/codec.go).

Events of one version of a table differ in their values only. The columns come in table order:

    {"u":{"id":{"t":8,"h":true,"f":11,"v":7},"name":{"t":15,"f":64,"v":"x"}}}
"""

from __future__ import annotations

from collections.abc import Sequence

from ticdc_source.protocols.messages import written_name
from ticdc_source.protocols.open_protocol.release_bugs import Signature
from ticdc_source.protocols.templates import IMAGE, PREIMAGE, SET_DELETE, SET_INSERT, SET_UPDATE, Step, Template

__all__ = ["template_of"]

_IMAGE = ("row", IMAGE)


def template_of(signature: Signature) -> Template | None:
    """Return the template of events with these columns; None if TiCDC writes no such events."""
    if not signature or not all(_is_plain(*parts) for parts in signature):
        return None
    heads = tuple(_head(*parts) for parts in signature)
    return Template(identity=heads, heads=heads, tail=b"}", partial=True, steps=_steps)


def _steps(_variants: Sequence[Sequence[bytes]]) -> list[Step]:
    changed = [
        (b'},"p":{', [SET_UPDATE, ("row", PREIMAGE), ("const", b"}}")]),
        (b"}}", [SET_INSERT]),
    ]
    return [
        (
            "branch",
            [
                (b'{"u":{', [_IMAGE, ("branch", changed)]),
                (b'{"d":{', [SET_DELETE, _IMAGE, ("const", b"}}")]),
            ],
        )
    ]


def _is_plain(_name: str, code: object, flags: object, handle: object) -> bool:
    return type(code) is int and (flags is None or type(flags) is int) and (handle is None or handle is True)


def _head(name: str, code: int, flags: int | None, handle: bool | None) -> bytes:  # noqa: FBT001
    """Return the bytes of a column before its value."""
    mark = b'"h":true,' if handle else b""
    flagged = b"" if flags is None else b'"f":%d,' % flags
    return written_name(name) + b':{"t":%d,%b%b"v":' % (code, mark, flagged)
