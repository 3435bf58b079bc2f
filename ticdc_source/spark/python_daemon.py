"""PySpark's daemon of Python workers, with the workers' modules already imported.

Spark forks a worker for each concurrent Python task. Without this, each takes a second to import PySpark, PyArrow and
this package. Spark starts it by the setting `spark.python.daemon.module`.
"""

from __future__ import annotations

import importlib
import sys

from pyspark.daemon import manager

_USED_BY_EVERY_WORKER = ("pyspark.worker", "ticdc_source.spark.frames")


def main(modules: list[str]) -> None:
    """Import the common and the given modules, then fork workers."""
    for module in (*_USED_BY_EVERY_WORKER, *modules):
        importlib.import_module(module)
    manager()


if __name__ == "__main__":
    main(sys.argv[1:])
