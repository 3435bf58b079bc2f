"""Diagnosis of a Spark session's executors: `diagnose` in a task on each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ticdc_source.inspection.report import Check, Diagnosis
from ticdc_source.schema.json_text import loads

# If all cores are free, each registered executor gets a task. Over Spark Connect the number of cores is a guess.
_TASKS_PER_CORE = 2
_GUESSED_CORES = 8


def diagnose_executors(given: Mapping[str, str]) -> dict[str, Diagnosis]:
    """Take every step of a read on the executors of the active Spark session, or of a new one.

    Returns:
        The steps by host and Python of the workers; of executors that share both, those of the task with the most
        failures. If the package cannot be imported there, the only step is a failed one.
    """
    spark = SparkSession.builder.getOrCreate()
    options = dict(given)

    # Spark ships a nested function as code, but one of this module by name, which needs this package on the executor.
    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import platform  # noqa: PLC0415
        import socket  # noqa: PLC0415
        import sys  # noqa: PLC0415

        import pyarrow as pa  # noqa: PLC0415

        for _ in batches:
            pass
        try:
            from ticdc_source.inspection.doctor import diagnose  # noqa: PLC0415

            checks = diagnose(options, in_worker=True).as_json()["checks"]
        except ImportError as error:
            checks = str(error)
        except Exception as error:  # noqa: BLE001 (it must not hide the other reports; its text may show secrets)
            checks = type(error).__name__
        where = f"{socket.gethostname()}, Python {platform.python_version()}, {sys.executable}"
        yield pa.RecordBatch.from_pydict({"executor": [where], "checks": [json.dumps(checks)]})

    tasks = max(_TASKS_PER_CORE * _cores(spark), 1)
    frame = spark.range(0, tasks, 1, tasks).mapInArrow(look, "executor string, checks string")
    try:
        rows = frame.collect()
    except PySparkException as error:  # such as workers that cannot import PyArrow
        return {"all": _diagnosis(str(error).strip().partition("\n")[0])}
    diagnoses: dict[str, Diagnosis] = {}
    for executor, checks in sorted(map(tuple, rows)):
        diagnosis = _diagnosis(loads(checks))
        if executor not in diagnoses or _failures(diagnosis) > _failures(diagnoses[executor]):
            diagnoses[executor] = diagnosis
    return diagnoses


def _failures(diagnosis: Diagnosis) -> int:
    return sum(check.result == "failed" for check in diagnosis.checks)


def _cores(spark: SparkSession) -> int:
    try:
        return spark.sparkContext.defaultParallelism
    except Exception:  # noqa: BLE001 (Spark Connect has no context, and an error of its own for that)
        return _GUESSED_CORES


def _diagnosis(checks: object) -> Diagnosis:
    """Return the steps that a task took, or one failed step if it took none and says why."""
    if isinstance(checks, list):
        return Diagnosis(checks=[Check(**each) for each in checks])
    mend = "install ticdc-source and its dependencies in the Python of the executors (PYSPARK_PYTHON)"
    lacks = Check(step="package", subject="ticdc-source", result="failed", message=str(checks), mend=mend, seconds=0.0)
    return Diagnosis(checks=[lacks])
