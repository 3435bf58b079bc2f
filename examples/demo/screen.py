"""What the demo prints: with a progress bar on a terminal, else in plain lines."""

import inspect
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.syntax import Syntax
from rich.table import Table

if TYPE_CHECKING:
    from examples.demo.compare import Difference  # imports PyArrow, and the screen is there before it

WIDEST = 120  # also the width without a terminal
LONGEST_TYPE = 22
MOST_DIFFERENCES = 10
SAMPLE_WIDTH = 18
SAMPLES = {  # by change type; if the terminal is narrow, only the last ones
    "insert": "first insert",
    "update_preimage": "update: before",
    "update_postimage": "update: after",
    "delete": "first delete",
}

CHART_WIDTH = 60
BARS = {"insert": ("█", "green"), "update": ("▒", "yellow"), "delete": ("░", "red")}
HEIGHTS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class ColumnLine:
    """A column as it is shown: its name, its types, and its values by change type."""

    name: str
    spark_type: str
    tidb_type: str
    values: Mapping[str, Any]


class Screen:
    """Prints, and shows the progress of the demo."""

    def __init__(self) -> None:
        self._parts: dict[str, float] = {}
        self._started = time.monotonic()
        self._console = Console(highlight=False)
        self._console.width = min(self._console.width, WIDEST) if self._console.is_terminal else WIDEST
        self._progress = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task("", total=None)

    def __enter__(self) -> "Screen":  # noqa: PYI034  # typing.Self is Python 3.11's
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
        if kind is not None:
            self.line("stopping …")

    @property
    def seconds(self) -> float:
        """How long the demo has been running."""
        return time.monotonic() - self._started

    def expect(self, steps: int) -> None:
        """Take the number of steps to come for the progress bar."""
        self._progress.update(self._task, total=steps)

    @contextmanager
    def step(self, description: str) -> Iterator[None]:
        """Show what is being done."""
        if self._progress.disable:
            self.line(escape(f"[{self.seconds:5.1f} s] {description} …"))
        self._progress.update(self._task, description=description)
        yield
        self._progress.advance(self._task)

    @contextmanager
    def part(self, description: str) -> Iterator[None]:
        """Show what is being done, when it is done, and remember how long it took."""
        began = time.monotonic()
        with self.step(description[0].upper() + description[1:]):
            yield
        self._parts[description] = took = time.monotonic() - began
        self.line(escape(f"[{self.seconds:5.1f} s] {description}: done in {took:.1f} s"))

    def title(self, text: str) -> None:
        """Begin a section."""
        self._console.print()
        self._console.rule(f"[bold]{text}", align="left")

    def say(self, text: str) -> None:
        """Print a paragraph; rich's markup works in it."""
        self._console.print(text)

    def line(self, text: str) -> None:
        """Print a line that is never wrapped."""
        self._console.print(text, soft_wrap=True)

    def code(self, function: Callable[..., object]) -> None:
        """Print the code of a function that runs."""
        code = inspect.getsource(function).rstrip()
        self._console.print(Syntax(code, "python", background_color="default", padding=(1, 2)))

    def changes(self, name: str, lines: Sequence[ColumnLine], change_types: list[str]) -> None:
        """Print the columns of a table and some changes, each change as a column."""
        shown = change_types[-max(1, (self._console.width - 64) // SAMPLE_WIDTH) :]
        table = Table(box=box.SIMPLE_HEAD, expand=True, pad_edge=False)
        table.add_column(f"[bold]{name}[/]", no_wrap=True)
        table.add_column("in Spark", style="cyan", no_wrap=True)
        table.add_column("in TiDB", style="green", no_wrap=True)
        for change_type in shown:
            table.add_column(SAMPLES[change_type], header_style="dim", ratio=1, no_wrap=True)
        for line in lines:
            types = (escape(_shortened(text)) for text in (line.spark_type, line.tidb_type))
            table.add_row(line.name, *types, *(_shown(line.values[change_type]) for change_type in shown))
        self._console.print(table)

    def table(self, names: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
        """Print a table of numbers; its first column has names."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for number, name in enumerate(names):
            table.add_column(name, justify="right" if number else "left", no_wrap=True)
        for line in lines:
            table.add_row(*line)
        self._console.print(table)

    def bars(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        """Print a bar for each name, divided as its counts are."""
        longest = max(sum(parts.values()) for parts in counts.values()) or 1
        width = max(map(len, counts))
        for name, parts in counts.items():
            ends = [round(CHART_WIDTH * sum(list(parts.values())[:count]) / longest) for count in range(len(parts) + 1)]
            bar = "".join(
                f"[{BARS[part][1]}]{BARS[part][0] * (end - start)}[/]"
                for part, start, end in zip(parts, ends[:-1], ends[1:], strict=True)
            )
            self.line(f"{name:<{width}}  {bar}{' ' * (CHART_WIDTH - ends[-1])} {sum(parts.values()):>7,}")
        legend = "   ".join(f"[{colour}]{character}[/] {part}s" for part, (character, colour) in BARS.items())
        self.line(f"{'':<{width}}  {legend}")
        self.line("")

    def curves(self, counts: Mapping[str, Mapping[datetime, int]]) -> None:
        """Print for each name how its counts rise and fall over the same time."""
        times = sorted({moment for each in counts.values() for moment in each})
        if not times:
            return
        first, last = times[0], times[-1]
        step = math.ceil(((last - first).total_seconds() + 1) / CHART_WIDTH)  # a whole number of seconds, as the counts
        characters = int((last - first).total_seconds()) // step + 1
        width = max(map(len, counts))
        for name, each in counts.items():
            sums = [0] * characters
            for moment, count in each.items():
                sums[int((moment - first).total_seconds()) // step] += count
            highest = max(sums) or 1
            curve = "".join(HEIGHTS[round((len(HEIGHTS) - 1) * count / highest)] for count in sums)
            self.line(f"{name:<{width}}  [cyan]{curve}[/] at most {highest:,} in {step} s")
        ends = f"{first:%H:%M:%S}", f"committed {last:%H:%M:%S}"
        self.line(f"{'':<{width}}  {ends[0]} {ends[1].rjust(characters - len(ends[0]) - 1)}")

    def parts(self) -> None:
        """Print how long each part took."""
        width = max(map(len, self._parts))
        for name, seconds in self._parts.items():
            self.line(f"{name:<{width}} {seconds:6.1f}")

    def differences(self, name: str, differences: "list[Difference]") -> None:
        """Print the differences of a table from SQL, up to a readable number."""
        table = Table(box=box.SIMPLE_HEAD, header_style="bold red")
        for column_name in (f"{name}: key", "column", "SQL has", "the messages have"):
            table.add_column(column_name)
        for key, column, expected, found in differences[:MOST_DIFFERENCES]:
            table.add_row(", ".join(map(str, key)), escape(column), _shown(expected), _shown(found))
        self._console.print(table)
        if len(differences) > MOST_DIFFERENCES:
            self.say(f"… and {len(differences) - MOST_DIFFERENCES:,} more")


def _shown(value: Any) -> str:
    if value is None:
        return "[dim]NULL[/]"
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(" ")
    if isinstance(value, Mapping):
        return f"({', '.join(map(str, value.values()))})"
    return escape(str(value))


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_TYPE else text[: LONGEST_TYPE - 1] + "…"
