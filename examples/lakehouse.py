"""A Spark session with Delta or Iceberg, and the names of tables in a folder.

Spark fetches the jars itself, once, from Maven Central (`spark.jars.packages`). If PYSPARK_SUBMIT_ARGS has `--jars` or
`--packages`, they bring the jars, and nothing else is fetched:
`PYSPARK_SUBMIT_ARGS="--jars a.jar,b.jar pyspark-shell"`.
"""

import os
import sys

import pyspark
from pyspark.sql import SparkSession

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
    },
    "iceberg": {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
    },
}


def lakehouse_session(engine: str, folder: str, name: str) -> SparkSession:
    """Return a session that writes tables of `delta` or `iceberg` into a folder."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's workers use this Python
    packages = PACKAGES[engine].get(".".join(pyspark.__version__.split(".")[:2]))
    own_jars = any(option in os.environ.get("PYSPARK_SUBMIT_ARGS", "") for option in ("--jars", "--packages"))
    if packages is None and not own_jars:
        tested = ", or ".join(
            f"pip install 'pyspark=={version}.*' ({package})" for version, package in PACKAGES[engine].items()
        )
        sys.exit(f"{engine} has no release for PySpark {pyspark.__version__}. Use one of these: {tested}")
    builder = SparkSession.builder.appName(name).config("spark.sql.session.timeZone", "UTC")
    for setting, value in SETTINGS[engine].items():
        builder = builder.config(setting, value)
    if engine == "iceberg":
        builder = builder.config("spark.sql.catalog.lake.warehouse", folder)
    if packages is not None and not own_jars:
        builder = builder.config("spark.jars.packages", packages)
    spark = builder.getOrCreate()
    if spark.conf.get("spark.sql.shuffle.partitions") == "200":  # Spark's default; micro-batches cannot adapt it
        spark.conf.set("spark.sql.shuffle.partitions", "8")  # for tables of some gigabytes
    return spark


def table_in(engine: str, folder: str, table: str) -> str:
    """Return the name in SQL of the target of `shop.orders`: a folder of Delta, or a table of the catalog `lake`."""
    return f"lake.{table}" if engine == "iceberg" else f"delta.`{folder}/{table.replace('.', '/')}`"
