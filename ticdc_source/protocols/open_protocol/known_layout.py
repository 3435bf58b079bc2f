"""The known-layout path of open-protocol: only values are parsed, those of one column of many events at once.

Events of one version of a table and of one operation differ in their values only (pingcap/ticdc
pkg/sink/codec/open/codec.go writes the columns in table order):

    {"u":{"id":{"t":8,"h":true,"f":11,"v": 7 },"name":{"t":15,"f":64,"v": "x" }}}

Events are cut at `"v":`. JSON holds these bytes only where a member has that name. Events with the same beginning and
the same number of parts make a group. The parts of one column in a group are joined by newlines, and cut again at the
bytes that must follow their value. If there are as many values as events then, these bytes do follow in each event,
and one parse reads all values of the column.

Other events are left to the general path, which also reports what is broken: events with the old values of some columns
only, names with escapes, large messages. If one event of a group is broken, the whole group is left. An event that is
read here gives what it gives there (tests/pipeline/test_equivalence.py).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import orjson

from ticdc_source.events import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE, TableEvents
from ticdc_source.protocols.images import Parsed, Row
from ticdc_source.protocols.open_protocol.release_bugs import Signature
from ticdc_source.protocols.plan import Plan
from ticdc_source.schema.model import Column

__all__ = ["OpenKnownLayout"]

_CUT = b'"v":'
_PLAIN_NAME = re.compile(r'[^\x00-\x1f"\\<>&\u2028\u2029\ud800-\udfff]+')  # without what Go escapes
_OPERATIONS = {INSERT: "insert", UPDATE_POSTIMAGE: "update", DELETE: "delete"}
_MOST_LAYOUTS = 64


class _Layout(NamedTuple):
    """The layout of events of one version of the table and one operation.

    Attributes:
        change_type: the change type of the only row, or of the new row.
        ends: the bytes that follow each value.
        names: the names of the columns.
        columns: the columns by version, which is the number of the plan's boundaries before the row.
    """

    change_type: int
    ends: list[bytes]
    names: tuple[str, ...]
    columns: dict[int, tuple[Column, ...]]


class OpenKnownLayout:
    """The layouts that were learned of one table's events."""

    __slots__ = ("_layouts",)

    def __init__(self) -> None:
        self._layouts: dict[tuple[bytes, int], _Layout] = {}  # by the first part and the number of parts

    def learn(self, signature: Signature, version: int, columns: tuple[Column, ...]) -> None:
        """Learn the layouts of events with these columns: an insert, a delete and an update.

        Args:
            signature: the columns as a message has them.
            version: the number of the plan's boundaries before the row.
            columns: the same columns.
        """
        if not signature or not all(_is_plain(*parts) for parts in signature):
            return
        heads = [_head(*parts) for parts in signature]
        names = tuple(name for name, *_ in signature)
        between = [b"}," + head for head in heads[1:]]
        for change_type, member, ends in (
            (INSERT, b'{"u":{', [*between, b"}}}"]),
            (DELETE, b'{"d":{', [*between, b"}}}"]),
            (UPDATE_POSTIMAGE, b'{"u":{', [*between, b'}},"p":{' + heads[0], *between, b"}}}"]),
        ):
            key = (member + heads[0], len(ends) + 1)
            layout = self._layouts.get(key)
            if layout is None or layout.ends != ends:
                if len(self._layouts) >= _MOST_LAYOUTS:
                    self._layouts.clear()
                layout = self._layouts[key] = _Layout(change_type, ends, names, {})
            layout.columns[version] = columns

    def unread(self, events: TableEvents, parsed: Parsed, plan: Plan) -> Iterator[int]:
        """Read events, in order; yield the index of each event that is left to the general path.

        Args:
            events: the events.
            parsed: gets what is read. The caller adds each event that is yielded before it asks for the next one.
            plan: what is wanted.
        """
        images, boundaries, preimages, count = parsed.images, plan.boundaries(), plan.preimages, len(events)
        add_change_type, add_event, add_index = images.change_types.append, images.events.append, images.indexes.append
        add_row, runs = images.rows.append, images.runs
        unwanted = {change_type for change_type, name in _OPERATIONS.items() if name not in plan.operations}
        start = 0
        while not self._layouts and start < count:  # the caller learns the layout of the first event
            yield start
            start += 1
        found = self._rows(events, start)
        for event in range(start, count):
            read = found.get(event)
            version = bisect_left(boundaries, parsed.commit_ts[event] or 0) if boundaries else 0
            columns = read[0].columns.get(version) if read else None
            if read is None or columns is None:
                yield event
                continue
            layout, row, old = read
            if not runs or runs[-1][1] is not columns:
                images.continue_run(columns)
            if layout.change_type in unwanted:
                continue
            index = events.indexes[event]
            if old is not None and preimages:
                add_change_type(UPDATE_PREIMAGE)
                add_event(event)
                add_index(index)
                add_row(old)
            add_change_type(layout.change_type)
            add_event(event)
            add_index(index)
            add_row(row)

    def _rows(self, events: TableEvents, start: int) -> dict[int, tuple[_Layout, Row, Row | None]]:
        """Return layout, new row and old row of the events with a known layout, by event; not all have an old row."""
        groups: dict[tuple[bytes, int], tuple[list[int], list[list[bytes]]]] = {}
        layouts, key_frames, payloads = self._layouts, events.event_keys, events.payloads
        for event in range(start, len(events)):
            parts = payloads[event].split(_CUT)
            key = (parts[0], len(parts))
            key_frame = key_frames[event]
            if key in layouts and "ccl" not in key_frame and "ohk" not in key_frame:
                group = groups.get(key)
                if group is None:
                    group = groups[key] = ([], [])
                group[0].append(event)
                group[1].append(parts)
        found: dict[int, tuple[_Layout, Row, Row | None]] = {}
        for key, (indices, parted) in groups.items():
            layout = layouts[key]
            names, width = layout.names, len(layout.names)
            try:
                cells = [
                    _values(part, end)
                    for part, end in zip(list(zip(*parted, strict=True))[1:], layout.ends, strict=True)
                ]
            except ValueError:
                continue
            rows = [dict(zip(names, row, strict=True)) for row in zip(*cells[:width], strict=True)]
            if len(cells) == width:
                found.update((event, (layout, row, None)) for event, row in zip(indices, rows, strict=True))
            else:
                olds = [dict(zip(names, row, strict=True)) for row in zip(*cells[width:], strict=True)]
                found.update((event, (layout, row, old)) for event, row, old in zip(indices, rows, olds, strict=True))
        return found


