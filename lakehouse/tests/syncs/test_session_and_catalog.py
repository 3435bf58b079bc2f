"""The Spark session of a sync."""

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkRuntimeError

from lakehouse.tests.syncs import context
from ticdc_lakehouse import SyncConfig
from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.syncs import session_and_catalog
from ticdc_lakehouse.syncs.session_and_catalog import _preload_workers, session_of
from ticdc_source.errors import OptionError
from ticdc_source.spark import python_daemon

NAME = "spark.python.daemon.module"


class Settings(dict[str, str]):
    """Settings as Spark's Java object has them."""

    contains = dict.__contains__
    set = dict.__setitem__


def session(settings: Settings, *, local: bool) -> Any:
    env = SimpleNamespace(conf=lambda: settings)
    context = SimpleNamespace(isLocal=lambda: local, env=lambda: env)
    return SimpleNamespace(sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: context)))


@pytest.mark.parametrize(
    ("local", "before", "expected"), [(True, None, python_daemon.__name__), (False, None, None), (True, "mine", "mine")]
)
def test_workers_are_forked_from_a_process_with_the_package(
    local: bool, before: str | None, expected: str | None
) -> None:
    """In local mode workers find the package imported; on a cluster, or with a daemon of the user, nothing changes."""
    settings = Settings({} if before is None else {NAME: before})

    _preload_workers(session(settings, local=local))

    assert settings.get(NAME) == expected


class Builder(dict[str, str]):
    """Collects the arguments of a JVM, and then what is set in its session; it refuses settings of Spark's core."""

    def __init__(self) -> None:
        super().__init__()
        self.later: dict[str, str] = {}
        hadoop = SimpleNamespace(set=self.later.__setitem__)
        self.conf = SimpleNamespace(set=self._set_later)
        self.sparkContext = SimpleNamespace(_jsc=SimpleNamespace(hadoopConfiguration=lambda: hadoop))

    def appName(self, _name: str) -> "Builder":  # noqa: N802 (Spark's name)
        return self

    def config(self, name: str, value: str) -> "Builder":
        self[name] = value
        return self

    def getOrCreate(self) -> "Builder":  # noqa: N802 (Spark's name)
        return self

    def _set_later(self, name: str, value: str) -> None:
        if name.startswith("spark.driver."):
            raise ValueError(name, value)
        self.later[name] = value


def config_of(monkeypatch: pytest.MonkeyPatch, **spark: str) -> SyncConfig:
    """Return a configuration with settings of Spark whose values came from the environment."""
    for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("_check_jars", "_check_catalog", "_preload_workers", "_quiet"):
        monkeypatch.setattr(session_and_catalog, name, lambda *_: None)
    monkeypatch.setenv("PYSPARK_PYTHON", "python")
    return context.config(spark=spark, secret_settings=frozenset(spark))


def test_secrets_are_no_arguments_of_the_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values from elsewhere are set when the session runs, also if no name says that they are secret."""
    builder = Builder()
    monkeypatch.setattr(session_and_catalog, "SparkSession", SimpleNamespace(builder=builder))
    config = config_of(monkeypatch, **{
        "spark.sql.catalog.lake.header.X-Auth": "hush", "spark.hadoop.fs.auth": "hidden",
        "spark.jars": "x.jar", "spark.driver.memory": "2g",
    })  # fmt: skip

    session_of(config)

    assert builder.later.pop("spark.sql.variable.substitute") == "false"
    assert builder.later == {"spark.sql.catalog.lake.header.X-Auth": "hush", "fs.auth": "hidden"}
    assert (builder["spark.jars"], builder["spark.driver.memory"]) == ("x.jar", "2g")
    assert not {"hush", "hidden"} & {*builder.values()}


def test_a_secret_that_spark_needs_at_its_start_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says where such a setting may be, and not its value."""
    monkeypatch.setattr(session_and_catalog, "SparkSession", SimpleNamespace(builder=Builder()))
    config = config_of(monkeypatch, **{"spark.jars": "x.jar", "spark.driver.password": "hush"})

    with pytest.raises(OptionError, match=r"\[spark\] spark\.driver\.password: .*spark-defaults\.conf") as caught:
        session_of(config)
    assert "hush" not in str(caught.value)


def test_a_spark_that_does_not_start_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Java, or without the jars, PySpark says that its gateway has exited."""

    def fail(_: Builder) -> Builder:
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr(Builder, "getOrCreate", fail)
    monkeypatch.setattr(session_and_catalog, "SparkSession", SimpleNamespace(builder=Builder()))

    with pytest.raises(TargetError, match="Spark did not start; the lines above say why"):
        session_of(config_of(monkeypatch, **{"spark.jars": "x.jar"}))


def test_a_pattern_of_jars_becomes_a_list(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Spark expands patterns of `--jars` alone: of `spark.jars`, executors would get no jar."""
    builder = Builder()
    monkeypatch.setattr(session_and_catalog, "SparkSession", SimpleNamespace(builder=builder))
    for name in ("b.jar", "a.jar", "c.txt"):
        (tmp_path / name).touch()

    session_of(config_of(monkeypatch, **{"spark.jars": f"s3://lake/*.jar,{tmp_path}/*.jar,x.jar"}))

    assert builder["spark.jars"] == f"s3://lake/*.jar,{tmp_path}/a.jar,{tmp_path}/b.jar,x.jar"
    with pytest.raises(OptionError, match=r"\[spark\] spark\.jars: no file matches .*/\*\.zip"):
        session_of(config_of(monkeypatch, **{"spark.jars": f"{tmp_path}/*.zip"}))


def test_the_daemon_imports_what_workers_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """It imports PySpark's worker, the decoding, and the module that Spark names, before it forks."""
    done: list[str] = []
    monkeypatch.setattr(importlib, "import_module", done.append)
    monkeypatch.setattr(python_daemon, "manager", lambda: done.append("forks"))

    python_daemon.main(["pyspark.daemon.other"])

    assert done == ["pyspark.worker", "ticdc_source.spark.frames", "pyspark.daemon.other", "forks"]
