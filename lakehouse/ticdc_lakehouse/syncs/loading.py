"""The rows that were there before the changes, as of one TSO, into their targets; a load that was killed continues.

A table is read range by range, and a group of ranges is one commit, whose number the target remembers. The past does
not change, so TiDB gives the same ranges again: the target itself says what it has. Loading and following are the same
idempotent merge.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.syncs.config import SyncConfig
from ticdc_lakehouse.syncs.failures import is_fault
from ticdc_lakehouse.syncs.steps import Loaded
from ticdc_lakehouse.targets.changelog import committed_at, read_changelog, stored_column, with_time_as
from ticdc_lakehouse.targets.log import append_changes
from ticdc_lakehouse.targets.merge import COMPLETE, KEYS, OwnColumns, merge_changes
from ticdc_lakehouse.targets.opening import existing_target, is_same, last_batch, retried
from ticdc_lakehouse.targets.sessions import with_verbatim_sql
from ticdc_lakehouse.targets.target import CommitFacts, Target
from ticdc_lakehouse.targets.target_names import quoted
from ticdc_lakehouse.tidb import SnapshotTable, TiDBConfig
from ticdc_source.developer_api import KEY, Cut, DDLEvent, TableFilter, TableName, duration, quoted_name, warn
from ticdc_source.errors import SchemaError, TiCDCSourceError

LOAD = "ticdc.load"  # a property of a target: the TSO of the load that created it
RANGES_PER_COMMIT = 8  # they are read in parallel
_WRITER = "load-"  # begins the app_id of the commits of a load
_WATCH_SECONDS = 30.0  # between two looks at garbage collection
_WANTED_SECONDS = 3600.0  # of a life time that is shorter, a load warns


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProgress:
    """How far the load of a table is."""

    table: TableName
    rows: int  # about how many of its rows are in the target
    of: int  # about how many rows it has
    seconds: float  # for how long it has been loading, in this run
    had: int = 0  # about how many rows were there when this run began
    complete: bool = False
    failed: bool = False

    @property
    def seconds_left(self) -> float | None:
        """How long the load will go on at the speed of this run; None if nothing tells it yet."""
        new = self.rows - self.had
        return None if new <= 0 or self.seconds <= 0 else self.seconds * max(0, self.of - self.rows) / new


@with_verbatim_sql
def load_tables(
    spark: SparkSession,
    config: SyncConfig,
    tidb: TiDBConfig,
    tables: Mapping[TableName, bool],
    *,
    at: int,
    on_progress: Callable[[LoadProgress], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> dict[TableName, Loaded | Exception]:
    """Read tables as of one TSO, side by side, and write each into its target, range by range.

    A load that was killed goes on when it is called again: tables that are complete, and ranges that their targets
    have, are not read again. A table that fails stops no other; its error is returned. A target that has all rows
    gets the property `ticdc.complete` with the TSO, and is left alone from then on. If it had rows of before, those
    that TiDB did not have at the TSO are deleted. So changes up to the TSO are not needed any more.

    A target that the load creates itself gets its rows by plain appends, which cost a fraction of a MERGE. So nothing
    else may write into it before it is complete; if another writer of this package has, the rest is merged.

    Each table says whether it heals: then the target takes TiDB's types and keys if its own are other ones, and loses
    its rows if TiDB has no such table any more. `on_progress` is called after each commit, in the thread of a table.
    Once `stop` returns true, the load ends after the commits that are under way. If TiDB cannot be read, or the TSO is
    older than its GC safe point, a `TiCDCSourceError` is raised.
    """
    load = _Load(config, tidb, at, on_progress, stop)
    load.watch_garbage_collection(_WANTED_SECONDS)
    with ThreadPoolExecutor(config.parallel, thread_name_prefix="load") as threads:
        futures = {
            name: threads.submit(copy_context().run, partial(load.table, spark, name, heals=heals))
            for name, heals in tables.items()
        }
        try:
            return {name: future.result() for name, future in futures.items()}
        except BaseException:  # Ctrl-C: what is written is complete, and the rest of it is for the next run
            load.is_interrupted = True
            threads.shutdown(wait=False, cancel_futures=True)
            raise


class _Load:
    """One call of `load_tables`; its tables run in threads."""

    def __init__(
        self,
        config: SyncConfig,
        tidb: TiDBConfig,
        at: int,
        on_progress: Callable[[LoadProgress], None] | None,
        stop: Callable[[], bool],
    ) -> None:
        self.config, self.tidb, self.at = config, tidb, at
        self.is_interrupted = False
        self._on_progress, self._stop = on_progress, stop
        self._lock = threading.Lock()
        self._looked = float("-inf")
        self._warned = False

    def is_stopped(self) -> bool:
        return self.is_interrupted or self._stop()

    def watch_garbage_collection(self, wanted_s: float = 0) -> None:
        """Refuse a moment that is gone, and warn once if it will be soon; most calls ask nothing."""
        with self._lock:
            if time.monotonic() - self._looked < _WATCH_SECONDS:
                return
            life_time, self._looked = self.tidb.life_time(self.at), time.monotonic()
            kept, left = life_time or (0, float("inf"))
            if self._warned or left >= max(wanted_s, kept / 5):
                return
            self._warned = True
        still = f"keeps TSO {self.at} for {duration(left)} more" if left >= 0 else f"need not keep TSO {self.at}"
        warn(
            f"TiDB {still}, because tidb_gc_life_time is {duration(kept)}. Let it keep the past for longer than the "
            "load takes: SET GLOBAL tidb_gc_life_time = '24h'; set it back when the load has ended"
        )

    def tell(self, progress: LoadProgress) -> None:
        """Report progress; a failing callback must not abort the load."""
        try:
            if self._on_progress is not None:
                self._on_progress(progress)
        except Exception as error:  # noqa: BLE001 (of a function that a user gave)
            warn(f"The progress of the load of {progress.table} was not told: {error}")

    def table(self, spark: SparkSession, name: TableName, *, heals: bool) -> Loaded | Exception:
        try:
            # What a commit records is a setting of the session, so each table has a session of its own.
            own: Any = spark._jsparkSession  # noqa: SLF001 (no other way)
            load = _TableLoad(self, type(spark)(spark.sparkContext, own.cloneSession()), name, heals=heals).run()
        except Exception as error:  # noqa: BLE001 (of the engine, of the JVM, ours: the other tables go on)
            self.tell(LoadProgress(table=name, rows=0, of=0, seconds=0, failed=True))
            return error
        with suppress(Exception):  # of a catalog. The given session may have kept what the target was
            existing_target(spark, load.target)
        return load


class _TableLoad:
    """The load of one table."""

    def __init__(self, load: _Load, spark: SparkSession, name: TableName, *, heals: bool) -> None:
        self.load, self.spark, self.name, self.heals = load, spark, name, heals
        self._began = time.monotonic()
        self._settings = load.config.write_settings(name)
        self._merged, self._log = load.config.layout.target(name), load.config.layout.target(name, "__log")
        # The number of a commit means nothing with other ranges.
        self._app_id = f"{_WRITER}{load.at}-{load.tidb.rows_per_range}x{RANGES_PER_COMMIT}"
        self.had = self.rows = 0  # about how many rows the target had when this run began, and how many this run wrote

    def run(self) -> Loaded:
        """Write the ranges that the target lacks, and say that it is complete."""
        load = self.load
        if self.heals and not self._is_in_tidb():
            return self._empty()
        rows = load.tidb.table(self.name, load.at, zero_date=load.config.source_option("zeroDate", "null"))
        loaded = Loaded(at=load.at, target=self._merged, kind="table", create_sql=rows.create_sql())
        as_log = replace(loaded, target=self._log, kind="log")
        for known in (loaded, as_log):
            complete = int(self._properties(known.target).get(COMPLETE, 0))
            if complete >= load.at:  # an older claim is of before what this load mends
                return replace(known, at=complete)
        whole = rows.frame(self.spark, [])
        has_key = self._settings.keys or any((one.metadata or {}).get(KEY) == "true" for one in whole.schema)
        is_log = self._settings.as_log or not has_key
        loaded = as_log if is_log else loaded
        if is_log:
            self._check_log()
        appends = not is_log and self._create(whole)
        write = partial(self._write, rows, is_log=is_log, appends=appends)
        last = self._write_groups(loaded.target, rows, write)
        if is_log and existing_target(self.spark, self._log) is None:  # there were no rows
            write(whole, CommitFacts(None, self._app_id, 0))
        if not is_log and not appends:
            self._remove_gone()
        self._end(loaded.target, last + 2)
        self._tell(self.had + self.rows, complete=True)
        return replace(loaded, rows=self.rows)

    def _write_groups(self, target: str, rows: SnapshotTable, write: Callable[[DataFrame, CommitFacts], None]) -> int:
        """Write the groups of ranges that a target lacks; return the number of the last group, -1 if there is none."""
        load = self.load
        existing = existing_target(self.spark, target)
        written = None if existing is None else existing.last_batch(self._app_id)
        start, about, number = 0 if written is None else written.number + 1, rows.about(), -1
        for number, group in enumerate(self._groups(rows)):
            of_group = sum(one.rows for one in group)
            if number < start:
                self.had += of_group
                continue
            if number == start:
                self._tell(about)
            if load.is_stopped():
                raise TiCDCSourceError(f"The load of {self.name} was stopped: load again, and it continues")
            load.watch_garbage_collection()
            run = partial(write, rows.frame(self.spark, group), CommitFacts(None, self._app_id, number))
            retried(run, again=lambda error, _: is_fault(error) and not load.is_stopped())
            self.rows += of_group
            self._tell(about)
        return number

    def _groups(self, rows: SnapshotTable) -> Iterator[list[Cut]]:
        """Yield groups of ranges, each of which is one commit; the same ones in each run."""
        after: tuple[str, ...] | None = None
        while group := rows.ranges(self.load.tidb.rows_per_range, after, RANGES_PER_COMMIT):
            yield group
            after = group[-1].after
            if after is None:
                return

    def _is_in_tidb(self) -> bool:
        exact = TableFilter(((self.name.database, self.name.table),))
        return any(map(self.name.is_same, self.load.tidb.tables_at(exact, self.load.at)))

    def _empty(self) -> Loaded:
        """Remove the rows of a table that TiDB has no longer."""
        self._app_id = f"{_WRITER}{self.load.at}-gone"
        if existing_target(self.spark, self._merged) is not None:
            self._remove_gone()
            self._end(self._merged, 0)
        return Loaded(at=self.load.at, target=self._merged, kind="table", is_gone=True)

    def _end(self, name: str, number: int) -> None:
        """Commit that a target is the table at the TSO, once it has all rows and no others, and say so."""
        target = self._opened(name)
        facts = CommitFacts(self.load.at, self._app_id, number)
        if not is_same(last_batch(target, facts), facts):
            target.append(target.frame().where(F.lit(False)), facts)  # noqa: FBT003 (a value of Spark)
        target.set_properties({COMPLETE: str(self.load.at)})

    def _properties(self, name: str) -> Mapping[str, str]:
        target = existing_target(self.spark, name)
        return {} if target is None else target.properties()

    def _create(self, whole: DataFrame) -> bool:
        """Create the target if it does not exist; return whether its rows can be appended.

        They can if this load created it, and no other writer has written since.
        """
        target = existing_target(self.spark, self._merged)
        if target is None:
            self._merge(whole, CommitFacts())
            return True
        if target.properties().get(LOAD) != str(self.load.at):
            return False
        writers = {commit.facts.app_id for commit in target.commits()}
        names = {name.lower() for name in target.columns()}
        has_all = names == {name.lower() for name in self._as_stored(whole, target).columns}
        return writers <= {None, self._app_id} and has_all

    def _check_log(self) -> None:
        """Refuse a log with rows that this load has not written: without a key, nothing tells them from new ones.

        A table that heals into a log must have no target with its rows either.
        """
        keys = self._properties(self._merged).get(KEYS)
        if self.heals and keys is not None:
            raise TargetError(
                f"{self.name} has no key in TiDB now, and {self._merged} has its rows by {keys}. "
                "Give the table a key again; or rename or drop that target, and a log begins"
            )
        log = existing_target(self.spark, self._log)
        writers = {commit.facts.app_id or "" for commit in log.commits()} if log else set()
        others = writers - {"", self._app_id}
        if others:
            of_load = any(one.startswith(_WRITER) for one in others)
            what = "rows of a load that did not end" if of_load else "changes of before"
            raise TargetError(
                f"{self._log} has {what}, and nothing tells them from the rows of this load: a log has no key. "
                f"Drop {self._log}, and load again"
            )

    def _write(self, rows: SnapshotTable, frame: DataFrame, facts: CommitFacts, *, is_log: bool, appends: bool) -> None:
        if is_log:
            append_changes(frame, self._log, self._settings, facts, properties={LOAD: str(self.load.at)})
        elif appends:
            target = self._opened(self._merged)
            if not is_same(last_batch(target, facts), facts):
                target.append(self._as_stored(frame, target), facts)
        else:
            try:
                # Types that DDL has stated before say nothing of these rows, and older rows stay.
                types = replace(self._as_created(rows)[1], commit_ts=None)
                self._merge(frame, facts, [types] if self.heals else ())
            except (SchemaError, TargetError):  # nothing was written
                if not self.heals:
                    raise
                self._merge(frame, facts, self._as_created(rows))

    def _as_created(self, rows: SnapshotTable) -> list[DDLEvent]:
        """Return DDL by which the target takes TiDB's types and keys: as if the table had just been created anew."""
        statements = (f"DROP TABLE {quoted_name(self.name.table)}", "drop table"), (rows.create_sql(), "create table")
        return [
            DDLEvent(position=0, index=0, commit_ts=self.load.at - 1, table=self.name, query=query, type=kind)
            for query, kind in statements
        ]

    def _merge(self, frame: DataFrame, facts: CommitFacts, ddl: Sequence[DDLEvent] = ()) -> None:
        properties = {LOAD: str(self.load.at)}
        merge_changes(
            frame, self._merged, self._settings, facts, ddl=ddl, on_destructive_ddl="apply", properties=properties
        )

    def _remove_gone(self) -> None:
        """Delete the rows that TiDB did not have at the TSO: every other one has the load's sequence, or a newer one.

        Their deletes may never come: they were among bad records, or in what a topic has lost.
        """
        target = self._opened(self._merged)
        own = OwnColumns.of(target.properties())
        gone = f"{quoted(own.sequence)}.commit_ts < {self.load.at}"
        if own.deleted is None:
            target.delete_rows(gone, CommitFacts())
        else:
            target.update_rows({own.deleted: "true"}, f"{gone} AND NOT {quoted(own.deleted)}", CommitFacts())

    def _as_stored(self, frame: DataFrame, target: Target) -> DataFrame:
        changes = with_time_as(read_changelog(frame), target, None)
        names = OwnColumns.of(target.properties())
        sequence = changes.column(f"{changes.prefix}sequence")
        own = {names.sequence: sequence, names.committed_at: committed_at(sequence), names.deleted: F.lit(False)}  # noqa: FBT003
        return frame.select(
            *(stored_column(changes, one).alias(one.name) for one in changes.columns),
            *(column.alias(name) for name, column in own.items() if name is not None),
        )

    def _opened(self, name: str) -> Target:
        target = existing_target(self.spark, name)
        if target is None:
            raise TiCDCSourceError(f"The target {name} of {self.name} is gone since its load began: load again")
        return target

    def _tell(self, about: int, *, complete: bool = False) -> None:
        seconds, rows = time.monotonic() - self._began, self.had + self.rows
        self.load.tell(
            LoadProgress(
                table=self.name, rows=rows, of=max(about, rows), seconds=seconds, had=self.had, complete=complete
            )
        )
