"""The columnar path of canal-json: Arrow reads a table's events, without a Python statement per message.

Messages of one table begin alike but for gaps of fixed width: type, times, and the members of `mysqlType`, which are in
any order. They end alike too. That is compared for all at once (`templates`); what lies between are one row or two,
which `pyarrow.json` reads into columns. This path takes all events of a table in a chunk or none:
where a message differs from those before it, a value does not fit, or anything else is unusual, it declines, and the
general path reads the events and reports what is wrong. What `pyarrow.json` accepts and JSON does not is checked:

* no message has more rows than it should and another one less: each row is at least one object, as it begins on a line
  of its own, where nothing goes on that began before (a raw line break is in no text, and an object in no row);
* a missing member is not a NULL: where there are NULLs, they are counted in the bytes;
* texts are UTF-8.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import reduce
from itertools import islice
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ticdc_source.errors import SchemaError
from ticdc_source.events import DELETE, INSERT, UPDATE_POSTIMAGE, TableEvents, repeated, row_indices
from ticdc_source.protocols.base import Decoded, LearnedTable
from ticdc_source.protocols.byte_template import ByteTemplate, bytes_of, messages_of, numbers_of
from ticdc_source.protocols.canal_json.layouts import TIME_DIGITS, MessageLayout, MessageLayouts
from ticdc_source.protocols.columnar import LINE, RowImages, cast_columns, on_two_lines, row_images
from ticdc_source.protocols.plan import WireOf

__all__ = ["CanalColumns"]

_TYPES = pa.array([b"INSERT", b"DELETE", b"UPDATE"], pa.binary())
_IMAGES = pa.array([INSERT, DELETE, UPDATE_POSTIMAGE], pa.int8())  # of those types, the last one
_UPDATE = pa.scalar(2, pa.int32())
_TSO_DIGITS = 18  # of a commit-ts from 1982 to 2090

# What stands around the rows: behind `"old":`, between an old row and the new one, behind that.
_NO_OLD, _OLD, _BETWEEN = b'null,"data":[{', b"[{", b'}],"data":[{'
_PLAIN_END, _END, _END_OF_TSO = b"}]}", b'}],"_tidb":{"commitTs":', b"}}"

_MOST_PASSED = 64  # table events
_MOST_TRIED = 64  # layouts for one table events, of which all but the first are looked for among the few that are left
_MOST_DERIVED = 1024  # messages of a table's events with a `sqlType` that was not met before


class _Cut(NamedTuple):
    """Messages, of which the rows are left."""

    types: pa.Int32Array  # indexes of _TYPES
    commit_ts: pa.Int64Array
    build_ts: pa.Int64Array
    has_old: pa.BooleanArray
    rows: pa.BinaryArray  # those of each message, each row behind a line break
    layouts: list[MessageLayout]  # that were met


class _Part(NamedTuple):
    """Messages of a table's events with one `sqlType`, and their places in it."""

    codes: bytes
    places: pa.Int32Array
    messages: pa.BinaryArray

    def filter(self, codes: bytes, mask: pa.BooleanArray) -> _Part:
        """Return those of which the mask says so."""
        if mask.true_count == len(mask):
            return self._replace(codes=codes)
        return _Part(codes, self.places.filter(mask), self.messages.filter(mask))


