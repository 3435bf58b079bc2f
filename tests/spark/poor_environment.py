"""Spark with a broken sibling package and workers that lack a package.

python -m tests.spark.poor_environment BOOTSTRAP TOPIC
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from tests.support.spark_settings import LOCAL

# Python runs this at its start, because it comes first on the path of Spark's workers: kafka cannot be imported as long
# as a file exists.
_SITE = """
import os, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "kafka" and os.path.exists({flag!r}):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
"""


def main(servers: str, topic: str) -> None:
    """Read a topic three times, and print the outcome of each attempt.

    The current folder becomes a part of the workers' environment.
    """
    here = Path.cwd()
    flag = here / "no-kafka"
    flag.touch()
    (here / "sitecustomize.py").write_text(_SITE.format(flag=str(flag)))
    (here / "pyspark_broken.py").write_text("raise RuntimeError('broken on purpose')")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(here), os.environ["PYTHONPATH"]])
    spark = SparkSession.builder.master("local[1]").config(map={**LOCAL}).getOrCreate()

    def read() -> int:
        reader = spark.read.format("ticdc").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
        return reader.load().count()

    attempt("unregistered", read)
    from ticdc_source.spark.source import TiCDCDataSource

    spark.dataSource.register(TiCDCDataSource)
    attempt("without kafka", read)
    flag.unlink()
    attempt("registered", read)
    spark.stop()


def attempt(name: str, read: Callable[[], int]) -> None:
    """Print the outcome of a read in one line."""
    try:
        outcome = f"{read()} rows"
    except Exception as error:  # noqa: BLE001 (any error is an outcome)
        outcome = " ".join(str(error).split())
    print(f"{name}: {outcome}", flush=True)  # noqa: T201 (to the parent)


if __name__ == "__main__":
    main(*sys.argv[1:])
