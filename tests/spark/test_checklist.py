"""The tests that the checklist in README.md names exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT

README = Path(__file__).with_name("README.md")
ROWS = re.findall(r"(?m)^\| (?!what )([^|]+) \| ([^|]+) \|$", README.read_text(encoding="utf-8"))


@cache
def functions_of(path: Path) -> frozenset[str]:
    """Return the names of a file's functions and methods."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize(("what", "held_by"), ROWS)
def test_each_row_names_tests_that_exist(what: str, held_by: str) -> None:
    """Every row of the checklist names tests that exist, or says why there is none yet."""
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", held_by)

    assert [f"`{path}::{name}`" for path, name in named] == re.findall(r"`[^`]+`", held_by), what
    assert named or held_by.startswith("not yet: "), what
    for path, name in named:
        assert name.startswith("test_"), what
        assert name in functions_of(ROOT / path), f"{what}: {path} has no {name}"


def test_the_checklist_is_found() -> None:
    """The tests above find the rows of the table: if its form changes, they do not pass for lack of rows."""
    assert len(ROWS) == README.read_text(encoding="utf-8").count("\n| ") - 1
    assert len(ROWS) > 30
