"""CSV of a storage sink: cutting files into rows and fields, headers, and what is refused."""

import json
import random
import tracemalloc
from typing import Any

import pytest

from tests.support.captured import Captured, rows, whole
from tests.support.messages import TSO
from ticdc_source.errors import DecodeError
from ticdc_source.protocols.csv.lines import CSVCutter, fields_of
from ticdc_source.sources.storage.file_format import FileSettings

SEED = 20261126
TEXTS = ["", "a", '"', '""', "\\", "\\N", "\r\n", "\n", "a,b", "|+|", "é", "true", "D", "'", ",\r\n,", '"\r\n"']
KEY = json.dumps({"TableVersion": 1}, separators=(",", ":")).encode()


def schema(*names: str, types: str = "INT") -> tuple[None, bytes]:
    columns = [{"ColumnName": name, "ColumnType": types} for name in names]
    return None, json.dumps({
        "Table": "t", "Schema": "test", "TableVersion": 1, "Query": "", "TableColumns": columns, "TableColumnsTotal": 1,
    }, separators=(",", ":")).encode()  # fmt: skip


def written(text: str | None, settings: FileSettings) -> str:
    """Return a text as TiCDC writes it (csv_message.go, formatValue)."""
    if text is None:
        return settings.null
    if quote := settings.quote:
        return quote + text.replace(quote, quote * 2) + quote
    for plain, escaped in (("\\", "\\\\"), ("\r", "\\r"), ("\n", "\\n")):
        text = text.replace(plain, escaped)
    return text.replace(settings.delimiter, "".join(f"\\{each}" for each in settings.delimiter))


@pytest.mark.parametrize(
    "settings",
    [
        FileSettings(),
        FileSettings(quote="'", delimiter="|+|", terminator=b"\n"),
        FileSettings(quote="", delimiter="|+|", terminator=b"\n"),
        FileSettings(quote="", null="NULL"),
    ],
    ids=["default", "other", "backslashes", "null"],
)
def test_rows_and_fields_are_what_was_written(settings: FileSettings) -> None:
    """Texts with quotes, delimiters and line ends come back, from blocks of any size."""
    chance = random.Random(SEED)
    table = [[chance.choice([*TEXTS, None]) for _ in range(4)] for _ in range(300)]
    end = (settings.terminator or b"\r\n").decode()
    lines = [
        settings.delimiter.join(
            [*(written(one, settings) for one in ("I", "t", "db")), "7", *(written(one, settings) for one in row)]
        )
        for row in table
    ]
    data = "".join(line + end for line in lines).encode()

    for size in (1, 2, 3, 50, len(data)):
        cutter = CSVCutter(1, settings)
        found = [row for at in range(0, len(data), size) for row in cutter.cut(data[at : at + size])] + cutter.rest()
        assert found == [line.encode() for line in lines], f"blocks of {size}, seed {SEED}"
    parsed = [fields_of(row, settings).texts for row in found]
    assert [each[:3] for each in parsed] == [["I", "t", "db"]] * len(table)
    assert [each[4:] for each in parsed] == table


@pytest.mark.parametrize("quote", ['"', pytest.param("", marks=pytest.mark.slow("ten seconds, as with quotes"))])
def test_a_large_text_is_cut_in_time(quote: str) -> None:
    """A large text with line ends costs time and memory in proportion to its size."""
    settings = FileSettings(quote=quote)
    text = '\r\n"' * (1 << 17)
    line = ",".join(written(one, settings) for one in ("I", "t", "db", text)).encode()
    cutter = CSVCutter(1, settings)

    (row,) = [*cutter.cut(line + b"\r\n"), *cutter.rest()]

    tracemalloc.start()
    assert fields_of(row, settings).texts[3] == text
    assert tracemalloc.get_traced_memory()[1] < 32 * len(line)
    tracemalloc.stop()


def test_both_rows_of_an_update_are_one_message() -> None:
    """Only a `D` that says it is of an update waits for the row behind it."""
    text = b'"D","t","db",7,true,1\r\n"I","t","db",7,true,2\r\n"D","t","db",8,false,2\r\n"I","t","db",9,false,3'
    cutter = CSVCutter(1, FileSettings())

    assert [row.count(b"\r\n") for row in [*cutter.cut(text), *cutter.rest()]] == [1, 0, 0]


@pytest.mark.parametrize(
    ("names", "header", "chosen"),
    [
        (("id", "n"), "id,n", {"id": 1, "n": 2}),
        (("id", "virtual", "n"), "id,n", {"id": 1, "virtual": None, "n": 2}),
        (("a,b", 'with "quote"', "a"), 'a,b,with "quote"', {"a,b": 1, 'with "quote"': 2, "a": None}),
        (("Id", "virtual", "ñ"), "iD,Ñ", {"Id": 1, "virtual": None, "ñ": 2}),
    ],
)
def test_a_header_says_which_columns_a_file_has(names: tuple[str, ...], header: str, chosen: dict[str, Any]) -> None:
    """Names in a header have no quotes, whatever is in them; columns that it lacks are NULL."""
    own = ",".join(f"ticdc-meta${name}" for name in ("operation", "table", "schema", "commit-ts"))
    data = f'{own},{header}\r\n"I","t","test",{TSO},1,2\r\n'
    cutter = CSVCutter(1, FileSettings(include_commit_ts=False))
    (message,) = cutter.cut(data.encode())

    (row,) = rows(schema(*names), (cutter.key, message), csv__includeCommitTs="false")

    assert {name: row.get(name) for name in names} == chosen
    assert row["_commit_version"] == TSO


