"""The same batch and streams on the newest patch of every PySpark since 4.0, each in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.conftest import ROOT, Kafka
from tests.versions.environments import dependencies, interpreter

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.versions]

OTHERS = ("4.0.5", "4.1.4", "4.2.1")  # beside the one that runs; made by pip, a minute each, the first time
SECONDS = 580  # 40 on two cores that have nothing else to do


@pytest.mark.parametrize("version", [*OTHERS, pyspark.__version__])
def test_batch_and_stream(broker: Kafka, tmp_path: Path, version: str) -> None:
    """Every row comes exactly once, from restarted and from crashed streams too; limits work where Spark has them."""
    python = interpreter(version) if version != pyspark.__version__ else sys.executable
    limited = not version.startswith(("4.0.", "4.1."))

    done = subprocess.run(
        [python, "-m", "tests.versions.scenario", broker.bootstrap_servers, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert (report["pyspark"], report["admission_control"]) == (version, limited)
    assert ("Option 'maxOffsetsPerTrigger' is ignored" in done.stderr) == (not limited)


def test_the_versions_are_those_that_are_supported() -> None:
    """PySpark's least version in pyproject.toml is the oldest that is tested, and no minor version is left out."""
    oldest, newest = (tuple(map(int, version.split(".")[:2])) for version in (OTHERS[0], pyspark.__version__))

    assert f"pyspark>={oldest[0]}.{oldest[1]}" in dependencies()
    tested = {tuple(map(int, version.split(".")[:2])) for version in (*OTHERS, pyspark.__version__)}
    assert tested == {(4, minor) for minor in range(oldest[1], newest[1] + 1)}
