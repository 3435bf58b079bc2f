"""The memory that a worker needs to read a big topic partition in one task, with default options and no sink.

In the last case, one worker process reads the topics of all works, one after another. Each case has its own Spark and
so its own worker. The kernel records the peak of each process (VmHWM), so none is missed.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks import corpus
from benchmarks.load import batches_of, loader
from benchmarks.processes import PROC, python_processes, sampled
from benchmarks.results import Chart, Result
from benchmarks.session import session
from examples.local_kafka import create_topic, delete_topic

NAME = "memory"
TITLE = "Memory of a worker that reads one topic partition, with default options: peak resident MiB"
TARGET = 300  # MiB

_BATCH_BYTES = 1 << 20
_DISTINCT_BYTES = 32 << 20  # of distinct messages in a topic; then they repeat


@dataclass(frozen=True)
class Case:
    """A topic partition.

    Attributes:
        name: its name in the table.
        note_bytes: the length of a text in every message; 0 for a short one.
        size: bytes of its messages; 1 for a single message.
        compression: how its record batches are compressed.
        works: the works whose topics are read, one after another; each has so many bytes.
    """

    name: str
    note_bytes: int
    size: int
    compression: str | None = None
    works: tuple[str, ...] = ("canal-json",)


_ALL = tuple(corpus.WORKS)
SIZES: dict[str, tuple[Case, ...]] = {
    "full": (
        Case("20 MB of 0.9 kB messages", 0, 20_000_000),
        Case("500 MB of 0.9 kB messages", 0, 500_000_000),
        Case("500 MB of 100 kB messages", 99_000, 500_000_000),
        Case("200 MB of 100 kB messages, gzip", 99_000, 200_000_000, "gzip"),
        Case("one message of 15 MB", 15_000_000, 1),
        Case("60 MB of each work, one after another", 0, 60_000_000, works=_ALL),
    ),
    "quick": (
        Case("100 MB of 0.9 kB messages", 0, 100_000_000),
        Case("100 MB of 100 kB messages", 99_000, 100_000_000),
        Case("one message of 15 MB", 15_000_000, 1),
    ),
    "tiny": (
        Case("3 MB of 100 kB messages", 99_000, 3_000_000),
        Case("60 kB of two works", 0, 60_000, works=_ALL[2:4]),
    ),
}


def run(bootstrap: str, size_name: str, command: str) -> Result:
    """Measure all cases.

    Raises:
        NotImplementedError: the system is not Linux.
    """
    if not PROC.is_dir():
        raise NotImplementedError("memory is read from /proc, which only Linux has")
    cases = SIZES[size_name]
    result = Result(NAME, TITLE, command, {"cases": [asdict(case) for case in cases], "options": "defaults"})
    result.columns = ("a topic partition of", "records", "worker peak", "planners peak", "MB/s", "s")
    for case in cases:
        figures, samples = measure(bootstrap, case)
        result.figures[case.name] = figures
        result.samples[case.name] = samples
        result.rows.append(_row(case, figures))
    worst = max(figures["worker_peak_mib"] for figures in result.figures.values())
    result.notes.append(f"target: at most {TARGET} MiB: {'met' if worst <= TARGET else 'missed'} (worst {worst:.0f})")
    peaks = {name: figures["worker_peak_mib"] for name, figures in result.figures.items()}
    result.chart = Chart("MiB, peak of a worker", {"ticdc": peaks})
    return result


def measure(bootstrap: str, case: Case) -> tuple[dict[str, Any], list[tuple[float, float]]]:
    """Write the topics, read each once without a sink, and return the memory that this took."""
    topics = {f"bench-{uuid.uuid4().hex[:12]}": corpus.WORKS[name] for name in case.works}
    for topic in topics:
        create_topic(bootstrap, topic)
    try:
        records = sum(_fill(bootstrap, topic, work, case) for topic, work in topics.items())
        with session(1) as live, sampled(live.pid) as sampler:  # one core, so that one worker reads them all
            seconds = 0.0
            for topic, work in topics.items():
                reader = live.spark.read.format("ticdc").option("kafka.bootstrap.servers", bootstrap)
                frame = reader.option("subscribe", topic).options(**work.options).load()
                begun = time.monotonic()
                frame.write.format("noop").mode("overwrite").save()
                seconds += time.monotonic() - begun
            workers = [pid for pid, role in python_processes(live.pid).items() if role == "worker"]
            assert len(workers) == 1, f"{len(workers)} workers have read, not one"
    finally:
        for topic in topics:
            delete_topic(bootstrap, topic)
    roles = {role: round(peak, 1) for role, peak in sorted(sampler.peaks.items())}
    figures = {
        "records": records,
        "bytes": max(case.size, case.note_bytes) * len(case.works),
        "seconds": round(seconds, 2),
        "worker_peak_mib": roles["worker"],
        "planners_peak_mib": max(peak for role, peak in roles.items() if role != "worker"),
        "peaks_mib": roles,
    }
    return figures, sampler.samples


def _fill(bootstrap: str, topic: str, work: corpus.Work, case: Case) -> int:
    messages = corpus.messages(work.name, note_bytes=case.note_bytes)
    batches = batches_of(messages, _BATCH_BYTES, min(case.size, _DISTINCT_BYTES), case.compression)
    with loader(bootstrap) as to_kafka:
        return to_kafka.fill(topic, batches, size=case.size).records


def _row(case: Case, figures: dict[str, Any]) -> list[str]:
    size = figures["bytes"] / 1e6
    return [
        case.name,
        f"{figures['records']:,}",
        f"{figures['worker_peak_mib']:.0f}",
        f"{figures['planners_peak_mib']:.0f}",
        f"{size / figures['seconds']:.1f}",
        f"{figures['seconds']:.1f}",
    ]
