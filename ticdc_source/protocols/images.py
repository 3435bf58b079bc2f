"""Row images: what a protocol parses its events into one by one, and how they become columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import DecodeError, SchemaError
from ticdc_source.events import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE, TableEvents
from ticdc_source.kernels import Cells, failing_cells
from ticdc_source.kernels.json_documents import base64_object, json_object, member_name
from ticdc_source.options.hints import spark_name, string_hint
from ticdc_source.protocols.base import Decoded, LearnedTable
from ticdc_source.protocols.plan import Plan, PlannedColumn, WireOf
from ticdc_source.schema.model import Column

__all__ = ["Images", "Parsed", "Row", "cast_images"]

Row = dict[str, Any]


class Images:
    """The row images of one table events, as parsed: parallel lists, in event order.

    Attributes:
        change_types: what each image is: an index into `events.CHANGE_TYPES`.
        events: each image's event, as a place in the table events.
        indexes: each image's place in its message, from 0.
        rows: each image's cells by column name.
        runs: where the columns change: (first image, columns); the first run starts at 0.
    """

    __slots__ = ("change_types", "events", "indexes", "rows", "runs")

    def __init__(self) -> None:
        self.change_types: list[int] = []
        self.events: list[int] = []
        self.indexes: list[int] = []
        self.rows: list[Row] = []
        self.runs: list[tuple[int, tuple[Column, ...]]] = []

    def add(self, event: int, index: int, before: Row | None, after: Row | None, plan: Plan, *, update: bool) -> None:
        """Add the images of one event, as far as the plan wants them.

        `before` alone is a delete, `after` alone an insert (or, with `update`, an update whose old row the wire
        does not carry), both an update.
        """
        if after is None:
            if "delete" in plan.operations and before is not None:
                self.append(DELETE, event, index, before)
        elif before is None and not update:
            if "insert" in plan.operations:
                self.append(INSERT, event, index, after)
        elif "update" in plan.operations:
            if before is not None and plan.preimages:
                self.append(UPDATE_PREIMAGE, event, index, before)
            self.append(UPDATE_POSTIMAGE, event, index, after)

    def append(self, kind: int, event: int, index: int, row: Row) -> None:
        """Add one image.

        Raises:
            TypeError: `row` is something else.
        """
        if type(row) is not dict:
            msg = f"a row that is a JSON {type(row).__name__}"
            raise TypeError(msg)
        self.change_types.append(kind)
        self.events.append(event)
        self.indexes.append(index)
        self.rows.append(row)

    def take_back(self, count: int) -> None:
        """Drop all images but the first `count`: those of an event that turns out to be broken."""
        for images in (self.change_types, self.events, self.indexes, self.rows):
            del images[count:]

    def start_run(self, columns: tuple[Column, ...]) -> None:
        """Say that the images added from here on have these columns."""
        if self.runs and self.runs[-1][0] == len(self.rows):
            self.runs.pop()
        self.runs.append((len(self.rows), columns))

    def continue_run(self, columns: tuple[Column, ...]) -> None:
        """Say that the images added from here on have these columns, which may be those before had."""
        if not self.runs or self.runs[-1][1] != columns:
            self.start_run(columns)

    def spans(self) -> list[tuple[int, int, tuple[Column, ...]]]:
        """Return the runs that have images: (first, one behind the last, columns)."""
        starts = [start for start, _ in self.runs] + [len(self.rows)]
        return [
            (start, end, columns) for (start, columns), end in zip(self.runs, starts[1:], strict=True) if start < end
        ]


@dataclass(slots=True, kw_only=True)
class Parsed:
    """One table events while its events are parsed one by one; `decoded` says of the lists what they become.

    Attributes:
        images: the images so far.
        commit_ts, build_ts, cluster_id: per event; None until it was read, and where the wire has none.
        failures, empty, claimed, key_only: as those of `Decoded`.
    """

    images: Images
    commit_ts: list[int | None]
    build_ts: list[int | None]
    cluster_id: list[str | None]
    failures: dict[int, DecodeError] = field(default_factory=dict)
    empty: int = 0
    claimed: int = 0
    key_only: int = 0

    @classmethod
    def of(cls, count: int) -> Parsed:
        """Return so many events, of which none was parsed."""
        return cls(images=Images(), commit_ts=[None] * count, build_ts=[None] * count, cluster_id=[None] * count)

    def decoded(self, columns: dict[str, pa.Array]) -> Decoded:
        """Return what was parsed as arrays, beside the columns of its images."""
        images = self.images
        return Decoded(
            change_types=pa.array(images.change_types, pa.int8()),
            events=pa.array(images.events, pa.int32()),
            indexes=pa.array(images.indexes, pa.int32()),
            columns=columns,
            commit_ts=pa.array(self.commit_ts, pa.int64()),
            build_ts=pa.array(self.build_ts, pa.int64()),
            cluster_id=pa.array(self.cluster_id, pa.string()),
            failures=self.failures,
            parsed=len(images.rows),
            empty=self.empty,
            claimed=self.claimed,
            key_only=self.key_only,
        )


@dataclass(slots=True, kw_only=True)
class _Cast:
    """What is learned while the images of one table events are cast.

    Attributes:
        images, events, plan: what is cast.
        failures: errors by event.
        saved: members of the rescued column's JSON, by image.
        replaced: texts that are not UTF-8.
    """

    images: Images
    events: TableEvents
    plan: Plan
    failures: dict[int, DecodeError] = field(default_factory=dict)
    saved: dict[int, list[str]] = field(default_factory=dict)
    replaced: int = 0

    def save(self, image: int, name: str, value: str) -> None:
        """Keep a value's JSON for the rescued column."""
        self.saved.setdefault(image, []).append(member_name(name) + value)

    def rescued(self) -> pa.Array:
        """Return the rescued column."""
        saved = (self.saved.get(image) for image in range(len(self.images.rows)))
        return pa.array([None if members is None else json_object(members) for members in saved], pa.string())


