"""The tour runs as a newcomer starts it, and its page has all pictures."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from examples.local_kafka.broker import BOOTSTRAP_VARIABLE
from examples.tour.page import SECTIONS
from tests.fixtures import Kafka
from tests.support.paths import ROOT

SECONDS = 400  # 60 on two idle cores
PICTURES = {section.picture for section in SECTIONS if section.picture}
PAGE = ROOT / "docs/tour.md"


@pytest.fixture(scope="module")
def tour(broker: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the tour wrote, with its pictures as files in `images`."""
    pytest.importorskip("matplotlib", reason="in the dependency group 'tour'")
    folder = tmp_path_factory.mktemp("tour")
    done = subprocess.run(
        [sys.executable, "-m", "examples.tour", "--output", str(folder), "--images", str(folder / "images")],
        cwd=ROOT,
        env={**os.environ, BOOTSTRAP_VARIABLE: broker.bootstrap_servers},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.long("a JVM of its own")
@pytest.mark.spark
def test_the_page_has_all_pictures(tour: Path) -> None:
    page = (tour / "index.html").read_text(encoding="utf-8")

    assert 'id="schema"' in page
    for name in PICTURES:
        _, _, rest = page.partition(f'<figure id="{name}">')
        inside = ET.fromstring(rest.partition("</figure>")[0])  # noqa: S314 (made by the tour)
        alone = ET.parse(tour / "images" / f"{name}.svg").getroot()  # noqa: S314
        assert inside.tag == alone.tag == "{http://www.w3.org/2000/svg}svg"
        assert len(list(alone.iter("{http://www.w3.org/2000/svg}path"))) > 10
    assert "src=" not in page
    assert 'href="http' not in page


def test_the_documentation_has_all_pictures_and_they_are_small() -> None:
    """Every picture of the tour is on its page; together they are smaller than 300 kB."""
    folder = ROOT / "docs/images/tour"
    files = {path.name: path.stat().st_size for path in folder.iterdir()}
    text = PAGE.read_text(encoding="utf-8")

    assert files.keys() == {f"{name}.svg" for name in PICTURES}
    assert all(f"(images/tour/{name})" in text for name in files)
    assert sum(files.values()) < 300_000
