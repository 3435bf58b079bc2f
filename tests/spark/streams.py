"""Streaming queries for tests: started, waited for, and looked at."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from examples.local_kafka import Record, produce
from tests.support.messages import TSO, Message, canal

# What a stream needs to know of test.t where no message tells.
TYPED = {"protocol": "canal-json", "tables": "test.t"}
SCHEMA = "id int, _sequence struct<commit_ts bigint, rank int, partition int, offset bigint, index int>"


def insert(number: int, **more: str) -> Message:
    """Make an insert of test.t with this id."""
    types = {"id": "int", **dict.fromkeys(more, "varchar")}
    return canal("INSERT", [{"id": str(number), **more}], None, types, _tidb={"commitTs": TSO + number})


def write_rows(servers: str, topic: str, *numbers: int, partitions: int = 1) -> None:
    """Write inserts with these ids, on partition 0 or by turns on several."""
    records: list[Record] = [(number % partitions, *insert(number), [], None) for number in numbers]
    produce(servers, topic, records)


@dataclass
class Stream:
    """A stream into Parquet files, which can be started again and again from one checkpoint.

    Attributes:
        spark: the session.
        frame: what it writes.
        folder: where its output and its checkpoint are.
        started: its queries so far.
    """

    spark: SparkSession
    frame: DataFrame
    folder: Path
    started: list[StreamingQuery] = field(default_factory=list)

    def start(self, each: Callable[[DataFrame, int], None] | None = None, **trigger: Any) -> StreamingQuery:
        """Start it, with a trigger; into `each` micro-batch's function instead of Parquet files, if given."""
        writer = self.frame.writeStream.option("checkpointLocation", str(self.folder / "checkpoint"))
        writer = writer.trigger(**trigger) if trigger else writer
        writer = writer.foreachBatch(each) if each else writer.format("parquet")
        self.started.append(writer.start(None if each else str(self.folder / "output")))
        return self.started[-1]

    def finish(self, **how: Any) -> StreamingQuery:
        """Read what is there, with Trigger.AvailableNow unless told otherwise."""
        query = self.start(**(how or {"availableNow": True}))
        assert query.awaitTermination(120), "not finished in two minutes"
        return query

    def ids(self) -> list[int]:
        """Return the ids that were written, in order."""
        if not any((self.folder / "output" / "_spark_metadata").glob("[0-9]*")):
            return []
        return sorted(row["id"] for row in self.spark.read.parquet(str(self.folder / "output")).select("id").collect())

    def offsets(self) -> list[Any]:
        """Return the end offsets of all micro-batches, from the checkpoint."""
        files = sorted((int(path.name), path) for path in (self.folder / "checkpoint" / "offsets").glob("[0-9]*"))
        return [json.loads(path.read_text().splitlines()[2]) for _, path in files]


def sizes(query: StreamingQuery) -> list[int]:
    """Return the numbers of rows of a query's micro-batches, the empty ones left out."""
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def wait_for(query: StreamingQuery, reached: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until something holds.

    Raises:
        PySparkException: the query failed.
    """
    deadline = time.monotonic() + seconds
    while not reached():
        failed = query.exception()
        if failed is not None:
            raise failed
        assert time.monotonic() < deadline, f"not reached in {seconds} s"
        time.sleep(0.05)


def failure_of(query: StreamingQuery) -> str:
    """Wait until a query fails, and return why."""
    try:
        assert query.awaitTermination(60), "has not failed in a minute"
    except PySparkException as error:
        return str(error)
    message = "ended well"
    raise AssertionError(message)
