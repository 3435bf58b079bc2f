"""The same batch and streams run on the newest patch of every PySpark since 4.0, each in its own process."""

import sys
from pathlib import Path

import pyspark
import pytest

from lakehouse.tests.engines.engines import ENGINES
from tests.fixtures import Kafka
from tests.versions.environments import extras, interpreter, run_module

OLDEST = "3.5.9"  # has decode and what builds on it, and no data source
OTHERS = ("4.0.5", "4.1.4", "4.2.1")  # pip installs each the first time, which takes a minute
VERSIONS = tuple(dict.fromkeys((*OTHERS, pyspark.__version__)))  # the last is installed already
CONNECT = (pyspark.__version__, None)
CONNECT_WITH_DELTA = (ENGINES["delta-4.4"].pyspark, "delta-4.4")  # there is none for PySpark 4.3
CONNECT_NEEDS = ("grpcio>=1.67", "grpcio-status>=1.67", "googleapis-common-protos>=1.65", "zstandard>=0.25")
SECONDS = 580  # 40 on two idle cores


@pytest.mark.long("a JVM for each version")
@pytest.mark.xdist_group("versions")
@pytest.mark.spark
@pytest.mark.versions
@pytest.mark.parametrize("version", VERSIONS)
def test_batch_and_stream(broker: Kafka, tmp_path: Path, version: str) -> None:
    """Every row comes exactly once, also from restarted and failed streams; limits work, also if Spark has none."""
    python = interpreter(version) if version != pyspark.__version__ else sys.executable
    limited = not version.startswith(("4.0.", "4.1."))

    report, stderr = run_module(
        python, tmp_path, SECONDS, "tests.versions.scenario", broker.bootstrap_servers, str(tmp_path)
    )

    assert (report["pyspark"], report["admission_control"]) == (version, limited)
    assert ("a query with Trigger.AvailableNow or Trigger.Once is one micro-batch" in stderr) == (not limited)


@pytest.mark.slow("a JVM for each version")
@pytest.mark.xdist_group("versions")
@pytest.mark.spark
@pytest.mark.versions
@pytest.mark.parametrize("version", [
    OLDEST, *(pytest.param(each, marks=pytest.mark.long("a JVM for each version")) for each in VERSIONS)
])  # fmt: skip
def test_decode(tmp_path: Path, version: str) -> None:
    """Rows of a DataFrame are decoded as those of a topic; PySpark 3.5 has no data source."""
    python = interpreter(version) if version != pyspark.__version__ else sys.executable

    report, _ = run_module(python, tmp_path, SECONDS, "tests.versions.decoding", str(tmp_path))

    assert (report["pyspark"], report["without_the_source"]) == (version, version == OLDEST)
    assert report["rows"] > 100
    assert report["rows of tables"] > 100


@pytest.mark.long("a server of Spark Connect for each version")
@pytest.mark.xdist_group("versions")
@pytest.mark.spark
@pytest.mark.versions
@pytest.mark.parametrize(("version", "engine"), [CONNECT, CONNECT_WITH_DELTA])
def test_spark_connect(broker: Kafka, tmp_path: Path, version: str, engine: str | None) -> None:
    """Over Spark Connect, the source, decode, tables and doctor do the same; so do merge_into and append_log."""
    python = interpreter(version, *CONNECT_NEEDS)
    arguments = (broker.bootstrap_servers, str(tmp_path), *([engine] if engine else []))

    report, _ = run_module(python, tmp_path, SECONDS, "tests.versions.connect", *arguments)

    assert (report["pyspark"], report["remote"]) == (version, True)
    assert report["rows"] == 4
    assert report["decoded"] > 100
    assert report["rows of tables"] > 100
    assert report["executor"].endswith(str(python))
    assert engine is None or report["logged"] == 3


def test_the_versions_are_those_that_are_supported() -> None:
    """The lowest version of PySpark in pyproject.toml is the oldest that is tested; no minor version is missing."""
    tested = sorted(tuple(map(int, version.split(".")[:2])) for version in VERSIONS)

    assert f"pyspark>={OLDEST.rpartition('.')[0]},<5" in extras()["spark"]
    assert tested == [(4, minor) for minor in range(tested[-1][1] + 1)]