class CanalColumns(MessageLayouts):
    """What was learned of one table's messages; where table events were read in vain, the next ones are left alone."""

    __slots__ = ("_declined", "_options", "passes")

    def __init__(self) -> None:
        super().__init__()
        self._declined = 0
        self.passes = 0  # table events to leave alone
        self._options: dict[tuple[str, ...], pj.ParseOptions] = {}

    def decode(self, events: TableEvents, table: LearnedTable, wire_of: WireOf) -> Decoded | None:
        """Decode a table's events; None where it is left to the other paths."""
        plan = table.plan
        if plan.documents or len(events) < plan.columnar_from or self.start is None:
            return None
        if self.passes:
            self.passes -= 1
            return None
        try:
            decoded = self._read(events, table, wire_of, self.start)
        except pa.ArrowInvalid:  # what cannot be cut, as it is shorter than the others, or is not JSON
            decoded = None
        if decoded is None:  # and in vain: the next ones are not likely to be others
            self._declined += 1
            self.passes = min(_MOST_PASSED, 1 << self._declined)
        else:
            self._declined = 0
        return decoded

    def _read(self, events: TableEvents, table: LearnedTable, wire_of: WireOf, start: ByteTemplate) -> Decoded | None:
        plan, messages = table.plan, messages_of(events.payloads)
        cut = None if messages is None else self._cut(messages, start)
        if cut is None:
            return None
        boundaries = plan.boundaries()
        ends = pc.min_max(cut.commit_ts).values() if boundaries else []
        begun = {bisect_left(boundaries, ts.as_py()) for ts in ends} or {0}
        versions = {layout.columns.get(number) for layout in cut.layouts for number in begun}
        columns = versions.pop()
        if versions or columns is None:
            return None
        try:
            planned = table.planned(columns, wire_of)
        except SchemaError:
            return None  # to be reported with its address
        if planned.unknown:
            return None
        images = row_images(_IMAGES.take(cut.types), cut.has_old, plan)
        rows = self._parse(cut, images)
        arrays = None if rows is None else cast_columns(planned.columns, rows, images)
        if arrays is None:
            return None
        change_types, of_event = images.filter(images.change_types), images.filter(images.events)
        if plan.rescued is not None:
            arrays[plan.rescued] = pa.nulls(len(change_types), pa.string())
        indexes, cluster_id = repeated(0, pa.int32(), len(change_types)), pa.nulls(len(events), pa.string())
        return Decoded(
            change_types=change_types,
            events=of_event,
            indexes=indexes,
            columns=arrays,
            commit_ts=cut.commit_ts,
            build_ts=cut.build_ts,
            cluster_id=cluster_id,
        )

    def _cut(self, messages: pa.BinaryArray, start: ByteTemplate) -> _Cut | None:
        """Compare what messages have in common, and leave their rows; None where one has it not."""
        if not start.fits(messages):
            return None
        types = pc.index_in(start.gap(messages, 0), value_set=_TYPES)
        es, build_ts = (numbers_of(start.gap(messages, gap), TIME_DIGITS) for gap in (1, 2))
        if types.null_count or es is None or build_ts is None:
            return None
        ended = _ended(messages, es)
        found = None if ended is None else self._bodies(messages, ended[1])
        rows = None if found is None else _rows(found[0])
        if ended is None or found is None or rows is None:
            return None
        has_old = rows[1]
        if has_old.true_count and pc.any(pc.and_(has_old, pc.not_equal(types, _UPDATE))).as_py():
            return None
        return _Cut(types, ended[0], build_ts, has_old, rows[0], found[1])

    def _bodies(self, messages: pa.BinaryArray, end: int) -> tuple[pa.BinaryArray, list[MessageLayout]] | None:
        """Return what stands between `"old":` and the last bytes, so many, and the layouts that were met."""
        parts: list[_Part] = []
        whole = _Part(b"", row_indices(len(messages)), messages)
        left = self._sorted(whole, list(islice(reversed(self.layouts), _MOST_TRIED)), parts)
        if left is not None and len(left.messages) <= _MOST_DERIVED:
            left = self._sorted(left, self.derived(left.messages.to_pylist()), parts)
        if left is None or len(left.messages):
            return None
        for part in sorted(parts, key=lambda part: len(part.messages)):  # the most frequent is tried first, next time
            self.layouts[part.codes] = self.layouts.pop(part.codes)
        cut = [pc.binary_slice(part.messages, self.layouts[part.codes].template.end, -end) for part in parts]
        bodies = cut[0]
        if len(parts) > 1:
            bodies = pa.concat_arrays(cut).take(pc.sort_indices(pa.concat_arrays([part.places for part in parts])))
        return bodies, [self.layouts[part.codes] for part in parts]

    def _sorted(self, left: _Part, known: Sequence[bytes], parts: list[_Part]) -> _Part | None:
        """Add the messages of known layouts to the parts; return those that are left, None where one is unusual."""
        for codes in known:
            layout = self.layouts[codes]
            fitting = layout.template.fitting(left.messages)
            if not fitting.true_count:
                continue
            part = left.filter(codes, fitting)
            if not layout.have_types(layout.template.gap(part.messages, 0)):
                return None
            parts.append(part)
            left = left.filter(b"", pc.invert(fitting))
            if not len(left.messages):
                break
        return left

    def _parse(self, cut: _Cut, images: RowImages) -> dict[str, pa.StringArray] | None:
        """Parse the rows; None where they are not one object each, with all columns."""
        names = cut.layouts[0].names
        joined = bytes_of(cut.rows)
        if any(layout.names != names for layout in cut.layouts) or b"\0" in joined:
            return None
        options = self._options.get(names)
        if options is None:
            if not _are_plain(names):
                return None
            schema = pa.schema([(name, pa.string()) for name in names])
            options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
            self._options[names] = options
        read = pj.read_json(
            pa.BufferReader(joined),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(joined) + 1),
            parse_options=options,
        )
        if not joined.isascii():
            read.validate(full=True)  # that texts are UTF-8
        if read.num_rows != len(images.events):
            return None
        columns = {name: column.combine_chunks() for name, column in zip(names, read.columns, strict=True)}
        return columns if _are_written(list(columns.values()), images, cut.rows) else None


