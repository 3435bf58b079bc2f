"""What a micro-batch costs beside its records: ours beside Spark's own Kafka source, on a few records each.

Both read the same topics of one broker in one session, in turns (AB, BA, AB …). A batch is produced in one request,
so that it spans all partitions, and the next when Spark has reported it. Figures are Spark's own `durationMs` of a
trigger; the first batches of every turn, and whole first turns, are left out.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from benchmarks import corpus, opponent
from benchmarks.load import Loader, loader, record_batch
from benchmarks.results import Result
from benchmarks.session import Session, session
from examples.local_kafka import create_topic, delete_topic

NAME = "microbatch"
TITLE = "Cost of a micro-batch: median time of a trigger in ms, ours / Spark's Kafka source + from_json"
OURS, THEIRS = "ticdc", "kafka"
# Names in `durationMs`; the rest of a trigger is `other`.
PARTS = ("latestOffset", "queryPlanning", "walCommit", "getBatch", "addBatch", "commitOffsets")
TARGET = 1.5  # ours / theirs, up to 4 partitions

_SEED_RECORDS = 20
_PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class Case:
    """A kind of batch: so many partitions, with so many records each, that are rows or are not."""

    name: str
    partitions: int
    records: int = 20
    rows: bool = True


@dataclass(frozen=True)
class Size:
    """How much is measured: `turns` of each side, of which the first does not count, with `batches` that count."""

    turns: int
    warm_up: int
    batches: int


CASES = (
    Case("no rows (watermarks)", 1, rows=False),
    Case("1 partition", 1),
    Case("4 partitions", 4),
    Case("16 partitions", 16),
)
SIZES = {"full": Size(5, 3, 8), "quick": Size(2, 2, 5), "tiny": Size(1, 0, 1)}


def run(bootstrap: str, size_name: str, command: str) -> Result:
    """Measure all cases."""
    size = SIZES[size_name]
    result = Result(NAME, TITLE, command, {**asdict(size), "cases": [asdict(case) for case in CASES]})
    result.columns = ("batches of", "ticdc", "kafka", "ratio", "ratio by turn", "tasks", "… kafka", "n", *PARTS[:5:4])
    with session(jars=opponent.opponent_jars()) as live, loader(bootstrap) as to_kafka:
        for case in CASES:
            samples = measure(live, bootstrap, to_kafka, case, size)
            result.samples[case.name] = samples
            figures = figures_of(samples)
            result.figures[case.name] = figures
            result.rows.append(_row(case, figures))
    return result


def measure(live: Session, bootstrap: str, to_kafka: Loader, case: Case, size: Size) -> list[dict[str, Any]]:
    """Run a case: turns of both sides on one topic; return every batch that was seen."""
    topic = f"bench-{uuid.uuid4().hex[:12]}"
    create_topic(bootstrap, topic, case.partitions)
    try:
        seed = record_batch(islice(corpus.messages(), _SEED_RECORDS)).data
        ends = {number: _SEED_RECORDS + to_kafka.send(topic, {number: seed})[number] for number in range(case.partitions)}
        schema = check_both_are_equal(live.spark, bootstrap, topic)
        samples = []
        for turn in range(size.turns):
            for side in (OURS, THEIRS) if turn % 2 == 0 else (THEIRS, OURS):
                options = _options(side, bootstrap, topic, ends)
                frame = _load(live.spark, side, options, schema)
                checkpoint = live.folder / f"checkpoint-{topic}-{turn}-{side}"
                with _started(frame, str(checkpoint)) as query:
                    for batch in _batches(live.spark, query, to_kafka, topic, case, ends, size):
                        counts = batch.pop("counts") and (turn > 0 or size.turns == 1)
                        samples.append({"side": side, "turn": turn, "counts": counts, **batch})
    finally:
        delete_topic(bootstrap, topic)
    return samples


def check_both_are_equal(spark: SparkSession, bootstrap: str, topic: str) -> StructType:
    """Read what is in a topic with both; return the read schema that `ticdc` inferred."""
    begin = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    ours = spark.read.format("ticdc").options(**begin, schemaHints="amount decimal(12,2)").load()
    theirs = opponent.load(spark, begin, streaming=False)
    assert ours.dtypes == theirs.dtypes, f"{ours.dtypes} is not {theirs.dtypes}"
    rows = ours.collect()
    assert rows
    assert sorted(rows, key=str) == sorted(theirs.collect(), key=str)
    return ours.schema


def figures_of(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Reduce a case's batches to medians, and the ratio of medians, also by pair of turns."""
    counted = [sample for sample in samples if sample["counts"]]
    figures: dict[str, Any] = {}
    for side in (OURS, THEIRS):
        own = [sample for sample in counted if sample["side"] == side]
        parts = {name: median(sample["ms"].get(name, 0) for sample in own) for name in PARTS}
        triggers = [sample["ms"]["triggerExecution"] for sample in own]
        other = [sample["ms"]["triggerExecution"] - sum(sample["ms"].get(name, 0) for name in PARTS) for sample in own]
        figures[side] = {
            "batches": len(own),
            "ms": median(triggers),
            "ms_min": min(triggers),
            "ms_max": max(triggers),
            "parts_ms": {**parts, "other": median(other)},
            "seconds_from_produced_to_done": round(median(sample["latency_s"] for sample in own), 3),
            "tasks": median(sample["tasks"] for sample in own),
        }
    figures["ratio"] = round(figures[OURS]["ms"] / figures[THEIRS]["ms"], 2)
    turns = sorted({sample["turn"] for sample in counted})
    figures["ratio_by_turn"] = [round(_of_turn(counted, turn, OURS) / _of_turn(counted, turn, THEIRS), 2) for turn in turns]
    return figures


