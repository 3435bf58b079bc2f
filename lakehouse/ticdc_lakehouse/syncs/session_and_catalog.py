"""The Spark session of a sync, with its packages, settings and catalog.

Spark downloads the jars once, from Maven Central (`spark.jars.packages`). If PYSPARK_SUBMIT_ARGS or the section
`[spark]` names jars or packages, only these are used. spark-submit needs them as arguments, because its JVM starts
before this program.

Tables in a folder have Delta's catalog, or a Hadoop catalog of Iceberg. Any other catalog (REST, Hive, Glue, JDBC) is
configured in the section `[spark]`, as `spark.sql.catalog.NAME`, and only checked here.

Secrets are set once the session runs, because PySpark passes other settings to its JVM as arguments.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyspark
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.syncs.config import SyncConfig
from ticdc_lakehouse.syncs.names import CATALOG_OF_A_FOLDER
from ticdc_lakehouse.targets.opening import ENGINES
from ticdc_lakehouse.targets.sessions import SUBSTITUTE, in_thread
from ticdc_source.errors import OptionError

_UNDER_SPARK_SUBMIT = "PYSPARK_GATEWAY_PORT"  # spark-submit sets it for the program that it runs

_COMMON = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",  # 200 by default; a micro-batch cannot adapt it
    # 100 by default, enough for ten tables. Code that is not in the cache is compiled again in each micro-batch.
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.ui.showConsoleProgress": "false",
}
_HADOOP = "spark.hadoop."
_MOST_WORKERS = 4
_DAEMON = "spark.python.daemon.module"
_JARS = ("spark.jars", "spark.jars.packages")
_SUBMITTED = ("jars", "packages")
_REMOTE = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
_NO_JVM = (
    "Spark did not start; the lines above say why. If they say 'unresolved dependency' or 'download failed', its "
    "packages could not be fetched, or ~/.m2 has the description of a jar without the jar: see 'Questions and "
    "errors of syncs' in the documentation"
)
# Spark logs the error that ends a query with two tracebacks of Java; the command says it in one line.
_ENDS_OF_QUERIES = (
    "org.apache.spark.sql.execution.streaming.MicroBatchExecution",  # up to Spark 4.0
    "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution",
)
_NO_CONNECT = (
    "A sync cannot run over Spark Connect, which runs foreachBatch in a separate process that cannot report the state "
    "of tables. Start the sync on Spark's driver, with spark-submit or without SPARK_REMOTE; see 'Catalogs, S3 and "
    "clusters' in the documentation"
)


def refuse_connect(spark: SparkSession) -> None:
    """Raise an `OptionError` for a session of Spark Connect, before anything is written."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise OptionError(_NO_CONNECT)


def session_of(config: SyncConfig) -> SparkSession:
    if "spark.remote" in config.spark or any(os.environ.get(name) for name in _REMOTE):
        raise OptionError(_NO_CONNECT)
    # Spark's workers use this Python. PySpark itself leaves `spark.pyspark.python` to spark-submit.
    os.environ.setdefault("PYSPARK_PYTHON", config.spark.get("spark.pyspark.python", sys.executable))
    engine = ENGINES[config.format]
    catalog = {} if config.path is None else engine.folder_catalog(CATALOG_OF_A_FOLDER, config.layout.folder)
    settings = {**_COMMON, **engine.session, **catalog}
    arguments = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    has_jars = any(name in config.spark for name in _JARS) or any(f"--{name}" in arguments for name in _SUBMITTED)
    if not has_jars and _UNDER_SPARK_SUBMIT not in os.environ:
        settings["spark.jars.packages"] = package_of(config.format)
    builder = SparkSession.builder.appName(f"ticdc-lakehouse sync {','.join(config.reads)}")
    # PySpark passes the settings of the builder to spark-submit as arguments, which other users of the machine can see.
    secrets = config.secret_spark
    for name, value in {**settings, **config.spark}.items():
        if name not in secrets:
            builder = builder.config(name, _expanded(value) if name == "spark.jars" else value)
    try:
        spark = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise TargetError(_NO_JVM) from None
    _quiet(spark)
    _check_jars(spark, config.format)
    _set_secrets(spark, secrets)
    spark.conf.set(SUBSTITUTE, "false")  # whatever [spark] says
    _check_catalog(spark, config.catalog)
    _preload_workers(spark)
    return spark


