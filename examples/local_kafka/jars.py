"""Kafka's jars: fetched once by Maven into a cache outside git, and a Java that can run them."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

OLDEST_JAVA = 17
_FILES_PER_LINE = 25
_LISTING = "jars.txt"  # written last: a folder whose files it lists is a complete download


class Release(NamedTuple):
    """A release of Kafka, or of something else, and the file that tells Maven which jars it needs."""

    version: str
    pom: Path
    name: str = "Kafka"


NEWEST = Release("4.1.1", Path(__file__).with_name("pom.xml"))
OLDEST = Release("2.4.1", Path(__file__).with_name("oldest-pom.xml"))


class KafkaSetupError(RuntimeError):
    """Something that the local broker needs is missing on this machine, or could not be downloaded."""


def find_java() -> str:
    """Find a Java of version 17 or newer: `JAVA_HOME` first, then `PATH`."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    java = java or shutil.which("java")
    advice = f"install Java {OLDEST_JAVA} or newer (a JRE is enough) and put it on PATH or set JAVA_HOME"
    if java is None:
        raise KafkaSetupError(f"the local Kafka broker needs Java, and none was found: {advice}")
    answer = subprocess.run([java, "-version"], check=False, capture_output=True, text=True)
    said = answer.stderr + answer.stdout
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    if version is None:  # macOS has a stub that only says where to get a Java
        raise KafkaSetupError(f"{java} -version prints no version but {said.strip()!r}: {advice}")
    if int(version[1]) < OLDEST_JAVA:
        raise KafkaSetupError(f"Kafka needs Java {OLDEST_JAVA}, and {java} is Java {version[1]}: {advice}")
    return java


def kafka_jars(release: Release = NEWEST) -> Path:
    """Return the folder of a release's jars; download them if the cache has none for its `pom.xml`."""
    cache = _cache_folder(release)
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"jars-{hashlib.sha256(release.pom.read_bytes()).hexdigest()[:12]}"
    if _is_whole(folder):
        return folder
    with _locked(cache / ".lock"):
        if not _is_whole(folder):  # another process may have fetched them while this one waited
            _fetch_into(folder, release)
    return folder


def _cache_folder(release: Release = NEWEST) -> Path:
    """Return the user's cache folder; for Kafka, `$TICDC_KAFKA_CACHE` if it is set."""
    named = os.environ.get("TICDC_KAFKA_CACHE")
    if named and release.name == NEWEST.name:
        return Path(named).expanduser()
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return base / "ticdc-source" / f"{release.name.lower()}-{release.version}"


def _is_whole(folder: Path) -> bool:
    """Return whether every jar of the listing exists: a cleaner of caches may have removed some."""
    try:
        names = (folder / _LISTING).read_text().split()
    except FileNotFoundError:
        return False
    return bool(names) and all((folder / name).is_file() for name in names)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released when the file closes, also when the process dies
        yield


def _fetch_into(folder: Path, release: Release) -> None:
    mvn = shutil.which("mvn")
    if mvn is None:
        raise KafkaSetupError(
            f"the jars of {release.name} {release.version} are not in {folder.parent} yet, and `mvn`, which would "
            "fetch them, was not found: install Apache Maven, or set TICDC_KAFKA_CACHE to a cache that has them"
        )
    for left_over in folder.parent.glob("jars-*.part"):  # of a download that was killed: the lock is ours
        shutil.rmtree(left_over, ignore_errors=True)
    download = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", suffix=".part", dir=folder.parent))
    # Of its own: in ~/.m2 Maven leaves descriptions without jars, by which Spark then fails to fetch its packages.
    repository = Path(tempfile.mkdtemp(prefix="maven.", dir=folder.parent))
    try:
        command = [mvn, "-B", "-f", str(release.pom), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={download}", "-DincludeScope=runtime", f"-Dmaven.repo.local={repository}"]
        _say(f"Maven fetches the jars of {release.name} {release.version}, only this once …")
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            output = list(_shown_progress(process.stdout or ()))
        names = sorted(jar.name for jar in download.glob("*.jar"))
        if process.returncode != 0 or not names:
            raise KafkaSetupError(f"Maven could not fetch {release.name} {release.version}:\n{''.join(output)}")
        (download / _LISTING).write_text("\n".join(names) + "\n")
        download.chmod(0o755)  # mkdtemp gives 0700, and a cache may be shared
        shutil.rmtree(folder, ignore_errors=True)
        download.rename(folder)
    finally:
        shutil.rmtree(repository, ignore_errors=True)
        shutil.rmtree(download, ignore_errors=True)


def _shown_progress(lines: Iterable[str]) -> Iterator[str]:
    """Pass Maven's lines on, and say from time to time how many files it has downloaded."""
    files = 0
    for line in lines:
        yield line
        if "Downloaded from" in line:
            files += 1
            if files % _FILES_PER_LINE == 0:
                _say(f"Maven: {files} files downloaded")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
