"""The fast path of debezium: what messages of one table have in common is compared, and not parsed again.

The schema is five sixths of a message and never changes within a version of the table, and of `source` only numbers
do. So a message is read from behind `"op":"…",` to before `,"schema":` only, if all before and after is, numbers
aside, byte for byte what stood in a message that was parsed whole, and if it has the same columns. Whatever differs
is left to the general path, which also reports what is broken: a message that is read here gives what it would give
there (tests/pipeline/test_equivalence.py).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from ticdc_source.events import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE, TableEvents
from ticdc_source.protocols.byte_template import ByteTemplate
from ticdc_source.protocols.images import Parsed
from ticdc_source.protocols.plan import Plan
from ticdc_source.schema.model import Column

__all__ = ["BUILD_TS", "COMMIT_TS", "DebeziumKnownLayout", "MessageLayout"]

# From the start to the op; a backslash would make it hard to tell where a text ends. TiCDC's other numbers are all 0.
_HEAD = re.compile(
    rb'(\{"payload":\{"source":\{[^{}\\]*"ts_ms":([1-9]\d*),[^{}\\]*"commit_ts":([1-9]\d{0,17}),(?:"start_ts":([1-9]\d*),)?'
    rb'("cluster_id":(?:null|"[^{}"\\]*")\},"ts_ms":)([1-9]\d{0,12}),"transaction":null,"op":")([cudr])",'
)
_LONG_NUMBER = re.compile(rb'":\d\d')
_DIGITS = bytes(ord("0") if chr(byte).isdecimal() and byte < 128 else byte for byte in range(256))  # noqa: PLR2004
_OPS = {b'c",': INSERT, b'r",': INSERT, b'u",': UPDATE_POSTIMAGE, b'd",': DELETE}
_BEHIND_OP = b'",'
_SCHEMA = b'},"schema":{'
_ROWS = frozenset({"before", "after"})
_MOST_LAYOUTS = 16
COMMIT_TS, BUILD_TS = 1, -1  # their places among the numbers
_ZERO = ord("0")


class MessageLayout(NamedTuple):
    """What messages of one version of the table look like."""

    head: bytes  # to before the op, all digits as 0
    numbers: tuple[slice, ...]  # where those are; JSON does not let them begin with 0
    cluster: bytes  # what stands between the last two
    template: ByteTemplate  # the same head; its gaps are the numbers and the op
    tail: bytes
    names: tuple[str, ...]  # of the row
    cluster_id: str | None
    columns: dict[int, tuple[Column, ...]]  # by how many boundaries of the plan lie before the row

    def fits(self, value: bytes) -> bool:
        """Tell whether a message has this layout but for what stands behind the op."""
        return (
            value[: len(self.head)].translate(_DIGITS) == self.head
            and value.startswith(self.cluster, self.numbers[-2].stop)
            and value.endswith(self.tail)
            and all(value[number.start] != _ZERO for number in self.numbers)
        )


class DebeziumKnownLayout:
    """What was learned of one table's messages."""

    __slots__ = ("_layouts",)

    def __init__(self) -> None:
        self._layouts: dict[tuple[Any, ...], MessageLayout] = {}

    def learn(self, value: bytes, row: dict[str, Any], cluster_id: str | None, begun: int, columns: Any) -> None:
        """Remember the layout of a message that was parsed whole, if it is one that TiCDC writes."""
        seen = _HEAD.match(value)
        if seen is None:
            return
        end = value.find(_SCHEMA, seen.end()) + 1 or -1
        tail = value[end:]
        numbers = tuple(slice(*seen.span(group)) for group in (2, 3, 4, 6) if seen[group])
        if len(_LONG_NUMBER.findall(seen[1])) != len(numbers) or not _is_object(value[seen.end() : end], _ROWS):
            return
        if end != -1 and not _is_object(tail[1:], frozenset({"schema"})):
            return
        head = seen[1].translate(_DIGITS)
        key = (head, seen[5], tail, tuple(row))
        if key not in self._layouts and len(self._layouts) >= _MOST_LAYOUTS:
            self._layouts.clear()
        parts: list[bytes | int] = []
        for start, number in zip([0, *(number.stop for number in numbers)], numbers, strict=False):
            parts += [value[start : number.start], number.stop - number.start]
        template = ByteTemplate(*parts, value[numbers[-1].stop : len(head)], 1, _BEHIND_OP)
        cluster = value[numbers[-2].stop : numbers[-1].start]
        layout = MessageLayout(head, numbers, cluster, template, tail, tuple(row), cluster_id, {})
        self._layouts.setdefault(key, layout).columns[begun] = columns

    def unread(self, events: TableEvents, decoded: Parsed, plan: Plan) -> Iterator[int]:
        """Read messages onto `decoded`; yield the place of each that is left to the general path, in order."""
        images, loads, layouts = decoded.images, orjson.loads, self._layouts
        add_change_type, add_event, add_index = images.change_types.append, images.events.append, images.indexes.append
        add_row, runs = images.rows.append, images.runs
        boundaries, operations, preimages, stamped = plan.boundaries(), plan.operations, plan.preimages, plan.build_ts
        unwanted = {
            kind
            for kind, name in ((INSERT, "insert"), (UPDATE_POSTIMAGE, "update"), (DELETE, "delete"))
            if name not in operations
        }
        for event, value in enumerate(events.payloads):
            for layout in layouts.values():
                if layout.fits(value):
                    break
            else:
                yield event
                continue
            begin = len(layout.head)
            kind = _OPS.get(value[begin : begin + 3])
            try:
                rows = loads(b"{" + value[begin + 3 : -len(layout.tail)])
            except orjson.JSONDecodeError:
                yield event
                continue
            commit_ts = int(value[layout.numbers[COMMIT_TS]])
            columns = layout.columns.get(bisect_left(boundaries, commit_ts) if boundaries else 0)
            before = rows.get("before")
            row = before if kind == DELETE else rows.get("after")
            if kind is None or columns is None or not rows.keys() <= _ROWS:
                yield event
                continue
            if type(row) is not dict or tuple(row) != layout.names:
                yield event
                continue
            old = before if kind == UPDATE_POSTIMAGE else None
            if old is not None and type(old) is not dict:
                yield event
                continue
            decoded.commit_ts[event] = commit_ts
            if stamped:
                decoded.build_ts[event] = int(value[layout.numbers[BUILD_TS]])
            decoded.cluster_id[event] = layout.cluster_id
            if not runs or runs[-1][1] is not columns:
                images.continue_run(columns)
            if kind in unwanted:
                continue
            if old is not None and preimages:
                add_change_type(UPDATE_PREIMAGE)
                add_event(event)
                add_index(0)
                add_row(old)
            add_change_type(kind)
            add_event(event)
            add_index(0)
            add_row(row)


def _is_object(members: bytes, names: frozenset[str]) -> bool:
    """Tell whether these are an object's members, up to its end, with such names only."""
    try:
        return bool(orjson.loads(b"{" + members).keys() <= names)
    except orjson.JSONDecodeError:
        return False
