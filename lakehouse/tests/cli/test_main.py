"""The command line of the copy, without what it needs."""

import os
import subprocess
import sys

from tests.support.paths import PACKAGES
from ticdc_lakehouse.cli.sync import EXAMPLE

WITHOUT_PYSPARK = """
import sys
sys.modules["pyspark"] = None
from ticdc_lakehouse.cli.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_PYSPARK, *arguments],
        env={**os.environ, "PYTHONPATH": PACKAGES}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_pyspark_is_missing() -> None:
    """One line says what to install; `--help` and `--example` work without it."""
    done = run("sync", "--status")

    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.count("\n") == 1
    assert 'ticdc-lakehouse sync needs PySpark, which is not installed here: pip install "ticdc-source' in done.stderr
    assert run("sync", "--help").returncode == 0
    assert run("sync", "--example").stdout == EXAMPLE.read_text(encoding="utf-8")
