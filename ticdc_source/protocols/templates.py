"""The native path: templates, learned from messages that were parsed, read the row messages of one table.

A template has the bytes that messages of one table version share. It makes a program for native code
(kernels/contract.py), which reads fitting messages into columns, and accepts a message only if it reads it exactly as
the general path does. The general path reads the others: it is the specification, and reports errors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import SchemaError
from ticdc_source.kernels.arrays import repeated, row_indices
from ticdc_source.kernels.contract import (
    CHANGE_TYPES,
    Cast,
    ColumnCast,
    FloatCast,
    IntegerCast,
    Number,
    Operation,
    PlainCast,
    Program,
    SetOperation,
    Slot,
    Wanted,
)
from ticdc_source.kernels.native import messages_of, native, numbers_of
from ticdc_source.kernels.wire import Cells, failing_cells
from ticdc_source.protocols.base import Decoded, LearnedTable
from ticdc_source.protocols.events import TableEvents
from ticdc_source.protocols.messages import parse_exact_json, written_name
from ticdc_source.protocols.plan import Plan, PlannedColumn, WireOf
from ticdc_source.schema.ddl_event import Moment
from ticdc_source.schema.model import Column

if TYPE_CHECKING:
    from ticdc_source.kernels._native import ColumnBuffers, Scanned, Scanner


_MOST_MS = (1 << 45) - 1  # a larger time makes no TSO
MOST_TSO = (1 << 63) - 1
# Steps in templates of several wire formats.
INSERT, UPDATE, DELETE = map(SetOperation, Operation)
COMMIT_TS, START_TS = Number(Slot.COMMIT_TS, MOST_TSO), Number(Slot.START_TS, MOST_TSO)
BUILD_TS, EVENT_TIME = Number(Slot.BUILD_TS, _MOST_MS), Number(Slot.EVENT_TIME, _MOST_MS)
_MOST_TEMPLATES = 64  # of one table
_REPLACEMENT = "\ufffd".encode()
_NO_TIME = pa.scalar(None, pa.int64())
_MOST_VARIANTS = 4096  # of one template


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What messages of a table share.

    Attributes:
        identity: equal for messages that differ only in their variants.
        variants: the bytes at each place where messages of one table version may differ.
        program: makes the program for the variants seen at each place.
        placed: whether the messages lack a commit-ts (`Decoded.placed`).
        cells: the columns whose cells the native cast of their type would decline: their kernels get the cells.
    """

    identity: Hashable
    variants: tuple[bytes, ...] = ()
    program: Callable[[Sequence[Sequence[bytes]]], Program]
    cluster_id: str | None = None
    placed: bool = False
    cells: frozenset[str] = frozenset()


# Takes the template of a parsed message, the version of its table (`ColumnRuns.version`), and the columns.
KeepTemplate: TypeAlias = Callable[[Template | None, int, tuple[Column, ...]], None]
# Reads events on the general path. With `KeepTemplate`, it makes a template of each event.
General: TypeAlias = Callable[[TableEvents, KeepTemplate | None], Decoded]


def heads_of(names: Iterable[str]) -> tuple[bytes, ...]:
    """Return the bytes before each cell of a JSON object with these names."""
    return tuple(written_name(name) + b":" for name in names)


class Form:
    """A template with all variants seen at each of its places."""

    __slots__ = ("_scanner", "_seen", "_template", "key")

    def __init__(self, key: Hashable, template: Template) -> None:
        self.key, self._template = key, template
        self._seen = [[variant] for variant in template.variants]
        self._scanner: Scanner | None = None  # made when it is needed

    def add(self, variants: Sequence[bytes]) -> bool:
        news = [(seen, new) for seen, new in zip(self._seen, variants, strict=True) if new not in seen]
        if not news or sum(map(len, self._seen)) + len(news) > _MOST_VARIANTS:
            return False
        for seen, new in news:
            seen.append(new)
        self._scanner = None
        return True

    def make_scanner(self, wanted: Wanted) -> Scanner:
        assert native is not None  # noqa: S101 (for mypy)
        self._scanner = native.Scanner(self._template.program(self._seen), wanted, CHANGE_TYPES)
        return self._scanner


class Found(NamedTuple):
    """The result of a scan.

    Attributes:
        own: the indexes of the events read, ascending.
        others: the indexes of the other events.
        image_events: per image, the index of its event.
    """

    scanned: Scanned
    own: pa.Int32Array
    others: pa.Int32Array
    image_events: pa.Int32Array


def scan(scanner: Scanner, events: TableEvents, pending: pa.Int32Array | None) -> Found:
    """Read the events with these indexes in native code; None for all."""
    scanned = scanner.scan(messages_of(events.payloads), None if pending is None else pending.to_pylist())
    indexes = (numbers_of(pa.int32(), numbers) for numbers in (scanned.accepted, scanned.declined, scanned.events))
    return Found(scanned, *indexes)


