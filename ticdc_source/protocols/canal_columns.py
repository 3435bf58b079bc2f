"""The fastest path of canal-json: a whole tray is read by Arrow, without a Python statement a message.

Messages of one table begin alike but for gaps of fixed width: type, times, and the members of `mysqlType`, which are in
any order. That is compared for all at once (`stencils`). What comes behind, from `"old":` on, are rows of text, which
`pyarrow.json` reads into columns. It is taken for a tray or not at all: where a message is not as those before it, a
value does not fit, or anything else is unusual, this path declines, and the others read the tray and report what is
wrong. What `pyarrow.json` takes that JSON does not, or tells less well than a parser to dicts, is looked for:

* each message is one object, and no two are one: the first member's name is put there, and is no column's;
* a missing member is not a NULL: where there are NULLs, they are counted in the bytes;
* texts are UTF-8.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache, reduce
from itertools import islice
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ticdc_source.errors import SchemaError
from ticdc_source.events import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE, TableEvents
from ticdc_source.protocols.base import Decoded
from ticdc_source.protocols.canal_skim import CanalSkim, Shape
from ticdc_source.protocols.plan import Plan, Planned, WireOf
from ticdc_source.protocols.stencils import bytes_of, messages_of, numbers_of
from ticdc_source.repeated import places, repeated

__all__ = ["CanalColumns"]

_TYPES = pa.array([b"INSERT", b"DELETE", b"UPDATE"], pa.binary())
_IMAGES = pa.array([INSERT, DELETE, UPDATE_POSTIMAGE], pa.int8())  # of those types, the last one
_UPDATE = pa.scalar(2, pa.int32())
_TIME_DIGITS = 13  # of `es` and `ts`

_FIRST = "old image"  # what `old` is called while it is parsed
_BEGIN = b'\n{"' + _FIRST.encode() + b'":'
_MOST_PASSED = 64  # trays
_MOST_TRIED = 16  # shapes for one tray
_REPLACEMENT = "\ufffd".encode()


class _Cut(NamedTuple):
    """Messages, cut at `"old":`."""

    types: pa.Int32Array  # indexes of _TYPES
    es: pa.Int64Array
    ts: pa.Int64Array
    rests: pa.BinaryArray  # what is left to parse
    shapes: list[Shape]  # that were met


class _Parsed(NamedTuple):
    """The rows of a tray, before they are images."""

    rows: pa.StructArray  # one a message, then the old ones
    has_old: pa.BooleanArray
    commit_ts: pa.Int64Array | None  # None without the TiDB extension


class CanalColumns(CanalSkim):
    """What was learned of one table's messages; where trays were read in vain, the next ones are left alone."""

    __slots__ = ("_declined", "_options", "passes")

    def __init__(self) -> None:
        super().__init__()
        self._declined = 0
        self.passes = 0  # trays to leave alone
        self._options: dict[tuple[tuple[str, ...], bool], pj.ParseOptions] = {}

    def decode(self, events: TableEvents, plan: Plan, wire_of: WireOf) -> Decoded | None:
        """Decode a tray; None where it is left to the other paths."""
        if plan.documents is not None or len(events) < plan.columnar_from or self.head is None:
            return None
        if self.passes:
            self.passes -= 1
            return None
        decoded = self._read(events, plan, wire_of)
        if decoded is None:  # and in vain: the next ones are not likely to be others
            self._declined += 1
            self.passes = min(_MOST_PASSED, 1 << self._declined)
        else:
            self._declined = 0
        return decoded

    def _read(self, events: TableEvents, plan: Plan, wire_of: WireOf) -> Decoded | None:
        messages = messages_of(events.payloads)
        cut = None if messages is None else self._cut(messages)
        parsed = None if cut is None else self._parse(cut)
        if cut is None or parsed is None:
            return None
        commit_ts = pc.shift_left(cut.es, 18) if parsed.commit_ts is None else parsed.commit_ts
        boundaries = plan.boundaries()
        begun = {bisect_left(boundaries, ts.as_py()) for ts in pc.min_max(commit_ts).values()} if boundaries else {0}
        versions = {shape.columns.get(number) for shape in cut.shapes for number in begun}
        columns = versions.pop()
        if versions or columns is None:
            return None
        try:
            planned = plan.for_columns(columns, wire_of)
        except SchemaError:
            return None  # to be reported with its address
        if plan.strays(columns):
            return None
        kinds, of, order = _images(cut.types, parsed.has_old, plan)
        arrays = _cast(planned, parsed.rows, order)
        if arrays is None:
            return None
        if plan.rescued is not None:
            arrays[plan.rescued] = pa.nulls(len(kinds), pa.string())
        indexes, build_ts = repeated(0, pa.int32(), len(kinds)), cut.ts
        return Decoded(kinds, of, indexes, arrays, commit_ts, build_ts, pa.nulls(len(events), pa.string()))

    def _cut(self, messages: pa.BinaryArray) -> _Cut | None:
        """Compare what messages have in common; None where one has it not."""
        start = self.start
        if not start.fits(messages):
            return None
        types = pc.index_in(start.gap(messages, 0), value_set=_TYPES)
        es, ts = (numbers_of(start.gap(messages, gap), _TIME_DIGITS) for gap in (1, 2))
        if types.null_count or es is None or ts is None:
            return None
        found = self._rests(messages)
        return None if found is None else _Cut(types, es, ts, *found)

    def _rests(self, messages: pa.BinaryArray) -> tuple[pa.BinaryArray, list[Shape]] | None:
        """Sort messages by their shapes, and replace what is known of each by the beginning of what is left."""
        met: list[Shape] = []
        parts: list[pa.BinaryArray] = []
        places: list[pa.Int64Array] = []
        left = len(messages)
        for codes in list(islice(reversed(self.shapes), _MOST_TRIED)):
            shape = self.shapes[codes]
            fitting = shape.stencil.fitting(messages)
            count = fitting.true_count
            if not count:
                continue
            alike = messages
            if count < len(messages):
                place = pc.indices_nonzero(fitting)
                places.append(place)
                alike = messages.take(place)
            if not shape.have_types(shape.stencil.gap(alike, 0)):
                return None
            self.shapes[codes] = self.shapes.pop(codes)  # to be the first that is tried on the next tray
            met.append(shape)
            parts.append(pc.binary_replace_slice(alike, 0, shape.stencil.end, _BEGIN))
            left -= count
            if not left:
                break
        if left:
            return None
        rests = parts[0]
        if places:
            rests = pa.concat_arrays(parts).take(pc.sort_indices(pa.concat_arrays(places)))
        return rests, met

    def _parse(self, cut: _Cut) -> _Parsed | None:
        names = cut.shapes[0].names
        joined = bytes_of(cut.rests)
        extended = joined.endswith(b"}}")
        if any(shape.names != names for shape in cut.shapes) or b"\0" in joined:
            return None
        options = self._options.get((names, extended))
        if options is None:
            if not _are_plain(names):
                return None
            options = self._options[names, extended] = _parse_options(names, extended=extended)
        try:
            table = pj.read_json(
                pa.BufferReader(joined),
                read_options=pj.ReadOptions(use_threads=False, block_size=len(joined) + 1),
                parse_options=options,
            )
            table.validate(full=True)  # that texts are UTF-8
        except pa.ArrowInvalid:
            return None
        count = len(cut.rests)
        if table.num_rows != count:
            return None
        old, data = (table.column(place).combine_chunks() for place in (0, 1))
        has_old = old.is_valid()
        rows, olds = data.flatten(), old.flatten()
        single = len(rows) == count and not data.null_count and _are_single(data)
        if not single or rows.null_count or olds.null_count or (len(olds) and not _are_single(old)):
            return None
        if len(olds) and pc.any(pc.and_(has_old, pc.not_equal(cut.types, _UPDATE))).as_py():
            return None
        if not _are_written(rows, olds, has_old, cut.rests):
            return None
        commit_ts = None
        if extended:
            commit_ts = pc.struct_field(table.column(2).combine_chunks(), "commitTs")
            if commit_ts.null_count or pc.min(commit_ts).as_py() <= 0:
                return None
        return _Parsed(pa.concat_arrays([rows, olds]) if len(olds) else rows, has_old, commit_ts)


