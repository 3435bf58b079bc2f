"""The contract of a protocol, and what all protocols share: from parsed row images to Arrow columns.

A protocol is three verbs over the stages of docs/design/0001: `split`, `describe`, `decode`. It keeps no state
between chunks; the plan that it is handed caches what was decided once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from ticdc_source.errors import DecodeError, SchemaError
from ticdc_source.events import (
    DELETE,
    INSERT,
    UPDATE_POSTIMAGE,
    UPDATE_PREIMAGE,
    Chunk,
    DDLEvent,
    Split,
    TableEvents,
    TableName,
)
from ticdc_source.kernels import Kernel, Settings, Wire, failing_cells, kernel
from ticdc_source.schema import Column, ReadField, TableSchema
from ticdc_source.types import ColumnType

__all__ = [
    "MALFORMED",
    "Decoded",
    "Decoder",
    "Images",
    "Plan",
    "WireOf",
    "cast_images",
    "milliseconds",
    "parse_failure",
    "table_name",
    "text",
    "tso",
]

# What taking a message apart raises where it is not of the shape its protocol promises.
MALFORMED = (DecodeError, ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError)

_2_63 = 1 << 63

Row = dict[str, Any]
# Chooses how a message's column is read as a field of the read schema: its wire form, and its type.
WireOf = Callable[[Column, ReadField], tuple[Wire | None, ColumnType]]


class Images:
    """The row images of one tray, as parsed: parallel lists, in event order.

    Attributes:
        kinds: what each image is: an index into `events.CHANGE_TYPES`.
        events: each image's event, as a place in the tray.
        indexes: each image's place in its message, from 0.
        rows: each image's cells by column name.
        runs: where the columns change: (first image, columns); the first run starts at 0.
    """

    __slots__ = ("events", "indexes", "kinds", "rows", "runs")

    def __init__(self) -> None:
        self.kinds: list[int] = []
        self.events: list[int] = []
        self.indexes: list[int] = []
        self.rows: list[Row] = []
        self.runs: list[tuple[int, tuple[Column, ...]]] = []

    def add(  # noqa: PLR0913 (one event's rows and where they were)
        self, event: int, index: int, before: Row | None, after: Row | None, plan: Plan, *, update: bool
    ) -> None:
        """Add the images of one event, as far as the plan wants them.

        `before` alone is a delete, `after` alone an insert (or, with `update`, an update whose old row the wire
        does not carry), both an update.
        """
        if after is None:
            if "delete" in plan.operations and before is not None:
                self._append(DELETE, event, index, before)
        elif before is None and not update:
            if "insert" in plan.operations:
                self._append(INSERT, event, index, after)
        elif "update" in plan.operations:
            if before is not None and plan.preimages:
                self._append(UPDATE_PREIMAGE, event, index, before)
            self._append(UPDATE_POSTIMAGE, event, index, after)

    def _append(self, kind: int, event: int, index: int, row: Row) -> None:
        self.kinds.append(kind)
        self.events.append(event)
        self.indexes.append(index)
        self.rows.append(row)

    def start_run(self, columns: tuple[Column, ...]) -> None:
        """Say that the images added from here on have these columns."""
        if self.runs and self.runs[-1][0] == len(self.rows):
            self.runs.pop()
        self.runs.append((len(self.rows), columns))

    def spans(self) -> list[tuple[int, int, tuple[Column, ...]]]:
        """Return the runs that have images: (first, one behind the last, columns)."""
        starts = [start for start, _ in self.runs] + [len(self.rows)]
        return [
            (start, end, columns)
            for (start, columns), end in zip(self.runs, starts[1:], strict=True)
            if start < end
        ]


@dataclass(slots=True)
class Decoded:
    """One tray, decoded: what is per event, and what is per image.

    Attributes:
        images: which they are (their rows have become `columns`).
        columns: per field of the read schema, one array with a value an image.
        commit_ts: per event; None where the event could not be read.
        build_ts: per event, when TiCDC encoded it, ms since the epoch; None where the wire has none.
        cluster_id: per event, likewise.
        failures: events that could not be read, none of whose images are here.
    """

    images: Images
    columns: dict[str, pa.Array]
    commit_ts: list[int | None]
    build_ts: list[int | None]
    cluster_id: list[str | None]
    failures: dict[int, DecodeError] = field(default_factory=dict)


class _Planned(NamedTuple):
    """A field of the read schema, planned for one version of the table."""

    field: ReadField
    source: str | None  # the column's name in these messages; None where they lack it
    run: Kernel | None


@dataclass(slots=True)
class Plan:
    """What a read wants of a table: fixed once, run for every tray.

    Attributes:
        fields: the table columns of the read schema.
        settings: what kernels obey.
        operations: the operations wanted, of insert, update, delete.
        preimages: whether the rows before an update are wanted.
        known: lower-case names of all columns that inference saw; None where it did not run, so that a column
            the schema lacks is one the user left out.
    """

    fields: tuple[ReadField, ...]
    settings: Settings = Settings()
    operations: frozenset[str] = frozenset({"insert", "update", "delete"})
    preimages: bool = True
    known: frozenset[str] | None = None
    _cache: dict[tuple[Column, ...], tuple[_Planned, ...]] = field(default_factory=dict)

    def boundaries(self) -> list[int]:
        """Return where versions of a column begin that messages do not tell apart: commit_ts of DDL, rising."""
        return sorted({start for wanted in self.fields for start, _ in wanted.versions})

    def for_columns(self, columns: tuple[Column, ...], wire_of: WireOf) -> tuple[_Planned, ...]:
        """Return, for one version of the table, the kernel of each field; made at first sight, then cached.

        Raises:
            SchemaError: a column is new, or cannot be read as the read schema wants it.
        """
        planned = self._cache.get(columns)
        if planned is None:
            self._refuse_drift(columns)
            by_name = {column.name.lower(): column for column in columns}
            planned = self._cache[columns] = tuple(
                self._plan_field(wanted, by_name.get(wanted.name.lower()), wire_of) for wanted in self.fields
            )
        return planned

    def _plan_field(self, wanted: ReadField, column: Column | None, wire_of: WireOf) -> _Planned:
        if column is None:
            return _Planned(wanted, None, None)
        wire, type_ = wire_of(column, wanted)
        try:
            return _Planned(wanted, column.name, kernel(wire, type_, wanted.arrow, self.settings))
        except SchemaError as error:
            raise type(error)(f"Column {column.name}: {error}") from None

    def _refuse_drift(self, columns: tuple[Column, ...]) -> None:
        if self.known is None:
            return
        new = [column for column in columns if column.name.lower() not in self.known]
        if new:
            listed = ", ".join(f"{column.name} {column.type or ''}".strip() for column in new)
            msg = (
                f"the messages have columns that the schema lacks: {listed}. Load the source again to infer the "
                "schema anew, or set onSchemaDrift=ignore to leave them out"
            )
            raise SchemaError(msg)


class Decoder(Protocol):
    """What a protocol can do; one implementation a module of this package, listed in `PROTOCOLS`."""

    name: str
    kernels: Mapping[str, Wire]

    def split(self, chunk: Chunk) -> Split:
        """Cut a chunk into events; never raises, what cannot be cut goes to `Split.corrupt`."""

    def describe(self, events: TableEvents, ddl: Sequence[DDLEvent] = ()) -> list[TableSchema]:
        """Say what these events, and DDL events of the same table, tell of the table: its versions, in order.

        Events that cannot be read are passed over: `decode` reports them.
        """

    def decode(self, events: TableEvents, plan: Plan) -> Decoded:
        """Turn a tray into columns.

        Raises:
            SchemaError: the messages do not fit the plan's fields.
        """

    def recognises(self, key: bytes | None, value: bytes | None) -> bool:
        """Tell whether a record looks like this protocol's (its first bytes; nothing is decoded)."""


