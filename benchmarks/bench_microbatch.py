"""The fixed cost of a micro-batch: ticdc compared with Spark's own Kafka source, on few records.

All sides read the same topics of one broker in one session, in turns (ABC, CBA, ABC …). A batch is produced in one
request, so that it spans all partitions, and the next one when Spark has reported it. Figures are Spark's own
`durationMs` of a trigger, without the first batches of each turn and without whole first turns.

The opponent runs twice. With its defaults, a task at the end of a topic takes half a second: Spark asks for the
partition's offsets on the connection on which a fetch already waits for more records, and Kafka answers in order, that
is, after `fetch.max.wait.ms` (500). The target compares ticdc with the opponent that has this setting at 10 ms, which
few users will have found.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import islice
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from benchmarks import corpus, opponents
from benchmarks.load import Loader, loader, record_batch
from benchmarks.results import Chart, Result
from benchmarks.session import Session, session
from examples.local_kafka import create_topic, delete_topic

NAME = "microbatch"
TITLE = "What a micro-batch costs: median time of a trigger in ms; Spark's Kafka source + from_json beside ours"
OURS, TUNED, THEIRS = "ticdc", "kafka tuned", "kafka"
SETTINGS: dict[str, dict[str, str]] = {
    OURS: {"schemaHints": corpus.ORDERS.hints},
    TUNED: {"kafka.fetch.max.wait.ms": "10"},
    THEIRS: {},
}
# Names in `durationMs`; the rest of a trigger is `other`.
PARTS = ("latestOffset", "queryPlanning", "walCommit", "getBatch", "addBatch", "commitOffsets")
TARGET = 1.2  # ticdc / tuned, up to as many partitions as follow
FEW = 4

_WORK = corpus.WORKS["canal-json"]
_SEED_RECORDS = 20
_PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class Case:
    """A type of batch: the number of partitions, of records in each, and whether the records are rows."""

    name: str
    partitions: int
    records: int = 20
    rows: bool = True


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Attributes:
        turns: how often each side runs; the first turn does not count, if there is another.
        warm_up: number of batches of a turn that do not count, in addition to its first.
        batches: number of batches that count.
        untuned: whether the opponent with its defaults runs too: in one turn and on few partitions, because it is slow
            and hardly varies.
        cases: which of `CASES`.
    """

    turns: int
    warm_up: int
    batches: int
    untuned: bool
    cases: tuple[Case, ...]


CASES = (
    Case("no rows (watermarks)", 1, rows=False),
    Case("1 partition", 1),
    Case("4 partitions", 4),
    Case("16 partitions", 16),
)
SIZES = {
    "full": Size(3, 2, 6, untuned=True, cases=CASES),
    "quick": Size(1, 2, 4, untuned=False, cases=CASES[:2]),
    "tiny": Size(1, 0, 1, untuned=False, cases=CASES[2:3]),
}


def run(bootstrap: str, size_name: str, command: str) -> Result:
    """Measure all cases."""
    size = SIZES[size_name]
    result = Result(NAME, TITLE, command, asdict(size))
    result.columns = ("a batch of", *SETTINGS, "ticdc / tuned", "ticdc / kafka", "tasks")
    with session(jars=opponents.opponent_jars()) as live, loader(bootstrap) as to_kafka:
        for case in size.cases:
            samples = measure(live, bootstrap, to_kafka, case, size)
            result.samples[case.name] = samples
            figures = figures_of(samples)
            result.figures[case.name] = figures
            result.rows.append(_row(case, figures))
            result.notes.append(_details(case, figures))
    sides = {side: {name: figures[side]["ms"] for name, figures in result.figures.items() if side in figures}
             for side in SETTINGS}  # fmt: skip
    result.chart = Chart("ms per micro-batch", {side: bars for side, bars in sides.items() if bars})
    few = [case.name for case in size.cases if case.partitions <= FEW]
    met = all(result.figures[name][f"{OURS} / {TUNED}"]["ratio"] <= TARGET for name in few)
    result.notes.append(
        f"target: at most {TARGET} times kafka tuned up to {FEW} partitions: {'met' if met else 'missed'}"
    )
    return result


