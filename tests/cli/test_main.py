"""The command ticdc-source as a whole."""

import subprocess
import sys

import pytest

from tests.conftest import ROOT
from ticdc_source.cli.main import COMMANDS

_HELP = """
import sys
from ticdc_source.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as done:
    assert done.code == 0
assert "pyspark" not in sys.modules
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_do_not_import_pyspark(command: str) -> None:
    """Each command is imported, and shows its help, without pyspark."""
    done = subprocess.run(
        [sys.executable, "-c", _HELP, command, "--help"], cwd=ROOT, check=False, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    assert f"ticdc-source {command}" in done.stdout