@pytest.mark.parametrize(
    ("row", "options", "reason"),
    [
        (f'"I","t","test",{TSO},1', {}, "5 fields, but 6 are expected: 4 of TiCDC, and 2 columns of version 1"),
        ('"I","t","test",1,2', {}, "5 fields, but 6 are expected"),
        ('"I","t","test",x,1,2', {}, "the fourth field is 'x', not a commit-ts"),
        (f'"I","t","test",{TSO},true,1', {}, "6 fields, but 7 are expected: 5 of TiCDC"),
        (f'"X","t","test",{TSO},1,2', {}, "operation X"),
        (f'"I","t","test",{TSO},1,"2', {}, "set terminator and csv.quote as in the changefeed"),
        (f"I,t,test,{TSO},true,2", {"csv__quote": ""}, "output-old-value is on: set csv.outputOldValue"),
    ],
)
def test_what_does_not_fit_is_a_bad_record(row: str, options: dict[str, str], reason: str) -> None:
    """A row with another number of fields than its table is never shifted into its columns; the error says why."""
    good = f'"I","t","test",{TSO},1,2' if not options else f"I,t,test,{TSO},1,2"
    captured = Captured.of(schema("id", "n"), (KEY, good.encode()), (KEY, row.encode()))

    with pytest.raises(DecodeError) as caught:
        captured.read(sizes=whole, **options)

    assert reason in str(caught.value)
    assert "offset=2" in str(caught.value)


def test_the_reason_why_no_row_can_be_read_is_the_first_row_s() -> None:
    """A wrong option is told as what it is, also if no row of the sample can be read."""
    row = KEY, f'"I","t","test",{TSO},1,2'.encode()

    with pytest.raises(DecodeError, match="6 fields, but 5 are expected: 3 of TiCDC"):
        rows(schema("id", "n"), row, csv__includeCommitTs="false")
    with pytest.raises(DecodeError, match=r"set csv\.delimiter and csv\.quote as in the changefeed"):
        rows(schema("id", "n"), row, csv__quote="'")
    with pytest.raises(DecodeError, match=r"set csv\.delimiter and csv\.quote as in the changefeed"):
        rows(schema("id", "n"), (KEY, f"I,t,test,{TSO},1,2".encode()))
    with pytest.raises(DecodeError, match=r"set csv\.outputOldValue as in the changefeed"):
        rows(schema("id"), row, csv__outputOldValue="true")


def test_another_null_is_no_text() -> None:
    """A text without quotes can only be the changefeed's NULL: with a wrong csv.null, it is a bad record."""
    row = KEY, f'"I","t","test",{TSO},NULL'.encode()

    assert rows(schema("note", types="VARCHAR"), row, csv__null="NULL")[0]["note"] is None
    with pytest.raises(DecodeError, match=r"note is the text 'NULL' without quotes: set csv\.null and csv\.quote as"):
        rows(schema("note", types="VARCHAR"), row)


def test_rows_and_schema_files_may_spell_a_table_differently() -> None:
    """TiDB compares names without case, and so does the search for the version that a row names."""
    key, file = schema("id")
    row = KEY, f'"I","T","Test",{TSO},1'.encode()

    assert rows((key, file), row)[0]["id"] == 1
    assert rows((key, file), row, tables="tEST.t")[0]["id"] == 1


def test_a_version_that_nobody_knows_is_a_bad_record() -> None:
    """A row whose table has no file with its version is an error with the table and the version."""
    with pytest.raises(DecodeError, match=r"version 2 of test\.t is unknown"):
        rows(schema("id"), (KEY.replace(b"1", b"2"), f'"I","t","test",{TSO},1'.encode()))


@pytest.mark.parametrize("quote", ['"', ""])
@pytest.mark.parametrize("cut", range(1, 14))
def test_a_row_without_its_terminator_is_cut_short(quote: str, cut: int) -> None:
    """A file that ends within a row makes a bad record of it: a number in its last column may lack digits."""
    row = f"{quote}I{quote},{quote}t{quote},{quote}test{quote},{TSO},12345,6789012345\r\n".encode()
    cutter = CSVCutter(1, FileSettings(quote=quote))
    whole_rows = [(cutter.key, message) for message in cutter.cut(row + row[:-cut])]
    rest = [(message, cutter.key) for message in cutter.rest()]
    captured = Captured.of(schema("id", "n", types="BIGINT"), *whole_rows, *((key, message) for message, key in rest))

    assert len(whole_rows) == len(rest) == 1
    with pytest.raises(DecodeError, match="the file ends in this row, without the terminator") as caught:
        captured.read(sizes=whole, csv__quote=quote)
    assert "offset=2" in str(caught.value)


def test_an_old_row_without_its_new_one_is_cut_short() -> None:
    """A file that ends between the two rows of an update makes no delete of it."""
    cutter = CSVCutter(1, FileSettings())
    (good, *none) = cutter.cut(f'"I","t","test",{TSO},false,1\r\n"D","t","test",{TSO},true,1\r\n'.encode())
    key = cutter.key
    (cut,) = cutter.rest()

    assert not none
    with pytest.raises(DecodeError, match="or without the new row of an update"):
        rows(schema("id"), (key, good), (cutter.key, cut))
