"""load_tables: the rows that were there before the changes, as of one TSO, into their targets; it continues if killed.

A table is read range by range, and a group of ranges is one commit, whose number the target remembers. The past does
not change, so TiDB gives the same ranges again: the target itself says what it has. Loading and following are the same
idempotent merge: the changes may come before or after.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

from ticdc_lakehouse.common.errors import TargetError
from ticdc_lakehouse.common.tidb import SnapshotTable, TiDBConfig
from ticdc_lakehouse.common.verbatim import with_verbatim_sql
from ticdc_lakehouse.syncs.failures import is_fault
from ticdc_lakehouse.targets.changelog import committed_at, read_changelog, stored_column, with_time_as
from ticdc_lakehouse.targets.data_layout import WriteSettings
from ticdc_lakehouse.targets.log import append_changes
from ticdc_lakehouse.targets.merge import COMPLETE, KEYS, OwnColumns, merge_changes
from ticdc_lakehouse.targets.opening import existing_target
from ticdc_lakehouse.targets.repeats import is_same, last_batch, retried
from ticdc_lakehouse.targets.target import CommitFacts, Target
from ticdc_lakehouse.targets.target_names import quoted
from ticdc_source.developer_api import KEY, Cut, DDLEvent, TableFilter, TableName, duration, loads, quoted_name, warn
from ticdc_source.errors import SchemaError, TiCDCSourceError

LOAD = "ticdc.load"  # a property of a target: the TSO of the load that created it
_WRITER = "load-"  # begins the app_id of the commits of a load
_WATCH_SECONDS = 30.0  # between two looks at garbage collection
_WANTED_SECONDS = 3600.0  # of a life time that is shorter, a load warns


@dataclass(frozen=True, kw_only=True)
class Destination:
    """Where the rows of a table go, and how they are written.

    Attributes:
        log: the name of the log, if the table has no key.
        settings: how they are written.
        is_older: whether the target has no change of after the TSO, so that it is the table at the TSO in the end.
        replaces: whether such a target takes TiDB's types and keys if its own are other ones, and loses its rows if
            TiDB has no such table any more.
    """

    target: str
    log: str
    settings: WriteSettings = field(default_factory=WriteSettings)
    is_older: bool = False
    replaces: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProgress:
    """How far the load of a table is.

    Attributes:
        rows: about how many of its rows are in the target.
        of: about how many rows it has.
        seconds: for how long it has been loading, in this run.
        had: about how many rows were there when this run began.
        complete: whether all its rows are there.
        failed: whether the load of the table has ended with an error.
    """

    table: TableName
    rows: int
    of: int
    seconds: float
    had: int = 0
    complete: bool = False
    failed: bool = False

    @property
    def seconds_left(self) -> float | None:
        """How long the load will go on at the speed of this run; None if nothing tells it yet."""
        new = self.rows - self.had
        return None if new <= 0 or self.seconds <= 0 else self.seconds * max(0, self.of - self.rows) / new


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLoad:
    """What the load of a table did.

    Attributes:
        target: the name of the target, or of the log.
        complete: the TSO from which on the target has every row; None if it has not.
        rows: about how many rows were read.
        ranges: how many ranges were read.
        had: how many ranges the target had already, of a run before.
        gone: whether TiDB had no such table.
        error: why it is not complete.
    """

    table: TableName
    target: str
    complete: int | None = None
    rows: int = 0
    ranges: int = 0
    had: int = 0
    gone: bool = False
    error: Exception | None = None


@with_verbatim_sql
def load_tables(
    spark: SparkSession,
    tidb: TiDBConfig,
    tables: Sequence[TableName],
    target_of: Callable[[TableName], Destination],
    *,
    at: int,
    folder: str,
    parallel: int = 4,
    ranges_per_commit: int = 8,
    zero_date: str = "null",
    on_progress: Callable[[LoadProgress], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[TableLoad, ...]:
    """Read tables as of one TSO, side by side, and write each into its target, range by range.

    A load that was killed goes on when it is called again: tables that are complete, and ranges that their targets
    have, are not read again. A table that fails stops no other; its error is returned. A target that has all rows
    gets the property `ticdc.complete` with the TSO, and is left alone from then on. If it had rows of before, those
    that TiDB did not have at the TSO are deleted first. So changes up to the TSO are not needed any more.

    A target that the load creates itself gets its rows by plain appends, which cost a fraction of a MERGE. So nothing
    else may write into it before it is complete; if another writer of this package has, the rest is merged.

    Args:
        tidb: where TiDB is, and how many rows a task reads.
        folder: where the load keeps the `CREATE TABLE` of each table (`created_tables`).
        parallel: how many tables are loaded at once.
        ranges_per_commit: how many ranges are one commit. They are read in parallel.
        zero_date: as the option `zeroDate`.
        on_progress: what is called after each commit, in the thread of a table. What it raises is a warning.
        stop: ends the load after the commits that are under way, once it returns true.

    Raises:
        TiCDCSourceError: TiDB cannot be read, or the TSO is older than its GC safe point.
    """
    watch = _Watch(tidb, at)
    watch.look(_WANTED_SECONDS)
    ended = threading.Event()
    load = _Load(tidb, at, folder, watch, ranges_per_commit, zero_date, on_progress, lambda: ended.is_set() or stop())
    with ThreadPoolExecutor(parallel, thread_name_prefix="load") as threads:
        futures = [
            threads.submit(copy_context().run, partial(load.table, spark, name, target_of(name))) for name in tables
        ]
        try:
            return tuple(future.result() for future in futures)
        except BaseException:  # Ctrl-C: what is written is complete, and the rest of it is for the next run
            ended.set()
            threads.shutdown(wait=False, cancel_futures=True)
            raise


class _Watch:
    """Garbage collection, at which a load looks before it begins and between its commits."""

    def __init__(self, tidb: TiDBConfig, at: int) -> None:
        self._tidb, self._at = tidb, at
        self._lock = threading.Lock()
        self._looked = float("-inf")
        self._warned = False

    def look(self, wanted_s: float = 0) -> None:
        """Refuse a moment that is gone, and warn once if it will be soon; most calls ask nothing."""
        with self._lock:
            if time.monotonic() - self._looked < _WATCH_SECONDS:
                return
            life_time, self._looked = self._tidb.life_time(self._at), time.monotonic()
            kept, left = life_time or (0, float("inf"))
            if self._warned or left >= max(wanted_s, kept / 5):
                return
            self._warned = True
        still = f"keeps TSO {self._at} for {duration(left)} more" if left >= 0 else f"need not keep TSO {self._at}"
        warn(
            f"TiDB {still}, because tidb_gc_life_time is {duration(kept)}. Let it keep the past for longer than the "
            "load takes: SET GLOBAL tidb_gc_life_time = '24h'; set it back when the load has ended"
        )


@dataclass(frozen=True)
class _Load:
    """One call of `load_tables`; its tables run in threads."""

    tidb: TiDBConfig
    at: int
    folder: str
    watch: _Watch
    ranges_per_commit: int
    zero_date: str
    on_progress: Callable[[LoadProgress], None] | None
    is_stopped: Callable[[], bool]

    def tell(self, progress: LoadProgress) -> None:
        """Say how far a table is: whoever hears it must not fail the load."""
        try:
            if self.on_progress is not None:
                self.on_progress(progress)
        except Exception as error:  # noqa: BLE001 (of a function that a user gave)
            warn(f"The progress of the load of {progress.table} was not told: {error}")

    def table(self, spark: SparkSession, name: TableName, place: Destination) -> TableLoad:
        """Load a table; its error is part of what is returned."""
        try:
            # What a commit records is a setting of the session, so each table has a session of its own.
            return _TableLoad(self, _session_like(spark), name, place).shown_in(spark)
        except Exception as error:  # noqa: BLE001 (of the engine, of the JVM, ours: the other tables go on)
            self.tell(LoadProgress(table=name, rows=0, of=0, seconds=0, failed=True))
            return TableLoad(table=name, target=place.target, error=error)


class _TableLoad:
    """The load of one table."""

    def __init__(self, load: _Load, spark: SparkSession, name: TableName, place: Destination) -> None:
        self._load, self._spark, self._name, self._place = load, spark, name, place
        self._began = time.monotonic()
        self._app_id = ""
        self._had = self._rows = 0

    def shown_in(self, spark: SparkSession) -> TableLoad:
        """Load the table, also for a session that may have kept what the target was."""
        load = self.run()
        with suppress(Exception):  # of a catalog: the load has ended
            existing_target(spark, load.target)
        return load

    def run(self) -> TableLoad:
        """Write the ranges that the target lacks, and say that it is complete."""
        for known in (self._place.target, self._place.log):  # without asking TiDB
            properties = self._properties(known)
            if int(properties.get(COMPLETE, 0)) >= self._load.at:  # an older claim is of before what this load mends
                return self._report(known, properties)
        load = self._load
        if self._place.replaces and not self._is_in_tidb():
            return self._empty()
        rows = load.tidb.table(self._name, load.at, zero_date=load.zero_date)
        keep_created(self._spark, load.folder, load.at, self._name, rows.create_sql())
        whole = rows.frame(self._spark, [])
        has_key = self._place.settings.keys or any((one.metadata or {}).get(KEY) == "true" for one in whole.schema)
        is_log = self._place.settings.as_log or not has_key
        if is_log and self._place.replaces:
            self._check_no_table()
        target = self._place.log if is_log else self._place.target
        size = self._begin(target)
        appends = not is_log and self._create(whole)
        if is_log:
            self._check_log()
        start, had, read = self._next_group(target), 0, 0
        about, number = rows.about(), -1
        for number, group in enumerate(self._groups(rows, size)):
            if number < start:
                had += len(group)
                self._had += sum(one.rows for one in group)
                continue
            if number == start:
                self._tell(about)
            if load.is_stopped():
                msg = f"The load of {self._name} was stopped: load again, and it continues"
                raise TiCDCSourceError(msg)
            load.watch.look()
            is_last = group[-1].after is None
            # Of a target with newer changes nobody knows here what it has.
            facts = CommitFacts(load.at if appends and is_last else None, self._app_id, number)
            write = partial(self._write, rows, rows.frame(self._spark, group), facts, is_log=is_log, appends=appends)
            retried(write, again=lambda error, _: is_fault(error) and not load.is_stopped())
            read += len(group)
            self._rows += sum(one.rows for one in group)
            self._tell(self._had + self._rows if is_last else about)
        if is_log and existing_target(self._spark, target) is None:  # there were no rows
            self._write(rows, whole, CommitFacts(None, self._app_id, 0), is_log=True, appends=False)
        if not is_log and not appends:
            self._remove_gone()
        if self._place.is_older and (is_log or not appends or number < 0):
            self._end(target, number + 2)
        self._opened(target).set_properties({COMPLETE: str(load.at)})
        self._tell(self._had + self._rows, complete=True)
        return replace(self._report(target, self._properties(target)), rows=self._rows, ranges=read, had=had)

    def _groups(self, rows: SnapshotTable, size: int) -> Iterator[list[Cut]]:
        """Yield groups of ranges, each of which is one commit; the same ones in each run."""
        after: tuple[str, ...] | None = None
        while group := rows.ranges(size, after, self._load.ranges_per_commit):
            yield group
            after = group[-1].after
            if after is None:
                return

    def _begin(self, target: str) -> int:
        """Return how many rows a range has: as many as in the run before, which the names of its commits say.

        The number of a commit means nothing with other ranges.
        """
        load = self._load
        existing = existing_target(self._spark, target)
        pattern = re.compile(rf"{_WRITER}{load.at}-(\d+)x{load.ranges_per_commit}")
        writers = [commit.facts.app_id or "" for commit in existing.commits()] if existing else []
        sizes = [int(known[1]) for known in map(pattern.fullmatch, writers) if known]
        size = sizes[0] if sizes else load.tidb.rows_per_range
        self._app_id = f"{_WRITER}{load.at}-{size}x{load.ranges_per_commit}"
        return size

    def _is_in_tidb(self) -> bool:
        """Return whether TiDB had the table at the TSO."""
        exact = TableFilter(((self._name.database, self._name.table),))
        return any(map(self._name.is_same, self._load.tidb.tables_at(exact, self._load.at)))

    def _empty(self) -> TableLoad:
        """Remove the rows of a table that TiDB has no longer."""
        at, name = self._load.at, self._place.target
        self._app_id = f"{_WRITER}{at}-gone"
        if existing_target(self._spark, name) is not None:
            self._remove_gone()
            self._end(name, 0)
            self._opened(name).set_properties({COMPLETE: str(at)})
        return TableLoad(table=self._name, target=name, complete=at, gone=True)

    def _check_no_table(self) -> None:
        """Refuse to read a table into a log while a target has its rows."""
        target = existing_target(self._spark, self._place.target)
        if target is not None and KEYS in target.properties():
            msg = (
                f"{self._name} has no key in TiDB now, and {target.name} has its rows by {target.properties()[KEYS]}. "
                "Give the table a key again; or rename or drop that target, and a log begins"
            )
            raise TargetError(msg)

    def _end(self, name: str, number: int) -> None:
        """Commit that a target is the table at the TSO: it may have had no rows, or deletes have followed the last."""
        target = self._opened(name)
        facts = CommitFacts(self._load.at, self._app_id, number)
        if not is_same(last_batch(target, facts), facts):
            target.append(target.frame().where(F.lit(False)), facts)  # noqa: FBT003 (a value of Spark)

    def _properties(self, name: str) -> Mapping[str, str]:
        target = existing_target(self._spark, name)
        return {} if target is None else target.properties()

    def _report(self, target: str, properties: Mapping[str, str]) -> TableLoad:
        return TableLoad(table=self._name, target=target, complete=int(properties[COMPLETE]))

    def _create(self, whole: DataFrame) -> bool:
        """Create the target if it does not exist; return whether its rows can be appended.

        They can if this load created it, and no other writer has written since.
        """
        target = existing_target(self._spark, self._place.target)
        if target is None:
            self._merge(whole, CommitFacts())
            return True
        if target.properties().get(LOAD) != str(self._load.at):
            return False
        writers = {commit.facts.app_id for commit in target.commits()}
        names = {name.lower() for name in target.columns()}
        has_all = names == {name.lower() for name in self._as_stored(whole, target).columns}
        return writers <= {None, self._app_id} and has_all

    def _check_log(self) -> None:
        """Refuse a log with rows that this load has not written: without a key, nothing tells them from new ones."""
        log = existing_target(self._spark, self._place.log)
        writers = {commit.facts.app_id or "" for commit in log.commits()} if log else set()
        others = writers - {"", self._app_id}
        if others:
            of_load = any(one.startswith(_WRITER) for one in others)
            what = "rows of a load that did not end" if of_load else "changes of before"
            msg = (
                f"{self._place.log} has {what}, and nothing tells them from the rows of this load: a log has no key. "
                f"Drop {self._place.log}, and load again"
            )
            raise TargetError(msg)

    def _next_group(self, target: str) -> int:
        """Return the number of the first group that a target does not have."""
        existing = existing_target(self._spark, target)
        last = None if existing is None else existing.last_batch(self._app_id)
        return 0 if last is None else last.number + 1

    def _write(self, rows: SnapshotTable, frame: DataFrame, facts: CommitFacts, *, is_log: bool, appends: bool) -> None:
        if is_log:
            place, properties = self._place, {LOAD: str(self._load.at)}
            append_changes(frame, place.log, place.settings, facts, properties=properties)
        elif not appends:
            try:
                # Types that DDL has stated before say nothing of these rows, and older rows stay.
                types = replace(self._as_created(rows)[1], commit_ts=None)
                self._merge(frame, facts, [types] if self._place.replaces else ())
            except (SchemaError, TargetError):  # nothing was written
                if not self._place.replaces:
                    raise
                self._merge(frame, facts, self._as_created(rows))
        else:
            target = self._opened(self._place.target)
            if not is_same(last_batch(target, facts), facts):
                target.append(self._as_stored(frame, target), facts)

    def _as_created(self, rows: SnapshotTable) -> list[DDLEvent]:
        """Return DDL by which the target takes TiDB's types and keys: as if the table had just been created anew."""
        statements = (f"DROP TABLE {quoted_name(self._name.table)}", "drop table"), (rows.create_sql(), "create table")
        return [
            DDLEvent(position=0, index=0, commit_ts=self._load.at - 1, table=self._name, query=query, type=kind)
            for query, kind in statements
        ]

    def _merge(self, frame: DataFrame, facts: CommitFacts, ddl: Sequence[DDLEvent] = ()) -> None:
        place, properties = self._place, {LOAD: str(self._load.at)}
        merge_changes(
            frame, place.target, place.settings, facts, ddl=ddl, on_destructive_ddl="apply", properties=properties
        )

    def _remove_gone(self) -> None:
        """Delete the rows that TiDB did not have at the TSO: every other one has the load's sequence, or a newer one.

        Their deletes may never come: they were among bad records, or in what a topic has lost.
        """
        target = self._opened(self._place.target)
        own = OwnColumns.of(target.properties())
        gone = f"{quoted(own.sequence)}.commit_ts < {self._load.at}"
        if own.deleted is None:
            target.delete_rows(gone, CommitFacts())
        else:
            target.update_rows({own.deleted: "true"}, f"{gone} AND NOT {quoted(own.deleted)}", CommitFacts())

    def _as_stored(self, frame: DataFrame, target: Target) -> DataFrame:
        """Return rows as `merge_into` would store them."""
        changes = with_time_as(read_changelog(frame), target, None)
        names = OwnColumns.of(target.properties())
        sequence = changes.column(f"{changes.prefix}sequence")
        own = {names.sequence: sequence, names.committed_at: committed_at(sequence), names.deleted: F.lit(False)}  # noqa: FBT003
        return frame.select(
            *(stored_column(changes, one).alias(one.name) for one in changes.columns),
            *(column.alias(name) for name, column in own.items() if name is not None),
        )

    def _opened(self, name: str) -> Target:
        target = existing_target(self._spark, name)
        if target is None:
            msg = f"The target {name} of {self._name} is gone since its load began: load again"
            raise TiCDCSourceError(msg)
        return target

    def _tell(self, about: int, *, complete: bool = False) -> None:
        seconds, rows = time.monotonic() - self._began, self._had + self._rows
        self._load.tell(
            LoadProgress(
                table=self._name, rows=rows, of=max(about, rows), seconds=seconds, had=self._had, complete=complete
            )
        )


