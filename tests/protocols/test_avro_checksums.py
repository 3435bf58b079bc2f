"""`verifyChecksum` for avro: messages have the columns by their ids, the checksum has them as the table has."""

import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from tests.protocols.test_checksums import damaged, state_after
from tests.support.captured import Captured, load
from tests.support.truth import tables_with_rows
from ticdc_source.errors import DecodeError
from ticdc_source.kernels.wire import Settings
from ticdc_source.protocols import avro
from ticdc_source.protocols.avro.checksum import wrong_checksum
from ticdc_source.protocols.checksums import row_checksum, verify
from ticdc_source.protocols.images import Parsed
from ticdc_source.schema.model import Column
from ticdc_source.schema.types import ColumnType

# Spark lacks some of the types: that is not in question here.
pytestmark = pytest.mark.filterwarnings("ignore:The messages of")

SCENARIO = "avro.checksum"
MOVED = {("avro_a", "evo"), ("avro_a", "evo_2"), ("ops", "ddl_t")}  # columns were added with FIRST and AFTER


class ChecksumRow(NamedTuple):
    """A row with its checksum."""

    columns: Sequence[Column]
    row: dict[str, Any]
    expected: int
    declared: Sequence[str] = ()
    settings: Settings = Settings()

    def found(self) -> tuple[int, int]:
        parsed = Parsed.of(1)
        verify(0, parsed, "warn", lambda: wrong_checksum(*self))
        return len(parsed.suspect), parsed.verified


def counted(captured: Captured) -> dict[tuple[str, str], tuple[int, int]]:
    counters = {}
    for database, table in tables_with_rows(captured):
        name = f"`{database}`.`{table}`"
        found = state_after(captured, tables=name, verifyChecksum="warn").counters
        counters[database, table] = found.checksums, found.wrong_checksums
    return counters


def rows_of(captured: Captured, monkeypatch: pytest.MonkeyPatch) -> list[ChecksumRow]:
    """Return the rows of a scenario, each with the order of its fields for that of its table."""
    rows: list[ChecksumRow] = []

    def remember(*given: Any) -> str | None:
        row = ChecksumRow(*given)
        rows.append(row._replace(declared=[column.name.lower() for column in row.columns]))
        return wrong_checksum(*given)

    with monkeypatch.context() as patched:
        patched.setattr(avro, "wrong_checksum", remember)
        counted(captured)
    return rows


def test_every_checksum_of_ticdcs_messages_fits(caplog: pytest.LogCaptureFixture) -> None:
    """Every row of every type is right, but for those with moved columns, of which the reason says what to do."""
    found = counted(load(SCENARIO))

    assert {table for table, (_, wrong) in found.items() if wrong} == MOVED
    assert sum(verified - wrong for verified, wrong in found.values()) == 300
    reasons = {each.getMessage() for each in caplog.records if "does not match its checksum" in each.getMessage()}
    assert reasons
    assert all("If FIRST or AFTER has moved a column, set tableDDL" in text for text in reasons)


def other_values(cell: Any) -> Iterator[Any]:
    """Yield NULL, and another value that differs in one character, bit or digit."""
    yield None
    match cell:
        case bool():
            yield not cell
        case str():
            yield damaged(cell)
        case bytes():
            yield cell[:-1] + bytes([cell[-1] ^ 1]) if cell else b"\0"
        case float():
            (bits,) = struct.unpack("<Q", struct.pack("<d", cell))
            yield struct.unpack("<d", struct.pack("<Q", bits ^ 1 << 40))[0]
        case _:
            yield cell + 1


def test_one_damaged_character_in_any_cell_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the type, another value has another checksum; so has NULL."""
    cells = found = 0
    of_type: Counter[str] = Counter()

    for row in rows_of(load(SCENARIO), monkeypatch):
        if row.found() != (0, 1):
            continue  # FIRST or AFTER has moved a column, or it has an enum with a comma in a label
        for column in row.columns:
            if column.type is None or of_type[column.type.name] >= 20:
                continue
            of_type[column.type.name] += 1
            name, cell = column.name, row.row[column.name]
            for other in other_values(cell) if cell is not None else ():
                wrong, verified = row._replace(row={**row.row, name: other}).found()
                cells += 1
                found += wrong == verified == 1 or not verified  # it is no value of its type any more

    assert cells > 500
    assert found == cells


def test_values_in_the_wrong_columns_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `tableDDL`, TiCDC's bug after ADD COLUMN FIRST is found: the values of some columns have moved."""
    found = 0

    for row in rows_of(load(SCENARIO), monkeypatch):
        names = [column.name for column in row.columns if isinstance(row.row[column.name], int)]
        values = [row.row[name] for name in names]
        if len(set(values)) < 2 or row.found() != (0, 1):
            continue
        moved = dict(zip(names, values[1:] + values[:1], strict=True))
        found += 1
        assert row._replace(row={**row.row, **moved}).found() == (1, 1)

    assert found > 70


