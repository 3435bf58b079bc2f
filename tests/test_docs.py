"""The documentation is true: its tables are the code's, and its links and citations lead somewhere."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote

import pytest

import ticdc_source
from benchmarks.results import FOLDER, caption
from tests.generate_docs import DOCS as ALL_DOCS
from tests.generate_docs import PARTS, documents, generated, parts_of
from tests.support.pages import README, anchors, blocks, code_of, design, guides, without_code
from tests.support.paths import ROOT
from tests.versions.environments import dependencies, extras
from ticdc_source.options.options import OPTIONS
from ticdc_source.protocols import PROTOCOLS

DOCS, LAKEHOUSE = ALL_DOCS
WIRE = DOCS / "wire.md"
GLOSSARY = DOCS / "glossary.md"
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
    """Read a text."""
    return path.read_text(encoding="utf-8")


@DOCUMENTS
def test_generated_parts_are_what_the_code_generates(path: Path) -> None:
    """After a change of a table, `make docs` has been run."""
    assert generated(read(path)) == read(path)


def test_every_generated_part_stands_in_one_place() -> None:
    """Each table that the code can generate is on one page."""
    assert sorted(part for path in documents() for part in parts_of(read(path))) == sorted(PARTS)


@pytest.mark.parametrize("part", sorted(set(PARTS) - {"speed", "tree"}))
def test_a_generated_part_is_a_table(part: str) -> None:
    """Every line of it has as many cells as the head, and no type name can be taken for a tag."""
    text = PARTS[part]()
    if text.startswith("*Not measured yet"):
        pytest.skip(f"benchmarks/results has no figures of {part}")
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]

    assert len(lines) > 2
    assert {len(line) for line in lines} == {len(lines[0])}
    assert "<" not in without_code(PARTS[part]())


def test_every_protocol_has_its_page() -> None:
    """Each protocol that is read has a page with its losses; README and the overview link it."""
    for protocol in PROTOCOLS:
        assert f"{protocol.replace('-', '_')}_losses" in parts_of(read(DOCS / "protocols" / f"{protocol}.md"))
        assert f"(docs/protocols/{protocol}.md)" in read(README)
        assert f"({protocol}.md)" in read(DOCS / "protocols/index.md")


def test_every_option_is_documented() -> None:
    """The reference names each option with its meaning."""
    text = read(DOCS / "reference/options.md")

    assert not [option.name for option in OPTIONS if f"| `{option.name}` |" not in text]
    assert not [option.name for option in OPTIONS if option.meaning not in text]


def test_every_extra_is_documented() -> None:
    """The page about installing names each extra of the package."""
    table = read(DOCS / "guides/install.md").partition("## Optional packages")[2]

    assert not [name for name in extras() if f"`{name}`" not in table]


def test_every_dependency_is_documented() -> None:
    """The page about installing names each package that the package requires, and says how many there are."""
    names = [re.split(r"[<>=;]", text)[0].strip() for text in dependencies()]
    page = read(DOCS / "guides/install.md")

    assert not [name for name in names if f"`{name}`" not in page]
    assert len(names) == 4


@pytest.mark.parametrize("chart", sorted(FOLDER.glob("*.png")), ids=lambda path: path.stem)
def test_a_chart_shows_the_figures_of_the_table(chart: Path) -> None:
    """A chart is drawn from the result whose table is on a page: it says what it shows and the same commit."""
    title = caption(chart.with_suffix(".json"))

    assert b"Title\0" + title.encode("latin-1") in chart.read_bytes()
    assert any(f"![{title}]" in read(folder / "performance.md") for folder in ALL_DOCS)


def test_a_recipe_that_starts_at_a_time_reads_a_partition_without_newer_records() -> None:
    """Code of the pages that sets `startingTimestamp` says what happens in a partition that has no later record."""
    recipes = [block.text for path in guides() for block in blocks(path) if '"startingTimestamp"' in block.text]

    assert recipes
    assert not [text for text in recipes if '"startingOffsetsByTimestampStrategy", "latest"' not in text]


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


def test_one_pattern_reads_a_topic_per_table_and_the_topic_of_the_uri() -> None:
    """The topics that the pages set up are those that the guides to many tables read."""
    (pattern,) = set(re.findall(r'"subscribePattern", "([^"]+)"', read(DOCS / "guides/tables.md")))
    settings = [
        read(DOCS / "guides/changefeed.md"),
        *(read(DOCS / f"protocols/{name}.md") for name in PROTOCOLS if name != "csv"),
    ]  # in files only
    topics = [re.findall(r'topic = "([^"]+)"', text)[0].format(schema="shop", table="orders") for text in settings]
    defaults = [re.findall(r"kafka://broker:9092/([^?]+)", text)[0] for text in settings]

    assert f"subscribePattern={pattern}" in settings[0]
    assert f'regular expressions such as "{pattern}"' in read(LAKEHOUSE / "sync.md")
    assert not [topic for topic in (*topics, *defaults) if not re.fullmatch(pattern, topic)]


# Settings of a changefeed that change messages of other protocols only, or leave changes out.
_EXPRESSIONS = ("insert", "update-old", "update-new", "delete")
_FILTERS = {"ignore-event", "ignore-sql", "ignore-update-only-columns", "ignore-txn-start-ts"} | {
    f"ignore-{name}-value-expr" for name in _EXPRESSIONS
}
_AVRO = {f"avro-{name}" for name in ("decimal-handling-mode", "bigint-unsigned-handling-mode", "include-before-value")}
_OF_OTHERS = {"encoding-format", "output-row-key", "avro-enable-watermark"} | _AVRO


def test_settings_that_make_a_copy_differ_are_told_from_those_that_do_not() -> None:
    """The page has each filter of TiCDC's changefeeds, and each setting that changes nothing for this source."""
    page = read(DOCS / "guides/changefeed.md")
    filters, others = (
        set(re.findall(r"`([a-z-]+)(?: = [^`]*)?`", "".join(re.findall(r"^\| (`.*?) \|", part, re.MULTILINE))))
        for part in page.partition("## Filters that")[2].split("## Settings that")
    )

    assert filters == _FILTERS
    assert others == _OF_OTHERS


