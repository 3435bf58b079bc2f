"""merge_into with real Delta and Iceberg, each on its newest PySpark; and whether Spark 4.3 has one of them."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lakehouse.tests.engines.engines import ENGINES
from tests.versions.environments import interpreter, run_module

SECONDS = 900
NONE_YET = (4, 3)  # the first Spark without any of them


@pytest.mark.long("a JVM for each engine")
@pytest.mark.xdist_group("engines")
@pytest.mark.spark
@pytest.mark.versions
@pytest.mark.timeout(SECONDS + 600)  # the first time pip and Maven fetch the engine
@pytest.mark.parametrize("name", ENGINES)
def test_merge_into(tmp_path: Path, name: str) -> None:
    """Rows, columns, types, commits and errors are the same with each engine; repeats do nothing."""
    engine = ENGINES[name]
    python = interpreter(engine.pyspark)

    report, _ = run_module(python, tmp_path, SECONDS, "lakehouse.tests.targets.scenario", name, str(tmp_path))

    assert (report["pyspark"], report["engine"]) == (engine.pyspark, name)


@pytest.mark.long("a cluster of JVMs for each engine")
@pytest.mark.xdist_group("engines")
@pytest.mark.spark
@pytest.mark.versions
@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.parametrize("name", ["iceberg-1.12", "delta-4.4"])
def test_a_merge_survives_its_executors(tmp_path: Path, name: str) -> None:
    """If each executor dies between the images of a merge and its statement, the images are computed again."""
    python = interpreter(ENGINES[name].pyspark)

    report, _ = run_module(python, tmp_path, SECONDS, "lakehouse.tests.targets.executor_scenario", name, str(tmp_path))

    assert report["rows"] == [[[1, "A"], [3, "c"]], [[1, "A"], [2, "b"], [3, "c"]]]
    assert report["killed"] >= 2


@pytest.mark.slow("asks the package index")
def test_spark_4_3_has_no_delta_yet() -> None:
    """The newest delta-spark does not allow PySpark 4.3: if this fails, add an environment and change the matrix."""
    asked = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet"]
    done = subprocess.run(
        [*asked, "--report", "-", "delta-spark"], capture_output=True, text=True, check=False, timeout=SECONDS
    )
    if done.returncode != 0:
        pytest.skip(f"the package index did not answer: {done.stderr.strip()[-200:]}")

    newest_delta = json.loads(done.stdout)["install"][0]["metadata"]
    needs = next(text for text in newest_delta["requires_dist"] if text.startswith("pyspark"))
    newest = re.search(r"<=?\s*(\d+)\.(\d+)", needs)
    assert newest is not None, f"delta-spark {newest_delta['version']} needs {needs}: it may run on Spark 4.3"
    assert (int(newest[1]), int(newest[2])) < NONE_YET, f"delta-spark {newest_delta['version']} needs {needs}"
