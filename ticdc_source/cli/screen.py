"""What commands have in common on a terminal: lines, tables, times, progress, JSON. Only this module imports rich.

rich is optional: it colours lines and draws progress bars, and the text is the same without it.

Names, values and statements come from whoever writes to a database or a topic. A terminal takes some characters for
commands (ESC, U+009B), and shows text in another order after others (U+202E). So everything that a command prints goes
through `visible`: text by the screens of this module, JSON by `print_json`, log lines by `LogFormat`.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

try:
    from rich.console import Console
    from rich.live import Live
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.text import Text
except ModuleNotFoundError:  # without the extra `cli`
    _HAS_RICH = False
else:
    _HAS_RICH = True

Part = str | tuple[str, str]
Line = Sequence[Part]

_WIDTH = 160  # of tables that go into a file or a pipe
_GAP = "  "  # between columns
_MOST_WRAPPED = 4096  # letters at once: textwrap takes the square of a word's length


def _in_python(character: str) -> str:
    return ascii(character)[1:-1]


def _in_json(character: str) -> str:
    return json.dumps(character)[1:-1]


def visible(text: str, *, keep: str = "", escaped: Callable[[str], str] = _in_python) -> str:
    r"""Return a text with an escape such as `\x1b` in place of each character that is not printable."""
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


class Table:
    """A table whose columns are as wide as what they hold, and wrapped where the screen is narrower."""

    def __init__(self, *columns: str, right: tuple[str, ...] = (), title: str | None = None) -> None:
        self._right = [column in right for column in columns]
        self._title = title
        self._rows = [[(column, "dim") for column in map(visible, columns)]]

    def add_row(self, *cells: Part) -> None:
        """Add a row; a cell is one line of text, or such a text and its style."""
        self._rows.append([(visible(text), style) for text, style in map(_with_style, cells)])

    def lines(self, width: int) -> Iterator[Line]:
        if self._title is not None:
            yield [(visible(self._title), "bold")]
        wanted = [max(_columns_of(text) for text, _ in cells) for cells in zip(*self._rows, strict=True)]
        room = width - len(_GAP) * (len(wanted) - 1)
        # The widest columns give way, all to the same width.
        most = next((most for most in range(room, 1, -1) if sum(min(most, each) for each in wanted) <= room), 1)
        widths = [min(most, each) for each in wanted]
        for row in self._rows:
            cells = [(_wrapped(text, each), style) for (text, style), each in zip(row, widths, strict=True)]
            for number in range(max(len(texts) for texts, _ in cells)):
                yield list(self._line(cells, number, widths))

    def _line(self, cells: Sequence[tuple[list[str], str]], number: int, widths: list[int]) -> Iterator[Part]:
        blanks = ""  # before the next text; none follow the last one
        for (texts, style), width, is_right in zip(cells, widths, self._right, strict=True):
            text = texts[number] if number < len(texts) else ""
            rest = " " * (width - _columns_of(text))
            if text:
                yield blanks + rest if is_right else blanks
                yield text, style
            blanks = _GAP if text and is_right else ("" if text else blanks) + rest + _GAP


def _with_style(part: Part) -> tuple[str, str]:
    return (part, "") if isinstance(part, str) else part


def _columns_of(text: str) -> int:
    """Return how many columns a terminal needs for printable characters: 2 for a wide one, none for an accent."""
    if text.isascii():
        return len(text)
    shown = (each for each in text if unicodedata.category(each) not in {"Me", "Mn"})
    return sum(2 if unicodedata.east_asian_width(each) in {"F", "W"} else 1 for each in shown)


def _wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a text, broken at blanks, and within words that are longer than a line."""
    text = text.rstrip()
    if _columns_of(text) <= width:
        return [text]
    widest = 1 if text.isascii() else max(map(_columns_of, text))  # lines with wide characters are broken early
    pieces = (text[start : start + _MOST_WRAPPED] for start in range(0, len(text), _MOST_WRAPPED))
    step = max(1, width // widest)
    return [line for piece in pieces for line in textwrap.wrap(piece, step, break_on_hyphens=False)]


class Screen:
    """Prints lines and tables: in colours on a terminal, if rich is installed."""

    def __init__(self, stream: TextIO, width: int | None = None, *, is_terminal: bool | None = None) -> None:
        self._stream = stream
        self._width = width
        console = Console(file=stream, width=width, force_terminal=is_terminal) if _HAS_RICH else None
        self._console = console if console is not None and console.is_terminal else None

    def print(self, *parts: Part, end: str = "\n") -> None:
        """Print a line of texts, and of texts with a style such as `bold red`."""
        self._write(parts, end)
        self._stream.flush()

    def show(self, *blocks: Table | Line) -> None:
        """Print tables and lines."""
        for line in self._lines(blocks):
            self._write(line, "\n")
        self._stream.flush()

    def _lines(self, blocks: Iterable[Table | Line]) -> Iterator[Line]:
        width = shutil.get_terminal_size().columns if self._width is None else self._width
        for block in blocks:
            if isinstance(block, Table):
                yield from block.lines(width)
            else:
                yield block

    def _write(self, line: Line, end: str) -> None:
        parts = _printable(line)
        if self._console is None:
            self._stream.write("".join(text for text, _ in parts) + end)
            return
        with self._console.capture() as captured:
            self._console.print(Text.assemble(*parts), soft_wrap=True, end="")
        self._stream.write(captured.get() + end)

    @contextmanager
    def in_place(self) -> Iterator[Callable[..., None]]:
        """Yield a `show`. On a terminal, if rich is installed, blocks take the place of those before."""
        if self._console is None:
            yield self.show
            return
        with Live(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:

            def show(*blocks: Table | Line) -> None:
                lines = [Text.assemble(*_printable(line)) for line in self._lines(blocks)]
                live.update(Text("\n").join(lines), refresh=True)

            yield show

    @contextmanager
    def waiting(self, doing: str) -> Iterator[Callable[[str], None]]:
        """Show a spinner on a terminal while the block runs, if rich is installed; yield what changes its text."""
        if self._console is None:
            yield lambda _doing: None
            return
        with self._console.status(Text(visible(doing))) as status:
            yield lambda doing: status.update(Text(visible(doing)))

    @contextmanager
    def bar(self, unit: str) -> Iterator[Callable[[str, int, int | None], None]]:
        """Show a bar on a terminal while the block runs; yield what takes a text, how far it is, and of how many."""
        if self._console is None:
            yield lambda _doing, _done, _total: None
            return
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
        time = TimeElapsedColumn()
        with Progress(*columns, time, console=self._console, transient=True, redirect_stdout=False) as progress:
            task = progress.add_task("", total=None)
            yield lambda doing, done, total: progress.update(
                task, description=visible(doing), completed=done, total=total
            )


def _printable(line: Line) -> list[tuple[str, str]]:
    return [(visible(text, keep="\n"), style) for text, style in map(_with_style, line)]


def output() -> Screen:
    return Screen(sys.stdout, None if sys.stdout.isatty() else _WIDTH)


def errors() -> Screen:
    """Return the screen of errors, warnings and progress."""
    return Screen(sys.stderr)


def print_json(value: object, *, indent: int | None = 2, default: Callable[[object], object] | None = None) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=default)
    sys.stdout.write(visible(text, keep="\n", escaped=_in_json) + "\n")
    sys.stdout.flush()


def moment(iso: str | None) -> str:
    """Return a time in ISO 8601, UTC, as people write it; empty for None."""
    return "" if iso is None else iso[:19].replace("T", " ") + " UTC"


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar on a terminal, while the block runs; nothing elsewhere.

    Yields:
        a function that takes what is done in one word, the number of records so far, and of all.
    """
    with errors().bar("records") as show:
        show("connect", 0, None)
        yield show
