"""The jars of an engine in a folder, for machines on which Spark cannot fetch packages."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from ticdc_lakehouse.snapshots.queries import DRIVER_COORDINATE
from ticdc_lakehouse.syncs.catalogs import package_of
from ticdc_lakehouse.syncs.spark_session import refuse_remote, started

__all__ = ["fetch_jars"]


def fetch_jars(engine: str, folder: Path, more: Sequence[str] = ()) -> list[Path]:
    """Fetch what a sync's session fetches (`spark.jars.packages`), with all that it depends on, and MySQL's driver.

    Spark resolves and fetches it, so its settings hold, such as `spark.jars.repositories` and `spark.jars.ivySettings`.

    Args:
        engine: `delta` or `iceberg`, of the release for this PySpark.
        folder: the folder of the jars; jars that it already has are left there.
        more: Maven coordinates of other packages.

    Returns:
        The jars that were fetched.

    Raises:
        OptionError: the engine has no release for this PySpark, or PySpark would use Spark Connect.
        TargetError: Spark does not start, as when it cannot fetch a package.
    """
    refuse_remote("Fetching jars starts Spark in this process: unset SPARK_REMOTE")
    packages = [package_of(engine), DRIVER_COORDINATE, *more]
    with tempfile.TemporaryDirectory(prefix="ticdc-ivy-") as ivy:  # an empty one: it gets these jars and no other
        builder = SparkSession.builder.master("local[1]").appName("ticdc-lakehouse collect")
        settings = {"spark.jars.packages": ",".join(packages), "spark.jars.ivy": ivy, "spark.ui.enabled": "false"}
        for name, value in settings.items():
            builder = builder.config(name, value)
        started(builder).stop()
        folder.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copy2(jar, folder)) for jar in sorted(Path(ivy, "jars").glob("*.jar"))]
