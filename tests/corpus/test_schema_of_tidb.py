"""Messages of the corpus decode to the SQL truth with the schema that TiDB tells, whatever they say of types."""

import warnings
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from tests.corpus.test_corpus import MATRICES, differences, options_of, quoted
from tests.support.captured import Captured, load
from tests.support.truth import tables_with_rows, true_rows
from ticdc_source.errors import OptionError
from ticdc_source.pipeline.read import read
from ticdc_source.planning import read_context
from ticdc_source.planning.read_context import ContextFinder
from ticdc_source.planning.read_schema import read_schema
from ticdc_source.protocols import FORMATS, decoder_of
from ticdc_source.schema.model import Column, TableSchema
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import parse_type


def told(captured: Captured, database: str, table: str) -> TableSchema:
    versions = [one for one in captured.header["tables"] if (one["schema"], one["table"]) == (database, table)]
    columns = max(versions, key=lambda one: one["table_version"])["columns"]
    sent = (one for one in columns if one.get("generated") != "VIRTUAL")
    return TableSchema(
        TableName(database, table), tuple(Column(one["name"], parse_type(one["mysql_type"])) for one in sent)
    )


def rows_of(
    captured: Captured, table: TableSchema, monkeypatch: pytest.MonkeyPatch, told_at: int = 0, **options: str
) -> list[dict[str, Any]]:
    given = captured.options(tables=quoted(*table.table), **options_of(captured), **options)
    definitions = {(table.table.folded, told_at): table.columns} if told_at else {}
    schema = read_schema(table, decoder_of(FORMATS.of_tables, given), given, definitions=definitions)
    monkeypatch.setattr(read_context, "driver_fetcher", lambda _: nullcontext(captured))
    context = ContextFinder(schema, given, lambda _: {}).find(captured.ranges(), {})
    return [
        row
        for each in captured.ranges()
        for batch in read(captured.fetch(each), captured.spec(schema, given, context, each))
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("scenario", [*(name for name in MATRICES if name.endswith(".types")), "avro.default"])
def test_every_row_is_the_sql_truth(scenario: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Types that a protocol leaves open, such as DECIMAL, labels and BIT, come from TiDB."""
    captured = load(scenario)
    # avro has virtual generated columns, and the corpus has columns that were dropped in the end.
    own: dict[str, Any] = {"onSchemaDrift": "ignore"} if scenario.startswith("avro") else {}
    compared = 0
    for name in tables_with_rows(captured):
        table, cut = told(captured, *name), captured.only(*name)
        if len({column.name for column in table.columns}) < len(table.columns):
            continue  # avro wrote two names alike
        found = rows_of(cut, table, monkeypatch, **own)
        for row, truth in zip(found, true_rows(cut, *name), strict=True):
            here = {column.name for column in table.columns} & truth.values.keys()
            seen = replace(truth, values={column: truth.values[column] for column in here})
            wrong = differences(captured.header, seen, row, Counter())
            assert not wrong, f"{table.table} {truth.partition}/{truth.offset}: {wrong}"
            compared += len(here)
    assert compared > 1000


def test_names_that_avro_writes_otherwise_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a column would be NULL in each row."""
    captured = load("avro.default")
    name = tables_with_rows(captured)[0]
    table = told(captured, *name)
    renamed = replace(table, columns=(*table.columns, Column("sold-at", parse_type("int"))))

    with pytest.raises(OptionError, match=r"avro writes the name sold-at as sold_at.*set 'tableDDL'"):
        rows_of(captured.only(*name), renamed, monkeypatch)


def test_columns_that_are_left_out_are_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A column that was renamed before TiDB was asked has another name in messages: its values are missing."""
    captured = load("open-protocol.default.types")
    name = ("types_a", "t_json")
    table = told(captured, *name)
    renamed = [replace(one, name="document") if one.name == "c_json" else one for one in table.columns]

    rows = rows_of(captured.only(*name), replace(table, columns=tuple(renamed)), monkeypatch, told_at=1 << 62)

    assert {row["document"] for row in rows} == {None}
    (warning,) = {record.getMessage() for record in caplog.records}
    assert "returned without them: c_json; if one was renamed, its values are missing in document" in warning


@pytest.mark.parametrize(("scenario", "is_told"), [("canal-json.plain.types", True), ("simple.json.types", False)])
def test_the_time_zone_that_messages_lack_is_asked_for(
    scenario: str, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TiDB tells the types, and nobody the time zone of the server; simple names it in each value."""
    captured = load(scenario)
    name = next(each for each in tables_with_rows(captured) if "timestamp" in str(told(captured, *each)))
    given = captured.options(tables=quoted(*name))
    schema = read_schema(told(captured, *name), decoder_of(FORMATS.of_tables, given), given, definitions={})
    monkeypatch.setattr(read_context, "driver_fetcher", lambda _: nullcontext(captured))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ContextFinder(schema, given, lambda _: {}).find(captured.only(*name).ranges(), {})

    assert any("Set 'timeZone' to the server's --tz" in str(each.message) for each in caught) is is_told
