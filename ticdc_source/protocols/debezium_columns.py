"""The fastest path of debezium: the rows of many messages are parsed into Arrow columns at once.

What messages of one table have in common is compared by Arrow too, all messages of a tray at a time: constant
stretches, and numbers as wide as in the message that was parsed whole. The rows of before and after are then read by
one call of `pyarrow.json`, without a Python object a value. It is taken for a tray or not at all: where a message is
not as those before it, a value does not fit, or anything else is unusual, this path declines, and the others read the
tray and report what is wrong. What `pyarrow.json` takes that JSON does not, or tells less well than a parser to dicts,
is looked for (docs/design/0008-fast-paths.md):

* each message is one object: it begins one, which nothing before it can swallow, and there are as many as messages;
* nothing ends the text early: there is no NUL in it;
* texts are UTF-8;
* NaN and Infinity are no numbers, and -0 is 0.

A member that is missing gives NULL, as it does elsewhere; but a column that the row after an update lacks, the other
paths leave out of the row before, too: where that may be, NULLs are counted in the bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache, reduce
from math import isfinite
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ticdc_source.errors import SchemaError
from ticdc_source.events import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE, TableEvents
from ticdc_source.protocols.base import Decoded
from ticdc_source.protocols.debezium_skim import BUILD_TS, COMMIT_TS, DebeziumSkim, Shape
from ticdc_source.protocols.images import Images
from ticdc_source.protocols.plan import Plan, Planned, WireOf
from ticdc_source.protocols.stencils import bytes_of, messages_of, numbers_of
from ticdc_source.repeated import places, repeated

__all__ = ["DebeziumColumns"]

_MOST_PASSED = 64  # trays
_REPLACEMENT = "\ufffd".encode()
_AFTER = ((b"c", INSERT), (b"r", INSERT), (b"u", UPDATE_POSTIMAGE))
_BEFORE = ((b"u", UPDATE_PREIMAGE), (b"d", DELETE))
_ARROW = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


class _Cut(NamedTuple):
    """Messages, cut behind the op."""

    rows: pa.BinaryArray  # before and after, an object a message, all on lines of their own
    ops: bytes  # one byte a message
    commit_ts: pa.Array
    build_ts: pa.Array


class _Chosen(NamedTuple):
    """Which images are wanted, in the order of the events."""

    kinds: pa.Int8Array
    events: pa.Int32Array
    rows: (
        pa.Int32Array | None
    )  # the place of each among all rows after, and all before behind them; None: each at its own


class DebeziumColumns(DebeziumSkim):
    """What was learned of one table's messages; where trays were read in vain, the next ones are left alone."""

    __slots__ = ("_declined", "_options", "_types", "passes")

    def __init__(self) -> None:
        super().__init__()
        self._declined = 0
        self.passes = 0  # trays to leave alone
        self._types: dict[str, set[type]] = {}  # of a column's values in JSON
        self._options: dict[tuple[pa.Field, ...], pj.ParseOptions] = {}

    def observe(self, images: Images) -> None:
        """Remember of what JSON types the values of parsed rows are, those with the last columns."""
        if not images.runs or (start := images.runs[-1][0]) >= len(images.rows):
            return
        rows = images.rows[start:]
        for name in rows[-1]:
            if types := {type(row.get(name)) for row in rows} - {type(None)}:
                numbers = self._types.get(name, set()) | types
                self._types[name] = numbers if numbers <= {int, float} else types

    def decode(self, events: TableEvents, plan: Plan, wire_of: WireOf) -> Decoded | None:
        """Decode a tray; None where it is left to the other paths."""
        if plan.documents is not None or len(events) < plan.columnar_from:
            return None
        if self.passes:
            self.passes -= 1
            return None
        shape = next((shape for shape in self._shapes.values() if shape.fits(events.payloads[0])), None)
        if shape is None:
            return None
        decoded = self._read(shape, events, plan, wire_of)
        if decoded is None:  # and in vain: the next ones are not likely to be others
            self._declined += 1
            self.passes = min(_MOST_PASSED, 1 << self._declined)
        else:
            self._declined = 0
        return decoded

    def _read(self, shape: Shape, events: TableEvents, plan: Plan, wire_of: WireOf) -> Decoded | None:
        cut = _cut(shape, events.payloads)
        if cut is None:
            return None
        boundaries, stamps = plan.boundaries(), pc.min_max(cut.commit_ts).as_py()
        begun = {bisect_left(boundaries, stamp) for stamp in stamps.values()}
        columns = shape.columns.get(begun.pop())
        if begun or columns is None:
            return None
        try:
            planned = plan.for_columns(columns, wire_of)
        except SchemaError:
            return None  # to be reported with its address
        if plan.strays(columns):
            return None
        images = self._parse(shape, cut, planned)
        if images is None:
            return None
        before, after = images
        chosen = _chosen(cut.ops, before, after, plan)
        if chosen is None or not _are_written(cut, before, after):
            return None
        arrays = _cast(planned, before, after, chosen)
        if arrays is None:
            return None
        count = len(chosen.kinds)
        if plan.rescued is not None:
            arrays[plan.rescued] = repeated(None, pa.string(), count)
        cluster_id = repeated(shape.cluster_id, pa.string(), len(events))
        indexes = repeated(0, pa.int32(), count)
        return Decoded(chosen.kinds, chosen.events, indexes, arrays, cut.commit_ts, cut.build_ts, cluster_id)

    def _parse(self, shape: Shape, cut: _Cut, planned: Sequence[Planned]) -> tuple[pa.StructArray, ...] | None:
        fields = self._fields(shape.names, planned)
        if fields is None:
            return None
        options = self._options.get(fields)
        if options is None:
            row = pa.struct(fields)
            options = self._options[fields] = pj.ParseOptions(
                explicit_schema=pa.schema([("before", row), ("after", row)]), unexpected_field_behavior="error"
            )
        written = bytes_of(cut.rows)
        if b"\0" in written:
            return None
        try:
            table = pj.read_json(
                pa.py_buffer(written),
                read_options=pj.ReadOptions(use_threads=False, block_size=len(written) + 1),
                parse_options=options,
            )
            if not written.isascii():
                table.validate(full=True)  # that texts are UTF-8
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(cut.ops):
            return None
        before, after = (table.column(place).combine_chunks() for place in (0, 1))
        doubles = [place for place, field in enumerate(fields) if field.type == pa.float64()]
        if not all(_are_json(image.field(place)) for image in (before, after) for place in doubles):
            return None
        return before, after

    def _fields(self, names: Sequence[str], planned: Sequence[Planned]) -> tuple[pa.Field, ...] | None:
        """Say as what each column's JSON is read; None where it has more types than Arrow columns have."""
        if len({name.lower() for name in names}) < len(names):
            return None
        taken = {item.source: item.arrays for item in planned if item.arrays is not None}
        fields = []
        for name in names:
            types = self._types.get(name, set())
            if not types or taken.get(name) in map(_ARROW.get, types):
                arrow = taken.get(name, pa.null())
            elif types <= {int, float}:
                arrow = pa.float64() if float in types or taken.get(name) == pa.float64() else pa.int64()
            else:
                arrow = _ARROW.get(*types) if len(types) == 1 else None
            if arrow is None:
                return None
            fields.append(pa.field(name, arrow))
        return tuple(fields)