def _expanded(jars: str) -> str:
    """Return the list of jars with its patterns replaced by files, as Spark expands patterns only in `--jars`."""
    names: list[str] = []
    for jar in jars.split(","):
        local = jar.strip().removeprefix("file://")
        path = Path(local)
        is_pattern = "*" in path.name and "://" not in local
        files = sorted(map(str, path.parent.glob(path.name))) if is_pattern else [jar]
        if not files:
            raise OptionError(f"[spark] spark.jars: no file matches {jar}")
        names += files
    return ",".join(names)


def _quiet(spark: SparkSession) -> None:
    """Keep Spark from logging errors that the command prints itself."""
    log4j: Any = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]  # noqa: SLF001
    for name in _ENDS_OF_QUERIES:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


def _set_secrets(spark: SparkSession, secrets: Mapping[str, str]) -> None:
    """Set secret settings of the running session; a setting that Spark takes only at its start is an error."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 (no other way)
    for name, value in secrets.items():
        if name.startswith(_HADOOP):
            hadoop.set(name.removeprefix(_HADOOP), value)
            continue
        try:
            spark.conf.set(name, value)
        except Exception:  # noqa: BLE001 (of Spark or Py4J; its text may have the value)
            raise OptionError(
                f"[spark] {name}: Spark takes this setting only at its start, as an argument that other users of the "
                "machine can see, so its value cannot be secret. Write it into spark-defaults.conf; or, if the value "
                "is no secret, write the value itself into sync.toml"
            ) from None


def _preload_workers(spark: SparkSession) -> None:
    """Let Spark fork Python workers from a process that has imported their modules, which saves a second for each.

    Only in local mode: a node of a cluster may get this package only with a task.
    """
    context = spark.sparkContext._jsc.sc()  # noqa: SLF001 (no other way)
    settings = context.env().conf()
    if context.isLocal() and not settings.contains(_DAEMON):
        settings.set(_DAEMON, "ticdc_source.spark.python_daemon")


def start_workers(spark: SparkSession) -> None:
    """Let Spark start its Python workers now, in the background, as the first one takes seconds.

    Only in local mode, where the workers of all tasks are those of one node.
    """
    if not spark.sparkContext._jsc.sc().isLocal():  # noqa: SLF001 (no other way)
        return

    def run() -> None:
        with suppress(Exception):  # the first micro-batch raises the same error
            rows = spark.range(0, 1, numPartitions=min(spark.sparkContext.defaultParallelism, _MOST_WORKERS))
            rows.mapInArrow(lambda batches: batches, rows.schema).collect()

    threading.Thread(target=in_thread(spark, run), name="ticdc-sync workers", daemon=True).start()


def _check_jars(spark: SparkSession, engine: str) -> None:
    """Refuse a session without the jars of the engine; Spark itself only logs that an extension is missing."""
    utils: Any = spark.sparkContext._jvm.org.apache.spark.util.Utils  # type: ignore[union-attr]  # noqa: SLF001
    name = ENGINES[engine].session["spark.sql.extensions"].replace(".", "/")
    if utils.getContextOrSparkClassLoader().getResource(f"{name}.class") is not None:
        return
    package = package_of(engine)
    submit = f"spark-submit --packages {package} …"
    advice = submit if _UNDER_SPARK_SUBMIT in os.environ else f'[spark] "spark.jars.packages" = "{package}"'
    raise OptionError(
        f"The Spark session has no {engine.title()}, whose jars Spark needs at its start. Add them: {advice}"
    )


def _check_catalog(spark: SparkSession, catalog: str | None) -> None:
    name = "" if catalog is None else catalog.partition(".")[0].strip("`")
    if name in ("", "spark_catalog") or spark.conf.get(f"spark.sql.catalog.{name}", None) is not None:
        return
    raise OptionError(
        f"target.catalog = {catalog!r}: the session has no catalog {name}. Configure it in [spark], for example "
        f'"spark.sql.catalog.{name}" = "org.apache.iceberg.spark.SparkCatalog"'
    )


def package_of(engine: str) -> str:
    release = ".".join(pyspark.__version__.split(".")[:2])
    package = ENGINES[engine].packages.get(release)
    if package is not None:
        return package
    tested = " or ".join(f"pip install 'pyspark=={version}.*'" for version in reversed(ENGINES[engine].packages))
    raise OptionError(f"{engine} has no release for PySpark {pyspark.__version__}. Install another one: {tested}")
