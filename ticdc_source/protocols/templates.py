"""The native path: templates, learned from messages that were parsed, read the row messages of one table.

A template says what messages of one version of a table have in common, byte for byte (native/src/template.rs). Native
code reads the messages that fit, and makes the columns. The general path reads the others: it is the specification, and
reports what is wrong. Native code accepts a message only if it reads it exactly as the general path does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import SchemaError
from ticdc_source.events import Binaries, TableEvents, repeated, row_indices
from ticdc_source.kernels import TEXT_CAST, Cast, Cells, failing_cells
from ticdc_source.native import native
from ticdc_source.protocols.base import Decoded, LearnedTable
from ticdc_source.protocols.plan import Plan, PlannedColumn, WireOf
from ticdc_source.schema.model import Column

if TYPE_CHECKING:
    from ticdc_source._native import Buffers, Scanner

__all__ = [
    "BUILD_TS",
    "COMMIT_TS",
    "EVENT_TIME",
    "IGNORED",
    "IMAGE",
    "MOST_MS",
    "PREIMAGE",
    "SET_DELETE",
    "SET_INSERT",
    "SET_UPDATE",
    "General",
    "Learn",
    "Step",
    "Template",
    "Templates",
]

# A step's name and arguments; `step_of` in native/src/scan.rs reads them.
Step: TypeAlias = tuple[object, ...]
SET_INSERT, SET_UPDATE, SET_DELETE = (("operation", number) for number in range(3))
PREIMAGE, IMAGE = 0, 1  # the rows of a message; a deleted row is an image
COMMIT_TS, BUILD_TS, EVENT_TIME, IGNORED = 0, 1, 2, 3  # the slots of numbers
MOST_MS = (1 << 45) - 1  # a larger time makes no TSO
_MOST_TSO = (1 << 63) - 1
_OPERATIONS = ("insert", "update", "delete")
_REPLACEMENT = "\ufffd".encode()
_JSON: Cast = ("json",)
_NO_TIME = pa.scalar(None, pa.int64())
_MOST_TEMPLATES = 64  # of one table
_MOST_VARIANTS = 4096  # of one template


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What a message has in common with others of its table.

    Attributes:
        identity: equal for messages that differ in their variants only.
        variants: the bytes at each place where messages of one version of the table may differ.
        heads: of each column, the bytes before its cell.
        tail: the bytes behind each cell.
        partial: whether a preimage may lack columns, which then have the values of the image.
        steps: makes the steps of the known variants at each place.
        cluster_id: the cluster id in the messages; None if they lack it.
    """

    identity: Hashable
    variants: tuple[bytes, ...] = ()
    heads: tuple[bytes, ...]
    tail: bytes = b""
    partial: bool = False
    steps: Callable[[Sequence[Sequence[bytes]]], list[Step]]
    cluster_id: str | None = None


# Takes the template of a message that was parsed, the version of its table (`_Known.version`), and the columns.
Learn: TypeAlias = Callable[[Template | None, int, tuple[Column, ...]], None]
# Reads events on the general path. With `Learn`, it makes a template of each event.
General: TypeAlias = Callable[[TableEvents, Learn | None], Decoded]


