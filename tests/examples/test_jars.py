"""Without Java or Maven, the local broker says what to install."""

from pathlib import Path

import pytest

from examples.local_kafka import KafkaSetupError, jars


@pytest.fixture(autouse=True)
def nothing_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TICDC_KAFKA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)


def test_missing_java() -> None:
    with pytest.raises(KafkaSetupError, match=r"install Java 17 or newer"):
        jars.find_java()


def test_missing_maven() -> None:
    with pytest.raises(KafkaSetupError, match=r"install Apache Maven"):
        jars.kafka_jars()
