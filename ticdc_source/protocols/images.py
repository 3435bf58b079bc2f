"""Row images, collected by a decoder that parses a table's events one by one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa

from ticdc_source.errors import DecodeError
from ticdc_source.events import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE
from ticdc_source.kernels.wire import Cell, Cells
from ticdc_source.protocols.base import Decoded
from ticdc_source.protocols.plan import Plan
from ticdc_source.schema.model import Column

__all__ = ["Images", "Parsed", "Row", "Run", "Span", "Version"]

# The cells of a row by column name. Any, because a cell is any parsed JSON value; the kernels check it.
Row = dict[str, Any]


class Run(NamedTuple):
    """Consecutive images with the same columns and the same names.

    Attributes:
        start: the index of the first image.
        columns: what the messages say of the columns.
        names: the column names of the rows' cells, in order.
    """

    start: int
    columns: tuple[Column, ...]
    names: tuple[str, ...]


class Span(NamedTuple):
    """A run, and the index after its last image."""

    start: int
    end: int
    columns: tuple[Column, ...]
    names: tuple[str, ...]


class Version(NamedTuple):
    """What consecutive images with the same columns show of them.

    Attributes:
        start: the index of the first image.
        columns: the columns.
        cells: per column, the cells of all images; None if the row has no such column.
    """

    start: int
    columns: tuple[Column, ...]
    cells: list[list[Cell]]


class Images:
    """The parsed row images of one table's events: parallel lists, in the order of the events.

    Each row is stored as a tuple of cells. Its dict is freed at once, while it is still in the processor's cache.
    `continue_run` is called before the first `add`; after `drop`, nothing is added.

    Attributes:
        change_types: per image, an index into `events.CHANGE_TYPES`.
        events: per image, the index of its event among the table's events.
        indexes: per image, the index of its row in the message, from 0.
        rows: per image, its cells in the order of its run's names.
        runs: the runs. The first one starts at 0.
    """

    __slots__ = ("_cells_of", "change_types", "events", "indexes", "rows", "runs")

    def __init__(self) -> None:
        self.change_types: list[int] = []
        self.events: list[int] = []
        self.indexes: list[int] = []
        self.rows: list[tuple[Any, ...]] = []
        self.runs: list[Run] = []
        self._cells_of: Callable[[Row], tuple[Any, ...]] = _no_cells  # of a row that has all names of the last run

    def add(self, event: int, index: int, before: Row | None, after: Row | None, plan: Plan, *, update: bool) -> None:
        """Add the images of one event, without those that the plan leaves out.

        Args:
            event: the index of the event among the table's events.
            index: the index of the row in the message.
            before: the old row; if `after` is None, the event is a delete.
            after: the new row; if `before` is None, the event is an insert, or with `update` an update that lacks it.
            plan: says which operations to keep, and whether to keep preimages.
            update: whether the event is an update, with or without its old row.
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

    def append(self, change_type: int, event: int, index: int, row: Row) -> None:
        """Append one image.

        Raises:
            TypeError: the row is not a JSON object.
        """
        try:
            cells = self._cells_of(row)
            if len(cells) != len(row):
                cells = self._cells_of_other_names(row)
        except (KeyError, TypeError):
            cells = self._cells_of_other_names(row)
        self.rows.append(cells)
        self.change_types.append(change_type)
        self.events.append(event)
        self.indexes.append(index)

    def _cells_of_other_names(self, row: Row) -> tuple[Any, ...]:
        """Return the cells of a row that has other names than the run, and start a run for it."""
        if type(row) is not dict:
            msg = f"a row that is {row!r:.40} and not a JSON object"
            raise TypeError(msg)
        names = tuple(row)
        if names != self.runs[-1].names:
            self._start_run(self.runs[-1].columns, names)
        return tuple(row.values())

    def truncate(self, count: int) -> None:
        """Keep the first `count` images only: the others came from an event that cannot be read.

        The decoder still knows the last columns that it has passed to `continue_run`: the last run keeps them.
        """
        last = self.runs[-1] if self.runs else None
        for images in (self.change_types, self.events, self.indexes, self.rows):
            del images[count:]
        if last is not None and last.start > count:
            self.runs = [run for run in self.runs if run.start <= count]
            self._start_run(last.columns, last.names)

    def drop(self, events: Collection[int]) -> None:
        """Drop the images of events that have turned out to be wrong."""
        kept = [image for image, event in enumerate(self.events) if event not in events]
        layouts = [(span.columns, span.names) for span in self.spans() for _ in range(span.start, span.end)]
        self.change_types = [self.change_types[image] for image in kept]
        self.indexes = [self.indexes[image] for image in kept]
        self.rows = [self.rows[image] for image in kept]
        self.events = [self.events[image] for image in kept]
        self.runs = []
        for position, image in enumerate(kept):
            columns, names = layouts[image]
            if not self.runs or (self.runs[-1].columns, self.runs[-1].names) != (columns, names):
                self.runs.append(Run(position, columns, names))

    def continue_run(self, columns: tuple[Column, ...]) -> None:
        """Continue the last run if it has these columns; else start one, for the images that are added from here on."""
        if not self.runs or self.runs[-1].columns != columns:
            self._start_run(columns, tuple(column.name for column in columns))

    def _start_run(self, columns: tuple[Column, ...], names: tuple[str, ...]) -> None:
        if self.runs and self.runs[-1].start == len(self.rows):
            self.runs.pop()
        self.runs.append(Run(len(self.rows), columns, names))
        # With one name, itemgetter returns no tuple.
        self._cells_of = itemgetter(*names) if len(names) > 1 else _no_cells

    def spans(self) -> list[Span]:
        """Return the runs that have images."""
        ends = [*(run.start for run in self.runs), len(self.rows)][1:]
        return [
            Span(run.start, end, run.columns, run.names)
            for run, end in zip(self.runs, ends, strict=True)
            if run.start < end
        ]

    def cells(self, span: Span) -> dict[str, Cells]:
        """Return the cells of a run's rows by the name of their column."""
        return dict(zip(span.names, zip(*self.rows[span.start : span.end], strict=True), strict=True))

    def versions(self) -> list[Version]:
        """Return what runs show. Neighbouring runs with equal columns are one version, even if their names differ."""
        versions: list[Version] = []
        for span in self.spans():
            cells = self.cells(span)
            parts = [cells.get(column.name, [None] * (span.end - span.start)) for column in span.columns]
            if versions and versions[-1].columns == span.columns:
                for kept, more in zip(versions[-1].cells, parts, strict=True):
                    kept.extend(more)
            else:
                versions.append(Version(span.start, span.columns, [list(part) for part in parts]))
        return versions


