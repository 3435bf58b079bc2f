"""The report of a soak run: what was done, a chart, and what does not hold."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import mean

from rich.console import Console

from examples.demo.screen import HEIGHTS
from tests.soak.checks import total
from tests.soak.sampler import DRIVER, JVM, WORKER, Sample

WIDTH = 120
CHART = 96  # characters
_MARGIN = 19
_ROWS = 4
_MEBI = 2**20
FAULTS = {
    "broker killed": "K", "broker restarted": "R", "worker killed": "w", "driver killed": "D",
    "column added": "a", "column widened": "i", "stream restarted": "s",
}  # fmt: skip


@dataclass
class Report:
    """What a run says.

    Attributes:
        seed, minutes: of the run.
        happened: (second, what) of everything that was done to the program.
        facts: lines about what was compared.
        broken: promises that do not hold.
        samples: the samples.
    """

    seed: int
    minutes: float
    happened: list[tuple[float, str]] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def print(self, console: Console) -> None:
        """Print it."""

        def line(text: str = "") -> None:
            console.print(text, markup=False, highlight=False, soft_wrap=True)

        line(
            f"soak: {self.minutes:g} minutes, seed {self.seed}; "
            f'again: make soak ARGS="--minutes {self.minutes:g} --seed {self.seed}"'
        )
        line()
        for text in chart(self.samples, self.happened):
            line(text)
        line()
        counts = {what: sum(each == what for _, each in self.happened) for what in FAULTS}
        line("what was done: " + ", ".join(f"{count} {what}" for what, count in counts.items() if count))
        for fact in self.facts:
            line(fact)
        line()
        for broken in self.broken:
            line(f"BROKEN: {broken}")
        line(f"{len(self.broken)} promises broken" if self.broken else "all promises held")


def chart(samples: Sequence[Sample], happened: Sequence[tuple[float, str]]) -> list[str]:
    """Draw memory, files, threads, speed, backlog and what happened, all over the same time."""
    if not samples:
        return ["no samples"]
    last = samples[-1].second
    lines = ["what happened"]

    def at(second: float) -> int:
        return min(CHART - 1, int(second / last * CHART))

    marks = [" "] * CHART
    second_row = [" "] * CHART
    for second, what in happened:
        row = marks if marks[at(second)] == " " else second_row
        row[at(second)] = FAULTS[what]
    for row in (second_row, marks):
        if any(mark != " " for mark in row):
            lines += [" " * _MARGIN + "│" + "".join(row)]
    lines.append(" " * _MARGIN + "  " + ", ".join(f"{mark} {what}" for what, mark in FAULTS.items()))

    def memory_of(kind: str) -> Callable[[Sample], float]:
        return lambda sample: total(sample.processes, kind, "memory") / _MEBI

    drawn: Mapping[str, tuple[str, Callable[[Sample], float]]] = {
        "driver JVM": ("MiB", memory_of(JVM)),
        "  after collections": ("MiB", lambda sample: sample.heap / _MEBI),
        "driver Python": ("MiB", memory_of(DRIVER)),
        "Python workers": ("MiB", memory_of(WORKER)),
        "open files": ("", lambda sample: sum(process.files for process in sample.processes)),
        "threads": ("", lambda sample: sum(process.threads for process in sample.processes)),
        "backlog": ("records", lambda sample: sum(sample.backlog.values())),
    }
    speeds = _speeds(samples)
    for name, (unit, value) in drawn.items():
        lines += _drawn(name, unit, [(sample.second, value(sample)) for sample in samples], at)
    lines += _drawn("records read", "a second", speeds, at)
    lines.append(" " * _MARGIN + "0 s" + f"{last:,.0f} s".rjust(CHART - 2))
    return lines


def _speeds(samples: Sequence[Sample]) -> list[tuple[float, float]]:
    speeds = []
    for before, after in pairwise(samples):
        read = sum(after.done.values()) - sum(before.done.values())
        speeds.append((after.second, read / (after.second - before.second)))
    return speeds


def _drawn(name: str, unit: str, points: Sequence[tuple[float, float]], at: Callable[[float], int]) -> list[str]:
    """Draw one quantity as columns, `_ROWS` lines high, from 0 to its largest."""
    parted: list[list[float]] = [[] for _ in range(CHART)]
    for second, value in points:
        parted[at(second)].append(value)
    columns: list[float] = []
    for part in parted:
        columns.append(mean(part) if part else columns[-1] if columns else 0.0)
    highest = max(columns) or 1.0
    eighths = [round(value / highest * _ROWS * len(HEIGHTS)) for value in columns]
    lines = []
    for row in reversed(range(_ROWS)):
        parts = (min(len(HEIGHTS), max(0, count - row * len(HEIGHTS))) for count in eighths)
        bars = "".join(HEIGHTS[part - 1] if part else " " for part in parts)
        label = (f"{highest:,.0f} {unit}".strip() if row == _ROWS - 1 else name if row == _ROWS - 2 else "").rjust(
            _MARGIN
        )
        lines.append(f"{label}│{bars}")
    return lines
