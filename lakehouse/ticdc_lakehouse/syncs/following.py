"""`RunningSync`: a sync from its start to its end, with the statuses of its tables between two micro-batches.

`step` decides what becomes of a table, and `RunningSync` carries it out. `Resuming` writes the changes that a table has
missed while it was set aside or loading.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from ticdc_lakehouse.syncs.checkpoint import FOR_EVER, LakeMarks, StreamCheckpoint, claimed, newest_ts
from ticdc_lakehouse.syncs.config import SyncConfig
from ticdc_lakehouse.syncs.failures import BackOff, Shared, Stream, cause_of, text_of
from ticdc_lakehouse.syncs.joining import Joining, LoadEvents
from ticdc_lakehouse.syncs.lease import Lease, Owner
from ticdc_lakehouse.syncs.loading import LoadProgress
from ticdc_lakehouse.syncs.micro_batch import MicroBatch, Outcome, SyncContext
from ticdc_lakehouse.syncs.reports import BatchReport, SyncReport
from ticdc_lakehouse.syncs.resuming import Resuming
from ticdc_lakehouse.syncs.status import Following, Loading, SetAside, StatusTable, TableStatus
from ticdc_lakehouse.syncs.steps import Begins, Effect, Event, Loaded, RecordsLost, Signal, disclaimer, renames
from ticdc_lakehouse.syncs.upkeep import Upkeep
from ticdc_lakehouse.targets.merge import COMPLETE
from ticdc_lakehouse.targets.opening import ENGINES, existing_target
from ticdc_lakehouse.targets.target import CommitFacts
from ticdc_source import SyncState, tables
from ticdc_source.developer_api import DDLEvent, asking, parse_table, warn
from ticdc_source.errors import DataLossError, OptionError, TiCDCSourceError

_STATUS_EVERY_S = 30.0
_POLL_S = 0.2
# How the status message of a query begins once its sources know where they start.
_HAS_STARTED = ("Processing", "Waiting")


class RunningSync:
    """A running sync, with the statuses of its tables between two micro-batches."""

    def __init__(
        self,
        spark: SparkSession,
        config: SyncConfig,
        on_batch: Callable[[BatchReport], None],
        on_load: Callable[[LoadProgress], None] | None = None,
    ) -> None:
        self.checkpoint = StreamCheckpoint(spark, f"{config.checkpoint}/stream")
        self._spark, self._config, self._on_batch = spark, config, on_batch
        self.stream = Stream(config)
        self._status = StatusTable(spark, config)
        self._lease = Lease(self._status.opened, Owner.of(os.getpid()), self._status.lock)
        self._marks = LakeMarks(spark, config, self.checkpoint, self._status)
        shared = Shared(stopping=self.stream.is_stopped, try_store=self._status.attempt, store=self._status.name,
                        redact=config.redact)  # fmt: skip
        self._joining = Joining(spark, config, self.stream, shared, on_load)
        self._context = SyncContext(spark=spark, config=config, shared=shared, joining=self._joining)
        self._state = SyncState(f"{config.checkpoint}/state")
        self._resuming = Resuming(self._context, self._state, self._marks)
        self._upkeep = Upkeep(spark, config)
        self._back_off = BackOff()
        self._tables: dict[str, TableStatus] = {}
        self._at_start: dict[str, TableStatus] = {}
        self._loaded = threading.Event()  # no micro-batch is applied until the load at the start has ended
        if config.tidb is None:
            self._loaded.set()
        self._skips = False  # the query skips records that are lost
        self._claimed = False
        self._protocol: dict[str, str] = {}
        self._writer, self._last_batch = "", -1
        self._written_at = 0.0
        self._batches = self._bad_records = 0

    # What becomes of a table

    def _happens(self, name: str, event: Event) -> Outcome:
        """Let an event happen to a table, and carry out its effects."""
        status, effects = self._context.step(self._tables[name], event)
        if Effect.UNCLAIM in effects:
            target = existing_target(self._spark, status.target)
            if target is not None:  # it must not say any longer that it is complete
                target.remove_properties([COMPLETE])
        self._tables[name] = status
        if isinstance(event, Loaded) and status.loaded_ts == event.at:
            self._marks.lacking.pop(name, None)
        if Effect.FORGET in effects:
            self._resuming.forget(name)
        if Effect.WRITE_MISSED not in effects:
            return Outcome(status)
        outcome = self._resuming.write_missed(name, self._tables, self._last_batch, self._writer)
        self._tables[name] = outcome.status
        return outcome

    def _due(self, *, at_end: bool = False) -> dict[str, Outcome]:
        """Let waiting tables go on whose wait is over; at the end of the stream, all of them."""
        waiting = [name for name, each in self._tables.items() if self._context.step(each, Signal.DUE) != (each, ())]
        return {name: self._happens(name, Signal.DUE) for name in waiting if self._back_off.begins(name, at_end=at_end)}

    def _date_loads(self) -> list[TableStatus]:
        """Take a TSO for the tables that wait for a load, and return them; none if TiDB does not answer."""
        if self._skips:  # their rows must be read after the query has skipped the lost records
            return []
        names = [
            name for name, each in self._tables.items() if isinstance(each.phase, Loading) and each.phase.at is None
        ]
        at = self._joining.moment(names) if names else None
        if at is None:
            return []
        for name in names:
            self._happens(name, Begins(at))
        return [self._tables[name] for name in names]

    def _loads_ended(self, events: LoadEvents) -> None:
        """Write the kept records of tables whose load has ended, and let the tables follow."""
        for name, event in events.items():
            status = self._happens(name, event).status
            if status.kind == "table":
                self._write_views(name)
        if events:
            self._write_status()

    # Before the first micro-batch

    def start(self) -> None:
        """Make sure that only this sync writes the tables, and compare its checkpoint with the lake."""
        self._context.views.check(self._spark)
        identity = self._status.check(self.checkpoint.query_id(), self.checkpoint.committed(), self._config.reads)
        known = newest_ts() if identity.get("may_lose") else identity.get("lost_until", newest_ts())
        self._context.lost_until = FOR_EVER if self._config.may_lose_changes else known
        self._lease.take()
        self._lease.keep(self.stream.fail)
        stated = self._status.read()
        self._tables = self._marks.compared(stated)
        self._at_start = {**self._tables}
        for name, status in self._at_start.items():
            event = disclaimer(self._config, status)
            if event is not None:
                self._happens(name, event)
        matters = any(_differs(stated[name], each, _MATTERS) for name, each in self._tables.items())
        if matters or self._tables != self._at_start:
            self._commit_status()

    def writing(self) -> AbstractContextManager[None]:
        """Write while the block runs, and check the lease before each commit: this process may have been suspended."""
        return asking(self._lease.check)

    def close(self) -> None:
        """End the loads, and release the lease, so that another sync may write the tables."""
        self.stream.stop()
        self._joining.join()
        try:
            self._lease.release()
        except Exception as error:  # noqa: BLE001 (of any store; the lease ends by itself)
            why = self._config.redact(text_of(error))
            warn(f"The lease of {self._status.name} cannot be released: {why}. It expires within 5 minutes")
        if ENGINES[self._config.format].caches_tables:
            self._show_written()

    def _show_written(self) -> None:
        """Let the caller's session see what other sessions have written, as it may have cached older tables."""
        written = [each for name, each in self._tables.items() if _differs(self._at_start.get(name), each, _WRITTEN)]
        names = [parse_table(each.table_name) for each in written]
        logs = [self._config.layout.target(name, "__log") for name in names if self._config.of_table(name).history]
        for target in filter(None, (*(each.target for each in written), *logs, self._context.quarantine.name)):
            with suppress(Exception):  # such as a store that is gone
                existing_target(self._spark, target)

    def resume(self, names: tuple[str, ...]) -> None:
        """Resume tables that are set aside: write what they have missed, or let them be loaded."""
        began = time.monotonic()
        aside = {name.lower(): name for name, each in self._tables.items() if isinstance(each.phase, SetAside)}
        for name in names:
            if name.lower() not in aside:
                raise OptionError(f"{name} is not set aside. Tables set aside: {', '.join(aside.values()) or 'none'}")
            if not self._config.selects(parse_table(aside[name.lower()])):
                raise OptionError(f"Cannot resume {name}: `tables` does not match it, or its section has skip = true")
        self._writer, self._last_batch = self.checkpoint.query_id() or "", self._marks.committed()
        resumed = dict.fromkeys(aside[name.lower()] for name in names)
        outcomes = {name: self._happens(name, Signal.RESUMED) for name in resumed}
        written = {name: each for name, each in outcomes.items() if not isinstance(each.status.phase, Loading)}
        if written:
            self._write_status()
            self._report(written, self._last_batch, began, resumed=written)

    def statuses(self) -> list[TableStatus]:
        every = list(self._tables.values())  # at once: Prometheus asks while micro-batches add tables
        return [each for each in every if each.state != "left out"]

    def load(self, writer: str) -> None:
        """Load the tables that need it, before the first micro-batch is applied or beside the stream."""
        if self._skips:  # nothing is loaded before the query has skipped the lost records
            return
        try:
            self._writer = writer
            self.stream.check()  # the lease was lost before there was a query to stop
            is_new = self._config.tidb is not None and self._wait_for_offsets()
            begins = self._joining.begins(self._tables, is_new=is_new)
            for name, event in begins.items():
                target = self._config.layout.target(parse_table(name))
                self._tables.setdefault(name, TableStatus(table_name=name, target=target))
                self._happens(name, event)
            if begins:
                self._write_status()  # a load that is killed continues from it
                others = any(isinstance(each.phase, Following) for each in self._tables.values())
                if self._config.trigger is None or not others:
                    self._last_batch = self._marks.committed()
                    self._loads_ended(self._joining.load(self._tables[name] for name in begins))
            if self._config.trigger is not None and self._config.tidb is not None:
                # Even if TiDB has not answered yet.
                self._joining.load_beside(filter(_is_dated, self._tables.values()))
        except BaseException as error:
            query = self.stream.query
            ended = None if query is None else query.exception()  # the cause, if there is one
            self.stream.error = self.stream.error or self.stream.without_secrets(ended or error)
            raise
        self._loaded.set()

    def _wait_for_offsets(self) -> bool:
        """Wait until the stream knows its first offsets; return whether the stream is new.

        A TSO taken earlier could be older than the first change that the stream reads, and leave a gap between them.
        """
        query = self.stream.query
        if query is None or self.checkpoint.starts() is not None:
            return False
        while query.isActive and self.checkpoint.starts() is None:
            if query.status["message"].startswith(_HAS_STARTED):  # and the topics are empty
                break
            time.sleep(_POLL_S)
        return True

    def load_the_rest(self) -> None:
        """Load the tables that have joined while the topics were read, if the stream has ended at their end."""
        stream = self.stream
        if self._config.trigger is not None or self._skips or stream.error is not None or stream.is_stopped():
            return
        began = time.monotonic()
        if not self._batches:
            self._last_batch = self._marks.committed()
        due = self._due(at_end=True)
        dated = self._date_loads()
        if due or dated:
            self._write_status()  # a load that is killed continues from it
        loading = [each for each in self._tables.values() if isinstance(each.phase, Loading)]
        if loading and (self._batches or due or dated or any(each.state == "healing" for each in loading)):
            self._loads_ended(self._joining.load(loading))
        resumed = {name: each for name, each in due.items() if isinstance(each.status.phase, (Following, SetAside))}
        if resumed:
            self._report(resumed, self._last_batch, began, resumed=resumed)

    # After a loss

    def heals_loss(self, error: BaseException) -> bool:
        """Whether an error of the stream is a loss of records, and tables heal."""
        lost = isinstance(error, Exception) and isinstance(cause_of(error), DataLossError)
        return lost and self._config.heal

    def restart_after_loss(self, reason: str, *, skips: bool) -> None:
        """Let every table heal, as records of any table may be lost.

        If the next query `skips` lost records without an error, it may lose more, so every table heals again after it.
        """
        self._joining.join()
        self._joining.finished()
        self.stream.restart()
        self._skips = skips
        (self._loaded.set if skips else self._loaded.clear)()
        self._context.lost_until = until = newest_ts()
        self._status.change(lambda now: {**now, "lost_until": until, "may_lose": True})  # a later process reads it
        for name in [*self._tables]:
            self._happens(name, RecordsLost(reason))
        self._write_status()

    # A micro-batch

    def apply(self, batch: DataFrame, batch_id: int) -> None:
        """Apply a micro-batch. Spark repeats one in which it was killed; its finished steps are not done again."""
        stream = self.stream
        try:
            stream.in_batch = True
            with self.writing():
                self._apply(batch, batch_id)
            stream.in_batch = False
        except BaseException as error:
            if stream.error is None and isinstance(error, Exception) and stream.is_stopped():
                raise stream.without_secrets(error) from None  # the next start repeats the micro-batch
            stream.error = stream.error or stream.without_secrets(error)
            if not isinstance(stream.error, Exception):  # Py4J does not answer Spark then, and Spark waits
                raise TiCDCSourceError(
                    f"The micro-batch was interrupted by {type(error).__name__}. Start the sync again to repeat it"
                ) from error
            if stream.error is error:
                raise
            raise stream.error from None

    def _apply(self, batch: DataFrame, batch_id: int) -> None:
        while not self._loaded.wait(1):
            if self.stream.is_stopped():
                raise TiCDCSourceError("The sync was stopped during the load. Start it again, and the load continues")
        began, config = time.monotonic(), self._config
        # The id of the query, which its checkpoint keeps.
        self._writer = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
        self.stream.check()  # the lease was lost before the stream began
        self._lease.check()
        self._claim()
        number = batch_id + self._marks.shift  # the state of the stream goes by Spark's own
        self._last_batch = number - 1
        self._loads_ended(self._joining.finished())
        with tables(
            batch,
            state=self._state,
            batch_id=batch_id,
            consistency=config.consistency,
            on_table_error="report",
            resume=None,
            table_options=config.table_options(),
            known_ddl={name: each.known_ddl for name, each in self._tables.items()},
            **{**config.decode_options(), **self._protocol},
        ) as changes:
            if changes.protocol is not None:  # the next micro-batch need not look
                self._protocol = {"protocol": changes.protocol}
            facts = CommitFacts(changes.resolved_ts, self._writer, number)
            micro_batch = MicroBatch(context=self._context, changes=changes, facts=facts, statuses=self._tables)
            bad_records = micro_batch.quarantine_without_table()
            applied = micro_batch.apply(sorted({*changes, *changes.errors}))
        before, self._last_batch = self._tables, number
        self._tables = before | {each.status.table_name: each.status for each in applied}
        outcomes = {each.status.table_name: each for each in applied}
        resumed = self._after_changes(outcomes, changes.ddl, number)
        outcomes |= resumed
        begun = self._date_loads()
        changed = any(_differs(before.get(name), each, _MATTERS) for name, each in self._tables.items())
        self._tables |= {name: each.without_changes(changes.resolved_ts) for name, each in self._tables.items()}
        upkeep = self._upkeep.after_batch(self._tables)
        self._tables |= upkeep
        maintained = tuple(name for name, each in sorted(upkeep.items()) if each.maintained_batch != -1)
        # At once if a restart or a person needs it; otherwise each half minute.
        if changed or maintained or time.monotonic() - self._written_at > _STATUS_EVERY_S:
            self._commit_status()
            self._written_at = time.monotonic()
        else:
            self._write_mark()
        if config.trigger is not None and not self._skips:
            self._joining.load_beside(begun)
        self._batches += 1
        self._report(
            outcomes,
            number,
            began,
            bad_records=bad_records,
            resolved_ts=changes.resolved_ts,
            maintained=maintained,
            resumed=resumed,
        )

    def _after_changes(
        self, applied: Mapping[str, Outcome], ddl: Mapping[str, Sequence[DDLEvent]], number: int
    ) -> dict[str, Outcome]:
        """Let tables go on that the DDL of a micro-batch concerns, or whose wait is over, once its changes are written.

        Returns the outcomes of tables that were set aside, and whose missed changes were written.
        """
        explained = []
        for name, each in applied.items():
            phase = each.status.phase
            if isinstance(phase, SetAside) and phase.kept_from != number and phase.ends_by == "ddl" and name in ddl:
                explained.append(name)
            elif isinstance(phase, SetAside) and phase.kept_from == number and phase.ends_by in ("ddl", "retry"):
                self._back_off.postpone(name)
        resumed = {name: self._happens(name, Signal.EXPLAINED) for name in explained}
        spelt = {name.lower(): name for name in self._tables}
        for old, renamed in renames(ddl):
            if old.lower() in spelt:
                self._happens(spelt[old.lower()], renamed)
        due = self._due()
        return resumed | {name: each for name, each in due.items() if not isinstance(each.status.phase, Loading)}

    def _claim(self) -> None:
        """Write into the status table that this query writes the tables, before its first micro-batch is applied."""
        if self._claimed:
            return
        self._lease.check(now=True)  # before the claim
        claim = partial(claimed, self._config, self.checkpoint.starts, self._writer)
        identity = self._status.change(claim, self._writer)
        self._lease.check(now=True)  # in some stores, two processes can create the table; the last one has it
        self._context.lost_until = FOR_EVER if self._config.may_lose_changes else identity["lost_until"]
        self._claimed = True

    def _report(
        self,
        outcomes: Mapping[str, Outcome],
        batch_id: int,
        began: float,
        *,
        bad_records: int = 0,
        resolved_ts: int | None = None,
        maintained: tuple[str, ...] = (),
        resumed: Collection[str] = (),
    ) -> None:
        now = {name: self._tables[name] for name in outcomes}
        report = BatchReport(
            batch_id=batch_id,
            changed={name: each.images for name, each in outcomes.items() if each.images},
            created=tuple(name for name, each in outcomes.items() if each.created),
            set_aside={
                name: each.reason or ""
                for name, each in now.items()
                if isinstance(each.phase, SetAside) and (name in resumed or each.kept_from == batch_id)
            },
            bad_records=bad_records + sum(each.bad_records for each in outcomes.values()),
            maintained=maintained,
            resolved_ts=resolved_ts,
            seconds=time.monotonic() - began,
            resumed=tuple(name for name in resumed if isinstance(now[name].phase, Following)),
            complete=sum(each.is_complete for each in self._tables.values()),
            tables=len(self.statuses()),
        )
        self._bad_records += report.bad_records
        self._on_batch(report)

    # What is written down

    def end(self) -> SyncReport:
        """Write the statuses for the last time, and return the report; fails if the lease was lost."""
        self.stream.check()
        if self._batches:
            self._tables |= self._upkeep.after_batch(self._tables, is_last=True)
            self._commit_status()
        return SyncReport(tables=dict(self._tables), batches=self._batches, bad_records=self._bad_records)

    def _write_status(self) -> None:
        """Write the statuses outside a micro-batch, after a check of the lease."""
        self.stream.check()
        self._lease.check(now=True)
        self._commit_status()

    def _commit_status(self) -> None:
        """Write the statuses, and then remove kept records that are in their tables.

        The lease is checked first: after a long merge, another sync may have taken it.
        """
        self._lease.check()
        self._context.shared.retried(lambda: self._status.write(self._tables), self._status.name)
        self._write_mark()
        self._resuming.forget_written(self._tables)

    def _write_mark(self) -> None:
        self._context.shared.retried(lambda: self._marks.write(self._tables), "The checkpoint")

    def _write_views(self, name: str) -> None:
        """Write the views of a table that was loaded; its next micro-batch tries again."""
        try:
            self._context.views.write(self._spark, parse_table(name))
        except Exception as error:
            if self._context.shared.stops_all(error):
                raise
            why = self._config.redact(text_of(error))
            warn(f"The views of {name} cannot be written: {why}. The next changes of the table write them again")


_WRITTEN = ("target", "batch_id", "target_batch", "loaded_ts", "maintained_ms")  # fields that a commit changes
_MATTERS = ("phase", "kind", "complete_since", "bad_records")  # fields that a restart or a person needs at once


def _differs(before: TableStatus | None, now: TableStatus, names: tuple[str, ...]) -> bool:
    return before is None or any(getattr(before, name) != getattr(now, name) for name in names)


def _is_dated(status: TableStatus) -> bool:
    """Whether a table is loading, and TiDB has given its TSO."""
    return isinstance(status.phase, Loading) and status.phase.at is not None
