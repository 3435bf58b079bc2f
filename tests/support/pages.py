"""The pages of the documentation, of both packages, with their blocks of code and anchors."""

import re
from pathlib import Path
from typing import NamedTuple

from tests.support.paths import ROOT
from website.generate_docs import DOCS, documents

README = ROOT / "README.md"

_BLOCK = re.compile(r"^(?:<!-- ([^\n]*?) -->\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


class Block(NamedTuple):
    """A block of code: its language, its text, the comment before it, and the output printed below it."""

    language: str
    text: str
    comment: str
    output: str | None


def blocks(path: Path) -> list[Block]:
    """Read the blocks of a page; a `text` block that follows one directly is its output."""
    text = path.read_text(encoding="utf-8")
    found: list[Block] = []
    end = -1
    for match in _BLOCK.finditer(text):
        comment, language, body = match.groups()
        if language == "text" and found and not text[end : match.start()].strip():
            found[-1] = found[-1]._replace(output=body)
        else:
            found.append(Block(language, body, comment or "", None))
        end = match.end()
    return found


def guides() -> list[Path]:
    """Return the pages for users: each README and the folders of pages, without the design notes."""
    return [
        path
        for path in documents()
        if path.name == "README.md" or (any(map(path.is_relative_to, DOCS)) and not design(path))
    ]


def design(path: Path) -> bool:
    return any(path.is_relative_to(folder / "design") for folder in DOCS)


def without_code(text: str) -> str:
    return _CODE.sub("", text)


def code_of(text: str) -> str:
    return "\n".join(code.strip("`") for code in _CODE.findall(text))


def anchors(path: Path) -> set[str]:
    text = _BLOCK.sub("", path.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}
