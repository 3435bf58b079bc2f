"""What must hold on every PySpark: a batch, a stream that is restarted, and a stream that failed in its first batch.

    python -m tests.versions.scenario BOOTSTRAP FOLDER

Needs PySpark and the dependencies of the package, but no pytest. Its last line of output is a report in JSON.
"""

import argparse
import datetime
import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from examples.local_kafka import create_topic, delete_topic, produce
from tests.support.messages import TSO, Message, canal, cell, debezium, open_message, open_row
from tests.support.spark_settings import LOCAL
from ticdc_source.spark.readers import HAS_ADMISSION_CONTROL
from ticdc_source.spark.source import TiCDCDataSource

TYPES = {"id": "int", "name": "varchar"}
OLD, NEW = {"id": "1", "name": "a"}, {"id": "1", "name": "b"}

# An insert, an update and a delete of one row in each protocol.
PROTOCOLS: dict[str, list[Message]] = {
    "open-protocol": [
        open_message(open_row({"u": {"id": cell(3, 1, 11), "name": cell(15, "a")}})),
        open_message(
            open_row(
                {"u": {"id": cell(3, 1, 11), "name": cell(15, "b")}, "p": {"id": cell(3, 1, 11), "name": cell(15, "a")}}
            )
        ),
        open_message(open_row({"d": {"id": cell(3, 1, 11), "name": cell(15, "b")}})),
    ],
    "canal-json": [
        canal("INSERT", [OLD], None, TYPES),
        canal("UPDATE", [NEW], [OLD], TYPES),
        canal("DELETE", [NEW], None, TYPES),
    ],
    "debezium": [
        debezium("c", None, {"id": 1, "name": "a"}),
        debezium("u", {"id": 1, "name": "a"}, {"id": 1, "name": "b"}),
        debezium("d", {"id": 1, "name": "b"}, None),
    ],
}
CHANGES = [("insert", "a"), ("update_preimage", "a"), ("update_postimage", "b"), ("delete", "b")]

# A value of each Arrow type.
EVERY_TYPE = open_message(open_row({"u": {
    "id": cell(3, 1, 11), "i8": cell(1, -128), "i16": cell(2, -5), "i64": cell(8, 2**63 - 1),
    "u64": cell(8, 2**64 - 1, 128), "f": cell(4, 0.5), "d": cell(5, 1e300), "dec": cell(246, "-0.10"),
    "s": cell(15, "é"), "b": cell(15, r"\xff", 1), "day": cell(10, "0001-01-01", 65),
    "dt": cell(12, "9999-12-31 23:59:59.999999", 65), "ts": cell(7, "2024-01-01 00:00:00", 65),
    "t": cell(11, "-838:59:59", 65), "v": cell(225, "[1,2]"),
}}))  # fmt: skip
EVERY_VALUE = {
    "id": 1, "i8": -128, "i16": -5, "i64": 2**63 - 1, "u64": Decimal(2**64 - 1), "f": 0.5, "d": 1e300,
    "dec": Decimal("-0.10"), "s": "é", "b": bytearray(b"\xff"), "day": datetime.date(1, 1, 1),
    "dt": datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001 (a DATETIME has no zone)
    "t": -datetime.timedelta(hours=838, minutes=59, seconds=59), "v": [1.0, 2.0],
}  # fmt: skip


