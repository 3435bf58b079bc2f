"""The samples and tables of TiCDC's documentation, as tests/data/documented has them."""

import json
import re
from collections.abc import Mapping
from typing import Any

from tests.support.messages import Message, framed
from tests.support.paths import ROOT

FOLDER = ROOT / "tests" / "data" / "documented"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"\s*//.*$", re.MULTILINE)
_LEFT_OUT = re.compile(r"^\s*\.\.\.\n", re.MULTILINE)
_LAST_COMMA = re.compile(r",(\s*[}\]])")
_CODE = re.compile(r"`([^`]*)`")
_LOG = re.compile(r"\d+\. \[partition=(\d+)\] \[key=(\"\S+\")\] \[value=(\".*\")?\]")


class _Twice(dict[str, Any]):
    """A JSON object that keeps the first value of a member that a sample prints twice."""

    first: Mapping[str, Any] = {}


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = _Twice(members)
    found.first = dict(reversed(members))
    return found


def blocks(page: str, heading: str, language: str = "json") -> list[str]:
    """Return the blocks of code below a heading of a page."""
    text = (FOLDER / f"{page}.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = [body for name, body in _BLOCK.findall(section) if name == language]
    assert found, f"{page}: no {language} below {heading}"
    return found


def sample(page: str, heading: str, index: int = 0) -> dict[str, Any]:
    """Return a sample as JSON, without its comments and without the places where something is left out.

    Of a member that is printed twice, the last one counts.
    """
    text = _LEFT_OUT.sub("", _COMMENT.sub("", blocks(page, heading)[index]))
    found: dict[str, Any] = json.loads(_LAST_COMMA.sub(r"\1", text), object_pairs_hook=_object)
    return found


def first_of_twice(found: dict[str, Any]) -> dict[str, Any]:
    """Return a sample in which, of a member that is printed twice, the first one counts."""
    assert isinstance(found, _Twice)
    return dict(found.first)


def table(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the rows of the table below a heading of a page; an empty cell is ""."""
    text = (FOLDER / f"{page}.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    assert lines, f"{page}: no table below {heading}"
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def codes(cell: str) -> list[str]:
    """Return what a cell of a table has as code."""
    return _CODE.findall(cell)


def as_message(page: str, heading: str) -> Message:
    """Return a Kafka record whose key and value are two samples below a heading."""
    key, value = (block.encode() for block in blocks(page, heading))
    return key, value


def log() -> dict[int, list[Message]]:
    """Return the records of the log of the open protocol, framed, by topic partition."""
    found: dict[int, list[Message]] = {}
    for block in blocks("open-protocol", "Log", "text"):
        for line in block.splitlines():
            match = _LOG.fullmatch(line)
            assert match is not None, line
            key, value = (json.loads(text or '""').encode() for text in match.group(2, 3))
            record = ((1).to_bytes(8, "big") + framed(key), framed(value))
            found.setdefault(int(match[1]), []).append(record)
    return found
