"""A Spark session on two cores of this machine that logs little and leaves nothing behind.

For your own work, use `SparkSession.builder.getOrCreate()`: Spark finds the format by itself if the package
`pyspark_ticdc` is on the Python path, as it is in this project's folder.
"""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
STOP_SECONDS = 15.0


class SparkStartError(RuntimeError):
    """Spark's Java did not start; the message ends with its output."""


@contextmanager
def spark_session(folder: Path) -> Iterator[SparkSession]:
    """Yield a session that finds the format `ticdc`; its Java process ends with the `with` block."""
    # Spark's workers use this Python, and find this project.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    logging.getLogger().addHandler(logging.NullHandler())  # otherwise py4j prints a page of its own code at Ctrl-C
    settings = {
        "spark.app.name": "ticdc demo",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile='{HERE / 'log4j2.properties'}' -Djava.io.tmpdir='{folder}'"
        ),
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(folder),
        "spark.python.daemon.module": "examples.demo.python_daemon",
        "spark.master": "local[2]",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    conf = SparkConf().setAll(list(settings.items()))
    with _java(conf, folder / "spark.log") as gateway:
        context = SparkContext(conf=conf, gateway=gateway)
        spark = SparkSession(context)
        try:
            yield spark
        finally:
            spark.stop()


@contextmanager
def _java(conf: SparkConf, log: Path) -> Iterator[Any]:
    """Start Spark's Java with a log file, and stop it at the end."""
    launch: Any = launch_gateway  # has no types
    with log.open("wb") as file, _held_back() as signals:
        try:
            gateway = launch(conf, {"stdout": file, "stderr": file})
        except PySparkRuntimeError as error:
            raise SparkStartError(
                f"Spark's Java did not start, and said:\n{log.read_text(errors='replace')}"
            ) from error
    try:
        if signals:
            raise KeyboardInterrupt
        yield gateway
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()  # PySpark stops it in the same way, but does not wait for its end
        try:
            gateway.proc.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            gateway.proc.kill()
            gateway.proc.wait()


@contextmanager
def _held_back() -> Iterator[list[int]]:
    """Hold signals back: a Java process that is just starting could not be stopped."""
    signals: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: signals.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
