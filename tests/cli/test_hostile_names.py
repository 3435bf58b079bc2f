"""Every command, with a topic and arguments whose names and values hold commands for a terminal."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from examples.local_kafka import produce
from tests.cli.conftest import Command
from tests.fixtures import Kafka
from tests.support.messages import TSO, canal
from ticdc_source.cli.__main__ import COMMANDS

pytestmark = pytest.mark.broker

# ESC and U+009B begin a command of a terminal, U+0007 ends a title, U+202E turns the order of what follows.
EVIL = "\x1b[2J\x1b]0;x\x07\x9b31m\u202e\u2066\x7f\u200b"
NAME = f"n{EVIL}[red]"
COLUMNS = {"id": "bigint", f"c{EVIL}": "varchar(20)"}
# What our screens send to a terminal: styles, and what erases a line or the screen.
OURS = re.compile(r"\x1b\[([0-9;]*m|[HJK])|\r")


@pytest.fixture
def hostile(broker: Kafka, topic: Callable[..., str]) -> str:
    """A topic with rows, DDL, a bad record and headers of hostile names and values."""
    name = topic()
    row = {"id": "1", f"c{EVIL}": f"v{EVIL}"}
    ours: dict[str, Any] = {"database": NAME, "table": NAME}
    messages = [
        canal("INSERT", [row], None, COLUMNS, **ours, _tidb={"commitTs": TSO}),
        canal("UPDATE", [row], [{**row, f"c{EVIL}": "old"}], COLUMNS, **ours, _tidb={"commitTs": TSO + 1}),
        canal("CREATE", isDdl=True, sql=f"create table `{NAME}` (id int)", **ours, _tidb={"commitTs": TSO + 2}),
        canal("TRUNCATE", isDdl=True, sql=f"truncate `{NAME}`", **ours, _tidb={"commitTs": TSO + 3}),
        (None, f"no message {EVIL}".encode()),
    ]
    produce(
        broker.bootstrap_servers, name, [(0, *message, [(f"h{EVIL}", EVIL.encode())], None) for message in messages]
    )
    return name


@pytest.mark.parametrize(
    "is_terminal", [pytest.param(False, marks=pytest.mark.slow("each command again")), True], ids=["pipe", "terminal"]
)
def test_no_command_reaches_the_terminal(
    is_terminal: bool,
    broker: Kafka,
    hostile: str,
    ticdc_source: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each command shows a hostile name in printable characters only, on stdout and on stderr, as text and as JSON."""
    monkeypatch.setenv("FORCE_COLOR", "1" if is_terminal else "")
    kafka = ("--bootstrap-servers", broker.bootstrap_servers, "--subscribe", hostile)
    calls: list[tuple[object, ...]] = [
        ("inspect", *kafka, "--all", "--conf", f"tables=`{NAME}`.`{NAME}`"),
        ("inspect", *kafka, "--json", "--conf", f"zzz{EVIL}=1"),
        ("inspect", *kafka, "--conf", f"mode={EVIL}"),
        ("inspect", *kafka, "--verbose"),
        ("tail", *kafka, "--no-follow", "--full"),
        ("tail", *kafka, "--no-follow", "--json"),
        ("tail", *kafka, "--no-follow", "--kind", EVIL),
        ("lag", *kafka, "--group", EVIL),
        ("lag", *kafka, "--json"),
        ("lag", *kafka, "--checkpoint", f"{tmp_path}/{EVIL}"),
        ("doctor", *kafka, "--conf", f"timeZone={EVIL}"),
        ("doctor", *kafka, "--json", "--conf", f"zzz{EVIL}=1"),
        ("tail", *kafka, "--properties", f"{tmp_path}/{EVIL}"),
        (
            "export",
            *kafka,
            "--conf",
            "mode=DROPMALFORMED",
            "--conf",
            "outputFormat=event",
            "--to",
            f"{tmp_path}/{EVIL}.arrow",
        ),
        ("options", EVIL),
        (EVIL,),
    ]

    shown = [(call, ticdc_source(*call)) for call in calls]

    for call, done in shown:
        for stream in (done.out, done.err):
            text_only = OURS.sub("", stream) if is_terminal else stream
            assert text_only.replace("\n", "").isprintable(), call
        if "lag" not in call and call != (EVIL,):  # none of these shows a name
            assert re.search(r"\\(x1b|u001b)", done.out + done.err), call
    assert {call[0] for call in calls} == {*COMMANDS, EVIL}


def test_lines_to_paste_name_the_same_table(broker: Kafka, hostile: str, ticdc_source: Command) -> None:
    """The lines that read a table are Python of printable characters, and mean the table's real names."""
    kafka = ("--bootstrap-servers", broker.bootstrap_servers, "--subscribe", hostile)

    shown = ticdc_source("inspect", *kafka, "--conf", f"tables=`{NAME}`.`{NAME}`").out
    lines = shown[shown.index("changes = (") :]
    code = lines[: lines.index("\n)\n") + 3]
    reader = _Reader()
    exec(code, {"spark": reader})  # noqa: S102 (what a user does)

    assert code.replace("\n", "").isprintable()
    assert reader.given["tables"] == f"`{NAME}`.`{NAME}`"
    assert reader.given["subscribe"] == hostile


class _Reader:
    """Stands in for Spark, and remembers options."""

    def __init__(self) -> None:
        self.read = self
        self.given: dict[str, str] = {}

    def format(self, _name: str) -> "_Reader":
        return self

    def option(self, name: str, value: str) -> "_Reader":
        self.given[name] = value
        return self

    def load(self) -> None:
        """Read nothing."""