def test_how_long_the_first_look_takes_is_said_alike() -> None:
    """README, the overview of the pages and the navigation name the same number of minutes."""
    (readme,) = re.findall(r"The first command takes (\w+) minutes", read(README))

    assert f"shows it at work in {readme} minutes" in read(DOCS / "index.md")
    assert f"- In {readme} minutes: repository/README.md" in read(ROOT / "mkdocs.yml")


def test_every_page_is_in_the_navigation() -> None:
    """`nav` of mkdocs.yml has each page of both packages once; the design notes come by themselves."""
    nav = read(ROOT / "mkdocs.yml").partition("\nnav:\n")[2]
    listed = re.findall(r"- (?:[^:\n]+: )?(?!repository/)(\S+\.md)$", nav, re.MULTILINE)

    there = [path.relative_to(DOCS) for path in DOCS.rglob("*.md") if not design(path)]
    there += [Path("lakehouse") / path.relative_to(LAKEHOUSE) for path in LAKEHOUSE.rglob("*.md") if not design(path)]
    assert sorted(listed) == sorted(map(str, there))


def test_the_glossary_has_terms_of_the_pages() -> None:
    """Each term has one entry, and another page uses it."""
    terms = [term.lower() for term in re.findall(r"\*\*([^*]+)\*\*", read(GLOSSARY))]
    pages = " ".join(" ".join(read(path) for path in documents() if path != GLOSSARY).split()).lower()

    assert len(terms) == len(set(terms))
    assert not [term for term in terms if term not in pages]


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


def test_the_page_of_errors_says_why_spark_finds_no_format() -> None:
    """Under `DATA_SOURCE_NOT_FOUND` are three causes: the release of PySpark, the workers' Python, other packages."""
    section = read(DOCS / "guides/questions.md").partition("### `DATA_SOURCE_NOT_FOUND`\n")[2].partition("\n###")[0]

    assert [name for name in ("PySpark 3.5", "decode", "PYSPARK_PYTHON", "`pyspark_`") if name not in section] == []


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


def test_no_message_says_see_the_docs() -> None:
    """What sends a reader to the documentation names the page."""
    sources = [(path, text) for path, text in texts() if str(path).startswith(PACKAGES)]

    assert sources
    assert not [path for path, text in sources if re.search(r"see the doc", unwrapped(text), re.IGNORECASE)]


def test_design_pages_have_numbers_of_their_own() -> None:
    """Pages are numbered over both packages without gaps, begin with their number, and citations of them resolve."""
    paths = [path for folder in ALL_DOCS for path in (folder / "design").glob("*.md")]
    pages = {path.stem: read(path) for path in paths}
    cited = {name for _, text in texts() for name in _DESIGN.findall(text)}

    assert sorted(int(path.name[:4]) for path in paths) == list(range(1, len(paths) + 1))
    assert all(text.startswith(f"# {name[:4]}: ") for name, text in pages.items())
    assert not [name for name in cited if name not in pages and name not in {page[:4] for page in pages}]


def targets(text: str) -> set[str]:
    """Return the targets of the lines `make …` of a text."""
    calls = re.findall(r"^make ((?:[a-z-]+ ?)+)", re.sub(r"[A-Z_]+=\S+ ", "", text), re.MULTILINE)
    return {target for call in calls for target in call.split()}


@DOCUMENTS
def test_make_targets_exist(path: Path) -> None:
    """Every `make …` that the documentation names is a target of the Makefile."""
    assert targets(code_of(read(path))) <= set(re.findall(r"^([a-z-]+):", read(ROOT / "Makefile"), re.MULTILINE))


def test_ci_runs_what_readme_says() -> None:
    """`.ci/run` runs each `make …` of README and no other; the demo is run by its own tests."""
    assert targets(code_of(read(README))) - {"demo"} == targets(read(ROOT / ".ci/run"))


def test_the_changelog_has_this_version() -> None:
    """The newest section that is not `Unreleased` is the version of the package, or none was released yet."""
    versions = re.findall(r"^## \[([^\]]+)\]", read(ROOT / "CHANGELOG.md"), re.MULTILINE)

    assert versions[0] == "Unreleased"
    assert versions[1:2] in ([], [ticdc_source.__version__])
