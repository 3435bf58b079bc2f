"""What pyproject.toml asks for: extras, and that the lowest version of each requirement is enough."""

import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.fixtures import Kafka
from tests.support.paths import ROOT
from tests.versions.environments import dependencies, environment, extras, listed, lowest, run_module

SECONDS = 1800
NEWEST_PYTHON = (3, 12)  # has the lowest versions as wheels
FIRST_WITH_THE_FORMAT = "4.0.0"
# What tests need, beside mypy and the like.
TOOLS = ("kafka-python[", "pytest", "tzdata")
# What reads captured messages, without Spark and brokers.
TESTS = ("corpus", "kernels", "pipeline/test_golden.py", "protocols", "schema")
# What is not in the environment, with the reason.
LEFT_OUT = {"kerberos": "its package is compiled, which needs the headers of Kerberos"}

LOWEST = [
    pytest.mark.long("an environment of their own"),
    pytest.mark.versions,
    pytest.mark.xdist_group("versions"),
    pytest.mark.timeout(SECONDS + 600),  # the first time pip fetches them
    pytest.mark.skipif(
        sys.version_info[:2] > NEWEST_PYTHON, reason="the lowest versions are older than this Python: use 3.12"
    ),
]


def marked(*values: str) -> list[object]:
    return [pytest.param(value, marks=LOWEST) for value in values]


def lowest_environment(pyspark: str, *tools: str) -> Path:
    """Return the Python of an environment with the lowest versions of the package's requirements and this PySpark."""
    optional = [text for name, texts in extras().items() if name not in {"all", *LEFT_OUT} for text in texts]
    pinned = [text for text in lowest([*dependencies(), *optional]) if not text.startswith("pyspark==")]
    return environment(f"lowest-{pyspark}", [f"pyspark=={pyspark}", *dict.fromkeys(pinned), *tools])


def test_all_has_every_extra() -> None:
    """`ticdc-source[all]` has every other extra but the one that needs a compiler, and Spark, which platforms bring."""
    (only,) = map(Requirement, extras()["all"])

    assert only.name == "ticdc-source"
    assert only.extras == extras().keys() - {"all", "kerberos", "spark"}


def test_every_requirement_has_a_lowest_version() -> None:
    """Each requirement of the package and of its extras says from which version on it is enough."""
    optional = [text for name, texts in extras().items() if name != "all" for text in texts]

    assert len(lowest([*dependencies(), *optional])) == len(dependencies()) + len(optional)


@pytest.mark.spark
@pytest.mark.parametrize("pyspark", marked("3.5.0"))
def test_the_lowest_versions_decode(tmp_path: Path, pyspark: str) -> None:
    """With the lowest versions of everything, `decode` and `tables` return the rows of captured messages."""
    python = lowest_environment(pyspark)

    report, _ = run_module(python, tmp_path, SECONDS, "tests.versions.decoding", str(tmp_path))

    assert f"pyspark>={pyspark.removesuffix('.0')},<5" in extras()["spark"]
    assert report["pyspark"] == pyspark
    assert report["rows"] > 100


@pytest.mark.spark
@pytest.mark.parametrize("pyspark", marked(FIRST_WITH_THE_FORMAT))
def test_the_lowest_versions_read(broker: Kafka, tmp_path: Path, pyspark: str) -> None:
    """With the first PySpark that has the Python Data Source API, batches and streams return every row once."""
    python = lowest_environment(pyspark)

    report, _ = run_module(
        python, tmp_path, SECONDS, "tests.versions.scenario", broker.bootstrap_servers, str(tmp_path)
    )

    assert report["pyspark"] == pyspark


@pytest.mark.parametrize("pyspark", marked(FIRST_WITH_THE_FORMAT))
def test_the_lowest_versions_pass_the_tests(tmp_path: Path, pyspark: str) -> None:
    """With the lowest versions, the tests of captured messages pass."""
    tools = [text for text in listed("dev") if text.startswith(TOOLS)]
    python = lowest_environment(pyspark, *tools)

    options = [
        "-q",
        "-m",
        "not spark and not broker and not slow",
        f"--basetemp={tmp_path}/tests",
        "-p",
        "no:cacheprovider",
    ]
    done = run_here([str(python), "-m", "pytest", *options, *(f"tests/{name}" for name in TESTS)])

    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr


def run_here(command: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=SECONDS)