def cast_images(parsed: Parsed, events: TableEvents, learned: LearnedTable, wire_of: WireOf) -> Decoded:
    """Turn parsed images into one array per field of the plan; events with a bad value fail, and have none.

    Raises:
        SchemaError: as `Plan.for_columns`, with the address of the first event that shows it.
    """
    images, plan = parsed.images, learned.plan
    if plan.documents is not None:
        columns_out, failures = plan.documents(images, events, plan, wire_of)
        return _without(failures, parsed.decoded(columns_out))
    cast = _Cast(images=images, events=events, plan=plan)
    parts: dict[str, list[pa.Array]] = {wanted.name: [] for wanted in plan.fields}
    for start, end, columns in images.spans():
        try:
            planned = learned.planned(columns, wire_of)
        except SchemaError as error:
            msg = f"{error} ({events.address(images.events[start])})"
            raise type(error)(msg) from None
        rows = images.rows[start:end]
        cells = _cells(rows, [item.source for item in planned.columns if item.source is not None])
        for item in planned.columns:
            parts[item.field.name].append(_cast(item, rows, cells, start, cast))
        for unknown_column in planned.unknown:
            there = [place for place, row in enumerate(rows) if unknown_column.source in row]
            for place, value in zip(
                there, unknown_column.run([rows[place][unknown_column.source] for place in there]), strict=True
            ):
                cast.save(start + place, unknown_column.source, value)
    columns_out = {
        wanted.name: _joined(parts[wanted.name]) if parts[wanted.name] else pa.array([], wanted.arrow)
        for wanted in plan.fields
    }
    if plan.rescued is not None:
        columns_out[plan.rescued] = cast.rescued()
    decoded = parsed.decoded(columns_out)
    decoded.replaced = cast.replaced
    return _without(cast.failures, decoded)


def _without(failures: dict[int, DecodeError], decoded: Decoded) -> Decoded:
    """Note events that fail, and drop their images."""
    if failures:
        keep = pc.invert(pc.is_in(decoded.events, value_set=pa.array(list(failures), pa.int32())))
        decoded.change_types, decoded.events, decoded.indexes = (
            array.filter(keep) for array in (decoded.change_types, decoded.events, decoded.indexes)
        )
        decoded.columns = {name: array.filter(keep) for name, array in decoded.columns.items()}
        decoded.failures.update(failures)
    return decoded


def _joined(parts: list[pa.Array]) -> pa.Array:
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _cells(rows: list[Row], names: list[str]) -> dict[str, Cells]:
    """Return the rows' cells by column; None where a row lacks one."""
    if len(names) > 1:  # itemgetter gives a tuple
        try:
            return dict(zip(names, zip(*map(itemgetter(*names), rows), strict=True), strict=True))
        except KeyError:
            pass
    return {name: [row.get(name) for row in rows] for name in names}


def _cast(item: PlannedColumn, rows: list[Row], columns: dict[str, Cells], start: int, cast: _Cast) -> pa.Array:
    if item.run is None or item.source is None:
        return pa.nulls(len(rows), item.field.arrow)
    name = item.source
    cells = columns[name]
    try:
        array = item.run(cells)
    except Exception:  # noqa: BLE001 (whatever a kernel raises on garbage gets its address here)
        bad = failing_cells(item.run, cells)
    else:
        _keep_bytes(item, name, cells, array, start, cast)
        return array
    cells = list(cells)
    for place, reason in bad.items():
        event = cast.images.events[start + place]
        if item.rescue is not None:
            cast.save(start + place, name, item.rescue([cells[place]])[0])
        else:
            message = f"value {reason}. It does not fit {spark_name(item.field.arrow)}"
            if item.field.arrow != pa.string():
                message += f": {string_hint(name)}"
            cast.failures.setdefault(event, DecodeError(message, cast.events.address(event, name)))
        cells[place] = None
    try:
        array = item.run(cells)
    except Exception as error:
        msg = f"the values from here on do not make a column: {error}"
        raise DecodeError(msg, cast.events.address(cast.images.events[start], name)) from error
    _keep_bytes(item, name, cells, array, start, cast)
    return array


_REPLACEMENT = "\ufffd"
_REPLACEMENT_BYTES = _REPLACEMENT.encode()


def _keep_bytes(item: PlannedColumn, name: str, cells: Cells, array: pa.Array, start: int, cast: _Cast) -> None:
    """Count the texts in which a kernel put U+FFFD for what is no UTF-8, and keep their bytes for the rescued column.

    One look through the column's bytes tells whether there is any: U+FFFD may also be what was written.
    """
    data = array.buffers()[2] if item.raw is not None else None
    if item.raw is None or data is None or _REPLACEMENT_BYTES not in data.to_pybytes():
        return
    for place in pc.indices_nonzero(pc.match_substring(array, _REPLACEMENT)).to_pylist():
        raw = item.raw([cells[place]])[0].as_py()
        try:
            raw.decode()
        except UnicodeDecodeError:
            cast.replaced += 1
            if cast.plan.rescued is not None:
                cast.save(start + place, name, base64_object(raw))
