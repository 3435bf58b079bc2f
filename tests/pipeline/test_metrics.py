"""A read counts what it decodes, and its metrics are written as lines of JSON."""

import json
from pathlib import Path

import pytest

from tests.support.captured import Captured, make_options
from tests.support.messages import TSO, canal
from ticdc_source.driver.context import context_of_schema
from ticdc_source.driver.read_spec import read_spec
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.pipeline.metrics import metrics_line, write_lines
from ticdc_source.pipeline.read import ReadState, read

ID = {"id": "int"}


def test_everything_of_a_range_is_counted_once() -> None:
    """Metrics count each row, event, bad record and byte of a range once, and hold the range of its commit-ts."""
    messages = [
        canal("INSERT", [{"id": "1"}], None, ID, _tidb={"commitTs": TSO}),
        canal("UPDATE", [{"id": "1"}], [{"id": "2"}], ID, _tidb={"commitTs": TSO + 5}),
        canal("DELETE", [{"id": "1"}], None, ID, _tidb={"commitTs": TSO + 3}),
        canal("INSERT", [{"id": "1"}], None, ID, table="other"),
        canal("ALTER", isDdl=True, sql="x"),
        canal("TIDB_WATERMARK", _tidb={"watermarkTs": TSO + 9}),
        canal("TIDB_WATERMARK", _tidb={"watermarkTs": TSO + 7}),
        (b"", b"{"),
        canal("INSERT", [{"id": "x"}], None, ID, _tidb={"commitTs": TSO}),
    ]
    captured = Captured.of(*messages)
    options = {"tables": "test.t", "mode": "DROPMALFORMED"}
    schema = captured.schema(**options)
    context = context_of_schema(schema, make_options(**options))
    assert context is not None
    state = ReadState()

    list(read(captured.fetch(captured.ranges()[0]), read_spec(schema, make_options(**options), context), state))
    line = metrics_line(
        state.counters,
        OffsetRange("t", 0, 0, 9),
        4,
        {"batch": 7},
        client="kafka-python 3",
        native_fallback="nativeCode=off",
    )

    assert line == {
        "batch": 7, "topic": "t", "partition": 0, "start": 0, "end": 9, "lag": 4, "records": 9,
        "bytes": sum(len(value or b"") for _, value in messages), "rows": 4,
        "events": {"insert": 1, "update_preimage": 1, "update_postimage": 1, "delete": 1, "ddl": 1,
                   "destructive_ddl": 0,
                   "watermark": 2,
                   "other_tables": 1},
        "claim_checks": 0, "key_only": 0, "skipped": 0, "decode_errors": 2, "dropped": 2,
        "rescued": 0, "invalid_utf8": 0,
        "min_commit_ts": TSO, "max_commit_ts": TSO + 5,
        "watermark": TSO + 9, "ending_commit_ts": None,
        "client": "kafka-python 3", "client_fallback": None,
        "decoded": {"native": state.counters.native, "general": 4 - state.counters.native},
        "native_fallback": "nativeCode=off",
    }  # fmt: skip


def test_a_task_writes_one_file_of_metrics(tmp_path: Path) -> None:
    """A task writes its lines to one file and leaves no other file behind."""
    write_lines(str(tmp_path / "deep" / "down"), "task", [{"a": 1}, {"b": 2}])

    (file,) = (tmp_path / "deep" / "down").iterdir()
    assert [json.loads(line) for line in file.read_text().splitlines()] == [{"a": 1}, {"b": 2}]


def test_metrics_that_cannot_be_written_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A metrics folder that cannot be created is logged and does not fail a read."""
    blocked = tmp_path / "file"
    blocked.write_text("")

    write_lines(str(blocked), "task", [{"a": 1}])

    assert "cannot be written" in caplog.text
