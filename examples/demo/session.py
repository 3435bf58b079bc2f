"""A Spark session on two cores of this machine that keeps quiet and leaves nothing behind."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ticdc_source.source import TiCDCDataSource

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@contextmanager
def spark_session(folder: Path) -> Iterator[SparkSession]:
    """Give a session that knows `ticdc` as a format, and end its Java process with it.

    Args:
        folder: Where Spark keeps what it writes.
    """
    # Spark's workers are to be this Python, and to find this project.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile='{HERE / 'log4j2.properties'}'",
        "spark.local.dir": str(folder),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    spark = SparkSession.builder.master("local[2]").appName("ticdc demo").config(map=settings).getOrCreate()
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 (PySpark has no public way to end Java)
    try:
        spark.dataSource.register(TiCDCDataSource)
        yield spark
    finally:
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
