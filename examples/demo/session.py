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
    """Give a session that knows `ticdc` as a format; its Java process ends with the `with` block.

    Args:
        folder: Where Spark is to keep what it writes.
    """
    # Spark's workers are to be this Python, and to find this project.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile='{HERE / 'log4j2.properties'}'",
        "spark.local.dir": str(folder),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
    }
    builder = SparkSession.builder.master("local[2]").appName("ticdc demo").config(map=settings)
    with _java_says_to(folder / "spark.log"):
        spark = builder.getOrCreate()
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 (PySpark has no public way to end Java)
    try:
        spark.dataSource.register(TiCDCDataSource)
        yield spark
    finally:
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


@contextmanager
def _java_says_to(log: Path) -> Iterator[None]:
    """Let a Java that is started here write to a file, which is shown when it does not start."""
    terminal = os.dup(2)
    try:
        with log.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    except Exception:
        os.write(terminal, log.read_bytes())
        raise
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
