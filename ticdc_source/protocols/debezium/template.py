"""The template of a debezium message as TiCDC writes it.

The schema is five sixths of a message and never changes within a version of the table. In `source` only numbers change
(pingcap/ticdc pkg/sink/codec/debezium/codec.go).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import orjson

from ticdc_source.protocols.messages import written_name
from ticdc_source.protocols.templates import (
    BUILD_TS,
    COMMIT_TS,
    IGNORED,
    IMAGE,
    MOST_MS,
    PREIMAGE,
    SET_DELETE,
    SET_INSERT,
    SET_UPDATE,
    Step,
    Template,
)

__all__ = ["template_of"]

# From the start to the op, without a backslash: texts end at the next quote.
_HEAD = re.compile(
    rb'(\{"payload":\{"source":\{[^{}\\]*"ts_ms":)([1-9]\d*)(,[^{}\\]*"commit_ts":)([1-9]\d*)((?:,"start_ts":)?)([1-9]\d*)?'
    rb'(,"cluster_id":(?:null|"[^{}"\\]*")\},"ts_ms":)([1-9]\d*)(,"transaction":null,"op":")[cudr]",'
)
_SCHEMA = b'},"schema":{'
_MOST_TSO = (1 << 63) - 1
_IMAGE, _END = ("row", IMAGE), ("const", b"}")


def template_of(value: bytes, names: Iterable[str], cluster_id: str | None) -> Template | None:
    """Return the template of a message that was parsed; None if TiCDC writes no such messages.

    Args:
        value: the message.
        names: the columns of its row.
        cluster_id: its cluster id.
    """
    found = _HEAD.match(value)
    if found is None:
        return None
    end = value.find(_SCHEMA, found.end()) + 1 or len(value) - 1
    tail = value[end:]
    if tail != b"}" and not _is_schema(tail):
        return None
    begin, _, to_commit, _, to_start, start, to_build, _, to_op = found.groups()
    heads = tuple(written_name(name) + b":" for name in names)

    def steps(_variants: Sequence[Sequence[bytes]]) -> list[Step]:
        started: list[Step] = [("const", to_start), ("number", IGNORED, _MOST_TSO)] if start else []
        return [
            ("const", begin),
            ("number", IGNORED, _MOST_TSO),
            ("const", to_commit),
            ("number", COMMIT_TS, _MOST_TSO),
            *started,
            ("const", to_build),
            ("number", BUILD_TS, MOST_MS),
            ("const", to_op),
            (
                "branch",
                [
                    (b'c","before":null,"after":{', [SET_INSERT, _IMAGE, _END]),
                    (b'u","before":{', [SET_UPDATE, ("row", PREIMAGE), ("const", b'},"after":{'), _IMAGE, _END]),
                    (b'u","after":{', [SET_UPDATE, _IMAGE, _END]),
                    (b'd","after":null,"before":{', [SET_DELETE, _IMAGE, _END]),
                    (b'r","before":null,"after":{', [SET_INSERT, _IMAGE, _END]),
                ],
            ),
            ("const", b"}" + tail),  # the end of the payload
        ]

    return Template(
        identity=(begin, to_commit, to_start, to_build, tail, heads),
        heads=heads,
        steps=steps,
        cluster_id=cluster_id,
    )


def _is_schema(tail: bytes) -> bool:
    """Return whether bytes are the rest of a message with nothing but a schema in it."""
    try:
        return bool(orjson.loads(b"{" + tail[1:]).keys() == {"schema"})
    except orjson.JSONDecodeError:
        return False
