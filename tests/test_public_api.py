"""The public API: names that are imported late, and stay what they are."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import get_args, get_type_hints

import pytest

import ticdc_lakehouse
import ticdc_source
from tests.support.paths import ROOT
from ticdc_lakehouse.targets.followed_ddl import DestructiveDDL
from ticdc_source import developer_api
from ticdc_source.options.options import Options

# In a process of its own: first all modules of the package, then its public names.
_ALL_MODULES_FIRST = """
import importlib, pkgutil, ticdc_source
for module in pkgutil.walk_packages(ticdc_source.__path__, "ticdc_source."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(*(name for name in ticdc_source.__all__ if type(getattr(ticdc_source, name)).__name__ == "module"))
"""


@pytest.mark.parametrize("module", [ticdc_source, developer_api, ticdc_lakehouse])
def test_each_name_of_a_stub_is_imported_late(module: ModuleType) -> None:
    """Python imports each name that type checkers find in the stub, and no other."""
    stub = ast.parse(Path(str(module.__file__)).with_suffix(".pyi").read_text(encoding="utf-8"))
    listed = {one.name for node in stub.body if isinstance(node, ast.ImportFrom) for one in node.names}

    assert listed - {"errors"} == set(module.__all__) - {"__version__", "errors"}
    assert all(hasattr(module, name) for name in listed | set(module.__all__))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = module.no_such_name


def test_no_module_hides_a_public_name() -> None:
    """A public name stays what it is when every module of the package has been imported."""
    done = subprocess.run(
        [sys.executable, "-c", _ALL_MODULES_FIRST], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )

    assert done.stdout.strip() == ""


def test_a_policy_has_one_word() -> None:
    """`merge_into` knows the words of the option `onDestructiveDDL`, and `apply`; both begin with the same one."""
    option = get_type_hints(Options)["on_destructive_ddl"]
    argument = get_type_hints(ticdc_lakehouse.merge_into)["on_destructive_ddl"]
    default = inspect.signature(ticdc_lakehouse.merge_into).parameters["on_destructive_ddl"].default

    assert {*get_args(option), "apply"} == set(get_args(argument)) == {one.value for one in DestructiveDDL}
    assert default == Options.of({"kafka.bootstrap.servers": "b:1", "subscribe": "t"}).on_destructive_ddl
