"""What canal-json messages of one table have in common: learned of messages that were parsed whole.

More than half of a message says what the one before said: names, `sqlType`, `mysqlType`. TiCDC writes them in one
order (pingcap/ticdc pkg/sink/codec/canal/canal_json_encoder.go) but for the members of `mysqlType`, which come from a
hash map: another order in every message. So messages are alike up to `"old":` if

* the bytes up to `"type":` are the same,
* then come one of the three types, two times, and the same `sqlType`, byte for byte,
* the members of `mysqlType` are the same, in whatever order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.protocols.byte_template import ByteTemplate
from ticdc_source.schema.model import Column

__all__ = ["TIME_DIGITS", "MessageLayout", "MessageLayouts"]

# From the start to the type; then the type and two times of 13 digits (until the year 2286), which JSON does not let
# begin with 0.
_HEAD = (
    rb'(\{"id":(?:0|[1-9]\d*),"database":"[^"\\]*","table":"[^"\\]*","pkNames":(?:null|\[[^\]]*\]),'
    rb'"isDdl":false,"type":")'
)
_TIMES = rb'(?:INSERT|UPDATE|DELETE)","es":[1-9]\d{12},"ts":[1-9]\d{12},"sql":"","sqlType":\{'
_MESSAGE = re.compile(_HEAD + _TIMES + rb'([^{}]*)\},"mysqlType":\{([^{}]*)\},"old":')
_MEMBER = re.compile(rb'"[^"\\,]+":"[^"\\,]*"')  # joined by commas, such members are JSON in any order

TIME_DIGITS = 13
# What comes between the head and the members of `sqlType`: gaps for the type, `es` and `ts`.
_TO_CODES: tuple[bytes | int, ...] = (6, b'","es":', TIME_DIGITS, b',"ts":', TIME_DIGITS, b',"sql":"","sqlType":{')
_TYPES, _OLD = b'},"mysqlType":{', b'},"old":'
_REST = b'"old":'
_MEMBERS = frozenset({"old", "data", "_tidb"})
_EXTENSION = {"commitTs": 0}  # other members of `_tidb` mark large messages
_MOST_LAYOUTS = 256
_MOST_ORDERS = 16
_MOST_BITS = 58  # so many numbers below 1 << 58 add up to less than 1 << 64, past which sums begin anew
_BITS = pa.array([1 << bit for bit in range(_MOST_BITS)], pa.int64())
_SMALL_MAP = 8  # members up to which Go's maps change only where they begin
_MOST_FAILED = 256


class MessageLayout(NamedTuple):
    """What messages with one `sqlType` look like.

    Attributes:
        members: those of mysqlType.
        orders: in which those have been met, if there are few.
        names: the row's.
        columns: by how many boundaries of the plan lie before the row.
        template: from the members of `sqlType` to `"old":`; the gap is mysqlType.
    """

    members: frozenset[bytes]
    orders: set[bytes]
    names: tuple[str, ...]
    columns: dict[int, tuple[Column, ...]]
    template: ByteTemplate

    def have_types(self, types: pa.BinaryArray) -> bool:
        """Tell whether these are the members of mysqlType, in whatever order, each as long as all members together.

        A member is a bit. So many bits as there are members have the sum of all of them only if each is there once;
        and where each message has so many members, none has one more and the next one less.
        """
        if self.orders:
            known = pc.is_in(types, value_set=pa.array(self.orders, pa.binary()))
            if known.true_count == len(types):
                return True
            types = types.filter(pc.invert(known))
        count = len(self.members)
        if count > _MOST_BITS:
            return all(set(one.split(b",")) == self.members for one in types.to_pylist())
        parts = pc.split_pattern(types, ",")
        if set(pc.list_value_length(parts).unique().to_pylist()) != {count}:
            return False
        places = pc.index_in(parts.values, value_set=pa.array(self.members, pa.binary()))
        if places.null_count:
            return False
        sums = pc.cumulative_sum(_BITS.take(places))
        ends = sums.take(pa.array(range(count - 1, len(sums), count), pa.int32()))
        whole = (1 << count) - 1
        if ends[0].as_py() != whole or not pc.all(pc.equal(pc.pairwise_diff(ends)[1:], whole), min_count=0).as_py():
            return False
        if count <= _SMALL_MAP:
            self.orders.update(types[: _MOST_ORDERS - len(self.orders)].to_pylist())
        return True


class MessageLayouts:
    """The layouts of one table's messages.

    Attributes:
        start: from the start to the members of `sqlType`; the gaps are the type, `es` and `ts`. None before any message
            was seen.
        layouts: by `sqlType`, those that were met last at the end.
    """

    __slots__ = ("_failed", "_head", "layouts", "start")

    def __init__(self) -> None:
        self._head = b""
        self._failed = 0  # messages in a row that are not as TiCDC writes them
        self.start: ByteTemplate | None = None
        self.layouts: dict[bytes, MessageLayout] = {}

    def learn(self, payload: bytes, row: Any, begun: int, columns: tuple[Column, ...]) -> None:
        """Remember the layout of a message that was parsed whole, if it is one that TiCDC writes.

        Args:
            payload: the message.
            row: its row, parsed.
            begun: how many boundaries of the plan lie before it.
            columns: its columns.
        """
        if self._failed >= _MOST_FAILED or self._knows(payload, begun, columns):
            return
        self._failed += 1
        seen = _MESSAGE.match(payload)
        if seen is None:
            return
        head, codes, types = seen.groups()
        members = types.split(b",")
        try:
            rest = orjson.loads(b"{" + payload[seen.end() - len(_REST) :])
        except orjson.JSONDecodeError:
            return
        extension = rest.get("_tidb") or _EXTENSION
        known = rest.keys() <= _MEMBERS and type(extension) is dict and extension.keys() == _EXTENSION.keys()
        if not known or not all(map(_MEMBER.fullmatch, members)):
            return  # what was parsed is not, or not only, what stands before `"old":`
        if head != self._head or self.start is None:
            self._head, self.start = head, ByteTemplate(head, *_TO_CODES)
            self.layouts.clear()
        layout = self.layouts.get(codes)
        if layout is None or layout.members != set(members) or layout.names != tuple(row):
            if len(self.layouts) >= _MOST_LAYOUTS:
                return  # so many unsigned columns whose sqlType goes by their value are not worth it
            template = ByteTemplate(codes + _TYPES, len(types), _OLD, start=self.start.end)
            layout = self.layouts[codes] = MessageLayout(frozenset(members), set(), tuple(row), {}, template)
        layout.columns[begun] = columns
        self._failed = 0

    def derived(self, messages: Sequence[bytes]) -> list[bytes]:
        """Make layouts for messages whose `sqlType` was not met, but each part of it was.

        A column's own mysqlType and sqlType say what it is. Layouts with the same columns differ only in the codes of
        unsigned columns, which wide values change; any combination of these is fine.

        Returns:
            the `sqlType` of those messages that a layout is there for now.
        """
        if self.start is None or not self.layouts:
            return []
        like = next(reversed(self.layouts.values()))
        alike = [
            codes.split(b",")
            for codes, layout in self.layouts.items()
            if (layout.members, layout.names, layout.columns) == (like.members, like.names, like.columns)
        ]
        known = [set(parts) for parts in zip(*alike, strict=True)] if len({*map(len, alike)}) == 1 else []
        begin, found = self.start.end, []
        length = sum(map(len, like.members)) + len(like.members) - 1
        for codes in {message[begin : message.find(_TYPES, begin)] for message in messages}:
            parts = codes.split(b",")
            if codes not in self.layouts and len(parts) == len(known) and len(self.layouts) < _MOST_LAYOUTS:
                if not all(part in there for part, there in zip(parts, known, strict=True)):
                    continue
                template = ByteTemplate(codes + _TYPES, length, _OLD, start=begin)
                self.layouts[codes] = like._replace(columns=dict(like.columns), template=template)
            if codes in self.layouts:
                found.append(codes)
        return found

    def _knows(self, payload: bytes, begun: int, columns: tuple[Column, ...]) -> bool:
        if self.start is None or not payload.startswith(self._head):
            return False
        layout = self.layouts.get(payload[self.start.end : payload.find(_TYPES, self.start.end)])
        return layout is not None and layout.columns.get(begun) == columns