AnyForm = TypeVar("AnyForm", bound=Form)


class Forms(ABC, Generic[AnyForm]):
    """The forms of one table's messages."""

    __slots__ = ("_forms",)

    def __init__(self) -> None:
        self._forms: dict[Hashable, AnyForm] = {}  # the last one is tried first

    @abstractmethod
    def _new(self, key: Hashable, template: Template, version: int, columns: tuple[Column, ...]) -> AnyForm:
        """Make a form from its first template."""

    def read_all(
        self,
        candidates: pa.Int32Array | None,
        read_fitting: Callable[[pa.Int32Array | None, Iterable[AnyForm]], pa.Int32Array],
        read_any: Callable[[pa.Int32Array, KeepTemplate], None],
    ) -> None:
        """Read events that fit a form in native code, and others on the general path, which teaches new forms.

        Args:
            candidates: the indexes of the events; None for all.
            read_fitting: reads events that fit one of the forms, and returns the others.
            read_any: reads events on the general path.
        """
        pending = read_fitting(candidates, list(reversed(self._forms.values())))
        size = 1
        while len(pending):
            changed: list[AnyForm] = []
            read_any(pending[:size], partial(self._learn, changed))
            pending, before = pending[size:], len(pending) - size
            pending = read_fitting(pending, changed) if len(pending) else pending
            # If no other event fits what the sample taught, the next sample is larger, so that few calls are in vain.
            size = 1 if len(pending) < before else 4 * size

    def know(self, template: Template, version: int, columns: tuple[Column, ...]) -> None:
        """Keep a template that was not learned from a message."""
        self._learn([], template, version, columns)

    def _learn(
        self, changed: list[AnyForm], template: Template | None, version: int, columns: tuple[Column, ...]
    ) -> None:
        """Learn a message's template; its form is added to `changed` if it is new or has a new variant."""
        if template is None:
            return
        key = (template.identity, version, columns)
        form = self._forms.get(key)
        if form is not None:
            changed.extend([form] if form.add(template.variants) else [])
            return
        if len(self._forms) >= _MOST_TEMPLATES:
            del self._forms[next(iter(self._forms))]
        self._forms[key] = form = self._new(key, template, version, columns)
        changed.append(form)


class _Part(NamedTuple):
    """The decoded rows of some events.

    Attributes:
        own: the indexes of these events, ascending.
        decoded: their rows. `Decoded.events` and `failures` have indexes among all events; arrays by event have an
            entry for each event in `own`.
    """

    own: pa.Int32Array
    decoded: Decoded


