"""`pip` makes a wheel with the native path where there is cargo, and a pure one otherwise; both read the same rows."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pyarrow import feather

from tests.conftest import CARGO, ROOT
from tests.support.read_captured import tables

pytestmark = pytest.mark.slow("builds wheels")

MODULE = "ticdc_source/_native.abi3.so"


def without_cargo() -> dict[str, str]:
    """Return this environment, with no cargo to find."""
    kept = {name: text for name, text in os.environ.items() if name not in {"CARGO", "CARGO_HOME"}}
    folders = [folder for folder in os.environ["PATH"].split(os.pathsep) if not (Path(folder) / "cargo").exists()]
    return {**kept, "PATH": os.pathsep.join(folders)}


def run(command: list[str], environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program."""
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def pip_wheel(folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Let pip build the wheel of this clone into a folder."""
    command = [sys.executable, "-m", "pip", "wheel", "--verbose", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    return run(command, environment, folder)


def wheel_of(folder: Path, environment: dict[str, str]) -> tuple[Path, str]:
    """Build the wheel; return it, and pip's output."""
    done = pip_wheel(folder, environment)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel, done.stdout + done.stderr


def read_with(wheel: Path, native_code: str, folder: Path) -> tuple[dict[str, Any], str]:
    """Install a wheel beside the dependencies of this Python, and read captured messages with it.

    Returns:
        The program's report, and what it wrote to standard error. The rows are in the folder.
    """
    venv = folder / "venv"
    python = venv / "bin" / "python"
    inner = Path(sysconfig.get_path("purelib", vars={"base": str(venv)}))
    for command in (
        [sys.executable, "-m", "venv", "--without-pip", str(venv)],
        [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", str(wheel)],
    ):
        done = run(command, dict(os.environ), folder)
        assert done.returncode == 0, done.stdout + done.stderr
    # The other packages of this environment, behind those of its own. An editable install there is not seen.
    (inner / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    for name in ("tests", "examples"):  # and nothing else of this clone
        (folder / name).symlink_to(ROOT / name)
    read = [str(python), "-m", "tests.support.read_captured", str(folder), native_code]
    done = run(read, {**os.environ, "PYTHONPATH": str(folder)}, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["package"].startswith(str(inner))
    return report, done.stderr


def assert_same_rows(folder: Path) -> None:
    """Compare the rows that another environment has written with those that this process reads."""
    there = {path.stem: feather.read_table(path) for path in folder.glob("*.arrow")}
    here = dict(tables("auto"))
    assert there.keys() == here.keys()
    assert len(here) > 10
    assert [name for name in here if not here[name].equals(there[name])] == []


def test_without_cargo_the_wheel_is_pure_and_reads_the_same_rows(tmp_path: Path) -> None:
    """Where no cargo is found, pip says so in a line, the wheel is pure, reads say so once and return the same rows."""
    wheel, output = wheel_of(tmp_path, without_cargo())

    assert wheel.name.endswith("-py3-none-any.whl")
    assert MODULE not in zipfile.ZipFile(wheel).namelist()
    assert len(re.findall("^.*Without the native path: there is no cargo on the PATH.*$", output, re.MULTILINE)) == 1
    report, stderr = read_with(wheel, "auto", tmp_path)
    assert report["native"] is False
    assert stderr.count("Reads take the general path") == 1, stderr
    assert "No module named 'ticdc_source._native'" in stderr
    assert_same_rows(tmp_path)


def test_with_cargo_the_wheel_has_the_native_path(tmp_path: Path) -> None:
    """Where cargo is, the wheel is for this platform and all Pythons from 3.10, and reads the same rows natively."""
    if CARGO is None:
        pytest.skip("there is no cargo: a wheel with the native path cannot be built")
    wheel, _ = wheel_of(tmp_path, {**os.environ, "TICDC_BUILD_NATIVE": "1"})

    assert re.fullmatch(
        r"ticdc_source-[\d.]+-cp310-abi3-(many|musl)?linux\w+\.whl|.*-cp310-abi3-macosx\w+\.whl", wheel.name
    )
    with zipfile.ZipFile(wheel) as packed:
        assert {name for name in packed.namelist() if "_native" in name} == {MODULE, "ticdc_source/_native.pyi"}
        (about,) = (name for name in packed.namelist() if name.endswith("/WHEEL"))
        assert "Root-Is-Purelib: false" in packed.read(about).decode()
    report, stderr = read_with(wheel, "require", tmp_path)
    assert report["native"] is True
    assert "general path" not in stderr
    assert_same_rows(tmp_path)


def test_a_failed_build_makes_a_pure_wheel(tmp_path: Path) -> None:
    """If cargo fails, the wheel is pure, and pip's output says what failed."""
    wheel, output = wheel_of(tmp_path, {**os.environ, "CARGO": "false"})

    assert wheel.name.endswith("-py3-none-any.whl")
    assert "Without the native path: `false build --release` in native/ ended with 1" in output


def test_the_variable_decides(tmp_path: Path) -> None:
    """TICDC_BUILD_NATIVE=0 makes a pure wheel in any case, 1 fails without cargo, and another value is refused."""
    pure, _ = wheel_of(tmp_path, {**os.environ, "TICDC_BUILD_NATIVE": "0"})
    native = pip_wheel(tmp_path, {**without_cargo(), "TICDC_BUILD_NATIVE": "1"})
    other = pip_wheel(tmp_path, {**os.environ, "TICDC_BUILD_NATIVE": "yes"})

    assert pure.name.endswith("-py3-none-any.whl")
    assert native.returncode != 0
    assert "there is no cargo on the PATH" in native.stdout + native.stderr
    assert other.returncode != 0
    assert "TICDC_BUILD_NATIVE is 'yes'" in other.stdout + other.stderr
