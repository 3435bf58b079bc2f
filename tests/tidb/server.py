"""A real TiDB in one process, and MySQL's JDBC driver: built and fetched once by `make tidb`, into a cache outside git.

    python -m tests.tidb.server         # builds tidb-server (Go; some ten minutes) and fetches the driver (Maven)

Tests never build it: `missing()` says what there is not, and they are skipped with that reason.
"""

import hashlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.versions.environments import _cache_folder, _locked

_HERE = Path(__file__).parent
_COMMAND = "github.com/pingcap/tidb/cmd/tidb-server"
_SECONDS = 60  # until it must answer; it takes five


class TiDBSetupError(RuntimeError):
    """A part of the test TiDB is missing on this machine, could not be built, or does not start."""


class TiDB(NamedTuple):
    """A running TiDB: its host and port; the user is root, without a password."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The option `tidb.url`."""
        return f"{self.host}:{self.port}"

    @property
    def jdbc_url(self) -> str:
        """The address for Spark's JDBC source, and for sessions of tests."""
        return f"jdbc:mysql://{self.host}:{self.port}/"


def server() -> Path:
    """Return where the built tidb-server is, or will be."""
    return _cached("tidb", _HERE / "go.mod") / "tidb-server"


def driver_jars() -> list[Path]:
    """Return the fetched jar of MySQL's JDBC driver; none before `make tidb`."""
    return sorted(_cached("jdbc", _HERE / "pom.xml").glob("*.jar"))


def missing() -> str | None:
    """Return why no TiDB can be started, or None if it can."""
    if not server().is_file():
        return f"no TiDB was built: `make tidb` makes {server()} (Go 1.23 or newer; some ten minutes)"
    if not driver_jars():
        return "MySQL's JDBC driver was not fetched: `make tidb` does (Maven)"
    return None


def build() -> None:
    """Build tidb-server, unless the cache has it."""
    with _new(server().parent) as folder:
        if folder is not None:
            go = _program("go", "install Go 1.23 or newer")
            module = (_HERE / "go.mod").read_text()
            (folder / "go.mod").write_text(module)
            version = re.search(r"^\tgithub.com/pingcap/tidb (v\S+)$", module, re.MULTILINE)
            _run([go, "get", f"{_COMMAND}@{version[1] if version else 'latest'}"], folder)
            _run([go, "build", "-mod=mod", "-buildvcs=false", "-o", "tidb-server", _COMMAND], folder)


def fetch_driver() -> None:
    """Fetch the JDBC driver, unless the cache has it."""
    with _new(_cached("jdbc", _HERE / "pom.xml")) as folder:
        if folder is not None:
            mvn = _program("mvn", "install Apache Maven")
            command = [mvn, "-B", "-q", "-f", str(_HERE / "pom.xml"), "dependency:copy-dependencies"]
            _run([*command, f"-DoutputDirectory={folder}", "-DincludeScope=runtime"], folder)


@contextmanager
def running(folder: Path) -> Iterator[TiDB]:
    """Start a TiDB on a free port of 127.0.0.1, with nothing in it; stop it at the end. Its log is in `folder`."""
    port = _free_port()
    log = folder / "tidb.log"
    command = [str(server()), "-store", "unistore", "-path", "", "-host", "127.0.0.1", "-P", str(port)]
    command += ["-report-status=false", "-socket", str(folder / "tidb.sock")]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output, cwd=folder) as process:
        try:
            _await(process, port, log)
            yield TiDB("127.0.0.1", port)
        finally:
            process.kill()  # nothing in it outlives it


def _await(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                if connection.recv(1):  # the greeting of MySQL's protocol
                    return
        except OSError:
            pass
        if process.poll() is not None or time.monotonic() > deadline:
            raise TiDBSetupError(
                f"tidb-server does not answer at port {port}:\n{log.read_text(errors='replace')[-3000:]}"
            )
        time.sleep(0.1)


def _cached(name: str, made_from: Path) -> Path:
    return _cache_folder() / f"{name}-{hashlib.sha256(made_from.read_bytes()).hexdigest()[:12]}"


@contextmanager
def _new(folder: Path) -> Iterator[Path | None]:
    """Yield a folder that becomes `folder` if nothing fails; None if that exists."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.parent / f"{folder.name}.lock"):
        if folder.exists():
            yield None
            return
        part = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", suffix=".part", dir=folder.parent))
        try:
            yield part
            part.chmod(0o755)  # mkdtemp sets 0700, and users may share a cache
            part.rename(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def _program(name: str, advice: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise TiDBSetupError(f"`{name}` was not found on PATH: {advice}")
    return found


def _run(command: list[str], folder: Path) -> None:
    sys.stderr.write(f"+ {' '.join(command)}\n")
    done = subprocess.run(command, check=False, cwd=folder)
    if done.returncode != 0:
        raise TiDBSetupError(f"{command[0]} ended with {done.returncode}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    fetch_driver()
    build()
    sys.stdout.write("\n".join(map(str, [server(), *driver_jars()])) + "\n")
