"""`_ticdc_sync`: a table in the lake that says how each copied table is, and which sync writes it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from typing import Literal

from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ticdc_source.errors import CheckpointError, TargetError
from ticdc_source.lakehouse.sql_targets import open_target
from ticdc_source.lakehouse.targets import CommitFacts, NewColumn
from ticdc_source.tso import seconds, utc

__all__ = ["StatusTable", "TableStatus"]

State = Literal["following", "set aside"]
Kind = Literal["table", "log"]

_SCHEMA = StructType([
    StructField("table_name", StringType()),
    StructField("target", StringType()),
    StructField("kind", StringType()),
    StructField("state", StringType()),
    StructField("complete_since", LongType()),
    StructField("resolved_ts", LongType()),
    StructField("batch_id", LongType()),
    StructField("images", LongType()),
    StructField("set_aside_batch", LongType()),
    StructField("set_aside_since", StringType()),
    StructField("reason", StringType()),
])  # fmt: skip
_SYNC = "ticdc.sync"  # the property of the table that names the sync


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """How the copy of a table is.

    Attributes:
        table_name: the table, as messages spell it.
        target: the name of the target in SQL.
        kind: `table` if each row stands once, `log` if every change does.
        state: `following`, or `set aside` if the copy has stopped until somebody resumes it.
        complete_since: the commit-ts from which the copy has had all rows; None if it began with the first change.
        resolved_ts: the copy has every change up to this commit-ts, itself included; None if nobody knows.
        batch_id: the micro-batch that changed it last.
        images: how many changed rows the sync has written.
        set_aside_batch: the micro-batch in which it was set aside; None while it is followed.
        set_aside_since: when that was, in ISO 8601, UTC.
        reason: its last error: why it was set aside the last time.
    """

    table_name: str
    target: str
    kind: Kind | None = None
    state: State = "following"
    complete_since: int | None = None
    resolved_ts: int | None = None
    batch_id: int = -1
    images: int = 0
    set_aside_batch: int | None = None
    set_aside_since: str | None = None
    reason: str | None = None

    def lag(self, now: float) -> float | None:
        """Return how many seconds the copy is behind, by its resolved ts; None if nobody knows.

        Args:
            now: the time, in seconds since 1970.
        """
        return None if self.resolved_ts is None else round(now - seconds(self.resolved_ts), 3)

    def as_json(self, now: float) -> dict[str, object]:
        """Return it as values of JSON, with its commit-ts as times too, and with its lag.

        Args:
            now: the time, in seconds since 1970.
        """
        times = {"complete_since_time": utc(self.complete_since), "resolved_time": utc(self.resolved_ts)}
        return {**asdict(self), **times, "lag_seconds": self.lag(now)}

    def set_aside(self, batch_id: int, reason: str) -> TableStatus:
        """Return the status of the table once it is set aside."""
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        return replace(self, state="set aside", set_aside_batch=batch_id, set_aside_since=now, reason=reason)

    def resumed(self) -> TableStatus:
        """Return the status of the table once it goes on; its last error stays known."""
        return replace(self, state="following", set_aside_batch=None, set_aside_since=None)


class StatusTable:
    """The table of statuses. It is small, and each write replaces it whole in one commit.

    Args:
        spark: the session.
        name: its name in SQL.
        engine: `delta` or `iceberg`.
    """

    def __init__(self, spark: SparkSession, name: str, engine: str) -> None:
        self.name = name
        self._spark = spark
        self._target = open_target(spark, name, engine)
        self._writer: str | None = None

    def read(self) -> dict[str, TableStatus]:
        """Return the status of each table by its name; nothing if there is no table yet."""
        if not self._target.exists():
            return {}
        rows = (row.asDict() for row in self._target.frame().select(_SCHEMA.names).collect())
        return {row["table_name"]: TableStatus(**row) for row in rows}

    def claim(self, writer: str, topics: Iterable[str]) -> None:
        """Say that a sync writes these tables: nobody else may.

        Args:
            writer: the id of its streaming query, which is as old as its checkpoint.
            topics: what it reads.

        Raises:
            CheckpointError: another sync writes them, or this one with a checkpoint that is gone.
            TargetError: they are copies of other topics.
        """
        if self._writer == writer:
            return
        now = {"writer": writer, "topics": sorted(topics)}
        if not self._target.exists():
            columns = [NewColumn(field.name, field.dataType) for field in _SCHEMA]
            self._target.create(columns, {_SYNC: json.dumps(now)})
        before = json.loads(self._target.properties().get(_SYNC, "null"))
        if before is None:
            msg = f"{self.name} exists, and no sync has made it. Give the sync another folder or catalog"
            raise TargetError(msg)
        if before["topics"] != now["topics"]:
            msg = (
                f"The tables beside {self.name} are copies of {', '.join(before['topics'])}, and this sync reads "
                f"{', '.join(now['topics'])}. Give each sync a folder or catalog of its own; if only the names of the "
                f"topics have changed, remove the property {_SYNC} of that table"
            )
            raise TargetError(msg)
        if before["writer"] != writer:
            msg = (
                f"The tables beside {self.name} are written by a sync with another checkpoint. If that checkpoint is "
                "lost, or its folder was changed, restore it; or start again with a new folder of tables and a new "
                "checkpoint"
            )
            raise CheckpointError(msg)
        self._writer = writer

    def write(self, statuses: Mapping[str, TableStatus]) -> None:
        """Replace the statuses."""
        rows = [tuple(asdict(statuses[name])[field] for field in _SCHEMA.names) for name in sorted(statuses)]
        frame = self._spark.createDataFrame(rows, _SCHEMA).coalesce(1)
        self._target.overwrite(frame, CommitFacts())
