"""Reads take the native path where it is installed, say once where it is not, and count which path read what."""

import ast
import inspect
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

from examples.data import read_messages
from tests.fixtures import CARGO
from tests.support.captured import Captured, make_options
from tests.support.paths import ROOT
from ticdc_source.errors import OptionError
from ticdc_source.kernels import native
from ticdc_source.pipeline.metrics import Counters
from ticdc_source.pipeline.read import read
from ticdc_source.pipeline.spec import ReadState, read_spec
from ticdc_source.planning import load

_MESSAGES = 300
_NO_BROKER = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "outputFormat": "event"}
_TWO_QUERIES = """
import sys
sys.modules["ticdc_source.kernels._native"] = None
from ticdc_source.planning.load import load_schema
from ticdc_source.errors import once_per_query
for _ in range(2):
    with once_per_query(set()):
        load_schema({options})
"""


@pytest.fixture
def nothing_native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "native", None)
    monkeypatch.setattr(native, "_missing", "not today")


def counted(native_code: str) -> Counters:
    orders = [(key, value) for _, key, value in read_messages("canal-json") if value and b'"table":"orders"' in value]
    captured = Captured.of(*orders[1 : _MESSAGES + 1])  # behind its CREATE TABLE
    options = make_options(nativeCode=native_code)
    schema = captured.schema()
    spec = read_spec(schema, options, captured.context(schema, options))
    state = ReadState.of(spec)
    list(read(captured.fetch(captured.ranges()[0]), spec, state))
    return state.counters


def test_the_native_path_is_here(native_path: ModuleType) -> None:
    """Where there is cargo, tests run with the native path; without it, they skip with the reason."""
    assert native_path is native.native
    assert native.why_general("auto") is native.why_general("require") is None


@pytest.mark.parametrize(
    ("native_code", "times"), [("auto", 1), pytest.param("off", 0, marks=pytest.mark.slow("a process of its own"))]
)
def test_a_process_says_once_that_it_takes_the_general_path(native_code: str, times: int) -> None:
    """Of two queries in a process without the native path, the first says so, unless it was turned off."""
    program = _TWO_QUERIES.replace("{options}", repr({**_NO_BROKER, "nativeCode": native_code}))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stderr.count("Reads take the general path") == times, done.stderr
    assert done.stderr.count("`make wheel`") == times


@pytest.mark.usefixtures("nothing_native")
def test_a_required_native_path_is_missed_by_the_driver_and_by_workers() -> None:
    """With nativeCode=require, load() and a worker's read fail without the native path, and say why and where."""
    with pytest.raises(OptionError, match=r"nativeCode=require, but .*python.* has no native path: not today"):
        load.load_schema({**_NO_BROKER, "nativeCode": "require"})
    with pytest.raises(OptionError, match="Set nativeCode=auto, or run `make wheel`"):
        counted("require")


def test_all_is_counted_by_the_path_that_read_it() -> None:
    """With nativeCode=off the general path reads all rows; otherwise the native path takes part if it is there."""
    off, auto = counted("off"), counted("auto")

    assert off.native == 0
    assert off.general == auto.native + auto.general == off.rows > 0
    assert bool(auto.native) == (native.native is not None)


@pytest.fixture
def built_from(native_path: ModuleType, tmp_path: Path) -> Path:
    for name in native_path.CONTRACT:
        copy = tmp_path / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy)
    return tmp_path


@pytest.mark.parametrize("file", ["contract.rs", "contract.py", "_native.pyi"])
def test_an_edited_contract_is_noticed(
    file: str, built_from: Path, native_path: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module is taken while the files that it was built from are there as they were, and not with another one."""
    (edited,) = built_from.rglob(file)
    monkeypatch.setattr(native, "_PROJECT", built_from)
    taken, _ = native._load()

    edited.write_text(edited.read_text() + "\n")
    refused, why = native._load()

    assert taken is native_path
    assert refused is None
    assert why is not None
    assert "was built from other sources: run `make native`" in why


def test_the_stub_is_what_the_module_has(native_path: ModuleType) -> None:
    """`_native.pyi` names each function, class, parameter and attribute that the module has, and no other."""
    stub = ast.parse((ROOT / "ticdc_source" / "kernels" / "_native.pyi").read_text())
    stated = {node.name: _stated(node) for node in stub.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}

    public = {name: part for name, part in vars(native_path).items() if not name.startswith("_")}
    assert isinstance(public.pop("CONTRACT"), dict)
    assert stated == {name: _built(part) for name, part in public.items()}


def _stated(node: ast.ClassDef | ast.FunctionDef) -> object:
    if isinstance(node, ast.FunctionDef):
        return [argument.arg for argument in node.args.args if argument.arg != "self"]
    attributes = {ast.unparse(part.target): None for part in node.body if isinstance(part, ast.AnnAssign)}
    return attributes | {part.name: _stated(part) for part in node.body if isinstance(part, ast.FunctionDef)}


def _built(part: object) -> object:
    if not isinstance(part, type):
        assert callable(part)
        return [name for name in inspect.signature(part).parameters if name != "self"]
    members: dict[str, object] = {
        name: None if inspect.isdatadescriptor(member) else _built(member)
        for name, member in vars(part).items()
        if name not in {"__doc__", "__module__", "__new__"}
    }
    return members if "__new__" not in vars(part) else members | {"__init__": list(inspect.signature(part).parameters)}


@pytest.mark.slow("compiles the crate: a minute and a half the first time")
def test_the_crate() -> None:
    """The crate's own tests pass."""
    if CARGO is None:
        pytest.skip("there is no cargo: the native path cannot be tested")
    libraries = os.pathsep.join(filter(None, [sysconfig.get_config_var("LIBDIR"), os.environ.get("LD_LIBRARY_PATH")]))
    done = subprocess.run(
        [CARGO, "test", "--quiet", "--locked", "--no-default-features"],
        cwd=ROOT / "native",
        env={**os.environ, "PYO3_PYTHON": sys.executable, "LD_LIBRARY_PATH": libraries},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
