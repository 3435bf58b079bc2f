"""Files of a storage sink, made of the corpus, have the SQL truth beside it."""

from pathlib import Path
from typing import Any

import pytest

from tests.encoders.csv import CSV
from tests.sources.storage.files import compare
from tests.support.corpus import scenario
from tests.support.storage_sink import StorageSink

MORE = pytest.mark.slow("the same with other paths or settings")
pytestmark = pytest.mark.filterwarnings("ignore:The messages of .*:UserWarning")


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
