"""The documentation is true: its tables are the code's, and its links and citations lead somewhere."""

import json
import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from urllib.parse import unquote

import pytest

import ticdc_source
from tests.conftest import ROOT
from tests.generate_docs import PARTS, documents, generated, parts_of
from tests.support.losses import LOSSES, MISSING, Lost
from tests.support.pages import README, anchors, blocks, design, without_code
from tests.versions.environments import extras
from ticdc_source.options.options import OPTIONS
from ticdc_source.protocols import PROTOCOLS

OPTIONS_PAGE = ROOT / "docs/reference/options.md"
LOSSES_PAGE = ROOT / "docs/protocols/index.md"
DOCUMENTS = pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")

WIRE = ROOT / "docs" / "wire.md"
DESIGN = ROOT / "docs" / "design"
_FACT = re.compile(r"^- \*\*(\d+)\.\*\* ", re.MULTILINE)
_NUMBERS = r"items? (\d+(?:(?:, | and | to )\d+)*)"
_CITATION = re.compile(rf"docs/wire\.md(?:, {_NUMBERS})?")
_PAGE = re.compile(r"(?<![\w/.-])((?:[\w.-]+/)*[\w.-]+\.md)\b")
_DESIGN = re.compile(r"\bdesign/(\d{4})([\w-]*)")
_URL = re.compile(r"[a-z]+://\S+")

# Where the project's own texts are.
FOLDERS = ("ticdc_source", "pyspark_ticdc", "tests", "examples", "benchmarks", "docs")
SUFFIXES = (".py", ".md", ".case")


def rows(table: str) -> Iterator[list[str]]:
    """Yield the cells of a Markdown table's lines."""
    for line in table.splitlines():
        yield [cell.strip() for cell in line.strip().strip("|").split("|")]


@DOCUMENTS
def test_generated_parts_are_what_the_code_generates(path: Path) -> None:
    """After a change of a table, `make docs` has been run."""
    text = path.read_text(encoding="utf-8")

    assert generated(text) == text


def test_every_generated_part_stands_in_one_place() -> None:
    """Options, metadata columns, types, conversions, losses and the types of each protocol each have their table."""
    assert sorted(part for path in documents() for part in parts_of(path.read_text(encoding="utf-8"))) == sorted(PARTS)


def test_every_protocol_has_its_page() -> None:
    """Each protocol that is read has a page with its types and its losses; README and the overview link it."""
    readme, overview = README.read_text(encoding="utf-8"), LOSSES_PAGE.read_text(encoding="utf-8")

    for protocol in PROTOCOLS:
        page = ROOT / "docs" / "protocols" / f"{protocol}.md"
        name = protocol.replace("-", "_")
        assert {f"{name}_losses", f"{name}_types"} <= set(parts_of(page.read_text(encoding="utf-8")))
        assert f"(docs/protocols/{protocol}.md)" in readme
        assert f"({protocol}.md)" in overview


def test_every_wire_says_how_it_is_written() -> None:
    """The pages of the protocols say of each type what it is in a message: `Wire.written`."""
    assert all(wire.written for decoder in PROTOCOLS.values() for wire in decoder.kernels.values())


@pytest.mark.parametrize(
    "marks", ["<!-- end -->", "<!-- generated: options -->", "<!-- generated: opinions --> <!-- end -->"]
)
def test_a_part_that_cannot_be_generated_is_an_error(marks: str) -> None:
    """A fence that is not closed, or a name nobody knows, does not pass as up to date."""
    with pytest.raises(ValueError, match=r"do not come in pairs|nothing generates opinions"):
        generated(marks)


@pytest.mark.parametrize("part", PARTS)
def test_a_generated_part_is_a_table(part: str) -> None:
    """Every line of it has as many cells as the head, and no type name can be taken for a tag."""
    lines = list(rows("\n".join(line for line in PARTS[part]().splitlines() if line.startswith("|"))))

    assert len(lines) > 2
    assert {len(line) for line in lines} == {len(lines[0])}
    assert "<" not in without_code(PARTS[part]())


