"""The packages of Delta and Iceberg that the page lists are those of the code, and all that a session needs."""

import re
from pathlib import Path

import pytest

from lakehouse.tests.engines.engine_jars import PAGE
from tests.versions.environments import interpreter, run_module
from tests.versions.test_versions import OTHERS
from ticdc_lakehouse.targets.opening import ENGINES

PACKAGES = {name: engine.packages for name, engine in ENGINES.items()}

ALL = [(engine, release) for engine, releases in PACKAGES.items() for release in releases]
SECONDS = 280


def listed() -> dict[tuple[str, str], str]:
    """Return the packages of the page, by engine and release of PySpark."""
    rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")]
        for line in PAGE.read_text(encoding="utf-8").partition("| PySpark |")[2].splitlines()
        if re.match(r"\| \d\.\d \|", line)
    ]
    packages = {(engine, row[0]): row[number] for row in rows for number, engine in enumerate(("delta", "iceberg"), 1)}
    return {key: package for key, package in packages.items() if package != "none"}


def test_the_page_lists_every_release() -> None:
    """The page has the package of each release of PySpark that an engine has."""
    assert listed() == {(engine, release): PACKAGES[engine][release] for engine, release in ALL}


@pytest.mark.long("Spark fetches jars")
@pytest.mark.xdist_group("engines")
@pytest.mark.spark
@pytest.mark.versions
@pytest.mark.parametrize(("engine", "release"), ALL)
def test_the_jars_are_complete(tmp_path: Path, engine: str, release: str) -> None:
    """Spark fetches jars by the code of the page, and a session with them alone writes tables and fetches nothing."""
    python = interpreter(next(version for version in OTHERS if version.startswith(f"{release}.")))

    fetched, _ = run_module(
        python, tmp_path, SECONDS, "lakehouse.tests.engines.engine_jars", "fetch", engine, str(tmp_path)
    )
    used, _ = run_module(python, tmp_path, SECONDS, "lakehouse.tests.engines.engine_jars", "use", engine, str(tmp_path))

    assert PACKAGES[engine][release] in fetched["fetch"]
    assert used["use"] == 1
    assert not list((tmp_path / "ivy").rglob("*.jar"))
