"""A sync whose micro-batches a test makes, without Kafka and a stream; its lake is in memory, or an engine's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from itertools import count, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

import ticdc_source
from tests.support.messages import Message, canal, cell, open_message, open_row
from ticdc_lakehouse import SyncConfig
from ticdc_lakehouse.syncs.following import RunningSync
from ticdc_lakehouse.syncs.reports import BatchReport
from ticdc_lakehouse.syncs.status import TableStatus
from ticdc_source.schema.table_name import TableName

if TYPE_CHECKING:
    from lakehouse.tests.targets.memory import Lake

QUERY = "the-query"
_RECORD_OPTIONS = ("protocol", "valueCompression", "maxMessageBytes")
STATUS = "delta.`/lake/_ticdc_sync`"


def target(table: str) -> str:
    return f"delta.`/lake/shop/{table}`"


def insert(table: str, number: int, commit_ts: int, *, key: bool = True, **more: str) -> Message:
    types = {"id": "int", **dict.fromkeys(more, "varchar(10)")}
    cells = {"id": str(number), **more}
    return canal("INSERT", [cells], None, types, database="shop", table=table, pkNames=["id"] if key else None,
                 _tidb={"commitTs": commit_ts})  # fmt: skip


def ddl(table: str, query: str, commit_ts: int, kind: str) -> Message:
    return canal(kind, None, None, None, database="shop", table=table, isDdl=True, sql=query,
                 _tidb={"commitTs": commit_ts})  # fmt: skip


def events_of_one_message(table: str, **commits: int) -> Message:
    """Return an open-protocol message with inserts into shop.<table>, which has no key: `_1=10` is id 1 at 10."""
    rows = [
        open_row({"u": {"id": cell(3, int(name[1:]))}}, table=table, scm="shop", ts=ts) for name, ts in commits.items()
    ]
    return open_message(*rows)


def open_watermark(ts: int) -> Message:
    return open_message(({"ts": ts, "t": 3}, b""))


class MemorySync:
    """The command of a test: it is started, gets micro-batches, and is killed or ends.

    Args:
        lake: where the tables are.
        folder: where the checkpoint is.
        config: more of the configuration.
    """

    def __init__(self, lake: Lake | Any, folder: Path, **config: Any) -> None:
        self.lake: Any = lake  # an engine's has what stories need
        self.folder = folder
        given = {"format": "delta", "path": "/lake", "checkpoint": str(folder), **config}
        kafka = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
        self.config = SyncConfig(source={**kafka, "protocol": "canal-json", **given.pop("source", {})}, **given)
        self.reports: list[BatchReport] = []
        self._running: RunningSync | None = None
        (folder / "stream" / "commits").mkdir(parents=True, exist_ok=True)
        (folder / "stream" / "offsets").mkdir(exist_ok=True)
        (folder / "stream" / "metadata").write_text(json.dumps({"id": QUERY}))
        self.started_at({"0": 0})

    @property
    def spark(self) -> SparkSession:
        session: SparkSession = self.lake.spark
        return session

    @property
    def status_table(self) -> str:
        return self.config.layout.own("_ticdc_sync")

    def target(self, table: str) -> str:
        return self.config.layout.target(TableName("shop", table))

    def started_at(self, offsets: Mapping[str, int]) -> None:
        end = json.dumps({"$init": {"t": dict(offsets)}, "t": {"0": 0}})
        (self.folder / "stream" / "offsets" / "0").write_text(f"v1\n{{}}\n{end}\n")

    def start(self, *resume: str) -> None:
        self._running = RunningSync(self.spark, self.config, self.reports.append)
        self._running.start()
        self._running.resume(resume)

    def kill(self) -> None:
        """End it at once; its lease is free, because its process is dead."""
        lease = None if self._running is None else self._running._lease
        if lease is not None:
            lease._released.set()  # nothing renews it
        with nullcontext() if lease is None else lease.lock:  # no renewal has begun
            self.lake.release(self.status_table)
        self._running = None

    def end(self) -> None:
        assert self._running is not None
        self._running.end()
        self._running.close()

    def batch(
        self,
        number: int,
        *messages: Message,
        committed: bool = True,
        partitions: Sequence[int] = (),
        first: int | None = None,
        offsets: Sequence[int] = (),
    ) -> BatchReport:
        """Give it a micro-batch.

        Args:
            number: its number.
            messages: the messages.
            committed: whether Spark commits it.
            partitions: the topic partition of each message; by default 0.
            first: the offset of the first message.
            offsets: the offset of each message, instead of `first`.
        """
        assert self._running is not None
        numbered = offsets or count(100 * number if first is None else first)
        rows = [
            ("t", partition, offset, key, value)
            for offset, (key, value), partition in zip(numbered, messages, partitions or repeat(0), strict=False)
        ]
        frame = self.spark.createDataFrame(
            rows, "topic string, partition int, offset bigint, key binary, value binary"
        ).coalesce(1)
        given = {name: text for name, text in self.config.source.items() if name in _RECORD_OPTIONS}
        records = ticdc_source.decode(frame, outputFormat="record", **given)
        records = records.withColumn("_partitions", F.lit(1))  # as the data source says it
        context = self.spark.sparkContext
        context.setLocalProperty("sql.streaming.queryId", QUERY)
        try:
            self._running.apply(records, number)
        finally:
            context.setLocalProperty("sql.streaming.queryId", "")
        if committed:
            (self.folder / "stream" / "commits" / str(number)).write_text("v1\n{}")
        return self.reports[-1]

    def statuses(self) -> dict[str, TableStatus]:
        assert self._running is not None
        return self._running._status.read()

    def status(self, table: str) -> TableStatus:
        return self.statuses()[f"shop.{table}"]

    def ids(self, table: str) -> list[int]:
        return sorted(row["id"] for row in self.lake.tables[target(table)].rows)
