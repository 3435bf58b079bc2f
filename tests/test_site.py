"""The site of both packages builds, with every link and anchor checked, and takes nothing from elsewhere."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from website import PUBLIC

API = {
    "docs/reference/python-api.md": "reference/python-api.html",
    "lakehouse/docs/python-api.md": "lakehouse/python-api.html",
}
INDEX, LAKEHOUSE = ROOT / "docs/index.md", ROOT / "lakehouse/docs/index.md"
FOLDERS = {"docs": "", "lakehouse/docs": "lakehouse"}  # where their pages are in the site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as `make site` builds it."""
    if find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed: pip install --group docs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow("builds the site")
def test_the_site_has_every_page(site: Path) -> None:
    """Each page of both packages is a page of the site, and README, the changelog and CONTRIBUTING are pages too."""
    pages = [Path(to) / path.relative_to(ROOT / of) for of, to in FOLDERS.items() for path in (ROOT / of).rglob("*.md")]
    copies = [Path("repository") / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]

    names = [path.with_suffix(".html") for path in [*pages, *copies]]
    assert not [name for name in names if not (site / str(name).replace("README", "index")).exists()]


def test_the_index_has_every_page() -> None:
    """A page that no index names is found by nobody; those of a protocol are on the page of all."""
    pages = [path for folder in ("guides", "reference") for path in (INDEX.parent / folder).rglob("*.md")]
    others = [path for path in LAKEHOUSE.parent.glob("*.md") if path != LAKEHOUSE]

    assert not [path.name for path in (*pages, LAKEHOUSE) if path not in named_by(INDEX)]
    assert not [path.name for path in others if path not in named_by(LAKEHOUSE)]


def named_by(index: Path) -> set[Path]:
    links = re.findall(r"\]\(([\w/.-]+)", index.read_text(encoding="utf-8"))
    return {(index.parent / link).resolve() for link in links}


@pytest.mark.slow("builds the site")
def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    """No page has a script, a style, a font or an image of another host."""
    loaded = re.compile(r"<(?:script|img|iframe|link)\b[^>]*(?:src|href)=\"(?:https?:)?//")

    assert not [path for path in site.rglob("*.html") if loaded.search(path.read_text(encoding="utf-8"))]


@pytest.mark.slow("builds the site")
def test_the_search_works_from_disk(site: Path) -> None:
    """The index is a script, as a browser loads no JSON of a folder, and each page has what stands in for a Worker."""
    pages = list(site.rglob("*.html"))

    assert (site / "search/search_index.js").read_text(encoding="utf-8").startswith("var __index = {")
    assert (site / "javascripts/iframe-worker.js").exists()
    assert not [path for path in pages if "javascripts/iframe-worker.js" not in path.read_text(encoding="utf-8")]


@pytest.mark.slow("builds the site")
def test_public_names_have_their_docstring(site: Path) -> None:
    """The references have each public name once, and the site its docstring."""
    sources = [(ROOT / source).read_text(encoding="utf-8") for source in API]
    marks = re.findall(r"<!-- docstrings(?: without members)?: ([\w ]+) -->", "".join(sources))
    names = [name for mark in marks for name in mark.split()]
    page = "".join((site / built).read_text(encoding="utf-8") for built in API.values())

    public = {name: getattr(module, name) for module in PUBLIC for name in set(module.__all__) - {"__version__"}}
    assert sorted(names) == sorted(public)
    assert not [name for name in names if f'id="{public[name].__module__}.{name}"' not in page]
