"""The fastest path of canal-json: what is left of many messages is parsed into Arrow columns at once.

`CanalSkim.cut` compares what messages of one table have in common; what it leaves of each, from `"old":` on, are rows
of text. `pyarrow.json` reads those of a whole tray into columns, without a Python object a value. It is taken for a
tray or not at all: where a message is not as those before it, a value does not fit, or anything else is unusual, this
path declines, and the others read the tray and report what is wrong. What `pyarrow.json` takes that JSON does not, or
tells less well than a parser to dicts, is looked for:

* each message is one object, and no two are one: the first member's name is put there, and is no column's;
* a missing member is not a NULL: where there are NULLs, they are counted in the bytes;
* texts are UTF-8.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import chain, repeat
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ticdc_source.errors import SchemaError
from ticdc_source.events import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE, TableEvents
from ticdc_source.protocols.base import Decoded
from ticdc_source.protocols.canal_skim import CanalSkim, Cut
from ticdc_source.protocols.images import Images
from ticdc_source.protocols.plan import Plan, Planned, WireOf

__all__ = ["CanalColumns"]

_FIRST = "old image"  # what `old` is called while it is parsed
_BEGIN = b'{"' + _FIRST.encode() + b'":'
_MOST_BYTES = 1 << 30  # of a tray: pyarrow counts them in 32 bits
_MOST_PASSED = 64  # trays
_REPLACEMENT = "\ufffd".encode()


class _Parsed(NamedTuple):
    """The rows of a tray, before they are images."""

    rows: pa.StructArray  # one a message, then the old ones
    has_old: list[bool]
    commit_ts: list[int] | None  # None without the TiDB extension


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
        if plan.documents is not None or len(events) < plan.columnar_from:
            return None
        if self.passes:
            self.passes -= 1
            return None
        cut = self.cut(events.payloads)
        if cut is None:
            return None
        decoded = self._read(cut, events, plan, wire_of)
        if decoded is None:  # and in vain: the next ones are not likely to be others
            self._declined += 1
            self.passes = min(_MOST_PASSED, 1 << self._declined)
        else:
            self._declined = 0
        return decoded

    def _read(self, cut: Cut, events: TableEvents, plan: Plan, wire_of: WireOf) -> Decoded | None:
        parsed = self._parse(cut)
        if parsed is None:
            return None
        commit_ts = cut.lower_bounds() if parsed.commit_ts is None else parsed.commit_ts
        boundaries = plan.boundaries()
        begun = {bisect_left(boundaries, ts) for ts in (min(commit_ts), max(commit_ts))}
        versions = {shape.columns.get(number) for shape in cut.shapes for number in begun}
        columns = versions.pop()
        if versions or columns is None:
            return None
        images, places = _images(cut.kinds, parsed.has_old, plan)
        try:
            planned = plan.for_columns(columns, wire_of)
        except SchemaError:
            return None  # to be reported with its address
        if plan.strays(columns):
            return None
        arrays = _cast(planned, parsed.rows, places)
        if arrays is None:
            return None
        if plan.rescued is not None:
            arrays[plan.rescued] = pa.nulls(len(images.kinds), pa.string())
        count = len(events)
        build_ts: list[int | None] = [None] * count
        if plan.build_ts:
            build_ts = list(cut.build_ts())
        return Decoded(images, arrays, list(commit_ts), build_ts, [None] * count)

    def _parse(self, cut: Cut) -> _Parsed | None:
        names = cut.shapes[0].names
        extended = cut.rests[0].endswith(b"}}")
        joined = _BEGIN + (b"\n" + _BEGIN).join(cut.rests) + b"\n"
        if any(shape.names != names for shape in cut.shapes) or b"\0" in joined or len(joined) > _MOST_BYTES:
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
        has_old = old.is_valid().to_pylist()
        rows, olds = data.flatten(), old.flatten()
        single = len(rows) == count and not data.null_count and _lengths(data) == {1}
        if not single or rows.null_count or olds.null_count or not _lengths(old) <= {1, None}:
            return None
        if any(there and kind != "UPDATE" for there, kind in zip(has_old, cut.kinds, strict=True)):
            return None
        nulls = sum(image.field(place).null_count for image in (rows, olds) for place in range(len(names)))
        # An escaped quote is within a text, any other one ends a name: names have no backslash.
        if nulls and nulls + old.null_count != joined.count(b'":null') - joined.count(b'\\":null'):
            return None
        commit_ts = None
        if extended:
            stamps = pc.struct_field(table.column(2), "commitTs")
            if stamps.null_count or pc.min(stamps).as_py() <= 0:
                return None
            commit_ts = stamps.to_pylist()
        return _Parsed(pa.concat_arrays([rows, olds]) if len(olds) else rows, has_old, commit_ts)


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


def _lengths(lists: pa.ListArray) -> set[int | None]:
    return set(pc.list_value_length(lists).unique().to_pylist())


def _images(kinds: Sequence[str], has_old: Sequence[bool], plan: Plan) -> tuple[Images, list[int]]:
    """Say what images there are, and at which place the row of each is."""
    made: dict[tuple[str, bool], tuple[int, ...]] = {
        ("INSERT", False): (INSERT,) if "insert" in plan.operations else (),
        ("DELETE", False): (DELETE,) if "delete" in plan.operations else (),
        ("UPDATE", False): (UPDATE_POSTIMAGE,) if "update" in plan.operations else (),
    }
    made["UPDATE", True] = (UPDATE_PREIMAGE,) * plan.preimages + (UPDATE_POSTIMAGE,)
    if "update" not in plan.operations:
        made["UPDATE", True] = ()
    of_event = list(map(made.__getitem__, zip(kinds, has_old, strict=True)))
    images = Images()
    images.kinds = list(chain.from_iterable(of_event))
    images.events = list(chain.from_iterable(map(repeat, range(len(kinds)), map(len, of_event))))
    images.indexes = [0] * len(images.kinds)
    if not any(has_old):
        return images, images.events
    count, olds = len(kinds), 0
    old_place = [0] * count
    for event, there in enumerate(has_old):
        if there:
            old_place[event] = count + olds
            olds += 1
    return images, [
        old_place[event] if kind == UPDATE_PREIMAGE else event
        for kind, event in zip(images.kinds, images.events, strict=True)
    ]


def _cast(planned: Sequence[Planned], rows: pa.StructArray, places: list[int]) -> dict[str, pa.Array] | None:
    """Cast the columns, then bring their values into the images' order; None where a value does not fit."""
    order = None if places == list(range(len(rows))) else pa.array(places, pa.int32())
    arrays = {}
    for item in planned:
        if item.run is None or item.source is None:
            arrays[item.field.name] = pa.nulls(len(places), item.field.arrow)
            continue
        texts = rows.field(item.source)
        try:
            array = item.run(texts if item.takes_arrays else texts.to_pylist())
        except Exception:  # noqa: BLE001 (whatever a kernel raises on garbage: the general path says where)
            return None
        data = array.buffers()[2] if item.raw is not None else None
        if data is not None and _REPLACEMENT in data.to_pybytes():
            return None  # bytes read as text, of which some may be no UTF-8
        arrays[item.field.name] = array if order is None else array.take(order)
    return arrays
