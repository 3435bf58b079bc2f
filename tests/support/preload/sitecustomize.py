"""Spark's daemons of Python workers import once what each of their workers needs.

Spark forks a worker for every schema, every plan and every read that follows a failure; PySpark's daemon imports
nothing, so that each worker takes a second to import PySpark, PyArrow and this package.

And all of Spark's Pythons import the installed PySpark, not the zip that Spark puts before it: the zip has no compiled
modules, so that each start takes a second more, and Spark gives up a stream's Python that has not started in ten.
"""

import importlib
import os
import sys

outside = [folder for folder in sys.path if not folder.endswith("pyspark.zip")]
if any(os.path.exists(os.path.join(folder, "pyspark", "__init__.py")) for folder in outside):  # noqa: PTH110, PTH118
    sys.path[:] = outside

if "pyspark.daemon" in sys.orig_argv:
    for module in ("pyspark.worker", "ticdc_source.spark.source", "ticdc_source.spark.readers"):
        importlib.import_module(module)
    if sys.orig_argv[-1].startswith("pyspark.sql.worker."):
        importlib.import_module(sys.orig_argv[-1])