def measure(live: Session, bootstrap: str, to_kafka: Loader, case: Case, size: Size) -> list[dict[str, Any]]:
    """Run a case: turns of both sides on one topic; return every batch."""
    topic = f"bench-{uuid.uuid4().hex[:12]}"
    create_topic(bootstrap, topic, case.partitions)
    try:
        seed = record_batch(islice(corpus.messages(), _SEED_RECORDS)).data
        firsts = to_kafka.send(topic, dict.fromkeys(range(case.partitions), seed))
        ends = {number: first + _SEED_RECORDS for number, first in firsts.items()}
        schema = check_both_are_equal(live.spark, bootstrap, topic)
        samples = []
        is_untuned = size.untuned and case.partitions <= FEW
        for turn in range(size.turns):
            for side in SETTINGS if turn % 2 == 0 else reversed(SETTINGS):
                if side == THEIRS and not (is_untuned and turn == min(1, size.turns - 1)):
                    continue
                options = _options(side, bootstrap, topic, ends)
                frame = _load(live.spark, side, options, schema)
                checkpoint = live.folder / f"checkpoint-{topic}-{turn}-{side.replace(' ', '-')}"
                with _started(frame, str(checkpoint)) as query:
                    for batch in _batches(live.spark, query, to_kafka, topic, case, ends, size):
                        counts = batch.pop("counts") and (turn > 0 or size.turns == 1)
                        samples.append({"side": side, "turn": turn, "counts": counts, **batch})
    finally:
        delete_topic(bootstrap, topic)
    return samples


def check_both_are_equal(spark: SparkSession, bootstrap: str, topic: str) -> StructType:
    """Compare what both sides read from a topic; return the read schema that `ticdc` inferred."""
    begin = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    ours = spark.read.format("ticdc").options(**begin, **SETTINGS[OURS]).load()
    theirs = opponents.load(spark, _WORK, begin)
    assert ours.dtypes == theirs.dtypes, f"{ours.dtypes} is not {theirs.dtypes}"
    rows = ours.collect()
    assert rows
    assert sorted(rows, key=str) == sorted(theirs.collect(), key=str)
    return ours.schema


