"""Golden cases: what TiCDC is known to write, a file per truth, read through the spine."""

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from tests.conftest import ROOT
from tests.support.captured import Captured, Sizes, make_options, single, whole
from tests.support.cases import Case, load_case, shown
from ticdc_source.errors import TiCDCSourceError
from ticdc_source.events import Split
from ticdc_source.protocols import decoder_of
from ticdc_source.spark.schema import to_spark

GOLDEN = ROOT / "tests" / "golden"
FILES = sorted(GOLDEN.glob("*.case"))
ITEMS = 51
# Inference's notes about types, which every read of such messages gives.
_NOTE = re.compile(r"Column .* of ")
_ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+) \|$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)]+\.case)\)")


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def case(request: pytest.FixtureRequest) -> Case:
    """A golden case."""
    return load_case(request.param)


def splits(case: Case) -> list[tuple[int, Split]]:
    """Cut the records of a case, by the decoder that recognizes the first of them."""
    captured = case.captured
    options = make_options(**case.options)
    for name in ("open-protocol", "canal-json", "debezium"):
        decoder = decoder_of(name, options)
        records = [record for records in captured.partitions.values() for record in records]
        if any(decoder.recognizes(record.key, record.value) for record in records):
            return [
                (wanted.partition, decoder.split(chunk))
                for wanted in captured.ranges()
                for chunk in captured.fetch(wanted)
            ]
    return []


def rows_of(case: Case, sizes: Sizes) -> tuple[list[dict[str, Any]], StructType, list[str]]:
    """Infer and read; return the rows, the schema that Spark is told, and the warnings."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        schema = case.captured.schema(**case.options)
        table = case.captured.read(sizes=sizes, schema=schema, **case.options)
    rows = [{name: shown(value) for name, value in row.items()} for row in table.to_pylist()]
    return rows, to_spark(schema), [str(warning.message) for warning in told]


@pytest.mark.parametrize("sizes", [whole, single], ids=["whole", "single"])
def test_rows_are_as_the_case_says(case: Case, sizes: Sizes) -> None:
    """A read gives exactly the rows of the case, its types, keys, warnings and error, however chunks are cut."""
    expected = case.expected
    if not expected["row"] and not expected["error"]:
        assert not any(split.tables or split.corrupt for _, split in splits(case)), "rows, and the case has none"
        return
    if expected["error"]:
        with pytest.raises(TiCDCSourceError, match=re.escape(expected["error"][0])):
            rows_of(case, sizes)
        return

    rows, schema, told = rows_of(case, sizes)

    assert len(rows) == len(expected["row"]), rows
    assert [{name: row[name] for name in wanted} for row, wanted in zip(rows, expected["row"], strict=True)] == (
        expected["row"]
    )
    assert {name: schema[name].dataType.simpleString() for name in case.types} == case.types
    assert {name: schema[name].metadata["ticdc.mysql_type"] for name in case.mysql_types} == case.mysql_types
    assert case.keys is None or [column.name for column in schema if column.metadata.get("ticdc.key")] == case.keys
    assert case.columns is None or [name for name in schema.names if not name.startswith("_")] == case.columns
    assert all(any(wanted in text for text in told) for wanted in expected["warning"]), told
    assert not [
        text for text in told if not _NOTE.match(text) and not any(wanted in text for wanted in expected["warning"])
    ]


def test_ddl_and_watermarks_are_as_the_case_says(case: Case) -> None:
    """Splitting gives exactly the DDL events and watermarks that the case names, if it names any."""
    if not case.expected["ddl"] and not case.expected["watermark"]:
        return

    ddl: list[dict[str, Any]] = []
    watermarks: list[dict[str, Any]] = []
    for partition, split in splits(case):
        for event in split.ddl:
            changes = event.table_changes
            table_changes = None if changes is None else [[change["type"], change["id"]] for change in changes]
            ddl.append(
                {
                    "partition": partition, "offset": event.position, "index": event.index,
                    "database": event.table.database, "table": event.table.table, "commit_ts": event.commit_ts,
                    "query": event.query, "type": event.type, "type_code": event.type_code,
                    "table_changes": table_changes,
                }
            )  # fmt: skip
        watermarks += [
            {"partition": partition, "offset": mark.position, "index": mark.index, "ts": mark.ts}
            for mark in split.watermarks
        ]

    for found, kind in ((ddl, "ddl"), (watermarks, "watermark")):
        wanted = case.expected[kind]
        assert len(found) == len(wanted), found
        assert [{name: event[name] for name in names} for event, names in zip(found, wanted, strict=True)] == wanted


def test_a_case_says_what_it_holds(case: Case) -> None:
    """Each case has a sentence that is true, whence it is known, where its records come from, and what is expected."""
    assert case.truth.endswith(".")
    assert case.source
    assert case.messages
    assert any(case.expected.values())
    assert case.captured.partitions
    assert all({"_change_type", "_event_type"} & row.keys() for row in case.expected["row"])


def table() -> dict[int, tuple[str, set[str]]]:
    """Return the table of tests/golden/README.md: what it says of each item, and the cases it links."""
    text = (GOLDEN / "README.md").read_text(encoding="utf-8")
    return {int(item): (held, set(_LINK.findall(held))) for item, _, held in _ROW.findall(text)}


def test_every_item_has_a_case_or_a_reason() -> None:
    """All 51 items stand in the table, each with its cases or with why no message can show it."""
    items = table()

    assert sorted(items) == list(range(1, ITEMS + 1))
    assert all(cases or len(held.split()) > 3 for held, cases in items.values())


def test_the_table_names_every_case_at_its_item() -> None:
    """The cases of an item are the files that bear its number, and no file is left out."""
    items = table()

    for item, (_, cases) in items.items():
        assert cases == {path.name for path in FILES if int(path.name.split("-")[1]) == item}, item


@pytest.mark.parametrize("broken", ["truth: x.\nopinion: none\n", "record: partition 0\nkey: rot13 x\n"])
def test_a_case_that_says_something_else_is_an_error(tmp_path: Path, broken: str) -> None:
    """A misspelt field or form of bytes does not make a case that holds nothing."""
    path = tmp_path / "open-01-broken.case"
    path.write_text(broken)

    with pytest.raises(ValueError, match=r"nothing that a case has|written as"):
        load_case(path)


def test_a_wrong_value_fails_a_case() -> None:
    """A case whose expected value is changed does not hold: cases can fail."""
    case = load_case(GOLDEN / "open-07-binary-strings-are-go-quoted.case")
    assert isinstance(case.captured, Captured)
    case.expected["row"][0]["_change_type"] = "delete"

    with pytest.raises(AssertionError):
        test_rows_are_as_the_case_says(case, whole)
