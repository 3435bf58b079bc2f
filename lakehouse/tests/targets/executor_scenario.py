"""Merges and appends while their executors are killed, with a real engine. Needs no pytest.

    python -m lakehouse.tests.targets.executor_scenario ENGINE FOLDER

Each write of rows finds that all executors were killed after the images were computed, and before the statement. It
prints a line of JSON: the rows of a table and of a log, and how many executors were killed.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lakehouse.tests.engines.engines import ENGINES
from ticdc_lakehouse import append_log, merge_into
from ticdc_lakehouse.targets.delta import DeltaTarget
from ticdc_lakehouse.targets.iceberg import IcebergTarget

SCHEMA = (
    "_change_type string, _sequence struct<commit_ts:bigint,rank:int,partition:int,offset:bigint,index:int>, "
    "id int, v string"
)


def executors(spark: SparkSession) -> list[int]:
    """Return the processes of the executors: children of the session's JVM."""
    jvm: Any = spark._jvm
    found = []
    for child in jvm.java.lang.ProcessHandle.current().children().toArray():
        command = Path(f"/proc/{child.pid()}/cmdline").read_bytes()
        if b"CoarseGrainedExecutorBackend" in command:
            found.append(int(child.pid()))
    return found


def main(engine: str, folder: str) -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local-cluster[1,2,700]").config("spark.executor.memory", "600m")
    spark = builder.config(map={**ENGINES[engine].settings(Path(folder))}).getOrCreate()
    killed: list[int] = []

    def after_a_kill(write: Callable[..., Any]) -> Callable[..., Any]:
        def killing(*given: Any) -> Any:
            for process in executors(spark):
                os.kill(process, signal.SIGKILL)
                killed.append(process)
            time.sleep(1)
            return write(*given)

        return killing

    def changes(*rows: tuple[Any, ...]) -> DataFrame:
        given = [(kind, (ts, int(kind != "delete"), 0, place, 0), *row) for place, (kind, ts, *row) in enumerate(rows)]
        return spark.createDataFrame(given, SCHEMA)

    kind = DeltaTarget if ENGINES[engine].name == "delta" else IcebergTarget
    names = [f"delta.`{folder}/{name}`" if kind is DeltaTarget else f"lake.shop.{name}" for name in ("t", "l")]
    merge_into(changes(("insert", 10, 1, "a"), ("insert", 10, 2, "b")), names[0], keys=["id"], format=kind.engine)
    for name in ("merge", "append"):
        setattr(kind, name, after_a_kill(getattr(kind, name)))
    new = changes(("update_postimage", 20, 1, "A"), ("delete", 20, 2, "b"), ("insert", 20, 3, "c"))
    merge_into(new, names[0], keys=["id"], format=kind.engine)
    append_log(new, names[1], format=kind.engine)
    rows = [[list(row) for row in spark.sql(f"SELECT id, v FROM {name} {where} ORDER BY id").collect()]  # noqa: S608
            for name, where in zip(names, ("WHERE NOT _is_deleted", ""), strict=True)]  # fmt: skip
    sys.stdout.write(f"{json.dumps({'rows': rows, 'killed': len(killed)})}\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