class _Known:
    """A template for one version of the columns, with all variants that were seen.

    Attributes:
        key: what tells it from others.
        template: of the first such message.
        version: how many of the plan's boundaries are less than the commit-ts of these messages.
        columns: the columns.
        variants: those that were seen at each place.
        scanner: native code for all of this; None until it is needed.
        planned: the fields of the read schema that messages have, each with its cast.
        missing: the fields that messages lack; they become NULL.
        as_cells: the fields whose kernels have refused an array: they get cells from then on.
    """

    __slots__ = ("as_cells", "columns", "key", "missing", "planned", "scanner", "template", "variants", "version")

    def __init__(self, key: Hashable, template: Template, version: int, columns: tuple[Column, ...]) -> None:
        self.key, self.template, self.version, self.columns = key, template, version, columns
        self.variants = [[variant] for variant in template.variants]
        self.scanner: Scanner | None = None
        self.planned: list[tuple[PlannedColumn, Cast]] = []
        self.missing: list[PlannedColumn] = []
        self.as_cells: set[str] = set()

    def add(self, variants: Sequence[bytes]) -> bool:
        """Add the variants of a message; return whether one was added."""
        news = [(seen, new) for seen, new in zip(self.variants, variants, strict=True) if new not in seen]
        if not news or sum(map(len, self.variants)) + len(news) > _MOST_VARIANTS:
            return False
        for seen, new in news:
            seen.append(new)
        self.scanner = None
        return True

    def prepare(self, learned: LearnedTable, wire_of: WireOf) -> Scanner | None:
        """Return the scanner, made if need be; None if a column is unknown, or cannot be read as the plan wants it."""
        if self.scanner is not None or native is None:
            return self.scanner
        plan = learned.plan
        try:
            planned = learned.planned(self.columns, wire_of)
        except SchemaError:
            return None  # the general path reports it with its address
        if planned.unknown:
            return None
        places = {column.name: index for index, column in enumerate(self.columns)}
        self.planned = [
            (column, self._cast_of(column)) for column in planned.columns if column.run and column.source in places
        ]
        self.missing = [column for column in planned.columns if not (column.run and column.source in places)]
        boundaries, template = plan.boundaries(), self.template
        self.scanner = native.Scanner(
            template.steps(self.variants),
            [[head] for head in template.heads],
            template.tail,
            [(places[column.source or ""], cast) for column, cast in self.planned],
            partial=template.partial,
            operations=[operation in plan.operations for operation in _OPERATIONS],
            preimages=plan.preimages,
            commit_ts_range=(
                boundaries[self.version - 1] if self.version else -1,
                boundaries[self.version] if self.version < len(boundaries) else _MOST_TSO,
            ),
        )
        return self.scanner

    def _cast_of(self, column: PlannedColumn) -> Cast:
        """Return the cast that makes a column, or what its kernel takes: an array, or else the JSON of the cells."""
        if column.field.name in self.as_cells:
            return _JSON
        if column.cast is not None:
            return column.cast
        if column.arrays == pa.string():
            return TEXT_CAST
        if column.arrays == pa.int64():
            return ("integer", False, 8)
        return ("float", False, False) if column.arrays == pa.float64() else _JSON

    def column(self, column: PlannedColumn, cast: Cast, buffers: Buffers, refused: set[int]) -> pa.Array | None:
        """Return one column of a scan; None if its kernel refuses the array, and gets cells from now on.

        Args:
            column: the column.
            cast: its cast.
            buffers: what native code has made of it.
            refused: gets the images whose events are left to the general path.
        """
        length, nulls, validity, offsets, data = buffers
        kept = [None if buffer is None else pa.py_buffer(buffer) for buffer in (validity, offsets, data)]
        if offsets is None:
            del kept[1]
        if cast is column.cast:
            return pa.Array.from_buffers(column.field.arrow, length, kept, nulls)
        cells: Cells = (
            orjson.loads(data) if cast is _JSON else pa.Array.from_buffers(column.arrays, length, kept, nulls)
        )
        run = column.run
        if run is None:
            return None
        try:
            array = run(cells)
        except Exception:  # noqa: BLE001 (a kernel may raise anything on garbage; the general path finds the cell)
            if cast is not _JSON:
                self.as_cells.add(column.field.name)
                self.scanner = None
                return None
            failing = failing_cells(run, cells)
            refused.update(failing)
            try:
                array = run([None if row in failing else cell for row, cell in enumerate(cells)])
            except Exception:  # noqa: BLE001 (as above)
                refused.update(range(length))
                return pa.nulls(length, column.field.arrow)
        written = array.buffers()[2] if column.raw is not None and array is not cells else None
        if written is not None and _REPLACEMENT in written.to_pybytes():  # `in` a buffer looks for one byte
            refused.update(pc.indices_nonzero(pc.match_substring(array, _REPLACEMENT.decode())).to_pylist())
        return array


class _Part(NamedTuple):
    """What was decoded of some events.

    Attributes:
        own: the indexes of these events, rising; int32.
        decoded: their rows. `Decoded.events` and `failures` have indexes among all events; the arrays by event have an
            entry for each event in `own`.
    """

    own: pa.Int32Array
    decoded: Decoded


