"""The columnar path of debezium: Arrow reads the rows of many messages at once.

Arrow compares what messages of one table have in common, for all messages at a time: constant bytes, and numbers as
wide as in the message that was parsed. Behind the op, one row or two are left. Each is put on a line of its own, and
one call of `pyarrow.json` reads them into columns, without a Python object for each value.

This path reads all events of a table in a chunk, or none. It declines if a message differs from the others, if a value
does not fit, or if anything else is unusual. The general path then reads the events and reports what is wrong.
`pyarrow.json` accepts more than JSON, so this is checked (docs/design/0008-fast-paths.md):

* Each row is one object. It begins on a line of its own, where nothing continues that began before: no text has a raw
  line break, and no row has an object in it. The number of objects equals the number of rows.
* No NUL ends the text early.
* Texts are UTF-8.
* NaN and Infinity are not numbers, and -0 is 0.

A missing member gives NULL, as it does on the other paths. They also leave a column out of the old row of an update if
the new row lacks it. NULLs that may come from that are counted in the bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import isfinite

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ticdc_source.errors import SchemaError
from ticdc_source.events import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE, TableEvents, repeated
from ticdc_source.protocols.base import Decoded, LearnedTable
from ticdc_source.protocols.byte_template import are_numbers, bytes_of, messages_of
from ticdc_source.protocols.columnar import LINE, LINES, RowImages, cast_columns, on_two_lines, row_images
from ticdc_source.protocols.debezium.known_layout import BUILD_TS, COMMIT_TS, DebeziumKnownLayout, MessageLayout
from ticdc_source.protocols.images import Images
from ticdc_source.protocols.plan import PlannedColumn, WireOf

__all__ = ["DebeziumColumns"]

# The bytes from the op to the only row, as TiCDC writes them. All have the same length.
_ONE_ROW = pa.array(
    [b'c","before":null,"after":{', b'r","before":null,"after":{', b'd","after":null,"before":{'], pa.binary()
)
_CHANGE_TYPES = pa.array([INSERT, INSERT, DELETE], pa.int8())  # of each of these
_POSTIMAGE = pa.scalar(UPDATE_POSTIMAGE, pa.int8())
_TO_ROW = len(_ONE_ROW[0].as_py())
_UPDATE = b"u"
# The bytes around the rows of an update: behind the op, and between the rows. The old row may be missing (docs/wire.md,
# item 27).
_OLD, _NEW, _BETWEEN = b'"before":{', b'"after":{', b'},"after":{'
_END = b"}"  # the end of `payload`

_MOST_DIGITS = 18  # of a number that surely has 63 bits
_MOST_PASSES = 64  # of a table's events
_ARROW = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}  # types of JSON values


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """What is left of messages when all that they have in common is compared and cut away.

    Attributes:
        change_types: of each message, the change type of its new row, or of its only row.
        has_old: of each message, whether it has an old row.
        rows: of each message, its rows, each after a line break.
        commit_ts, build_ts: of each message, as in `Decoded`.
    """

    change_types: pa.Int8Array
    has_old: pa.BooleanArray
    rows: pa.BinaryArray
    commit_ts: pa.Int64Array
    build_ts: pa.Int64Array


class DebeziumColumns(DebeziumKnownLayout):
    """What was learned of one table's messages.

    After events that it declined, it lets the next ones pass without trying them: twice as many after each failure.

    Attributes:
        passes: how many times the table's events still pass.
    """

    __slots__ = ("_declined", "_options", "_types", "passes")

    def __init__(self) -> None:
        super().__init__()
        self._declined = 0
        self.passes = 0
        self._types: dict[str, set[type]] = {}  # the types of each column's values in JSON
        self._options: dict[tuple[pa.Field, ...], pj.ParseOptions] = {}

    def observe(self, images: Images) -> None:
        """Learn the types that values have in JSON, from the parsed rows with the last columns."""
        if not images.runs or (start := images.runs[-1][0]) >= len(images.rows):
            return
        rows = images.rows[start:]
        for name in rows[-1]:
            if types := {type(row.get(name)) for row in rows} - {type(None)}:
                numbers = self._types.get(name, set()) | types
                self._types[name] = numbers if numbers <= {int, float} else types

    def decode(self, events: TableEvents, learned: LearnedTable, wire_of: WireOf) -> Decoded | None:
        """Decode a table's events; None if they are left to the other paths."""
        plan = learned.plan
        if plan.documents or len(events) < plan.columnar_from:
            return None
        if self.passes:
            self.passes -= 1
            return None
        layout = next((layout for layout in self._layouts.values() if layout.fits(events.payloads[0])), None)
        if layout is None:
            return None
        decoded = self._read(layout, events, learned, wire_of)
        if decoded is None:  # the next events are likely to be declined too
            self._declined += 1
            self.passes = min(_MOST_PASSES, 1 << self._declined)
        else:
            self._declined = 0
        return decoded

    def _read(
        self, layout: MessageLayout, events: TableEvents, learned: LearnedTable, wire_of: WireOf
    ) -> Decoded | None:
        plan = learned.plan
        cut = _cut(layout, events.payloads, build_ts_wanted=plan.build_ts)
        if cut is None:
            return None
        boundaries, ends = plan.boundaries(), pc.min_max(cut.commit_ts).as_py()
        versions = {bisect_left(boundaries, commit_ts) for commit_ts in ends.values()}
        columns = layout.columns.get(versions.pop())
        if versions or columns is None:
            return None
        try:
            planned = learned.planned(columns, wire_of)
        except SchemaError:
            return None  # the general path reports it with its address
        if planned.unknown:
            return None
        images = row_images(cut.change_types, cut.has_old, plan)
        cells = self._parse(layout, cut, planned.columns, len(images.events))
        if cells is None or not _are_written(list(cells.values()), images, cut.rows):
            return None
        arrays = cast_columns(planned.columns, cells, images)
        if arrays is None:
            return None
        change_types, of_event = images.filter(images.change_types), images.filter(images.events)
        if plan.rescued is not None:
            arrays[plan.rescued] = repeated(None, pa.string(), len(change_types))
        cluster_id = repeated(layout.cluster_id, pa.string(), len(events))
        indexes = repeated(0, pa.int32(), len(change_types))
        return Decoded(
            change_types=change_types,
            events=of_event,
            indexes=indexes,
            columns=arrays,
            commit_ts=cut.commit_ts,
            build_ts=cut.build_ts,
            cluster_id=cluster_id,
        )

    def _parse(
        self, layout: MessageLayout, cut: _Cut, planned: Sequence[PlannedColumn], count: int
    ) -> dict[str, pa.Array] | None:
        """Parse the rows; None if one is not an object, or has a value of a type that was not seen before."""
        fields = self._fields(layout.names, planned)
        written = bytes_of(cut.rows)
        if fields is None or b"\0" in written:
            return None
        options = self._options.get(fields)
        if options is None:
            options = pj.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="error")
            self._options[fields] = options
        try:
            read = pj.read_json(
                pa.py_buffer(written),
                read_options=pj.ReadOptions(use_threads=False, block_size=len(written) + 1),
                parse_options=options,
            )
            if not written.isascii():
                read.validate(full=True)  # that texts are UTF-8
        except pa.ArrowInvalid:
            return None
        batches = read.to_batches()
        if read.num_rows != count or len(batches) != 1:
            return None
        columns = dict(zip(layout.names, batches[0].columns, strict=True))
        return columns if all(_are_json(column) for column in columns.values() if column.type == pa.float64()) else None

    def _fields(self, names: Sequence[str], planned: Sequence[PlannedColumn]) -> tuple[pa.Field, ...] | None:
        """Return the fields as which the JSON is read; None if a column has values of more than one type."""
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


