"""PySpark's daemon of Python workers, with what every worker needs already imported.

Spark forks a worker for each schema, each plan and each task. Without this, every new one imports PySpark, PyArrow and
this project again, for a second. Spark starts it because of the setting `spark.python.daemon.module`.
"""

import importlib
import sys

from pyspark.daemon import manager

USED_BY_EVERY_WORKER = ("pyspark.worker", "ticdc_source.spark.source")

if __name__ == "__main__":
    for module in (*USED_BY_EVERY_WORKER, *sys.argv[1:]):  # Spark names the module of the workers
        importlib.import_module(module)
    manager()
