"""What the demo shows: a progress bar where there is a terminal, plain lines where there is none."""

import inspect
import os
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import Any

from pyspark.sql.types import StructType
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.syntax import Syntax
from rich.table import Table

from examples.demo.compare import Comparison

WIDTH_WITHOUT_TERMINAL = 120
LONGEST_VALUE = 26
DIFFERENCES_SHOWN = 10
KINDS = ("insert", "update_preimage", "update_postimage", "delete")


class Screen:
    """Prints, and tells in between how far the demo is.

    Args:
        steps: How many `step()`s there will be.
    """

    def __init__(self, steps: int) -> None:
        self.started = time.monotonic()
        self._console = Console(highlight=False)
        if not self._console.is_terminal and "COLUMNS" not in os.environ:
            self._console.width = WIDTH_WITHOUT_TERMINAL
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

    @property
    def seconds(self) -> float:
        """Since the demo began."""
        return time.monotonic() - self.started

    @contextmanager
    def step(self, description: str) -> Iterator[None]:
        """Say what is being done."""
        if self._progress.disable:
            self._console.print(f"[{self.seconds:5.1f} s] {description} …", markup=False)
        self._progress.update(self._task, description=f"{description} …")
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
        """Print a line that is not broken, however narrow the terminal."""
        self._console.print(text, soft_wrap=True)

    def code(self, *functions: Callable[..., object]) -> None:
        """Print the code of functions: what is shown is what runs."""
        text = "\n\n".join(textwrap.dedent(inspect.getsource(function)).rstrip() for function in functions)
        self._console.print(Syntax(text, "python", background_color="default", padding=(1, 2)))

    def changes(self, title: str, schema: StructType, first: Mapping[str, Mapping[str, Any]]) -> None:
        """Print a schema, and beside it the first row of each kind of change."""
        kinds = [kind for kind in KINDS if kind in first]
        table = Table(
            title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
        )
        table.add_column("column", no_wrap=True)
        table.add_column("Spark's type", style="cyan", no_wrap=True)
        table.add_column("TiDB's type", style="green", no_wrap=True)
        for kind in kinds:
            table.add_column(f"first {kind}", overflow="ellipsis", no_wrap=True)
        for field in schema:
            name = f"[bold]{field.name}[/] (key)" if field.metadata.get("ticdc.key") else field.name
            spark_type = field.dataType.simpleString()
            tidb_type = escape(str(field.metadata.get("ticdc.mysql_type", "")))
            values = [escape(_shown(first[kind][field.name])) for kind in kinds]
            table.add_row(name, _shortened(spark_type), _shortened(tidb_type), *values)
        self._console.print()
        self._console.print(table)

    def differences(self, comparison: Comparison) -> None:
        """Print what is not as SQL has it, as far as it is readable."""
        table = Table(title="Not equal", title_style="bold red", show_edge=False)
        for name in ("key", "column", "SQL has", "the messages gave"):
            table.add_column(name)
        for key, column, *texts in comparison.differences[:DIFFERENCES_SHOWN]:
            shown = [", ".join(map(str, key)), column, *("NULL" if text is None else text for text in texts)]
            table.add_row(*map(escape, shown))
        self._console.print(table)
        more = len(comparison.differences) - DIFFERENCES_SHOWN
        if more > 0:
            self.say(f"… and {more:,} more")


def _shown(value: Any) -> str:
    """Write a value for a person."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return _shortened("0x" + value.hex())
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(" ")
    if isinstance(value, Mapping):
        return "(" + ", ".join(str(part)[-4:] for part in value.values()) + ")"
    return _shortened(str(value))


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