class _Reader(Form):
    """Reads messages that fit a template, with one version of the columns.

    Attributes:
        version: how many of the plan's boundaries are less than these messages' commit-ts.
    """

    __slots__ = ("_as_cells", "_columns", "_missing", "_planned", "version")

    def __init__(self, key: Hashable, template: Template, version: int, columns: tuple[Column, ...]) -> None:
        super().__init__(key, template)
        self.version, self._columns = version, columns
        self._planned: list[tuple[PlannedColumn, Cast]] = []  # the fields of the read schema that messages have
        self._missing: list[PlannedColumn] = []  # those that messages lack: they become NULL
        self._as_cells: set[str] = set()  # fields whose kernels refused an array: they get cells from then on

    def prepare(self, learned: LearnedTable, wire_of: WireOf) -> Scanner | None:
        """Return the scanner; None if a column is unknown, or cannot be read as the plan asks."""
        if self._scanner is not None or native is None:
            return self._scanner
        plan = learned.plan
        try:
            planned = learned.planned(self._columns, wire_of)
        except SchemaError:
            return None  # the general path reports it with its address
        if planned.unknown:
            return None
        places = {column.name: index for index, column in enumerate(self._columns)}
        self._planned = [
            (column, self._cast_of(column)) for column in planned.columns if column.run and column.source in places
        ]
        self._missing = [column for column in planned.columns if not (column.run and column.source in places)]
        # Rows of a time at which several transactions may have happened are left to the general path.
        boundaries = (Moment(-1), *plan.boundaries(), Moment(MOST_TSO))
        wanted = Wanted(
            columns=[ColumnCast(places[column.source or ""], cast) for column, cast in self._planned],
            operations=[operation for operation in Operation if operation.name.lower() in plan.operations],
            preimages=plan.preimages,
            after=boundaries[self.version].commit_ts,
            last=boundaries[self.version + 1].last_before,
        )
        return self.make_scanner(wanted)

    def _cast_of(self, column: PlannedColumn) -> Cast:
        """Return a column's cast, else one for its kernel's input: an array, or the cells' JSON."""
        if column.field.name in self._as_cells:
            return PlainCast.JSON
        if column.cast is not None and column.source not in self._template.cells:
            return column.cast
        if column.arrays == pa.string():
            return PlainCast.TEXT
        if column.arrays == pa.int64():
            return IntegerCast(text=False, bytes=8)
        if column.arrays == pa.binary():
            return PlainCast.BYTES
        return FloatCast(text=False, single=False) if column.arrays == pa.float64() else PlainCast.JSON

    def read(
        self, scanner: Scanner, events: TableEvents, pending: pa.Int32Array | None, plan: Plan
    ) -> tuple[_Part | None, pa.Int32Array]:
        """Return what was read, None if no event fits, and the indexes of the other events."""
        scanned, own, others, image_events = scan(scanner, events, pending)
        if not len(own):
            return None, others
        images = len(image_events)
        refused: set[int] = set()
        columns = {column.field.name: pa.nulls(images, column.field.arrow) for column in self._missing}
        if plan.rescued is not None:
            columns[plan.rescued] = pa.nulls(images, pa.string())
        for (column, cast), buffers in zip(self._planned, scanned.columns, strict=True):
            array = self._column(column, cast, buffers, refused)
            if array is None:
                refused.update(range(images))
                array = pa.nulls(images, column.field.arrow)
            columns[column.field.name] = array
        if isinstance(events.positions, range) or not any(events.indexes):
            indexes = repeated(0, pa.int32(), images)
        else:
            indexes = pa.array(events.indexes, pa.int32()).take(image_events)
        part = _Part(
            own,
            Decoded(
                change_types=numbers_of(pa.int8(), scanned.change_types),
                events=image_events,
                indexes=indexes,
                columns=columns,
                commit_ts=numbers_of(pa.int64(), scanned.commit_ts),
                start_ts=_times(scanned.start_ts, len(own)),
                build_ts=_times(scanned.build_ts, len(own)),
                cluster_id=repeated(self._template.cluster_id, pa.string(), len(own)),
                placed=repeated(self._template.placed, pa.bool_(), len(own)),
            ),
        )
        if not refused:
            return part, others
        left = image_events.take(pa.array(sorted(refused), pa.int32())).unique()
        kept_events, kept_images = (
            pc.indices_nonzero(pc.invert(pc.is_in(each, value_set=left))) for each in (own, image_events)
        )
        return _taken(part, kept_events, kept_images), _merged_sorted(others, left)

    def _column(self, column: PlannedColumn, cast: Cast, buffers: ColumnBuffers, refused: set[int]) -> pa.Array | None:
        """Return a column of a scan; None if its kernel refuses the array: it gets cells from then on."""
        if cast is column.cast:
            return array_of(column.field.arrow, buffers)
        run = column.run
        if run is None:
            return None
        try:
            cells: Cells = _json_cells(buffers) if cast is PlainCast.JSON else array_of(column.arrays, buffers)
        except ValueError:  # a number that no decimal holds
            return None
        try:
            array = run(cells)
        except Exception:  # noqa: BLE001 (a kernel may raise anything on garbage; the general path finds the cell)
            if cast is not PlainCast.JSON:
                self._as_cells.add(column.field.name)
                self._scanner = None
                return None
            failing = failing_cells(run, cells)
            refused.update(failing)
            try:
                array = run([None if row in failing else cell for row, cell in enumerate(cells)])
            except Exception:  # noqa: BLE001 (as above)
                return None
        written = array.buffers()[2] if column.raw is not None and array is not cells else None
        if written is not None and _REPLACEMENT in written.to_pybytes():  # `in` a buffer looks for one byte
            refused.update(pc.indices_nonzero(pc.match_substring(array, _REPLACEMENT.decode())).to_pylist())
        return array


def _json_cells(buffers: ColumnBuffers) -> Cells:
    cells: list[object] = parse_exact_json(buffers.data)  # type: ignore[assignment]  # native code writes an array
    return cells


