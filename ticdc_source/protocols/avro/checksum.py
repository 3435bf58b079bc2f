"""Verify the row checksums of avro.

TiDB computes a checksum over the columns in the order of the table. The fields of Avro are in the order of the columns'
ids (docs/wire.md, item 50). The two differ after DDL with FIRST or AFTER. Messages do not give the order of the table:
`tableDDL` does. Without it, the order of the fields is taken for that of the table.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timezone
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.kernels.wire import Settings, text_bytes
from ticdc_source.protocols.checksums import CORRUPTED, mismatch, summed
from ticdc_source.protocols.images import Row
from ticdc_source.schema.model import Column
from ticdc_source.schema.types import INTEGERS, TIMESTAMP_NTZ, ColumnType

_2_64 = 1 << 64
_TIME_ZONE_HINT = " The changefeed may write TIMESTAMP in another time zone than {!r}: see the option timeZone."
_DDL_HINT = " If FIRST or AFTER has moved a column, set tableDDL to a CREATE TABLE that has all of these columns."
_BAD_CELL = (ValueError, TypeError, KeyError, ArithmeticError, struct.error, RecursionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecksumRow:
    """A row with the field of the checksum.

    Attributes:
        is_corrupted: whether TiCDC found that the row does not match it.
    """

    event: int
    columns: Sequence[Column]
    row: Row
    expected: int | None
    is_corrupted: bool


def verify_checksums(
    rows: Sequence[ChecksumRow], declared: Sequence[str], settings: Settings
) -> tuple[dict[int, str], int]:
    """Verify the checksums of rows of one table.

    Returns:
        The reason for each event whose row is wrong, and the number of rows verified. A row that TiCDC marked as
        corrupted counts as verified. Not verified are rows with a value that cannot be summed: casting reports it, or
        it stands for several values.
    """
    wrong: dict[int, str] = {}
    verified = 0
    for row in rows:
        if row.is_corrupted:
            wrong[row.event] = CORRUPTED
            verified += 1
            continue
        order = _declared_order(row, declared)
        parts = None if row.expected is None else _parts(row, order, settings)
        if parts is None:
            continue
        verified += 1
        computed = crc32(b"".join(parts))
        if computed != row.expected:
            has_timestamp = any(column.type is not None and column.type.name == "timestamp" for column in row.columns)
            hints = _TIME_ZONE_HINT.format(settings.time_zone) if has_timestamp else ""
            hints += "" if order is not None else _DDL_HINT
            reason = mismatch("the row", row.expected or 0, computed)
            wrong[row.event] = f"{reason}.{hints}".removesuffix(".")
    return wrong, verified


def _declared_order(row: ChecksumRow, declared: Sequence[str]) -> list[int] | None:
    """Return the columns in the order of the table; None if `tableDDL` does not have them all."""
    places = {name: place for place, name in enumerate(declared)}
    names = [column.name.lower() for column in row.columns]
    if not places.keys() >= set(names):
        return None
    return sorted(range(len(names)), key=lambda column: places[names[column]])


def _parts(row: ChecksumRow, order: Sequence[int] | None, settings: Settings) -> list[bytes] | None:
    """Return what each value adds; None if a value stands for several, or a cell is wrong."""
    parts = []
    for index in range(len(row.columns)) if order is None else order:
        column = row.columns[index]
        if column.type is None or (column.type.name == "enum" and any("," in label for label in _labels(column.type))):
            return None  # a label that ends in a backslash looks like a comma in a label (docs/wire.md, item 123)
        try:
            parts.append(summed(column.type, _value(row.row[column.name], column.type, settings)))
        except _BAD_CELL:  # casting reports the cell, or a TIMESTAMP is an ambiguous or nonexistent local time
            return None
    return parts


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
        case _:
            return cell if isinstance(cell, bytes) else text_bytes(str(cell))


def _labels(type_: ColumnType) -> Sequence[str]:
    return type_.labels or ()


def _in_utc(text: str, zone: str) -> str:
    """Return a TIMESTAMP's text in UTC."""
    if zone == "UTC" or text.startswith("0000"):
        return text
    seconds, point, fraction = text.partition(".")
    local = pa.array([seconds]).cast(TIMESTAMP_NTZ)
    moment = pc.assume_timezone(local, zone, ambiguous="raise", nonexistent="raise")[0].as_py()
    return f"{moment.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S}{point}{fraction}"
