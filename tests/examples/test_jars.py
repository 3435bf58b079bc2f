"""Finding Java and fetching Kafka's jars: with stand-ins for `java` and `mvn`, no broker and no network."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from examples.local_kafka import KafkaSetupError, jars
from tests.support.paths import ROOT

# Takes its time, as a download does, and leaves a line for each of its runs.
FAKE_MVN = """\
#!/bin/sh
echo run >> "$RUNS"
for argument in "$@"; do case "$argument" in -DoutputDirectory=*) folder="${argument#*=}";; esac; done
echo one > "$folder/one.jar"
for number in $(seq 30); do echo "[INFO] Downloaded from central: one.jar"; done
sleep 0.3
echo two > "$folder/two.jar"
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that comes first on a `PATH` with nothing but the system's basic commands."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for program in ("sleep", "seq"):
        (folder / program).symlink_to(shutil.which(program) or f"/bin/{program}")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache without jars."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("TICDC_KAFKA_CACHE", str(folder))
    return folder


@pytest.fixture
def runs(path: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which a stand-in for `mvn` on `PATH` counts its runs."""
    assert not cache.exists()
    counter = tmp_path / "runs"
    counter.touch()
    monkeypatch.setenv("RUNS", str(counter))
    _program(path / "mvn", FAKE_MVN)
    return counter


def test_missing_java(path: Path) -> None:
    """Without Java, the error says which Java to install."""
    assert not list(path.glob("java"))

    with pytest.raises(KafkaSetupError, match=r"install Java 17 or newer"):
        jars.find_java()


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22"])
def test_old_java(path: Path, version: str) -> None:
    """A Java that is too old is named with its version, whichever way it writes it."""
    _program(path / "java", f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-16' >&2\n")

    with pytest.raises(KafkaSetupError, match=r"is Java (8|11): install Java 17 or newer"):
        jars.find_java()


@pytest.mark.usefixtures("path", "cache")
def test_missing_maven() -> None:
    """With an empty cache and no Maven, the error says to install Maven."""
    with pytest.raises(KafkaSetupError, match=r"install Apache Maven"):
        jars.kafka_jars()


def test_failing_maven(path: Path, cache: Path) -> None:
    """What Maven says when it fails is in the error, and nothing of the attempt stays."""
    _program(path / "mvn", "#!/bin/sh\necho 'no route to host'\nexit 1\n")

    with pytest.raises(KafkaSetupError, match=r"no route to host"):
        jars.kafka_jars()

    assert [file.name for file in cache.iterdir()] == [".lock"]


def test_fetched_once(cache: Path, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first call fetches the jars and says so, the second one takes them silently."""
    first = jars.kafka_jars()
    assert "only this once" in (said := capsys.readouterr().err)
    assert "Maven: 25 files downloaded" in said
    second = jars.kafka_jars()
    assert capsys.readouterr().err == ""

    assert first == second
    assert first.parent == cache
    assert sorted(file.name for file in first.glob("*.jar")) == ["one.jar", "two.jar"]
    assert runs.read_text() == "run\n"


def test_two_processes(cache: Path, runs: Path) -> None:
    """Of two processes that need the jars at once, one fetches and the other waits."""
    command = [sys.executable, "-c", "from examples.local_kafka import jars; print(jars.kafka_jars())"]
    processes = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = {process.communicate(timeout=60)[0].strip() for process in processes}

    assert answers == {str(jars.kafka_jars())}
    assert Path(answers.pop()).parent == cache
    assert runs.read_text() == "run\n"


def _program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
