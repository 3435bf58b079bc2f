"""Delta and Iceberg: which release runs on which PySpark, its jars, and a session with it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from examples.local_kafka.jars import Release, kafka_jars
from tests.support.spark_settings import LOCAL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ENGINES", "SESSION", "Engine"]

SESSION = {
    **LOCAL,
    "spark.databricks.delta.snapshotPartitions": "2",  # 50 by default: a second for each look at a small table
    "spark.sql.shuffle.partitions": "1",
}


def sqlite() -> list[Path]:
    """Return the jar of SQLite's driver, for a JDBC catalog of Iceberg."""
    pom = Path(__file__).with_name("sqlite-pom.xml")
    return sorted(kafka_jars(Release("3.50.3", pom, "SQLite")).glob("*.jar"))


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A release of Delta or Iceberg."""

    name: str  # `delta` or `iceberg`
    version: str  # its release
    pyspark: str  # the PySpark with which it is tested; the newest releases of both engines share one
    pom: str  # the file that tells Maven which jars it needs

    @property
    def jars(self) -> list[Path]:
        """Its jars; Maven fetches them at first use."""
        release = Release(f"{self.version}-spark-{self.pyspark}", Path(__file__).with_name(self.pom), self.name.title())
        return sorted(kafka_jars(release).glob("*.jar"))

    def settings(self, folder: Path) -> dict[str, str]:
        common = {**SESSION, "spark.jars": ",".join(map(str, self.jars)), "spark.local.dir": str(folder / "local")}
        common["spark.sql.warehouse.dir"] = str(folder / "warehouse")
        if self.name == "delta":
            return {
                **common,
                "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            }
        return {
            **common,
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": str(folder / "lake"),
        }

    @contextmanager
    def session(self, folder: Path, more_jars: Sequence[Path] = ()) -> Iterator[SparkSession]:
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        settings = self.settings(folder)
        settings["spark.jars"] = ",".join((settings["spark.jars"], *map(str, more_jars)))
        spark = SparkSession.builder.master("local[2]").config(map={**settings}).getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()


ENGINES = {
    "delta-4.0": Engine(name="delta", version="4.0.1", pyspark="4.0.5", pom="delta-4.0-pom.xml"),
    "delta-4.4": Engine(name="delta", version="4.4.0", pyspark="4.1.4", pom="delta-4.4-pom.xml"),
    "iceberg-1.12": Engine(name="iceberg", version="1.12.0", pyspark="4.1.4", pom="iceberg-pom.xml"),
}
