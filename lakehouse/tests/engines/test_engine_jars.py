"""The jars of Delta and Iceberg that the page lists are those that Spark fetches, and all that a session needs."""

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


def listed() -> dict[tuple[str, str], list[str]]:
    """Return the Maven coordinates of the page, by engine and release of PySpark."""
    rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")]
        for line in PAGE.read_text(encoding="utf-8").partition("## The jars")[2].splitlines()
        if line.startswith("|")
    ]
    heads = [re.fullmatch(r"(Delta|Iceberg), PySpark (\d\.\d)", head) for head in rows[0][1:]]
    columns = [(head[1].lower(), head[2]) for head in heads if head]
    return {
        column: sorted(f"{row[0]}:{row[number]}" for row in rows[2:] if row[number])
        for number, column in enumerate(columns, 1)
    }


def test_the_page_lists_every_release() -> None:
    """The page has a column for each release of PySpark that an engine has, which begins with that engine's package."""
    found = listed()

    assert set(found) == set(ALL)
    assert [
        PACKAGES[engine][release] for engine, release in ALL if PACKAGES[engine][release] not in found[engine, release]
    ] == []


@pytest.mark.long("Spark fetches jars")
@pytest.mark.xdist_group("engines")
@pytest.mark.spark
@pytest.mark.versions
@pytest.mark.parametrize(("engine", "release"), ALL)
def test_the_jars_are_complete(tmp_path: Path, engine: str, release: str) -> None:
    """Spark fetches the jars that the page lists, and a session with them alone writes tables and fetches nothing."""
    python = interpreter(next(version for version in OTHERS if version.startswith(f"{release}.")))

    fetched, _ = run_module(
        python, tmp_path, SECONDS, "lakehouse.tests.engines.engine_jars", "fetch", engine, str(tmp_path)
    )
    used, _ = run_module(python, tmp_path, SECONDS, "lakehouse.tests.engines.engine_jars", "use", engine, str(tmp_path))

    assert fetched["fetch"] == listed()[engine, release]
    assert used["use"] == 1
    assert not list((tmp_path / "ivy").rglob("*.jar"))