def figures_of(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians of a case's batches, and the ratio of medians, also for each pair of turns."""
    counted = [sample for sample in samples if sample["counts"]]
    figures: dict[str, Any] = {}
    for side in SETTINGS:
        own = [sample for sample in counted if sample["side"] == side]
        if not own:
            continue
        triggers = [sample["ms"]["triggerExecution"] for sample in own]
        parts = [{name: sample["ms"].get(name, 0) for name in PARTS} for sample in own]
        other = [trigger - sum(part.values()) for trigger, part in zip(triggers, parts, strict=True)]
        figures[side] = {
            "batches": len(own),
            "ms": median(triggers),
            "ms_min": min(triggers),
            "ms_max": max(triggers),
            "parts_ms": {**{name: median(part[name] for part in parts) for name in PARTS}, "other": median(other)},
            "produced_to_done_s": round(median(sample["produced_to_done_s"] for sample in own), 3),
            "tasks": median(sample["tasks"] for sample in own),
        }
        if side != OURS:
            turns = sorted({sample["turn"] for sample in own})
            figures[f"{OURS} / {side}"] = {
                "ratio": round(figures[OURS]["ms"] / figures[side]["ms"], 2),
                "by_turn": [round(_of_turn(counted, turn, OURS) / _of_turn(counted, turn, side), 2) for turn in turns],
            }
    return figures


def _of_turn(samples: list[dict[str, Any]], turn: int, side: str) -> float:
    return float(median(s["ms"]["triggerExecution"] for s in samples if s["turn"] == turn and s["side"] == side))


def _row(case: Case, figures: dict[str, Any]) -> list[str]:
    ratios = [figures.get(f"{OURS} / {side}") for side in (TUNED, THEIRS)]
    return [
        case.name,
        *(f"{figures[side]['ms']:.0f}" if side in figures else "" for side in SETTINGS),
        *(f"{ratio['ratio']:.2f}" if ratio else "" for ratio in ratios),
        _each(figures, lambda side: f"{side['tasks']:.0f}"),
    ]


def _details(case: Case, figures: dict[str, Any]) -> str:
    parts = [f"{name} {_each(figures, _part(name))}" for name in PARTS]
    details = [
        "ratio by turn " + ", ".join(f"{ratio:.2f}" for ratio in figures[f"{OURS} / {TUNED}"]["by_turn"]),
        "from produced to done " + _each(figures, lambda side: f"{side['produced_to_done_s']:.2f}") + " s",
        *parts,
        "n = " + _each(figures, lambda side: str(side["batches"])),
    ]
    return f"{case.name}: {'; '.join(details)}"


def _part(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda side: f"{side['parts_ms'][name]:.0f}"


def _each(figures: dict[str, Any], text: Callable[[dict[str, Any]], str]) -> str:
    return " / ".join(text(figures[side]) for side in SETTINGS if side in figures)


def _options(side: str, bootstrap: str, topic: str, ends: dict[int, int]) -> dict[str, str]:
    starts = json.dumps({topic: {str(number): end for number, end in ends.items()}})
    return {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": starts, **SETTINGS[side]}


def _load(spark: SparkSession, side: str, options: dict[str, str], schema: StructType) -> DataFrame:
    if side == OURS:  # with a schema inferred before: an empty topic has nothing to infer from
        return spark.readStream.format("ticdc").schema(schema).options(**options).load()
    return opponents.load(spark, _WORK, options, streaming=True)


@contextmanager
def _started(frame: DataFrame, checkpoint: str) -> Iterator[Any]:
    query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    try:
        yield query
    finally:
        query.stop()


def _batches(
    spark: SparkSession, query: Any, to_kafka: Loader, topic: str, case: Case, ends: dict[int, int], size: Size
) -> Iterator[dict[str, Any]]:
    """Produce batch by batch, advance `ends`, and yield Spark's report of each batch."""
    messages = corpus.messages(seed=1) if case.rows else corpus.watermarks()
    for number in range(size.warm_up + 1 + size.batches):  # ticdc begins with an empty batch, which stores its start
        data = record_batch(islice(messages, case.records)).data
        before = dict(ends)
        firsts = to_kafka.send(topic, dict.fromkeys(ends, data))
        sent = time.time()
        ends.update({partition: first + case.records for partition, first in firsts.items()})
        progress = _await(query, topic, ends)
        done = _instant(progress["timestamp"]) + progress["durationMs"]["triggerExecution"] / 1000
        whole = _offsets_of(progress["sources"][0]["startOffset"], topic) == before
        yield {
            "counts": number > size.warm_up and whole,
            "batch": progress["batchId"],
            "ms": progress["durationMs"],
            "produced_to_done_s": round(done - sent, 3),
            "tasks": _tasks_of_last_job(spark, progress["runId"]),
        }
        time.sleep(_PAUSE_SECONDS)


def _await(query: Any, topic: str, ends: dict[int, int]) -> dict[str, Any]:
    """Wait until Spark reports a batch that ends at these offsets."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        progress = query.lastProgress
        if progress is not None and _offsets_of(progress["sources"][0]["endOffset"], topic) == ends:
            found: dict[str, Any] = json.loads(progress.json)
            return found
        if query.exception() is not None:
            raise query.exception()
        time.sleep(0.02)
    raise TimeoutError(f"no batch up to {ends} within {_PATIENCE_SECONDS} s; the last is {query.lastProgress}")


def _offsets_of(offset: Any, topic: str) -> dict[int, int]:
    parsed = json.loads(offset) if isinstance(offset, str) else offset
    return {int(number): end for number, end in ((parsed or {}).get(topic) or {}).items()}


def _instant(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _tasks_of_last_job(spark: SparkSession, run_id: str) -> int:
    """Return the number of tasks in a query's newest job: Spark has one job per batch, named after the run."""
    tracker = spark.sparkContext.statusTracker()
    jobs = tracker.getJobIdsForGroup(str(run_id))
    job = tracker.getJobInfo(max(jobs)) if jobs else None
    stages = [tracker.getStageInfo(stage) for stage in job.stageIds] if job is not None else []
    return sum(stage.numTasks for stage in stages if stage is not None)
