"""Verify the row checksums of avro.

TiDB computes a checksum over the columns in the order of the table. The fields of Avro are in the order of the columns'
ids (docs/wire.md, item 50). The two differ after DDL with FIRST or AFTER. Messages do not give the order of the table.
We take it from `tableDDL`, or find it from the rows: we try the order of the fields and the last known order, each with
at most one column moved, and keep the orders in which the rows match.
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
from ticdc_source.protocols.images import Row
from ticdc_source.registries.lookup import SchemaId
from ticdc_source.schema.model import Column
from ticdc_source.schema.types import INTEGERS, TIMESTAMP_NTZ, ColumnType

__all__ = ["ChecksumRow", "ColumnOrders", "verify_checksums"]

_log = logging.getLogger(__name__)
_2_64 = 1 << 64
_MOST_UNMATCHED = 16  # rows of a schema: a row that matches in no order costs some 2n² checksums
_MOST_NARROWING = 64  # rows of a schema that are compared with all orders that are left
_TIME_ZONE_HINT = " (or the changefeed writes TIMESTAMP in another time zone than {!r}: see the option timeZone)"

ColumnOrder = tuple[int, ...]
# A value as it is summed, and its type.
Value = tuple[ColumnType, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecksumRow:
    """A row with the field of the checksum.

    Attributes:
        event: the index of its event.
        schema_id: the id of its schema.
        columns: its columns, in the order of the fields.
        row: its cells.
        expected: the checksum that TiDB computed; None if the field is empty.
        is_corrupted: whether TiCDC found that the row does not match it.
    """

    event: int
    schema_id: SchemaId
    columns: Sequence[Column]
    row: Row
    expected: int | None
    is_corrupted: bool


@dataclass(slots=True)
class ColumnOrders:
    """What a read has learned of the order of a table's columns.

    Attributes:
        possible: the orders in which rows have matched, by the id of the schema.
        last_names: the names of the columns in lower case, in the order that was learned last; at first, that of
            `tableDDL`.
        unmatched: how many rows of a schema matched in no order that was tried.
        narrowed: how many rows of a schema were compared with all orders that were left.
        has_warned: whether it was said that rows cannot be verified.
    """

    possible: dict[SchemaId, list[ColumnOrder]] = field(default_factory=dict)
    last_names: tuple[str, ...] = ()
    unmatched: Counter[SchemaId] = field(default_factory=Counter)
    narrowed: Counter[SchemaId] = field(default_factory=Counter)
    has_warned: bool = False

    def learn(self, row: ChecksumRow, values: Sequence[Value]) -> None:
        """Learn from a row. A row that matches in no order that is left changes nothing: its values are wrong."""
        schema_id = row.schema_id
        possible = self.possible.get(schema_id)
        if possible is None:
            if self.unmatched[schema_id] >= _MOST_UNMATCHED:
                return
            possible = [order for order in dict.fromkeys(self._candidates(row)) if _matches(row, values, order)]
            if not possible:
                self.unmatched[schema_id] += 1
                return
        elif len(possible) == 1:
            return
        elif self.narrowed[schema_id] < _MOST_NARROWING or not _matches(row, values, possible[0]):
            self.narrowed[schema_id] += 1
            possible = [order for order in possible if _matches(row, values, order)] or possible
        self.possible[schema_id] = possible
        self.last_names = tuple(row.columns[index].name.lower() for index in possible[0])

    def _candidates(self, row: ChecksumRow) -> Iterator[ColumnOrder]:
        names = [column.name.lower() for column in row.columns]
        kept = [names.index(name) for name in self.last_names if name in names]
        added = [index for index in range(len(names)) if index not in kept]
        for order in (tuple(range(len(names))), (*kept, *added)):
            yield order
            for moved in order:
                others = tuple(index for index in order if index != moved)
                for place in range(len(order)):
                    yield (*others[:place], moved, *others[place:])


def verify_checksums(
    rows: Sequence[ChecksumRow], orders: ColumnOrders, events: TableEvents, settings: Settings
) -> tuple[dict[int, str], int]:
    """Verify the checksums of rows of one table. The orders of its columns are learned from all rows first.

    Args:
        rows: the rows.
        orders: what is known of the table; gets what these rows show.
        events: the events of the rows.
        settings: the time zone of TIMESTAMP.

    Returns:
        The reason for each event whose row is wrong, and the number of rows verified. A row that TiCDC marked as
        corrupted counts as verified. Not verified are rows whose order of columns is not known, which is logged once,
        and rows with a value that cannot be summed: casting reports it, or a TIMESTAMP is an ambiguous local time.
    """
    wrong: dict[int, str] = {}
    summed: list[tuple[ChecksumRow, list[Value]]] = []
    for row in rows:
        if row.is_corrupted:
            wrong[row.event] = (
                "TiCDC found that the row does not match its checksum (_tidb_corrupted), and sent it anyway"
            )
        elif row.expected is not None:
            values = _values(row, settings)
            summed += [] if values is None else [(row, values)]
    verified = len(wrong)
    for row, values in summed:
        orders.learn(row, values)
    for row, values in summed:
        hint = _TIME_ZONE_HINT.format(settings.time_zone) if any(each.name == "timestamp" for each, _ in values) else ""
        if row.schema_id not in orders.possible:
            if not orders.has_warned:
                orders.has_warned = True
                _log.warning(
                    "verifyChecksum: rows of %s match their checksums in no order of columns that was tried, and are "
                    "not verified. FIRST or AFTER has moved several columns (set tableDDL), or all rows so far are "
                    "wrong%s (%s)",
                    events.table,
                    hint,
                    events.address(row.event),
                )
            continue
        order = orders.possible[row.schema_id][0]
        verified += 1
        if not _matches(row, values, order):
            computed = row_checksum(values[index] for index in order)
            wrong[row.event] = (
                f"the row does not match its checksum: TiDB computed {row.expected}, its values give {computed}{hint}"
            )
    return wrong, verified


def _matches(row: ChecksumRow, values: Sequence[Value], order: ColumnOrder) -> bool:
    return row_checksum(values[index] for index in order) == row.expected


def _values(row: ChecksumRow, settings: Settings) -> list[Value] | None:
    """Return what is summed; None if a TIMESTAMP is an ambiguous or nonexistent local time, or a cell is wrong."""
    values = []
    for column in row.columns:
        if column.type is None:
            return None
        try:
            values.append((column.type, _value(row.row[column.name], column.type, settings)))
        except (ValueError, TypeError, KeyError):  # casting reports the cell
            return None
    return values


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
            row_checksum([(type_, text)])  # raises ValueError if it is no vector
            return text
        case _:
            return cell if isinstance(cell, bytes) else text_bytes(str(cell))


def _labels(type_: ColumnType) -> Sequence[str]:
    return type_.labels or ()


def _in_utc(text: str, zone: str) -> str:
    """Return a TIMESTAMP's text in UTC.

    Raises:
        ValueError: it is an ambiguous or nonexistent local time.
    """
    if zone == "UTC" or text.startswith("0000"):
        return text
    seconds, point, fraction = text.partition(".")
    local = pa.array([seconds]).cast(TIMESTAMP_NTZ)
    moment = pc.assume_timezone(local, zone, ambiguous="raise", nonexistent="raise")[0].as_py()
    return f"{moment.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S}{point}{fraction}"
