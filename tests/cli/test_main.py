"""The command ticdc-source as a whole."""

import subprocess
import sys

from tests.cli.conftest import Command
from tests.support.paths import ROOT
from ticdc_source.cli.__main__ import COMMANDS

_HELP = """
import sys
from ticdc_source.cli.__main__ import main
for command in sys.argv[1:]:
    try:
        main([command, "--help"])
    except SystemExit as done:
        assert done.code == 0
    assert "pyspark" not in sys.modules, command
"""


def test_commands_do_not_import_pyspark() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _HELP, *COMMANDS], cwd=ROOT, check=False, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    for command in COMMANDS:
        assert f"ticdc-source {command}" in done.stdout


def test_a_reader_that_ends_early_is_no_finding() -> None:
    """The exit code is 0 if the reader of the output, such as head, has what it wanted."""
    command = [sys.executable, "-m", "ticdc_source.cli", "options"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()

    assert process.returncode == 0


def test_an_error_is_shown_as_it_is(ticdc_source: Command) -> None:
    done = ticdc_source(
        "lag", "--bootstrap-servers", "127.0.0.1:1", "--subscribe", "t", "--properties", r"no\[/such]\[file"
    )

    assert done.code == 2
    assert r"no\[/such]\[file" in done.err
