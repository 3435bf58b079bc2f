"""Collect wheels and jars into a folder, for machines without a network.

pip builds or fetches the wheels of ticdc-source, of its dependencies and of this PySpark, for this Python and this
platform. With `--format`, Spark also fetches the jars of Delta or Iceberg, and MySQL's driver, with all that they
depend on. The command ends with the lines that install and use what is in the folder; `install.txt` has them too.
"""

from __future__ import annotations

import argparse
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from ticdc_lakehouse.errors import TargetError
from ticdc_source.developer_api import (
    ParseError,
    argument,
    counted,
    errors,
    file_path,
    loads,
    one_of,
    output,
    visible,
    words,
)
from ticdc_source.errors import OptionError

__all__ = ["SUMMARY", "add_arguments", "own_requirement", "run"]

SUMMARY = "wheels and jars in a folder, for machines without a network"
_PACKAGE = "ticdc-source"
_WHEELS, _JARS, _INSTALL_FILE = "wheels", "jars", "install.txt"
_COORDINATES = re.compile(r"[\w.-]+(:[\w.-]+){2}", re.ASCII)
_EXTRA = re.compile(r"[a-z]+(-[a-z]+)*")
_MEGABYTE = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "--to", type=argument(file_path), required=True, metavar="FOLDER", help="a new folder, or an empty one"
    )
    parser.add_argument(
        "--format",
        type=argument(one_of("delta", "iceberg")),
        metavar="FORMAT",
        help="delta or iceberg; without it, only wheels are collected",
    )
    parser.add_argument(
        "--extra",
        type=argument(_matching(_EXTRA, "the name of an extra, such as avro")),
        action="append",
        default=[],
        metavar="NAME",
        help="an extra of the package, such as avro; any number",
    )
    parser.add_argument(
        "--package",
        type=argument(_matching(_COORDINATES, "GROUP:ARTIFACT:VERSION")),
        action="append",
        default=[],
        metavar="GROUP:ARTIFACT:VERSION",
        help="another package of Maven, such as org.apache.hadoop:hadoop-aws:3.5.0; any number; needs --format",
    )
    parser.add_argument(
        "--wheel",
        type=argument(file_path),
        metavar="FILE",
        help="where to get ticdc-source: a wheel or a clone, by default where it was installed from",
    )


