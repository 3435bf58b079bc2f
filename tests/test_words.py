"""Code and documentation use the words of docs/glossary.md, and none of those that it replaced."""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT

GLOSSARY = ROOT / "docs/glossary.md"
CODE = ROOT / "ticdc_source"

# Words of module and class names that need no entry in the glossary, by where a reader knows them from.
PLAIN: dict[str, frozenset[str]] = {
    "Spark": frozenset({"batch", "filter", "format", "reader", "schema", "source", "spark", "stream", "streaming"}),
    "Kafka": frozenset(
        {
            "assign",
            "broker",
            "client",
            "cluster",
            "group",
            "connection",
            "credential",
            "fetcher",
            "kafka",
            "offset",
            "partition",
            "range",
        }
        | {"subscribe", "topic", "aborted", "consumer", "log", "node", "timestamp", "transaction", "truncated"}
    ),
    "Arrow and SQL": frozenset(
        {
            "add",
            "binary",
            "create",
            "default",
            "drop",
            "field",
            "json",
            "mysql",
            "number",
            "rename",
            "row",
            "string",
            "type",
        }
        | {"like", "option", "set", "statement", "time", "variant"}
    ),
    "Python and programming": frozenset(
        {"api", "base", "context", "error", "memory", "model", "parser", "parsed", "pattern", "pool", "python", "run"}
        | {"secret", "setting", "token", "limit", "framing", "data", "receiver", "receiving", "sampler", "planner"}
        | {"load", "lookup", "task", "compatibility", "connect", "expectation", "future", "guard", "legacy"}
        | {"library", "network", "report"}
    ),
    "Names of products": frozenset(
        {"canal", "cdc", "debezium", "delta", "iceberg", "oauth", "open", "prometheu", "ti"}
    ),
    "English": frozenset(
        {
            "and",
            "at",
            "by",
            "cut",
            "decompress",
            "decompressed",
            "everywhere",
            "folded",
            "forget",
            "moment",
            "name",
            "new",
            "of",
            "out",
            "plain",
        }
        | {
            "decoded",
            "fact",
            "fetched",
            "planned",
            "read",
            "slicing",
            "unavailable",
            "unlimited",
            "unsupported",
        }
    ),
}

# Words that a reader would have to learn from us, and what to write instead.
BANNED: dict[str, str] = {
    "as yet": "yet, or so far",
    "bench": "layer, or benchmark",
    "door": "entry point",
    "doors": "entry points",
    "floor": "layer",
    "floors": "layers",
    "gathering": "coalesce",
    "house": "code",
    "is met as": "controls",
    "is of batch reads": "is supported only in batch reads",
    "knowledge": "read context",
    "likewise": "also, or the words again",
    "peek": "prefix match",
    "peeked": "prefix match",
    "peeking": "prefix match",
    "room": "space, or what fits",
    "rooms": "modules",
    "shape": "layout, type or format",
    "shapes": "layouts, types or formats",
    "skim": "read by a template",
    "skimmed": "read by a template",
    "spine": "pipeline",
    "stairs": "layer",
    "stencil": "template",
    "stencils": "template",
    "stray": "unknown column",
    "strays": "unknown column",
    "those of which": "plain words",
    "tray": "table events",
    "trays": "table events",
    "whence": "from where",
    "whom": "plain words",
    "workshop": "layer",
    "workshops": "layer",
}
# Where a banned word is right: what the text says around it, and why.
ALLOWED: dict[str, str] = {
    "make bench": "the name of a target, short for benchmark",
    "bench-quick": "the name of a target",
}


@cache
def source(path: Path) -> str:
    """Read a file."""
    return path.read_text(encoding="utf-8")


def code_files() -> list[Path]:
    """Return the modules of the package."""
    return sorted(CODE.rglob("*.py"))


def prose_files() -> list[Path]:
    """Return what the words hold for: the package, its documentation, and the pages beside README."""
    return [*code_files(), *sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]


def singular(word: str) -> str:
    """Return a word without its plural."""
    for ending, replacement in (("ies", "y"), ("sses", "ss"), ("ches", "ch"), ("xes", "x"), ("s", "")):
        if word.endswith(ending) and not word.endswith("ss"):
            return word.removesuffix(ending) + replacement
    return word


def words_of(name: str) -> set[str]:
    """Return the words of a name in snake case or camel case: lower case, singular."""
    parts = re.findall(r"[A-Z]+(?=[A-Z][a-z]|\b|_)|[A-Z]?[a-z0-9]+", name)
    return {singular(part.lower()) for part in parts}