def _are_written(rows: pa.StructArray, olds: pa.StructArray, has_old: pa.BooleanArray, rests: pa.BinaryArray) -> bool:
    """Tell whether all NULLs are written as such, and none is a member that is missing."""
    doubtful, nulls = None, 0
    if columns := [column for column in rows.flatten() if column.null_count]:
        doubtful = _any_null(columns)
        nulls += sum(column.null_count for column in columns)
    if columns := [column for column in olds.flatten() if column.null_count]:
        nulls += sum(column.null_count for column in columns)
        there = pc.indices_nonzero(has_old).filter(_any_null(columns))
        of_old = pc.is_in(pa.array(range(len(rests)), pa.uint64()), value_set=there)
        doubtful = of_old if doubtful is None else pc.or_(doubtful, of_old)
    if doubtful is None:
        return True
    nulls += doubtful.true_count - pc.and_(doubtful, has_old).true_count  # what `old` itself says
    written = bytes_of(rests.filter(doubtful))
    # An escaped quote is within a text, any other one ends a name: names have no backslash.
    return bool(written.count(b'":null') - written.count(b'\\":null') == nulls)


def _any_null(columns: Sequence[pa.Array]) -> pa.BooleanArray:
    return reduce(pc.or_, (column.is_null() for column in columns))


