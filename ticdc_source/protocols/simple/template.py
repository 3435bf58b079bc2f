"""The template of a simple row message as TiCDC writes it (pingcap/ticdc pkg/sink/codec/simple/message.go).

Within a version of a table, only the type, numbers and values change. Go writes the columns in the order of their
names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ticdc_source.kernels.contract import Branch, Const, Image, Number, Program, Row, SetOperation, Slot, Step, Way
from ticdc_source.protocols.templates import BUILD_TS, COMMIT_TS, DELETE, INSERT, START_TS, UPDATE, Template, heads_of

_MESSAGE = re.compile(
    rb'(\{"version":1,"database":"[^"\\]*","table":"[^"\\]*",)((?:"tableID":[1-9]\d*,)?)"type":"(?:INSERT|UPDATE|DELETE)",'
    rb'"commitTs":[1-9]\d*,((?:"startTs":[1-9]\d*,)?)"buildTs":[1-9]\d*,"schemaVersion":([1-9]\d*),'
    rb'((?:"checksum":\{"version":\d+,"corrupted":false,"current":\d+,"previous":\d+\},)?)"(?:data|old)":\{'
)
_MOST_CRC = (1 << 32) - 1
_MOST_ID = (1 << 53) - 1


def _digits(most: int) -> Branch:
    """Match a number that nobody needs; 0 is one, too."""
    return Branch([Way(b"0", []), Way(b"", [Number(Slot.IGNORED, most)])])


_CHECKSUM: tuple[Step, ...] = (
    Const(b'"checksum":{"version":'),
    _digits(_MOST_CRC),
    Const(b',"corrupted":false,"current":'),
    _digits(_MOST_CRC),
    Const(b',"previous":'),
    _digits(_MOST_CRC),
    Const(b"},"),
)


def template_of(payload: bytes, names: Iterable[str]) -> Template | None:
    """Return the template of a message that was parsed; None if TiCDC writes no such messages."""
    match = _MESSAGE.match(payload)
    if match is None:
        return None
    head, table_id, start_ts, version, checksum = match.groups()
    has_id, has_start_ts, has_checksum = bool(table_id), bool(start_ts), bool(checksum)
    heads = heads_of(names)

    def program(_variants: Sequence[Sequence[bytes]]) -> Program:
        number: list[Step] = [Const(b'"tableID":'), Number(Slot.IGNORED, _MOST_ID), Const(b",")] if has_id else []

        def row(begin: bytes, operation: SetOperation, rest: Sequence[Step]) -> Way:
            before: list[Step] = [
                operation,
                Const(b'","commitTs":'),
                COMMIT_TS,
                *((Const(b',"startTs":'), START_TS) if has_start_ts else ()),
                Const(b',"buildTs":'),
                BUILD_TS,
                Const(b',"schemaVersion":' + version + b","),
                *(_CHECKSUM if has_checksum else ()),
            ]
            return Way(begin, [*before, *rest])

        main: list[Step] = [Row(Image.MAIN), Const(b"}}")]
        both: list[Step] = [Row(Image.MAIN), Const(b'},"old":{'), Row(Image.PREIMAGE), Const(b"}}")]
        ways = [
            row(b"INSERT", INSERT, [Const(b'"data":{'), *main]),
            row(b"UPDATE", UPDATE, [Const(b'"data":{'), *both]),
            row(b"DELETE", DELETE, [Const(b'"old":{'), *main]),
        ]
        steps: list[Step] = [Const(head), *number, Const(b'"type":"'), Branch(ways)]
        return Program(steps, heads, tail=b"", partial=False)

    return Template(identity=(head, has_id, has_start_ts, version, has_checksum, heads), program=program)
