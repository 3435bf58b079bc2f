"""Compares rows from messages with the truth from SQL: every column of every row, exactly.

Both sides become the text that SQL writes: a DECIMAL with its scale, a TIMESTAMP in UTC with the fraction of
its type, binary as hexadecimal digits, JSON as MySQL prints it. Only FLOAT and DOUBLE have several texts; their
32 or 64 bits are compared.
"""

import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from examples.data import Cell, TableTruth

Key: TypeAlias = tuple[str | None, ...]
Row: TypeAlias = Mapping[str, str | None]

WHOLE_ROW = "(the row)"
_TIMES = {0: "missing", 1: "there"}


class Difference(NamedTuple):
    """A value that differs from SQL's; with the column `WHOLE_ROW`, a row that one side lacks or has twice."""

    key: Key
    column: str
    expected: str | None
    found: str | None


@dataclass(frozen=True)
class Comparison:
    """The result.

    Attributes:
        rows: number of rows that were compared: SQL's, and those that only the messages have.
        differences: what differs.
    """

    rows: int
    differences: list[Difference]

    @property
    def equal(self) -> int:
        """The number of rows that are equal in every column."""
        return self.rows - len({difference.key for difference in self.differences})


def compare(truth: TableTruth, found: pa.Table) -> Comparison:
    """Compare rows with the truth. Columns whose names begin with `_` are metadata columns, and are left out."""
    numbers = numbered_columns(truth, found)
    expected_rows = [
        {
            name: _expected_text(cell, mysql_type, as_number=name in numbers)
            for cell, (name, mysql_type) in zip(row, truth.columns.items(), strict=True)
        }
        for row in truth.rows
    ]
    found_rows = [
        {name: _sql_text(value, truth.columns.get(name, "")) for name, value in row.items() if not name.startswith("_")}
        for row in found.to_pylist()
    ]
    return _compare(_by_key(expected_rows, truth.key), _by_key(found_rows, truth.key))


def numbered_columns(truth: TableTruth, found: pa.Table) -> list[str]:
    """Return the ENUM and SET columns that are numbers here: they are compared with SQL's numbers."""
    return [
        name
        for name, mysql_type in truth.columns.items()
        if mysql_type.startswith(("enum", "set"))
        and name in found.column_names
        and not pa.types.is_string(found.schema.field(name).type)
    ]


def _by_key(rows: Iterable[Row], key: list[str]) -> dict[Key, list[Row]]:
    found: dict[Key, list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row.get(name) for name in key), []).append(row)
    return found


def _compare(expected: Mapping[Key, list[Row]], found: Mapping[Key, list[Row]]) -> Comparison:
    keys = sorted(expected.keys() | found.keys(), key=str)
    differences: list[Difference] = []
    for key in keys:
        differences += _differences(key, expected.get(key, []), found.get(key, []))
    return Comparison(len(keys), differences)


def _differences(key: Key, expected: list[Row], found: list[Row]) -> Iterator[Difference]:
    if len(expected) != 1 or len(found) != 1:
        yield Difference(key, WHOLE_ROW, *(_TIMES.get(len(rows), "there twice") for rows in (expected, found)))
        return
    for name in {**expected[0], **found[0]}:  # a column that one side lacks is different, also from NULL
        pair = [rows[0].get(name, "(no such column)") for rows in (expected, found)]
        if pair[0] != pair[1]:
            yield Difference(key, name, *pair)


def _expected_text(cell: Cell, mysql_type: str, *, as_number: bool) -> str | None:
    """Return the part of a value of the truth that is compared."""
    if isinstance(cell, dict):
        return str(cell["hex"] if "hex" in cell else cell["number" if as_number else "label"])
    if cell is not None and mysql_type.startswith(("float", "double")):
        return _sql_text(float(cell), mysql_type)
    return cell


def _sql_text(value: Any, mysql_type: str) -> str | None:
    """Return the text that SQL writes for a value from Spark."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float):
        return repr(struct.unpack("f", struct.pack("f", value))[0] if mysql_type == "float" else value)
    if isinstance(value, datetime):
        utc = value.astimezone(timezone.utc) if value.tzinfo else value
        return f"{utc:%Y-%m-%d %H:%M:%S}" + _fraction(utc.microsecond, mysql_type)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        seconds, rest = divmod(abs(value), timedelta(seconds=1))
        sign = "-" if value < timedelta(0) else ""
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        return sign + clock + _fraction(rest.microseconds, mysql_type)
    return f"{value:04}" if mysql_type.startswith("year") else str(value)


def _fraction(microseconds: int, mysql_type: str) -> str:
    """Return a fraction of a second with the digits of its type; with all six if the value has more."""
    declared = re.search(r"\((\d)\)", mysql_type)
    digits = int(declared[1]) if declared else 0
    text = f".{microseconds:06}"
    if text[digits + 1 :].strip("0"):
        return text
    return text[: digits + 1] if digits else ""
