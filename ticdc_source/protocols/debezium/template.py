"""The template of a debezium message as TiCDC writes it.

The schema is five sixths of a message and never changes within a version of the table. In `source` only numbers change
(pingcap/ticdc pkg/sink/codec/debezium/codec.go).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import orjson

from ticdc_source.kernels.contract import Branch, Const, Image, Number, Program, Row, Slot, Step, Way
from ticdc_source.protocols.templates import (
    BUILD_TS,
    COMMIT_TS,
    DELETE,
    INSERT,
    MOST_TSO,
    START_TS,
    UPDATE,
    Template,
    heads_of,
)

# From the start to the op, without a backslash: texts end at the next quote.
_HEAD = re.compile(
    rb'(\{"payload":\{"source":\{[^{}\\]*"ts_ms":)([1-9]\d*)(,[^{}\\]*"commit_ts":)([1-9]\d*)((?:,"start_ts":)?)([1-9]\d*)?'
    rb'(,"cluster_id":(?:null|"[^{}"\\]*")\},"ts_ms":)([1-9]\d*)(,"transaction":null,"op":")[cudr]",'
)
_SCHEMA = b'},"schema":{'
_ROW = (Row(Image.MAIN), Const(b"}"))
_PREIMAGE = (Row(Image.PREIMAGE), Const(b'},"after":{'))
_CHANGE = Branch(
    [
        Way(b'c","before":null,"after":{', [INSERT, *_ROW]),
        Way(b'u","before":{', [UPDATE, *_PREIMAGE, *_ROW]),
        Way(b'u","after":{', [UPDATE, *_ROW]),
        Way(b'd","after":null,"before":{', [DELETE, *_ROW]),
        Way(b'r","before":null,"after":{', [INSERT, *_ROW]),
    ]
)


def template_of(value: bytes, names: Iterable[str], cluster_id: str | None) -> Template | None:
    """Return the template of a message that was parsed; None if TiCDC writes no such messages."""
    match = _HEAD.match(value)
    if match is None:
        return None
    end = value.find(_SCHEMA, match.end()) + 1 or len(value) - 1
    tail = value[end:]
    if tail != b"}" and not _is_schema(tail):
        return None
    begin, _, to_commit, _, to_start, start, to_build, _, to_op = match.groups()
    heads = heads_of(names)

    def program(_variants: Sequence[Sequence[bytes]]) -> Program:
        started: list[Step] = [Const(to_start), START_TS] if start else []
        steps = [
            Const(begin),
            Number(Slot.IGNORED, MOST_TSO),
            Const(to_commit),
            COMMIT_TS,
            *started,
            Const(to_build),
            BUILD_TS,
            Const(to_op),
            _CHANGE,
            Const(b"}" + tail),  # the end of the payload
        ]
        return Program(steps, heads, tail=b"", partial=False)

    return Template(
        identity=(begin, to_commit, to_start, to_build, tail, heads), program=program, cluster_id=cluster_id
    )


def _is_schema(tail: bytes) -> bool:
    """Return whether bytes are the rest of a message with nothing but a schema in it."""
    try:
        return bool(orjson.loads(b"{" + tail[1:]).keys() == {"schema"})
    except orjson.JSONDecodeError:
        return False
