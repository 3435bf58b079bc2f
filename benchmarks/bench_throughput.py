"""Rows per CPU second: ticdc compared with Spark's own Kafka source and the code that you would write for it.

Both read the same topics of one broker in one session, in turns, into the `noop` sink, with the same columns, types and
rows, which is checked first. The first two rounds of both do not count, because Java compiles what runs often. CPU
seconds are those of Spark's Java and of all processes below it, the Python workers; the broker's do not count. Both
know the schema of the table beforehand.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain, islice
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks import opponents
from benchmarks.corpus import WORKS, Message, Work, messages, watermarks
from benchmarks.load import Filled, batches_of, loader
from benchmarks.processes import cpu_seconds, forget_peaks, sampled
from benchmarks.results import Chart, Result
from benchmarks.session import Session, session
from examples.local_kafka import create_topic, delete_topic

NAME = "throughput"
TITLE = "Rows by CPU second and by second: Spark's Kafka source + from_json (open-protocol: mapInArrow) beside ours"
OURS, THEIRS = "ticdc", "kafka"
RATES = {"rows_per_cpu_second": "cpu_seconds", "rows_per_second": "seconds"}
TARGET = 1.0  # ticdc / kafka, per CPU second
DROP = 0.15  # the most by which rows per CPU second may fall from one core to two

_BATCH_BYTES = 100_000
_DISTINCT_BYTES = 12 << 20  # of distinct messages in a topic; then they repeat
_CHECKED = 300  # messages whose rows are compared


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Attributes:
        records: number of records in the topic of each work.
        rounds: number of rounds that count.
        warm_up: number of rounds before these, which do not count.
        cores: Spark's cores, and so the partitions of a topic, with the works that are measured on them.
        compression: codec of the record batches.
    """

    records: dict[str, int]
    rounds: int
    warm_up: int
    cores: dict[int, tuple[str, ...]]
    compression: str | None = None


