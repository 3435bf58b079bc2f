"""Loads: rows that existed before the changes → their targets, as of one TSO. A load that was killed continues.

A table is read range by range. A group of ranges is one commit, which records the group's number. Rows as of a TSO do
not change, so TiDB returns the same ranges again, and the target itself tells which of them it has. Loads and changes
use the same idempotent merge.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field, replace
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
from ticdc_source.developer_api import KEY, Cut, DDLEvent, TableName, duration, quoted_name, warn
from ticdc_source.errors import SchemaError, TiCDCSourceError

LOAD = "ticdc.load"  # the property of a target with the TSO of the load that created it
RANGES_PER_COMMIT = 8  # they are read in parallel
_WRITER = "load-"  # prefix of the app_id of a load's commits
_WATCH_SECONDS = 30.0  # between two checks of garbage collection
_WANTED_SECONDS = 3600.0  # if TiDB keeps old versions for less time, a load warns


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProgress:
    """The progress of the load of a table."""

    table: TableName
    rows: int  # about how many rows are in the target
    of: int  # about how many rows the table has
    seconds: float  # for how long it has been loading, in this run
    had: int = 0  # about how many rows were in the target when this run began
    complete: bool = False
    failed: bool = False

    @property
    def seconds_left(self) -> float | None:
        """How long the rest takes at the speed of this run; None if not known yet."""
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
    """Read tables as of one TSO, in parallel, and write each into its target, range by range.

    A load that was killed continues when it is called again: complete tables, and ranges that their targets have, are
    not read again. A table that fails stops no other, and its error is returned. A target that has all rows gets the
    property `ticdc.complete` with the TSO, and is not loaded again. If it had older rows, those that TiDB did not have
    at the TSO are deleted. So changes up to the TSO are not needed any more.

    A target that the load creates gets its rows by plain appends, which cost a fraction of a MERGE. So nothing else may
    write into it before it is complete; if another writer of this package has, the rest is merged.

    `tables` says of each table whether it heals: its target then takes TiDB's types and keys if they differ, and loses
    its rows if TiDB has no such table any more. `on_progress` is called after each commit, in the thread of the table.
    Once `stop` returns True, the load ends after the commits in progress. If TiDB cannot be read, or the TSO is older
    than its GC safe point, a `TiCDCSourceError` is raised.
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
        except BaseException:  # Ctrl-C: each commit is complete, and the next run continues
            load.is_interrupted = True
            threads.shutdown(wait=False, cancel_futures=True)
            raise


@dataclass(slots=True)
class _Load:
    """One call of `load_tables`; its tables run in threads."""

    config: SyncConfig
    tidb: TiDBConfig
    at: int
    on_progress: Callable[[LoadProgress], None] | None
    stop: Callable[[], bool]
    is_interrupted: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _looked: float = float("-inf")
    _warned: bool = False

    def is_stopped(self) -> bool:
        return self.is_interrupted or self.stop()

    def watch_garbage_collection(self, wanted_s: float = 0) -> None:
        """Fail if TiDB may have removed rows of the TSO, and warn once if it soon may; asks TiDB at most each 30 s."""
        with self._lock:
            if time.monotonic() - self._looked < _WATCH_SECONDS:
                return
            life_time, self._looked = self.tidb.life_time(self.at), time.monotonic()
            kept, left = life_time or (0, float("inf"))
            if self._warned or left >= max(wanted_s, kept / 5):
                return
            self._warned = True
        still = f"keeps TSO {self.at} for another {duration(left)}" if left >= 0 else f"need not keep TSO {self.at}"
        warn(
            f"TiDB {still}, because tidb_gc_life_time is {duration(kept)}. Let it keep old versions for longer than "
            "the load takes: SET GLOBAL tidb_gc_life_time = '24h'. Reset it after the load"
        )

    def tell(self, progress: LoadProgress) -> None:
        """Report progress; a failing callback must not abort the load."""
        try:
            if self.on_progress is not None:
                self.on_progress(progress)
        except Exception as error:  # noqa: BLE001 (of a function that a user gave)
            warn(f"on_load failed for {progress.table}: {error}. The load continues")

    def table(self, spark: SparkSession, name: TableName, *, heals: bool) -> Loaded | Exception:
        try:
            # What a commit records is a setting of the session, so each table has a session of its own.
            own: Any = spark._jsparkSession  # noqa: SLF001 (no other way)
            load = _TableLoad(self, type(spark)(spark.sparkContext, own.cloneSession()), name, heals=heals).run()
        except Exception as error:  # noqa: BLE001 (of the engine, of the JVM, ours: the other tables go on)
            self.tell(LoadProgress(table=name, rows=0, of=0, seconds=0, failed=True))
            return error
        with suppress(Exception):  # such as a catalog that is gone. The given session may have cached an older table
            existing_target(spark, load.target)
        return load


