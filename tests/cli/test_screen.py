"""What commands print: printable characters only, whatever names and values are made of."""

import ast
import io
import json
import logging
import random
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.cli.test_hostile_names import OURS
from ticdc_source.cli.screen import LogFormat, Screen, Table, errors, literal, output, print_json, visible

# Commands of terminals, marks that turn the order of text, what is in no Unicode text, and other ends of lines.
HOSTILE = "\x00\x07\x08\t\x0b\x1b\x7f\x80\x85\x9b\x9d\u061c\u200b\u200e\u2028\u202e\u2066\ufeff\udcff\U000e0001"


def texts(seed: int, count: int = 300) -> list[str]:
    """Return texts of hostile and ordinary characters, and of those that mean something to Python."""
    generator = random.Random(seed)
    alphabet = f"{HOSTILE}\n\rab`\"'\\\\[[]]/:é例😀"
    return ["".join(generator.choices(alphabet, k=generator.randrange(1, 12))) for _ in range(count)]


@pytest.mark.slow("a million characters")
def test_every_character_that_is_not_printable_has_an_escape() -> None:
    """A text becomes printable, printable characters stay, and no two characters have the same escape."""
    characters = list(map(chr, range(0x110000)))

    escapes = list(map(visible, characters))

    assert all(map(str.isprintable, escapes))
    assert all(shown == each for each, shown in zip(characters, escapes, strict=True) if each.isprintable())
    assert len(set(escapes)) == len(characters)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_pasted_means_the_same(seed: int) -> None:
    """A literal is printable, and Python reads the same text from it; JSON is printable, and means the same."""
    for text in texts(seed):
        assert literal(text).isprintable()
        assert ast.literal_eval(literal(text)) == text, f"seed {seed}"


@pytest.mark.parametrize("seed", range(3))
def test_json_is_printable_and_means_the_same(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON for scripts has the same texts as before, each character that is not printable as an escape."""
    value = {text: [text] for text in texts(seed)}

    for indent in (None, 2):
        print_json(value, indent=indent)
        shown = capsys.readouterr().out
        assert shown.replace("\n", "").isprintable(), f"seed {seed}"
        assert json.loads(shown) == value


def _table(text: str) -> Table:
    table = Table(text, "other", title=text)
    table.add_row((text, "bold"), "x")
    return table


PRINTED: dict[str, Callable[[Screen, str], object]] = {
    "a text": lambda screen, text: screen.print((visible(text), "bold")),
    "a text that is not escaped": lambda screen, text: screen.print(text, (text, "bold red")),
    "a table": lambda screen, text: screen.show(_table(text)),
    "what changes": lambda screen, text: screen.show_alone([text], _table(text)),
}


@pytest.mark.parametrize("is_terminal", [False, True], ids=["pipe", "terminal"])
@pytest.mark.parametrize("printed", PRINTED)
def test_screens_print_no_command(printed: str, is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1" if is_terminal else "")
    for name, made in (("stdout", output), ("stderr", errors)):
        monkeypatch.setattr(sys, name, file := io.StringIO())
        for text in texts(1, 20):
            PRINTED[printed](made(), text)
        shown = file.getvalue()
        assert ("\x1b[" in shown) == (is_terminal)
        assert OURS.sub("", shown).replace("\n", "").isprintable()


@pytest.mark.parametrize("seed", range(3))
def test_no_line_of_a_table_is_wider_than_the_screen(seed: int) -> None:
    """Whatever the cells are, lines have at most the columns of the screen, and no character is lost."""
    generator = random.Random(seed)
    for width in (12, 40, 80):
        table = Table("a", "b", "c")
        row = ["".join(generator.choices("ab \n注é", k=generator.randrange(60))) for _ in range(3)]
        table.add_row(*row)

        lines = list(table.lines(width))[1:]

        texts = ["".join(part if isinstance(part, str) else part[0] for part in line) for line in lines]
        assert all(sum(1 + (character == "注") for character in text) <= width for text in texts), f"seed {seed}"
        assert sorted("".join(texts).replace(" ", "")) == sorted(visible("".join(row)).replace(" ", "")), f"seed {seed}"


def test_verbose_logs_the_kafka_client_alone() -> None:
    """Other libraries log secrets at level DEBUG: Py4J what Spark is given, clients of stores their headers."""
    program = (
        "import logging, sys\nfrom ticdc_source.cli.__main__ import main\nmain(['options', '--verbose'])\n"
        "for name in ('kafka.client', 'py4j.clientserver', 'urllib3', 'botocore'):\n"
        "    logging.getLogger(name).debug('logged by %s', name)\n"
    )

    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert re.findall("logged by (.*)", ran.stderr) == ["kafka.client"]


def test_log_lines_are_printable() -> None:
    """A log line with --verbose has no command to the terminal, and a traceback keeps its lines."""
    record = logging.LogRecord("kafka", logging.DEBUG, "", 0, "got %s\nand more", ("\x1b[2J\x9b\u202e",), None)

    assert LogFormat("%(message)s").format(record) == "got \\x1b[2J\\x9b\\u202e\nand more"
