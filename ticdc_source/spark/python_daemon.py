"""PySpark's daemon of Python workers, with what every worker needs already imported.

Spark forks a worker for each task that runs Python at the same time as others. Without this, each imports PySpark,
PyArrow and this package again, for a second. Spark starts it because of the setting `spark.python.daemon.module`.
"""

from __future__ import annotations

import importlib
import sys

from pyspark.daemon import manager

_USED_BY_EVERY_WORKER = ("pyspark.worker", "ticdc_source.spark.frames")


def main(modules: list[str]) -> None:
    """Import what every worker needs and the modules of the workers, and fork workers from then on."""
    for module in (*_USED_BY_EVERY_WORKER, *modules):
        importlib.import_module(module)
    manager()


if __name__ == "__main__":
    main(sys.argv[1:])