def test_every_option_is_documented() -> None:
    """The reference names each option with its meaning."""
    text = OPTIONS_PAGE.read_text(encoding="utf-8")

    for option in OPTIONS.values():
        assert f"| `{option.name}` |" in text
        assert option.meaning in text


def test_every_extra_is_documented() -> None:
    """The page about installing names each extra of the package."""
    table = (ROOT / "docs/guides/install.md").read_text(encoding="utf-8").partition("## Optional packages")[2]

    assert not [name for name in extras() if f"`{name}`" not in table]


def test_every_loss_is_documented() -> None:
    """What the tests excuse as lost is told to users."""
    text = LOSSES_PAGE.read_text(encoding="utf-8")

    lost: list[Lost] = [*LOSSES, *MISSING]

    assert all(loss.what in text for loss in lost)


@DOCUMENTS
def test_links_lead_somewhere(path: Path) -> None:
    """A link to a file of the project, or to a heading, has a target."""
    for link in _LINK.findall(without_code(path.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = unquote(link).partition("#")
        target = path.parent / name if name else path

        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_in_the_navigation() -> None:
    """`nav` of mkdocs.yml has each page of docs/ once; the design notes come by themselves."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r"- (?:[^:\n]+: )?(?!repository/)(\S+\.md)$", text, re.MULTILINE)
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md") if not design(path)}

    assert sorted(listed) == sorted(pages)


def texts() -> dict[Path, str]:
    """Read the source and documentation files of the project, except this one, by their path below its root."""
    found = [path for folder in FOLDERS for suffix in SUFFIXES for path in (ROOT / folder).rglob(f"*{suffix}")]
    found += [*ROOT.glob("*.md"), *ROOT.glob("*.toml"), ROOT / "Makefile", ROOT / ".ci" / "run"]
    own = Path(__file__).resolve()
    return {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in sorted(found) if path != own}


def unwrapped(text: str) -> str:
    """Return a text without its line breaks, and without the signs with which lines of a comment begin."""
    return re.sub(r"\s*\n\s*(?:# ?)?", " ", text)


def numbers(listed: str) -> set[int]:
    """Return the numbers of `25 and 37`, `96, 97` or `58 to 67`; a range has all between its ends."""
    found: set[int] = set()
    for part in re.split(", | and ", listed):
        first, *last = (int(number) for number in part.split(" to "))
        found |= set(range(first, (last or [first])[0] + 1))
    return found


def unresolved(sources: Mapping[Path, str], facts: AbstractSet[int]) -> list[str]:
    """Return what is wrong with citations of docs/wire.md: no item, or an item that is not there."""
    wrong = []
    for path, text in sources.items():
        for match in _CITATION.finditer(unwrapped(text)):
            if match[1] is None and path.suffix == ".py":
                wrong.append(f"{path} cites docs/wire.md without an item")
            elif match[1] is not None and not numbers(match[1]) <= facts:
                wrong.append(f"{path}: {match[0]} is not there")
    return wrong


def missing_pages(sources: Mapping[Path, str]) -> list[str]:
    """Return the Markdown pages that texts name and that are not in the repository."""
    return [
        f"{path} names {name}"
        for path, text in sources.items()
        for name in sorted(set(_PAGE.findall(_URL.sub("", text))))
        if not (ROOT / name).exists() and not (ROOT / path.parent / name).exists()
    ]


def facts_of(text: str) -> list[int]:
    """Return the numbers of the items of docs/wire.md, in the order of the page."""
    return [int(number) for number in _FACT.findall(text)]


def test_citations_of_the_wire_resolve() -> None:
    """Each cited item is an item of docs/wire.md, whose numbers are unique and have no gap."""
    text = WIRE.read_text(encoding="utf-8")
    facts = facts_of(text)
    within = set().union(*(numbers(listed) for listed in re.findall(_NUMBERS, unwrapped(text))))

    assert sorted(facts) == list(range(1, len(facts) + 1))
    assert within <= set(facts)
    assert not unresolved(texts(), set(facts))


def test_the_check_of_citations_sees() -> None:
    """An item that is not there, a range that ends beyond the last one, and a citation without an item are found."""
    lines = [
        "(docs/wire.md, item 900)",
        "# docs/wire.md, items 29 and",
        "# 901. docs/wire.md,",
        "    # items 1 to 902; docs/wire.md",
    ]

    assert unresolved({Path("x.py"): "\n".join(lines)}, set(range(1, 111))) == [
        "x.py: docs/wire.md, item 900 is not there",
        "x.py: docs/wire.md, items 29 and 901 is not there",
        "x.py: docs/wire.md, items 1 to 902 is not there",
        "x.py cites docs/wire.md without an item",
    ]


def test_no_text_names_a_page_that_is_not_there() -> None:
    """A Markdown page that code, tests or documentation name is in the repository."""
    assert not missing_pages(texts())
    assert missing_pages({Path("x.py"): "see design.md and README.md"}) == ["x.py names design.md"]


def test_design_pages_have_numbers_of_their_own() -> None:
    """Pages are numbered from 1 without gaps, begin with their number, and citations of them resolve."""
    pages = {path.name: path.read_text(encoding="utf-8") for path in DESIGN.glob("*.md")}

    assert [int(name[:4]) for name in sorted(pages)] == list(range(1, len(pages) + 1))
    assert all(text.startswith(f"# {name[:4]}: ") for name, text in pages.items())
    for path, text in texts().items():
        for number, rest in _DESIGN.findall(text):
            named = [name for name in pages if name.startswith(number)]
            assert named, f"{path} cites design/{number}"
            assert not rest or f"{number}{rest}.md" in named, f"{path} cites design/{number}{rest}"


def tree_of(text: str) -> tuple[set[str], set[str]]:
    """Return the files of the first tree in a text, and the files and folders that it marks as `(to come)`."""
    match = re.search(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert match is not None
    folders: list[str] = []
    there, to_come = set(), set()
    for line in match[1].splitlines():
        name, _, about = line.strip().partition(" ")
        del folders[(len(line) - len(line.lstrip())) // 2 :]
        path = "".join([*folders, name])
        if about.strip().startswith("(to come)"):
            to_come.add(path)
        elif name.endswith("/"):
            folders.append(name)
        else:
            there.add(path)
    return there, to_come


def test_the_tree_has_every_file() -> None:
    """CONTRIBUTING's tree has each module of the package and no other, and what is to come has not come yet."""
    there, to_come = tree_of((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "ticdc_source").rglob("*.py")}

    assert sorted(modules - there) == sorted(path for path in modules - there if path.endswith("__init__.py"))
    assert sorted(there - modules) == []
    assert not [path for path in to_come if (ROOT / path).exists()]


@DOCUMENTS
def test_python_files_that_pages_name_exist(path: Path) -> None:
    """A Python file in backticks is in the repository: below its root, below the package, or by its name alone."""
    text = path.read_text(encoding="utf-8")
    named = {name for code in re.findall(r"`([^`\n]+)`", text) for name in re.findall(r"[\w./-]+\.py\b", code)}

    there = [*(ROOT / "ticdc_source").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    assert not [
        name
        for name in named
        if not (ROOT / name).exists() and not any(str(file).endswith(f"/{name}") for file in there)
    ]


@DOCUMENTS
def test_examples_compile(path: Path) -> None:
    """Blocks of Python are Python, and blocks of JSON are JSON."""
    for block in blocks(path):
        if block.language == "python":
            compile(block.text, str(path), "exec")
        elif block.language == "json":
            json.loads(block.text)


@DOCUMENTS
def test_make_targets_exist(path: Path) -> None:
    """Every `make …` that the documentation names is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = re.findall(r"(?:^|`)make (?:[A-Z_]+=\S+ )*([a-z-]+)", path.read_text(encoding="utf-8"), re.MULTILINE)

    assert set(named) <= targets


def test_the_changelog_has_this_version() -> None:
    """The newest section that is not `Unreleased` is the version of the package, or none was released yet."""
    versions = re.findall(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)

    assert versions[0] == "Unreleased"
    assert versions[1:2] in ([], [ticdc_source.__version__])
