"""Rows per CPU second and per second: ticdc beside Spark's own Kafka source and the code that you would write for it.

Both read the same topics of one broker in one session, in turns, into the `noop` sink, with the same columns, types and
rows, which is checked first. Java compiles what runs often, so both first read a part of each topic again and again,
until the CPU time of neither falls any more, or the time for this is over. CPU seconds are those of Spark's Java and of
all processes below it, the Python workers; the broker's do not count. Both know the schema of the table beforehand.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks import opponents
from benchmarks.corpus import WORKS, Message, Work, messages, watermarks
from benchmarks.load import Filled, batches_of, loader
from benchmarks.processes import cpu_seconds, forget_peaks, own_cpu_seconds, sampled
from benchmarks.results import Chart, Result
from benchmarks.session import ROOT, Session, session
from examples.local_kafka import create_topic, delete_topic
from tests.versions.environments import extras, interpreter, run_module

NAME = "throughput"
TITLE = (
    "Throughput: rows per CPU second and per second; Spark's Kafka source + from_json "
    "(open-protocol: mapInArrow, avro: from_avro) "
    "beside ours"
)
OURS, GENERAL, THEIRS = "ticdc", "ticdc, native off", "kafka"
RATES = {"rows_per_cpu_second": "cpu_seconds", "rows_per_second": "seconds"}
# The PySpark that managed platforms run, its release of Spark's Kafka source, and the work that is measured on it.
PLATFORM, PLATFORM_KAFKA, ON_PLATFORM = "4.1.4", "4.1.1", "canal-json"
TARGETS = {  # ticdc / kafka, per CPU second on one core
    "canal-json": 3.0,
    f"{ON_PLATFORM}, PySpark {PLATFORM}": 2.6,
    "canal-json, 3 columns": 3.0,
    "canal-json, 60 columns": 1.8,
    "open-protocol": 3.5,
    "debezium, no schema": 2.0,
    "debezium, schema": 2.2,
    "simple": 2.5,
    "simple, 60 columns": 1.8,
    "avro": 1.5,
    "avro, 60 columns": 1.0,
}
DROP = 0.15  # the most by which rows per CPU second may fall from one core to two
PEAK = 300  # MiB of a worker, in every run

_BATCH_BYTES = 100_000
_DISTINCT_BYTES = 12 << 20  # of distinct messages in a topic; then they repeat
_CHECKED = 300  # messages whose rows are compared
_FEW_RECORDS = 10  # of a query whose time is a query's fixed cost
_PART = 4  # the part of a topic that a warm-up reads
_STILL_FALLS = 0.97  # Java still compiles if the last two of a side's costs have one below so much of the least before
_LAST = 2


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Attributes:
        records: number of records in the topic of each work.
        rounds: number of rounds that count.
        warm_up: seconds of a work's warm-up at most.
        cores: Spark's cores, and so the partitions of a topic, with the works that are measured on them.
        native_off: the works that are also read without the native path, on one core.
        longer: other seconds of warm-up, by work.
        on_platform: whether a work is also measured on the PySpark of managed platforms.
        compression: codec of the record batches.
    """

    records: dict[str, int]
    rounds: int
    warm_up: float
    cores: dict[int, tuple[str, ...]]
    native_off: tuple[str, ...] = ("canal-json",)
    longer: dict[str, float] = field(default_factory=dict)
    on_platform: bool = False
    compression: str | None = None


