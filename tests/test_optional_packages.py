"""What works without PySpark, and what a public name says that needs PySpark."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import ticdc_source
from tests.support.paths import ROOT

Python = Callable[..., "subprocess.CompletedProcess[str]"]
INSTALL = 'needs PySpark, which is not installed here: pip install "ticdc-source[spark]"'
WITHOUT_SPARK = {"StreamProgress", "TiCDCSourceError", "__version__", "commit_range", "complete_until", "read_arrow"}
EACH_NAME = """
import ticdc_source
for name in dir(ticdc_source):
    try:
        getattr(ticdc_source, name)
    except ModuleNotFoundError as error:
        print(name, error.name, error, sep="|")
"""


@pytest.fixture
def python_without(tmp_path: Path) -> Python:
    """A function that runs Python where some packages are not installed."""

    def run(packages: tuple[str, ...], *arguments: str) -> "subprocess.CompletedProcess[str]":
        for name in packages:
            missing = f'raise ModuleNotFoundError("No module named {name!r}", name={name!r})\n'
            (tmp_path / f"{name}.py").write_text(missing)
        paths = os.pathsep.join(map(str, (tmp_path, ROOT)))
        variables = {**os.environ, "PYTHONPATH": paths, "FORCE_COLOR": "1"}
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)

    return run


def test_a_public_name_that_needs_spark_says_what_to_install(python_without: Python) -> None:
    """Without PySpark, such a name is an error of one line; the other names are there."""
    done = python_without(("pyspark",), "-c", EACH_NAME)
    said = dict(line.split("|", 1) for line in done.stdout.splitlines())

    assert said.keys() == set(dir(ticdc_source)) - WITHOUT_SPARK - {"errors"}
    assert said == {name: f"pyspark|ticdc_source.{name} {INSTALL}" for name in said}


def test_the_package_that_spark_looks_for_says_it_too(python_without: Python) -> None:
    """Whoever imports `pyspark_ticdc` without PySpark sees the same error, in a traceback of one cause."""
    done = python_without(("pyspark",), "-c", "import pyspark_ticdc")

    assert done.stderr.splitlines()[-1] == f"ModuleNotFoundError: ticdc_source.TiCDCDataSource {INSTALL}"
    assert "During handling" not in done.stderr


def test_commands_need_no_spark(python_without: Python) -> None:
    """Without PySpark, commands print text, and colours where they are wanted."""
    plain, wrong = (
        python_without(("pyspark",), "-m", "ticdc_source.cli", "options", name)
        for name in ("kafka.s", "no-such-option")
    )

    assert "\x1b[36mkafka." in plain.stdout
    assert "error:" in wrong.stderr
    assert (plain.returncode, wrong.returncode) == (0, 2)
