"""The cost of fetching records from Kafka: by kafka-python's own consumer, and cut out of record batches.

One process reads the same topic partition in each way in turns, and once more as typed rows, with `read_arrow`,
planning and inference included. Figures are the best of several turns, because noise only adds. CPU time is that of the
whole process, with kafka-python's own thread.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial

from kafka import KafkaConsumer, TopicPartition

from benchmarks.bench_throughput import filled_topic
from benchmarks.corpus import WORKS
from benchmarks.in_process import fetched
from benchmarks.load import Filled
from benchmarks.results import Chart, Result
from ticdc_source import read_arrow

NAME = "fetch"
TITLE = "Records of a topic partition, by one process: thousands a CPU second"
_ROWS = "read_arrow"
WAYS = ("KafkaConsumer", "fetch", _ROWS)

_WORK = "canal-json"


@dataclass(frozen=True)
class Size:
    """The number of records of each codec, and the number of turns."""

    records: int
    codecs: Sequence[str | None]
    turns: int


SIZES = {"full": Size(300_000, (None, "gzip"), 5), "quick": Size(50_000, (None,), 3), "tiny": Size(200, (None,), 1)}


def run(bootstrap: str, size_name: str, command: str) -> Result:
    """Measure each way."""
    size = SIZES[size_name]
    result = Result(NAME, TITLE, command, asdict(size))
    result.columns = ("a topic partition", *WAYS, f"{_ROWS}: rows")
    work = WORKS[_WORK]
    for codec in size.codecs:
        with filled_topic(bootstrap, work, size.records, 1, codec) as (topic, filled):
            arguments = (bootstrap, topic, filled.records)
            functions = (_consumed, fetched, partial(_read, hints=work.options))
            runs = {way: partial(function, *arguments) for way, function in zip(WAYS, functions, strict=True)}
            samples = list(_measured(runs, filled, size.turns))
        name = codec or "not compressed"
        result.samples[name] = samples
        best = {key: max(sample[key] for sample in samples) for key in samples[0]}
        result.figures[name] = {"records": filled.records, "records_a_cpu_second": best}
        result.rows.append([name, *(f"{figure / 1000:.0f}" for figure in best.values())])
    rates = {name: figures["records_a_cpu_second"] for name, figures in result.figures.items()}
    series = {key: {name: rate[key] for name, rate in rates.items()} for key in next(iter(rates.values()))}
    result.chart = Chart("records a CPU second", series)
    return result


def _measured(runs: Mapping[str, Callable[[], int]], filled: Filled, turns: int) -> Iterator[dict[str, float]]:
    for _ in range(turns):
        sample: dict[str, float] = {}
        for way, run_once in runs.items():
            begun = time.process_time()
            count = run_once()
            seconds = time.process_time() - begun
            assert count == (filled.rows if way == _ROWS else filled.records)
            sample[way] = round(filled.records / seconds)
        sample[f"{_ROWS}: rows"] = round(filled.rows / seconds)
        yield sample


def _consumed(bootstrap: str, topic: str, records: int) -> int:
    """Read with kafka-python's consumer, and drop its records."""
    topic_partition = TopicPartition(topic, 0)
    with closing(KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")) as consumer:
        consumer.assign([topic_partition])
        count = 0
        while count < records:
            count += len(consumer.poll(timeout_ms=500).get(topic_partition, []))
    return count


def _read(bootstrap: str, topic: str, records: int, hints: Mapping[str, str]) -> int:
    """Read rows, and drop them."""
    ends = json.dumps({topic: {0: records}})
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "endingOffsets": ends}
    return sum(batch.num_rows for batch in read_arrow({**options, **hints}))