class Templates:
    """The templates that were learned of one table's messages."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Hashable, _Known] = {}  # the last one is tried first

    def decode(
        self,
        events: TableEvents,
        learned: LearnedTable,
        wire_of: WireOf,
        general: General,
        commit_ts: pa.Int64Array | None = None,
        candidates: pa.Int32Array | None = None,
    ) -> Decoded:
        """Decode a table's events: those that fit a template in native code, the others on the general path.

        Args:
            events: the events.
            learned: what was learned of the table.
            wire_of: chooses how a column is read.
            general: the general path.
            commit_ts: of each event, its commit-ts; None if messages have it.
            candidates: the indexes of the events that may fit a template; None if all may.

        Raises:
            SchemaError: as `Plan.for_columns`.
        """
        parts: list[_Part] = []
        boundaries = learned.plan.boundaries()

        def scan(pending: pa.Int32Array | None, tried: Iterable[_Known]) -> pa.Int32Array:
            for known in tried:
                if pending is not None and not len(pending):
                    break
                scanner = known.prepare(learned, wire_of)
                if scanner is None:
                    continue
                tried_now, other_versions = pending, None
                if commit_ts is not None and boundaries:
                    tried_now, other_versions = _of_version(known.version, boundaries, commit_ts, pending)
                part, pending = _scan(known, scanner, events, tried_now, learned.plan)
                if other_versions is not None:
                    pending = _merged_sorted(pending, other_versions)
                if len(part.own):
                    if commit_ts is not None:
                        part.decoded.commit_ts = commit_ts.take(part.own)
                    parts.append(part)
                    self._known[known.key] = self._known.pop(known.key, known)  # it is tried first next time
            return row_indices(len(events)) if pending is None else pending

        def read(some: pa.Int32Array, learn: Learn | None) -> None:
            picked = some.to_pylist()
            decoded = general(events.picked(picked), learn)
            decoded.events = some.take(decoded.events)
            decoded.failures = {picked[event]: error for event, error in decoded.failures.items()}
            parts.append(_Part(some, decoded))

        pending = scan(candidates, list(reversed(self._known.values())))
        size = 1
        while len(pending):
            changed: list[_Known] = []
            read(pending[:size], partial(self._learn, changed))
            pending, before = pending[size:], len(pending) - size
            pending = scan(pending, changed) if len(pending) else pending
            # If the sample taught nothing that others fit, the next one is larger: few calls find out that none does.
            size = 1 if len(pending) < before else 4 * size
        if candidates is not None and len(candidates) < len(events):
            read(pc.indices_nonzero(pc.invert(pc.is_in(row_indices(len(events)), candidates))).cast(pa.int32()), None)
        if not parts:
            return general(events, None)
        return parts[0].decoded if len(parts) == 1 else _merged(parts)

    def _learn(
        self, changed: list[_Known], template: Template | None, version: int, columns: tuple[Column, ...]
    ) -> None:
        """Learn the template of a message; `changed` gets it if it is new, or has a new variant."""
        if template is None:
            return
        key = (template.identity, version, columns)
        known = self._known.get(key)
        if known is not None:
            changed.extend([known] if known.add(template.variants) else [])
            return
        if len(self._known) >= _MOST_TEMPLATES:
            del self._known[next(iter(self._known))]
        self._known[key] = known = _Known(key, template, version, columns)
        changed.append(known)


# What was decoded of no event: nobody looks into it.
_NOTHING = Decoded(
    change_types=pa.array([], pa.int8()),
    events=pa.array([], pa.int32()),
    indexes=pa.array([], pa.int32()),
    columns={},
    commit_ts=pa.array([], pa.int64()),
    build_ts=pa.array([], pa.int64()),
    cluster_id=pa.array([], pa.string()),
)


def _scan(
    known: _Known, scanner: Scanner, events: TableEvents, pending: pa.Int32Array | None, plan: Plan
) -> tuple[_Part, pa.Int32Array]:
    """Read events by one template; return what was read, and the indexes of the other events.

    Args:
        known: the template.
        scanner: its scanner.
        events: the events.
        pending: the indexes of those to read; None for all.
        plan: what is wanted.
    """
    indexes, payloads = None if pending is None else pending.to_pylist(), events.payloads
    scanned = scanner.scan(payloads.for_native() if isinstance(payloads, Binaries) else payloads, indexes)
    own, others, image_events = (
        _numbers(pa.int32(), numbers) for numbers in (scanned.accepted, scanned.declined, scanned.events)
    )
    if not len(own):
        return _Part(own, _NOTHING), others
    refused: set[int] = set()
    columns = {column.field.name: pa.nulls(len(image_events), column.field.arrow) for column in known.missing}
    if plan.rescued is not None:
        columns[plan.rescued] = pa.nulls(len(image_events), pa.string())
    for (column, cast), buffers in zip(known.planned, scanned.columns, strict=True):
        array = known.column(column, cast, buffers, refused)
        if array is None:
            refused.update(range(len(image_events)))
            array = pa.nulls(len(image_events), column.field.arrow)
        columns[column.field.name] = array
    build_ts = _numbers(pa.int64(), scanned.build_ts)
    positions, of_events = events.positions, events.indexes
    zeros = isinstance(positions, range) or not any(of_events)
    part = _Part(
        own,
        Decoded(
            change_types=_numbers(pa.int8(), scanned.change_types),
            events=image_events,
            indexes=repeated(0, pa.int32(), len(image_events))
            if zeros
            else pa.array(of_events, pa.int32()).take(image_events),
            columns=columns,
            commit_ts=_numbers(pa.int64(), scanned.commit_ts),
            build_ts=pc.if_else(pc.less(build_ts, 0), _NO_TIME, build_ts),
            cluster_id=repeated(known.template.cluster_id, pa.string(), len(own)),
        ),
    )
    if refused:
        left = image_events.take(pa.array(sorted(refused), pa.int32())).unique()
        part = _without(part, left)
        others = _merged_sorted(others, left)
    return part, others


def _merged_sorted(some: pa.Int32Array, others: pa.Int32Array) -> pa.Int32Array:
    both = pa.concat_arrays([some, others])
    return both.take(pc.sort_indices(both))


def _of_version(
    version: int, boundaries: Sequence[int], commit_ts: pa.Int64Array, pending: pa.Int32Array | None
) -> tuple[pa.Int32Array, pa.Int32Array]:
    """Return which events of those pending have a version of the table, and which have another."""
    pending = row_indices(len(commit_ts)) if pending is None else pending
    found = pa.array([bisect_left(boundaries, ts) == version for ts in commit_ts.take(pending).to_pylist()], pa.bool_())
    return pending.filter(found), pending.filter(pc.invert(found))


def _numbers(arrow: pa.DataType, written: bytes) -> pa.Array:
    """Return numbers in native byte order as an array."""
    return pa.Array.from_buffers(arrow, len(written) * 8 // arrow.bit_width, [None, pa.py_buffer(written)])


def _without(part: _Part, events: pa.Int32Array) -> _Part:
    """Return the part without these events."""
    decoded = part.decoded
    keep, images = (pc.invert(pc.is_in(each, value_set=events)) for each in (part.own, decoded.events))
    return _Part(
        part.own.filter(keep),
        Decoded(
            change_types=decoded.change_types.filter(images),
            events=decoded.events.filter(images),
            indexes=decoded.indexes.filter(images),
            columns={name: array.filter(images) for name, array in decoded.columns.items()},
            commit_ts=decoded.commit_ts.filter(keep),
            build_ts=decoded.build_ts.filter(keep),
            cluster_id=decoded.cluster_id.filter(keep),
        ),
    )


def _merged(parts: Sequence[_Part]) -> Decoded:
    """Merge the parts in the order of the events. An event's images are in one part, and sorting keeps their order."""
    decoded = [part.decoded for part in parts]
    own, events = (pa.concat_arrays(each) for each in ([part.own for part in parts], [part.events for part in decoded]))
    by_event, by_image = pc.sort_indices(own), pc.sort_indices(events)

    def in_order(arrays: Iterable[pa.Array], order: pa.Array) -> pa.Array:
        return pa.concat_arrays(list(arrays)).take(order)

    return Decoded(
        change_types=in_order((part.change_types for part in decoded), by_image),
        events=events.take(by_image),
        indexes=in_order((part.indexes for part in decoded), by_image),
        columns={name: in_order((part.columns[name] for part in decoded), by_image) for name in decoded[0].columns},
        commit_ts=in_order((part.commit_ts for part in decoded), by_event),
        build_ts=in_order((part.build_ts for part in decoded), by_event),
        cluster_id=in_order((part.cluster_id for part in decoded), by_event),
        failures={event: error for part in decoded for event, error in part.failures.items()},
        replaced=sum(part.replaced for part in decoded),
        parsed=sum(part.parsed for part in decoded),
        empty=sum(part.empty for part in decoded),
        claimed=sum(part.claimed for part in decoded),
        key_only=sum(part.key_only for part in decoded),
    )