def _cut(shape: Shape, payloads: Sequence[bytes]) -> _Cut | None:
    """Compare what messages have in common; None where one has it not."""
    messages, stencil = messages_of(payloads), shape.stencil
    if messages is None or not stencil.fits(messages) or not pc.all(pc.ends_with(messages, shape.tail)).as_py():
        return None
    try:
        numbers = [
            numbers_of(stencil.gap(messages, gap), place.stop - place.start) for gap, place in enumerate(shape.numbers)
        ]
        rows = pc.binary_slice(messages, stencil.end, -len(shape.tail))
    except pa.ArrowInvalid:  # a number has more than 63 bits, or nothing is between op and tail
        return None
    commit_ts, build_ts = numbers[COMMIT_TS], numbers[BUILD_TS]
    ops = bytes_of(stencil.gap(messages, len(numbers)))
    if any(number is None for number in numbers) or ops.translate(None, b"cdru"):
        return None
    return _Cut(pc.binary_replace_slice(rows, 0, 0, b"\n{"), ops, commit_ts, build_ts)


def _are_json(doubles: pa.Array) -> bool:
    """Tell whether doubles are what a JSON parser makes of their texts: no NaN, no Infinity, and no -0."""
    if not isfinite(pc.sum(doubles, min_count=0).as_py()):  # or a sum beyond a double's range
        return False
    zero = pc.equal(doubles, 0.0)
    return not zero.true_count or bool(pc.min(pc.divide(1.0, doubles.filter(zero))).as_py() > 0)


