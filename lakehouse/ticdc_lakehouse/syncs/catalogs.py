"""The engines of a sync in a Spark session: their packages and settings, and the catalog in which the tables are.

Tables in a folder have Delta's catalog, or a Hadoop catalog of Iceberg. Any other (REST, Hive, Glue, JDBC) is
configured in the section `[spark]`, as `spark.sql.catalog.NAME`, and only checked here.
"""

from __future__ import annotations

import os
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from ticdc_lakehouse.syncs.config import SyncConfig
from ticdc_lakehouse.syncs.names import CATALOG_OF_A_FOLDER
from ticdc_source.errors import OptionError

__all__ = [
    "PACKAGES",
    "SETTINGS",
    "UNDER_SPARK_SUBMIT",
    "catalog_of_a_folder",
    "check_catalog",
    "check_jars",
    "package_of",
]

UNDER_SPARK_SUBMIT = "PYSPARK_GATEWAY_PORT"  # spark-submit sets it for the program that it runs
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


def catalog_of_a_folder(config: SyncConfig) -> dict[str, str]:
    """Return the settings of the catalog that Iceberg needs for tables in a folder; none for others."""
    if config.format != "iceberg" or config.path is None:
        return {}
    catalog = f"spark.sql.catalog.{CATALOG_OF_A_FOLDER}"
    return {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "hadoop",
        f"{catalog}.warehouse": config.layout.folder,
    }


def check_jars(spark: SparkSession, engine: str) -> None:
    """Refuse a session without the engine; Spark only logs that it lacks the class of an extension.

    Raises:
        OptionError: the jars of the engine are missing.
    """
    utils: Any = spark.sparkContext._jvm.org.apache.spark.util.Utils  # type: ignore[union-attr]  # noqa: SLF001
    name = SETTINGS[engine]["spark.sql.extensions"].replace(".", "/")
    if utils.getContextOrSparkClassLoader().getResource(f"{name}.class") is not None:
        return
    package = package_of(engine)
    submit = f"spark-submit --packages {package} …"
    advice = submit if UNDER_SPARK_SUBMIT in os.environ else f'[spark] "spark.jars.packages" = "{package}"'
    msg = f"This session has no {engine.title()}: Spark needs its jars before it starts. Give them: {advice}"
    raise OptionError(msg)


def check_catalog(spark: SparkSession, catalog: str | None) -> None:
    """Refuse a catalog that the session does not have.

    Raises:
        OptionError: it has no settings.
    """
    name = "" if catalog is None else catalog.partition(".")[0].strip("`")
    if name in ("", "spark_catalog") or spark.conf.get(f"spark.sql.catalog.{name}", None) is not None:
        return
    msg = (
        f"target.catalog = {catalog!r}: the session has no catalog {name}. Configure it in [spark], for example "
        f'"spark.sql.catalog.{name}" = "org.apache.iceberg.spark.SparkCatalog"'
    )
    raise OptionError(msg)


def package_of(engine: str) -> str:
    """Return the Maven coordinates of an engine for this PySpark.

    Raises:
        OptionError: there is no release.
    """
    release = ".".join(pyspark.__version__.split(".")[:2])
    package = PACKAGES[engine].get(release)
    if package is not None:
        return package
    tested = " or ".join(f"pip install 'pyspark=={version}.*'" for version in reversed(PACKAGES[engine]))
    msg = f"{engine} has no release for PySpark {pyspark.__version__}: {tested}"
    raise OptionError(msg)
