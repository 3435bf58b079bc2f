"""The tests that the tables of tests/spark/README.md and of both pages of guarantees name exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.paths import ROOT

CHECKLIST = "tests/spark/README.md"
PAGES = {CHECKLIST: 30, "docs/guarantees.md": 30, "lakehouse/docs/guarantees.md": 15}  # at least so many rows


def rows_of(page: str) -> list[tuple[str, str]]:
    lines = [line for line in (ROOT / page).read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [(row[0], row[-1]) for row in cells if row[-1] != "tests"]


ROWS = [row for page in PAGES for row in rows_of(page)]


@cache
def functions_of(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_each_row_names_tests_that_exist() -> None:
    """Every row of a table names tests that exist; in the checklist it may say why there is none yet."""
    checklist = rows_of(CHECKLIST)
    for what, held_by in ROWS:
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", held_by)

        assert [f"`{path}::{name}`" for path, name in named] == re.findall(r"`[^`]+`", held_by), what
        assert named or ((what, held_by) in checklist and held_by.startswith("not yet: ")), what
        for path, name in named:
            assert name.startswith("test_"), what
            assert name in functions_of(ROOT / path), f"{what}: {path} has no {name}"


@pytest.mark.parametrize("page", PAGES)
def test_the_rows_are_found(page: str) -> None:
    """The test above finds the rows of the tables: if their form changes, it does not pass for lack of rows."""
    assert len(rows_of(page)) >= PAGES[page]
    assert all("::test_" in held_by or held_by.startswith("not yet: ") for _, held_by in rows_of(page))