def _are_written(cut: _Cut, before: pa.StructArray, after: pa.StructArray) -> bool:
    """Tell whether a column that an update sets to NULL is so indeed, and not a member that is missing."""
    pairs = [(before.field(place), after.field(place)) for place in range(len(before.type))]
    became = [pc.and_(old.is_valid(), new.is_null()) for old, new in pairs if new.null_count > after.null_count]
    if not became:
        return True
    doubtful = pc.and_(reduce(pc.or_, became), _are(cut.ops, b"u"))
    if not doubtful.true_count:
        return True
    nulls = sum(column.filter(doubtful).null_count for pair in pairs for column in pair)
    written = bytes_of(cut.rows.filter(doubtful))
    # An escaped quote is within a text, any other one ends a name: names have no backslash.
    return bool(written.count(b'":null') - written.count(b'\\":null') == nulls)


@lru_cache
def _table(ops: frozenset[tuple[bytes, int]]) -> bytes:
    """Make the table that translates ops to small numbers, others to 0."""
    known = dict(ops)
    return bytes(known.get(bytes([op]), 0) for op in range(256))


def _numbers(ops: bytes, numbers: Iterable[tuple[bytes, int]]) -> pa.Array:
    written = ops.translate(_table(frozenset(numbers)))
    return pa.Array.from_buffers(pa.int8(), len(ops), [None, pa.py_buffer(written)])


def _are(ops: bytes, wanted: bytes) -> pa.Array:
    """Tell of each message whether its op is among those wanted."""
    return _numbers(ops, ((bytes([op]), 1) for op in wanted)).cast(pa.bool_())


def _chosen(ops: bytes, before: pa.StructArray, after: pa.StructArray, plan: Plan) -> _Chosen | None:
    """Say which images are wanted; None where a row is not there."""
    has_before, has_after = before.is_valid(), after.is_valid()
    if not pc.all(pc.if_else(_are(ops, b"d"), has_before, has_after)).as_py():
        return None
    count = len(ops)
    updates = b"u" * ("update" in plan.operations)
    afters = _are(ops, b"cr" * ("insert" in plan.operations) + updates)
    befores = pc.and_(_are(ops, b"d" * ("delete" in plan.operations) + updates * plan.preimages), has_before)
    events = places(count)
    if not befores.true_count:
        rows = None if afters.true_count == count else events.filter(afters)
        kinds = _numbers(ops, _AFTER)
        return _Chosen(kinds, events, None) if rows is None else _Chosen(kinds.filter(afters), rows, rows)
    places_before, places_after = events.filter(befores), events.filter(afters)
    events = pa.concat_arrays([places_before, places_after])
    order = pc.array_sort_indices(events)  # which is stable: the row before comes first
    kinds = pa.concat_arrays([_numbers(ops, _BEFORE).filter(befores), _numbers(ops, _AFTER).filter(afters)])
    rows = pa.concat_arrays([pc.add(places_before, pa.scalar(count, pa.int32())), places_after])
    return _Chosen(kinds.take(order), events.take(order), rows.take(order))


def _cast(
    planned: Sequence[Planned], before: pa.StructArray, after: pa.StructArray, chosen: _Chosen
) -> dict[str, pa.Array] | None:
    """Cast the columns of the chosen images."""
    rows = after
    if chosen.rows is not None:
        rows = (pa.concat_arrays([after, before]) if before.null_count < len(before) else after).take(chosen.rows)
    arrays = {}
    for item in planned:
        if item.run is None or item.source is None:
            arrays[item.field.name] = pa.nulls(len(rows), item.field.arrow)
            continue
        cells = rows.field(item.source)
        as_array = cells.type == item.arrays
        if cells.type == pa.float64() and not as_array:
            return None  # of a cell it counts whether it was 1 or 1.0
        try:
            array = item.run(cells if as_array else cells.to_pylist())
        except Exception:  # noqa: BLE001 (whatever a kernel raises on garbage: the general path says where)
            return None
        # Bytes that became texts may be no UTF-8; texts that are handed back as they were have been checked.
        data = array.buffers()[2] if item.raw is not None and array is not cells else None
        if data is not None and _REPLACEMENT in data.to_pybytes():
            return None  # it may stand for what is none, which is counted
        arrays[item.field.name] = array
    return arrays
