"""The template of a canal-json message as TiCDC writes it.

More than half of a message repeats the message before: names, `sqlType`, `mysqlType`. TiCDC writes the members in one
order (pingcap/ticdc pkg/sink/codec/canal/canal_json_encoder.go), except those of `mysqlType`, which come from a hash
map and so in another order in every message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ticdc_source.kernels.contract import Branch, Choice, Const, Image, Members, Program, Row, Step, Way
from ticdc_source.protocols.templates import BUILD_TS, COMMIT_TS, DELETE, EVENT_TIME, INSERT, UPDATE, Template, heads_of

# From the start to the type. The type and two times follow.
_HEAD = (
    rb'(\{"id":(?:0|[1-9]\d*),"database":"[^"\\]*","table":"[^"\\]*","pkNames":(?:null|\[[^\]]*\]),'
    rb'"isDdl":false,"type":")'
)
_TIMES = rb'(?:INSERT|UPDATE|DELETE)","es":[1-9]\d*,"ts":[1-9]\d*,"sql":"","sqlType":\{'
_MESSAGE = re.compile(_HEAD + _TIMES + rb'([^{}]*)\},"mysqlType":\{([^{}]*)\},"old":')
_CODE = re.compile(rb'("[^"\\]+":)(-?\d+)(?:,|$)')
_MEMBER = re.compile(rb'("[^"\\]+"):"[^"\\]*"(?:,|$)')  # such members, joined by commas, are JSON in any order


def template_of(payload: bytes, names: Iterable[str], *, fixed_codes: bool, placed: bool) -> Template | None:
    """Return the template of a message that was parsed, given its columns; None if TiCDC writes no such messages.

    With `fixed_codes`, another `sqlType` of one column may change what the others are; `placed` is as in `Decoded`.
    """
    match = _MESSAGE.match(payload)
    if match is None:
        return None
    head, codes, types = match.groups()
    parts, members = _CODE.findall(codes), list(_MEMBER.finditer(types))
    # The parts must be all there is, and no member may repeat another.
    whole = b",".join(name + code for name, code in parts) == codes
    if not whole or b",".join(member[0].rstrip(b",") for member in members) != types:
        return None
    if len({member[1] for member in members}) < len(members):
        return None
    texts = sorted(member[0].rstrip(b",") for member in members)
    heads = heads_of(names)
    commit_ts: list[Step] = [Const(b'}],"_tidb":{"commitTs":'), COMMIT_TS, Const(b"}}")]
    extension = [Const(b"}]}")] if placed else commit_ts
    code_names, code_values = tuple(name for name, _ in parts), tuple(code for _, code in parts)

    def program(variants: Sequence[Sequence[bytes]]) -> Program:
        code_steps: list[Step] = []
        for index, (name, seen) in enumerate(zip(code_names, variants, strict=True)):
            code_steps += [Const((b"," if index else b"") + name), Choice(_unambiguous(seen))]
        steps = [
            Const(head),
            Branch([Way(b"INSERT", [INSERT]), Way(b"UPDATE", [UPDATE]), Way(b"DELETE", [DELETE])]),
            Const(b'","es":'),
            EVENT_TIME,
            Const(b',"ts":'),
            BUILD_TS,
            Const(b',"sql":"","sqlType":{'),
            *code_steps,
            Const(b'},"mysqlType":{'),
            Members(texts),
            Const(b'},"old":'),
            Branch([Way(b"null", []), Way(b"[{", [Row(Image.PREIMAGE), Const(b"}]")])]),
            Const(b',"data":[{'),
            Row(Image.MAIN),
            *extension,
        ]
        return Program(steps, heads, tail=b"", partial=True)

    fixed = code_values if fixed_codes else None
    return Template(
        identity=(head, code_names, fixed, tuple(texts), heads, placed),
        variants=code_values,
        program=program,
        placed=placed,
    )


def _unambiguous(codes: Sequence[bytes]) -> list[bytes]:
    """Return codes with longer ones first: 1 begins 12."""
    return sorted(codes, key=len, reverse=True)
