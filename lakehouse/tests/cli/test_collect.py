"""`ticdc-lakehouse collect`: wheels and jars for machines without a network."""

import json
import shlex
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

from tests.cli.conftest import Command
from ticdc_lakehouse.cli.collect import own_requirement
from ticdc_lakehouse.syncs.catalogs import PACKAGES

COMMIT = "0123456789012345678901234567890123456789"
NEEDS = {"plain-need": "1", "need-of-avro": "2", "pandas": "2"}


def write_wheel(folder: Path, name: str, version: str, *lines: str) -> Path:
    """Write a wheel without code, with these lines in its metadata."""
    stem = f"{name.replace('-', '_')}-{version}"
    wheel = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        texts = {
            "METADATA": "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines, ""]),
            "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "RECORD": "",
        }
        for each, text in texts.items():
            file.writestr(f"{stem}.dist-info/{each}", text)
    return wheel


def test_the_printed_line_installs_what_was_collected(
    ticdc_lakehouse: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an index, the line that the command prints installs the package, PySpark, and what both need."""
    index = tmp_path / "index"
    index.mkdir()
    own = write_wheel(
        tmp_path, "ticdc-source", "9", "Requires-Dist: plain-need", "Provides-Extra: avro",
        'Requires-Dist: need-of-avro; extra == "avro"', "Provides-Extra: spark",
        'Requires-Dist: pandas; extra == "spark"',
    )  # fmt: skip
    for name, version in {**NEEDS, "pyspark": metadata.version("pyspark")}.items():
        write_wheel(index, name, version)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    folder = tmp_path / "a folder"

    done = ticdc_lakehouse("collect", "--to", folder, "--wheel", own, "--extra", "avro")
    assert done.code == 0, done.err
    monkeypatch.delenv("PIP_FIND_LINKS")
    (line,) = (line for line in done.out.splitlines() if line.startswith("pip "))
    installed = tmp_path / "installed"
    pip = [sys.executable, "-m", *shlex.split(line), "--quiet", "--target", str(installed)]
    subprocess.run(pip, cwd=folder, check=True)

    found = {each.name: each.version for each in metadata.distributions(path=[str(installed)])}
    assert found == {"ticdc-source": "9", **NEEDS, "pyspark": metadata.version("pyspark")}
    assert line in (folder / "install.txt").read_text(encoding="utf-8").splitlines()
    assert "jars" not in done.out


def test_what_pip_cannot_find_is_an_error(
    ticdc_lakehouse: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel that is not to be had ends the command with one error, and no lines to install are printed."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    own = write_wheel(tmp_path, "ticdc-source", "9", "Requires-Dist: not-to-be-had")

    done = ticdc_lakehouse("collect", "--to", tmp_path / "to", "--wheel", own)

    assert (done.code, done.out) == (4, "")
    assert "error: pip wheel ended with 1; the lines above say why" in done.err


def test_an_engine_without_a_release_is_told_before_anything_is_fetched(
    ticdc_lakehouse: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If Delta has no release for this PySpark, the error says for which it has one, and no wheel is collected."""
    monkeypatch.setitem(PACKAGES, "delta", {"3.9": "io.delta:delta:1"})
    own = write_wheel(tmp_path, "ticdc-source", "9")

    done = ticdc_lakehouse("collect", "--format", "delta", "--to", tmp_path / "to", "--wheel", own)

    assert (done.code, done.out) == (2, "")
    assert "pip install 'pyspark==3.9.*'" in done.err
    assert not list((tmp_path / "to").iterdir())


@pytest.mark.parametrize(
    ("noted", "expected"),
    [
        (None, "==0.5"),
        ({"url": "file:///opt/ticdc_source-0.5-py3-none-any.whl", "archive_info": {}}, None),
        ({"url": "file:///home/me/clone", "dir_info": {"editable": True}}, None),
        (
            {"url": "https://example.com/t.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
            f"git+https://example.com/t.git@{COMMIT}",
        ),
    ],
)
def test_the_package_comes_from_where_it_was_installed(
    noted: dict[str, object] | None, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What pip has noted of an installation becomes a requirement that pip takes; without a note it is the version."""
    installed = SimpleNamespace(
        version="0.5",
        metadata=SimpleNamespace(get_all=lambda _: ["avro", "msk"]),
        read_text=lambda _: None if noted is None else json.dumps(noted),
    )
    monkeypatch.setattr(metadata, "distribution", lambda _: installed)

    requirement = Requirement(own_requirement(["msk", "avro"], None))

    assert (requirement.name, requirement.extras) == ("ticdc-source", {"avro", "msk", "spark"})
    where = str(requirement.specifier) if noted is None else requirement.url
    assert where == (expected or (noted or {})["url"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--package", "a:b:1"), "argument --package: it needs --format"),
        (("--wheel", "no-such.whl"), "argument --wheel: no-such.whl is not there"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    arguments: tuple[str, ...], message: str, ticdc_lakehouse: Command, tmp_path: Path
) -> None:
    """Nothing is fetched if an argument has no effect or names what is not there."""
    done = ticdc_lakehouse("collect", "--to", tmp_path / "to", *arguments)

    assert (done.code, done.out, done.err.strip()) == (2, "", f"error: {message}")
    assert not (tmp_path / "to").exists()


def test_a_folder_that_has_files_is_refused(ticdc_lakehouse: Command, tmp_path: Path) -> None:
    """The lines for the other machine take all jars of the folder, so none of another run may be there."""
    (tmp_path / "old.jar").touch()
    own = write_wheel(tmp_path, "ticdc-source", "9")

    done = ticdc_lakehouse("collect", "--to", tmp_path, "--wheel", own)

    assert done.code == 2
    assert f"error: argument --to: {tmp_path} is not empty" in done.err
