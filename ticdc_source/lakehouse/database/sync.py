"""`sync`: one stream of records → all tables of a database, in Delta or Iceberg."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b

from pyspark.sql import DataFrame, SparkSession

from ticdc_source.errors import OptionError, TiCDCSourceError
from ticdc_source.lakehouse.database.config import SyncConfig
from ticdc_source.lakehouse.database.kept_records import KeptRecords
from ticdc_source.lakehouse.database.metrics import exported
from ticdc_source.lakehouse.database.micro_batch import MicroBatch, Outcome
from ticdc_source.lakehouse.database.quarantine import Quarantine
from ticdc_source.lakehouse.database.session import refuse_connect
from ticdc_source.lakehouse.database.status import StatusTable, TableStatus
from ticdc_source.lakehouse.database.views import Views
from ticdc_source.lakehouse.targets import CommitFacts
from ticdc_source.options.table_filter import parse_table
from ticdc_source.spark.sync_state import SyncState
from ticdc_source.spark.tables import Tables, replayed, tables

__all__ = ["BatchReport", "SyncReport", "statuses_of", "sync"]

_STATUS_EVERY_S = 30.0
_QUERY = "ticdc-source sync"  # the name of its stream


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """What a micro-batch did.

    Attributes:
        batch_id: its number.
        changed: how many changed rows each table had.
        created: the tables whose target it created.
        set_aside: the tables that were set aside in it, with the reasons.
        bad_records: how many records went into quarantine.
        resolved_ts: the tables have every change up to this commit-ts, itself included; None if nobody knows.
        seconds: how long it took.
    """

    batch_id: int
    changed: Mapping[str, int]
    created: tuple[str, ...] = ()
    set_aside: Mapping[str, str] = field(default_factory=dict)
    bad_records: int = 0
    resolved_ts: int | None = None
    seconds: float = 0.0

    def as_json(self) -> dict[str, object]:
        """Return it as values of JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport:
    """How the tables are when a sync ends.

    Attributes:
        tables: the status of each table, by its name.
        batches: how many micro-batches there were.
        bad_records: how many records went into quarantine.
    """

    tables: Mapping[str, TableStatus]
    batches: int = 0
    bad_records: int = 0

    @property
    def set_aside(self) -> dict[str, str]:
        """The tables that are set aside, with the reasons."""
        return {name: each.reason or "" for name, each in self.tables.items() if each.state == "set aside"}


def sync(
    spark: SparkSession,
    config: SyncConfig,
    *,
    resume: tuple[str, ...] = (),
    on_batch: Callable[[BatchReport], None] | None = None,
) -> SyncReport:
    """Keep all tables of topics in Delta or Iceberg equal to TiDB's.

    It reads one stream of records, splits each micro-batch into its tables, and merges them side by side. A table that
    cannot go on is set aside with its reason, and its records are kept; the others go on. Kill it whenever you like,
    and start it again with the same configuration.

    Args:
        spark: a session with Delta or Iceberg.
        config: what to copy.
        resume: tables that are set aside, and go on now: the cause is mended.
        on_batch: is called after each micro-batch.

    Returns:
        How the tables are, when the topics are read (`trigger=None`) or the stream is stopped.

    Example:
        ```python
        from ticdc_source.lakehouse import SyncConfig, sync

        config = SyncConfig(
            source={"kafka.bootstrap.servers": "localhost:9092", "timeZone": "UTC"},
            topics=("tidb-shop",),
            format="delta",
            path="/data/lake",
            checkpoint="/data/checkpoints/shop",
        )
        report = sync(spark, config)
        print(report.set_aside)
        ```

    Raises:
        OptionError: an option is wrong, `resume` names a table that is not set aside, or the session is one of Spark
            Connect.
        TargetError: the folder or catalog holds the tables of another sync.
        CheckpointError: the checkpoint is not that of the tables.
        TiCDCSourceError: the topics cannot be read.
    """
    refuse_connect(spark)
    records = spark.readStream.format("ticdc").options(**config.reader_options()).load()
    running = _Sync(spark, config, on_batch or (lambda _: None))
    running.resume(resume)
    trigger = {"availableNow": True} if config.trigger is None else {"processingTime": config.trigger}
    stream = records.writeStream.foreachBatch(running.apply).trigger(**trigger)
    with exported(spark, config, _QUERY, running.statuses):
        query = stream.option("checkpointLocation", f"{config.checkpoint}/stream").queryName(_QUERY).start()
        try:
            query.awaitTermination()
        except BaseException:
            running.stop()  # what its end does to tables is not their trouble
            query.stop()
            if running.error is not None:  # what Spark raises is a text of Java around it
                raise running.error from None
            raise
    return running.end()


def statuses_of(spark: SparkSession, config: SyncConfig) -> list[TableStatus]:
    """Return how the tables of a sync are, by name, whether it runs or not."""
    statuses = _status_table(spark, config).read()
    return [statuses[name] for name in sorted(statuses)]


def _status_table(spark: SparkSession, config: SyncConfig) -> StatusTable:
    return StatusTable(spark, config.layout.own("_ticdc_sync"), config.format)


