"""Where a worker's time goes, stage by stage, and the least that a reader in Python can take.

All columns but the last are CPU time of this process, which does a worker's work: the stages one by one over the same
messages. Within decoding, cProfile separates parsing, turning rows into columns, and casting. For reference: the
general path without the fetch, `orjson.loads` alone, and prebuilt Arrow batches into Spark's Java.
"""

from __future__ import annotations

import cProfile
import json
import pstats
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.json

from benchmarks.bench_throughput import consumed, filled_topic
from benchmarks.corpus import WORKS, Message, Work, messages
from benchmarks.in_process import chunks_of, cpu_of, fetched, spec_for
from benchmarks.prebuilt import Prebuilt
from benchmarks.results import Chart, Result
from benchmarks.session import ROOT, Session, session
from ticdc_source.events import Chunk
from ticdc_source.pipeline.coalesce import coalesce_batches
from ticdc_source.pipeline.read import ReadSpec, ReadState, read
from ticdc_source.spark.schema import to_spark

NAME = "stages"
TITLE = "Where a worker's time goes: CPU microseconds a row; on the right what no reader in Python can do without"
STAGES = ("fetch", "split", "parse", "columns", "cast", "assemble", "arrow")
REFERENCES = ("general path", "orjson.loads", "into Java")

_BUILT_IN = "~"  # cProfile's file of a function that is written in C
_DEPTH = 12  # of callers to follow from a built-in function
_JAVA_ROWS = 500_000
_MAX_BYTES = 32 << 20  # of a coalesced record batch: the default of maxBytesPerBatch


@dataclass(frozen=True)
class Size:
    """The number of records of each work, and the number of rows that go into Java."""

    records: dict[str, int]
    java_rows: int


_RECORDS = {
    "canal-json": 30_000,
    "canal-json, 3 columns": 60_000,
    "canal-json, 60 columns": 6_000,
    "open-protocol": 4_000,
    "debezium, no schema": 30_000,
    "debezium, schema": 20_000,
}
SIZES = {
    "full": Size(_RECORDS, _JAVA_ROWS),
    "quick": Size({"canal-json": 10_000, "open-protocol": 1_000}, 100_000),
    "tiny": Size({"canal-json": 100}, 100),
}


def run(bootstrap: str, size_name: str, command: str) -> Result:
    """Measure all works."""
    size = SIZES[size_name]
    result = Result(NAME, TITLE, command, asdict(size))
    result.columns = ("work", *STAGES, "sum", *REFERENCES)
    with session(1) as live:
        live.spark.dataSource.register(Prebuilt)
        for name, records in size.records.items():
            samples, rows = measure(live, bootstrap, WORKS[name], records, size.java_rows)
            result.samples[name] = samples
            figures = {stage: round(seconds / rows * 1e6, 2) for stage, seconds in samples[0].items()}
            result.figures[name] = {"rows": rows, "microseconds_a_row": figures}
            total = sum(figures[stage] for stage in STAGES)
            cells = [*(figures[stage] for stage in STAGES), total, *(figures[reference] for reference in REFERENCES)]
            result.rows.append([name, *(f"{cell:.2f}" for cell in cells)])
    parts = {work: figures["microseconds_a_row"] for work, figures in result.figures.items()}
    series = {stage: {work: part[stage] for work, part in parts.items()} for stage in STAGES}
    result.chart = Chart("CPU microseconds a row", series, stacked=True)
    return result


def measure(
    live: Session, bootstrap: str, work: Work, records: int, java_rows: int
) -> tuple[list[dict[str, float]], int]:
    """Return the CPU seconds of each stage and reference, and the number of rows they are for."""
    some = list(islice(messages(work.name), records))
    chunks = list(chunks_of(some, protocol=work.protocol))
    spec, state = spec_for(some, **work.options), ReadState()
    with filled_topic(bootstrap, work, records, 1) as (topic, filled):
        fetching = cpu_of(lambda: fetched(bootstrap, topic, filled.records)) * records / filled.records
    tables = [table_events for chunk in chunks for table_events in spec.decoder.split(chunk).tables.values()]

    def decode() -> None:
        for table_events in tables:
            spec.decoder.decode(table_events, spec.plan, state.learned)

    batches = list(_coalesced(chunks, spec, state))
    rows = sum(batch.num_rows for batch in batches)
    assert rows == sum(message.rows for message in some)
    splitting = cpu_of(lambda: [spec.decoder.split(chunk, learned=state.learned) for chunk in chunks])
    decoding = cpu_of(decode)
    whole = cpu_of(lambda: _drain(chunks, spec, state))
    took = {
        "fetch": fetching,
        "split": splitting,
        **{part: decoding * share for part, share in shares_of(decode, decoding).items()},
        "assemble": max(0.0, whole - splitting - decoding),
        "arrow": cpu_of(lambda: _written(batches)),
        "general path": _without_fast_paths(chunks, spec),
        "orjson.loads": cpu_of(lambda: _parse(some, work)),
        "into Java": _into_java(live, batches, rows, java_rows),
    }
    return [took], rows


