"""What commands have in common on a terminal: tables, times, progress, JSON. Only this folder imports rich."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

__all__ = ["errors", "moment", "output", "plain", "print_json", "progress_bar", "table_of"]

_WIDTH = 120  # of what goes into a file or a pipe


class _Output(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to `main`: rich would exit with 1, which says that something was found."""
        raise BrokenPipeError


def output() -> Console:
    """Return the console of results."""
    return _Output(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)


def errors() -> Console:
    """Return the console of errors, warnings and progress."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(value: object) -> None:
    """Print JSON for scripts, in several lines."""
    json.dump(value, sys.stdout, ensure_ascii=False, indent=2)
    sys.stdout.write("\n")


def plain(text: object) -> str:
    """Return a text that rich prints as it is."""
    return escape(str(text))


def table_of(*columns: str, right: tuple[str, ...] = (), title: str | None = None) -> Table:
    """Return an empty table.

    Args:
        columns: the headings.
        right: the headings of columns that are aligned to the right.
        title: what it is about.
    """
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def moment(iso: str | None) -> str:
    """Return a time in ISO 8601, UTC, as people write it; empty for None."""
    return "" if iso is None else iso[:19].replace("T", " ") + " UTC"


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar on a terminal, while the block runs; nothing elsewhere.

    Yields:
        a function that takes what is done in one word, the number of records so far, and of all.
    """
    console = errors()
    if not console.is_terminal:
        yield lambda _doing, _done, _total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("records"))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task("connect", total=None)

        def show(doing: str, done: int, total: int) -> None:
            bar.update(task, description=doing, completed=done, total=total)

        yield show
