"""Streaming queries for tests: start them, wait for them, and read what they wrote."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from examples.local_kafka import Record, produce
from tests.support.messages import TSO, Message, canal

# The options with which a stream can read test.t before there is a message.
TYPED = {"protocol": "canal-json", "tables": "test.t"}
SCHEMA = "id int, _sequence struct<commit_ts bigint, rank int, partition int, offset bigint, index int>"


def insert(number: int, **more: str) -> Message:
    types = {"id": "int", **dict.fromkeys(more, "varchar")}
    return canal("INSERT", [{"id": str(number), **more}], None, types, _tidb={"commitTs": TSO + number})


def write(servers: str, topic: str, *messages: Message, partition: int = 0) -> None:
    """Write messages to a partition."""
    produce(servers, topic, [(partition, *message, [], None) for message in messages])


def write_rows(servers: str, topic: str, *numbers: int, partitions: int = 1) -> None:
    """Write inserts with these ids, to partition 0 or to several partitions in turn."""
    records: list[Record] = [(number % partitions, *insert(number), [], None) for number in numbers]
    produce(servers, topic, records)


@dataclass
class Stream:
    """A stream that writes Parquet files and can be restarted from its checkpoint."""

    spark: SparkSession
    frame: DataFrame
    folder: Path
    started: list[StreamingQuery] = field(default_factory=list)

    def start(self, each: Callable[[DataFrame, int], None] | None = None, **trigger: Any) -> StreamingQuery:
        """Start it with a trigger; call `each` for each micro-batch, if given, instead of writing Parquet files."""
        writer = self.frame.writeStream.option("checkpointLocation", str(self.folder / "checkpoint"))
        writer = writer.trigger(**trigger) if trigger else writer
        writer = writer.foreachBatch(each) if each else writer.format("parquet")
        self.started.append(writer.start(None if each else str(self.folder / "output")))
        return self.started[-1]

    def finish(self, **how: Any) -> StreamingQuery:
        """Read what is there, by default with Trigger.AvailableNow, and wait for the end."""
        query = self.start(**(how or {"availableNow": True}))
        assert query.awaitTermination(120), "not finished in two minutes"
        return query

    def ids(self) -> list[int]:
        return sorted(
            number for path in self.files() for number in pq.read_table(path, columns=["id"])["id"].to_pylist()
        )

    def files(self) -> set[str]:
        """Return the Parquet files that committed micro-batches have written, from the sink's log."""
        return written_files(self.folder / "output")

    def offsets(self) -> list[Any]:
        """Return the end offsets of all micro-batches, from the checkpoint, without topic ids and leader epochs."""
        left_out = {"$ids", "$epochs"}
        return [{name: offset[name] for name in offset if name not in left_out} for offset in self._offsets()]

    def topic_id(self, topic: str) -> str:
        return str(self._offsets()[-1]["$ids"][topic])

    def _offsets(self) -> list[Any]:
        files = sorted((int(path.name), path) for path in (self.folder / "checkpoint" / "offsets").glob("[0-9]*"))
        return [json.loads(path.read_text().splitlines()[2]) for _, path in files]


def written_files(output: Path) -> set[str]:
    """Return the Parquet files that committed micro-batches have written to a folder, from the sink's log."""
    logs = (output / "_spark_metadata").glob("[0-9]*")
    entries = [json.loads(line) for log in logs for line in log.read_text().splitlines()[1:]]
    return {unquote(urlparse(entry["path"]).path) for entry in entries if entry["action"] == "add"}


def sizes(query: StreamingQuery) -> list[int]:
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def wait_for(query: StreamingQuery, reached: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until a condition holds."""
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
    raise AssertionError("has not failed")
