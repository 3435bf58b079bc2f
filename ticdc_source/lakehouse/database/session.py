"""The Spark session of `ticdc-source sync`: the packages of an engine, and settings for micro-batches.

Spark fetches the jars itself, once, from Maven Central (`spark.jars.packages`). If PYSPARK_SUBMIT_ARGS, or the section
`[spark]`, names jars or packages, they are taken, and nothing else is fetched.
"""

from __future__ import annotations

import os
import re
import sys

import pyspark
from pyspark.sql import SparkSession

from ticdc_source.errors import OptionError
from ticdc_source.lakehouse.database.config import SyncConfig
from ticdc_source.lakehouse.database.names import CATALOG_OF_A_FOLDER

__all__ = ["PACKAGES", "SETTINGS", "refuse_connect", "session_of"]

# The Maven coordinates, by PySpark's version. Neither has a release for Spark 4.3 yet.
PACKAGES = {
    "delta": {
        "4.0": "io.delta:delta-spark_2.13:4.0.1",
        "4.1": "io.delta:delta-spark_4.1_2.13:4.4.0",
        "4.2": "io.delta:delta-spark_4.2_2.13:4.4.0",
    },
    "iceberg": {
        "4.0": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
        "4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    },
}
SETTINGS = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # 50 by default, which is a second for each look at a small table.
        "spark.databricks.delta.snapshotPartitions": "2",
    },
    "iceberg": {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    },
}
_COMMON = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",  # 200 by default; a micro-batch cannot adapt it
    "spark.ui.showConsoleProgress": "false",
}
_SECRET = re.compile("secret|password|token|credential|access.?key", re.IGNORECASE)
_HADOOP = "spark.hadoop."
_JARS = ("spark.jars", "spark.jars.packages")
_REMOTE = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
_NO_CONNECT = (
    "A sync does not run over Spark Connect: there, foreachBatch runs in another process for each query, which cannot "
    "tell this one what became of a table. Start it where Spark's driver is: without SPARK_REMOTE, or with "
    "spark-submit; see 'Tables in Delta and Iceberg' in the documentation"
)


def refuse_connect(spark: SparkSession) -> None:
    """Refuse a session of Spark Connect, before anything is written.

    Raises:
        OptionError: it is one.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise OptionError(_NO_CONNECT)


def session_of(config: SyncConfig) -> SparkSession:
    """Return a session that writes the tables of a sync.

    Raises:
        OptionError: the engine has no release for this PySpark, or the session would be one of Spark Connect.
    """
    if any(os.environ.get(name) for name in _REMOTE) or "spark.remote" in config.spark:
        raise OptionError(_NO_CONNECT)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's workers use this Python
    settings = {**_COMMON, **SETTINGS[config.format]}
    if config.format == "iceberg" and config.path is not None:
        catalog = f"spark.sql.catalog.{CATALOG_OF_A_FOLDER}"
        settings |= {catalog: "org.apache.iceberg.spark.SparkCatalog", f"{catalog}.type": "hadoop"}
        settings[f"{catalog}.warehouse"] = config.layout.folder
    submitted = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    if not any(name in config.spark for name in _JARS) and not any(f"--{name}" in submitted for name in _SUBMITTED):
        settings["spark.jars.packages"] = _package(config.format)
    builder = SparkSession.builder.appName(f"ticdc-source sync {','.join(config.topics)}")
    # PySpark passes what the builder knows to spark-submit, as arguments that other users of the machine see.
    secrets = {name: value for name, value in config.spark.items() if _SECRET.search(name)}
    for name, value in {**settings, **config.spark}.items():
        if name not in secrets:
            builder = builder.config(name, value)
    spark = builder.getOrCreate()
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 (no other way)
    for name, value in secrets.items():
        if name.startswith(_HADOOP):
            hadoop.set(name.removeprefix(_HADOOP), value)
        else:
            spark.conf.set(name, value)
    return spark


_SUBMITTED = ("jars", "packages")


def _package(engine: str) -> str:
    release = ".".join(pyspark.__version__.split(".")[:2])
    package = PACKAGES[engine].get(release)
    if package is not None:
        return package
    tested = " or ".join(f"pip install 'pyspark=={version}.*'" for version in reversed(PACKAGES[engine]))
    msg = f"{engine} has no release for PySpark {pyspark.__version__}: {tested}"
    raise OptionError(msg)
