"""The Spark session of a sync."""

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from ticdc_source.lakehouse.session import _preload_workers
from ticdc_source.spark import python_daemon

NAME = "spark.python.daemon.module"


class Settings(dict[str, str]):
    """Settings as Spark's Java object has them."""

    contains = dict.__contains__
    set = dict.__setitem__


def session(settings: Settings, *, local: bool) -> Any:
    """Return what stands for a session."""
    env = SimpleNamespace(conf=lambda: settings)
    context = SimpleNamespace(isLocal=lambda: local, env=lambda: env)
    return SimpleNamespace(sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: context)))


@pytest.mark.parametrize(
    ("local", "before", "expected"),
    [(True, None, python_daemon.__name__), (False, None, None), (True, "mine", "mine")],
)
def test_workers_are_forked_from_a_process_with_the_package(
    local: bool, before: str | None, expected: str | None
) -> None:
    """In local mode workers find the package imported; on a cluster, or with a daemon of the user, nothing changes."""
    settings = Settings({} if before is None else {NAME: before})

    _preload_workers(session(settings, local=local))

    assert settings.get(NAME) == expected


def test_the_daemon_imports_what_workers_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """It imports PySpark's worker, the decoding, and the module that Spark names, before it forks."""
    done: list[str] = []
    monkeypatch.setattr(importlib, "import_module", done.append)
    monkeypatch.setattr(python_daemon, "manager", lambda: done.append("forks"))

    python_daemon.main(["pyspark.daemon.other"])

    assert done == ["pyspark.worker", "ticdc_source.spark.frames", "pyspark.daemon.other", "forks"]
