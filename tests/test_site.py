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

# What people ask the search of the site, and the page that answers it.
ANSWERS = {
    "all tables": "guides/tables",
    "alert": "guides/monitoring",
    "backfill": "guides/from-the-first-row",
    "bad record": "guides/bad-records",
    "checkpoint": "guides/questions",
    "Databricks": "guides/platforms",
    "decimal": "reference/types",
    "delete": "guides/topics-in-spark",
    "DuckDB": "guides/without-spark",
    "duplicate": "guides/duplicates",
    "exactly once": "guarantees",
    "hourly batch": "guides/repeated-batches",
    "initial load": "guides/from-the-first-row",
    "install without internet": "guides/install",
    "lag": "guides/monitoring",
    "large message": "guides/changefeed",
    "late": "guides/monitoring",
    "memory": "guides/sizing",
    "merge": "guides/topics-in-spark",
    "metrics prometheus": "guides/monitoring",
    "old rows": "guides/from-the-first-row",
    "partition": "guides/sizing",
    "password": "guides/security",
    "PySpark 3.5": "guides/output-formats",
    "rename column": "guides/schema-changes",
    "restart": "guides/questions",
    "s3": "guides/storage-sink",
    "schema change": "guides/schema-changes",
    "starting offsets": "guides/topics-in-spark",
    "time zone": "guides/topics-in-spark",
    "transaction": "guides/duplicates",
    "truncate": "guides/schema-changes",
    "upgrade": "guides/questions",
    "which protocol": "guides/changefeed",
    "zero date": "guides/topics-in-spark",
}


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
def test_the_search_finds_answers(site: Path) -> None:
    """The page that answers a question is among the first three that the search lists."""
    pytest.importorskip("lunr", reason="lunr is not installed: pip install --group docs")
    from tests.support.site_search import SiteSearch

    search = SiteSearch(site)
    found = {question: search.pages(question)[:3] for question in ANSWERS}

    assert not {question: pages for question, pages in found.items() if f"{ANSWERS[question]}.html" not in pages}


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