def shares_of(run_once: Callable[[], None], plain: float) -> dict[str, float]:
    """Profile a decoding, and return the shares of parsing, columns and casting.

    The profiler makes calls slower, and adds that time to the Python function that calls. The excess over the `plain`
    CPU seconds is subtracted there, in proportion to the number of calls.
    """
    profile = cProfile.Profile()
    read_json = pyarrow.json.read_json
    pyarrow.json.read_json = lambda *given, **named: _traced_json(read_json, *given, **named)
    try:
        profile.runcall(run_once)
    finally:
        pyarrow.json.read_json = read_json
    stats: dict[tuple[str, int, str], Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    calls: Counter[tuple[str, int, str]] = Counter()
    for function, (_, count, _, _, callers) in stats.items():
        if function[0] != _BUILT_IN:
            calls[function] += count
            continue
        for caller, (_, from_there, _, _) in callers.items():
            calls[caller] += from_there
    excess = max(0.0, sum(own for _, _, own, _, _ in stats.values()) - plain) / max(1, calls.total())
    seconds: Counter[str] = Counter()
    for function, (_, _, own, _, _) in stats.items():
        seconds[_part_of(function, stats)] += max(0.0, own - calls[function] * excess)
    return {part: seconds[part] / max(seconds.total(), 1e-9) for part in ("parse", "columns", "cast")}


def _traced_json(read_json: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Parse in a Python function, because the profiler does not see Cython's."""
    return read_json(*given, **named)


def _part_of(function: tuple[str, int, str], stats: Mapping[tuple[str, int, str], Any], depth: int = 0) -> str:
    """Return the part that a function belongs to: by its own file, or by that of the caller with most of its time."""
    file, _, name = function
    if "orjson" in name or name == _traced_json.__name__ or file.startswith(_PYTHON_JSON):
        return "parse"
    if file.startswith(_KERNELS) or Path(file).name == "kernels.py":  # the kernels of one protocol are in its folder
        return "cast"
    callers = stats[function][4]
    if file.startswith(_OURS) or not callers or depth > _DEPTH:
        return "columns"
    return _part_of(max(callers, key=lambda caller: callers[caller][2]), stats, depth + 1)


_OURS = str(ROOT / "ticdc_source")
_KERNELS = str(ROOT / "ticdc_source" / "kernels")
_PYTHON_JSON = str(Path(json.decoder.__file__).parent)


def _drain(chunks: list[Chunk], spec: ReadSpec, state: ReadState) -> None:
    for _ in _coalesced(chunks, spec, state):
        pass


def _without_fast_paths(chunks: list[Chunk], spec: ReadSpec) -> float:
    """Return the CPU seconds of all but the fetch on the general path, which parses each message whole."""
    general = replace(spec, plan=replace(spec.plan, fast_path=False))
    return cpu_of(lambda: _drain(chunks, general, ReadState()))


def _coalesced(chunks: list[Chunk], spec: ReadSpec, state: ReadState) -> Iterator[pa.RecordBatch]:
    return coalesce_batches(read(chunks, spec, state), spec.max_rows, _MAX_BYTES)


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
    if work.protocol != "open-protocol":
        yield value
        return
    for data, first in ((message.key or b"", 8), (value, 0)):
        start = first
        while start < len(data):
            end = start + 8 + int.from_bytes(data[start : start + 8], "big")
            yield data[start + 8 : end]
            start = end


def _into_java(live: Session, batches: list[pa.RecordBatch], rows: int, java_rows: int) -> float:
    """Return the CPU seconds, of all processes, for a number of rows in prebuilt batches, after a warm-up."""
    path = str(live.folder / "prebuilt.arrow")
    with pa.ipc.new_file(path, batches[0].schema) as file:
        for batch in batches:
            file.write_batch(batch)
    reader = live.spark.read.format("prebuilt").schema(to_spark(batches[0].schema)).option("path", path)
    times = max(1, java_rows // rows)
    few, many = (reader.option("times", str(number)).load() for number in (1, times + 1))
    for _ in range(3):
        consumed(live, many)
    took = consumed(live, many)["cpu_seconds"] - consumed(live, few)["cpu_seconds"]  # without the fixed cost of a query
    return max(0.0, took / times)