def module_names() -> Iterator[str]:
    """Yield the name of each folder and module of the package."""
    for path in code_files():
        parts = path.relative_to(CODE).with_suffix("").parts
        yield from (part for part in parts if part != "__init__")


def public_classes(path: Path) -> Iterator[str]:
    """Yield the names of a module's public classes."""
    for node in ast.parse(source(path)).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def entries(text: str) -> list[str]:
    """Return the terms of a glossary: what is bold in it, `a, b` being two."""
    return [term for bold in re.findall(r"\*\*([^*]+)\*\*", text) for term in bold.split(", ")]


def code_of(text: str) -> list[str]:
    """Return what a glossary writes as code."""
    return re.findall(r"`([^`\n]+)`", text)


def missing(names: Mapping[str, str], text: str) -> list[str]:
    """Return the names, with where they are, that have a word which neither a glossary nor PLAIN has."""
    known = set().union(*PLAIN.values(), *(words_of(term) for term in entries(text)))
    return [f"{name} ({where}): {', '.join(sorted(words_of(name) - known))}" for name, where in names.items()
            if not words_of(name) <= known]  # fmt: skip


def named() -> dict[str, str]:
    """Return the names of all modules and public classes, with where they are."""
    names = dict.fromkeys(module_names(), "module")
    return names | {name: str(path.relative_to(ROOT)) for path in code_files() for name in public_classes(path)}


def found(banned: Mapping[str, str], path: Path, text: str) -> Iterator[str]:
    """Report banned words: whole words, in any case, also as parts of names."""
    spread = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text)
    for phrase in ALLOWED:
        spread = spread.replace(phrase, "")
    for number, line in enumerate(spread.splitlines(), 1):
        for word in re.findall(rf"(?i)(?<![a-z])(?:{'|'.join(banned)})(?![a-z])", line):
            yield f"{path}:{number}: {word}: write {banned[word.lower()]}"


def test_the_glossary_has_the_words_of_modules_and_classes() -> None:
    """Each word of a module's or a public class's name is in the glossary, or is plain for a reason."""
    unknown = missing(named(), source(GLOSSARY))

    assert not unknown


def test_the_glossary_has_no_code_that_is_gone() -> None:
    """What the glossary writes as code is in the code, or is a file of the repository."""
    code = "\n".join(map(source, code_files()))
    defined = set(re.findall(r"^(?:class )?([A-Z]\w+)\b(?=[(:]| =)", code, re.MULTILINE))
    names = set(code_of(source(GLOSSARY)))
    capital = {name for name in names if re.fullmatch(r"[A-Z]\w+", name)}

    assert len(capital) > 15
    assert not capital - defined
    assert not [name for name in names if name not in code and not (ROOT / name).exists() and not any(CODE.rglob(name))]


def test_the_glossary_has_no_term_that_nothing_uses() -> None:
    """Each term is used in the code or in the documentation, and each plain word in the name of a module or class."""
    text = " ".join("\n".join(source(path) for path in prose_files() if path != GLOSSARY).split()).lower()
    plain = set().union(*PLAIN.values())
    terms = entries(source(GLOSSARY))

    unused = [term for term in terms if not any(term.lower().replace(" ", joint) in text for joint in (" ", "_", ""))]
    assert not unused
    assert len(terms) == len(set(terms))
    used = set().union(*(words_of(name) for name in named()))
    assert sorted(plain - used) == []
    assert sorted(plain & {singular(term.lower()) for term in terms if " " not in term}) == []


def test_words_of_our_own_are_gone() -> None:
    """No banned word is left in the code or the documentation, and each exception is used."""
    assert not [line for path in prose_files() for line in found(BANNED, path.relative_to(ROOT), source(path))]
    text = "\n".join(map(source, prose_files()))
    assert not [phrase for phrase in ALLOWED if phrase not in text]


@pytest.mark.parametrize("line", ["# the Tray", "def lay_on_tray(x): ...", "class TrayReader: ...", "TRAY = 1"])
def test_the_check_of_words_sees(line: str) -> None:
    """A banned word is found in prose and in names of each form; a longer word that contains it is not."""
    assert list(found(BANNED, Path("x.py"), f"betray ashtrays\n{line}\n")) == [
        f"x.py:2: {re.findall('(?i)tray', line)[0]}: write table events"
    ]


def test_the_check_of_names_sees() -> None:
    """A name with a word that nothing explains is found."""
    assert missing({"ShelfReader": "x.py"}, "- **record**: one.") == ["ShelfReader (x.py): shelf"]
