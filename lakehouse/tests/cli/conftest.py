"""The command `ticdc-lakehouse`, called in this process."""

from collections.abc import Iterator

import pytest

from tests.cli.conftest import Command, put_back
from ticdc_lakehouse.cli.__main__ import main


@pytest.fixture
def ticdc_lakehouse(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """A function that calls the command `ticdc-lakehouse`."""
    with put_back(monkeypatch):
        yield Command(capsys, main)
