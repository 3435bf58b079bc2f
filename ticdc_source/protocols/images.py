"""Row images, collected by a decoder that parses a table's events one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from operator import itemgetter
from typing import Any, NamedTuple, NoReturn, TypeAlias

import pyarrow as pa

from ticdc_source.kernels.wire import Cells
from ticdc_source.protocols.base import Decoded, Findings
from ticdc_source.protocols.messages import JSONObject, parse_object
from ticdc_source.protocols.plan import Plan
from ticdc_source.protocols.templates import KeepTemplate
from ticdc_source.schema.change_order import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE
from ticdc_source.schema.model import Column

# The cells of a row by column name. Any, because a cell is any parsed JSON value; the kernels check it.
Row = dict[str, Any]
# Parses a JSON object: `parse_object` or `parse_exact`.
Parse: TypeAlias = Callable[[bytes], JSONObject]


# The change type of an operation's main image.
_MAIN_IMAGE = {"insert": INSERT, "update": UPDATE_POSTIMAGE, "delete": DELETE}


class Span(NamedTuple):
    """Consecutive images with the same columns, up to the exclusive `end`."""

    start: int
    end: int
    columns: tuple[Column, ...]


class _Absent:
    """The cell of a column that a row lacks; only documents distinguish it from NULL."""


ABSENT = _Absent()


def with_old_columns(row: Row, old: object) -> Row:
    """Append the columns that only the old row has."""
    if type(old) is not dict or old.keys() <= row.keys():
        return row
    return {**row, **{name: cell for name, cell in old.items() if name not in row}}


class Images:
    """The parsed row images of one table's events: parallel lists, in the order of the events.

    Rows are stored as tuples of cells, so that their dicts are freed while in the processor's cache. `continue_run`
    must be called before the first `add`.

    Attributes:
        rows: per image, a cell for each column of its run; `ABSENT` for a column that the row lacks.
        runs: consecutive images with the same columns: (index of the first image, columns).
    """

    __slots__ = ("_cells_of", "_has_absent", "change_types", "events", "indexes", "rows", "runs")

    def __init__(self) -> None:
        self.change_types: list[int] = []
        self.events: list[int] = []
        self.indexes: list[int] = []
        self.rows: list[tuple[Any, ...]] = []
        self.runs: list[tuple[int, tuple[Column, ...]]] = []
        self._has_absent = False
        self._cells_of: Callable[[Row], tuple[Any, ...]] = _getter(())

    def add(self, event: int, index: int, operation: str, row: Row, old: Row | None, plan: Plan) -> None:
        """Add the images of one event that the plan wants.

        Args:
            index: the index of the row in the message.
            row: the new row, or a delete's deleted row.
            old: an update's old row, if the message has it; missing columns have the new row's values (docs/wire.md,
                item 11).
        """
        if operation not in plan.operations:
            return
        if operation == "update" and old is not None and plan.preimages:
            self.append(UPDATE_PREIMAGE, event, index, old, row)
        self.append(_MAIN_IMAGE[operation], event, index, row)

    def append(self, change_type: int, event: int, index: int, row: Row, rest: Row | None = None) -> None:
        """Append one image; columns missing in `row` get the cells of `rest`.

        Raises:
            TypeError: the row is not a JSON object.
        """
        try:
            cells = self._cells_of(row)
        except (KeyError, TypeError):
            cells = self._cells_that_are_there(row, rest or {})
        self.change_types.append(change_type)
        self.events.append(event)
        self.indexes.append(index)
        self.rows.append(cells)

    def _cells_that_are_there(self, row: Row, rest: Row) -> tuple[Any, ...]:
        if type(row) is not dict:
            _no_row(row)
        cells = tuple((row if column.name in row else rest).get(column.name, ABSENT) for column in self.runs[-1][1])
        self._has_absent |= ABSENT in cells
        return cells

    def truncate(self, count: int) -> None:
        """Keep the first `count` images; the others came from an unreadable event."""
        for images in (self.change_types, self.events, self.indexes, self.rows):
            del images[count:]

    def continue_run(self, columns: tuple[Column, ...]) -> None:
        """Continue the last run if it has these columns, else start one for the following images."""
        runs = self.runs
        if not runs or runs[-1][1] != columns:
            if runs and runs[-1][0] == len(self.rows):
                runs.pop()
            runs.append((len(self.rows), columns))
            self._cells_of = _getter([column.name for column in columns])

    def spans(self) -> list[Span]:
        ends = [*(start for start, _ in self.runs), len(self.rows)][1:]
        runs = zip(self.runs, ends, strict=True)
        return [Span(start, end, columns) for (start, columns), end in runs if start < end]

    def cells(self, span: Span) -> dict[str, Cells]:
        return self.with_nulls(self.cells_or_absent(span))

    def with_nulls(self, cells: dict[str, Sequence[Any]]) -> dict[str, Cells]:
        if not self._has_absent:
            return cells
        return {name: [None if cell is ABSENT else cell for cell in each] for name, each in cells.items()}

    def cells_or_absent(self, span: Span) -> dict[str, Sequence[Any]]:
        """Return a run's cells by column name; `ABSENT` for columns that a row lacks."""
        names = [column.name for column in span.columns]
        return dict(zip(names, zip(*self.rows[span.start : span.end], strict=True), strict=True))


def _getter(names: Sequence[str]) -> Callable[[Row], tuple[Any, ...]]:
    """Like `itemgetter`, but it always returns tuples."""
    if len(names) > 1:
        return itemgetter(*names)

    def of_few(row: Row) -> tuple[Any, ...]:  # itemgetter makes no tuple of one name
        return tuple(row[name] for name in names) if type(row) is dict else _no_row(row)

    return of_few


def _no_row(row: object) -> NoReturn:
    raise TypeError(f"a row that is {row!r:.40} and not a JSON object")


@dataclass(slots=True, kw_only=True)
class Parsed(Findings):
    """What was parsed of one table's events so far.

    Attributes:
        commit_ts, start_ts, build_ts, cluster_id, placed: per event, as in `Decoded`; None or False at first.
        learn: takes the template of each event, if set.
    """

    images: Images
    commit_ts: list[int | None]
    start_ts: list[int | None]
    build_ts: list[int | None]
    cluster_id: list[str | None]
    placed: list[bool]
    parse: Parse = parse_object
    learn: KeepTemplate | None = None

    @classmethod
    def of(cls, count: int, parse: Parse = parse_object, learn: KeepTemplate | None = None) -> Parsed:
        return cls(
            images=Images(),
            commit_ts=[None] * count,
            start_ts=[None] * count,
            build_ts=[None] * count,
            cluster_id=[None] * count,
            placed=[False] * count,
            parse=parse,
            learn=learn,
        )

    def decoded(self, columns: dict[str, pa.Array]) -> Decoded:
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
            placed=pa.array(self.placed, pa.bool_()),
            parsed=len(images.rows),
            **{each.name: getattr(self, each.name) for each in fields(Findings)},
        )