# As many that a query's fixed cost is a small part of the faster side's.
_RECORDS = {
    "canal-json": 1_000_000,
    "canal-json, 3 columns": 800_000,
    "canal-json, 60 columns": 180_000,
    "open-protocol": 35_000,
    "debezium, no schema": 400_000,
    "debezium, schema": 200_000,
    "simple": 400_000,
    "simple, 60 columns": 180_000,
    "avro": 800_000,
    "avro, 60 columns": 360_000,
}
_FEW = {name: records // 6 for name, records in _RECORDS.items()}
_EACH_PROTOCOL = ("canal-json", "open-protocol", "debezium, no schema", "simple", "avro")
SIZES = {
    "full": Size(
        _RECORDS,
        3,
        warm_up=25,
        cores={1: tuple(_RECORDS), 2: ("canal-json",)},
        longer={"canal-json, 60 columns": 45},
        on_platform=True,
    ),
    "quick": Size(_FEW, 2, warm_up=8, cores={1: ("canal-json", "open-protocol")}),
    "tiny": Size(dict.fromkeys(_EACH_PROTOCOL, 100), 1, warm_up=0, cores={1: ("canal-json",), 2: _EACH_PROTOCOL}),
}


def run(bootstrap: str, size_name: str, command: str) -> Result:
    """Measure all works."""
    size = SIZES[size_name]
    result = Result(NAME, TITLE, command, asdict(size))
    rates = (f"{side}: rows / CPU s" for side in ("ticdc", "kafka"))
    ratios = ("per CPU second (rounds)", "target", "per second (rounds)")
    result.columns = ("work", "cores", *rates, *ratios, "µs: Java + Python", "MiB")
    checked: set[str] = set()
    for cores, works in size.cores.items():
        with session(cores, opponents.opponent_jars()) as live:
            for work in (WORKS[name] for name in works):
                if work.name not in checked:
                    check_both_are_equal(live.spark, bootstrap, work)
                    checked.add(work.name)
                sides = (OURS, GENERAL, THEIRS) if cores == 1 and work.name in size.native_off else (OURS, THEIRS)
                samples, filled = measure(live, bootstrap, work, cores, size, sides)
                for side in sides[:-1]:
                    name = work.name if side == OURS else side.replace(OURS, work.name)
                    _add(result, name, cores, [s for s in samples if s["side"] in {side, THEIRS}], filled)
        if cores == 1 and size.on_platform:
            _add(result, f"{ON_PLATFORM}, PySpark {PLATFORM}", cores, *_on_platform(bootstrap, size_name))
    result.notes.extend(_notes(result.figures, size))
    series = {
        side: {name: figures[side]["rows_per_cpu_second"] / 1000 for name, figures in result.figures.items()}
        for side in ("ticdc", "kafka")
    }
    result.chart = Chart("thousand rows per CPU second", series)
    return result


def _on_platform(bootstrap: str, size_name: str) -> tuple[list[dict[str, Any]], Filled]:
    """Measure in a process with another PySpark."""
    python = interpreter(PLATFORM, *extras()["avro"], "pytest", "rich")
    done = run_module(python, ROOT, 600, "benchmarks.bench_throughput", bootstrap, size_name)
    return done.report["samples"], Filled(*done.report["filled"])


def main(bootstrap: str, size_name: str) -> None:
    """Measure one work on the PySpark of this environment, and print the samples as JSON."""
    with session(1, opponents.opponent_jars(PLATFORM_KAFKA)) as live:
        samples, filled = measure(live, bootstrap, WORKS[ON_PLATFORM], 1, SIZES[size_name])
    print(json.dumps({"samples": samples, "filled": filled}))


def _add(result: Result, work: str, cores: int, samples: list[dict[str, Any]], filled: Filled) -> None:
    name = f"{work}, local[{cores}]"
    result.samples[name] = samples
    result.figures[name] = figures_of(samples, filled)
    result.rows.append(_row(work, cores, result.figures[name]))
    print(" ", " | ".join(result.rows[-1]), file=sys.stderr, flush=True)  # a full run takes minutes


def measure(
    live: Session, bootstrap: str, work: Work, cores: int, size: Size, sides: tuple[str, ...] = (OURS, THEIRS)
) -> tuple[list[dict[str, Any]], Filled]:
    """Fill a topic, and read it in turns."""
    with filled_topic(bootstrap, work, size.records[work.name], cores, size.compression) as (topic, filled):
        ends = (
            {"endingOffsets": json.dumps({topic: dict.fromkeys(range(cores), number)})}
            for number in (filled.records // cores // _PART, _FEW_RECORDS)
        )
        parts, few, wholes = (frames_of(live.spark, bootstrap, topic, work, sides, end) for end in (*ends, {}))
        samples: list[dict[str, Any]] = []
        until = time.monotonic() + size.longer.get(work.name, size.warm_up)
        while time.monotonic() < until and not is_warm(samples):
            samples.extend(_round(live, parts, len(samples) // len(sides), counts=False))
        for number in range(size.rounds):
            samples.extend(_round(live, wholes, number, counts=True))
        for number in range(size.rounds):
            samples.extend({**sample, "is_fixed": True} for sample in _round(live, few, number, counts=False))
    return samples, filled


def _round(live: Session, frames: Mapping[str, DataFrame], number: int, *, counts: bool) -> list[dict[str, Any]]:
    sides = list(frames)[:: 1 if number % 2 == 0 else -1]
    samples = []
    for side in sides:
        # Spark keeps workers by their environment variables, of which this setting makes one: the opponent's Python for
        # open-protocol then runs in a worker of its own, and its memory does not count as ours.
        live.spark.conf.set("spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled", side == THEIRS)
        samples.append({"side": side, "round": number, "counts": counts, **consumed(live, frames[side])})
    return samples


def is_warm(samples: list[dict[str, Any]]) -> bool:
    """Return whether the CPU time of no side falls any more: the last of its rounds are no better than those before."""
    costs: dict[str, list[float]] = {}
    for sample in samples:
        costs.setdefault(sample["side"], []).append(sample["cpu_seconds"])
    return bool(costs) and all(
        len(each) > _LAST and min(each[-_LAST:]) >= _STILL_FALLS * min(each[:-_LAST]) for each in costs.values()
    )


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


def frames_of(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    work: Work,
    sides: Iterable[str] = (OURS, GENERAL, THEIRS),
    ends: Mapping[str, str] | None = None,
) -> dict[str, DataFrame]:
    """Return the frames with which the sides read a topic, whole or to an end."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest", **(ends or {})}
    ours = {**options, **work.options}
    load: dict[str, Callable[[], DataFrame]] = {
        OURS: lambda: spark.read.format("ticdc").options(**ours).load(),
        GENERAL: lambda: spark.read.format("ticdc").options(**ours, nativeCode="off").load(),
        THEIRS: lambda: opponents.load(spark, work, options),
    }
    return {side: load[side]() for side in sides}


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
        theirs = sorted(frames[THEIRS].collect(), key=lambda row: row["_sequence"])
        for frame in (frames[OURS], frames[GENERAL]):
            assert frame.dtypes == frames[THEIRS].dtypes, f"{frame.dtypes} is not {frames[THEIRS].dtypes}"
            ours = sorted(frame.collect(), key=lambda row: row["_sequence"])
            assert len(ours) == filled.rows
            assert ours == theirs, next(pair for pair in zip(ours, theirs, strict=False) if pair[0] != pair[1])
    finally:
        delete_topic(bootstrap, topic)


def consumed(live: Session, frame: DataFrame) -> dict[str, float]:
    """Read a whole frame without a sink, and return what that took."""
    forget_peaks(live.pid)
    with sampled(live.pid, interval=0.5) as sampler:
        cpu, java, begun = cpu_seconds(live.pid), own_cpu_seconds(live.pid), time.monotonic()
        frame.write.format("noop").mode("overwrite").save()
        seconds = time.monotonic() - begun
        cpu, java = cpu_seconds(live.pid) - cpu, own_cpu_seconds(live.pid) - java
    worker = sampler.peaks.get("worker", 0.0)
    return {
        "cpu_seconds": round(cpu, 2),
        "java_cpu_seconds": round(java, 2),
        "seconds": round(seconds, 3),
        "worker_peak_mib": round(worker, 1),
    }


def figures_of(samples: list[dict[str, Any]], filled: Filled) -> dict[str, Any]:
    """Return the medians of a work's rounds: of each side, and of the ratios of two reads of one round.

    Args:
        samples: reads of two sides; the one that is not Spark's Kafka source becomes `ticdc`.
        filled: what the topic holds.
    """
    counted = [{**s, "side": THEIRS if s["side"] == THEIRS else OURS} for s in samples if s["counts"]]
    figures: dict[str, Any] = {"records": filled.records, "bytes": filled.size, "rows": filled.rows}
    warm_up = [sample for sample in samples if not sample["counts"] and "is_fixed" not in sample]
    figures["warm_up_rounds"] = sum(sample["side"] == THEIRS for sample in warm_up)
    figures["is_warm"] = is_warm(warm_up)
    few = [sample for sample in samples if "is_fixed" in sample]
    for side in (OURS, THEIRS):
        own = [sample for sample in counted if sample["side"] == side]
        figures[side] = {
            "worker_peak_mib": max(sample["worker_peak_mib"] for sample in own),
            "fixed_cpu_seconds": median(s["cpu_seconds"] for s in few if (s["side"] == THEIRS) == (side == THEIRS)),
            "java_microseconds_a_row": round(median(s["java_cpu_seconds"] for s in own) / filled.rows * 1e6, 2),
            "microseconds_a_row": round(median(s["cpu_seconds"] for s in own) / filled.rows * 1e6, 2),
        }
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
    ratios = {
        rate: f"{figures[f'ratio_{rate}']:.2f} ({min(rounds):.2f} to {max(rounds):.2f})"
        for rate, rounds in ((rate, figures[f"ratio_{rate}_rounds"]) for rate in RATES)
    }
    ours, target = figures[OURS], TARGETS.get(work) if cores == 1 else None
    is_met = target is not None and figures["ratio_rows_per_cpu_second"] >= target
    java = ours["java_microseconds_a_row"]
    return [
        work,
        str(cores),
        *(f"{figures[side]['rows_per_cpu_second']:,}" for side in (OURS, THEIRS)),
        ratios["rows_per_cpu_second"],
        "" if target is None else f"{target}: {'met' if is_met else 'missed'}",
        ratios["rows_per_second"],
        f"{java:.2f} + {max(0.0, ours['microseconds_a_row'] - java):.2f}",
        f"{ours['worker_peak_mib']:.0f}",
    ]


def _notes(figures: dict[str, Any], size: Size) -> Iterator[str]:
    cold = [f"{name} ({figure['warm_up_rounds']} rounds)" for name, figure in figures.items() if not figure["is_warm"]]
    yield f"Java still compiled when the time for warm-up was over: {'; '.join(cold) or 'nowhere'}"
    fixed = {side: [figure[side]["fixed_cpu_seconds"] for figure in figures.values()] for side in (OURS, THEIRS)}
    yield "CPU seconds of a query that reads ten records, which all figures contain: " + ", ".join(
        f"{side} {min(seconds):.2f} to {max(seconds):.2f}" for side, seconds in fixed.items()
    )
    if set(size.cores) == {1, 2} and size.rounds > 1:
        drops = {}
        for work in size.cores[2]:
            one, two = (
                {side: figures[f"{work}, local[{cores}]"][side]["rows_per_cpu_second"] for side in (OURS, THEIRS)}
                for cores in size.cores
            )
            drops[work] = {side: 1 - two[side] / one[side] for side in one}
        worst = max(drops, key=lambda work: drops[work][OURS])
        met = "met" if drops[worst][OURS] <= DROP else "missed"
        both = ", ".join(f"{side} {drop:.0%}" for side, drop in drops[worst].items())
        yield f"target: from one core to two a drop of at most {DROP:.0%}: {met} ({worst}: {both})"
    peak = max(figure[OURS]["worker_peak_mib"] for figure in figures.values())
    met = "met" if peak <= PEAK else "missed"
    yield f"target: a worker's peak of at most {PEAK} MiB in every run: {met} ({peak:.0f})"


if __name__ == "__main__":
    main(*sys.argv[1:])
