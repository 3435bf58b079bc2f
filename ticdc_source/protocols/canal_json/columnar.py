"""The columnar path of canal-json: Arrow reads a table's events, without a Python statement per message.

Messages of one table begin alike but for gaps of fixed width: the type, times, and the members of `mysqlType` in any
order. They end alike, too. Byte templates compare that for all messages at once (`layouts`). Between them are one row
or two, which `pyarrow.json` reads into columns.

This path reads all events of a table in a chunk, or none. It declines if a message differs from the others, if a value
does not fit, or if anything else is unusual. The general path then reads the events and reports what is wrong.
`pyarrow.json` accepts more than JSON, so this is checked:

* Each message has exactly its rows. A row begins on a line of its own, where nothing continues that began before: no
  text has a raw line break, and no row has an object in it. Each row is therefore at least one object, and the number
  of objects is compared.
* A NULL is written and not a missing member: if there are NULLs, they are counted in the bytes.
* Texts are UTF-8.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
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
_CHANGE_TYPES = pa.array([INSERT, DELETE, UPDATE_POSTIMAGE], pa.int8())  # of the last image of each type
_UPDATE = pa.scalar(2, pa.int32())  # its index in _TYPES
_TSO_DIGITS = 18  # of a commit-ts from 1982 to 2090

# The bytes around the rows: behind `"old":`, between an old row and the new one, and behind the last row.
_NO_OLD, _OLD, _BETWEEN = b'null,"data":[{', b"[{", b'}],"data":[{'
_PLAIN_END, _END, _END_OF_TSO = b"}]}", b'}],"_tidb":{"commitTs":', b"}}"

_MOST_PASSES = 64  # of a table's events
_MOST_TRIED = 64  # layouts for a table's events; all but the first few are compared with few messages
_MOST_DERIVED = 1024  # messages with a new `sqlType` among a table's events


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """What is left of messages when all that they have in common is compared and cut away.

    Attributes:
        types: of each message, the index of its type in _TYPES.
        commit_ts, build_ts: of each message, as in `Decoded`.
        has_old: of each message, whether it has an old row.
        rows: of each message, its rows, each after a line break.
        layouts: the layouts of the messages.
    """

    types: pa.Int32Array
    commit_ts: pa.Int64Array
    build_ts: pa.Int64Array
    has_old: pa.BooleanArray
    rows: pa.BinaryArray
    layouts: list[MessageLayout]


class _Part(NamedTuple):
    """Messages with one `sqlType`, and their indices among the table's events."""

    codes: bytes
    indices: pa.Int32Array
    messages: pa.BinaryArray

    def filter(self, codes: bytes, mask: pa.BooleanArray) -> _Part:
        """Return the messages that the mask selects."""
        if mask.true_count == len(mask):
            return self._replace(codes=codes)
        return _Part(codes, self.indices.filter(mask), self.messages.filter(mask))