def _of_turn(samples: list[dict[str, Any]], turn: int, side: str) -> float:
    return median(s["ms"]["triggerExecution"] for s in samples if s["turn"] == turn and s["side"] == side)


def _row(case: Case, figures: dict[str, Any]) -> list[str]:
    ours, theirs = figures[OURS], figures[THEIRS]
    turns = figures["ratio_by_turn"]
    parts = [f"{ours['parts_ms'][name]:.0f} / {theirs['parts_ms'][name]:.0f}" for name in PARTS[:5:4]]
    return [
        case.name,
        f"{ours['ms']:.0f}",
        f"{theirs['ms']:.0f}",
        f"{figures['ratio']:.2f}",
        f"{min(turns):.2f} to {max(turns):.2f}",
        f"{ours['tasks']:.0f}",
        f"{theirs['tasks']:.0f}",
        f"{ours['batches']} / {theirs['batches']}",
        *parts,
    ]


def _options(side: str, bootstrap: str, topic: str, ends: dict[int, int]) -> dict[str, str]:
    starts = json.dumps({topic: {str(number): end for number, end in ends.items()}})
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": starts}
    return {**options, "schemaHints": "amount decimal(12,2)"} if side == OURS else options


def _load(spark: SparkSession, side: str, options: dict[str, str], schema: StructType) -> DataFrame:
    if side == OURS:  # with the schema inferred before: at its start there is nothing to infer from
        return spark.readStream.format("ticdc").schema(schema).options(**options).load()
    return opponent.load(spark, options, streaming=True)


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
    """Produce batch by batch, move `ends` along, and yield what Spark says of each."""
    messages = corpus.messages(1) if case.rows else corpus.watermarks()
    for number in range(size.warm_up + 1 + size.batches):  # ours begins with an empty batch, to keep its start
        data = record_batch(islice(messages, case.records)).data
        before = dict(ends)
        firsts = to_kafka.send(topic, dict.fromkeys(ends, data))
        sent = time.time()
        ends.update({partition: first + case.records for partition, first in firsts.items()})
        progress = _await(query, topic, ends)
        done = _instant(progress["timestamp"]) + progress["durationMs"]["triggerExecution"] / 1000
        whole = _places(progress["sources"][0]["startOffset"], topic) == before
        yield {
            "counts": number > size.warm_up and whole,
            "batch": progress["batchId"],
            "ms": progress["durationMs"],
            "latency_s": round(done - sent, 3),
            "tasks": _tasks_of_last_job(spark, progress["runId"]),
        }
        time.sleep(_PAUSE_SECONDS)


def _await(query: Any, topic: str, ends: dict[int, int]) -> dict[str, Any]:
    """Wait until Spark reports a batch that ends there."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        progress = query.lastProgress
        if progress is not None and _places(progress["sources"][0]["endOffset"], topic) == ends:
            found: dict[str, Any] = json.loads(progress.json) if hasattr(progress, "json") else progress
            return found
        if query.exception() is not None:
            raise query.exception()
        time.sleep(0.02)
    message = f"no batch up to {ends} within {_PATIENCE_SECONDS} s; the last is {query.lastProgress}"
    raise TimeoutError(message)


def _places(offset: Any, topic: str) -> dict[int, int]:
    parsed = json.loads(offset) if isinstance(offset, str) else offset
    return {int(number): end for number, end in ((parsed or {}).get(topic) or {}).items()}


def _instant(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _tasks_of_last_job(spark: SparkSession, run_id: str) -> int:
    """Count the tasks of a query's newest job: Spark has one a batch, named after the run."""
    tracker = spark.sparkContext.statusTracker()
    jobs = tracker.getJobIdsForGroup(str(run_id))
    job = tracker.getJobInfo(max(jobs)) if jobs else None
    stages = [tracker.getStageInfo(stage) for stage in job.stageIds] if job is not None else []
    return sum(stage.numTasks for stage in stages if stage is not None)
