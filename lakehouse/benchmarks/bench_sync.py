"""`ticdc-lakehouse sync` compared with a pipeline written by hand: Spark's Kafka source, from_json, one MERGE a table.

Each side is a process of its own, in the environment of the engine's PySpark, with a topic and a folder of its own.
They take turns: a step's messages go to the topic of one side, and to that of the next when the first has reported it.
A step's time is Spark's `triggerExecution`, and its CPU time that of Java and all Python processes. In the end the rows
of all sides are compared.

The opponent runs with default settings, and tuned: two snapshot partitions and two shuffle partitions, which are right
for two cores, and few users will have found.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import islice, product
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq

from benchmarks import opponents
from benchmarks.corpus import Message, Table
from benchmarks.corpus.database import SHOP, Database, line_items, narrow
from benchmarks.load import Loader, loader, record_batch
from benchmarks.processes import cpu_seconds
from benchmarks.results import Chart, Result
from examples.local_kafka import create_topic, delete_topic
from lakehouse.tests.engines.engines import ENGINES
from tests.support.paths import PACKAGES
from tests.versions.environments import extras, interpreter

NAME = "sync"
TITLE = "A database kept in Delta and Iceberg: seconds of a micro-batch; ticdc-lakehouse sync beside a pipeline by hand"
OURS, TUNED, DEFAULT = SIDES = ("ticdc", "tuned", "default")
# The engine, and the release of Spark's Kafka source that there is for its PySpark.
RUNS = {"delta": ("delta-4.4", "4.1.1"), "iceberg": ("iceberg-1.12", "4.1.1")}

_PARTITIONS = 4
_SENT_AT_ONCE = 5_000  # records of a partition
_MEMORY = "2g"
_LONGEST_ERROR = 300


@dataclass(frozen=True)
class Case:
    """Tables, and what happens to them."""

    name: str  # its name
    tables: str | int  # what there is: `shop`, `items`, or a number of small tables
    rows: int  # the rows of each table at first
    changed: int  # how many tables change in a step
    changes: int  # the changes of each of them; 0 for an update of every row
    steps: int  # number of steps
    sides: tuple[str, ...] = SIDES  # who takes part

    def made(self) -> Sequence[Table]:
        if isinstance(self.tables, int):
            return narrow(self.tables)
        return SHOP if self.tables == "shop" else (line_items(),)


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    cases: tuple[Case, ...]  # what is measured
    engines: tuple[str, ...] = tuple(RUNS)  # with which engines


_PAIR = (OURS, TUNED)
SHOP_CASE, MANY, OF_MORE, LARGE, STEADY = "3 tables", "many tables", "many of more tables", "one large table", "steady"
SIZES = {
    "whole": Size(
        (
            Case(SHOP_CASE, "shop", 2667, 3, 800, 6),
            Case(MANY, 50, 20, 50, 20, 3),
            Case(OF_MORE, 500, 2, 50, 20, 3, (OURS,)),
            Case(LARGE, "items", 1_000_000, 1, 0, 1, _PAIR),
            Case(STEADY, "shop", 1000, 3, 167, 100, (OURS,)),
        )
    ),
    "full": Size(
        (
            Case(SHOP_CASE, "shop", 2667, 3, 800, 3),
            Case(LARGE, "items", 1_000_000, 1, 0, 1, _PAIR),
            Case(MANY, 50, 20, 50, 20, 2, _PAIR),
        )
    ),
    "quick": Size((Case(SHOP_CASE, "shop", 500, 3, 100, 2),)),
    "tiny": Size((Case(SHOP_CASE, "shop", 20, 3, 5, 1, _PAIR),), ("delta",)),
}


def run(bootstrap: str, size_name: str, command: str) -> Result:
    """Measure all cases."""
    size = SIZES[size_name]
    result = Result(NAME, TITLE, command, asdict(size), pyspark=ENGINES[RUNS["delta"][0]].pyspark)
    result.columns = ("", *SIDES, f"{OURS} / {TUNED}", f"{OURS} / {DEFAULT}", "CPU s", "CPU ratio")
    for case, engine in product(size.cases, size.engines):
        name = f"{engine}, {case.name}"
        try:
            samples = measure(bootstrap, engine, case)
        except KeyboardInterrupt:  # what is measured so far is worth minutes
            result.notes.append(f"target: interrupted in {name}: nothing after it is measured")
            break
        except (AssertionError, RuntimeError) as error:  # what the other cases show still counts
            result.notes.append(f"target: {name} failed: {str(error)[:_LONGEST_ERROR]}")
            continue
        result.samples[name] = samples
        figures = figures_of(samples)
        result.figures[name] = figures
        result.rows += [_row(f"{engine}, {_about(case, part)}", figures[part]) for part in figures]
        print(json.dumps({name: figures}), flush=True)
    result.chart = Chart("s per micro-batch", _bars(result.figures))
    result.notes += [f"target: {text}" for engine in size.engines for text in judge(engine, result.figures)]
    return result


def measure(bootstrap: str, engine: str, case: Case) -> list[dict[str, Any]]:
    database = Database(case.made())
    samples = []
    with ExitStack() as stack:
        to_kafka = stack.enter_context(loader(bootstrap))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ticdc-bench-")))
        changed = list(database.tables)[: case.changed]
        sides = [
            stack.enter_context(_side(bootstrap, engine, side, case, changed, folder / side)) for side in case.sides
        ]
        for step in range(case.steps + 1):
            whole = step > 0 and not case.changes
            messages = list(_messages(database, case, step, changed))
            batches = _batches(messages)
            for side in sides if step % 2 == 0 else reversed(sides):
                if whole:  # messages that come in many requests are one micro-batch
                    side.ask("stop")
                side.send(to_kafka, batches)
                cpu, began = cpu_seconds(side.pid), time.monotonic()
                if step == 0 or whole:
                    side.ask("start")
                answer = side.ask("wait")
                took = sum(batch["ms"]["triggerExecution"] for batch in answer["batches"]) / 1000
                sample = {
                    "side": side.name,
                    "step": step,
                    "s": round(took, 3),
                    "cpu_s": round(cpu_seconds(side.pid) - cpu, 2),
                    "wall_s": round(time.monotonic() - began, 2),
                    "micro-batches": len(answer["batches"]),
                    "parts_ms": answer["batches"][-1]["ms"],
                }
                samples.append(sample)
        check_rows([(side.name, side.rows()) for side in sides], {name: database.rows()[name] for name in changed})
    return samples


def check_rows(found: Sequence[tuple[str, list[tuple[str, str]]]], counts: dict[str, int]) -> None:
    """Compare the rows of all sides, and their numbers with those that the tables have."""
    (first, expected), *others = found
    assert expected
    for name, count in counts.items():
        own = sum(1 for table, _ in expected if table == name)
        assert own == count, f"{first} has {own} rows of {name}, not {count}"
    for side, rows in others:
        differing = [pair for pair in zip(expected, rows, strict=False) if pair[0] != pair[1]]
        assert rows == expected, f"{side} has {len(rows)} rows, {first} {len(expected)}; {differing[:1]}"


def figures_of(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians of a case: of the first step, and of the later ones; of many, also of both ends."""
    last = max(sample["step"] for sample in samples)
    parts: dict[str, Callable[[int], bool]] = {"first": lambda step: step == 0}
    few = min(10, last // 3)
    if last >= 20:
        parts["begin"] = lambda step: 0 < step <= few
        parts["end"] = lambda step: step > last - few
    else:
        parts["later"] = lambda step: step > 0
    return {name: _medians([sample for sample in samples if part(sample["step"])]) for name, part in parts.items()}


def _medians(samples: list[dict[str, Any]]) -> dict[str, Any]:
    of = {side: [one for one in samples if one["side"] == side] for side in SIDES}
    figures: dict[str, Any] = {
        side: {
            "s": round(median(one["s"] for one in own), 2),
            "cpu_s": round(median(one["cpu_s"] for one in own), 2),
            "wall_s": round(median(one["wall_s"] for one in own), 2),
            "n": len(own),
        }
        for side, own in of.items()
        if own
    }
    for side in (TUNED, DEFAULT):
        if side in figures:
            pairs = [(a, b) for a in of[OURS] for b in of[side] if a["step"] == b["step"]]
            figures[f"{OURS} / {side}"] = {
                what: round(median(a[what] / b[what] for a, b in pairs), 2) for what in ("s", "cpu_s")
            }
    return figures


def judge(engine: str, figures: dict[str, Any]) -> Iterator[str]:

    def of(case: str, part: str, name: str, what: str = "s") -> float | None:
        try:
            found: float = figures[f"{engine}, {case}"][part][name][what]
        except KeyError:
            return None
        return found

    def ratio(case: str, one: str, case_2: str, other: str) -> float | None:
        first, second = of(case, one, OURS), of(case_2, other, OURS)
        return None if first is None or second is None else first / second

    by_tuned, by_default = f"{OURS} / {TUNED}", f"{OURS} / {DEFAULT}"
    targets = (
        ("3 tables, later micro-batches, by those of a tuned pipeline", of(SHOP_CASE, "later", by_tuned), 1.3),
        ("3 tables, later micro-batches, by those with default settings", of(SHOP_CASE, "later", by_default), 0.5),
        ("3 tables, seconds of the first run after Spark has started", of(SHOP_CASE, "first", OURS, "wall_s"), 15.0),
        ("many tables, by those of a tuned pipeline", of(MANY, "later", by_tuned), 1.2),
        ("many of more tables, by many of as many", ratio(OF_MORE, "later", MANY, "later"), 1.0),
        ("one large table, by that of a tuned pipeline", of(LARGE, "later", by_tuned), 1 / 1.5),
        ("the last micro-batches of a long run, by the first ones", ratio(STEADY, "end", STEADY, "begin"), 1.3),
    )
    for name, found, most in targets:
        if found is not None:
            yield f"{engine}, {name}: {found:.2f}, at most {most:.2f}: {'met' if found <= most else 'missed'}"


def _bars(figures: dict[str, Any]) -> dict[str, dict[str, float]]:
    return {
        side: {
            name: parts["later"][side]["s"]
            for name, parts in figures.items()
            if "later" in parts and side in parts["later"]
        }
        for side in SIDES
    }


def _about(case: Case, part: str) -> str:
    count = len(case.made())
    if part == "first":
        return f"{case.name} ({count}): created, {case.rows:,} rows each"
    changes = f"{case.changes:,} changes each" if case.changes else f"{case.rows:,} updates"
    more = {"begin": ", first tenth", "end": ", last tenth"}.get(part, "")
    return f"{case.name} ({case.changed} of {count}): {changes}{more}"


def _row(name: str, figures: dict[str, Any]) -> list[str]:
    ratios = [figures.get(f"{OURS} / {side}") for side in (TUNED, DEFAULT)]
    return [
        name,
        *(f"{figures[side]['s']:.2f}" if side in figures else "" for side in SIDES),
        *(f"{ratio['s']:.2f}" if ratio else "" for ratio in ratios),
        " / ".join(f"{figures[side]['cpu_s']:.1f}" for side in SIDES if side in figures),
        " / ".join(f"{ratio['cpu_s']:.2f}" for ratio in ratios if ratio),
    ]


def _messages(database: Database, case: Case, step: int, changed: Sequence[str]) -> Iterator[tuple[int, bytes]]:
    rows: Iterable[tuple[int, bytes]]
    if step == 0:
        yield from ((0, message) for message in database.creates())
    for name in database.tables if step == 0 else changed:
        if step == 0:
            rows = database.inserts(name, case.rows)
        elif case.changes:
            rows = database.changes(name, case.changes)
        else:
            rows = database.updates(name)
        yield from ((key % _PARTITIONS, message) for key, message in rows)
    yield from ((partition, database.watermark()) for partition in range(_PARTITIONS))


def _batches(messages: Sequence[tuple[int, bytes]]) -> list[dict[int, tuple[bytes, int]]]:
    """Return what is sent at once: to each partition a record batch, and how many records it has."""
    by_partition = {
        number: iter([Message(b"", value, 1) for partition, value in messages if partition == number])
        for number in range(_PARTITIONS)
    }
    batches: list[dict[int, tuple[bytes, int]]] = []
    while True:
        parts = {number: list(islice(own, _SENT_AT_ONCE)) for number, own in by_partition.items()}
        made = {number: (record_batch(own).data, len(own)) for number, own in parts.items() if own}
        if not made:
            return batches
        batches.append(made)


class _Process:
    """A side's process.

    Args:
        name: the side.
        process: the process.
        topic: its topic.
        ends: the file with the offsets up to which it shall read.
    """

    def __init__(self, name: str, process: subprocess.Popen[str], topic: str, ends: Path, log: Path) -> None:
        self.name, self.topic = name, topic
        self._process = process
        self._ends = ends
        self._log = log
        self._offsets = dict.fromkeys(range(_PARTITIONS), 0)
        self.heard()

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def heard(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line or '{"error": "it has ended"}')
        if "error" in answer:
            raise RuntimeError(f"{self.name}: {answer['error']}\n{self._log.read_text()[-3000:]}")
        return answer

    def ask(self, verb: str) -> dict[str, Any]:
        """Let it do something, and return its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{verb}\n")
        self._process.stdin.flush()
        return self.heard()

    def send(self, to_kafka: Loader, batches: Sequence[dict[int, tuple[bytes, int]]]) -> None:
        for batch in batches:
            to_kafka.send(self.topic, {partition: data for partition, (data, _) in batch.items()})
            for partition, (_, count) in batch.items():
                self._offsets[partition] += count
        self._ends.write_text(json.dumps({str(number): end for number, end in self._offsets.items()}))

    def rows(self) -> list[tuple[str, str]]:
        table = pq.read_table(self.ask("write")["path"])
        return sorted(zip(table["name"].to_pylist(), table["row"].to_pylist(), strict=True))


@contextmanager
def _side(
    bootstrap: str, engine: str, side: str, case: Case, compared: Sequence[str], folder: Path
) -> Iterator[_Process]:
    release, kafka = RUNS[engine]
    jars = [*ENGINES[release].jars, *(opponents.opponent_jars(kafka) if side != OURS else ())]
    folder.mkdir()
    topic = f"bench-{uuid.uuid4().hex[:12]}"
    request = {
        "side": side,
        "engine": engine,
        "servers": bootstrap,
        "topic": topic,
        "folder": str(folder),
        "ends": str(folder / "ends.json"),
        "parallel": 4,
        "tables": [(table.name, table.columns) for table in case.made()],
        "compared": list(compared),
    }
    (folder / "request.json").write_text(json.dumps(request))
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": _MEMORY,
        "spark.local.dir": str(folder / "local"),
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    given = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    submitted = f"--jars {','.join(map(str, jars))} {given} pyspark-shell"
    create_topic(bootstrap, topic, _PARTITIONS)
    log = folder / "log"
    python = str(interpreter(ENGINES[release].pyspark, *extras()["avro"]))  # for the messages of the corpus
    with log.open("w") as errors:
        process = subprocess.Popen(
            [python, "-m", "lakehouse.benchmarks.sync_side", str(folder / "request.json")],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": PACKAGES, "PYSPARK_SUBMIT_ARGS": submitted},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        yield _Process(side, process, topic, folder / "ends.json", log)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        delete_topic(bootstrap, topic)