class CanalColumns(MessageLayouts):
    """What was learned of one table's messages.

    After events that it declined, it lets the next ones pass without trying them: twice as many after each failure.

    Attributes:
        passes: how many times the table's events still pass.
    """

    __slots__ = ("_declined", "_options", "passes")

    def __init__(self) -> None:
        super().__init__()
        self._declined = 0
        self.passes = 0
        self._options: dict[tuple[str, ...], pj.ParseOptions] = {}

    def decode(self, events: TableEvents, learned: LearnedTable, wire_of: WireOf) -> Decoded | None:
        """Decode a table's events; None if they are left to the general path."""
        plan = learned.plan
        if plan.documents or len(events) < plan.columnar_from or self.start is None:
            return None
        if self.passes:
            self.passes -= 1
            return None
        try:
            decoded = self._read(events, learned, wire_of, self.start)
        except pa.ArrowInvalid:  # a message that is too short to be cut, or not JSON
            decoded = None
        if decoded is None:  # the next events are likely to be declined too
            self._declined += 1
            self.passes = min(_MOST_PASSES, 1 << self._declined)
        else:
            self._declined = 0
        return decoded

    def _read(self, events: TableEvents, learned: LearnedTable, wire_of: WireOf, start: ByteTemplate) -> Decoded | None:
        plan, messages = learned.plan, messages_of(events.payloads)
        cut = None if messages is None else self._cut(messages, start)
        if cut is None:
            return None
        boundaries = plan.boundaries()
        ends = pc.min_max(cut.commit_ts).values() if boundaries else []
        versions = {bisect_left(boundaries, ts.as_py()) for ts in ends} or {0}
        choices = {layout.columns.get(version) for layout in cut.layouts for version in versions}
        columns = choices.pop()
        if choices or columns is None:
            return None
        try:
            planned = learned.planned(columns, wire_of)
        except SchemaError:
            return None  # the general path reports it with its address
        if planned.unknown:
            return None
        images = row_images(_CHANGE_TYPES.take(cut.types), cut.has_old, plan)
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
        """Compare what messages have in common, and cut it away; None if a message differs."""
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
        return _Cut(types=types, commit_ts=ended[0], build_ts=build_ts, has_old=has_old, rows=rows[0], layouts=found[1])

    def _bodies(self, messages: pa.BinaryArray, end: int) -> tuple[pa.BinaryArray, list[MessageLayout]] | None:
        """Return each message from behind `"old":` to before its last `end` bytes, and the layouts of the messages."""
        parts: list[_Part] = []
        whole = _Part(b"", row_indices(len(messages)), messages)
        left = self._matched(whole, list(islice(reversed(self.layouts), _MOST_TRIED)), parts)
        if left is not None and len(left.messages) <= _MOST_DERIVED:
            left = self._matched(left, self.derived(left.messages.to_pylist()), parts)
        if left is None or len(left.messages):
            return None
        for part in sorted(parts, key=lambda part: len(part.messages)):  # the most frequent is tried first next time
            self.layouts[part.codes] = self.layouts.pop(part.codes)
        cut = [pc.binary_slice(part.messages, self.layouts[part.codes].template.end, -end) for part in parts]
        bodies = cut[0]
        if len(parts) > 1:
            bodies = pa.concat_arrays(cut).take(pc.sort_indices(pa.concat_arrays([part.indices for part in parts])))
        return bodies, [self.layouts[part.codes] for part in parts]

    def _matched(self, left: _Part, tried: Sequence[bytes], parts: list[_Part]) -> _Part | None:
        """Move messages into parts by their layouts.

        Args:
            left: the messages.
            tried: the `sqlType` of each layout to try.
            parts: gets the messages with one of these layouts.

        Returns:
            The messages without one of these layouts; None if a message is unusual.
        """
        for codes in tried:
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
        """Parse the rows; None if one is not an object with all columns."""
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
    """Return the rows of each message, each on a line of its own, and which messages have an old row."""
    has_new = pc.starts_with(bodies, _NO_OLD)
    has_old = pc.invert(has_new)
    rows = pc.binary_replace_slice(bodies, 0, len(_NO_OLD) - 1, LINE)
    if not has_old.true_count:
        return rows, has_old
    both = on_two_lines(bodies.filter(has_old), _OLD, _BETWEEN)
    return None if both is None else (pc.replace_with_mask(rows, has_old, both), has_old)


def _ended(messages: pa.BinaryArray, es: pa.Int64Array) -> tuple[pa.Int64Array, int] | None:
    """Return each commit-ts, or the lower bound that the event time gives, and the number of bytes behind the rows."""
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
    """Return whether each NULL is written as null and none is a missing member."""
    with_nulls = [column for column in columns if column.null_count]
    if not with_nulls:
        return True
    doubtful = reduce(pc.or_, (column.is_null() for column in with_nulls))
    written = bytes_of(rows.take(images.events.filter(doubtful).unique()))
    # A quote before a colon ends a name, unless a backslash is before it: names have no backslash, texts may.
    count = written.count(b'":null') - written.count(b'\\":null')
    return bool(count == sum(column.null_count for column in with_nulls))


def _are_plain(names: Sequence[str]) -> bool:
    """Return whether names are written without escapes and differ without regard to case."""
    text = "".join(names)
    if not text.isprintable() or '"' in text or "\\" in text:
        return False
    return len({name.lower() for name in names}) == len(names)
