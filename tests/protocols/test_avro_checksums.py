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
from ticdc_source.events import TableEvents
from ticdc_source.kernels.wire import Settings
from ticdc_source.protocols.avro import decoder
from ticdc_source.protocols.avro.checksum import ChecksumRow, Orders, wrong_checksums

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
        rows: Sequence[ChecksumRow], orders: Orders, events: TableEvents, settings: Settings
    ) -> tuple[dict[int, str], int]:
        found.append((rows, events, settings))
        return wrong_checksums(rows, orders, events, settings)

    with monkeypatch.context() as patched:
        patched.setattr(decoder, "wrong_checksums", remember)
        counted(captured)
    return found


def test_every_checksum_of_ticdcs_messages_fits(caplog: pytest.LogCaptureFixture) -> None:
    """With `fail` every row of every type is returned; not verified are those with several moved columns."""
    found = counted(load(SCENARIO))

    assert sum(verified for verified, _ in found.values()) == 352
    assert {wrong for _, wrong in found.values()} == {0}
    unknown = {each.getMessage() for each in caplog.records if "cannot be verified" in each.getMessage()}
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
        orders = Orders()
        wrong_checksums(rows, orders, events, settings)
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
                    wrong, verified = wrong_checksums([changed], orders, events, settings)
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
            if len(set(values)) < 2 or row.stated is None:
                continue
            orders = Orders()
            assert wrong_checksums([row], orders, events, settings)[0] == {}
            moved = dict(zip(names, values[1:] + values[:1], strict=True))
            wrong, verified = wrong_checksums([replace(row, row={**row.row, **moved})], orders, events, settings)
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
    with pytest.raises(DecodeError, match="the row does not fit its checksum: TiDB computed") as raised:
        captured.read(tables=table, verifyChecksum="fail")
    assert (raised.value.address.partition, raised.value.address.offset) == (partition, offset)
    corrupt = captured.read(tables=table, verifyChecksum="fail", mode="PERMISSIVE")["_corrupt_record"].to_pylist()
    assert sum(text is not None for text in corrupt) == 1
