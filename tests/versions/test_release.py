"""What a release would publish installs by name on each Python and each PySpark, and runs there."""

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.data import read_messages
from examples.local_kafka import create_topic, delete_topic, produce
from tests.fixtures import CARGO, Kafka
from tests.support.paths import ROOT
from tests.versions.environments import environment
from tests.versions.test_versions import VERSIONS
from ticdc_source import __version__

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
FIRST = {"4.3": "3.11"}  # the first Python of a PySpark, if it is not the first of this package
PROGRAM = Path(__file__).with_name("installed.py")

pytestmark = [
    pytest.mark.long("an environment for each Python and each PySpark"),
    pytest.mark.versions,
    pytest.mark.xdist_group("versions"),
    pytest.mark.timeout(1800),
]


def run(*command: object, folder: Path = ROOT) -> str:
    """Run a program outside this clone's environment, and return what it prints."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "VIRTUAL"))}
    done = subprocess.run(list(map(str, command)), cwd=folder, env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdists and wheels of both packages, the wheels made from the sdists."""
    made, index = (tmp_path_factory.mktemp(name) for name in ("sdists", "index"))
    python = environment("hatchling", ["hatchling>=1.27"])
    hatch = (python, "-m", "hatchling", "build", "--target", "sdist", "--directory", made)
    run(*hatch)
    run(*hatch, folder=ROOT / "lakehouse")
    for sdist in made.iterdir():
        run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", index, sdist)
        shutil.copy(sdist, index)
    return index


@pytest.fixture(scope="module")
def shop(broker: Kafka) -> Iterator[str]:
    """A topic with the demo's messages."""
    name = f"release-{uuid.uuid4().hex[:12]}"
    create_topic(broker.bootstrap_servers, name, 3)
    produce(
        broker.bootstrap_servers, name, [(m.partition, m.key, m.value, [], None) for m in read_messages("canal-json")]
    )
    yield name
    delete_topic(broker.bootstrap_servers, name)


@pytest.mark.spark
@pytest.mark.parametrize("pyspark", [version.rpartition(".")[0] for version in VERSIONS])
@pytest.mark.parametrize("python", PYTHONS)
def test_it_installs_and_runs(broker: Kafka, shop: str, index: Path, tmp_path: Path, python: str, pyspark: str) -> None:
    """One `pip install` by name, and a batch, a stream and both commands run."""
    interpreter = shutil.which(f"python{python}")
    if interpreter is None:
        pytest.skip(f"there is no Python {python}")
    if tuple(map(int, python.split("."))) < tuple(map(int, FIRST.get(pyspark, PYTHONS[0]).split("."))):
        pytest.skip(f"PySpark {pyspark} needs Python {FIRST[pyspark]}")
    run(interpreter, "-m", "venv", tmp_path / "venv")
    inner = tmp_path / "venv" / "bin" / "python"
    links = ("--find-links", index)
    run(
        inner,
        "-m",
        "pip",
        "install",
        *links,
        f"pyspark=={pyspark}.*",
        "ticdc-source",
        "ticdc-lakehouse",
        folder=tmp_path,
    )

    report = json.loads(run(inner, PROGRAM, broker.bootstrap_servers, shop, tmp_path, folder=tmp_path).splitlines()[-1])

    print(report)  # noqa: T201 (the note of a release has it)
    assert report["python"].startswith(f"{python}.")
    assert report["pyspark"].startswith(f"{pyspark}.")
    assert all(Path(place).is_relative_to(tmp_path) for place in report["from"])
    assert (report["batch"], report["stream"], report["inspect"]) == (7155, 7155, 3)
    assert report["version"] == [__version__, f"ticdc-lakehouse {__version__}"]
    assert report["native"] is (CARGO is not None)
