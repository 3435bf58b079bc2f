"""The jars of Spark's own Kafka source, from Maven."""

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from examples.local_kafka import KafkaSetupError, jars

_POM = Path(__file__).parent / "pom.xml"
_NEWEST = "4.2.0"


def opponent_jars(release: str = _NEWEST) -> list[Path]:
    """Return the jars of Spark's Kafka source; fetch them if the cache has none for this `pom.xml`.

    Raises:
        KafkaSetupError: Maven is missing, or could not fetch them.
    """
    cache = jars._cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    made_of = _POM.read_bytes() + (b"" if release == _NEWEST else release.encode())
    folder = cache / f"opponent-{hashlib.sha256(made_of).hexdigest()[:12]}"
    if not jars._is_whole(folder):
        with jars._locked(cache / ".lock"):
            if not jars._is_whole(folder):  # another process may have fetched them while this one waited
                _fetch_into(folder, release)
    return sorted(folder.glob("*.jar"))


def _fetch_into(folder: Path, release: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaSetupError(
            f"the jars of Spark's Kafka source are not in {folder}: install Apache Maven, which would fetch them"
        )
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as name:
        download = Path(name) / "jars"
        command = [maven, "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={download}", "-DincludeScope=runtime", f"-Dspark.version={release}"]
        answer = subprocess.run(command, check=False, capture_output=True, text=True)
        found = sorted(jar.name for jar in download.glob("*.jar"))
        if answer.returncode != 0 or not found:
            raise KafkaSetupError(f"Maven could not fetch Spark's Kafka source:\n{answer.stdout}{answer.stderr}")
        (download / jars._LISTING).write_text("\n".join(found) + "\n")
        shutil.rmtree(folder, ignore_errors=True)
        download.rename(folder)
