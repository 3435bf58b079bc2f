"""Commands are called in this process; what they change in it is put back."""

import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from ticdc_source.cli.__main__ import main


class Done(NamedTuple):
    """What a command has left: its exit code, and what it has written."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class Command:
    """Calls a command: `ticdc-source`, or another's `main`."""

    def __init__(self, capsys: pytest.CaptureFixture[str], main: Callable[[list[str]], int]) -> None:
        self._capsys, self._main = capsys, main

    def __call__(self, *arguments: object) -> Done:
        self._capsys.readouterr()
        try:
            code = self._main([str(argument) for argument in arguments])
        except SystemExit as exit_:  # argparse
            code = int(str(exit_.code))
        return Done(code, *self._capsys.readouterr())


@contextmanager
def put_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setenv("COLUMNS", "160")
    root = logging.getLogger()
    handlers = list(root.handlers)
    levels = {
        logger: logger.level for logger in map(logging.getLogger, ("", "kafka", "ticdc_source", "ticdc_lakehouse"))
    }
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # they are shown, as a user sees them
        yield
    root.handlers[:] = handlers
    for logger, level in levels.items():
        logger.setLevel(level)


@pytest.fixture
def ticdc_source(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """A function that calls the command `ticdc-source`."""
    with put_back(monkeypatch):
        yield Command(capsys, main)
