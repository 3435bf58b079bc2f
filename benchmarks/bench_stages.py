"""Where a worker's time goes, stage by stage, on the native path and on the general path: without Spark and a broker.

This process does a worker's work on answers that a broker would give: it cuts them into chunks (fetch), finds the
table of each message (split), turns messages into columns (decode), adds metadata columns and joins record batches
(assemble), and writes the bytes that go to Java (arrow). All figures are CPU microseconds per row, each the least of
several turns, because noise only adds. What the network costs is not in them. Both paths must give the same rows.
"""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice

import orjson
import pyarrow as pa

from benchmarks.corpus import WORKS, Message, Work, messages
from benchmarks.in_process import Answer, answers_of, cpu_of, cut, spec_for
from benchmarks.results import Chart, Result
from ticdc_source.pipeline.coalesce import coalesce_batches
from ticdc_source.pipeline.read import read
from ticdc_source.pipeline.spec import ReadSpec, ReadState
from ticdc_source.protocols.events import TableEvents
from ticdc_source.sources.chunk import Chunk

NAME = "stages"
TITLE = "Where a worker's time goes: CPU microseconds per row, on both paths"
STAGES = ("fetch", "split", "decode", "assemble", "arrow")
PATHS = {"native": True, "general": False}

_SAMPLED = 2_000  # messages that the schema is inferred from


@dataclass(frozen=True)
class Size:
    """The number of records of each work, and of turns."""

    records: dict[str, int]
    turns: int


_RECORDS = {
    "canal-json": 12_000,
    "canal-json, 3 columns": 24_000,
    "canal-json, 60 columns": 3_000,
    "open-protocol": 1_200,
    "debezium, no schema": 12_000,
    "debezium, schema": 6_000,
    "simple": 12_000,
    "simple, 60 columns": 3_000,
    "avro": 24_000,
    "avro, 60 columns": 6_000,
}
SIZES = {
    "full": Size(_RECORDS, 4),
    "quick": Size({name: records // 2 for name, records in _RECORDS.items()}, 3),
    "tiny": Size(dict.fromkeys(_RECORDS, 100), 1),
}


def run(_: str, size_name: str, command: str) -> Result:
    """Measure all works."""
    size = SIZES[size_name]
    result = Result(NAME, TITLE, command, asdict(size))
    result.columns = ("work", "path", *STAGES, "sum", "general / native", "orjson.loads")
    for name, records in size.records.items():
        took, rows = measure(WORKS[name], records, size.turns)
        sums = {path: sum(stages[stage] for stage in STAGES) for path, stages in took.items()}
        for path, stages in took.items():
            figures = {stage: round(seconds / rows * 1e6, 2) for stage, seconds in stages.items()}
            result.samples[f"{name}, {path}"] = [stages]
            result.figures[f"{name}, {path}"] = {"rows": rows, "microseconds_a_row": figures}
            total, ratio = sums[path] / rows * 1e6, sums["general"] / max(sums["native"], 1e-9)
            cells = [*(figures[stage] for stage in STAGES), total]
            ends = [f"{ratio:.1f}", f"{figures['orjson.loads']:.2f}"] if path == "native" else ["", ""]
            result.rows.append([name, path, *(f"{cell:.2f}" for cell in cells), *ends])
            print(" ", " | ".join(result.rows[-1]), file=sys.stderr, flush=True)
    parts = {name: figures["microseconds_a_row"] for name, figures in result.figures.items()}
    series = {stage: {name: part[stage] for name, part in parts.items()} for stage in STAGES}
    result.chart = Chart("CPU microseconds per row", series, stacked=True)
    return result


def measure(work: Work, records: int, turns: int) -> tuple[dict[str, dict[str, float]], int]:
    """Return the CPU seconds of each stage by path, and the number of rows they are for."""
    some = list(islice(messages(work.name), records))
    rows = sum(message.rows for message in some)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a user should set is not the subject here
        spec = spec_for(some[:_SAMPLED], **work.options)
    answers = list(answers_of(some))
    gc.freeze()  # no collection between two measurements looks at what lives as long as the work
    took, tables = {}, {}
    for path, is_native in PATHS.items():
        path_spec = replace(spec, plan=replace(spec.plan, native_path=is_native))
        took[path], tables[path] = _of_path(answers, path_spec, work, turns)
        assert tables[path].num_rows == rows
        took[path]["orjson.loads"] = cpu_of(lambda: _parse(some, work), turns) if is_native else 0.0
    gc.unfreeze()
    check_both_are_equal(tables["native"], tables["general"])
    return took, rows


def _of_path(answers: list[Answer], spec: ReadSpec, work: Work, turns: int) -> tuple[dict[str, float], pa.Table]:
    """Return the CPU seconds of each stage, and the rows."""
    chunks = list(cut(answers, work.protocol))
    state = ReadState()
    batches = list(_coalesced(chunks, spec, state))  # the first pass learns the form of the messages
    tables = [
        table_events
        for chunk in chunks
        for table_events in spec.decoder.split(chunk, learned=state.learned).tables.values()
    ]
    runs: Mapping[str, Callable[[], object]] = {
        "fetch": lambda: sum(map(len, cut(answers, work.protocol))),
        "split": lambda: [spec.decoder.split(chunk, learned=state.learned) for chunk in chunks],
        "decode": lambda: _decode(tables, spec, state),
        "whole": lambda: sum(batch.num_rows for batch in _coalesced(chunks, spec, state)),
        "arrow": lambda: _written(batches),
    }
    least = dict.fromkeys(runs, float("inf"))
    for _ in range(turns):  # in turns, so that a noisy moment meets all of them
        for name, run_once in runs.items():
            least[name] = min(least[name], cpu_of(run_once, 1))
    least["assemble"] = max(0.0, least.pop("whole") - least["split"] - least["decode"])
    return least, pa.Table.from_batches(batches).combine_chunks()


def check_both_are_equal(native: pa.Table, general: pa.Table) -> None:
    """Compare the rows of both paths, and name the first value that differs."""
    assert native.schema.equals(general.schema), f"{native.schema} is not {general.schema}"
    for name in native.column_names:
        if not native[name].equals(general[name]):
            pairs = zip(native[name].to_pylist(), general[name].to_pylist(), strict=True)
            row, pair = next((row, pair) for row, pair in enumerate(pairs) if pair[0] != pair[1])
            raise AssertionError(
                f"column {name}, row {row}: {pair[0]!r} on the native path, {pair[1]!r} on the general path"
            )


def _decode(tables: list[TableEvents], spec: ReadSpec, state: ReadState) -> None:
    for table_events in tables:
        spec.decoder.decode(table_events, spec.plan, state.learned)


def _coalesced(chunks: list[Chunk], spec: ReadSpec, state: ReadState) -> Iterator[pa.RecordBatch]:
    return coalesce_batches(read(chunks, spec, state), spec.max_rows, spec.max_bytes)


def _written(batches: list[pa.RecordBatch]) -> None:
    with pa.ipc.new_stream(pa.BufferOutputStream(), batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)


def _parse(some: list[Message], work: Work) -> None:
    for message in some:
        for body in _bodies(message, work):
            orjson.loads(body)


def _bodies(message: Message, work: Work) -> Iterator[bytes]:
    value = message.value or b""
    if work.protocol == "avro":
        return
    if work.protocol != "open-protocol":
        yield value
        return
    for data, first in ((message.key or b"", 8), (value, 0)):
        start = first
        while start < len(data):
            end = start + 8 + int.from_bytes(data[start : start + 8], "big")
            yield data[start + 8 : end]
            start = end
