"""Verifying the checksums of avro: those in the fields of a row, over the columns in the order of the table.

The fields of a schema with checksums are in the order of the columns' ids (docs/wire.md, item 50). It is that of the
table, unless DDL with FIRST or AFTER has put a column elsewhere. Messages do not give the order of the table, but
`tableDDL` may, and rows show it: it is the one in which all rows of a schema fit their checksums. Orders that differ in
one column from that of the fields, or from that of a schema before it, are tried.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timezone

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.events import TableEvents
from ticdc_source.kernels.wire import Settings, text_bytes
from ticdc_source.protocols.checksums import row_checksum
from ticdc_source.protocols.images import Parsed, Row
from ticdc_source.registries.lookup import SchemaId
from ticdc_source.schema.model import Column
from ticdc_source.schema.types import INTEGERS, TIMESTAMP_NTZ, ColumnType

__all__ = ["ChecksumRow", "Orders", "checksum_rows", "wrong_checksums"]

_log = logging.getLogger(__name__)
_2_64 = 1 << 64
_TRIES = 16
_OR_THE_ZONE = " (or the changefeed writes TIMESTAMP in another time zone than {!r}: see the option timeZone)"

Order = tuple[int, ...]
Cell = tuple[ColumnType, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecksumRow:
    """A row with a checksum.

    Attributes:
        event: the index of its event.
        schema_id: the id of its schema.
        columns: its columns, in the order of the fields.
        row: its cells.
        stated: the checksum; None if TiDB has computed none.
        is_corrupted: whether TiCDC found that the row does not fit it.
    """

    event: int
    schema_id: SchemaId
    columns: Sequence[Column]
    row: Row
    stated: int | None
    is_corrupted: bool


@dataclass(slots=True)
class Orders:
    """What a read has learned of the order of a table's columns.

    Attributes:
        possible: the orders that its rows allow, by the id of the schema.
        last_names: the names of the columns in lower case, in the order that was learned last; at first, that of
            `tableDDL`.
        tries: how many rows with a schema fitted no order that was tried.
        has_warned: whether it was said that rows cannot be verified.
    """

    possible: dict[SchemaId, list[Order]] = field(default_factory=dict)
    last_names: tuple[str, ...] = ()
    tries: Counter[SchemaId] = field(default_factory=Counter)
    has_warned: bool = False

    def learn(self, row: ChecksumRow, cells: Sequence[Cell]) -> None:
        """Learn from a row. One that fits none of the possible orders has wrong values, or values of other columns."""
        possible = self.possible.get(row.schema_id)
        if possible is None:
            if self.tries[row.schema_id] >= _TRIES:
                return
            possible = [order for order in dict.fromkeys(self._tried(row)) if _fits(row, cells, order)]
            if not possible:
                self.tries[row.schema_id] += 1
                return
        elif not _fits(row, cells, possible[0]):
            possible = [order for order in possible[1:] if _fits(row, cells, order)] or possible
        self.possible[row.schema_id] = possible
        self.last_names = tuple(row.columns[index].name.lower() for index in possible[0])

    def _tried(self, row: ChecksumRow) -> Iterator[Order]:
        names = [column.name.lower() for column in row.columns]
        kept = [names.index(name) for name in self.last_names if name in names]
        added = [index for index in range(len(names)) if index not in kept]
        for order in (tuple(range(len(names))), (*kept, *added)):
            yield order
            for column in order:
                others = tuple(index for index in order if index != column)
                for place in range(len(order)):
                    yield (*others[:place], column, *others[place:])


def checksum_rows(parsed: Parsed, schema_ids: Sequence[SchemaId]) -> list[ChecksumRow]:
    """Return the rows that state a checksum. Of an update it is that of the new row.

    Args:
        parsed: the events of a table.
        schema_ids: the id of each event's schema.
    """
    images = parsed.images
    last = {event: image for image, event in enumerate(images.events)}
    columns_of = [columns for start, end, columns in images.spans() for _ in range(start, end)]
    return [
        ChecksumRow(
            event=event,
            schema_id=schema_ids[event],
            columns=columns_of[last[event]],
            row=images.rows[last[event]],
            stated=int(text) if text.isdecimal() else None,
            is_corrupted=is_corrupted,
        )
        for event, (text, is_corrupted) in parsed.stated.items()
        if event in last
    ]


def wrong_checksums(
    rows: Sequence[ChecksumRow], orders: Orders, events: TableEvents, settings: Settings
) -> tuple[dict[int, str], int]:
    """Verify the checksums of rows of one table.

    Args:
        rows: the rows.
        orders: what is known of the table; gets what these rows show.
        events: the events of the rows.
        settings: the time zone of TIMESTAMP.

    Returns:
        What is wrong, by event, and how many rows were verified. Rows of which nobody knows the order of the columns
        are not among them: a warning says so.
    """
    wrong = {
        one.event: "TiCDC found that the row does not fit its checksum (_tidb_corrupted), and sent it anyway"
        for one in rows
        if one.is_corrupted
    }
    verified = len(wrong)
    stated = [(one, cells) for one in rows
              if one.stated and not one.is_corrupted and (cells := _cells(one, settings)) is not None]  # fmt: skip
    for one, cells in stated:
        orders.learn(one, cells)
    for one, cells in stated:
        if one.schema_id not in orders.possible:
            if not orders.has_warned:
                orders.has_warned = True
                _log.warning(
                    "verifyChecksum: rows of %s cannot be verified, because messages do not have the order of its "
                    "columns, or all rows so far are wrong (%s)",
                    events.table,
                    events.address(one.event),
                )
            continue
        order = orders.possible[one.schema_id][0]
        verified += 1
        if not _fits(one, cells, order):
            wrong[one.event] = (
                f"the row does not fit its checksum: TiDB computed {one.stated}, the message gives "
                f"{row_checksum(cells[index] for index in order)}"
            ) + (
                _OR_THE_ZONE.format(settings.time_zone) if any(type_.name == "timestamp" for type_, _ in cells) else ""
            )
    return wrong, verified


def _fits(row: ChecksumRow, cells: Sequence[Cell], order: Order) -> bool:
    return row_checksum(cells[index] for index in order) == row.stated


def _cells(one: ChecksumRow, settings: Settings) -> list[Cell] | None:
    """Return what the checksum is computed of; None if a TIMESTAMP may be one of two instants, or a cell is wrong."""
    try:
        return [(_known(column.type), _value(one.row[column.name], _known(column.type), settings))
                for column in one.columns]  # fmt: skip
    except (ValueError, TypeError, KeyError):  # casting says what is wrong with a cell
        return None


def _known(type_: ColumnType | None) -> ColumnType:
    if type_ is None:
        msg = "a column has no known type"
        raise ValueError(msg)
    return type_


def _value(cell: object, type_: ColumnType, settings: Settings) -> object:
    if cell is None:
        return None
    match type_.name:
        case "bit":
            return int.from_bytes(bytes(cell), "big")  # type: ignore[call-overload]
        case "enum":
            return _labels(type_).index(str(cell)) + 1
        case "set":
            labels = _labels(type_)
            return sum(1 << labels.index(label) for label in str(cell).split(",") if label)
        case "timestamp":
            return _in_utc(str(cell), settings.time_zone).encode()
        case name if name in INTEGERS or name == "year":
            return int(str(cell)) % _2_64
        case "float" | "double":
            return cell
        case "vector":
            text = str(cell).encode()
            row_checksum([(type_, text)])  # is it numbers?
            return text
        case _:
            return cell if isinstance(cell, bytes) else text_bytes(str(cell))


def _labels(type_: ColumnType) -> Sequence[str]:
    return type_.labels or ()


def _in_utc(text: str, zone: str) -> str:
    """Return a TIMESTAMP's text in UTC.

    Raises:
        ValueError: the text is of an hour that comes twice, or that the clocks skip.
    """
    if zone == "UTC" or text.startswith("0000"):
        return text
    local = pa.array([text.partition(".")[0]]).cast(TIMESTAMP_NTZ)
    moment = pc.assume_timezone(local, zone, ambiguous="raise", nonexistent="raise")[0].as_py()
    head, dot, fraction = text.partition(".")
    return f"{moment.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S}".rjust(len(head), "0") + dot + fraction
