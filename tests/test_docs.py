"""The documentation is true: its tables are the code's, and its links and citations lead somewhere."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote

import pytest

from benchmarks.results import FOLDER, caption
from tests.support.pages import README, anchors, code_of, without_code
from tests.support.paths import ROOT
from tests.versions.environments import extras
from ticdc_source.protocols import OF_MESSAGES
from website.generate_docs import DOCS as ALL_DOCS
from website.generate_docs import PARTS, documents, generated, parts_of

DOCS, LAKEHOUSE = ALL_DOCS
WIRE = DOCS / "wire.md"
DOCUMENTS = pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FACT = re.compile(r"^- \*\*(\d+)\.\*\* ", re.MULTILINE)
_NUMBERS = r"items? (\d+(?:(?:, | and | to )\d+)*)"
_CITATION = re.compile(rf"docs/wire\.md(?:, {_NUMBERS})?")
_PAGE = re.compile(r"(?<![\w/.-])((?:[\w.-]+/)*[\w.-]+\.md)\b")
_DESIGN = re.compile(r"\bdesign/(\d{4}[\w-]*)")
_TITLE = re.compile(r"'([^']+)' in the documentation")
_URL = re.compile(r"[a-z]+://\S+")

PACKAGES = ("ticdc_source/", "lakehouse/ticdc_lakehouse/")

# Where the project's own texts are.
FOLDERS = ("ticdc_source", "pyspark_ticdc", "tests", "examples", "benchmarks", "docs", "lakehouse")
SUFFIXES = (".py", ".md", ".case")


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@DOCUMENTS
def test_generated_parts_are_what_the_code_generates(path: Path) -> None:
    """After a change of a table, `make docs` has been run."""
    assert generated(read(path)) == read(path)


def test_every_generated_part_stands_in_one_place() -> None:
    """Each table that the code can generate is on one page."""
    assert sorted(part for path in documents() for part in parts_of(read(path))) == sorted(PARTS)


def test_every_protocol_has_its_page() -> None:
    """Each protocol that is read has a page with its losses, and the overview links it."""
    for protocol in OF_MESSAGES:
        assert f"{protocol.replace('-', '_')}_losses" in parts_of(read(DOCS / "protocols" / f"{protocol}.md"))
        assert f"({protocol}.md)" in read(DOCS / "protocols/index.md")


def test_every_extra_is_documented() -> None:
    """The page about installing names each extra of the package."""
    table = read(DOCS / "guides/install.md").partition("## Optional packages")[2]

    assert not [name for name in extras() if f"`{name}`" not in table]


@pytest.mark.parametrize("chart", sorted(FOLDER.glob("*.png")), ids=lambda path: path.stem)
def test_a_chart_shows_the_figures_of_the_table(chart: Path) -> None:
    """A chart is drawn from the result whose table is on a page: it says what it shows and the same commit."""
    title = caption(chart.with_suffix(".json"))

    assert b"Title\0" + title.encode("latin-1") in chart.read_bytes()
    assert any(f"![{title}]" in read(folder / "performance.md") for folder in ALL_DOCS)


@DOCUMENTS
def test_links_lead_somewhere(path: Path) -> None:
    """A link to a file of the project, or to a heading, has a target."""
    for link in _LINK.findall(without_code(read(path))):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = unquote(link).partition("#")
        target = path.parent / name if name else path

        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def texts() -> Iterator[tuple[Path, str]]:
    """Yield the source and documentation files of the project, except this one, by their path below its root."""
    paths = [path for folder in FOLDERS for suffix in SUFFIXES for path in (ROOT / folder).rglob(f"*{suffix}")]
    paths += [*ROOT.glob("*.md"), *ROOT.glob("*.toml"), ROOT / "Makefile", ROOT / ".ci" / "run"]
    own = Path(__file__).resolve()
    yield from ((path.relative_to(ROOT), read(path)) for path in sorted(paths) if path != own)


def unwrapped(text: str) -> str:
    """Return a text without its line breaks, and without the signs with which lines of a comment begin."""
    return re.sub(r"\s*\n\s*(?:# ?)?", " ", text)


def numbers(listed: str) -> set[int]:
    """Return the numbers of `25 and 37`, `96, 97` or `58 to 67`; a range has all between its ends."""
    all_numbers: set[int] = set()
    for part in re.split(", | and ", listed):
        first, *last = (int(number) for number in part.split(" to "))
        all_numbers |= set(range(first, (last or [first])[0] + 1))
    return all_numbers


def test_citations_of_the_wire_resolve() -> None:
    """Each cited item is an item of docs/wire.md, whose numbers are unique and have no gap; code cites items."""
    facts = [int(number) for number in _FACT.findall(read(WIRE))]
    cited: Mapping[str, list[str]] = {str(path): _CITATION.findall(unwrapped(text)) for path, text in texts()}
    within = re.findall(_NUMBERS, unwrapped(read(WIRE)))

    assert sorted(facts) == list(range(1, len(facts) + 1))
    assert not set().union(*map(numbers, within)) - set(facts)
    assert not [path for path, items in cited.items() if path.endswith(".py") and "" in items]
    assert not [
        f"{path}: {item}" for path, items in cited.items() for item in items if item and numbers(item) - set(facts)
    ]


def messages(path: Path) -> Iterator[str]:
    """Yield the texts of a module that are no docstrings, those of f-strings with their parts joined."""
    tree = ast.parse(read(path))
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            yield "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.value


def test_messages_name_pages_by_their_titles() -> None:
    """Who installed the package has no folder `docs`: a message has the title of a page that exists, and no path."""
    titles = {read(path).partition("\n")[0].removeprefix("# ") for folder in ALL_DOCS for path in folder.rglob("*.md")}
    modules = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    texts_of = {path: list(messages(path)) for path in modules}
    named = {title for found in texts_of.values() for text in found for title in _TITLE.findall(text)}

    paths = [(path.name, text) for path, found in texts_of.items() for text in found if _PAGE.search(text)]

    assert paths == []
    assert "Tables in Delta and Iceberg" in named
    assert named <= titles


def test_no_text_names_a_page_that_is_not_there() -> None:
    """A Markdown page that code, tests or documentation name is in the repository."""
    named = {(path, name) for path, text in texts() for name in _PAGE.findall(_URL.sub("", text))}

    assert (Path("CONTRIBUTING.md"), "docs/wire.md") in named
    assert not [
        pair for pair in named if not (ROOT / pair[1]).exists() and not (ROOT / pair[0].parent / pair[1]).exists()
    ]


def test_design_pages_have_numbers_of_their_own() -> None:
    """Numbers are unique over both packages, pages begin with theirs, and citations of them resolve."""
    paths = [path for folder in ALL_DOCS for path in (folder / "design").glob("*.md")]
    pages = {path.stem: read(path) for path in paths}
    cited = {name for _, text in texts() for name in _DESIGN.findall(text)}

    assert len({path.name[:4] for path in paths}) == len(paths)
    assert all(text.startswith(f"# {name[:4]}: ") for name, text in pages.items())
    assert not [name for name in cited if name not in pages and name not in {page[:4] for page in pages}]


def targets(text: str) -> set[str]:
    calls = re.findall(r"^make ((?:[a-z-]+ ?)+)", re.sub(r"[A-Z_]+=\S+ ", "", text), re.MULTILINE)
    return {target for call in calls for target in call.split()}


def test_make_targets_exist() -> None:
    """Every `make …` that the documentation names is a target of the Makefile."""
    named = {target for path in documents() for target in targets(code_of(read(path)))}

    assert named <= set(re.findall(r"^([a-z-]+):", read(ROOT / "Makefile"), re.MULTILINE))


def test_ci_runs_what_readme_says() -> None:
    """`.ci/run` runs each `make …` of README and no other; the demo is run by its own tests."""
    assert targets(code_of(read(README))) - {"demo"} == targets(read(ROOT / ".ci/run"))
