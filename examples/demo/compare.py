"""Compares rows that were rebuilt from messages with the truth that SQL told: each column of each row, exactly."""

import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from examples.data import Cell, TableTruth

Value: TypeAlias = Any  # what pyarrow gives for a value of any type
Key: TypeAlias = tuple[str | None, ...]


class Difference(NamedTuple):
    """One cell, or with the column `ROW` a whole row, that is not as SQL has it."""

    key: Key
    column: str
    expected: str | None
    found: str | None


ROW = "(row)"


@dataclass(frozen=True)
class Comparison:
    """What came out.

    Attributes:
        rows: how many rows were compared: those that SQL has, and those that only the messages gave.
        equal: how many of them are equal in every column.
        differences: what is not equal.
        by_number: ENUM and SET columns that the wire has as numbers: compared with SQL's number, not its label.
    """

    rows: int
    equal: int
    differences: list[Difference]
    by_number: list[str]


def compare(truth: TableTruth, found: pa.Table) -> Comparison:
    """Compare rows with the truth; columns whose names begin with `_` are the source's own and left out."""
    by_number = [name for name, type_ in truth.columns.items() if _is_number_of_label(found, name, type_)]
    expected_rows = _by_key(
        truth,
        ({name: _expected(cell, type_, number=name in by_number)
          for (name, type_), cell in zip(truth.columns.items(), row, strict=True)} for row in truth.rows),
    )  # fmt: skip
    data = found.select([name for name in found.column_names if not name.startswith("_")])
    found_rows = _by_key(
        truth,
        ({name: _found(value, truth.columns.get(name)) for name, value in row.items()} for row in data.to_pylist()),
    )
    differences: list[Difference] = []
    equal = 0
    keys = sorted(expected_rows.keys() | found_rows.keys(), key=str)
    for key in keys:
        expected, got = expected_rows.get(key), found_rows.get(key)
        wrong = list(_differences(key, expected, got))
        equal += not wrong
        differences += wrong
    return Comparison(len(keys), equal, differences, by_number)


def _by_key(truth: TableTruth, rows: Iterable[dict[str, str | None]]) -> dict[Key, dict[str, str | None]]:
    return {tuple(row.get(name) for name in truth.key): row for row in rows}


def _differences(
    key: Key, expected: Mapping[str, str | None] | None, found: Mapping[str, str | None] | None
) -> Iterable[Difference]:
    if expected is None or found is None:
        there = ("there", "missing")
        yield Difference(key, ROW, *(there if found is None else reversed(there)))
        return
    for name in {**expected, **found}:  # a column that one side lacks is a difference, also to NULL
        pair = expected.get(name, "no such column"), found.get(name, "no such column")
        if pair[0] != pair[1]:
            yield Difference(key, name, *pair)


def _is_number_of_label(found: pa.Table, name: str, mysql_type: str) -> bool:
    has_labels = _family(mysql_type) in {"enum", "set"}
    return has_labels and name in found.column_names and not pa.types.is_string(found.schema.field(name).type)


def _expected(cell: Cell, mysql_type: str, *, number: bool) -> str | None:
    """Take what is compared out of a cell of the truth."""
    if isinstance(cell, dict):
        if "hex" in cell:
            return str(cell["hex"])
        return str(cell["number" if number else "label"])
    if cell is None or _family(mysql_type) not in {"float", "double"}:
        return cell
    return _TEXT[_family(mysql_type)](float(cell), 0)  # there are several ways to write a float


def _found(value: Value, mysql_type: str | None) -> str | None:
    """Write a value of Spark's as SQL writes a value of that type."""
    if value is None or mysql_type is None:
        return value if value is None else repr(value)
    digits = re.search(r"\((\d)\)", mysql_type)
    return _TEXT[_family(mysql_type)](value, int(digits[1]) if digits else 0)


def _family(mysql_type: str) -> str:
    return re.split(r"[ (]", mysql_type, maxsplit=1)[0]


def _text_of_text(value: Value, _: int) -> str:
    return value if isinstance(value, str) else repr(value)


def _text_of_label(value: Value, _: int) -> str:
    return str(value)  # a label, or a number


def _text_of_integer(value: Value, _: int) -> str:
    return format(value, "d")  # also of a decimal(20,0), whose "d" does not exist


def _text_of_float(value: Value, _: int) -> str:
    return repr(struct.unpack("f", struct.pack("f", value))[0])


def _text_of_double(value: Value, _: int) -> str:
    return repr(float(value))


def _text_of_decimal(value: Value, _: int) -> str:
    return format(value, "f")


def _text_of_date(value: date, _: int) -> str:
    return value.isoformat()


def _text_of_datetime(value: datetime, digits: int) -> str:
    if value.tzinfo is not None:
        value = value.astimezone(timezone.utc)
    return f"{value:%Y-%m-%d %H:%M:%S}{_fraction(value.microsecond, digits)}"


def _text_of_time(value: timedelta, digits: int) -> str:
    seconds, rest = divmod(abs(value), timedelta(seconds=1))
    sign = "-" if value < timedelta(0) else ""
    minutes, second = divmod(seconds, 60)
    return f"{sign}{minutes // 60:02}:{minutes % 60:02}:{second:02}{_fraction(rest.microseconds, digits)}"


def _fraction(microseconds: int, digits: int) -> str:
    """Write a fraction with as many digits as the type has; with all, where that would hide something."""
    text = f"{microseconds:06}"
    if int(text[digits:] or "0"):
        digits = 6
    return f".{text[:digits]}" if digits else ""
