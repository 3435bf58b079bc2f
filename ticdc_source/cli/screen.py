"""What commands have in common on a terminal: tables, times, progress, JSON. Only this folder imports rich.

Names, values and statements come from whoever writes to a database or a topic. A terminal takes some characters for
commands (ESC, U+009B), and shows text in another order after others (U+202E). So everything that a command prints goes
through `visible`: text by the consoles of this module, JSON by `print_json`, log lines by `LogFormat`.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Table

__all__ = [
    "LogFormat",
    "errors",
    "literal",
    "moment",
    "output",
    "plain",
    "print_json",
    "progress_bar",
    "table_of",
    "visible",
]

_WIDTH = 160  # of what goes into a file or a pipe


def _in_python(character: str) -> str:
    return ascii(character)[1:-1]


def _in_json(character: str) -> str:
    return json.dumps(character)[1:-1]


def visible(text: str, *, keep: str = "", escaped: Callable[[str], str] = _in_python) -> str:
    r"""Return a text with an escape such as `\x1b` in place of each character that is not printable.

    Args:
        text: the text.
        keep: characters that stay, such as ends of lines.
        escaped: returns the escape of a character; by default the one of Python's strings.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else escaped(each) for each in text)


def literal(text: str) -> str:
    """Return a text as a string of Python that can be pasted: the same text, in printable characters only."""
    return visible(json.dumps(text, ensure_ascii=False))


class LogFormat(logging.Formatter):
    """Formats log lines in printable characters."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; that of an error has several."""
        return visible(super().format(record), keep="\n")


class _Screen(Console):
    """Prints nothing but printable characters, ends of lines, and rich's own commands for colours and cursor."""

    def on_broken_pipe(self) -> None:
        """Leave it to `main`: rich would exit with 1, which says that something was found."""
        raise BrokenPipeError

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield what is printed. Whatever is printed comes through here; `plain` only knows its width before."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text, keep="\n"), segment.style)


def output() -> Console:
    """Return the console of results."""
    return _Screen(highlight=False, emoji=False, width=None if sys.stdout.isatty() else _WIDTH)


def errors() -> Console:
    """Return the console of errors, warnings and progress."""
    return _Screen(stderr=True, highlight=False, emoji=False, soft_wrap=True)


def print_json(value: object, *, indent: int | None = 2, default: Callable[[object], object] | None = None) -> None:
    """Print JSON for scripts.

    Args:
        value: the value.
        indent: how far members are indented; None for one line.
        default: returns a value of JSON for what is none.
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=default)
    sys.stdout.write(visible(text, keep="\n", escaped=_in_json) + "\n")
    sys.stdout.flush()


def plain(text: object) -> str:
    """Return a text that rich prints as it is, in one line."""
    return escape(visible(str(text)))


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
