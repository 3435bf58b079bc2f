"""What the executors of a Spark session have, and whether they reach the brokers: `diagnose` in a task on each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ticdc_source.inspection.report import Check, Diagnosis
from ticdc_source.schema.json_text import loads

# With all cores free, each registered executor gets a task. Over Spark Connect the number of cores is a guess.
_TASKS_PER_CORE = 2
_GUESSED_CORES = 8


def diagnose_executors(given: Mapping[str, str]) -> dict[str, Diagnosis]:
    """Take every step of a read on the executors of the active Spark session, or of a new session.

    Returns:
        The steps by host and Python of the workers. Executors that share both are one entry, with the steps of the task
        that has the most failures. Where this package cannot be imported, there is one step, which has failed.
    """
    spark = SparkSession.builder.getOrCreate()
    options = dict(given)

    # Spark ships a nested function as code. One of this module would go by its name, and a Python without this package
    # could not import it.
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
        except Exception as error:  # noqa: BLE001 (the report of the others is worth more; its text may show secrets)
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
    except Exception:  # noqa: BLE001 (a session of Spark Connect has no context, and says so in its own way)
        return _GUESSED_CORES


def _diagnosis(checks: object) -> Diagnosis:
    """Return the steps that a task took; or one that has failed, if it only tells why it took none."""
    if isinstance(checks, list):
        return Diagnosis(checks=[Check(**each) for each in checks])
    mend = "install ticdc-source and its dependencies in the Python of the executors (PYSPARK_PYTHON)"
    lacks = Check(step="package", subject="ticdc-source", result="failed", message=str(checks), mend=mend, seconds=0.0)
    return Diagnosis(checks=[lacks])
