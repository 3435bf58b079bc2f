"""The package as users get it: wheels with and without the native path, the sdist, and what an installed one can do."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyarrow import feather

from examples.data import read_messages, read_truth
from examples.local_kafka import produce
from tests.fixtures import CARGO, Kafka
from tests.support.paths import ROOT
from tests.support.read_captured import tables
from tests.versions.environments import dependencies, environment, interpreter, listed
from ticdc_source import __version__

pytestmark = pytest.mark.slow("builds wheels")

MODULE = "ticdc_source/kernels/_native.abi3.so"
# A program that reads a topic with Spark. Nothing in it names the package: Spark finds the format.
READ = """
import json, sys
from pyspark.sql import SparkSession

session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
session = session.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
spark = session.config("spark.ui.showConsoleProgress", "false").getOrCreate()
options = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": sys.argv[2], "tables": "shop.orders"}
rows = spark.read.format("ticdc").options(**options).load()
counts = dict(rows.groupBy("_change_type").count().collect())
spark.stop()
print(json.dumps(counts))
"""


def without_cargo() -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if name not in {"CARGO", "CARGO_HOME"}}
    folders = [folder for folder in os.environ["PATH"].split(os.pathsep) if not (Path(folder) / "cargo").exists()]
    return {**kept, "PATH": os.pathsep.join(folders)}


def run(command: list[str], variables: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


def pip_wheel(folder: Path, variables: dict[str, str], source: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Let pip build the wheel of this clone or of an sdist into a folder."""
    command = [sys.executable, "-m", "pip", "wheel", "--verbose", "--no-deps", "--wheel-dir", str(folder), str(source)]
    return run(command, variables, folder)


def wheel_of(folder: Path, variables: dict[str, str], source: Path = ROOT) -> tuple[Path, str]:
    """Build the wheel; return it, and pip's output."""
    done = pip_wheel(folder, variables, source)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel, done.stdout + done.stderr


def packages_of(venv: Path) -> Path:
    return Path(sysconfig.get_path("purelib", vars={"base": str(venv)}))


