"""Records and `decode` beside what they replace: Spark's Kafka source, and `format("ticdc")`.

Four reads of the same topics, in turns, into the `noop` sink: records of Spark's Kafka source with their headers;
`outputFormat=record`; `decode` behind Spark's Kafka source; `format("ticdc")`. CPU seconds are those of Spark's Java
and of the Python workers. All schemas are known beforehand.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import ticdc_source
from benchmarks import opponents
from benchmarks.bench_throughput import consumed, filled_topic
from benchmarks.corpus import WORKS, Work
from benchmarks.results import Chart, Result
from benchmarks.session import session

NAME = "frames"
TITLE = "Thousand records by CPU second: raw records, and decoded rows"
KAFKA, RECORD, DECODE, TICDC = "kafka", "record", "kafka + decode", "ticdc"
PAIRS = {"record / kafka": (RECORD, KAFKA), "decode / ticdc": (DECODE, TICDC)}


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Attributes:
        records: number of records in the topic of each work.
        rounds: number of rounds that count.
        warm_up: number of rounds before these.
    """

    records: dict[str, int]
    rounds: int
    warm_up: int


_RECORDS = {"canal-json": 200_000, "open-protocol": 30_000, "debezium, no schema": 150_000}
SIZES = {
    "full": Size(_RECORDS, 3, 2),
    "quick": Size({"canal-json": 40_000}, 2, 1),
    "tiny": Size(dict.fromkeys(_RECORDS, 100), 1, 0),
}


def run(bootstrap: str, size_name: str, command: str) -> Result:
    """Measure all works."""
    size = SIZES[size_name]
    result = Result(NAME, TITLE, command, asdict(size))
    result.columns = ("work", *(f"{side}: records / CPU s" for side in (KAFKA, RECORD, DECODE, TICDC)), *PAIRS)
    with session(1, opponents.opponent_jars()) as live:
        for name, records in size.records.items():
            with filled_topic(bootstrap, WORKS[name], records, 1) as (topic, filled):
                frames = frames_of(live.spark, bootstrap, topic, WORKS[name])
                samples: list[dict[str, Any]] = [
                    {"side": side, "round": number, "counts": number >= size.warm_up, **consumed(live, frame)}
                    for number in range(size.rounds + size.warm_up)
                    for side, frame in frames.items()
                ]
            result.samples[name] = samples
            result.figures[name] = figures_of(samples, filled.records)
            result.rows.append(_row(name, result.figures[name]))
            print(" ", " | ".join(result.rows[-1]), file=sys.stderr, flush=True)
    series = {
        side: {name: figures[side] / 1000 for name, figures in result.figures.items()}
        for side in (KAFKA, RECORD, DECODE, TICDC)
    }
    result.chart = Chart("thousand records by CPU second", series)
    return result


def frames_of(spark: SparkSession, bootstrap: str, topic: str, work: Work) -> dict[str, DataFrame]:
    """Return the four reads of a topic."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    kafka = spark.read.format("kafka").options(**options, includeHeaders="true").load()
    ticdc = spark.read.format("ticdc").options(**options, **work.options).load()
    return {
        KAFKA: kafka,
        RECORD: spark.read.format("ticdc").options(**options, outputFormat="record").load(),
        DECODE: ticdc_source.decode(kafka, ticdc.schema, **work.options),
        TICDC: ticdc,
    }


def figures_of(samples: list[dict[str, Any]], records: int) -> dict[str, Any]:
    """Return the median rate of each side, and of each pair the CPU seconds of the first by those of the second."""
    seconds = {
        (sample["side"], sample["round"]): max(sample["cpu_seconds"], 0.01) for sample in samples if sample["counts"]
    }
    rounds = sorted({number for _, number in seconds})
    figures: dict[str, Any] = {
        side: round(median(records / seconds[side, number] for number in rounds))
        for side in (KAFKA, RECORD, DECODE, TICDC)
    }
    for pair, (first, second) in PAIRS.items():
        ratios = [seconds[first, number] / seconds[second, number] for number in rounds]
        figures[pair] = round(median(ratios), 2)
        figures[f"{pair}, rounds"] = [round(ratio, 2) for ratio in ratios]
    return figures


def _row(work: str, figures: dict[str, Any]) -> list[str]:
    rates = [f"{figures[side]:,}" for side in (KAFKA, RECORD, DECODE, TICDC)]
    return [work, *rates, *(f"{figures[pair]:.2f}" for pair in PAIRS)]