class Scenario:
    """What must hold, with a broker, a Spark session and a folder."""

    def __init__(self, bootstrap: str, spark: SparkSession, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.spark = spark
        self.folder = folder
        self.largest = 0
        self._topics: list[str] = []

    def __enter__(self) -> "Scenario":  # noqa: PYI034  # typing.Self is Python 3.11's
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._topics:
            delete_topic(self.bootstrap, name)

    def batch(self) -> None:
        """Protocol and schema are inferred, and values of every type arrive."""
        for protocol, messages in PROTOCOLS.items():
            read = self.spark.read.format("ticdc").options(**self._options(self._topic(messages)))
            frame = read.option("includeMetadata", "all").load()
            rows = frame.orderBy("_sequence.offset", "_sequence.rank").collect()
            equal([(row["_change_type"], row["name"]) for row in rows], CHANGES)
            equal({(row["id"], row["_protocol"], row["_table"]) for row in rows}, {(1, protocol, "t")})

        read = self.spark.read.format("ticdc").options(**self._options(self._topic([EVERY_TYPE])))
        frame = read.option("minPartitions", "2").load()
        equal({name: frame.collect()[0][name] for name in EVERY_VALUE}, EVERY_VALUE)
        equal(frame.where("ts = timestamp'2024-01-01T00:00:00Z'").count(), 1)

    def stream(self) -> None:
        """A stream that is stopped, and restarted when there is more, writes every row exactly once."""
        name = self._topic((inserted(number) for number in range(30)), partitions=3)
        frame = self._stream(name, startingOffsets="earliest", maxOffsetsPerTrigger="10")
        query = self._to_parquet(frame, "stream").start()
        query.processAllAvailable()
        self.largest = max(progress["numInputRows"] for progress in query.recentProgress)
        query.stop()
        equal(self.largest <= 10, True)
        self._check("stream", range(30))
        if not HAS_ADMISSION_CONTROL:  # Trigger.AvailableNow is one micro-batch there
            frame = self._stream(name, startingOffsets="earliest")

        self._write(name, (inserted(number) for number in range(30, 60)), partitions=3)
        self._to_parquet(frame, "stream").trigger(availableNow=True).start().awaitTermination()
        self._check("stream", range(60))
        self._to_parquet(frame, "stream").trigger(availableNow=True).start().awaitTermination()
        self._check("stream", range(60))

    def crash(self) -> None:
        """A stream that begins at `latest` and fails in its first micro-batch resumes where it began."""
        for trigger in ({"availableNow": True}, {"processingTime": "0 seconds"}):
            label = f"crash-{next(iter(trigger))}"
            name = self._topic(inserted(number) for number in range(20))
            frame = self._stream(name, startingOffsets="latest")
            failing = frame.writeStream.foreachBatch(fail).option("checkpointLocation", self._path(label, "state"))
            try:
                failing.trigger(**trigger).start().awaitTermination()
            except StreamingQueryException as error:
                equal(FAILURE in str(error), True)
            else:
                equal("ended", "failed")
            self._write(name, (inserted(number) for number in range(20, 40)))
            move_end(self.folder / label / "state", name, 20, 30)  # as though ten rows had come before the crash
            query = self._to_parquet(frame, label).start()
            query.processAllAvailable()
            query.stop()
            self._check(label, range(20, 40))

    def _options(self, topic: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic}

    def _stream(self, topic: str, **options: str) -> DataFrame:
        return self.spark.readStream.format("ticdc").options(**self._options(topic), **options).load()

    def _to_parquet(self, frame: DataFrame, label: str) -> Any:
        writer = frame.writeStream.format("parquet").option("path", self._path(label, "rows"))
        return writer.option("checkpointLocation", self._path(label, "state"))

    def _path(self, label: str, name: str) -> str:
        return str(self.folder / label / name)

    def _check(self, label: str, ids: Iterable[int]) -> None:
        rows = self.spark.read.parquet(self._path(label, "rows")).orderBy("id").collect()
        equal([row["id"] for row in rows], list(ids))
        equal(len({row["_sequence"] for row in rows}), len(rows))

    def _topic(self, messages: Iterable[Message], partitions: int = 1) -> str:
        name = f"versions-{uuid.uuid4().hex[:12]}"
        create_topic(self.bootstrap, name, partitions)
        self._topics.append(name)
        self._write(name, messages, partitions)
        return name

    def _write(self, name: str, messages: Iterable[Message], partitions: int = 1) -> None:
        records = enumerate(messages)
        produce(self.bootstrap, name, [(number % partitions, *message, [], None) for number, message in records])


FAILURE = "as a crash would"


def fail(_frame: DataFrame, _number: int) -> None:
    raise RuntimeError(FAILURE)


def inserted(number: int) -> Message:
    return canal("INSERT", [{"id": str(number), "name": f"n{number}"}], None, TYPES, _tidb={"commitTs": TSO + number})


def move_end(checkpoint: Path, topic: str, old: int, new: int) -> None:
    """Change the end of the first micro-batch of a checkpoint, which is not yet committed."""
    equal((checkpoint / "commits" / "0").exists(), False)
    log = checkpoint / "offsets" / "0"
    *head, offset = log.read_text().splitlines()
    planned = json.loads(offset)
    unlike = {"$ids": None, "$epochs": None}  # what the brokers chose
    equal({**planned, **unlike}, {"$init": {topic: {"0": old}}, **unlike, topic: {"0": old}})
    log.write_text("\n".join([*head, json.dumps({**planned, topic: {"0": new}})]))
    (checkpoint / "offsets" / ".0.crc").unlink()


def equal(found: object, expected: object) -> None:
    if found != expected:
        raise AssertionError(f"found {found!r}, expected {expected!r}")


def register(spark: SparkSession) -> None:
    """Register the source; PySpark 4.0 refuses it, because it finds `pyspark_ticdc` itself (SPARK-51919)."""
    try:
        spark.dataSource.register(TiCDCDataSource)
    except AnalysisException as error:
        equal((error.getCondition(), pyspark.__version__[:4]), ("DATA_SOURCE_ALREADY_EXISTS", "4.0."))
    else:
        equal(pyspark.__version__.startswith("4.0."), False)


@contextmanager
def session(folder: Path) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    folders = {"spark.local.dir": str(folder), "spark.sql.warehouse.dir": str(folder / "warehouse")}
    spark = SparkSession.builder.master("local[2]").config(map={**LOCAL, **folders}).getOrCreate()
    try:
        register(spark)
        yield spark
    finally:
        spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.versions.scenario")
    parser.add_argument("bootstrap", help="a broker's address")
    parser.add_argument("folder", type=Path, help="where to put what Spark writes")
    arguments = parser.parse_args()
    seconds: dict[str, float] = {}
    with session(arguments.folder) as spark, Scenario(arguments.bootstrap, spark, arguments.folder) as scenario:
        parts: list[Callable[[], None]] = [scenario.batch, scenario.stream, scenario.crash]
        for part in parts:
            began = time.monotonic()
            part()
            seconds[part.__name__] = round(time.monotonic() - began, 1)
    report = {
        "pyspark": pyspark.__version__,
        "pyarrow": pa.__version__,
        "admission_control": HAS_ADMISSION_CONTROL,
        "largest_batch": scenario.largest,
        "seconds": seconds,
    }
    print(json.dumps(report))  # noqa: T201


if __name__ == "__main__":
    main()
