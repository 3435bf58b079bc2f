"""Spark's daemons of Python workers import once what each of their workers needs.

Spark forks a worker for every schema, every plan and every read that follows a failure; PySpark's daemon imports
nothing, so that each worker takes a second to import PySpark, PyArrow and this package.
"""

import importlib
import sys

if "pyspark.daemon" in sys.orig_argv:
    for module in ("pyspark.worker", "ticdc_source.source", "ticdc_source.spark.batch", "ticdc_source.spark.stream"):
        importlib.import_module(module)
    if sys.orig_argv[-1].startswith("pyspark.sql.worker."):
        importlib.import_module(sys.orig_argv[-1])