_RECORDS = {
    "canal-json": 250_000,
    "canal-json, 3 columns": 500_000,
    "canal-json, 60 columns": 50_000,
    "open-protocol": 35_000,
    "debezium, no schema": 250_000,
    "debezium, schema": 100_000,
}
_FEW = {name: records // 8 for name, records in _RECORDS.items()}
_EACH_PROTOCOL = ("canal-json", "open-protocol", "debezium, no schema")
SIZES = {
    "full": Size(_RECORDS, 3, warm_up=2, cores={1: tuple(_RECORDS), 2: ("canal-json", "open-protocol")}),
    "quick": Size(_FEW, 1, warm_up=1, cores={1: ("canal-json", "open-protocol")}),
    "tiny": Size(dict.fromkeys(_EACH_PROTOCOL, 100), 1, warm_up=0, cores={2: _EACH_PROTOCOL}),
}


def run(bootstrap: str, size_name: str, command: str) -> Result:
    """Measure all works."""
    size = SIZES[size_name]
    result = Result(NAME, TITLE, command, asdict(size))
    rates = (f"{side}: rows / CPU s" for side in (OURS, THEIRS))
    result.columns = ("work", "cores", *rates, "ratio", "of rounds", "by second", "worker MiB")
    checked: set[str] = set()
    for cores, works in size.cores.items():
        with session(cores, opponents.opponent_jars()) as live:
            for work in (WORKS[name] for name in works):
                name = f"{work.name}, local[{cores}]"
                if work.name not in checked:
                    check_both_are_equal(live.spark, bootstrap, work)
                    checked.add(work.name)
                samples, filled = measure(live, bootstrap, work, cores, size)
                result.samples[name] = samples
                result.figures[name] = figures_of(samples, filled)
                result.rows.append(_row(work.name, cores, result.figures[name]))
                print(" ", " | ".join(result.rows[-1]), file=sys.stderr, flush=True)  # a full run takes minutes
    result.notes.extend(_notes(result.figures, size))
    series = {
        side: {name: figures[side]["rows_per_cpu_second"] / 1000 for name, figures in result.figures.items()}
        for side in (OURS, THEIRS)
    }
    result.chart = Chart("thousand rows by CPU second", series)
    return result


def measure(live: Session, bootstrap: str, work: Work, cores: int, size: Size) -> tuple[list[dict[str, Any]], Filled]:
    """Fill a topic, and read it in turns."""
    with filled_topic(bootstrap, work, size.records[work.name], cores, size.compression) as (topic, filled):
        frames = frames_of(live.spark, bootstrap, topic, work)
        samples = []
        for number in range(size.rounds + size.warm_up):
            for side, frame in frames.items():
                counts = number >= size.warm_up
                samples.append({"side": side, "round": number, "counts": counts, **consumed(live, frame)})
    return samples, filled


@contextmanager
def filled_topic(
    bootstrap: str, work: Work, records: int, partitions: int, compression: str | None = None
) -> Iterator[tuple[str, Filled]]:
    """Yield a topic with this number of records of a work; it is deleted at the end of the `with` block."""
    topic = f"bench-{uuid.uuid4().hex[:12]}"
    create_topic(bootstrap, topic, partitions)
    try:
        first = next(messages(work.name))
        distinct = min(_DISTINCT_BYTES, records * len(first.value or b"") // partitions)
        batches = batches_of(messages(work.name), _BATCH_BYTES, distinct, compression)
        with loader(bootstrap) as to_kafka:
            filled = to_kafka.fill(topic, batches, partitions=partitions, records=records)
        yield topic, filled
    finally:
        delete_topic(bootstrap, topic)


def frames_of(spark: SparkSession, bootstrap: str, topic: str, work: Work) -> dict[str, DataFrame]:
    """Return the frames with which both sides read a topic, whole."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    return {
        OURS: spark.read.format("ticdc").options(**options, **work.options).load(),
        THEIRS: opponents.load(spark, work, options),
    }


def check_both_are_equal(spark: SparkSession, bootstrap: str, work: Work) -> None:
    """Read a few messages and watermarks with both, and compare columns, types and rows."""
    topic = f"bench-{uuid.uuid4().hex[:12]}"
    create_topic(bootstrap, topic, 2)
    try:
        few: Iterator[Message] = islice(messages(work.name, seed=1), _CHECKED)
        if work.protocol == "canal-json":
            few = chain(few, islice(watermarks(), 3))
        with loader(bootstrap) as to_kafka:
            filled = to_kafka.fill(topic, batches_of(few, 1 << 24, 1), partitions=2)
        frames = frames_of(spark, bootstrap, topic, work)
        assert frames[OURS].dtypes == frames[THEIRS].dtypes, f"{frames[OURS].dtypes} is not {frames[THEIRS].dtypes}"
        ours, theirs = (sorted(frame.collect(), key=lambda row: row["_sequence"]) for frame in frames.values())
        assert len(ours) == filled.rows
        assert ours == theirs, next(pair for pair in zip(ours, theirs, strict=False) if pair[0] != pair[1])
    finally:
        delete_topic(bootstrap, topic)


def consumed(live: Session, frame: DataFrame) -> dict[str, float]:
    """Read a whole frame without a sink, and return what that took."""
    forget_peaks(live.pid)
    with sampled(live.pid, interval=0.5) as sampler:
        cpu, begun = cpu_seconds(live.pid), time.monotonic()
        frame.write.format("noop").mode("overwrite").save()
        seconds, cpu = time.monotonic() - begun, cpu_seconds(live.pid) - cpu
    worker = sampler.peaks.get("worker", 0.0)
    return {"cpu_seconds": round(cpu, 2), "seconds": round(seconds, 3), "worker_peak_mib": round(worker, 1)}


def figures_of(samples: list[dict[str, Any]], filled: Filled) -> dict[str, Any]:
    """Return the medians of a work's rounds: of each side, and of the ratios of two consecutive reads."""
    counted = [sample for sample in samples if sample["counts"]]
    figures: dict[str, Any] = {"records": filled.records, "bytes": filled.size, "rows": filled.rows}
    for side in (OURS, THEIRS):
        own = [sample for sample in counted if sample["side"] == side]
        figures[side] = {"worker_peak_mib": max(sample["worker_peak_mib"] for sample in own)}
        for rate, measure_ in RATES.items():
            rates = [filled.rows / max(sample[measure_], 0.01) for sample in own]
            figures[side][rate] = round(median(rates))
            figures[side][f"{rate}_range"] = [round(min(rates)), round(max(rates))]
    for rate, measure_ in RATES.items():
        rounds = sorted({sample["round"] for sample in counted})
        pairs = ({s["side"]: s[measure_] for s in counted if s["round"] == number} for number in rounds)
        ratios = [pair[THEIRS] / max(pair[OURS], 0.01) for pair in pairs]
        figures[f"ratio_{rate}"] = round(median(ratios), 2)
        figures[f"ratio_{rate}_rounds"] = [round(ratio, 2) for ratio in ratios]
    return figures


def _row(work: str, cores: int, figures: dict[str, Any]) -> list[str]:
    rounds = figures["ratio_rows_per_cpu_second_rounds"]
    return [
        work,
        str(cores),
        *(f"{figures[side]['rows_per_cpu_second']:,}" for side in (OURS, THEIRS)),
        f"{figures['ratio_rows_per_cpu_second']:.2f}",
        f"{min(rounds):.2f} to {max(rounds):.2f}",
        f"{figures['ratio_rows_per_second']:.2f}",
        f"{figures[OURS]['worker_peak_mib']:.0f}",
    ]


def _notes(figures: dict[str, Any], size: Size) -> Iterator[str]:
    slow = [name for name, figure in figures.items() if figure["ratio_rows_per_cpu_second"] <= TARGET]
    met = f"missed by {'; '.join(slow)}" if slow else "met"
    yield f"target: more rows by CPU second than Spark's Kafka source: {met}"
    if list(size.cores) == [1, 2]:
        drops = {}
        for work in size.cores[2]:
            one, two = (figures[f"{work}, local[{cores}]"][OURS]["rows_per_cpu_second"] for cores in size.cores)
            drops[work] = 1 - two / one
        worst = max(drops, key=lambda work: drops[work])
        met = "met" if drops[worst] <= DROP else "missed"
        yield f"target: from one core to two a drop of at most {DROP:.0%}: {met} ({worst}: {drops[worst]:.0%})"
