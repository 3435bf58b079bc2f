"""Files of a storage sink, made of the corpus, have the SQL truth beside it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.corpus.test_corpus import differences, quoted
from tests.encoders.csv import CSV
from tests.support.captured import Captured, Record
from tests.support.corpus import scenario
from tests.support.storage_sink import StorageSink
from tests.support.truth import tables_with_rows, true_rows
from ticdc_source.pipeline.read import read
from ticdc_source.pipeline.spec import ReadState, read_spec
from ticdc_source.planning.fetchers import fetch_settings, record_source
from ticdc_source.planning.load import batch_options, load_schema, plan_batch

MORE = pytest.mark.slow("the same with other paths or settings")
pytestmark = pytest.mark.filterwarnings("ignore:The messages of .*:UserWarning")


def read_files(path: Path, **options: str) -> pa.Table:
    given = {"path": str(path), **{name.replace("__", "."): value for name, value in options.items()}}
    parsed, schema = batch_options(given), load_schema(given)
    parts = plan_batch(schema, parsed)
    context = parts[0].context
    spec = read_spec(schema, parsed, context, parts[0].scope)
    state, settings = ReadState.of(spec), fetch_settings(parsed, context.protocol)
    fetcher = record_source(parsed).fetcher(settings, protocol=context.protocol)
    batches = [batch for part in parts for each in part.ranges for batch in read(fetcher.fetch(each), spec, state)]
    return pa.Table.from_batches(batches, schema)


def compare(sink: StorageSink, header: Mapping[str, Any], **options: str) -> int:
    """Read each table and compare each row, and where it is, with the truth; return how many rows were compared."""
    captured = Captured(header, {0: [Record(None, None, event) for *_, event in sink.placed]})
    count = 0
    for database, table in tables_with_rows(captured):
        rows = read_files(sink.folder, tables=quoted(database, table), includeMetadata="kafka", **options).to_pylist()
        found = {(row["_topic"], row["_offset"], row["_change_type"]): row for row in rows}
        true = list(true_rows(captured, database, table))
        assert len(found) == len(rows) == len(true), f"{table}: {len(rows)} rows, not {len(true)}"
        for truth in true:
            path, number, position, _ = sink.placed[truth.offset]
            row = found[path, position, truth.change_type]
            there = replace(truth, partition=number, offset=position)
            wrong = differences(header, there, row, Counter())
            assert not wrong, f"{table} {path} {position}: {wrong}"
        count += len(rows)
    return count


@pytest.mark.parametrize(
    ("name", "sink"),
    [
        ("canal-json.tidb-extension.types", {}),
        ("canal-json.tidb-extension.ops", {"date": "2026-08-18"}),
        pytest.param("canal-json.tidb-extension.ops", {"by_id": True}, marks=MORE),
        ("canal-json.content-compatible.ops", {"dispatcher": "aa-1_2", "old": True}),
        pytest.param("canal-json.output-raw-change-event.ops", {}, marks=MORE),
        pytest.param("canal-json.tidb-extension.tz-shanghai", {"rows": 1}, marks=MORE),
        ("canal-json.tidb-extension.invalid-utf8", {}),
    ],
)
def test_canal_json(name: str, sink: dict[str, Any], tmp_path: Path) -> None:
    """Each row of each table is the truth, and its address its file and its number."""
    found = scenario(name)
    written = StorageSink(tmp_path, found.header["tables"], **sink)
    written.write(found.records)

    assert compare(written, found.header, timeZone=found.header["time_zone"]) == len(written.placed) + sum(
        event["op"] == "update" for *_, event in written.placed
    )


HEADER, OLD = {"output_field_header": True}, {"output_old_value": True}


@pytest.mark.parametrize(
    ("name", "csv", "options"),
    [
        ("canal-json.tidb-extension.types", {**HEADER, **OLD}, {}),
        pytest.param(
            "canal-json.tidb-extension.types",
            {**HEADER, "binary": "hex"},
            {"csv__binaryEncodingMethod": "hex"},
            marks=MORE,
        ),
        (
            "canal-json.tidb-extension.types",
            {**HEADER, **OLD, "quote": "", "delimiter": "|+|", "null": "NULL!", "terminator": "\n"},
            {
                "csv__quote": "",
                "csv__delimiter": "|+|",
                "csv__null": "NULL!",
                "terminator": "\\n",
                "csv__outputOldValue": "true",
            },
        ),
        pytest.param("canal-json.tidb-extension.ops", {**HEADER, **OLD}, {}, marks=MORE),
        pytest.param("canal-json.tidb-extension.tz-shanghai", OLD, {}, marks=MORE),
        ("canal-json.tidb-extension.invalid-utf8", {}, {}),
    ],
)
def test_csv(name: str, csv: dict[str, Any], options: dict[str, str], tmp_path: Path) -> None:
    """Each row of each table is the truth, and its address its file and its number."""
    found = scenario(name)
    written = StorageSink(tmp_path, found.header["tables"], csv=CSV(**csv, time_zone=found.header["time_zone"]))
    written.write(found.records)
    header = {**found.header, "protocol": "csv", "config": csv}

    assert compare(written, header, timeZone=found.header["time_zone"], **options) == len(written.placed) + sum(
        event["op"] == "update" and "output_old_value" in csv for *_, event in written.placed
    )
