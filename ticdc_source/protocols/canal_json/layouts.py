"""What canal-json messages of one table have in common, learned of messages that were parsed.

More than half of a message repeats the message before: names, `sqlType`, `mysqlType`. TiCDC writes the members in one
order (pingcap/ticdc pkg/sink/codec/canal/canal_json_encoder.go), except those of `mysqlType`, which come from a hash
map and so in another order in every message. Two messages have the same layout up to `"old":` if

* the bytes up to `"type":` are the same,
* one of the three types, two times and the same `sqlType`, byte for byte, follow,
* `mysqlType` has the same members, in whatever order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.protocols.byte_template import ByteTemplate
from ticdc_source.schema.model import Column

__all__ = ["TIME_DIGITS", "MessageLayout", "MessageLayouts"]

# From the start to the type. The type and two times follow; these have 13 digits until the year 2286, and numbers in
# JSON do not begin with 0.
_HEAD = (
    rb'(\{"id":(?:0|[1-9]\d*),"database":"[^"\\]*","table":"[^"\\]*","pkNames":(?:null|\[[^\]]*\]),'
    rb'"isDdl":false,"type":")'
)
_TIMES = rb'(?:INSERT|UPDATE|DELETE)","es":[1-9]\d{12},"ts":[1-9]\d{12},"sql":"","sqlType":\{'
_MESSAGE = re.compile(_HEAD + _TIMES + rb'([^{}]*)\},"mysqlType":\{([^{}]*)\},"old":')
_MEMBER = re.compile(rb'"[^"\\,]+":"[^"\\,]*"')  # such members, joined by commas, are JSON in any order

TIME_DIGITS = 13
# From the head to the members of `sqlType`, with gaps for the type, `es` and `ts`.
_TO_CODES: tuple[bytes | int, ...] = (6, b'","es":', TIME_DIGITS, b',"ts":', TIME_DIGITS, b',"sql":"","sqlType":{')
_TYPES, _OLD = b'},"mysqlType":{', b'},"old":'
_REST = b'"old":'
_MEMBERS = frozenset({"old", "data", "_tidb"})
_EXTENSION = {"commitTs": 0}  # what `_tidb` may have; other members mark large messages
_MOST_LAYOUTS = 256
_MOST_ORDERS = 16
_MOST_BITS = 58  # the sum of 58 numbers below 1 << 58 is below 1 << 64, where sums would wrap around
_BITS = pa.array([1 << bit for bit in range(_MOST_BITS)], pa.int64())
_SMALL_MAP = 8  # members: in a map of Go with no more, only the first member is random
_MOST_FAILED = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLayout:
    """The layout of messages with one `sqlType`.

    Attributes:
        members: the members of `mysqlType`.
        orders: the orders of these members that were seen, if there are few.
        names: the names of the row's columns.
        columns: the columns by version, which is the number of the plan's boundaries before the row.
        template: from the members of `sqlType` to `"old":`; its gap is `mysqlType`.
    """

    members: frozenset[bytes]
    orders: set[bytes]
    names: tuple[str, ...]
    columns: dict[int, tuple[Column, ...]]
    template: ByteTemplate

    def have_types(self, types: pa.BinaryArray) -> bool:
        """Return whether each message has all members of `mysqlType` once, in any order.

        Each member stands for one bit. As many bits as there are members have the sum of all bits only if each of them
        is there once. The number of members is compared for each message, so that one with a member more cannot make
        up for the next one with a member less.

        Args:
            types: the bytes of `mysqlType` of each message, as long as all members together.
        """
        if self.orders:
            known = pc.is_in(types, value_set=pa.array(self.orders, pa.binary()))
            if known.true_count == len(types):
                return True
            types = types.filter(pc.invert(known))
        count = len(self.members)
        if count > _MOST_BITS:
            return all(set(members.split(b",")) == self.members for members in types.to_pylist())
        parts = pc.split_pattern(types, ",")
        if set(pc.list_value_length(parts).unique().to_pylist()) != {count}:
            return False
        indices = pc.index_in(parts.values, value_set=pa.array(self.members, pa.binary()))
        if indices.null_count:
            return False
        sums = pc.cumulative_sum(_BITS.take(indices))
        ends = sums.take(pa.array(range(count - 1, len(sums), count), pa.int32()))
        whole = (1 << count) - 1
        if ends[0].as_py() != whole or not pc.all(pc.equal(pc.pairwise_diff(ends)[1:], whole), min_count=0).as_py():
            return False
        if count <= _SMALL_MAP:
            self.orders.update(types[: _MOST_ORDERS - len(self.orders)].to_pylist())
        return True


class MessageLayouts:
    """The layouts that were learned of one table's messages.

    Attributes:
        start: the template from the start to the members of `sqlType`, with gaps for the type, `es` and `ts`. None
            until a layout is learned.
        layouts: the layouts by `sqlType`, those seen last at the end.
    """

    __slots__ = ("_failed", "_head", "layouts", "start")

    def __init__(self) -> None:
        self._head = b""
        self._failed = 0  # successive messages without a layout, as TiCDC does not write them
        self.start: ByteTemplate | None = None
        self.layouts: dict[bytes, MessageLayout] = {}

    def learn(self, payload: bytes, row: Iterable[str], version: int, columns: tuple[Column, ...]) -> None:
        """Learn the layout of a message that was parsed, if TiCDC writes such messages.

        Args:
            payload: the message.
            row: the names of its row's columns, such as the parsed row.
            version: the number of the plan's boundaries before the row.
            columns: the columns.
        """
        if self._failed >= _MOST_FAILED or self._knows(payload, version, columns):
            return
        self._failed += 1
        found = _MESSAGE.match(payload)
        if found is None:
            return
        head, codes, types = found.groups()
        members = types.split(b",")
        try:
            rest = orjson.loads(b"{" + payload[found.end() - len(_REST) :])
        except orjson.JSONDecodeError:
            return
        extension = rest.get("_tidb") or _EXTENSION
        expected = rest.keys() <= _MEMBERS and type(extension) is dict and extension.keys() == _EXTENSION.keys()
        if not expected or not all(map(_MEMBER.fullmatch, members)):
            return  # members that repeat others, or ones that TiCDC does not write
        if head != self._head or self.start is None:
            self._head, self.start = head, ByteTemplate(head, *_TO_CODES)
            self.layouts.clear()
        layout = self.layouts.get(codes)
        if layout is None or layout.members != set(members) or layout.names != tuple(row):
            if len(self.layouts) >= _MOST_LAYOUTS:
                return  # too many unsigned columns whose `sqlType` depends on the value
            template = ByteTemplate(codes + _TYPES, len(types), _OLD, start=self.start.end)
            layout = self.layouts[codes] = MessageLayout(
                members=frozenset(members), orders=set(), names=tuple(row), columns={}, template=template
            )
        layout.columns[version] = columns
        self._failed = 0

    def derived(self, messages: Sequence[bytes]) -> list[bytes]:
        """Derive layouts for messages whose `sqlType` is new but made of parts that were seen.

        What a column is depends on its own `mysqlType` and `sqlType` only. Layouts with the same columns differ in the
        codes of unsigned columns, which depend on the values (docs/wire.md, item 19). Any combination of them can come.

        Returns:
            The `sqlType` of each message that has a layout now.
        """
        if self.start is None or not self.layouts:
            return []
        last = next(reversed(self.layouts.values()))
        alike = [
            codes.split(b",")
            for codes, layout in self.layouts.items()
            if (layout.members, layout.names, layout.columns) == (last.members, last.names, last.columns)
        ]
        seen = [set(parts) for parts in zip(*alike, strict=True)] if len({*map(len, alike)}) == 1 else []
        begin, found = self.start.end, []
        length = sum(map(len, last.members)) + len(last.members) - 1
        for codes in {message[begin : message.find(_TYPES, begin)] for message in messages}:
            parts = codes.split(b",")
            if codes not in self.layouts and len(parts) == len(seen) and len(self.layouts) < _MOST_LAYOUTS:
                if not all(part in parts_seen for part, parts_seen in zip(parts, seen, strict=True)):
                    continue
                template = ByteTemplate(codes + _TYPES, length, _OLD, start=begin)
                self.layouts[codes] = replace(last, columns=dict(last.columns), template=template)
            if codes in self.layouts:
                found.append(codes)
        return found

    def _knows(self, payload: bytes, version: int, columns: tuple[Column, ...]) -> bool:
        if self.start is None or not payload.startswith(self._head):
            return False
        layout = self.layouts.get(payload[self.start.end : payload.find(_TYPES, self.start.end)])
        return layout is not None and layout.columns.get(version) == columns