class _TableLoad:
    """The load of one table."""

    def __init__(self, load: _Load, spark: SparkSession, name: TableName, *, heals: bool) -> None:
        self.load, self.spark, self.name, self.heals = load, spark, name, heals
        self._began = time.monotonic()
        self._settings = load.config.write_settings(name)
        self._merged, self._log = load.config.layout.target(name), load.config.layout.target(name, "__log")
        # With other ranges, the number of a commit has another meaning.
        self._app_id = f"{_WRITER}{load.at}-{load.tidb.rows_per_range}x{RANGES_PER_COMMIT}"
        self.had = self.rows = 0  # about how many rows the target had when this run began, and how many this run wrote

    def run(self) -> Loaded:
        """Write the ranges that the target lacks, and record that it is complete."""
        load = self.load
        if self.heals and not load.tidb.has(self.name, load.at):
            return self._empty()
        rows = load.tidb.table(self.name, load.at, zero_date=load.config.source_option("zeroDate", "null"))
        loaded = Loaded(at=load.at, target=self._merged, kind="table", create_sql=rows.create_sql())
        as_log = replace(loaded, target=self._log, kind="log")
        for known in (loaded, as_log):
            complete = int(self._properties(known.target).get(COMPLETE, 0))
            if complete >= load.at:  # an older one says nothing of what this load is to mend
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
                raise TiCDCSourceError(f"The load of {self.name} was stopped. Start the sync again, and it continues")
            load.watch_garbage_collection()
            run = partial(write, rows.frame(self.spark, group), CommitFacts(None, self._app_id, number))
            retried(run, again=lambda error, _: is_fault(error) and not load.is_stopped())
            self.rows += of_group
            self._tell(about)
        return number

    def _groups(self, rows: SnapshotTable) -> Iterator[list[Cut]]:
        """Yield groups of ranges, one for each commit; they are the same in each run."""
        after: tuple[str, ...] | None = None
        while group := rows.ranges(self.load.tidb.rows_per_range, after, RANGES_PER_COMMIT):
            yield group
            after = group[-1].after
            if after is None:
                return

    def _empty(self) -> Loaded:
        """Remove the rows of a table that TiDB does not have any more."""
        self._app_id = f"{_WRITER}{self.load.at}-gone"
        if existing_target(self.spark, self._merged) is not None:
            self._remove_gone()
            self._end(self._merged, 0)
        return Loaded(at=self.load.at, target=self._merged, kind="table", is_gone=True)

    def _end(self, name: str, number: int) -> None:
        """Record in a commit and in a property that a target is the table as of the TSO."""
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

        They can if this load created the target, and no other writer has written into it.
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
        """Refuse a log with rows of other writers: without a key, these cannot be told from the load's.

        A table that heals into a log must not have a merged target with rows either.
        """
        keys = self._properties(self._merged).get(KEYS)
        if self.heals and keys is not None:
            raise TargetError(
                f"{self.name} no longer has a key in TiDB, and {self._merged} has its rows by the key {keys}. Rename "
                "or drop this target, so that a log begins; or give the table a key again"
            )
        log = existing_target(self.spark, self._log)
        writers = {commit.facts.app_id or "" for commit in log.commits()} if log else set()
        others = writers - {"", self._app_id}
        if others:
            of_load = any(one.startswith(_WRITER) for one in others)
            what = "rows of an unfinished load" if of_load else "earlier changes"
            raise TargetError(
                f"{self._log} has {what}, which cannot be told from the rows of this load, as a log has no key. Drop "
                f"{self._log}, and load the table again"
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
                # Types from earlier DDL do not apply to these rows. Without a commit-ts, older rows stay.
                types = replace(self._as_created(rows)[1], commit_ts=None)
                self._merge(frame, facts, [types] if self.heals else ())
            except (SchemaError, TargetError):  # nothing was written
                if not self.heals:
                    raise
                self._merge(frame, facts, self._as_created(rows))

    def _as_created(self, rows: SnapshotTable) -> list[DDLEvent]:
        """Return DDL by which the target takes TiDB's types and keys, as if the table had just been created again."""
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
        """Delete the rows that TiDB did not have at the TSO: those with an older sequence than the load's.

        Their deletes may never come, as they were among bad or lost records.
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
            raise TiCDCSourceError(f"The target {name} of {self.name} was dropped during its load. Load it again")
        return target

    def _tell(self, about: int, *, complete: bool = False) -> None:
        seconds, rows = time.monotonic() - self._began, self.had + self.rows
        progress = LoadProgress(
            table=self.name, rows=rows, of=max(about, rows), seconds=seconds, had=self.had, complete=complete
        )
        self.load.tell(progress)
