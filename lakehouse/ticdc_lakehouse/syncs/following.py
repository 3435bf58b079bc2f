"""What a sync knows of its tables between two micro-batches, and what each micro-batch does to them.

What a table has missed while it was set aside or loading is written in three places, all by `Resuming`: at a start
(`resume`), after a load (`_follow`), and when the DDL comes for which the table waits (`_apply`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.syncs.checkpoint import StreamCheckpoint
from ticdc_lakehouse.syncs.completeness import (
    FOR_EVER,
    disclaimed_tables,
    exact_since,
    lost_before,
    newest_ts,
    unclaimed,
)
from ticdc_lakehouse.syncs.config import SyncConfig
from ticdc_lakehouse.syncs.failures import Shared, cause_of, text_of
from ticdc_lakehouse.syncs.healing import Healing
from ticdc_lakehouse.syncs.joining import Joining
from ticdc_lakehouse.syncs.lake_mark import LakeMarks
from ticdc_lakehouse.syncs.lease import Lease, Owner
from ticdc_lakehouse.syncs.loading import LoadProgress
from ticdc_lakehouse.syncs.micro_batch import MicroBatch, Outcome
from ticdc_lakehouse.syncs.quarantine import Quarantine
from ticdc_lakehouse.syncs.redaction import Redaction
from ticdc_lakehouse.syncs.reports import BatchReport, SyncReport
from ticdc_lakehouse.syncs.resuming import Resuming
from ticdc_lakehouse.syncs.status import TableStatus, status_table
from ticdc_lakehouse.syncs.upkeep import Upkeep
from ticdc_lakehouse.syncs.views import Views
from ticdc_lakehouse.targets.merge_sessions import in_thread
from ticdc_lakehouse.targets.target import CommitFacts
from ticdc_source import SyncState, Tables, tables
from ticdc_source.developer_api import DDLEvent, asking, parse_table, warn
from ticdc_source.errors import DataLossError, OptionError, TiCDCSourceError

__all__ = ["Following"]

_STATUS_EVERY_S = 30.0
_QUERY = "ticdc-lakehouse sync"  # the name of its stream
_POLL_S = 0.2
# Beginnings of what a query says once its sources know where they start.
_HAS_STARTED = ("Processing", "Waiting")


class Following:
    """A sync that runs: what it knows of its tables between two micro-batches."""

    def __init__(
        self,
        spark: SparkSession,
        config: SyncConfig,
        on_batch: Callable[[BatchReport], None],
        on_load: Callable[[LoadProgress], None] | None = None,
    ) -> None:
        self.error: BaseException | None = None
        self.query: StreamingQuery | None = None
        self.checkpoint = StreamCheckpoint(spark, f"{config.checkpoint}/stream")
        self._spark = spark
        self._config = config
        self._on_batch = on_batch
        self._layout = config.layout
        tidb = {} if config.tidb is None else config.tidb.address.given()
        self._redaction = Redaction(config.source, {**config.spark, **tidb}, config.secret_spark)
        self._views = Views(config, self._redaction.text)
        self._state = SyncState(f"{config.checkpoint}/state")
        self._status = status_table(spark, config)
        self._marks = LakeMarks(spark, config, self.checkpoint, self._status)
        self._quarantine = Quarantine(config.layout.own("_ticdc_quarantine"), config.format)
        self._upkeep = Upkeep(spark, config, self._redaction.text)
        self._lease = Lease(self._status.opened, Owner.here())
        self._status.committing(self._lease.lock)
        self._tables: dict[str, TableStatus] = {}
        self._checked: set[str] = set()
        self._lost_until: int | None = None
        self._claimed = False
        self._protocol: dict[str, str] = {}
        self._stopping = threading.Event()
        self._shared = Shared(
            stopping=self._is_stopped, try_store=self._try_store, redact=self._redaction.text
        )  # fmt: skip
        self._joining = Joining(
            spark, config, on_load, self._redaction.text,
            is_stopped=self._is_stopped, stops_all=self._shared.stops_all, fail=self._fail,
        )  # fmt: skip
        self._in_batch = False
        self._skips = False  # the query skips records that are lost
        self._loaded = threading.Event()  # no micro-batch is applied before the load at the start has ended
        if config.tidb is None:
            self._loaded.set()
        self._healing = Healing(config, self._joining.now)
        self._reloaded: list[str] = []
        self._resuming = Resuming(
            spark, config, state=self._state, quarantine=self._quarantine, shared=self._shared,
            redaction=self._redaction, known_ddl=self._known_ddl,
            micro_batch=partial(self._micro_batch, keeps=False), marks=self._marks,
        )  # fmt: skip
        self._writer, self._last_batch = "", -1
        self._written_at = 0.0
        self._batches = self._bad_records = 0

    def start(self) -> None:
        """Make sure that this sync, and no other, writes the tables now."""
        self._views.check(self._spark)
        identity = self._status.check(
            self.checkpoint.query_id(), self.checkpoint.committed(), self._config.reads, self._lease.of_new_table
        )
        known = newest_ts() if identity.get("may_lose") else identity.get("lost_until", newest_ts())
        self._lost_until = FOR_EVER if self._config.may_lose_changes else known
        self._lease.take()
        self._lease.keep(self._fail)
        stated = self._status.read()
        self._tables = self._marks.compared(stated)
        if any(each.state != stated[name].state for name, each in self._tables.items()):
            self._commit_status()
        self._joining.remember(self._tables)
        disclaimed = disclaimed_tables(self._spark, self._config, self._tables)
        if disclaimed:
            self._tables |= disclaimed
            self._commit_status()

    def writing(self) -> AbstractContextManager[None]:
        """Write, and ask before each commit whether another sync has taken over: this process may have been stopped."""
        return asking(self._lease.check)

    def _fail(self, error: Exception) -> None:
        """Stop the stream: another sync writes the tables now, or the store of all tables fails."""
        self.error = self.error or self.without_secrets(error)
        self.stop()
        if self.query is not None:
            self.query.stop()

    def close(self) -> None:
        """End what still writes, and let another sync write the tables."""
        self.stop()
        self._joining.join()
        try:
            self._lease.release()
        except Exception as error:  # noqa: BLE001 (of any store; the lease ends by itself)
            warn(f"The lease of {self._status.name} ends by itself: {self._redaction.text(text_of(error))}")

    def resume(self, names: tuple[str, ...]) -> None:
        """Let tables that are set aside go on: write what they have missed, now.

        Raises:
            OptionError: one of them is not set aside, or is not copied.
        """
        began = time.monotonic()
        aside = {name.lower(): name for name, each in self._tables.items() if each.state == "set aside"}
        for name in names:
            if name.lower() not in aside:
                msg = f"{name} is not set aside. Tables that are: {', '.join(aside.values()) or 'none'}"
                raise OptionError(msg)
            if not self._config.selects(parse_table(aside[name.lower()])):
                msg = f"{name} is not copied: `tables` does not match it, or its section has skip = true"
                raise OptionError(msg)
        writer, last = self.checkpoint.query_id(), self._marks.committed()
        outcomes = []
        for name in dict.fromkeys(aside[name.lower()] for name in names):
            if self._joining.completes(self._tables[name]):
                self._reloaded.append(name)  # and then resumed
                continue
            outcomes.append(self._resuming.write_missed(name, self._tables, last, writer or ""))
            self._tables[name] = outcomes[-1].status
        if outcomes:
            self._write_status()
            self._report(outcomes, last, began, resumed=[each.status.table_name for each in outcomes])

    def statuses(self) -> list[TableStatus]:
        """Return the status of each table that is copied, at this moment."""
        tables = list(self._tables.values())  # at once: Prometheus asks while micro-batches add tables
        return [each for each in tables if each.state != "left out"]

    def load(self, writer: str) -> None:
        """Load the tables that need it: before the first micro-batch is applied, or beside the stream.

        Args:
            writer: the id of the query.
        """
        if self._skips:  # nothing is loaded before the query has skipped what is lost
            return
        try:
            self._writer = writer
            if self.error is not None:  # the lease was lost before there was a query to stop
                raise self.error  # noqa: TRY301 (the handler below ends the load)
            is_new = self._config.tidb is not None and self._wait_for_offsets()
            joined = self._joining.joined(self._tables, self._reloaded, is_new=is_new)
            if joined:
                self._tables |= joined
                self._write_status()  # a load that is killed continues from it
                others = any(each.state == "following" for each in self._tables.values())
                if others and self._config.trigger is not None:
                    self._joining.load_beside(joined.values())
                else:
                    self._follow(self._joining.load(joined.values()), self._marks.committed())
        except BaseException as error:
            ended = None if self.query is None else self.query.exception()  # the cause, if there is one
            self.error = self.error or self.without_secrets(ended or error)
            raise
        self._loaded.set()

    def _wait_for_offsets(self) -> bool:
        """Wait until the stream knows where it starts; return whether the stream is new.

        A TSO that is taken earlier may be older than the first change that the stream reads: between them is a gap.
        """
        if self.query is None or self.checkpoint.starts() is not None:
            return False
        while self.query.isActive and self.checkpoint.starts() is None:
            if self.query.status["message"].startswith(_HAS_STARTED):  # and the topics are empty
                break
            time.sleep(_POLL_S)
        return True

    def _write_status(self) -> None:
        """Write the statuses outside a micro-batch, if no other sync writes the tables now."""
        if self.error is not None:
            raise self.error
        self._lease.check(now=True)
        self._commit_status()

    def load_the_rest(self) -> None:
        """Load what has joined while the topics were read, if the stream has ended with them."""
        if self._config.trigger is not None or self._skips or self.error is not None or self._stopping.is_set():
            return
        began, last = time.monotonic(), self._last_batch if self._batches else self._marks.committed()
        again = self._write_again(last, self._writer, at_end=True)
        self._tables |= {name: each.status for name, each in again.items()}
        started = self._healing.start_waiting(self._tables, at_end=True)
        self._tables |= started
        if started or again:
            self._write_status()  # a load that is killed continues from it
        loading = [each for each in self._tables.values() if each.state == "loading"]
        if loading and (self._batches or again or any(each.heals for each in loading)):
            self._follow(self._joining.load(loading), last)
        if again:
            self._report([*again.values()], last, began, resumed=again)

    def _write_again(self, last: int, writer: str, *, at_end: bool = False) -> dict[str, Outcome]:
        """Write what tables have missed that a fault has set aside, if their time has come; or let them load.

        Args:
            last: the last micro-batch whose records are kept.
            writer: the id of the query.
            at_end: whether the stream has ended, so that there is nothing to wait for.
        """
        due = [
            name
            for name, each in self._tables.items()
            if each.state == "set aside" and each.is_retried and self._healing.back_off.begins(name, at_end=at_end)
        ]
        outcomes = {}
        for name in due:
            loading = self._joining.begins_again(self._tables[name])
            missed = partial(self._resuming.write_missed, name, self._tables, last, writer)
            outcomes[name] = missed() if loading is None else Outcome(loading)
        return outcomes

    def _follow(self, loaded: Mapping[str, TableStatus], last: int) -> None:
        """Write what was kept for tables whose load has ended, up to a micro-batch, and let them follow."""
        for name, status in loaded.items():
            since = self._tables[name].set_aside_batch
            claimed = unclaimed(self._spark, status) if self._config.may_lose_changes else status
            self._tables[name] = replace(claimed, set_aside_batch=since)
            if status.state == "following" and since is not None:  # set aside, if writing what was kept fails
                self._tables[name] = replace(self._tables[name].set_aside(since, ""), reason=status.reason)
                self._tables[name] = self._resuming.write_missed(name, self._tables, last, self._writer).status
            elif status.state == "following" and status.pauses:  # the load has what was kept before
                self._resuming.forget(name)
            if self._tables[name].kind == "table":
                self._write_views(name)
        if loaded:
            self._write_status()

    def heals_loss(self, error: BaseException) -> bool:
        """Return whether an error of the stream says that records are lost, and tables heal."""
        lost = isinstance(error, Exception) and isinstance(cause_of(error), DataLossError)
        return lost and self._config.heal

    def begin_skip(self, reason: str) -> None:
        """Let every table heal, and the next query skip what is lost, without an error.

        Args:
            reason: what is lost. The records of any table may be among it.
        """
        self._restart_after_loss(reason, skips=True)

    def end_skip(self, reason: str) -> None:
        """Let every table heal once more, as of the next start: more may be lost while a query skips.

        Args:
            reason: what is lost.
        """
        self._restart_after_loss(reason, skips=False)

    def _restart_after_loss(self, reason: str, *, skips: bool) -> None:
        self._joining.join()
        self._joining.finished()
        self._stopping.clear()
        self._in_batch, self._skips = False, skips
        self.error = self.query = None
        (self._loaded.set if skips else self._loaded.clear)()
        self._lost_until = newest_ts()
        self._status.lose(self._lost_until)
        for name, status in self._tables.items():
            if status.state == "left out":
                continue
            heals = self._healing.can_heal(status)
            self._tables[name] = (
                self._healing.restart_after_loss(status, reason) if heals else unclaimed(self._spark, status)
            )
        self._write_status()

    def _write_views(self, name: str) -> None:
        """Write the views of a table that was loaded; its next micro-batch writes them again."""
        settings = self._config.of_table(parse_table(name))
        try:
            self._views.write(self._spark, parse_table(name), has_history=settings.history, keys=settings.keys)
        except Exception as error:
            if self._shared.stops_all(error):
                raise
            warn(f"The views of {name} cannot be written: {self._redaction.text(text_of(error))}")

    def stop(self) -> None:
        """End the loads, and take errors from now on for what the stop has caused: they set no table aside."""
        self._stopping.set()

    def _commit_status(self) -> None:
        """Write the statuses, and then remove the kept records of tables that have them now.

        Raises:
            TargetError: the lease could not be renewed during a long merge, and another sync has taken it.
        """
        self._lease.check()
        self._shared.retried(lambda: self._status.write(self._tables), self._status.name)
        self._write_mark()
        self._resuming.forget_written(self._tables)

    def _write_mark(self) -> None:
        self._shared.retried(lambda: self._marks.write(self._tables), "The checkpoint")

    def _is_stopped(self) -> bool:
        """Return whether the sync is being stopped, by itself or because somebody has stopped its query.

        A finite run whose query has ended because it has read the topics is not.
        """
        if self._stopping.is_set() or self.query is None or self.query.isActive:
            return self._stopping.is_set()
        return self._in_batch or self._config.trigger is not None or self.query.exception() is not None

    def end(self) -> SyncReport:
        """Write the statuses for the last time.

        Raises:
            TargetError: the lease was lost between two micro-batches.
        """
        if self.error is not None:
            raise self.error
        if self._batches:
            self._tables |= self._upkeep.after_batch(self._tables, is_last=True)
            self._commit_status()
        return SyncReport(tables=dict(self._tables), batches=self._batches, bad_records=self._bad_records)

    def apply(self, batch: DataFrame, batch_id: int) -> None:
        """Apply a micro-batch. Spark repeats the one in which it was killed; what is done already is not done again."""
        try:
            self._in_batch = True
            with self.writing():
                self._apply(batch, batch_id)
            self._in_batch = False
        except BaseException as error:
            if self.error is None and isinstance(error, Exception) and self._is_stopped():
                raise self.without_secrets(error) from None  # not the sync's error: the next start repeats this
            self.error = self.error or self.without_secrets(error)
            if not isinstance(self.error, Exception):  # Py4J does not answer Spark then, and Spark waits
                msg = f"The micro-batch was interrupted by {type(error).__name__}"
                raise TiCDCSourceError(msg) from error
            if self.error is error:
                raise
            raise self.error from None

    def _known_ddl(self) -> dict[str, tuple[DDLEvent, ...]]:
        """Return the DDL that loads tell; every table that the sync knows is named as in its status."""
        return {**dict.fromkeys(self._tables, ()), **self._joining.known_ddl}

    def without_secrets(self, error: BaseException) -> BaseException:
        """Return an error, or what it says without secrets: Spark logs it, and the command prints it."""
        if isinstance(error, Exception):
            error = cause_of(error) or error
        if not isinstance(error, Exception) or self._redaction.text(str(error)) == str(error):
            return error
        kind = type(error) if isinstance(error, TiCDCSourceError) else TiCDCSourceError
        return kind(self._redaction.text(str(error)))

    def _apply(self, batch: DataFrame, batch_id: int) -> None:
        while not self._loaded.wait(1):
            if self._is_stopped():
                msg = "The sync was stopped while it loaded its tables; start it again, and the load continues"
                raise TiCDCSourceError(msg)
        began, config = time.monotonic(), self._config
        # The id of the query, which its checkpoint keeps.
        writer = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
        if self.error is not None:  # the lease was lost before the stream began
            raise self.error
        self._lease.check()
        wait_for_claim = self._begin_claim(writer)
        number = batch_id + self._marks.shift  # Spark's own numbers its state
        loaded = self._joining.finished()
        if loaded:
            wait_for_claim()
            self._follow(loaded, number - 1)
        with (
            _awaiting(wait_for_claim),
            tables(
                batch,
                state=self._state,
                batch_id=batch_id,
                consistency=config.consistency,
                on_table_error="report",
                resume=None,
                table_options=config.table_options(),
                known_ddl=self._known_ddl(),
                **{**config.decode_options(), **self._protocol},
            ) as changes,
        ):
            wait_for_claim()
            if changes.protocol is not None:  # the next micro-batch need not look
                self._protocol = {"protocol": changes.protocol}
            micro_batch = self._micro_batch(changes, CommitFacts(changes.resolved_ts, writer, number), self._tables)
            bad_records = micro_batch.quarantine_without_table()
            outcomes = micro_batch.apply(sorted({*changes, *changes.errors}))
        waiting = [each.status for each in outcomes if each.status.table_name in changes.ddl]
        resumed = self._resuming.explained(waiting, self._tables, number, writer)
        resumed |= self._write_again(number, writer)
        outcomes = [*({each.status.table_name: each for each in outcomes} | resumed).values()]
        for each in outcomes:
            if each.status.is_retried and each.status.set_aside_batch == number:
                self._healing.back_off.postpone(each.status.table_name)
        before, self._tables = self._tables, self._tables | {each.status.table_name: each.status for each in outcomes}
        self._tables |= self._healing.start_renamed(changes.ddl, self._tables)
        self._tables |= self._healing.start_waiting(self._tables)
        changed = [each for name, each in self._tables.items() if _matters(before.get(name), each)]
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
            begun = [each for each in changed if each.state == "loading"]
            self._joining.load_beside(
                one for one in begun if getattr(before.get(one.table_name), "state", "") != "loading"
            )
        self._batches += 1
        self._last_batch = number
        self._report(
            outcomes,
            number,
            began,
            bad_records=bad_records,
            resolved_ts=changes.resolved_ts,
            maintained=maintained,
            resumed=resumed,
        )

    def _begin_claim(self, writer: str) -> Callable[[], None]:
        """Say in a thread that this query writes the tables, while Spark surveys the first micro-batch.

        Returns:
            What waits for the end of that and raises its error, to be called before the first write.
        """
        if self._claimed:
            return lambda: None

        def claim() -> None:
            config = self._config
            lost_until = self._status.claim(
                writer,
                lambda is_first: lost_before(config, self.checkpoint.starts()) if is_first else newest_ts(),
                may_lose=config.may_lose_changes,
                exact_since=partial(exact_since, config),
            )
            self._lease.check(now=True)  # some stores let two processes create the table; the last one has it
            self._lost_until = FOR_EVER if config.may_lose_changes else lost_until
            self._claimed = True

        with_one_thread = ThreadPoolExecutor(1, thread_name_prefix="ticdc-sync claim")
        claiming = with_one_thread.submit(in_thread(self._spark, claim))
        with_one_thread.shutdown(wait=False)
        return claiming.result

    def _report(
        self,
        outcomes: Sequence[Outcome],
        batch_id: int,
        began: float,
        *,
        bad_records: int = 0,
        resolved_ts: int | None = None,
        maintained: tuple[str, ...] = (),
        resumed: Collection[str] = (),
    ) -> None:
        """Tell what was done."""
        aside = {
            each.status.table_name: each.status.reason or ""
            for each in outcomes
            if each.status.state == "set aside"
            and (each.status.table_name in resumed or each.status.set_aside_batch == batch_id)
        }
        followed = tuple(each.status.table_name for each in outcomes if each.status.state == "following")
        report = BatchReport(
            batch_id=batch_id,
            changed={each.status.table_name: each.images for each in outcomes if each.images},
            created=tuple(each.status.table_name for each in outcomes if each.created),
            set_aside=aside,
            bad_records=bad_records + sum(each.bad_records for each in outcomes),
            maintained=maintained,
            resolved_ts=resolved_ts,
            seconds=time.monotonic() - began,
            resumed=tuple(name for name in followed if name in resumed),
            complete=sum(each.is_complete for each in self._tables.values()),
            tables=len(self.statuses()),
        )
        self._bad_records += report.bad_records
        self._on_batch(report)

    def _try_store(self) -> None:
        """Write and read the status table.

        Raises:
            TargetError: that fails, so all tables are affected.
        """
        try:
            self._shared.retried(self._status.attempt, self._status.name)
        except Exception as error:  # noqa: BLE001 (of any store)
            msg = (
                f"{self._status.name} cannot be written and read: {self._redaction.text(text_of(error))}. This affects "
                "all tables, so none is set aside. Fix the storage or the catalog, and start again"
            )
            raise TargetError(msg) from None

    def _micro_batch(
        self, changes: Tables, facts: CommitFacts, statuses: Mapping[str, TableStatus], *, keeps: bool = True
    ) -> MicroBatch:
        return MicroBatch(
            changes=changes,
            facts=facts,
            config=self._config,
            layout=self._layout,
            statuses=statuses,
            quarantine=self._quarantine,
            kept=self._resuming.kept if keeps else None,
            begins=self._joining.begins if keeps else None,
            healing=self._healing if self._config.heal else None,
            shared=self._shared,
            redaction=self._redaction,
            views=self._views,
            lost_until=self._lost_until,
            checked=self._checked,
        )


@contextmanager
def _awaiting(wait: Callable[[], object]) -> Iterator[None]:
    """Wait for a thread also if what runs beside it fails: nothing may be written once the lease is given back."""
    try:
        yield
    except BaseException:
        with suppress(Exception):
            wait()
        raise


def _matters(before: TableStatus | None, now: TableStatus) -> bool:
    """Return whether a change of a status is worth a commit of the status table."""
    told = ("state", "kind", "complete_since", "bad_records", "set_aside_batch")
    return before is None or any(getattr(before, name) != getattr(now, name) for name in told)
