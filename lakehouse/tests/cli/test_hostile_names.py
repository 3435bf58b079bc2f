"""Names of files and values of arguments reach a terminal in printable characters only."""

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.cli.test_hostile_names import EVIL, OURS
from ticdc_lakehouse.cli.__main__ import COMMANDS


@pytest.mark.parametrize("is_terminal", [False, True], ids=["pipe", "terminal"])
def test_no_command_reaches_the_terminal(
    is_terminal: bool, ticdc_lakehouse: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command shows what it was given in printable characters only."""
    monkeypatch.setenv("FORCE_COLOR", "1" if is_terminal else "")
    calls: list[tuple[object, ...]] = [
        ("sync", f"{tmp_path}/{EVIL}"),
        ("sync", "--subscribe", "t", "--path", EVIL, "--format", EVIL, "--checkpoint", "c"),
        ("audit", f"{tmp_path}/{EVIL}"),
    ]

    for call in calls:
        done = ticdc_lakehouse(*call)
        for stream in (done.out, done.err):
            text_only = OURS.sub("", stream) if is_terminal else stream
            assert text_only.replace("\n", "").isprintable(), call
        assert re.search(r"\\(x1b|u001b)", done.out + done.err), call
    assert {call[0] for call in calls} == {*COMMANDS}
