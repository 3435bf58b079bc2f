"""Spark where a sibling package is broken and workers lack a package: `python -m tests.spark.poor_environment …`."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

# What Python runs at its start, put before all else on the path of Spark's workers: kafka cannot be imported as long
# as the file is there.
_SITE = """
import os, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "kafka" and os.path.exists({flag!r}):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
"""


def main(servers: str, topic: str) -> None:
    """Try to read a topic three times, and print how each went.

    The folder where this runs becomes a part of the workers' environment.
    """
    here = Path.cwd()
    flag = here / "no-kafka"
    flag.touch()
    (here / "sitecustomize.py").write_text(_SITE.format(flag=str(flag)))
    (here / "pyspark_broken.py").write_text("raise RuntimeError('broken on purpose')")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(here), os.environ["PYTHONPATH"]])
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = (
        builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate()
    )

    def read() -> int:
        reader = spark.read.format("ticdc").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
        return reader.load().count()

    attempt("unregistered", read)
    from ticdc_source.source import TiCDCDataSource

    spark.dataSource.register(TiCDCDataSource)
    attempt("without kafka", read)
    flag.unlink()
    attempt("registered", read)
    spark.stop()


def attempt(name: str, read: Callable[[], int]) -> None:
    """Print what comes of it, in one line."""
    try:
        outcome = f"{read()} rows"
    except Exception as error:  # noqa: BLE001 (the kind is what is looked at)
        outcome = " ".join(str(error).split())
    print(f"{name}: {outcome}", flush=True)  # noqa: T201 (to the parent)


if __name__ == "__main__":
    main(*sys.argv[1:])