def _cut(layout: MessageLayout, payloads: Sequence[bytes], *, build_ts_wanted: bool) -> _Cut | None:
    """Compare what messages have in common, and cut it away; None if a message differs."""
    messages, template, tail = messages_of(payloads), layout.template, _END + layout.tail
    if messages is None or not template.fits(messages) or not pc.all(pc.ends_with(messages, tail)).as_py():
        return None
    op, widths = len(layout.head), [number.stop - number.start for number in layout.numbers]
    try:
        forms = pc.index_in(pc.binary_slice(messages, op, op + _TO_ROW), value_set=_ONE_ROW)
        bodies = pc.binary_slice(messages, template.end, -len(tail))
    except pa.ArrowInvalid:  # nothing is between the op and the tail
        return None
    numbers = [template.gap(messages, gap) for gap in range(len(widths))]
    if max(widths) > _MOST_DIGITS or not all(map(are_numbers, numbers, widths)):
        return None
    commit_ts = numbers[COMMIT_TS].view(pa.string()).cast(pa.int64())
    build_ts = repeated(None, pa.int64(), len(messages))
    if build_ts_wanted:
        build_ts = numbers[BUILD_TS].view(pa.string()).cast(pa.int64())
    rows = pc.binary_replace_slice(bodies, 0, op + _TO_ROW - 1 - template.end, LINE)
    change_types, updates = _CHANGE_TYPES.take(forms), forms.is_null()
    has_old = updates
    if forms.null_count:
        if bytes_of(template.gap(messages, len(numbers)).filter(updates)).translate(None, _UPDATE):
            return None
        change_types = change_types.fill_null(_POSTIMAGE)
        split = _split(bodies.filter(updates))
        if split is None:
            return None
        rows = pc.replace_with_mask(rows, updates, split[0])
        has_old = updates if split[1] else repeated(value=False, arrow=pa.bool_(), count=len(change_types))
    if not pc.all(pc.starts_with(rows, LINES[1:])).as_py():
        return None
    return _Cut(change_types=change_types, has_old=has_old, rows=rows, commit_ts=commit_ts, build_ts=build_ts)