def make_venv(venv: Path, packages: Path) -> None:
    """Create an environment that sees other packages behind its own; an editable install among them is not seen."""
    done = run([sys.executable, "-m", "venv", "--without-pip", str(venv)], dict(os.environ), venv.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    (packages_of(venv) / "dependencies.pth").write_text(f"{packages}\n")


def install(python: Path, wheel: Path, *options: str) -> None:
    """Install a wheel, and nothing from the package index: what it asks for must be there."""
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", *options]
    done = run([*command, str(wheel)], {**os.environ, "PIP_FIND_LINKS": ""}, wheel.parent)
    assert done.returncode == 0, done.stdout + done.stderr


def in_the_clone() -> set[str]:
    done = run(["git", "ls-files", "ticdc_source", "pyspark_ticdc"], dict(os.environ), ROOT)
    return set(done.stdout.split())


def read_with(wheel: Path, native_code: str, folder: Path) -> tuple[dict[str, Any], str]:
    """Install a wheel beside the dependencies of this Python, and read captured messages with it.

    Returns:
        The program's report, and what it wrote to standard error. The rows are in the folder.
    """
    venv = folder / "venv"
    python = venv / "bin" / "python"
    inner = packages_of(venv)
    make_venv(venv, Path(sysconfig.get_path("purelib")))
    install(python, wheel, "--no-deps")
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
    assert "No module named 'ticdc_source.kernels._native'" in stderr
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
        assert {name for name in packed.namelist() if "_native" in name} == {MODULE, "ticdc_source/kernels/_native.pyi"}
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


@pytest.mark.versions
def test_an_installed_wheel_brings_few_packages(broker: Kafka, topic: Callable[..., str], tmp_path: Path) -> None:
    """What a wheel asks for are at most five packages, and `inspect` needs no more; not even PySpark."""
    wheel, _ = wheel_of(tmp_path, {**os.environ, "TICDC_BUILD_NATIVE": "0"})
    venv, elsewhere = tmp_path / "venv", tmp_path / "elsewhere"
    elsewhere.mkdir()
    needs = packages_of(environment("alone", dependencies()).parents[1])
    make_venv(venv, needs)
    install(venv / "bin" / "python", wheel)
    name = topic(3)
    produce(broker.bootstrap_servers, name, [(*message, [], None) for message in read_messages("canal-json")])
    alone = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYSPARK", "TICDC"))}
    inspect = ["inspect", "--bootstrap-servers", broker.bootstrap_servers, "--subscribe", name]

    done = run([str(venv / "bin" / "ticdc-source"), *inspect], alone, elsewhere)

    brought = {each.name for each in distributions(path=[str(needs)])}
    assert {"crc32c", "kafka-python", "orjson", "pyarrow"} <= brought
    assert len(brought) <= 5, brought
    assert done.returncode in {0, 1}, done.stderr  # 1: it has something to say
    assert "shop.order_items" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.spark
@pytest.mark.versions
@pytest.mark.xdist_group("versions")
@pytest.mark.timeout(1200)  # the first time pip fetches PySpark
def test_an_installed_wheel_works_away_from_the_sources(
    broker: Kafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    """With only the wheel, its needs and PySpark, the command runs, an import is cheap, and Spark finds the format."""
    wheel, _ = wheel_of(tmp_path, {**os.environ, "TICDC_BUILD_NATIVE": "0"})
    venv, elsewhere = tmp_path / "venv", tmp_path / "elsewhere"
    elsewhere.mkdir()
    programs = venv / "bin"
    make_venv(venv, packages_of(interpreter(pyspark.__version__).parents[1]))
    install(programs / "python", wheel)
    name = topic(3)
    produce(broker.bootstrap_servers, name, [(*message, [], None) for message in read_messages("canal-json")])
    # Spark's workers look for packages in PYTHONPATH only if somebody sets it.
    alone = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYSPARK", "TICDC"))}
    alone |= {"PATH": os.pathsep.join([str(programs), alone["PATH"]]), "PYSPARK_PYTHON": str(programs / "python")}

    def output(*command: str, codes: tuple[int, ...] = (0,)) -> str:
        done = run([str(programs / command[0]), *command[1:]], alone, elsewhere)
        assert done.returncode in codes, done.stdout + done.stderr
        return done.stdout

    cheap = "import sys, ticdc_source; print('pyspark' in sys.modules, 'pyarrow' in sys.modules, ticdc_source.__file__)"
    spark, arrow, home = output("python", "-c", cheap).split()
    installed = packages_of(venv)
    counts = json.loads(output("python", "-c", READ, broker.bootstrap_servers, name).splitlines()[-1])
    changes = read_truth()["shop.orders"].changes

    assert (spark, arrow, Path(home).parent) == ("False", "False", installed / "ticdc_source")
    assert (installed / "ticdc_source" / "py.typed").is_file()
    assert output("ticdc-source", "--version").split() == ["ticdc-source", __version__]
    assert "--bootstrap-servers" in output("ticdc-source", "inspect", "--help")
    inspect = ("inspect", "--bootstrap-servers", broker.bootstrap_servers, "--subscribe", name)
    assert "shop.order_items" in output("ticdc-source", *inspect, codes=(0, 1))  # 1: it has something to say
    assert counts == {
        "insert": changes["insert"],
        "update_preimage": changes["update"],
        "update_postimage": changes["update"],
        "delete": changes["delete"],
    }


def sdist_of(folder: Path) -> Path:
    python = environment("build", listed("requires"))
    done = run([str(python), "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder)], dict(os.environ), ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,) = folder.glob("*.tar.gz")
    return sdist


@pytest.mark.versions
@pytest.mark.parametrize(
    "native", [False, pytest.param(True, marks=pytest.mark.long("compiles the crate and its parts"))]
)
def test_a_wheel_can_be_built_from_the_sdist(tmp_path: Path, *, native: bool) -> None:
    """From the sdist, without the clone, pip builds a wheel with the same files, without cargo and with it."""
    if native and CARGO is None:
        pytest.skip("there is no cargo: a wheel with the native path cannot be built")
    # What cargo has built of other crates in the clone is taken from there.
    cargo = {**os.environ, "TICDC_BUILD_NATIVE": "1", "CARGO_TARGET_DIR": str(ROOT / "native" / "target")}
    sdist = sdist_of(tmp_path)
    with tarfile.open(sdist) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}

    wheel, _ = wheel_of(tmp_path, cargo if native else without_cargo(), sdist)

    built = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert built == in_the_clone() | ({MODULE} if native else set())
    assert names >= {"LICENSE", "README.md", "SECURITY.md", "CHANGELOG.md", "pyproject.toml", "native/Cargo.lock"}
    assert not [name for name in names if name.startswith("native/target") or name.endswith(".so")]
