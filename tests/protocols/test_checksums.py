"""`verifyChecksum`: rows are compared with the checksums that TiDB has computed."""

import json
from collections.abc import Iterator, Mapping
from typing import Any
from zlib import crc32

import pytest

from tests.support.captured import Captured, load
from tests.support.messages import dump, simple_definition
from tests.support.truth import tables_with_rows
from ticdc_source.errors import DecodeError
from ticdc_source.kernels.wire import Settings
from ticdc_source.pipeline.read import read
from ticdc_source.pipeline.spec import ReadState
from ticdc_source.protocols import PROTOCOLS
from ticdc_source.protocols.simple import definitions_of
from ticdc_source.protocols.simple.avro import is_avro, message_of, row_as_json
from ticdc_source.protocols.simple.kernels import wrong_checksum
from ticdc_source.schema.model import Column
from ticdc_source.schema.table_name import TableName

SCENARIOS = ["simple.json.checksum", "simple.avro.checksum"]
INT = {"mysqlType": "int", "charset": "binary", "length": 11}
VARCHAR = {"mysqlType": "varchar", "charset": "utf8mb4", "length": 9}
CHECKSUM, OTHER = (crc32(b"\1\0\0\0\0\0\0\0\1\0\0\0" + text) for text in (b"a", b"b"))  # of (1, 'a') and (1, 'b')


def state_after(captured: Captured, **options: str) -> ReadState:
    """Read a table of a capture; return the state with its counters."""
    schema, parsed = captured.schema(**options), captured.options(**options)
    state: ReadState | None = None
    for offset_range in captured.ranges():
        spec = captured.spec(schema, parsed, captured.context(schema, parsed), offset_range)
        state = ReadState.of(spec) if state is None else state
        list(read(captured.fetch(offset_range), spec, state))
    assert state is not None
    return state


@pytest.mark.parametrize(
    "scenario", [SCENARIOS[0], pytest.param(SCENARIOS[1], marks=pytest.mark.slow("the same messages in Avro"))]
)
def test_every_checksum_of_ticdcs_messages_fits(scenario: str) -> None:
    """With `fail`, every row of every type is returned, and each checksum was computed."""
    captured, verified = load(scenario), 0

    for database, table in tables_with_rows(captured):
        state = state_after(captured, tables=f"`{database}`.`{table}`", verifyChecksum="fail")
        assert state.counters.wrong_checksums == 0
        verified += state.counters.checksums

    assert verified == 213


Images = dict[str, dict[str, Any]]


def rows_of(captured: Captured) -> Iterator[tuple[Any, Images, list[Column]]]:
    """Yield each row message with a checksum, its rows, and the columns of its table."""
    defined: dict[tuple[TableName, int], tuple[Column, ...]] = {}
    for offset_range in captured.ranges():
        for chunk in captured.fetch(offset_range):
            split = PROTOCOLS["simple"].split(chunk)
            defined.update(definitions_of([*split.ddl, *split.bootstraps]))
    for records in captured.partitions.values():
        for record in records:
            message = message_of(record.value or b"")
            if "checksum" not in message:
                continue
            columns = defined[TableName(message["database"], message["table"]).folded, message["schemaVersion"]]
            images: Images = {}
            for member, name in (("old", "previous"), ("data", "current")):
                if member in message:
                    its = [column for column in columns if column.name in message[member]]
                    row = message[member]
                    images[name] = row_as_json(row, its) if is_avro(record.value or b"") else row
            yield message, images, its


def damaged(cell: Any) -> Any:
    if isinstance(cell, Mapping):
        return {**cell, "value": damaged(cell["value"])}
    at = next(
        (index for index, letter in enumerate(cell) if (letter.isalnum() and letter != "0") or letter == "/"), None
    )
    if at is None:
        return cell.replace("0", "1", 1) if "0" in cell else cell + "x"
    other = {"9": "8", "0": "1", "z": "y", "Z": "Y", "A": "Q", "/": "A"}.get(cell[at]) or chr(ord(cell[at]) + 1)
    return cell[:at] + other + cell[at + 1 :]


