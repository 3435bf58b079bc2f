"""A Spark session with its own Java process and Python workers, which knows `ticdc` and Spark's Kafka source."""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from ticdc_source.spark.source import TiCDCDataSource

ROOT = Path(__file__).resolve().parents[1]
_STOP_SECONDS = 15.0


class Session(NamedTuple):
    """A session, with its process and folder."""

    spark: SparkSession
    pid: int
    folder: Path


@contextmanager
def session(cores: int = 2, jars: Iterable[Path] = (), settings: Mapping[str, str] | None = None) -> Iterator[Session]:
    """Yield a new Spark session; its processes and files are gone after the `with` block."""
    with TemporaryDirectory(prefix="ticdc-bench-") as name:
        folder = Path(name)
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ["PYTHONPATH"] = str(ROOT)
        log_settings = ROOT / "examples" / "demo" / "log4j2.properties"  # only Spark's warnings
        conf = SparkConf().setAll([
            ("spark.app.name", "ticdc_source benchmarks"),
            ("spark.driver.bindAddress", "127.0.0.1"),
            ("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile='{log_settings}' -Djava.io.tmpdir='{name}'"),
            ("spark.driver.host", "127.0.0.1"),
            ("spark.jars", ",".join(map(str, jars))),
            ("spark.local.dir", name),
            ("spark.master", f"local[{cores}]"),
            ("spark.sql.session.timeZone", "UTC"),
            ("spark.sql.warehouse.dir", str(folder / "warehouse")),
            ("spark.ui.enabled", "false"),
            ("spark.ui.showConsoleProgress", "false"),
            *(settings or {}).items(),
        ])  # fmt: skip
        with _java(conf, folder / "spark.log") as gateway:
            spark = SparkSession(SparkContext(conf=conf, gateway=gateway))
            try:
                spark.dataSource.register(TiCDCDataSource)
                yield Session(spark, gateway.proc.pid, folder)
            finally:
                spark.stop()


@contextmanager
def _java(conf: SparkConf, log: Path) -> Iterator[Any]:
    launch: Any = launch_gateway  # has no types
    with log.open("wb") as file:
        gateway = launch(conf, {"stdout": file, "stderr": file})
    try:
        yield gateway
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        try:
            gateway.proc.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            gateway.proc.kill()
            gateway.proc.wait()
        SparkContext._gateway = SparkContext._jvm = None  # the next session starts its own Java
