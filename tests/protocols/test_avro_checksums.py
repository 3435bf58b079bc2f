"""`verifyChecksum` for avro: messages have the columns by their ids, the checksum has them as the table has."""

import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.protocols.test_checksums import damaged, state_after
from tests.support.captured import Captured, load
from tests.support.truth import tables_with_rows
from ticdc_source.errors import DecodeError
from ticdc_source.events import Chunk, TableEvents, TableName
from ticdc_source.kernels.wire import Settings
from ticdc_source.protocols.avro import decoder
from ticdc_source.protocols.avro.checksum import ChecksumRow, ColumnOrders, verify_checksums
from ticdc_source.protocols.checksums import row_checksum
from ticdc_source.schema.model import Column
from ticdc_source.schema.types import ColumnType

# Spark lacks some of the types: that is not in question here.
pytestmark = pytest.mark.filterwarnings("ignore:The messages of")

SCENARIO = "avro.checksum"
SEVERAL_MOVED = ("avro_a", "evo")  # two columns with FIRST or AFTER before its first row that is read
Rows = list[tuple[Sequence[ChecksumRow], TableEvents, Settings]]


def counted(captured: Captured, mode: str = "fail") -> dict[tuple[str, str], tuple[int, int]]:
    """Return of each table how many rows were verified, and how many did not fit."""
    counters = {}
    for database, table in tables_with_rows(captured):
        name = f"`{database}`.`{table}`"
        found = state_after(captured, tables=name, verifyChecksum=mode).counters
        counters[database, table] = found.checksums, found.wrong_checksums
    return counters


def rows_of(captured: Captured, monkeypatch: pytest.MonkeyPatch) -> Rows:
    """Return the rows with a checksum, a batch of events at a time."""
    found: Rows = []

    def remember(
        rows: Sequence[ChecksumRow], orders: ColumnOrders, events: TableEvents, settings: Settings
    ) -> tuple[dict[int, str], int]:
        found.append((rows, events, settings))
        return verify_checksums(rows, orders, events, settings)

    with monkeypatch.context() as patched:
        patched.setattr(decoder, "verify_checksums", remember)
        counted(captured)
    return found


def test_every_checksum_of_ticdcs_messages_fits(caplog: pytest.LogCaptureFixture) -> None:
    """With `fail` every row of every type is returned; not verified are those with several moved columns."""
    found = counted(load(SCENARIO))

    assert sum(verified for verified, _ in found.values()) == 352
    assert {wrong for _, wrong in found.values()} == {0}
    unknown = {each.getMessage() for each in caplog.records if "are not verified" in each.getMessage()}
    assert len(unknown) == 1
    assert "table={}.{})".format(*SEVERAL_MOVED) in unknown.pop()


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

    for rows, events, settings in rows_of(load(SCENARIO), monkeypatch):
        orders = ColumnOrders()
        verify_checksums(rows, orders, events, settings)
        for row in rows:
            if row.schema_id not in orders.possible:
                continue
            for column in row.columns:
                if column.type is None or of_type[column.type.name] >= 20:
                    continue
                of_type[column.type.name] += 1
                name, cell = column.name, row.row[column.name]
                for other in other_values(cell) if cell is not None else ():
                    changed = replace(row, row={**row.row, name: other})
                    wrong, verified = verify_checksums([changed], orders, events, settings)
                    cells += 1
                    found += len(wrong) == verified == 1 or not verified  # it is no value of its type any more

    assert cells > 500
    assert found == cells


def test_values_in_the_wrong_columns_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """TiCDC's fault after ADD COLUMN FIRST: the rows that moved fit in another order than those before them."""
    found = 0

    for rows, events, settings in rows_of(load(SCENARIO), monkeypatch):
        for row in rows:
            names = [column.name for column in row.columns if isinstance(row.row[column.name], int)]
            values = [row.row[name] for name in names]
            if len(set(values)) < 2 or row.expected is None:
                continue
            orders = ColumnOrders()
            assert verify_checksums([row], orders, events, settings)[0] == {}
            moved = dict(zip(names, values[1:] + values[:1], strict=True))
            wrong, verified = verify_checksums([replace(row, row={**row.row, **moved})], orders, events, settings)
            found += verified
            assert len(wrong) == verified

    assert found > 100


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


def row_of(values: Sequence[int], expected: Sequence[int]) -> ChecksumRow:
    """Return a row of integers, whose checksum is that of the expected values in their order."""
    int_ = ColumnType("int")
    columns = [Column(f"c{index}", int_) for index in range(len(values))]
    return ChecksumRow(
        event=0,
        schema_id=1,
        columns=columns,
        row={column.name: value for column, value in zip(columns, values, strict=True)},
        expected=row_checksum((int_, value) for value in expected),
        is_corrupted=False,
    )


def test_each_row_narrows_the_orders() -> None:
    """An order that a row rules out does not come back when a row has its values in the wrong columns."""
    orders, events = ColumnOrders(), TableEvents(Chunk("t", 0, [0]), TableName("a", "b"), [0])
    right = [row_of([1, 1], [1, 1]), row_of([1, 2], [1, 2])]

    assert verify_checksums(right, orders, events, Settings()) == ({}, 2)
    (wrong,), verified = verify_checksums([row_of([4, 3], [3, 4])], orders, events, Settings())
    assert (wrong, verified) == (0, 1)
    assert verify_checksums([row_of([5, 6], [5, 6])], orders, events, Settings()) == ({}, 1)


def test_table_ddl_gives_the_order(caplog: pytest.LogCaptureFixture) -> None:
    """With `tableDDL`, rows are verified whose columns DDL has put elsewhere several times."""
    captured = load(SCENARIO)
    database, table = SEVERAL_MOVED
    ddl = [each["ddl"] for each in captured.header["tables"] if (each["schema"], each["table"]) == SEVERAL_MOVED][-1]
    name = f"`{database}`.`{table}`"
    without = state_after(captured, tables=name, verifyChecksum="fail").counters.checksums
    caplog.clear()

    assert state_after(captured, tables=name, verifyChecksum="fail", tableDDL=ddl).counters.checksums > without
    assert not [each for each in caplog.records if "not verified" in each.getMessage()]


def test_a_wrong_time_zone_is_named() -> None:
    """The error of a row with a TIMESTAMP says that `timeZone` may be wrong."""
    with pytest.raises(DecodeError, match="or the changefeed writes TIMESTAMP in another time zone than 'Asia/Tokyo'"):
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
