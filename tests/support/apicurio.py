"""Apicurio Registry, a real schema registry with Confluent's API, in a process of its own; Maven fetches it once."""

import json
import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import registry
from tests.support.messages import Message
from tests.versions.environments import _cache_folder, _locked
from ticdc_source.protocols.registry_framing import body_of

VERSION = "2.6.13.Final"  # the last one that runs on Java 17
_ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
_SECONDS = 60  # until it must answer; it takes three
_JSON = {"Content-Type": "application/vnd.schemaregistry.v1+json"}


def program() -> Path:
    """Return the registry's jar; skip the test if Maven is not there to fetch it."""
    folder = _cache_folder() / f"apicurio-{VERSION}"
    jar = folder / f"apicurio-registry-app-{VERSION}-runner.jar"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.parent / f"{folder.name}.lock"):
        if not jar.exists():
            mvn = shutil.which("mvn")
            if mvn is None:
                pytest.skip("Maven, which fetches Apicurio Registry, is not installed")
            part = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", suffix=".part", dir=folder.parent))
            command = [mvn, "-B", "-q", "dependency:copy", f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={part}"]
            subprocess.run(command, check=True, cwd=part)
            (packed,) = part.glob("*.tar.gz")
            with tarfile.open(packed) as archive:
                archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.3 has none
                archive.extractall(part)  # noqa: S202 (of a Maven artifact)
            packed.unlink()
            part.rename(folder)
    return jar


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """Start a registry on a free port of 127.0.0.1; yield the URL of its Confluent API, and stop it at the end."""
    jar = program()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    where = {"QUARKUS_HTTP_HOST": "127.0.0.1", "QUARKUS_HTTP_PORT": str(port)}
    log = folder / "apicurio.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            ["java", "-Xmx256m", "-jar", str(jar)],
            env={**os.environ, **where},
            stdout=output,
            stderr=output,
            cwd=folder,
        ) as process,
    ):
        try:
            url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
            deadline = time.monotonic() + _SECONDS
            while not _answers(url):
                assert process.poll() is None, log.read_text(errors="replace")[-3000:]
                assert time.monotonic() < deadline, log.read_text(errors="replace")[-3000:]
                time.sleep(0.2)
            yield url
        finally:
            process.kill()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/subjects", timeout=1):  # noqa: S310 (of this process)
            return True
    except OSError:
        return False


def moved(message: Message, url: str, topic: str) -> Message:
    """Return a message that a test has written, with its schemas registered at another registry, as TiCDC does."""
    key, value = message
    return _moved(key, url, f"{topic}-key"), _moved(value, url, f"{topic}-value")


def _moved(data: bytes | None, url: str, subject: str) -> bytes | None:
    if data is None or data[:1] != b"\0":
        return data
    schema_id, start = body_of(data)
    body = json.dumps({"schema": registry.written_schema(schema_id)}).encode()
    request = urllib.request.Request(f"{url}/subjects/{subject.replace('.', '_')}/versions", body, _JSON)  # noqa: S310
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
        number = int(json.load(answer)["id"])
    return b"\0" + number.to_bytes(4, "big") + data[start:]
