"""The pipeline reads each golden case, a file of messages that TiCDC is known to write, as the case says."""

import re
import warnings
from typing import Any

import pytest
from pyspark.sql.types import StructType

from tests.support.captured import Sizes, make_options, single, whole
from tests.support.cases import Case, load_case, shown
from tests.support.paths import ROOT
from ticdc_source.errors import TiCDCSourceError
from ticdc_source.protocols import PROTOCOLS, decoder_of
from ticdc_source.protocols.events import Split
from ticdc_source.schema.ddl_event import ddl_kind
from ticdc_source.spark.schema import to_spark

GOLDEN = ROOT / "tests" / "golden"
FILES = sorted(GOLDEN.glob("*.case"))
ITEMS = 51
# The warnings of inference about types, which every read of such messages has.
_NOTE = re.compile(r"The messages of .* do not fully say|TIMESTAMP columns of ")
_ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+) \|$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)]+\.case)\)")


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def case(request: pytest.FixtureRequest) -> Case:
    return load_case(request.param)


def splits(case: Case) -> list[tuple[int, Split]]:
    """Split the records of a case with the decoder that recognizes one of them."""
    captured = case.captured
    options = make_options(**case.options)
    for name in PROTOCOLS:
        decoder = decoder_of(name, options)
        records = [record for records in captured.partitions.values() for record in records]
        if any(decoder.facts.recognizes(record.key, record.value) for record in records):
            return [
                (offset_range.partition, decoder.split(chunk))
                for offset_range in captured.ranges()
                for chunk in captured.fetch(offset_range)
            ]
    return []


def rows_of(case: Case, sizes: Sizes) -> tuple[list[dict[str, Any]], StructType, list[str]]:
    """Infer the schema and read; return the rows, Spark's schema, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        schema = case.captured.schema(**case.options)
        table = case.captured.read(sizes=sizes, schema=schema, **case.options)
    rows = [{name: shown(value) for name, value in row.items()} for row in table.to_pylist()]
    return rows, to_spark(schema), [str(warning.message) for warning in caught]


@pytest.mark.parametrize("sizes", [whole, single], ids=["whole", "single"])
def test_rows_are_as_the_case_says(case: Case, sizes: Sizes) -> None:
    """A read has exactly the case's rows, types, keys, warnings and error, however records are cut into chunks."""
    expected = case.expected
    if not expected["row"] and not expected["error"]:
        assert not any(split.tables or split.corrupt for _, split in splits(case)), "rows, and the case has none"
        return
    if expected["error"]:
        with pytest.raises(TiCDCSourceError, match=re.escape(expected["error"][0])):
            rows_of(case, sizes)
        return

    rows, schema, caught = rows_of(case, sizes)

    assert len(rows) == len(expected["row"]), rows
    assert [{name: row[name] for name in wanted} for row, wanted in zip(rows, expected["row"], strict=True)] == (
        expected["row"]
    )
    assert {name: schema[name].dataType.simpleString() for name in case.types} == case.types
    assert {name: schema[name].metadata["ticdc.mysql_type"] for name in case.mysql_types} == case.mysql_types
    assert {
        name: {key: schema[name].metadata.get(key) for key in wanted} for name, wanted in case.metadata.items()
    } == case.metadata
    assert case.keys is None or [column.name for column in schema if column.metadata.get("ticdc.key")] == case.keys
    assert case.columns is None or [name for name in schema.names if not name.startswith("_")] == case.columns
    assert all(any(wanted in text for text in caught) for wanted in expected["warning"]), caught
    assert not [
        text for text in caught if not _NOTE.match(text) and not any(wanted in text for wanted in expected["warning"])
    ]


def test_ddl_and_watermarks_are_as_the_case_says(case: Case) -> None:
    """Splitting returns exactly the DDL events and watermarks of the case, if it lists any."""
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
                    "kind": ddl_kind(event),
                }
            )  # fmt: skip
        watermarks += [
            {"partition": partition, "offset": mark.position, "index": mark.index, "ts": mark.ts}
            for mark in split.watermarks
        ]

    for found, name in ((ddl, "ddl"), (watermarks, "watermark")):
        wanted = case.expected[name]
        assert len(found) == len(wanted), found
        assert [{name: event[name] for name in names} for event, names in zip(found, wanted, strict=True)] == wanted


def table() -> dict[int, tuple[str, set[str]]]:
    """Return the table of tests/golden/README.md: each item's text, and the cases that it links."""
    text = (GOLDEN / "README.md").read_text(encoding="utf-8")
    return {int(item): (held, set(_LINK.findall(held))) for item, _, held in _ROW.findall(text)}


def test_every_item_has_a_case_or_a_reason() -> None:
    """The table has all 51 items, each with its cases or with the reason why no message can show it."""
    items = table()

    assert sorted(items) == list(range(1, ITEMS + 1))
    assert all(cases or len(held.split()) > 3 for held, cases in items.values())


def test_the_table_names_every_case_at_its_item() -> None:
    """The cases of an item are the files with its number, and no file is left out."""
    items = table()

    for item, (_, cases) in items.items():
        assert cases == {path.name for path in FILES if int(path.name.split("-")[1]) == item}, item
