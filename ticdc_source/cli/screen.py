"""Terminal output of all commands: lines, tables, times, progress, JSON.

Names, values and statements come from whoever writes to the database or topic. Terminals execute some characters (ESC,
U+009B) and reorder text after others (U+202E). So all output goes through `visible`: text by the screens of this
module, JSON by `print_json`, log lines by `LogFormat`.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

Part = str | tuple[str, str]
Line = Sequence[Part]

_WIDTH = 160  # of tables that go into a file or a pipe
_GAP = "  "  # between columns
# What ECMA-48 calls the styles that commands use.
_STYLES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "magenta": 35, "cyan": 36, "bright_black": 90}
_HOME, _LINE_START = "\x1b[H\x1b[J", "\r\x1b[K"  # what is behind is erased
_MOST_WRAPPED = 4096  # letters at once: textwrap takes the square of a word's length


def _in_python(character: str) -> str:
    return ascii(character)[1:-1]


def _in_json(character: str) -> str:
    return json.dumps(character)[1:-1]


def visible(text: str, *, keep: str = "", escaped: Callable[[str], str] = _in_python) -> str:
    r"""Replace each character that is not printable by an escape such as `\x1b`."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else escaped(each) for each in text)


def literal(text: str) -> str:
    """Return a text as a Python string literal in printable characters."""
    return visible(json.dumps(text, ensure_ascii=False))


class LogFormat(logging.Formatter):
    """Formats log lines in printable characters."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record), keep="\n")


class Table:
    """A table with columns as wide as their content, wrapped on narrow screens."""

    def __init__(self, *columns: str, right: tuple[str, ...] = (), title: str | None = None) -> None:
        self._right = [column in right for column in columns]
        self._title = title
        self._rows = [[(column, "dim") for column in map(visible, columns)]]

    def add_row(self, *cells: Part) -> None:
        self._rows.append([(visible(text), style) for text, style in map(_with_style, cells)])

    def __len__(self) -> int:
        return len(self._rows) - 1

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
    """Return how many terminal columns printable characters take: 2 for a wide one, 0 for an accent."""
    if text.isascii():
        return len(text)
    shown = (each for each in text if unicodedata.category(each) not in {"Me", "Mn"})
    return sum(2 if unicodedata.east_asian_width(each) in {"F", "W"} else 1 for each in shown)


def _wrapped(text: str, width: int) -> list[str]:
    text = text.rstrip()
    if _columns_of(text) <= width:
        return [text]
    widest = 1 if text.isascii() else max(map(_columns_of, text))  # lines with wide characters are broken early
    pieces = (text[start : start + _MOST_WRAPPED] for start in range(0, len(text), _MOST_WRAPPED))
    step = max(1, width // widest)
    return [line for piece in pieces for line in textwrap.wrap(piece, step, break_on_hyphens=False)]


class Screen:
    """Prints lines and tables; in colours on a terminal, unless NO_COLOR is set."""

    def __init__(self, stream: TextIO, width: int | None = None, *, is_terminal: bool | None = None) -> None:
        self._stream = stream
        self._width = width
        forced = bool(os.environ.get("FORCE_COLOR"))
        self.is_terminal = stream.isatty() or forced if is_terminal is None else is_terminal
        self._is_coloured = self.is_terminal and not os.environ.get("NO_COLOR")

    def print(self, *parts: Part, end: str = "\n") -> None:
        """Print a line; each part is a text, or a text with a style such as `bold red`."""
        self._stream.write("".join(map(self._coloured, parts)) + end)
        self._stream.flush()

    def print_over(self, text: str) -> None:
        """Overwrite the current line, and stay on it."""
        self._stream.write(_LINE_START)
        self.print(text, end="")

    def show(self, *blocks: Table | Line) -> None:
        width = shutil.get_terminal_size().columns if self._width is None else self._width
        for block in blocks:
            for line in block.lines(width) if isinstance(block, Table) else [block]:
                self.print(*line)

    def show_alone(self, *blocks: Table | Line) -> None:
        """Print tables and lines; clear a terminal first."""
        if self.is_terminal:
            self._stream.write(_HOME)
        self.show(*blocks)

    def _coloured(self, part: Part) -> str:
        text, style = _with_style(part)
        text = visible(text, keep="\n")
        if not self._is_coloured or not style:
            return text
        return f"\x1b[{';'.join(str(_STYLES[each]) for each in style.split())}m{text}\x1b[0m"


def output() -> Screen:
    return Screen(sys.stdout, None if sys.stdout.isatty() else _WIDTH)


def errors() -> Screen:
    return Screen(sys.stderr)


def print_json(value: object, *, indent: int | None = 2, default: Callable[[object], object] | None = None) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=default)
    sys.stdout.write(visible(text, keep="\n", escaped=_in_json) + "\n")
    sys.stdout.flush()


def moment(iso: str | None) -> str:
    return "" if iso is None else iso[:19].replace("T", " ") + " UTC"


@contextmanager
def progress_line() -> Iterator[Callable[[str, int, int], None]]:
    """Show progress while the block runs, on terminals only.

    Yields:
        a function that takes one word for the activity, the number of records so far, and the total.
    """
    screen = errors()
    if not screen.is_terminal:
        yield lambda _doing, _done, _total: None
        return
    try:
        yield lambda doing, done, total: screen.print_over(f"{doing}: {done:,} of {total:,} records")
    finally:
        screen.print_over("")
