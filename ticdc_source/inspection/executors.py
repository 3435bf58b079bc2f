"""What the executors of a Spark session have, and whether they reach the brokers: `diagnose` in a task on each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from ticdc_source.inspection.report import Check, Diagnosis

__all__ = ["diagnose_executors"]

_TASKS_PER_CORE = 2  # so that no executor is left out, as long as all cores are free


def diagnose_executors(given: Mapping[str, str]) -> dict[str, Diagnosis]:
    """Take every step of a read on each executor of the session that is active, or of a new one.

    Args:
        given: the options, as `spark.read.format("ticdc")` takes them.

    Returns:
        The steps by executor: its host, and the Python of its workers. A Python that cannot import this package has one
        step, which has failed.
    """
    spark = SparkSession.builder.getOrCreate()
    options = dict(given)

    # A nested function travels as code. One of this module would travel by name, which a Python without it lacks.
    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import json  # noqa: PLC0415 (where the task runs)
        import platform  # noqa: PLC0415
        import socket  # noqa: PLC0415
        import sys  # noqa: PLC0415

        import pyarrow as pa  # noqa: PLC0415

        for _ in batches:
            pass
        try:
            from ticdc_source.inspection.doctor import diagnose  # noqa: PLC0415

            found: Any = diagnose(options).as_json()["checks"]
        except ImportError as error:
            found = f"{type(error).__name__}: {error}"
        where = f"{socket.gethostname()}, Python {platform.python_version()}, {sys.executable}"
        yield pa.RecordBatch.from_pydict({"executor": [where], "checks": [json.dumps(found)]})

    tasks = max(_TASKS_PER_CORE * _cores(spark), 1)
    frame = spark.range(0, tasks, 1, tasks).mapInArrow(look, "executor string, checks string")
    by_executor = {row["executor"]: json.loads(row["checks"]) for row in frame.distinct().collect()}
    return {executor: _diagnosis(found) for executor, found in sorted(by_executor.items())}


def _cores(spark: SparkSession) -> int:
    try:
        return spark.sparkContext.defaultParallelism
    except Exception:  # noqa: BLE001 (a session of Spark Connect has no context, and says so in its own way)
        return 8


def _diagnosis(found: object) -> Diagnosis:
    if isinstance(found, list):
        return Diagnosis(checks=[Check(**each) for each in found])
    mend = "install ticdc-source and its dependencies in the Python of the executors (PYSPARK_PYTHON)"
    lacks = Check(step="package", subject="ticdc-source", result="failed", message=str(found), mend=mend, seconds=0.0)
    return Diagnosis(checks=[lacks])