def _rows(bodies: pa.BinaryArray) -> tuple[pa.BinaryArray, pa.BooleanArray] | None:
    """Leave the row, or the old row and the new one, each on a line of its own; say which messages have an old one."""
    has_new = pc.starts_with(bodies, _NO_OLD)
    has_old = pc.invert(has_new)
    rows = pc.binary_replace_slice(bodies, 0, len(_NO_OLD) - 1, LINE)
    if not has_old.true_count:
        return rows, has_old
    both = on_two_lines(bodies.filter(has_old), _OLD, _BETWEEN)
    return None if both is None else (pc.replace_with_mask(rows, has_old, both), has_old)


def _ended(messages: pa.BinaryArray, es: pa.Int64Array) -> tuple[pa.Int64Array, int] | None:
    """Return the commit-ts, or the lower bound that the event time is, and how much comes behind the last row."""
    if messages[-1].as_py().endswith(_PLAIN_END):
        ended = pc.all(pc.ends_with(messages, pattern=_PLAIN_END)).as_py()
        return (pc.shift_left(es, 18), len(_PLAIN_END) - 1) if ended else None
    behind = _TSO_DIGITS + len(_END_OF_TSO)
    end = len(_END) + behind
    ended = pc.all(pc.equal(pc.binary_slice(messages, -end, -behind), _END)).as_py()
    if not ended or not pc.all(pc.ends_with(messages, pattern=_END_OF_TSO)).as_py():
        return None
    commit_ts = numbers_of(pc.binary_slice(messages, -behind, -len(_END_OF_TSO)), _TSO_DIGITS)
    return None if commit_ts is None else (commit_ts, end - 1)


def _are_written(columns: Sequence[pa.Array], images: RowImages, rows: pa.BinaryArray) -> bool:
    """Tell whether all NULLs are written as such, and none is a member that is missing."""
    with_nulls = [column for column in columns if column.null_count]
    if not with_nulls:
        return True
    doubtful = reduce(pc.or_, (column.is_null() for column in with_nulls))
    written = bytes_of(rows.take(images.events.filter(doubtful).unique()))
    # An escaped quote is within a text, any other one ends a name: names have no backslash.
    count = written.count(b'":null') - written.count(b'\\":null')
    return bool(count == sum(column.null_count for column in with_nulls))


def _are_plain(names: Sequence[str]) -> bool:
    """Tell whether names are written as they are, and differ also without case."""
    text = "".join(names)
    if not text.isprintable() or '"' in text or "\\" in text:
        return False
    return len({name.lower() for name in names}) == len(names)
