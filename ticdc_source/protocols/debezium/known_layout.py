"""The known-layout path of debezium: what messages of one table have in common is compared and not parsed again.

The schema is five sixths of a message and never changes within a version of the table. In `source` only numbers change.
So a message is parsed only from behind `"op":"…",` to before `,"schema":`, if everything before and after that equals a
message that was parsed whole, except for digits, and if the row has the same columns. Other messages are left to the
general path, which also reports what is broken. A message that is read here gives what it gives there
(tests/pipeline/test_equivalence.py).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from ticdc_source.events import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE, TableEvents
from ticdc_source.protocols.byte_template import ByteTemplate
from ticdc_source.protocols.images import Parsed, Row
from ticdc_source.protocols.plan import Plan
from ticdc_source.schema.model import Column

__all__ = ["BUILD_TS", "COMMIT_TS", "DebeziumKnownLayout", "MessageLayout"]

# From the start to the op, without a backslash: texts end at the next quote. TiCDC's other numbers are 0.
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
COMMIT_TS, BUILD_TS = 1, -1  # their indices in `MessageLayout.numbers`
_ZERO = ord("0")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLayout:
    """The layout of messages of one version of the table.

    Attributes:
        head: the bytes before the op, with 0 for each digit.
        numbers: where the numbers in the head are. A number in JSON does not begin with 0.
        cluster: the bytes between the last two numbers, which hold the cluster id.
        template: the head as a template; its gaps are the numbers and the op.
        tail: the bytes behind the rows.
        names: the names of the row's columns.
        cluster_id: the cluster id.
        columns: the columns by version, which is the number of the plan's boundaries before the row.
    """

    head: bytes
    numbers: tuple[slice, ...]
    cluster: bytes
    template: ByteTemplate
    tail: bytes
    names: tuple[str, ...]
    cluster_id: str | None
    columns: dict[int, tuple[Column, ...]]

    def fits(self, value: bytes) -> bool:
        """Return whether a message has this layout before and behind its rows."""
        return (
            value[: len(self.head)].translate(_DIGITS) == self.head
            and value.startswith(self.cluster, self.numbers[-2].stop)
            and value.endswith(self.tail)
            and all(value[number.start] != _ZERO for number in self.numbers)
        )


class DebeziumKnownLayout:
    """The layouts that were learned of one table's messages."""

    __slots__ = ("_layouts",)

    def __init__(self) -> None:
        self._layouts: dict[tuple[bytes, bytes, bytes, tuple[str, ...]], MessageLayout] = {}

    def learn(self, value: bytes, row: Row, cluster_id: str | None, version: int, columns: tuple[Column, ...]) -> None:
        """Learn the layout of a message that was parsed, if TiCDC writes such messages.

        Args:
            value: the message.
            row: its row.
            cluster_id: its cluster id.
            version: the number of the plan's boundaries before the row.
            columns: the columns of the row.
        """
        found = _HEAD.match(value)
        if found is None:
            return
        end = value.find(_SCHEMA, found.end()) + 1 or -1
        tail = value[end:]
        numbers = tuple(slice(*found.span(group)) for group in (2, 3, 4, 6) if found[group])
        if len(_LONG_NUMBER.findall(found[1])) != len(numbers) or not _is_object(value[found.end() : end], _ROWS):
            return
        if end != -1 and not _is_object(tail[1:], frozenset({"schema"})):
            return
        head = found[1].translate(_DIGITS)
        key = (head, found[5], tail, tuple(row))
        layout = self._layouts.get(key)
        if layout is None:
            if len(self._layouts) >= _MOST_LAYOUTS:
                self._layouts.clear()
            parts: list[bytes | int] = []
            for start, number in zip([0, *(number.stop for number in numbers)], numbers, strict=False):
                parts += [value[start : number.start], number.stop - number.start]
            layout = self._layouts[key] = MessageLayout(
                head=head,
                numbers=numbers,
                cluster=value[numbers[-2].stop : numbers[-1].start],
                template=ByteTemplate(*parts, value[numbers[-1].stop : len(head)], 1, _BEHIND_OP),
                tail=tail,
                names=tuple(row),
                cluster_id=cluster_id,
                columns={},
            )
        layout.columns[version] = columns

    def unread(self, events: TableEvents, parsed: Parsed, plan: Plan) -> Iterator[int]:
        """Read events, in order; yield the index of each event that is left to the general path.

        Args:
            events: the events.
            parsed: gets what is read. The caller adds each event that is yielded before it asks for the next one.
            plan: what is wanted.
        """
        images, loads, layouts = parsed.images, orjson.loads, self._layouts
        add_change_type, add_event, add_index = images.change_types.append, images.events.append, images.indexes.append
        add_row, runs = images.rows.append, images.runs
        boundaries, preimages, build_ts_wanted = plan.boundaries(), plan.preimages, plan.build_ts
        unwanted = {
            change_type
            for change_type, name in ((INSERT, "insert"), (UPDATE_POSTIMAGE, "update"), (DELETE, "delete"))
            if name not in plan.operations
        }
        for event, value in enumerate(events.payloads):
            for layout in layouts.values():
                if layout.fits(value):
                    break
            else:
                yield event
                continue
            begin = len(layout.head)
            change_type = _OPS.get(value[begin : begin + 3])
            try:
                rows = loads(b"{" + value[begin + 3 : -len(layout.tail)])
            except orjson.JSONDecodeError:
                yield event
                continue
            commit_ts = int(value[layout.numbers[COMMIT_TS]])
            columns = layout.columns.get(bisect_left(boundaries, commit_ts) if boundaries else 0)
            before = rows.get("before")
            row = before if change_type == DELETE else rows.get("after")
            if change_type is None or columns is None or not rows.keys() <= _ROWS:
                yield event
                continue
            if type(row) is not dict or tuple(row) != layout.names:
                yield event
                continue
            old = before if change_type == UPDATE_POSTIMAGE else None
            if old is not None and type(old) is not dict:
                yield event
                continue
            parsed.commit_ts[event] = commit_ts
            if build_ts_wanted:
                parsed.build_ts[event] = int(value[layout.numbers[BUILD_TS]])
            parsed.cluster_id[event] = layout.cluster_id
            if not runs or runs[-1][1] is not columns:
                images.continue_run(columns)
            if change_type in unwanted:
                continue
            if old is not None and preimages:
                add_change_type(UPDATE_PREIMAGE)
                add_event(event)
                add_index(0)
                add_row(old)
            add_change_type(change_type)
            add_event(event)
            add_index(0)
            add_row(row)


def _is_object(members: bytes, names: frozenset[str]) -> bool:
    """Return whether bytes are members of an object, up to its end, with these names only."""
    try:
        return bool(orjson.loads(b"{" + members).keys() <= names)
    except orjson.JSONDecodeError:
        return False