def _no_cells(row: Row) -> tuple[Any, ...]:
    """Raise an error, so that `Images.append` looks at the row's names."""
    raise KeyError(row)


@dataclass(slots=True, kw_only=True)
class Parsed:
    """What is parsed of one table's events so far.

    Attributes:
        images: the row images.
        commit_ts, start_ts, build_ts, cluster_id: per event, as in `Decoded`; None until the event is parsed.
        failures, empty, claimed, key_only, verified, suspect: as in `Decoded`.
        stated: the rows whose checksums are to be verified; the decoder knows their type.
    """

    images: Images
    commit_ts: list[int | None]
    start_ts: list[int | None]
    build_ts: list[int | None]
    cluster_id: list[str | None]
    failures: dict[int, DecodeError] = field(default_factory=dict)
    empty: int = 0
    claimed: int = 0
    key_only: int = 0
    verified: int = 0
    suspect: dict[int, str] = field(default_factory=dict)
    stated: list[Any] = field(default_factory=list)

    @classmethod
    def of(cls, count: int) -> Parsed:
        """Return the state before the first of `count` events is parsed."""
        return cls(
            images=Images(),
            commit_ts=[None] * count,
            start_ts=[None] * count,
            build_ts=[None] * count,
            cluster_id=[None] * count,
        )

    def decoded(self, columns: dict[str, pa.Array]) -> Decoded:
        """Return the lists as arrays, with these columns of the images."""
        images = self.images
        return Decoded(
            change_types=pa.array(images.change_types, pa.int8()),
            events=pa.array(images.events, pa.int32()),
            indexes=pa.array(images.indexes, pa.int32()),
            columns=columns,
            commit_ts=pa.array(self.commit_ts, pa.int64()),
            start_ts=pa.array(self.start_ts, pa.int64()),
            build_ts=pa.array(self.build_ts, pa.int64()),
            cluster_id=pa.array(self.cluster_id, pa.string()),
            failures=self.failures,
            parsed=len(images.rows),
            empty=self.empty,
            claimed=self.claimed,
            key_only=self.key_only,
            verified=self.verified,
            suspect=self.suspect,
        )