def test_what_the_modes_do() -> None:
    """`off` and `warn` return a damaged row, and `warn` counts it; `fail` makes it a bad record with its address."""
    whole = load(SCENARIO)
    captured = whole.only("ops", "acct")
    partition, offset = next(
        (partition, offset)
        for partition, records in captured.partitions.items()
        for offset, record in enumerate(records)
        if record.truth["op"] == "insert"
    )
    record = captured.partitions[partition][offset]
    name = next(c["after"] for c in record.truth["columns"] if c["name"] == "name")
    assert record.value is not None
    value = record.value.replace(name.encode(), bytes([name.encode()[0] ^ 1]) + name.encode()[1:], 1)
    captured.partitions[partition][offset] = replace(record, value=value)
    table = "`ops`.`acct`"

    assert len(captured.read(tables=table)) == len(captured.read(tables=table, verifyChecksum="warn"))
    assert state_after(captured, tables=table, verifyChecksum="warn").counters.wrong_checksums == 1
    with pytest.raises(DecodeError, match="the row does not match its checksum: TiDB computed") as raised:
        captured.read(tables=table, verifyChecksum="fail")
    assert (raised.value.address.partition, raised.value.address.offset) == (partition, offset)
    corrupt = captured.read(tables=table, verifyChecksum="fail", mode="PERMISSIVE")["_corrupt_record"].to_pylist()
    assert sum(text is not None for text in corrupt) == 1


def row_of(values: Sequence[int | None], expected: Sequence[int], *declared: str) -> ChecksumRow:
    """Return a row of integers, whose checksum is that of the expected values in their order."""
    int_ = ColumnType("int")
    columns = [Column(f"c{index}", int_) for index in range(len(values))]
    row = {column.name: value for column, value in zip(columns, values, strict=True)}
    return ChecksumRow(columns, row, row_checksum((int_, value) for value in expected), declared)


def test_with_table_ddl_only_its_order_is_right() -> None:
    """Rows match in the order of `tableDDL`, and values in the order of the fields are in the wrong columns."""
    assert row_of([1, 10, 100], [100, 1, 10], "c2", "c0", "c1", "dropped").found() == (0, 1)
    assert row_of([100, 1, 10], [100, 1, 10], "c2", "c0", "c1").found() == (1, 1)
    assert row_of([100, 1, 10], [100, 1, 10], "c2", "c0").found() == (0, 1)  # it does not have them all
    assert row_of([1, 10, 100], [100, 1, 10], "c2", "c0").found() == (1, 1)


@pytest.mark.parametrize(
    ("type_name", "zone", "cell"),
    [
        *(("vector", "UTC", cell) for cell in ('["a"]', "[null]", "[1e300]", "[" * 100_000, "1", "[]x")),
        ("timestamp", "Asia/Shanghai", "0001-01-01 00:00:00"),
        ("timestamp", "America/New_York", "9999-12-31 23:00:00"),
        ("timestamp", "America/New_York", "2026-11-01 01:30:00"),
        ("enum", "UTC", "no label"),
        ("int", "UTC", "x"),
    ],
)
def test_what_cannot_be_summed_is_not_verified(type_name: str, zone: str, cell: str) -> None:
    """A cell that is none of its type, or stands for several values, stops nothing: casting reports the first."""
    column = Column("c0", ColumnType(type_name, labels=("a",)))

    assert ChecksumRow([column], {"c0": cell}, 2, ["c0"], Settings(time_zone=zone)).found() == (0, 0)


def test_table_ddl_gives_the_order() -> None:
    """With `tableDDL`, rows are right whose columns DDL has put elsewhere several times."""
    captured = load(SCENARIO)
    database, table = moved = ("avro_a", "evo")
    ddl = [each["ddl"] for each in captured.header["tables"] if (each["schema"], each["table"]) == moved][-1]
    name = f"`{database}`.`{table}`"
    without = state_after(captured, tables=name, verifyChecksum="warn").counters

    counters = state_after(captured, tables=name, verifyChecksum="warn", tableDDL=ddl).counters
    assert counters.checksums == without.checksums
    assert counters.wrong_checksums < without.wrong_checksums


def test_a_wrong_time_zone_is_named() -> None:
    """The error of a row with a TIMESTAMP says that `timeZone` may be wrong."""
    with pytest.raises(DecodeError, match="The changefeed may write TIMESTAMP in another time zone than 'Asia/Tokyo'"):
        state_after(load(SCENARIO), tables="types_a.t_time", verifyChecksum="fail", timeZone="Asia/Tokyo")


def test_deletes_without_a_row_stand_beside_verified_rows() -> None:
    """A delete of nine bytes (`avro-enable-watermark`) has no checksum, and stops nothing."""
    whole = load(SCENARIO).only("ops", "acct")
    rows = [record for records in whole.partitions.values() for record in records]
    insert = next(record for record in rows if record.truth["op"] == "insert")
    delete = replace(insert, value=b"\x03" + struct.pack(">Q", 1 << 50))
    captured = Captured(whole.header, {0: [insert, delete]})

    counters = state_after(captured, tables="`ops`.`acct`", verifyChecksum="fail").counters

    assert (counters.checksums, counters.wrong_checksums) == (1, 0)
