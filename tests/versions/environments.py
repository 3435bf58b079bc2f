"""A virtual environment for each version of PySpark: pip creates it once, in a cache outside git."""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement

from tests.support.paths import PACKAGES, ROOT

# Spark starts Python anew for each source, plan and stream: without bytecode, each time is seconds of CPU.
_MADE_HOW = "with bytecode"


class PipError(RuntimeError):
    """An environment could not be created; the message is the output of pip or venv."""


def interpreter(pyspark: str, *extra: str) -> Path:
    """Return the Python of an environment with this PySpark, the dependencies of the project, and extra requirements.

    It has what PySpark needs too.

    The first call creates it. The project is not installed in it but found on PYTHONPATH, so that an environment stays
    valid when the code changes.
    """
    others = (text for text in extras()["spark"] if not text.startswith("pyspark"))
    return environment(f"pyspark-{pyspark}", [f"pyspark=={pyspark}", *others, *dependencies(), *extra])


def environment(name: str, requirements: Sequence[str]) -> Path:
    """Return the Python of an environment with these requirements and nothing else; the first call creates it."""
    cache = _cache_folder() / name
    cache.mkdir(parents=True, exist_ok=True)
    wanted = hashlib.sha256("\n".join([*requirements, _MADE_HOW]).encode()).hexdigest()[:12]
    folder = cache / f"python{sys.version_info.major}.{sys.version_info.minor}-{wanted}"
    python = folder / "bin" / "python"
    with _locked(cache / ".lock"):  # waits for another process that creates it
        if not python.exists():  # also if the Python that created it is gone
            _make(folder, requirements)
    return python


def dependencies() -> list[str]:
    return listed("dependencies")


def listed(name: str) -> list[str]:
    """Return the strings of a list in pyproject.toml, in which each name stands once (tomllib is Python 3.11's)."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.findall(rf"^{re.escape(name)} = \[(.*?)\](?:  #.*)?$", text, re.MULTILINE | re.DOTALL)
    if len(found) != 1:
        raise ValueError(f"pyproject.toml has {len(found)} lists with the name {name}")
    without_comments = re.sub(r"#.*", "", found[0])
    return re.findall(r'"([^"]+)"', without_comments)


def extras() -> dict[str, list[str]]:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = re.search(r"^\[project\.optional-dependencies\]\n(.*?)(?=^\[\w)", text, re.MULTILINE | re.DOTALL)
    names = re.findall(r"^([\w-]+) = \[", section[1], re.MULTILINE) if section else []
    return {name: listed(name) for name in names}


def lowest(requirements: Iterable[str]) -> list[str]:
    """Return the lowest version that each requirement allows, as `name==version`."""
    found = []
    for requirement in map(Requirement, requirements):
        versions = [one.version for one in requirement.specifier if one.operator in {">=", "=="}]
        if len(versions) != 1:
            raise ValueError(f"{requirement} has no lowest version: add `>=`")
        found.append(f"{requirement.name}=={versions[0]}")
    return found


class Done(NamedTuple):
    """A program that ended well: the JSON in its last line of output, and what it wrote to standard error."""

    report: dict[str, Any]
    stderr: str


def run_module(python: str | Path, folder: Path, seconds: float, module: str, *arguments: str) -> Done:
    """Run a module of the tests in an environment and a folder; fail if it does not end with 0."""
    done = subprocess.run(
        [str(python), "-m", module, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": PACKAGES},
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Done(json.loads(done.stdout.splitlines()[-1]), done.stderr)


def _cache_folder() -> Path:
    """`$TICDC_VENV_CACHE`, or the user's cache folder."""
    named = os.environ.get("TICDC_VENV_CACHE")
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "ticdc-source"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released when the file is closed, also if the process dies
        yield


def _make(folder: Path, requirements: Sequence[str]) -> None:
    for left_over in folder.parent.glob("*.part"):  # of a process that was killed: the lock is ours
        shutil.rmtree(left_over, ignore_errors=True)
    part = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", suffix=".part", dir=folder.parent))
    pip = [sys.executable, "-m", "pip", "--python", str(part / "bin" / "python")]
    try:
        _run([sys.executable, "-m", "venv", "--without-pip", str(part)])
        _run([*pip, "install", "--no-input", "--compile", "--progress-bar", "off", *requirements])
        part.chmod(0o755)  # mkdtemp sets 0700, and users may share a cache
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)  # nothing that is used in it contains its path
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise PipError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