def _are_plain(names: Sequence[str]) -> bool:
    """Tell whether names are written as they are, and differ also without case."""
    text = "".join(names)
    if not text.isprintable() or '"' in text or "\\" in text:
        return False
    return len({name.lower() for name in names}) == len(names) and _FIRST not in names


def _parse_options(names: Sequence[str], *, extended: bool) -> pj.ParseOptions:
    rows = pa.list_(pa.struct([(name, pa.string()) for name in names]))
    fields = [(_FIRST, rows), ("data", rows)]
    if extended:
        fields.append(("_tidb", pa.struct([("commitTs", pa.int64())])))
    return pj.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="error")


def _are_single(lists: pa.ListArray) -> bool:
    """Tell whether each list, where there is one, has one item."""
    shortest, longest = pc.min_max(pc.list_value_length(lists)).values()
    return bool(shortest.as_py() == longest.as_py() == 1)


def _images(
    types: pa.Int32Array, has_old: pa.BooleanArray, plan: Plan
) -> tuple[pa.Int8Array, pa.Int32Array, pa.Int32Array | None]:
    """Say the kind and event of each image, and at which place its row is (None: each at its own)."""
    count = len(types)
    kinds, events, order = _IMAGES.take(types), places(count), None
    if plan.preimages and has_old.true_count:
        # Old rows come after all others; each old image before the new one of its event.
        old_places = pc.add(pc.cumulative_sum(has_old.cast(pa.int32())), pa.scalar(count - 1, pa.int32()))
        both = _in_turns(count)
        there = pa.concat_arrays([has_old, repeated(value=True, arrow=pa.bool_(), count=count)]).take(both)
        turns = both.filter(there)
        kinds = pa.concat_arrays([repeated(UPDATE_PREIMAGE, pa.int8(), count), kinds]).take(turns)
        order = pa.concat_arrays([old_places, events]).take(turns)
        events = pa.concat_arrays([events, events]).take(turns)
    if len(plan.operations) < len(_TYPES):
        wanted = pc.is_in(kinds, value_set=_wanted(plan))
        kinds, events = kinds.filter(wanted), events.filter(wanted)
        order = events if order is None else order.filter(wanted)
    return kinds, events, order


@lru_cache(maxsize=4)
def _in_turns(count: int) -> pa.Int32Array:
    """Return the places of two arrays of this length that lie one behind the other, in turns."""
    return pa.array([place for first in range(count) for place in (first, count + first)], pa.int32())


def _wanted(plan: Plan) -> pa.Int8Array:
    kinds = {"insert": [INSERT], "update": [UPDATE_PREIMAGE, UPDATE_POSTIMAGE], "delete": [DELETE]}
    return pa.array([kind for operation in plan.operations for kind in kinds[operation]], pa.int8())


def _cast(planned: Sequence[Planned], rows: pa.StructArray, order: pa.Array | None) -> dict[str, pa.Array] | None:
    """Cast the columns, then bring their values into the images' order; None where a value does not fit."""
    count = len(rows) if order is None else len(order)
    columns = dict(zip((field.name for field in rows.type), rows.flatten(), strict=True))
    arrays = {}
    for item in planned:
        if item.run is None or item.source is None:
            arrays[item.field.name] = pa.nulls(count, item.field.arrow)
            continue
        texts = columns[item.source]
        try:
            array = item.run(texts if item.arrays else texts.to_pylist())
        except Exception:  # noqa: BLE001 (whatever a kernel raises on garbage: the general path says where)
            return None
        data = array.buffers()[2] if item.raw is not None else None
        if data is not None and _REPLACEMENT in data.to_pybytes():
            return None  # bytes read as text, of which some may be no UTF-8
        arrays[item.field.name] = array if order is None else array.take(order)
    return arrays
