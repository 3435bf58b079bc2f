"""One side of the benchmark of `sync`, in the environment of an engine's PySpark: a process that does as it is told.

    python -m lakehouse.benchmarks.sync_side REQUEST.json

It reads a word a line from its input, and answers each with one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from benchmarks.corpus import Table
from benchmarks.corpus.tables import DATABASE, Column
from benchmarks.opponents import hand_written
from ticdc_lakehouse import SyncConfig, sync
from ticdc_lakehouse.syncs.session_and_catalog import session_of
from ticdc_lakehouse.targets.opening import ENGINES
from ticdc_source.schema.table_name import TableName

OURS, TUNED, DEFAULT = "ticdc", "tuned", "default"
# What a user sets who has read about small tables: both numbers are for two cores.
TUNING = {"spark.databricks.delta.snapshotPartitions": "2", "spark.sql.shuffle.partitions": "2"}
EVERY = "1 second"
_POLL_SECONDS = 0.05
_PATIENCE_SECONDS = 1800.0


class Side:
    """A pipeline that keeps tables equal to the records of a topic: ours, or one written by hand.

    Args:
        request: what the file says.
    """

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.name, self.engine = request["side"], request["engine"]
        self.tables = [Table(name, tuple(Column(*one) for one in columns)) for name, columns in request["tables"]]
        self.folder = Path(request["folder"])
        kafka = {"kafka.bootstrap.servers": request["servers"], "subscribe": request["topic"]}
        source = {**kafka, "protocol": "canal-json", "timeZone": "UTC"}
        self.config = SyncConfig(
            source=source,
            format=self.engine,
            path=str(self.folder / "lake"),
            checkpoint=str(self.folder / "checkpoint"),
            trigger=EVERY,
            parallel=request["parallel"],
        )
        self.spark = self._session()
        self.targets = {one.name: self.config.layout.target(TableName(DATABASE, one.name)) for one in self.tables}
        self._failed: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._seen: tuple[str, int] = ("", -1)
        if self.name != OURS:
            self._create()

    def _session(self) -> SparkSession:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        if self.name == OURS:
            return session_of(self.config)
        builder = SparkSession.builder.appName(f"by hand, {self.name}")
        settings = {**ENGINES[self.engine].session, "spark.sql.session.timeZone": "UTC"}
        settings.pop("spark.databricks.delta.snapshotPartitions", None)
        if self.engine == "iceberg":
            catalog = "spark.sql.catalog.lake"
            settings |= {catalog: "org.apache.iceberg.spark.SparkCatalog", f"{catalog}.type": "hadoop"}
            settings[f"{catalog}.warehouse"] = str(self.folder / "lake")
        for name, value in {**settings, **(TUNING if self.name == TUNED else {})}.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()

    def _create(self) -> None:
        if self.engine == "iceberg":
            self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{DATABASE}")
        hand_written.create(self.spark, self.engine, self.targets, self.tables)

    def start(self) -> dict[str, Any]:
        run = self._sync if self.name == OURS else self._by_hand

        def guarded() -> None:
            try:
                run()
            except BaseException as error:  # noqa: BLE001 (told by the next answer)
                self._failed = error

        self._failed = None
        self._thread = threading.Thread(target=guarded, daemon=True)
        self._thread.start()
        return {}

    def _sync(self) -> None:
        report = sync(self.spark, self.config)
        if report.set_aside:
            raise RuntimeError(report.set_aside)

    def _by_hand(self) -> None:
        options = {
            "kafka.bootstrap.servers": self.request["servers"],
            "subscribe": self.request["topic"],
            "startingOffsets": "earliest",
        }
        stream = hand_written.records_of(self.spark, options).writeStream
        stream = stream.foreachBatch(hand_written.merging(self.targets, self.tables)).trigger(processingTime=EVERY)
        stream.option("checkpointLocation", self.config.checkpoint).start().awaitTermination()

    def wait(self) -> dict[str, Any]:
        """Wait until the stream has read the topic up to some offsets; return Spark's reports of its micro-batches."""
        ends = json.loads(Path(self.request["ends"]).read_text())
        reports: list[dict[str, Any]] = []
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if self._failed is not None:
                raise self._failed
            active = self.spark.streams.active
            progress = active[0].lastProgress if active else None
            if progress is not None and progress["numInputRows"]:
                own = (str(progress["runId"]), int(progress["batchId"]))
                if own != self._seen:
                    self._seen = own
                    reports.append({"batch": own[1], "ms": dict(progress["durationMs"])})
                    read = json.loads(progress.json)["sources"][0]["endOffset"]
                    read = json.loads(read) if isinstance(read, str) else read
                    if read[self.request["topic"]] == ends:
                        return {"batches": reports}
            time.sleep(_POLL_SECONDS)
        raise TimeoutError(f"the topic was not read within {_PATIENCE_SECONDS} s")

    def stop(self) -> dict[str, Any]:
        """Stop the stream."""
        for query in self.spark.streams.active:
            query.stop()
        if self._thread is not None:
            self._thread.join()
        return {}

    def write(self) -> dict[str, Any]:
        frames = [self._rows(table) for table in self.tables if table.name in self.request["compared"]]
        path = self.folder / "rows"
        reduce(DataFrame.union, frames).coalesce(1).write.mode("overwrite").parquet(str(path))
        return {"path": str(path)}

    def _rows(self, table: Table) -> DataFrame:
        if self.engine == "iceberg":  # its catalog caches a table for 30 seconds
            self.spark.catalog.refreshTable(self.targets[table.name])
        frame = self.spark.table(self.targets[table.name])
        live = frame.where("NOT _is_deleted") if self.name == OURS else frame
        values = sf.to_json(sf.struct(*(sf.col(name) for name, _ in table.columns)), {"ignoreNullFields": "false"})
        return live.select(sf.lit(table.name).alias("name"), values.alias("row"))


def main(path: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Spark prints is no answer
    side = Side(json.loads(Path(path).read_text()))
    print(json.dumps({"pyspark": side.spark.version}), file=answers, flush=True)
    verbs: dict[str, Callable[[], dict[str, Any]]] = {
        "start": side.start,
        "wait": side.wait,
        "stop": side.stop,
        "write": side.write,
    }
    for line in sys.stdin:
        if line.strip() == "end":
            break
        try:
            answer = verbs[line.strip()]()
        except BaseException as error:  # noqa: BLE001 (told, whatever it is)
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
    side.stop()
    side.spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