def cast_images(images: Images, events: TableEvents, plan: Plan, wire_of: WireOf) -> tuple[Images, dict[str, pa.Array], dict[int, DecodeError]]:
    """Turn parsed images into one array per field of the plan; drop the images of events with a bad value.

    Returns:
        The images that are left, their columns, and the errors by event.

    Raises:
        SchemaError: as `Plan.for_columns`, with the address of the first event that shows it.
    """
    failures: dict[int, DecodeError] = {}
    parts: dict[str, list[pa.Array]] = {wanted.name: [] for wanted in plan.fields}
    for start, end, columns in images.spans():
        try:
            planned = plan.for_columns(columns, wire_of)
        except SchemaError as error:
            raise type(error)(f"{error} ({events.address(images.events[start])})") from None
        rows = images.rows[start:end]
        for item in planned:
            parts[item.field.name].append(_cast(item, rows, start, images, events, failures))
    columns_out = {
        wanted.name: pa.concat_arrays(parts[wanted.name]) if parts[wanted.name] else pa.array([], wanted.arrow)
        for wanted in plan.fields
    }
    if failures:
        keep = [event not in failures for event in images.events]
        mask = pa.array(keep, pa.bool_())
        columns_out = {name: array.filter(mask) for name, array in columns_out.items()}
        left = Images()
        left.kinds = [kind for kind, kept in zip(images.kinds, keep, strict=True) if kept]
        left.events = [event for event, kept in zip(images.events, keep, strict=True) if kept]
        left.indexes = [index for index, kept in zip(images.indexes, keep, strict=True) if kept]
        images = left
    return images, columns_out, failures


