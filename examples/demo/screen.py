"""What the demo prints: with a progress bar on a terminal, else in plain lines."""

import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import Any

from pyspark.sql.types import FloatType, StructType
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.syntax import Syntax
from rich.table import Table

from examples.demo.compare import Difference

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


class Screen:
    """Prints, and shows the progress of the demo.

    Args:
        steps: The number of calls of `step()` to come.
    """

    def __init__(self, steps: int) -> None:
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
        self._task = self._progress.add_task("", total=steps)

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

    @contextmanager
    def step(self, description: str) -> Iterator[None]:
        """Show what is being done."""
        if self._progress.disable:
            self.line(escape(f"[{self.seconds:5.1f} s] {description}"))
        self._progress.update(self._task, description=description)
        yield
        self._progress.advance(self._task)

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

    def changes(self, name: str, schema: StructType, first: Mapping[str, Mapping[str, Any]]) -> None:
        """Print the schema of a table's changes and some changes, each change as a column."""
        shown = max(1, (self._console.width - 64) // SAMPLE_WIDTH)
        change_types = [change_type for change_type in SAMPLES if change_type in first][-shown:]
        table = Table(box=box.SIMPLE_HEAD, expand=True, pad_edge=False)
        table.add_column(f"[bold]{name}[/]", no_wrap=True)
        table.add_column("in Spark", style="cyan", no_wrap=True)
        table.add_column("in TiDB", style="green", no_wrap=True)
        for change_type in change_types:
            table.add_column(SAMPLES[change_type], header_style="dim", ratio=1, no_wrap=True)
        for field in schema:
            column = f"{field.name} [bold](key)[/]" if field.metadata.get("ticdc.key") else field.name
            types = field.dataType.simpleString(), str(field.metadata.get("ticdc.mysql_type", ""))
            values = [first[change_type][field.name] for change_type in change_types]
            if isinstance(field.dataType, FloatType):
                values = [value if value is None else f"{value:.7g}" for value in values]
            table.add_row(column, *(escape(_shortened(text)) for text in types), *map(_shown, values))
        self._console.print()
        self._console.print(table)

    def differences(self, differences: list[Difference]) -> None:
        """Print the differences from SQL, up to a readable number."""
        table = Table(box=box.SIMPLE_HEAD, header_style="bold red")
        for name in ("key", "column", "SQL has", "the messages have"):
            table.add_column(name)
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