def keep_created(spark: SparkSession, folder: str, at: int, table: TableName, create: str) -> None:
    """Keep what a table was as of the TSO of its load: earlier DDL may be missing in the topics."""
    kept = json.dumps({"database": table.database, "table": table.table, "create": create})
    name = hashlib.sha256(json.dumps([table.database.lower(), table.table.lower()]).encode()).hexdigest()[:24]
    row = spark.range(1, numPartitions=1).select(F.lit(kept).alias("value"))
    row.write.mode("overwrite").text(f"{folder}/{at}/{name}")


def created_tables(spark: SparkSession, folder: str, at: int) -> list[tuple[TableName, str]]:
    """Return the tables whose load as of a TSO has begun, with the `CREATE TABLE` of that moment."""
    try:
        rows = spark.read.text(f"{folder}/{at}/*/", wholetext=True).collect()
    except AnalysisException:  # none has
        return []
    kept = [loads(row[0]) for row in rows]
    return [(TableName(each["database"], each["table"]), each["create"]) for each in kept if each.get("create")]


def _session_like(spark: SparkSession) -> SparkSession:
    """Return a session with the same settings and views, and settings of its own from now on."""
    clone = getattr(spark, "_jsparkSession", None)
    if clone is None:  # Spark Connect
        return spark.newSession()
    return type(spark)(spark.sparkContext, clone.cloneSession())