def _cast(
    item: _Planned, rows: list[Row], start: int, images: Images, events: TableEvents, failures: dict[int, DecodeError]
) -> pa.Array:
    if item.run is None or item.source is None:
        return pa.nulls(len(rows), item.field.arrow)
    name = item.source
    cells = [row.get(name) for row in rows]
    try:
        return item.run(cells)
    except Exception:  # noqa: BLE001 (whatever a kernel raises on garbage gets its address here)
        bad = failing_cells(item.run, cells)
    for place, reason in bad.items():
        event = images.events[start + place]
        message = (
            f"value {reason}. It does not fit {item.field.arrow}: schemaHints=\"{name} string\" reads its text"
        )
        failures.setdefault(event, DecodeError(message, events.address(event, name)))
        cells[place] = None
    return item.run(cells)


def tso(value: Any) -> int:
    """Return a commit-ts or watermark that a message holds.

    Raises:
        TypeError: it is not a JSON integer.
        ValueError: it is not a TSO: these are positive and have 63 bits.
    """
    if type(value) is not int:
        msg = f"a timestamp {value!r}"
        raise TypeError(msg)
    if not 0 <= value < _2_63:
        msg = f"a timestamp {value!r}"
        raise ValueError(msg)
    return value


def milliseconds(value: Any) -> int | None:
    """Return a wall-clock time that a message holds, in ms since the epoch; None for none and for 0 (unset).

    Raises:
        TypeError, ValueError: as `tso`, and it must leave room for a TSO's logical bits.
    """
    return tso(value << 18) >> 18 if value else None


def text(value: Any) -> str:
    """Return a name that a message holds.

    Raises:
        TypeError: it is not a JSON string.
        ValueError: it is not UTF-8 (a lone surrogate stands for a byte that is none).
    """
    if type(value) is not str:
        msg = f"{value!r} where a name is expected"
        raise TypeError(msg)
    if not value.isascii():
        value.encode()
    return value


def table_name(database: Any, table: Any) -> TableName:
    """Return the table that a message names; None stands for no name.

    Raises:
        TypeError, ValueError: as `text`.
    """
    return TableName(text("" if database is None else database), text("" if table is None else table))


def parse_failure(error: Exception, what: str) -> DecodeError:
    """Make the error for an event that is not what its protocol promises."""
    if isinstance(error, DecodeError):
        return error
    detail = f"no member {error}" if isinstance(error, KeyError) else str(error)
    return DecodeError(f"not {what}: {detail.splitlines()[0] if detail else type(error).__name__}")
