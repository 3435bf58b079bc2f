"""What does not grow: the cost of a row with the length of a topic, and the cost of a record of another table.

Spark reads topics of 10,000 to a million records on two cores without a sink: CPU microseconds per row, without the
cost of a query that reads a thousand. Then this process reads one of 200 tables in a topic: the cost of each record of
the other 199 tables, without its fetch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import cycle, islice
from statistics import median
from typing import Any

from benchmarks import corpus
from benchmarks.bench_throughput import consumed, filled_topic
from benchmarks.corpus import Message, canal_json
from benchmarks.in_process import chunks_of, cpu_of, spec_for
from benchmarks.results import Chart, Result
from benchmarks.session import Session, session
from ticdc_source.pipeline.read import read

NAME = "scale"
TITLE = "What does not grow: CPU microseconds per row with a topic's length, and a record with the tables beside"
GROWTH = 1.15  # the most by which the cost per row may grow from the shortest topic to the longest
OTHERS = 0.5  # microseconds at most for a record of another table, without its fetch
PEAK = 300  # MiB of a worker, however long the topic

_WORK = corpus.WORKS["canal-json, 3 columns"]
_CORES = 2
_BASE = 1_000  # records of a query that shows the fixed cost of a query


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Attributes:
        lengths: records of a topic.
        rounds: for the shorter topics; a topic of a million records is read once.
        tables: in a topic.
        others: number of records of the other tables.
    """

    lengths: tuple[int, ...]
    rounds: int
    tables: int
    others: int


SIZES = {
    "full": Size((10_000, 100_000, 1_000_000), 4, 200, 100_000),
    "quick": Size((10_000, 100_000), 3, 200, 20_000),
    "tiny": Size((2_000,), 1, 3, 300),
}


def run(bootstrap: str, size_name: str, command: str) -> Result:
    """Measure both."""
    size = SIZES[size_name]
    result = Result(NAME, TITLE, command, asdict(size))
    result.columns = ("what", "records", "µs or MiB", "target")
    with session(_CORES) as live, filled_topic(bootstrap, _WORK, size.lengths[-1], _CORES) as (topic, filled):
        rows = filled.rows / filled.records
        for length, samples in _lengths(live, bootstrap, topic, size):
            name = f"{length:,} records"
            cost = median(sample["cpu_seconds"] - samples[0]["base"] for sample in samples)
            figure = round(max(0.0, cost) / ((length - _BASE) * rows) * 1e6, 2)
            result.samples[name] = samples
            result.figures[name] = {"records": length, "microseconds_a_row": figure}
            result.rows.append(["a row of a topic of", f"{length:,}", f"{figure:.2f}", ""])
    peak = max(sample["worker_peak_mib"] for samples in result.samples.values() for sample in samples)
    costs = [figures["microseconds_a_row"] for figures in result.figures.values()]
    met = "met" if costs[-1] <= GROWTH * costs[0] else "missed"
    result.notes.append(f"target: the longest topic's row costs at most {GROWTH:.2f} times the shortest's: {met}")
    series = {"ticdc": {name: figures["microseconds_a_row"] for name, figures in result.figures.items()}}
    result.chart = Chart("CPU microseconds per row", series)
    name = f"one of {size.tables} tables"
    took = others(size.tables, size.others)
    figure = round(took / size.others * 1e6, 3)
    result.samples[name] = [{"cpu_seconds": took}]
    result.figures[name] = {"records": size.others, "microseconds_a_record_of_others": figure}
    target = f"{OTHERS}: {'met' if figure <= OTHERS else 'missed'}"
    result.rows.append([f"{name}: a record of another", f"{size.others:,}", f"{figure:.2f}", target])
    target = f"{PEAK}: {'met' if peak <= PEAK else 'missed'}"
    result.samples["worker"] = [{"worker_peak_mib": peak}]
    result.figures["worker"] = {"records": size.lengths[-1], "peak_mib": peak}
    result.rows.append(["the peak of a worker", f"{size.lengths[-1]:,}", f"{peak:.0f} MiB", target])
    return result


def _lengths(live: Session, bootstrap: str, topic: str, size: Size) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    def read_so_many(records: int) -> dict[str, float]:
        ends = json.dumps({topic: {str(number): records // _CORES for number in range(_CORES)}})
        reader = live.spark.read.format("ticdc").options(**_WORK.options).option("endingOffsets", ends)
        frame = reader.option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic).load()
        return consumed(live, frame)

    read_so_many(size.lengths[0])  # Java warms up
    base = median(read_so_many(_BASE)["cpu_seconds"] for _ in range(size.rounds))
    for length in size.lengths:
        rounds = size.rounds if length < 1_000_000 else 1
        yield length, [{"base": base, **read_so_many(length)} for _ in range(rounds)]


def others(tables: int, records: int) -> float:
    """Return the CPU seconds that the records of other tables take, without their fetch."""
    each = [
        (Message(*record) for record in canal_json.records(replace(corpus.ORDERS, name=f"orders_{number}"), number))
        for number in range(tables)
    ]
    distinct = [next(source) for source in islice(cycle(each), min(20 * tables, records))]
    messages = list(islice(cycle(distinct), records * tables // (tables - 1)))
    table = f"{corpus.DATABASE}.orders_0"
    options = {"tables": table, "schemaHints": corpus.ORDERS.hints}
    mine = [message for message in messages if b'"table":"orders_0"' in (message.value or b"")]

    def taken(some: list[Message]) -> float:
        chunks, spec = list(chunks_of(some)), spec_for(some, **options)
        return cpu_of(lambda: [batch.num_rows for batch in read(chunks, spec)])

    return max(0.0, taken(messages) - taken(mine))