def _matching(pattern: re.Pattern[str], expected: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not pattern.fullmatch(words(text)):
            msg = f"expected {expected}"
            raise ParseError(msg)
        return text

    return parse


def run(arguments: argparse.Namespace) -> int:
    """Collect, and print what is there and how to use it."""
    folder: Path = arguments.to
    if arguments.package and arguments.format is None:
        msg = "argument --package: it needs --format"
        raise OptionError(msg)
    requirement = own_requirement(arguments.extra, arguments.wheel)
    try:
        pyspark = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        msg = "PySpark was not installed by pip here. Install it: its version selects the wheels and the jars"
        raise OptionError(msg) from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_empty = not any(folder.iterdir())
    except OSError as error:
        msg = f"argument --to: {folder} cannot be created: {error.strerror}"
        raise OptionError(msg) from None
    if not is_empty:  # the lines for the other machine take all jars of the folder
        msg = f"argument --to: {folder} is not empty. Name a new folder, or delete it first"
        raise OptionError(msg)
    try:
        _collect(folder, requirement, pyspark, arguments)
    except OSError as error:
        msg = f"{folder} cannot be written: {error.strerror}"
        raise TargetError(msg) from None
    return 0


def _collect(folder: Path, requirement: str, pyspark: str, arguments: argparse.Namespace) -> None:
    # Jars come first: they take less time, and an engine without a release for this PySpark fails here.
    if arguments.format is not None:
        from ticdc_lakehouse.syncs.engine_jars import fetch_jars  # noqa: PLC0415 (it imports pyspark)

        fetch_jars(arguments.format, folder / _JARS, arguments.package)
    requirements = [requirement, f"pyspark=={pyspark}"]
    _pip("wheel", "--no-input", "--progress-bar", "off", "--wheel-dir", str(folder / _WHEELS), *requirements)
    text = commands(arguments.extra, pyspark, jars=arguments.format is not None)
    (folder / _INSTALL_FILE).write_text(text, encoding="utf-8")
    _show(folder, text)


def own_requirement(extras: Sequence[str], wheel: Path | None) -> str:
    """Return a requirement of this package for pip.

    Args:
        extras: the extras that are wanted.
        wheel: a wheel or a clone. None stands for the source that pip has recorded (PEP 610), or else for this version
            in the index.

    Raises:
        OptionError: the wheel is not there; or, without one, an extra is unknown, or pip did not install the package.
    """
    name = _named(extras)
    if wheel is not None:
        if not wheel.exists():
            msg = f"argument --wheel: {wheel} is not there"
            raise OptionError(msg)
        return f"{name} @ {wheel.resolve().as_uri()}"
    try:
        package = metadata.distribution(_PACKAGE)
    except metadata.PackageNotFoundError:
        msg = f"{_PACKAGE} is not installed by pip here: --wheel names its wheel or its clone"
        raise OptionError(msg) from None
    known = package.metadata.get_all("Provides-Extra") or []
    unknown = sorted(set(extras) - set(known))
    if unknown:
        msg = f"argument --extra: there is no {', '.join(unknown)}; there are {', '.join(sorted(known))}"
        raise OptionError(msg)
    direct_url = package.read_text("direct_url.json")
    return f"{name}=={package.version}" if direct_url is None else f"{name} @ {_url(loads(direct_url))}"


def _url(direct_url: Mapping[str, object]) -> str:
    """Return the URL that pip takes, from what it has recorded of an installation (PEP 610)."""
    url, repository = str(direct_url["url"]), direct_url.get("vcs_info")
    if isinstance(repository, dict):
        return f"{repository['vcs']}+{url}@{repository['commit_id']}"
    return url


def _named(extras: Sequence[str]) -> str:
    return f"{_PACKAGE}[{','.join(sorted({'spark', *extras}))}]"


def _pip(*arguments: str) -> None:
    """Run pip; what it says goes to stderr.

    Raises:
        TargetError: it fails.
    """
    screen, pip = errors(), [sys.executable, "-m", "pip", *arguments]
    with subprocess.Popen(pip, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            screen.print(visible(line.rstrip()))
    if process.returncode != 0:
        msg = f"pip {arguments[0]} ended with {process.returncode}; the lines above say why"
        raise TargetError(msg)


def commands(extras: Sequence[str], pyspark: str, *, jars: bool) -> str:
    """Return the shell lines to run in the folder on the other machine."""
    python = ".".join(map(str, sys.version_info[:2]))
    lines = [
        f"# On a machine with {platform.system()} on {platform.machine()} and Python {python}, in this folder:",
        f"python{python} -m venv /opt/ticdc && . /opt/ticdc/bin/activate",
        f"pip install --no-index --find-links {_WHEELS} {shlex.quote(_named(extras))} pyspark=={pyspark}",
    ]
    if jars:
        lines += [
            "",
            "# A sync: Spark takes the jars, and fetches none.",
            f"PYSPARK_SUBMIT_ARGS=\"--jars '$PWD/{_JARS}/*.jar' pyspark-shell\" ticdc-lakehouse sync sync.toml",
            "",
            "# On a cluster:",
            f'spark-submit --jars "$PWD/{_JARS}/*.jar" "$(ticdc-lakehouse sync --script)" sync.toml',
        ]
    return "\n".join(lines) + "\n"


def _show(folder: Path, text: str) -> None:
    screen = output()
    for name in (_WHEELS, _JARS):
        files = sorted((folder / name).glob("*.*"))
        if files:
            size = sum(file.stat().st_size for file in files) / _MEGABYTE
            screen.print((visible(str(folder / name)), "bold"), f": {counted(len(files), 'file')}, {size:,.0f} MB")
            for file in files:
                screen.print(f"  {visible(file.name)}")
    screen.print()
    screen.print(text, end="")
