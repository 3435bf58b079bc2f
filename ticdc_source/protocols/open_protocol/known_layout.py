"""The fast path of open-protocol: only the values are parsed, those of one column of many events at once.

Of an event all but the values is the same for all events of a table's version and of one operation (pingcap/ticdc
pkg/sink/codec/open/codec.go writes the columns in table order):

    {"u":{"id":{"t":8,"h":true,"f":11,"v": 7 },"name":{"t":15,"f":64,"v": "x" }}}

Events are cut at `"v":`, which no JSON text can hold but as a member's name; those with the same beginning and as many
parts make a group. In a group the parts of one place are joined by newlines and cut again behind what must follow
their value: as many values as events have come out if, and only if, it does follow in each. Then one parse gives all
values of the place. Whatever differs (events with old values of some columns only, names with escapes, large messages)
is left to the general path, which also reports what is broken, and so is a whole group that holds such an event: an
event that is read here gives what it would give there (tests/pipeline/test_equivalence.py).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from ticdc_source.events import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE, TableEvents
from ticdc_source.protocols.images import Parsed
from ticdc_source.protocols.plan import Plan
from ticdc_source.schema.model import Column

__all__ = ["OpenKnownLayout", "Signature"]

# Of each column: name, type code, flags, whether it is part of the handle key.
Signature = tuple[tuple[str, int, int | None, bool | None], ...]

_CUT = b'"v":'
_PLAIN_NAME = re.compile(r'[^\x00-\x1f"\\<>&\u2028\u2029\ud800-\udfff]+')  # Go escapes these
_OPERATIONS = {INSERT: "insert", UPDATE_POSTIMAGE: "update", DELETE: "delete"}
_MOST_LAYOUTS = 64
_Row = dict[str, Any]


class _Layout(NamedTuple):
    """What events of one version of the table and one operation look like."""

    kind: int
    ends: list[bytes]  # what follows each value
    names: tuple[str, ...]
    columns: dict[int, tuple[Column, ...]]  # by how many boundaries of the plan lie before the row


class OpenKnownLayout:
    """What was learned of one table's events."""

    __slots__ = ("_layouts",)

    def __init__(self) -> None:
        self._layouts: dict[tuple[bytes, int], _Layout] = {}  # by what stands before the first value, and parts

    def learn(self, signature: Signature, begun: int, columns: tuple[Column, ...]) -> None:
        """Remember the layouts of events with these columns."""
        if not signature or not all(_is_plain(*parts) for parts in signature):
            return
        heads = [_head(*parts) for parts in signature]
        names = tuple(name for name, *_ in signature)
        between = [b"}," + head for head in heads[1:]]
        for kind, member, ends in (
            (INSERT, b'{"u":{', [*between, b"}}}"]),
            (DELETE, b'{"d":{', [*between, b"}}}"]),
            (UPDATE_POSTIMAGE, b'{"u":{', [*between, b'}},"p":{' + heads[0], *between, b"}}}"]),
        ):
            key = (member + heads[0], len(ends) + 1)
            known = self._layouts.get(key)
            if known is None or known.ends != ends:
                if len(self._layouts) >= _MOST_LAYOUTS:
                    self._layouts.clear()
                known = self._layouts[key] = _Layout(kind, ends, names, {})
            known.columns[begun] = columns

    def unread(self, events: TableEvents, decoded: Parsed, plan: Plan) -> Iterator[int]:
        """Read events onto `decoded`; yield the place of each that is left to the general path, in order."""
        images, boundaries, preimages, count = decoded.images, plan.boundaries(), plan.preimages, len(events)
        add_change_type, add_event, add_index = images.change_types.append, images.events.append, images.indexes.append
        add_row, runs = images.rows.append, images.runs
        unwanted = {kind for kind, name in _OPERATIONS.items() if name not in plan.operations}
        start = 0
        while not self._layouts and start < count:  # the first teaches what the others look like
            yield start
            start += 1
        found = self._rows(events, start)
        for event in range(start, count):
            read = found.get(event)
            begun = bisect_left(boundaries, decoded.commit_ts[event] or 0) if boundaries else 0
            columns = read[0].columns.get(begun) if read else None
            if read is None or columns is None:
                yield event
                continue
            layout, row, old = read
            if not runs or runs[-1][1] is not columns:
                images.continue_run(columns)
            if layout.kind in unwanted:
                continue
            index = events.indexes[event]
            if old is not None and preimages:
                add_change_type(UPDATE_PREIMAGE)
                add_event(event)
                add_index(index)
                add_row(old)
            add_change_type(layout.kind)
            add_event(event)
            add_index(index)
            add_row(row)

    def _rows(self, events: TableEvents, start: int) -> dict[int, tuple[_Layout, _Row, _Row | None]]:
        """Return the rows of the events that have a known layout: of an update the new one and the old."""
        groups: dict[tuple[bytes, int], tuple[list[int], list[list[bytes]]]] = {}
        layouts, headers, payloads = self._layouts, events.event_keys, events.payloads
        for event in range(start, len(events)):
            parts = payloads[event].split(_CUT)
            key = (parts[0], len(parts))
            head = headers[event]
            if key in layouts and "ccl" not in head and "ohk" not in head:
                group = groups.get(key)
                if group is None:
                    group = groups[key] = ([], [])
                group[0].append(event)
                group[1].append(parts)
        found: dict[int, tuple[_Layout, _Row, _Row | None]] = {}
        for key, (places, parted) in groups.items():
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
                found.update((place, (layout, row, None)) for place, row in zip(places, rows, strict=True))
            else:
                olds = [dict(zip(names, row, strict=True)) for row in zip(*cells[width:], strict=True)]
                found.update((place, (layout, row, old)) for place, row, old in zip(places, rows, olds, strict=True))
        return found


def _values(parts: Sequence[bytes], end: bytes) -> list[Any]:
    """Return the values that these parts begin with, if `end` and nothing else follows in each.

    Raises:
        ValueError: it does not, or something is no JSON.
    """
    texts = (b"\n".join(parts) + b"\n").split(end + b"\n")
    if len(texts) != len(parts) + 1 or texts.pop():
        msg = "other events than these were learned"
        raise ValueError(msg)
    # No string goes on over a line's end, and no other value is an array or an object: parts of garbage that make up
    # for each other do not pass.
    joined = b",\n".join(texts)
    values: list[Any] = orjson.loads(b"[" + joined + b"]")
    nested = (b"[" in joined or b"{" in joined) and any(type(value) in (list, dict) for value in values)
    if len(values) != len(parts) or nested or joined.count(b"\n") != len(parts) - 1:
        msg = "something else than one value"
        raise ValueError(msg)
    return values


def _is_plain(name: str, code: Any, flags: Any, handle: Any) -> bool:
    """Tell whether a column is written as `_head` does."""
    return (
        type(code) is int
        and type(flags) is int
        and (handle is None or handle is True)
        and _PLAIN_NAME.fullmatch(name) is not None
    )


def _head(name: str, code: int, flags: int | None, handle: bool | None) -> bytes:  # noqa: FBT001
    mark = '"h":true,' if handle else ""
    return f'"{name}":{{"t":{code},{mark}"f":{flags},'.encode()
