"""Collect wheels and jars into a folder, for machines without a network.

pip builds or fetches the wheels of ticdc-source, of its dependencies and of this PySpark, for this Python and this
platform. With `--format`, Spark also fetches the jars of Delta or Iceberg, and MySQL's driver, with all that they
depend on. The command ends with the lines that install and use what is in the folder; `install.txt` has them too.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from ticdc_source.cli.arguments import argument, file_path, words
from ticdc_source.cli.screen import errors, output, plain
from ticdc_source.errors import OptionError, TargetError, counted
from ticdc_source.options.parsers import ParseError, one_of

__all__ = ["SUMMARY", "add_arguments", "commands", "own_requirement", "run"]

SUMMARY = "wheels and jars in a folder, for machines without a network"
_PACKAGE = "ticdc-source"
_WHEELS, _JARS, _COMMANDS = "wheels", "jars", "install.txt"
_COORDINATES = re.compile(r"[\w.-]+(:[\w.-]+){2}", re.ASCII)
_EXTRA = re.compile(r"[a-z]+(-[a-z]+)*")
_MEGABYTE = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "--to", type=argument(file_path), required=True, metavar="FOLDER", help="the folder; it is created"
    )
    parser.add_argument(
        "--format",
        type=argument(one_of("delta", "iceberg")),
        metavar="FORMAT",
        help="delta or iceberg; without it, only wheels are collected",
    )
    parser.add_argument(
        "--extra",
        type=argument(_extra),
        action="append",
        default=[],
        metavar="NAME",
        help="an extra of the package, such as avro; any number",
    )
    parser.add_argument(
        "--package",
        type=argument(_coordinates),
        action="append",
        default=[],
        metavar="GROUP:ARTIFACT:VERSION",
        help="another package of Maven, such as org.apache.hadoop:hadoop-aws:3.5.0; any number; needs --format",
    )
    parser.add_argument(
        "--wheel",
        type=argument(file_path),
        metavar="FILE",
        help="the wheel or the clone of ticdc-source itself, by default from where it was installed",
    )


def _extra(text: str) -> str:
    if not _EXTRA.fullmatch(words(text)):
        msg = "expected the name of an extra, such as avro"
        raise ParseError(msg)
    return text


def _coordinates(text: str) -> str:
    if not _COORDINATES.fullmatch(words(text)):
        msg = "expected GROUP:ARTIFACT:VERSION"
        raise ParseError(msg)
    return text


def run(arguments: argparse.Namespace) -> int:
    """Collect, and print what is there and how to use it."""
    folder: Path = arguments.to
    if arguments.package and arguments.format is None:
        msg = "argument --package: it needs --format, without which no jars are collected"
        raise OptionError(msg)
    requirement = own_requirement(arguments.extra, arguments.wheel)
    try:
        pyspark = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        msg = "PySpark is not installed by pip here: its version would tell which wheel and which jars to collect"
        raise OptionError(msg) from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"argument --to: {folder} cannot be created: {error.strerror}"
        raise OptionError(msg) from None
    if arguments.format is not None:  # first: it is the faster of the two, and tells whether there is a release at all
        from ticdc_source.lakehouse.engine_jars import fetch_jars  # noqa: PLC0415 (it imports pyspark)

        fetch_jars(arguments.format, folder / _JARS, arguments.package)
    wheels = [requirement, f"pyspark=={pyspark}"]
    _pip("wheel", "--no-input", "--progress-bar", "off", "--wheel-dir", str(folder / _WHEELS), *wheels)
    text = commands(arguments.extra, pyspark, jars=arguments.format is not None)
    (folder / _COMMANDS).write_text(text, encoding="utf-8")
    _show(folder, text)
    return 0


def own_requirement(extras: Sequence[str], wheel: Path | None) -> str:
    """Return the requirement by which pip finds this package again: the place from which it was installed.

    Args:
        extras: the extras that are wanted.
        wheel: a wheel, or a clone; None for the place that pip has noted (PEP 610), or else this version in the index.

    Raises:
        OptionError: the wheel is not there, an extra is unknown, or nobody knows where the package came from.
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
    noted = package.read_text("direct_url.json")
    return f"{name}=={package.version}" if noted is None else f"{name} @ {_url(json.loads(noted))}"


def _url(noted: Mapping[str, object]) -> str:
    """Return the URL that pip takes, from what it has noted of an installation (PEP 610)."""
    url, repository = str(noted["url"]), noted.get("vcs_info")
    if isinstance(repository, dict):
        return f"{repository['vcs']}+{url}@{repository['commit_id']}"
    return url


def _named(extras: Sequence[str]) -> str:
    return _PACKAGE + (f"[{','.join(sorted(set(extras)))}]" if extras else "")


def _pip(*words_of_pip: str) -> None:
    """Run pip; what it says goes to stderr.

    Raises:
        TargetError: it fails.
    """
    console, pip = errors(), [sys.executable, "-m", "pip", *words_of_pip]
    with subprocess.Popen(pip, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            console.print(plain(line.rstrip()))
    if process.returncode != 0:
        msg = f"pip {words_of_pip[0]} ended with {process.returncode}; the lines above say why"
        raise TargetError(msg)


def commands(extras: Sequence[str], pyspark: str, *, jars: bool) -> str:
    """Return the lines that use the folder, for a shell in it on the other machine."""
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
            f'PYSPARK_SUBMIT_ARGS="--jars $PWD/{_JARS}/*.jar pyspark-shell" ticdc-source sync sync.toml',
            "",
            "# On a cluster:",
            f'spark-submit --jars "$PWD/{_JARS}/*.jar" "$(ticdc-source sync --script)" sync.toml',
        ]
    return "\n".join(lines) + "\n"


def _show(folder: Path, text: str) -> None:
    console = output()
    for name in (_WHEELS, _JARS):
        files = sorted((folder / name).glob("*.*")) if (folder / name).is_dir() else []
        if files:
            size = sum(file.stat().st_size for file in files) / _MEGABYTE
            console.print(f"[bold]{plain(folder / name)}[/]: {counted(len(files), 'file')}, {size:,.0f} MB")
            for file in files:
                console.print(f"  {plain(file.name)}")
    console.print("")
    console.print(_plain_lines(text), soft_wrap=True)


def _plain_lines(text: str) -> str:
    """Return lines that rich prints as they are."""
    return "\n".join(map(plain, text.splitlines()))