class Templates(Forms[_Reader]):
    """The templates learned from one table's messages."""

    __slots__ = ()

    def _new(self, key: Hashable, template: Template, version: int, columns: tuple[Column, ...]) -> _Reader:
        return _Reader(key, template, version, columns)

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

        `commit_ts` is that of each event, if messages lack it; `candidates` are the events that may fit, None for all.
        """
        parts: list[_Part] = []
        boundaries = learned.plan.boundaries()

        def read_fitting(pending: pa.Int32Array | None, readers: Iterable[_Reader]) -> pa.Int32Array:
            for reader in readers:
                if pending is not None and not len(pending):
                    break
                scanner = reader.prepare(learned, wire_of)
                if scanner is None:
                    continue
                tried, other_versions = pending, None
                if commit_ts is not None and boundaries:
                    tried, other_versions = _of_version(reader.version, boundaries, events, commit_ts, pending)
                part, pending = reader.read(scanner, events, tried, learned.plan)
                if other_versions is not None:
                    pending = _merged_sorted(pending, other_versions)
                if part is not None and len(part.own):
                    if commit_ts is not None:
                        part.decoded.commit_ts = commit_ts.take(part.own)
                    parts.append(part)
                    if next(reversed(self._forms.values())) is not reader:  # it is tried first next time
                        self._forms[reader.key] = self._forms.pop(reader.key, reader)
            return row_indices(len(events)) if pending is None else pending

        def read(some: pa.Int32Array, learn: KeepTemplate | None) -> None:
            picked = some.to_pylist()
            decoded = general(events.picked(picked), learn)
            decoded.events = some.take(decoded.events)
            decoded.failures = {picked[event]: error for event, error in decoded.failures.items()}
            decoded.suspect = {picked[event]: wrong for event, wrong in decoded.suspect.items()}
            parts.append(_Part(some, decoded))

        self.read_all(candidates, read_fitting, read)
        if candidates is not None and len(candidates) < len(events):
            read(pc.indices_nonzero(pc.invert(pc.is_in(row_indices(len(events)), candidates))).cast(pa.int32()), None)
        if not parts:
            return general(events, None)
        return parts[0].decoded if len(parts) == 1 else _merged(parts)


def array_of(arrow: pa.DataType, buffers: ColumnBuffers) -> pa.Array:
    offsets = [] if buffers.offsets is None else [pa.py_buffer(buffers.offsets)]
    validity = None if buffers.validity is None else pa.py_buffer(buffers.validity)
    return pa.Array.from_buffers(arrow, buffers.length, [validity, *offsets, pa.py_buffer(buffers.data)], buffers.nulls)


def _times(numbers: bytes | None, count: int) -> pa.Int64Array:
    """Make an array of times, where -1 means none."""
    if numbers is None:
        return repeated(None, pa.int64(), count)
    times = numbers_of(pa.int64(), numbers)
    return pc.if_else(pc.less(times, 0), _NO_TIME, times)


def _merged_sorted(some: pa.Int32Array, others: pa.Int32Array) -> pa.Int32Array:
    both = pa.concat_arrays([some, others])
    return both.take(pc.sort_indices(both))


def _of_version(
    version: int,
    boundaries: Sequence[Moment],
    events: TableEvents,
    commit_ts: pa.Int64Array,
    pending: pa.Int32Array | None,
) -> tuple[pa.Int32Array, pa.Int32Array]:
    pending = row_indices(len(commit_ts)) if pending is None else pending
    each = zip(pending.to_pylist(), commit_ts.take(pending).to_pylist(), strict=True)
    fits = pa.array([bisect_left(boundaries, events.moment(event, ts)) == version for event, ts in each], pa.bool_())
    return pending.filter(fits), pending.filter(pc.invert(fits))


# The arrays of `Decoded` with an entry for each image, and for each event; and its counts.
_BY_IMAGE = ("change_types", "events", "indexes")
_BY_EVENT = ("commit_ts", "start_ts", "build_ts", "cluster_id", "placed")
_COUNTS = ("replaced", "parsed", "empty", "claimed", "key_only", "verified")


def _taken(part: _Part, events: pa.Array, images: pa.Array) -> _Part:
    """Take these events and images, in this order."""
    decoded = part.decoded
    taken = replace(
        decoded,
        columns={name: array.take(images) for name, array in decoded.columns.items()},
        **{name: getattr(decoded, name).take(images) for name in _BY_IMAGE},
        **{name: getattr(decoded, name).take(events) for name in _BY_EVENT},
    )
    return _Part(part.own.take(events), taken)


def _merged(parts: Sequence[_Part]) -> Decoded:
    """Merge the parts by event; an event's images are in one part, and sorting keeps their order."""
    decoded = [part.decoded for part in parts]
    joined = Decoded(
        columns={name: pa.concat_arrays([part.columns[name] for part in decoded]) for name in decoded[0].columns},
        failures={event: error for part in decoded for event, error in part.failures.items()},
        suspect={event: wrong for part in decoded for event, wrong in part.suspect.items()},
        **{name: pa.concat_arrays([getattr(part, name) for part in decoded]) for name in (*_BY_IMAGE, *_BY_EVENT)},
        **{name: sum(getattr(part, name) for part in decoded) for name in _COUNTS},
    )
    own = pa.concat_arrays([part.own for part in parts])
    return _taken(_Part(own, joined), pc.sort_indices(own), pc.sort_indices(joined.events)).decoded
