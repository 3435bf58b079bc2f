"""The three outputs hold the same values: tables are read as changelog, envelope and event, cell by cell."""

import base64
import datetime
import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.corpus.test_corpus import MATRICES, STREAMS, options_of, quoted
from tests.support.captured import Captured, load, whole
from tests.support.truth import tables_with_rows

pytestmark = pytest.mark.filterwarnings(
    "ignore:The messages of .*:UserWarning"
)  # inference's notes are tested elsewhere

# Of each protocol the setting whose messages say least.
LEAST = ["open-protocol.default.types", "canal-json.plain.types", "debezium.disable-schema.types", "avro.default",
         "debezium-avro.default"]  # fmt: skip
BIT_63 = 1 << 63
# The place of a row image: partition, offset, index in the message, before or after.
Place = tuple[int, int, int, str]


def place(row: Mapping[str, Any], image: str) -> Place:
    sequence = row["_sequence"]
    return sequence["partition"], sequence["offset"], sequence["index"] & 0x7FFFFFFF, image


def read(captured: Captured, **options: str) -> pa.Table:
    return captured.read(sizes=whole, schema=None, **options, **options_of(captured))


def images(rows: list[dict[str, Any]]) -> Iterator[tuple[Place, Any]]:
    for row in rows:
        yield from ((place(row, image), row[image]) for image in ("before", "after") if row[image] is not None)


def is_no_date(text: str) -> bool:
    try:
        datetime.date.fromisoformat(text[:10])
    except ValueError:
        return True
    return False


def six_digits(text: str) -> str:
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction.ljust(6, '0')}"


def as_mysql_writes(value: datetime.timedelta) -> str:
    total, micros = divmod(abs(value) // datetime.timedelta(microseconds=1), 1_000_000)
    sign = "-" if value < datetime.timedelta(0) else ""
    return f"{sign}{total // 3600:02d}:{total // 60 % 60:02d}:{total % 60:02d}.{micros:06d}"


def is_same(value: Any, member: Any, field: pa.Field) -> bool:
    """Return whether a typed value and a member of a JSON document are the same.

    A column's type has another form in three cases: NULL for a date that Spark lacks, a negative number for bit 63,
    text for a decimal of more than 38 digits.
    """
    match value:
        case None:
            lacks_some = pa.types.is_date(field.type) or pa.types.is_timestamp(field.type)
            return member is None or (lacks_some and is_no_date(member))
        case int():  # and bool
            return type(member) is int and member in (value, value + 2 * BIT_63)
        case Decimal():
            return not isinstance(member, str) and Decimal(member) == value
        case float():
            return not isinstance(member, str) and bool(pa.scalar(float(member), field.type).as_py() == value)
        case bytes():
            return base64.b64decode(member, validate=True) == value
        case datetime.datetime():
            return f"{value:%Y-%m-%d %H:%M:%S.%f}".rjust(26, "0") == six_digits(member)
        case datetime.date():
            return value.isoformat() == str(member)
        case datetime.timedelta():
            return as_mysql_writes(value) == six_digits(member)
        case list():
            return bool(pa.array([[float(number) for number in json.loads(member)]], field.type).to_pylist() == [value])
        case _ if (field.metadata or {}).get(b"ticdc.mysql_type", b"").startswith(b"decimal"):
            return not isinstance(member, str) and Decimal(member) == Decimal(value)
    return bool(value == member)


def compare(captured: Captured, tables: list[tuple[str, str]]) -> int:
    """Read tables in each output, the events of all at once; return how many cells were compared."""
    names = ", ".join(quoted(*table) for table in tables)
    events = read(captured, tables=names, outputFormat="event").to_pylist()
    documents = dict(images([event for event in events if event["_event_type"] == "row"]))
    count = found = 0
    for database, table in tables:
        name = quoted(database, table)
        changelog = read(captured, tables=name)
        fields = {field.name: field for field in changelog.schema if b"ticdc.table" in (field.metadata or {})}
        enveloped = dict(images(read(captured, tables=name, outputFormat="envelope").to_pylist()))
        assert len(enveloped) == changelog.num_rows
        for row in changelog.to_pylist():
            at = place(row, "before" if row["_change_type"] in ("delete", "update_preimage") else "after")
            values = {column: row[column] for column in fields}
            document = json.loads(documents[at], parse_float=Decimal)
            wrong = {
                column: (value, document.get(column))
                for column, value in values.items()
                if not is_same(value, document.get(column), fields[column])
            }
            assert enveloped[at] == values, f"{table} {at}"
            assert not wrong, f"{table} {at}: {wrong}"
            assert set(document) <= set(values)
            count += len(values)
        found += len(enveloped)
    assert found == len(documents)
    return count


@pytest.mark.parametrize("scenario", LEAST)
def test_the_outputs_hold_the_same_values(scenario: str) -> None:
    """A table with a column of each type has the same values as changelog, envelope and event."""
    captured = load(scenario)
    tables = [table for table in tables_with_rows(captured) if table[1] == "t_all"] or tables_with_rows(captured)

    assert sum(compare(captured.only(*table), [table]) for table in tables) > 1000


@pytest.mark.slow("reads every table three times")
@pytest.mark.parametrize(
    "scenario",
    [
        *(name for name in MATRICES if name.endswith(".ops")),
        *(
            pytest.param(name, marks=pytest.mark.long("every type, and whole streams"))
            for name in (*MATRICES, *STREAMS)
            if not name.endswith(".ops")
        ),
    ],
)
def test_the_outputs_hold_the_same_values_of_all_tables(scenario: str) -> None:
    """The tables of a file have the same values as changelog, envelope and event, with the same labels."""
    captured = load(scenario)

    assert compare(captured, tables_with_rows(captured)) > 50
