"""What is installed: Python, the packages that reads need, Java, and the Python of Spark's workers."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ticdc_source.inspection.report import Outcome
from ticdc_source.kernels.native import why_general
from ticdc_source.sources.kafka.kafka_python.connect import installed

_SECONDS = 30.0  # for a Python to start
_LEAST_JAVA = 17  # of Spark 4
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')  # Java 8 calls itself 1.8
# If set, another process starts Spark, or has started it: spark-submit, or a Spark Connect server.
_SPARK_IS_ELSEWHERE = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE")
_LEAST_PYSPARK = (4, 0)  # the first with the Python Data Source API for format("ticdc"); decode() needs 3.5
_WORKER = """
import sys
print(".".join(map(str, sys.version_info[:2])))
import ticdc_source
print(ticdc_source.__version__)
"""


class Package(NamedTuple):
    """A package; `extra` is the extra of ticdc-source that installs it, None if every read needs it."""

    name: str
    use: str
    extra: str | None = None


_PACKAGES = (
    Package("pyspark", "jobs"),
    Package("kafka-python", "reads"),
    Package("pyarrow", "reads"),
    Package("crc32c", "checksums of record batches; without it reads are ten times slower"),
    Package("orjson", "reads"),
    Package("pandas", "decode() and tables(), as PySpark's mapInArrow asks for it", "spark"),
    Package("cramjam", "large-message-handle-compression", "large-messages"),
    Package("fsspec", "claim-check storage", "large-messages"),
    Package("fastavro", "the protocol simple with encoding-format=avro", "avro"),
)


def steps(native_code: str, *, in_worker: bool) -> Iterator[tuple[str, str, Callable[[], Outcome]]]:
    """Yield the name, the subject and the function of each step; see `doctor.diagnose`."""
    yield "python", "", lambda: Outcome("ok", f"{platform.python_version()}, {sys.executable}")
    for package in _PACKAGES:
        yield "package", package.name, partial(check_package, package)
    yield "native", "", partial(_check_native, native_code)
    if not in_worker:
        yield "java", "", check_java
        yield "worker", "", check_worker


def check_package(package: Package) -> Outcome:
    """Check that a package is installed; only kafka-python is imported.

    Raises:
        OptionError: reads do not work with this kafka-python.
    """
    if package.name == "kafka-python":
        return Outcome("ok", installed())
    try:
        version = importlib.metadata.version(package.name)
    except importlib.metadata.PackageNotFoundError:
        if package.extra is not None:
            text = f'not installed; needed only for {package.use}: pip install "ticdc-source[{package.extra}]"'
            return Outcome("ok", text)
        if package.name == "pyspark":  # clusters bring their own
            return Outcome(
                "warning", "not installed here: jobs need it, the commands do not", 'pip install "ticdc-source[spark]"'
            )
        return Outcome("failed", f"not installed; needed for {package.use}", f"pip install {package.name}")
    if package.name == "pyspark" and tuple(map(int, version.split(".")[:2])) < _LEAST_PYSPARK:
        text = f'{version}: decode() works, format("ticdc") needs 4.0'
        return Outcome("warning", text, "install PySpark 4.0 or newer, or read with decode()")
    return Outcome("ok", version)


def _check_native(native_code: str) -> Outcome:
    missing = why_general(native_code)
    if missing is None:
        return Outcome("ok", "the native path is installed")
    if native_code == "off":
        return Outcome("ok", "not used: nativeCode=off")
    mend = "run `make wheel` in a clone, which needs Rust, and install the wheel on the driver and on all executors"
    return Outcome("warning", f"reads take the general path, which is slower: {missing}", mend)


def check_java() -> Outcome:
    """Check that Spark finds a Java that it can use, looking where Spark's `bin/spark-class` does."""
    if importlib.util.find_spec("pyspark") is None:
        return Outcome("skipped", "because PySpark is not installed here")
    elsewhere = next((name for name in _SPARK_IS_ELSEWHERE if os.environ.get(name)), None)
    if elsewhere is not None:
        return Outcome("skipped", f"because {elsewhere} is set, so Spark runs elsewhere")
    settings = Path(os.environ.get("SPARK_CONF_DIR") or f"{os.environ.get('SPARK_HOME', '')}/conf") / "spark-env.sh"
    if settings.is_file():
        return Outcome("skipped", f"because {settings} may say where Java is")
    home = os.environ.get("JAVA_HOME")
    mend = f"install Java {_LEAST_JAVA} or newer, and set JAVA_HOME to its folder or put java on the PATH"
    java = shutil.which("java") if not home else shutil.which(str(Path(home) / "bin" / "java"))
    if java is None:
        where = (
            f"JAVA_HOME={home} has no bin/java" if home else "JAVA_HOME is not set, and there is no java on the PATH"
        )
        return Outcome("failed", f"Spark needs Java, but {where}", mend)
    try:
        out, err = _run(java, "-version")
    except (OSError, subprocess.TimeoutExpired) as error:
        return Outcome("failed", f"{java} does not run: {error}", mend)
    said = (err + out).strip()
    version = _JAVA_VERSION.search(said)
    if version is None:
        return Outcome(
            "failed", f"{java} does not report a Java version: {said.partition(chr(10))[0] or 'nothing'}", mend
        )
    if int(version[1]) < _LEAST_JAVA:
        return Outcome("failed", f"{java} is Java {version[1]}, but Spark 4 needs {_LEAST_JAVA} or newer", mend)
    return Outcome("ok", f"Java {version[1]}, {java}")


def check_worker() -> Outcome:
    """Check that the Python of Spark's workers on this machine can import this package."""
    if "PYSPARK_PYTHON" in os.environ:
        return _worker("PYSPARK_PYTHON", os.environ["PYSPARK_PYTHON"], "failed")
    # Only a warning: whatever starts the job may set it.
    return _worker("PYSPARK_PYTHON is not set:", "python3", "warning")


def _worker(named: str, wanted: str, bad: str) -> Outcome:
    mend = f"install ticdc-source there, or set PYSPARK_PYTHON={sys.executable}"
    python = shutil.which(wanted)
    if python is None:
        return Outcome(bad, f"{named} {wanted} does not exist", mend)
    try:
        out, err = _run(str(Path(python).absolute()), "-c", _WORKER)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Outcome(bad, f"{named} {python} does not run: {error}", mend)
    said = out.split()
    own_version = ".".join(platform.python_version_tuple()[:2])
    if not said:
        return Outcome(bad, f"{named} {python} is not Python", mend)
    if said[0] != own_version:
        mend = "set PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON to the same version of Python"
        return Outcome(bad, f"{named} {python} is Python {said[0]}, but this one is {own_version}", mend)
    if len(said) == 1:
        reason = (err.strip().splitlines() or ["it ended"])[-1]
        return Outcome(bad, f"{named} {python} cannot import ticdc_source: {reason}", mend)
    same = "this Python" if Path(python).samefile(sys.executable) else f"Python {said[0]}"
    return Outcome("ok", f"{named} {python} ({same}) has ticdc-source {said[1]}")


def _run(*command: str) -> tuple[str, str]:
    with tempfile.TemporaryDirectory() as elsewhere:  # not where a clone would be found
        done = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, timeout=_SECONDS, check=False)
    return done.stdout, done.stderr