@pytest.mark.slow("each cell of each row")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_one_damaged_character_in_any_cell_is_found(scenario: str) -> None:
    """Whatever the type and the image, another value has another checksum; so has NULL."""
    found = cells = 0

    for message, images, columns in rows_of(load(scenario)):
        assert wrong_checksum(message, images, columns, Settings()) is None
        for name, row in images.items():
            for column, cell in row.items():
                if cell is None:
                    continue
                for other in (damaged(cell), None):
                    cells += 1
                    changed = {**images, name: {**row, column: other}}
                    try:
                        wrong = wrong_checksum(message, changed, columns, Settings())
                    except (ValueError, TypeError):  # it is no value of its type any more
                        wrong = "no value"
                    is_last = other is None and sum(each is not None for each in row.values()) == 1
                    found += wrong is not None or is_last

    assert cells > 3000
    assert found == cells


def message(checksum: dict[str, Any], value: str = "a") -> tuple[None, bytes]:
    row = {"id": "1", "v": value}
    fields = {
        "version": 1, "database": "test", "table": "t", "tableID": 7, "type": "INSERT", "commitTs": 1 << 58,
        "buildTs": 5, "schemaVersion": 9, "checksum": checksum, "data": row,
    }  # fmt: skip
    return None, dump(fields)


DEFINITION = simple_definition("BOOTSTRAP", {"id": INT, "v": VARCHAR}, 9)
GOOD = {"version": 2, "corrupted": False, "current": CHECKSUM, "previous": 0}


def test_what_the_modes_do() -> None:
    """`off` returns the row; `warn` returns and counts it; `fail` makes it a bad record that says both checksums."""
    captured = Captured.of(DEFINITION, message(GOOD), message(GOOD, "b"))

    assert len(captured.read()) == len(captured.read(verifyChecksum="warn")) == 2
    counters = state_after(captured, verifyChecksum="warn").counters
    assert (counters.checksums, counters.wrong_checksums) == (2, 1)
    with pytest.raises(
        DecodeError, match=rf"the current row does not match its checksum: TiDB computed {CHECKSUM}"
    ) as raised:
        captured.read(verifyChecksum="fail")
    assert raised.value.address.offset == 2
    corrupt = captured.read(verifyChecksum="fail", mode="PERMISSIVE")["_corrupt_record"].to_pylist()
    assert [text is None for text in corrupt] == [True, False]


def test_a_wrong_checksum_is_logged_once_with_its_address(caplog: pytest.LogCaptureFixture) -> None:
    """The log has the first such row and their number."""
    state_after(Captured.of(DEFINITION, *[message(GOOD, "b")] * 3), verifyChecksum="warn")

    first = (
        f"the current row does not match its checksum: TiDB computed {CHECKSUM}, the values in the message give {OTHER}"
    )
    assert [each.getMessage() for each in caplog.records] == [
        f"verifyChecksum=warn: {first} (topic=captured partition=0 offset=1 table=test.t)",
        "verifyChecksum=warn: 3 rows do not match their checksums",
    ]


def test_what_ticdc_marks_as_corrupted_is_reported() -> None:
    """`corrupted=true` is TiCDC's own verdict: the row is suspect whatever its values."""
    captured = Captured.of(DEFINITION, message({**GOOD, "corrupted": True}))

    assert state_after(captured, verifyChecksum="warn").counters.wrong_checksums == 1
    with pytest.raises(DecodeError, match="corrupted=true"):
        captured.read(verifyChecksum="fail")


@pytest.mark.parametrize("changed", [
    message({**GOOD, "current": 0}, "b"),  # TiDB has computed none
    message(GOOD, "\ufffd"),  # bytes that TiCDC has replaced
])  # fmt: skip
def test_what_nothing_can_tell_is_no_error(changed: tuple[None, bytes]) -> None:
    """A row without a checksum, and one of whose text bytes are lost, are returned."""
    assert len(Captured.of(DEFINITION, changed).read(verifyChecksum="fail")) == 1


@pytest.mark.parametrize("zone", ["America/New_York", "Local"])
def test_an_hour_that_comes_twice_is_no_error(zone: str) -> None:
    """Which of two instants a TIMESTAMP is, the wall clock does not tell; `Local` is the option `timeZone`."""
    at = {"mysqlType": "timestamp", "charset": "binary", "length": 19}
    define = simple_definition("BOOTSTRAP", {"id": INT, "at": at}, 9)
    row = json.loads(message(GOOD)[1])
    row["data"] = {"id": "1", "at": {"location": zone, "value": "2026-11-01 01:30:00"}}
    captured = Captured.of(define, (None, dump(row)))

    assert len(captured.read(verifyChecksum="fail", timeZone="America/New_York")) == 1
