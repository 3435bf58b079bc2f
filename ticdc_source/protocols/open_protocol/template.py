"""The template of an open-protocol row event as TiCDC writes it (pingcap/ticdc pkg/sink/codec/open/codec.go).

Events of one version of a table differ in their values only. The columns come in table order:

    {"u":{"id":{"t":8,"h":true,"f":11,"v":7},"name":{"t":15,"f":64,"v":"x"}}}
"""

from __future__ import annotations

from ticdc_source.kernels.contract import Branch, Const, Image, Operation, Program, Row, SetOperation, Way
from ticdc_source.protocols.messages import written_name
from ticdc_source.protocols.open_protocol.release_bugs import Signature
from ticdc_source.protocols.templates import Template

__all__ = ["template_of"]

_INSERT, _UPDATE, _DELETE = map(SetOperation, Operation)
_ROW = Row(Image.MAIN)
_CHANGED = Branch([Way(b'},"p":{', [_UPDATE, Row(Image.PREIMAGE), Const(b"}}")]), Way(b"}}", [_INSERT])])
_STEPS = (Branch([Way(b'{"u":{', [_ROW, _CHANGED]), Way(b'{"d":{', [_DELETE, _ROW, Const(b"}}")])]),)


def template_of(signature: Signature) -> Template | None:
    """Return the template of events with these columns; None if TiCDC writes no such events."""
    if not signature or any(handle is False for _, _, _, handle in signature):
        return None
    heads = tuple(_head(*parts) for parts in signature)
    return Template(identity=heads, program=lambda _: Program(_STEPS, heads, tail=b"}", partial=True))


def _head(name: str, code: int, flags: int, handle: bool | None) -> bytes:  # noqa: FBT001
    """Return the bytes of a column before its value."""
    mark = b'"h":true,' if handle else b""
    return written_name(name) + b':{"t":%d,%b"f":%d,"v":' % (code, mark, flags)
