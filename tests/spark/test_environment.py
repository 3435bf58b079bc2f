"""In a broken environment, users see errors that say what is wrong."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures import Kafka
from tests.spark.conftest import MakeTopic
from tests.spark.streams import write_rows
from tests.support.paths import ROOT

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long("a JVM of its own")]


def test_a_broken_sibling_and_a_missing_package(broker: Kafka, topic: MakeTopic, tmp_path: Path) -> None:
    """A broken `pyspark_*` package hides the format until it is registered; the error names what workers lack."""
    name = topic()
    write_rows(broker.bootstrap_servers, name, *range(5))

    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.poor_environment", broker.bootstrap_servers, name],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    outcomes = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    assert "DATA_SOURCE_NOT_FOUND" in outcomes["unregistered"]
    assert "No module named 'kafka'" in outcomes["without kafka"]
    assert outcomes["registered"] == "5 rows"
