"""The fast path of canal-json: what messages of one table have in common is compared, and not parsed again.

More than half of a message says what the one before said: names, `sqlType`, `mysqlType`. TiCDC writes them in one
order (pingcap/ticdc pkg/sink/codec/canal/canal_json_encoder.go) but for the members of `mysqlType`, which come from a
hash map: another order in every message. So a message is cut at known places, and read from `"old":` on, if

* its bytes up to `"type":` are those of a message that was parsed whole,
* then come one of the three types, two times, and the `sqlType` of such a message, byte for byte,
* the members of `mysqlType` are those of that message, in whatever order,
* what is parsed has the members old, data and _tidb only, one row, the same columns, and no mark of a large message.

Whatever differs is left to the general path, which also reports what is broken: a message that is read here gives
what it would give there (tests/test_equivalence.py).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.events import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE, TableEvents
from ticdc_source.protocols.images import Parsed
from ticdc_source.protocols.plan import Plan
from ticdc_source.protocols.stencils import Stencil
from ticdc_source.schema import Column

__all__ = ["CanalSkim", "Shape"]

# From the start to the type; then the type and two times of 13 digits (until the year 2286), which JSON does not let
# begin with 0.
_HEAD = (
    rb'(\{"id":(?:0|[1-9]\d*),"database":"[^"\\]*","table":"[^"\\]*","pkNames":(?:null|\[[^\]]*\]),'
    rb'"isDdl":false,"type":")'
)
_TIMES = rb'(?:INSERT|UPDATE|DELETE)","es":[1-9]\d{12},"ts":[1-9]\d{12},"sql":"","sqlType":\{'
_MESSAGE = re.compile(_HEAD + _TIMES + rb'([^{}]*)\},"mysqlType":\{"([^{}]*)"\},"old":')
_MEMBER = re.compile(rb'[^"\\]+":"[^"\\]*')  # joined by `","`, such members are JSON in any order

# The same by place: all digits as 0.
_DIGITS = bytes(ord("0") if chr(byte).isdecimal() and byte < 128 else byte for byte in range(256))  # noqa: PLR2004
_ES = len(b'INSERT","es":')
_TS = _ES + 13 + len(b',"ts":')
_KINDS = {
    kind.encode() + b'","es":0000000000000,"ts":0000000000000,"sql":"","sqlType":{': kind
    for kind in ("INSERT", "UPDATE", "DELETE")
}
# What comes between the head and the members of `sqlType`.
_TO_CODES: tuple[bytes | int, ...] = (6, b'","es":', 13, b',"ts":', 13, b',"sql":"","sqlType":{')
_TIMES_END = len(next(iter(_KINDS)))

_TYPES, _OLD, _REST = b'},"mysqlType":{"', b'"},"old":', b'"old":'
_MEMBERS = frozenset({"old", "data", "_tidb"})
_EXTENSION = {"commitTs": 0}  # other members of `_tidb` mark large messages
_MOST_SHAPES = 256
_MOST_ORDERS = 16
_MOST_BITS = 58  # so many numbers below 1 << 58 add up to less than 1 << 64, past which sums begin anew
_BITS = pa.array([1 << bit for bit in range(_MOST_BITS)], pa.int64())
_SMALL_MAP = 8  # members up to which Go's maps change only where they begin
_ZERO, _2_63 = ord("0"), 1 << 63


class Shape(NamedTuple):
    """What messages with one `sqlType` look like.

    Attributes:
        members: those of mysqlType.
        orders: in which those have been met, if there are few.
        length: that of mysqlType, without the outer quotes.
        names: the row's.
        columns: by how many boundaries of the plan lie before the row.
        stencil: from the members of `sqlType` to `"old":`; the gap is mysqlType.
    """

    members: frozenset[bytes]
    orders: set[bytes]
    length: int
    names: tuple[str, ...]
    columns: dict[int, tuple[Column, ...]]
    stencil: Stencil

    def has_types(self, types: bytes) -> bool:
        """Tell whether these are the members of mysqlType, in whatever order."""
        if set(types.split(b'","')) != self.members:
            return False
        self._met(types)
        return True

    def have_types(self, types: pa.BinaryArray) -> bool:
        """Tell the same of many messages at once, each as long as `length` says.

        A member is a bit. So many bits as there are members have the sum of all of them only if each is there once;
        and where each message has so many members, none has one more and the next one less.
        """
        if self.orders:
            known = pc.is_in(types, value_set=pa.array(self.orders, pa.binary()))
            if pc.all(known).as_py():
                return True
            types = types.filter(pc.invert(known))
        count = len(self.members)
        if count > _MOST_BITS:
            return all(map(self.has_types, types.to_pylist()))
        parts = pc.split_pattern(types, '","')
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
            for order in types.slice(0, _MOST_ORDERS).to_pylist():
                self._met(order)
        return True

    def _met(self, types: bytes) -> None:
        if len(self.members) <= _SMALL_MAP and len(self.orders) < _MOST_ORDERS:
            self.orders.add(types)


class CanalSkim:
    """What was learned of one table's messages."""

    __slots__ = ("head", "shapes", "start")

    def __init__(self) -> None:
        self.head: bytes | None = None
        self.start = Stencil()  # from the start to `sqlType`; the gaps are the type, `es` and `ts`
        self.shapes: dict[bytes, Shape] = {}  # by sqlType

    def learn(self, payload: bytes, row: Any, begun: int, columns: tuple[Column, ...]) -> None:
        """Remember the shape of a message that was parsed whole, if it is one that TiCDC writes."""
        if len(self.shapes) >= _MOST_SHAPES and payload.startswith(self.head or b""):
            return  # so many unsigned columns whose sqlType goes by their value are not worth it
        seen = _MESSAGE.match(payload)
        if seen is None:
            return
        head, codes, types = seen.groups()
        members = types.split(b'","')
        try:
            rest = orjson.loads(b"{" + payload[seen.end(3) + len(_OLD) - len(_REST) :])
        except orjson.JSONDecodeError:
            return
        extension = rest.get("_tidb") or _EXTENSION
        known = rest.keys() <= _MEMBERS and type(extension) is dict and extension.keys() == _EXTENSION.keys()
        if not known or not all(map(_MEMBER.fullmatch, members)):
            return  # what was parsed is not, or not only, what stands before `"old":`
        if head != self.head:
            self.head = head
            self.start = Stencil(head, *_TO_CODES)
            self.shapes.clear()
        shape = self.shapes.get(codes)
        if shape is None or shape.members != set(members) or shape.names != tuple(row):
            rest = Stencil(codes + _TYPES, len(types), _OLD, start=self.start.end)
            shape = self.shapes[codes] = Shape(frozenset(members), set(), len(types), tuple(row), {}, rest)
        shape.columns[begun] = columns

    def unread(self, events: TableEvents, decoded: Parsed, plan: Plan) -> Iterator[int]:
        """Read messages onto `decoded`; yield the place of each that is left to the general path, in order."""
        images = decoded.images
        add_kind, add_event, add_index = images.kinds.append, images.events.append, images.indexes.append
        add_row, runs = images.rows.append, images.runs
        commit_ts, build_ts = decoded.commit_ts, decoded.build_ts
        boundaries, operations, preimages = plan.boundaries(), plan.operations, plan.preimages
        inserts, updates, deletes = "insert" in operations, "update" in operations, "delete" in operations
        shapes, stamped, loads = self.shapes, plan.build_ts, orjson.loads
        for event, payload in enumerate(events.payloads):
            head = self.head
            if head is None or not payload.startswith(head):
                yield event
                continue
            begin = len(head)
            start = begin + _TIMES_END
            kind = _KINDS.get(payload[begin:start].translate(_DIGITS))
            end = payload.find(_TYPES, start)
            shape = shapes.get(payload[start:end])
            if kind is None or shape is None or payload[begin + _ES] == _ZERO or payload[begin + _TS] == _ZERO:
                yield event
                continue
            start = end + len(_TYPES)
            end = start + shape.length
            types = payload[start:end]
            if not payload.startswith(_OLD, end) or not (types in shape.orders or shape.has_types(types)):
                yield event
                continue
            try:
                message = loads(b"{" + payload[end + len(_OLD) - len(_REST) :])
                (row,) = message["data"]
                old = message["old"]
                if len(message) == 3:  # noqa: PLR2004 (with the TiDB extension)
                    ((stamp_name, stamp),) = message["_tidb"].items()
                else:
                    stamp_name, stamp = "commitTs", int(payload[begin + _ES : begin + _ES + 13]) << 18
                if old is not None and kind == "UPDATE":
                    (old,) = old
            except (ValueError, KeyError, TypeError, AttributeError):
                yield event
                continue
            known = stamp_name == "commitTs" and type(stamp) is int and 0 <= stamp < _2_63
            if not known or type(row) is not dict or tuple(row) != shape.names or len(message) not in (2, 3):
                yield event
                continue
            columns = shape.columns.get(bisect_left(boundaries, stamp) if boundaries else 0)
            if columns is None or (kind == "UPDATE" and old is not None and type(old) is not dict):
                yield event
                continue
            commit_ts[event] = stamp
            if stamped:
                build_ts[event] = int(payload[begin + _TS : begin + _TS + 13])
            if not runs or runs[-1][1] is not columns:
                images.continue_run(columns)
            if kind == "UPDATE":
                if not updates:
                    continue
                if old is not None and preimages:
                    add_kind(UPDATE_PREIMAGE)
                    add_event(event)
                    add_index(0)
                    # `old` may hold only what changed: the old row is the new one overlaid with it.
                    add_row(old if tuple(old) == shape.names else {**row, **old})
                add_kind(UPDATE_POSTIMAGE)
            elif kind == "INSERT":
                if not inserts:
                    continue
                add_kind(INSERT)
            else:
                if not deletes:
                    continue
                add_kind(DELETE)
            add_event(event)
            add_index(0)
            add_row(row)