def _values(parts: Sequence[bytes], end: bytes) -> list[object]:
    """Return the values that parts begin with. In each part `end` follows the value, and nothing else.

    Raises:
        ValueError: something else follows, or a value is not JSON.
    """
    texts = (b"\n".join(parts) + b"\n").split(end + b"\n")
    if len(texts) != len(parts) + 1 or texts.pop():
        msg = "something else follows a value"
        raise ValueError(msg)
    # A string cannot span lines, and no value is an array or an object: broken parts cannot make up for each other.
    joined = b",\n".join(texts)
    values: list[object] = orjson.loads(b"[" + joined + b"]")
    nested = (b"[" in joined or b"{" in joined) and any(type(value) in (list, dict) for value in values)
    if len(values) != len(parts) or nested or joined.count(b"\n") != len(parts) - 1:
        msg = "something else than one value"
        raise ValueError(msg)
    return values


def _is_plain(name: str, code: object, flags: object, handle: object) -> bool:
    """Return whether a message has a column exactly as `_head` writes it."""
    return (
        type(code) is int
        and type(flags) is int
        and (handle is None or handle is True)
        and _PLAIN_NAME.fullmatch(name) is not None
    )


def _head(name: str, code: int, flags: int | None, handle: bool | None) -> bytes:  # noqa: FBT001
    """Return the bytes of a column before its `"v":`."""
    mark = '"h":true,' if handle else ""
    return f'"{name}":{{"t":{code},{mark}"f":{flags},'.encode()