class _Sync:
    """A sync that runs: what it knows of its tables between two micro-batches."""

    def __init__(self, spark: SparkSession, config: SyncConfig, on_batch: Callable[[BatchReport], None]) -> None:
        self.error: BaseException | None = None
        self._spark = spark
        self._config = config
        self._on_batch = on_batch
        self._layout = config.layout
        self._views = Views(config)
        self._views.check(spark)
        self._state = SyncState(f"{config.checkpoint}/state")
        self._status = _status_table(spark, config)
        self._tables = self._status.read()
        self._resumed: dict[str, int] = {}
        self._stopping = threading.Event()
        self._written_at = 0.0
        self._batches = self._bad_records = 0

    def resume(self, names: tuple[str, ...]) -> None:
        """Let tables that are set aside go on with the next micro-batch."""
        aside = {name.lower(): name for name, each in self._tables.items() if each.state == "set aside"}
        for name in names:
            if name.lower() not in aside:
                msg = f"{name} is not set aside; set aside are: {', '.join(aside.values()) or 'none'}"
                raise OptionError(msg)
            status = self._tables[aside[name.lower()]]
            if not self._config.selects(parse_table(status.table_name)):
                msg = f"{name} is not copied: `tables` does not match it, or its section has skip = true"
                raise OptionError(msg)
            self._resumed[status.table_name] = status.set_aside_batch or 0

    def statuses(self) -> list[TableStatus]:
        """Return the status of each table at this moment."""
        return [*self._tables.values()]

    def stop(self) -> None:
        """Set no table aside from now on."""
        self._stopping.set()

    def end(self) -> SyncReport:
        """Write the statuses for the last time."""
        if self._batches:
            self._status.write(self._tables)
        return SyncReport(tables=dict(self._tables), batches=self._batches, bad_records=self._bad_records)

    def apply(self, batch: DataFrame, batch_id: int) -> None:
        """Apply a micro-batch. Spark repeats the one in which it was killed; what is done already is not done again."""
        try:
            self._apply(batch, batch_id)
        except BaseException as error:
            self.error = error
            raise

    def _apply(self, batch: DataFrame, batch_id: int) -> None:
        began, config = time.monotonic(), self._config
        # The id of the query, which its checkpoint keeps.
        writer = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
        self._status.claim(writer, config.topics)
        bad_records = 0
        outcomes: list[Outcome] = []
        for name in sorted(self._resumed):
            outcomes.append(self._resume_one(name, batch_id, writer))
            self._tables[name] = outcomes[-1].status
        self._resumed = {}
        with tables(
            batch,
            state=self._state,
            batch_id=batch_id,
            consistency=config.consistency,
            on_table_error="report",
            resume=None,
            table_options=config.table_options(),
            **config.decode_options(),
        ) as changes:
            micro_batch = self._micro_batch(changes, CommitFacts(changes.resolved_ts, writer, batch_id), self._tables)
            bad_records += micro_batch.quarantine_unreadable()
            outcomes += micro_batch.apply(sorted({*changes, *changes.errors}))
        self._tables |= {each.status.table_name: each.status for each in outcomes}
        report = BatchReport(
            batch_id=batch_id,
            changed={each.status.table_name: each.images for each in outcomes if each.images},
            created=tuple(each.status.table_name for each in outcomes if each.created),
            set_aside={
                each.status.table_name: each.status.reason or ""
                for each in outcomes
                if each.status.set_aside_batch == batch_id
            },
            bad_records=bad_records + sum(each.bad_records for each in outcomes),
            resolved_ts=changes.resolved_ts,
            seconds=time.monotonic() - began,
        )
        # A table that is set aside must be so after a restart too; the rest is for people.
        if report.set_aside or report.created or time.monotonic() - self._written_at > _STATUS_EVERY_S:
            self._status.write(self._tables)
            self._written_at = time.monotonic()
        self._batches += 1
        self._bad_records += report.bad_records
        self._on_batch(report)

    def _resume_one(self, name: str, batch_id: int, writer: str) -> Outcome:
        """Write what a table has missed. If that fails, it stays set aside, with all its records."""
        config, aside = self._config, self._tables[name]
        since = self._resumed[name]
        try:
            with replayed(
                self._kept(name).since(since, batch_id),
                state=self._state,
                batch_id=batch_id,
                consistency=config.consistency,
                table_options=config.table_options(),
                **{**config.decode_options(), "tables": name},
            ) as changes:
                statuses = {**self._tables, name: aside.resumed()}
                facts = CommitFacts(app_id=f"{writer}/{since}", batch_id=batch_id)
                micro_batch = self._micro_batch(changes, facts, statuses, keeps=False)
                outcome = next(iter(micro_batch.apply([name])), Outcome(statuses[name]))  # none if only DDL came
        except TiCDCSourceError as error:
            return Outcome(replace(aside, reason=str(error)))
        if outcome.status.state == "set aside":
            return replace(outcome, status=replace(aside, reason=outcome.status.reason))
        return outcome

    def _micro_batch(
        self, changes: Tables, facts: CommitFacts, statuses: Mapping[str, TableStatus], *, keeps: bool = True
    ) -> MicroBatch:
        return MicroBatch(
            changes=changes,
            facts=facts,
            config=self._config,
            layout=self._layout,
            statuses=statuses,
            quarantine=Quarantine(self._layout.own("_ticdc_quarantine"), self._config.format),
            kept=self._kept if keeps else None,
            stopping=self._stopping,
            views=self._views,
        )

    def _kept(self, name: str) -> KeptRecords:
        folder = blake2b(name.lower().encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()  # of any name
        return KeptRecords(self._spark, f"{self._config.checkpoint}/aside/{folder}")
