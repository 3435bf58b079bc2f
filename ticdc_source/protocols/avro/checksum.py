"""Verify the row checksums of avro.

TiDB computes it over the columns in the table's order, but Avro's fields are ordered by column id (docs/wire.md, item
50). The two differ after DDL with FIRST or AFTER. Only `tableDDL` tells the table's order; without it, the fields'
order is used.
"""

from __future__ import annotations

from collections.abc import Sequence

from ticdc_source.kernels.wire import Settings, text_bytes
from ticdc_source.protocols.checksums import mismatch, row_checksum, text_in_utc
from ticdc_source.protocols.images import Row
from ticdc_source.schema.model import Column
from ticdc_source.schema.types import INTEGERS, ColumnType

_2_64 = 1 << 64
_TIME_ZONE_HINT = " The changefeed may write TIMESTAMP in another time zone than {!r}: see the option timeZone."
_DDL_HINT = " If FIRST or AFTER has moved a column, set tableDDL to a CREATE TABLE that has all of these columns."


def wrong_checksum(
    columns: Sequence[Column], row: Row, expected: int, declared: Sequence[str], settings: Settings
) -> str | None:
    """Return what is wrong with the checksum of a row; None if nothing is.

    Args:
        declared: lower-case column names in the order of `tableDDL`; empty without it.

    Raises:
        ValueError and others: a value cannot be summed, or stands for several values.
    """
    places = {name: place for place, name in enumerate(declared)}
    is_declared = places.keys() >= {column.name.lower() for column in columns}
    ordered = sorted(columns, key=lambda column: places[column.name.lower()]) if is_declared else columns
    types = [(column.name, column.type) for column in ordered if column.type is not None]
    computed = row_checksum((type_, _value(row[name], type_, settings)) for name, type_ in types)
    if computed == expected:
        return None
    has_timestamp = any(type_.name == "timestamp" for _, type_ in types)
    hints = _TIME_ZONE_HINT.format(settings.time_zone) if has_timestamp else ""
    hints += "" if is_declared else _DDL_HINT
    return f"{mismatch('the row', expected, computed)}.{hints}".removesuffix(".")


def _value(cell: object, type_: ColumnType, settings: Settings) -> object:
    if type_.name == "enum" and any("," in label for label in _labels(type_)):
        raise ValueError("a label that ends in a backslash looks like a comma in a label")  # docs/wire.md, item 123
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
            return text_in_utc(str(cell), settings.time_zone)
        case name if name in INTEGERS or name == "year":
            return int(str(cell)) % _2_64
        case "float" | "double":
            return cell
        case _:
            return cell if isinstance(cell, bytes) else text_bytes(str(cell))


def _labels(type_: ColumnType) -> Sequence[str]:
    return type_.labels or ()
