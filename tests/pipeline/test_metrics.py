"""A read counts what it decodes, and a metrics line says so."""

from collections.abc import Iterator, Mapping

import pytest

from tests.support.captured import Captured, make_options
from tests.support.messages import TSO, canal
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.pipeline.metrics import Counters, TaskFacts, metrics_line
from ticdc_source.pipeline.read import read
from ticdc_source.pipeline.spec import ReadState, read_spec
from website.meanings import METRICS

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
    context = captured.context(schema, make_options(**options))
    state = ReadState()

    list(read(captured.fetch(captured.ranges()[0]), read_spec(schema, make_options(**options), context), state))
    line = metrics_line(
        state.counters,
        OffsetRange("t", 0, 0, 9),
        4,
        {"batch": 7},
        table="test.t",
        client="kafka-python 3",
        native_fallback="nativeCode=off",
    )

    assert line == {
        "batch": 7, "table": "test.t", "topic": "t", "partition": 0, "start": 0, "end": 9, "lag": 4, "records": 9,
        "bytes": sum(len(value or b"") for _, value in messages), "rows": 4,
        "events": {"insert": 1, "update_preimage": 1, "update_postimage": 1, "delete": 1, "ddl": 1,
                   "destructive_ddl": 0,
                   "watermark": 2,
                   "other_tables": 1},
        "claim_checks": 0, "key_only": 0, "checksums": 0, "wrong_checksums": 0,
        "lost_deletes": 0, "skipped": 0, "decode_errors": 2, "dropped": 2,
        "rescued": 0, "invalid_utf8": 0,
        "min_commit_ts": TSO, "max_commit_ts": TSO + 5,
        "watermark": TSO + 9, "ending_commit_ts": None,
        "client": "kafka-python 3",
        "decoded": {"native": state.counters.native, "general": 4 - state.counters.native},
        "native_fallback": "nativeCode=off",
    }  # fmt: skip


def members(line: Mapping[str, object], start: str = "") -> Iterator[tuple[str, object]]:
    for name, value in line.items():
        if isinstance(value, dict):
            yield from members(value, f"{start}{name}.")
        else:
            yield f"{start}{name}", value


def assert_documented(line: Mapping[str, object]) -> None:
    """Compare the members of a line that Spark's tasks have written with the table of members."""
    types = {"bigint": (int,), "double": (float,), "string": (str,)}
    found = dict(members(line))
    assert found.keys() == {metric.name for metric in METRICS}
    for metric in METRICS:
        value = found[metric.name]
        assert metric.nullable if value is None else type(value) in types[metric.type], (metric.name, value)


def test_a_line_has_exactly_the_documented_members() -> None:
    """The table of members names each member of a line, with its type, and no other."""
    task: TaskFacts = {"query": "a", "batch": 0, "stage": 1, "task": 2, "attempt": 0, "time": 1.5}

    assert_documented(metrics_line(Counters(), OffsetRange("t", 0, 0, 9), None, task))
    with pytest.raises(AssertionError):
        assert_documented({**metrics_line(Counters(), OffsetRange("t", 0, 0, 9), None, task), "new": 1})
    with pytest.raises(AssertionError):
        assert_documented(metrics_line(Counters(), OffsetRange("t", 0, 0, 9), None, {**task, "stage": None}))  # type: ignore[typeddict-item]