def _split(updates: pa.BinaryArray) -> tuple[pa.BinaryArray, bool] | None:
    """Return the rows of updates, each on a line of its own, and whether the updates have an old row."""
    if pc.all(pc.starts_with(updates, _NEW)).as_py():
        return pc.binary_replace_slice(updates, 0, len(_NEW) - 1, LINE), False
    both = on_two_lines(updates, _OLD, _BETWEEN)
    return None if both is None else (both, True)


def _are_json(doubles: pa.Array) -> bool:
    """Return whether doubles are what a JSON parser makes of numbers: not NaN, not Infinity and not -0."""
    if not isfinite(pc.sum(doubles, min_count=0).as_py()):  # the sum may also be beyond a double's range
        return False
    zero = pc.equal(doubles, 0.0)
    return not zero.true_count or bool(pc.min(pc.divide(1.0, doubles.filter(zero))).as_py() > 0)


def _are_written(columns: Sequence[pa.Array], images: RowImages, rows: pa.BinaryArray) -> bool:
    """Return whether each NULL that an update sets is written as null and is not a missing member."""
    last = len(images.change_types) - 1
    nulls = [column.is_null() for column in columns if column.null_count]
    became = [pc.and_not(null.slice(1), null.slice(0, last)) for null in nulls]
    if not became:
        return True
    olds = pc.equal(images.change_types.slice(0, last), UPDATE_PREIMAGE)  # the new row follows each of them
    olds = pc.indices_nonzero(pc.and_(reduce(pc.or_, became), olds))
    if not len(olds):
        return True
    count = sum(null.slice(start).take(olds).true_count for null in nulls for start in (0, 1))
    written = bytes_of(rows.take(images.events.take(olds)))
    # A quote before a colon ends a name, unless a backslash is before it: names have no backslash, texts may.
    return bool(written.count(b'":null') - written.count(b'\\":null') == count)
