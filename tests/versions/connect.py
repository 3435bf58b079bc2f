"""What must hold in Spark Connect: the source, `decode`, `tables`, the steps of `doctor`, and targets in Delta.

    python -m tests.versions.connect BOOTSTRAP FOLDER [ENGINE]

The client and the server, which PySpark starts, have the same Python, with PySpark and the dependencies of the package,
but no pytest. Its last line of output is a report in JSON.
"""

import argparse
import json
import os
import sys
import uuid
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

import ticdc_source
from examples.local_kafka import create_topic, delete_topic, produce
from lakehouse.tests.engines.engines import ENGINES, SESSION
from tests.support.captured import load
from tests.support.truth import tables_with_rows
from tests.versions.decoding import batch, equal, read, records
from tests.versions.scenario import CHANGES, PROTOCOLS
from ticdc_lakehouse import append_log, merge_into
from ticdc_source.inspection.executors import diagnose_executors

ORDER = ("_sequence.offset", "_sequence.rank")


def tables_of(spark: SparkSession, folder: Path) -> int:
    captured = load("canal-json.tidb-extension.types")
    frame = records(spark, captured, folder / "tables")
    state = ticdc_source.SyncState(str(folder / "sync"), partitions=len(captured.partitions))
    zone = captured.header["time_zone"]
    counts: dict[str, int] = {}
    for batch_id in range(2):
        with ticdc_source.tables(frame, state=state, batch_id=batch_id, timeZone=zone) as found:
            counts = {name: changes.count() for name, changes in found.items()}
    database, table = next(name for name in tables_with_rows(captured) if name[1] == "t_all")
    options = {"tables": f"`{database}`.`{table}`", "timeZone": zone}
    equal(counts[f"{database}.{table}"], len(read(captured, **options)))
    return sum(counts.values())


def source(spark: SparkSession, options: dict[str, str], folder: Path) -> int:
    """The server finds the format, takes it when a client registers it, and reads batches and streams."""
    found = spark.read.format("ticdc").options(**options).load().orderBy(*ORDER).collect()
    equal([(row["_change_type"], row["name"]) for row in found], CHANGES)

    spark.dataSource.register(ticdc_source.TiCDCDataSource)
    equal(spark.read.format("ticdc").options(**options).load().orderBy(*ORDER).collect(), found)
    stream = spark.readStream.format("ticdc").options(**options, startingOffsets="earliest").load()
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(folder / "state"))
    for _ in range(2):  # the second run finds nothing new
        writer.trigger(availableNow=True).start(str(folder / "rows")).awaitTermination()
    equal(spark.read.parquet(str(folder / "rows")).orderBy(*ORDER).collect(), found)
    return len(found)


def doctor(options: dict[str, str]) -> str:
    ((executor, diagnosis),) = diagnose_executors(options).items()
    equal([check for check in diagnosis.checks if check.result == "failed"], [])
    return executor


def targets(spark: SparkSession, options: dict[str, str], folder: Path) -> int:
    """merge_into and append_log write Delta tables; a repeated micro-batch does nothing."""
    changes = spark.read.format("ticdc").options(**options).load()
    merged, log = (f"delta.`{folder / name}`" for name in ("merged", "log"))
    for repeated in (False, True):
        report = merge_into(changes, merged, app_id="connect", batch_id=0)
        equal((report.created, report.repeated), (not repeated, repeated))
        append_log(changes, log, app_id="connect", batch_id=0)
    equal([(row["id"], row["name"]) for row in spark.table(merged).collect()], [(1, "b")])  # all have one commit-ts
    return spark.table(log).count()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.versions.connect")
    parser.add_argument("bootstrap", help="a broker's address")
    parser.add_argument("folder", type=Path, help="where to put what Spark writes")
    parser.add_argument("engine", nargs="?", choices=ENGINES, help="the engine of targets")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = ENGINES[arguments.engine].settings(folder) if arguments.engine else SESSION
    builder = SparkSession.builder.remote("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    topic = f"connect-{uuid.uuid4().hex[:12]}"
    create_topic(arguments.bootstrap, topic, 1)
    produce(arguments.bootstrap, topic, [(0, *message, [], None) for message in PROTOCOLS["canal-json"]])
    options = {"kafka.bootstrap.servers": arguments.bootstrap, "subscribe": topic}
    try:
        report: dict[str, object] = {
            "pyspark": pyspark.__version__,
            "remote": "connect" in type(spark).__module__,
            "rows": source(spark, options, folder),
            "decoded": batch(spark, folder),
            "rows of tables": tables_of(spark, folder),
            "executor": doctor(options),
        }
        if arguments.engine:
            report["logged"] = targets(spark, options, folder)
    finally:
        spark.stop()
        delete_topic(arguments.bootstrap, topic)
    print(json.dumps(report))  # noqa: T201


if __name__ == "__main__":
    main()
