"""How tables join a sync that has a TiDB: their rows are read as of a TSO, and their changes go on after it.

A table that is loading is written by its load alone. What the stream brings for it meanwhile is kept, as for a table
that is set aside, and written once the load has ended. The status of a table says that it is loading, and as of which
TSO, before the first row is read: so a sync that was killed goes on with the same load.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import replace

from pyspark.sql import SparkSession

from ticdc_source.errors import TiCDCSourceError, UnexplainedChangeError, warn
from ticdc_source.lakehouse.completeness import unclaimed
from ticdc_source.lakehouse.config import SyncConfig
from ticdc_source.lakehouse.failures import is_fault
from ticdc_source.lakehouse.healing import can_heal, healing_status
from ticdc_source.lakehouse.load_folder import created_tables
from ticdc_source.lakehouse.loading import Destination, LoadProgress, TableLoad, load_tables
from ticdc_source.lakehouse.status import TableStatus
from ticdc_source.options.parsers import tables as table_patterns
from ticdc_source.options.table_filter import TableFilter, parse_table
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.table_name import TableName
from ticdc_source.snapshots.jdbc import current_tso, gc_state_of, tables_at
from ticdc_source.snapshots.queries import TiDBAddress

__all__ = ["Joining"]

Statuses = Mapping[str, TableStatus]
_LONGEST_REASON = 2000  # characters
_ASKS_AGAIN_S = 30.0  # after a load for which TiDB did not answer
_POLL_S = 0.2


class Joining:
    """Loads the tables of a sync from TiDB. Without `[tidb]` it loads nothing, but knows the columns of earlier loads.

    Args:
        spark: the session.
        config: what is copied.
        on_load: is called when the load of a table has come further.
        redact: returns a text without secrets: errors of stores may have them.
        is_stopped: returns whether the sync is stopped, or its stream has ended. Then loads end after the commits that
            are under way, and continue when the sync is started again.
        stops_all: returns whether an error affects all tables.
        fail: stops the sync with such an error.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: SyncConfig,
        on_load: Callable[[LoadProgress], None] | None = None,
        redact: Callable[[str], str] = lambda text: text,
        *,
        is_stopped: Callable[[], bool] = lambda: False,
        stops_all: Callable[[Exception], bool] = lambda _: False,
        fail: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        self._redact = redact
        self._is_stopped = is_stopped
        self._stops_all = stops_all
        self._fail = fail
        self.known_ddl: dict[str, tuple[DDLEvent, ...]] = {}
        self._spark = spark
        self._config = config
        self._on_load = on_load
        self._lock = threading.Lock()
        self._done: dict[str, TableStatus] = {}
        self._waiting: list[TableStatus] = []
        self._thread: threading.Thread | None = None

    @property
    def _tidb(self) -> TiDBAddress | None:
        return None if self._config.tidb is None else self._config.tidb.address

    # Before the first micro-batch

    def joined(
        self, statuses: Statuses, resumed: Iterable[str] = (), *, is_new: bool = False
    ) -> dict[str, TableStatus]:
        """Return the statuses of tables that are to be loaded: new ones, and those whose load has not ended.

        Args:
            statuses: the statuses of all tables that the sync has.
            resumed: tables that are set aside and go on now. If they are not complete, they are loaded.
            is_new: whether the stream has just started. An unfinished load then takes a new TSO: its old one may
                be older than the first change of the stream.
        """
        tidb = self._tidb
        if tidb is None:
            loading = sorted(name for name, each in statuses.items() if each.state == "loading")
            if loading:
                warn(f"[tidb] is gone, so the loads of these tables cannot continue: {', '.join(loading)}")
            return {}
        try:
            return self._joined(tidb, statuses, resumed, is_new=is_new)
        except TiCDCSourceError as error:
            if not any(each.state == "following" for each in statuses.values()):
                raise
            warn(f"Cannot start loads now: {self._redact(str(error))}. Tables that need none go on")
            return {}

    def _joined(
        self, tidb: TiDBAddress, statuses: Statuses, resumed: Iterable[str], *, is_new: bool
    ) -> dict[str, TableStatus]:
        at = self._now(tidb)
        names = [name for name in tables_at(self._spark, tidb, self._filter, at=at) if self._config.selects(name)]
        refused = self._config.layout.refused([*map(parse_table, statuses), *names])
        loading = {name: each for name, each in statuses.items() if each.state == "loading"}
        moments = {
            each.loaded_ts: at if is_new else self._kept_tso(tidb, each.loaded_ts, at) for each in loading.values()
        }
        found = {name: replace(each, loaded_ts=moments[each.loaded_ts]) for name, each in loading.items()}
        for name in resumed:
            if self.completes(statuses[name]) and parse_table(name) not in refused:
                found[name] = self._resumed(statuses[name], at)
        spelt = {name.lower(): name for name in statuses}
        for table in names:
            status = statuses.get(spelt.get(str(table).lower(), ""))
            if status is None and table not in refused:
                target = self._config.layout.target(table)
                found[str(table)] = TableStatus(table_name=str(table), target=target, state="loading", loaded_ts=at)
            elif status is not None and status.state == "following" and self._is_due(status):
                found[status.table_name] = _loading(status, at)
        return found

    def _resumed(self, status: TableStatus, at: int) -> TableStatus:
        """Return the status of a table that is resumed while its rows are read."""
        if not can_heal(self._config, status):
            return _loading(status, at)
        return replace(healing_status(self._config, status, None, status.set_aside_batch), loaded_ts=at)

    def _is_due(self, status: TableStatus) -> bool:
        """Return whether a table that follows is loaded: not at each start if its changes may be lost again."""
        return _is_loadable(status) and not (self._config.may_lose_changes and status.loaded_ts is not None)

    def load(self, statuses: Iterable[TableStatus]) -> dict[str, TableStatus]:
        """Load tables, and return their statuses."""
        found: dict[str, TableStatus] = {}
        for at, group in _by_moment(statuses):
            found |= self._load(at, group)
        self.remember({**found})
        return found

    def remember(self, statuses: Statuses) -> None:
        """Know the columns that loaded tables had when they were read: DDL of before may not be in the topics."""
        moments = sorted({each.loaded_ts for each in statuses.values() if each.loaded_ts is not None})
        for at in moments:
            for table, create in created_tables(self._spark, self._folder(at), at):
                event = DDLEvent(position=0, index=0, commit_ts=at, table=table, query=create, type="create table")
                self.known_ddl[str(table)] = (event,)

    def completes(self, status: TableStatus) -> bool:
        """Return whether a table that is resumed is loaded, before its kept changes are written."""
        return self._config.tidb is not None and (can_heal(self._config, status) or _is_loadable(status))

    def begins_again(self, status: TableStatus) -> TableStatus | None:
        """Return the status `loading` of a table that is resumed by a load; None if its kept records complete it."""
        if self._config.tidb is None or not _is_loadable(status):
            return None
        return replace(_loading(status, 0), loaded_ts=self.now(status.table_name))

    # While the stream runs

    def begins(self, table: TableName) -> TableStatus | None:
        """Return the status `loading` of a table whose CREATE is not in the topics; None if TiDB has no such table.

        If TiDB does not answer, the status has no TSO yet.
        """
        tidb = self._tidb
        if tidb is None:
            return None
        begun = TableStatus(table_name=str(table), target=self._config.layout.target(table), state="loading")
        try:
            at = self._now(tidb)
            exact = TableFilter(((table.database, table.table),))
            if not any(table.is_same(one) for one in tables_at(self._spark, tidb, exact, at=at)):
                return None  # it is gone by now: there is nothing to load
        except TiCDCSourceError as error:
            self._warn_of_tidb(error, [begun.table_name])
            return begun
        return replace(begun, loaded_ts=at)

    def now(self, table: str) -> int | None:
        """Return the present TSO; None if TiDB does not answer, which is a warning.

        Args:
            table: the table that is to be loaded, for the warning.
        """
        tidb = self._tidb
        try:
            return None if tidb is None else self._now(tidb)
        except TiCDCSourceError as error:
            self._warn_of_tidb(error, [table])
            return None

    def load_beside(self, statuses: Iterable[TableStatus]) -> None:
        """Load tables in a thread of their own, while the stream goes on."""
        with self._lock:
            self._waiting += statuses
            if self._waiting and (self._thread is None or not self._thread.is_alive()):
                run = copy_context().run  # which asks whether this process may still write
                self._thread = threading.Thread(target=run, args=(self._run,), name="ticdc-sync loads", daemon=True)
                self._thread.start()

    def finished(self) -> dict[str, TableStatus]:
        """Return the statuses of tables whose load in the thread has ended since the last call."""
        with self._lock:
            done, self._done = self._done, {}
        self.remember(done)
        return done

    def join(self) -> None:
        """Wait until nothing is loaded any more beside the stream."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._lock:
                waiting, self._waiting = self._waiting, []
                if not waiting or self._is_stopped():
                    self._thread = None
                    return
            for at, group in _by_moment(waiting):
                try:
                    found = self._load(self._moment_again(at, group), group)
                except Exception as error:  # noqa: BLE001 (of Spark, Py4J, a catalog or a store: each has its own)
                    if not self._is_stopped():
                        self._fail(error)
                    return
                again = [each for each in found.values() if each.state == "loading"]
                with self._lock:
                    self._done |= {name: each for name, each in found.items() if each.state != "loading"}
                    self._waiting += again
                if again:
                    self._pause()

    def _pause(self) -> None:
        """Wait before TiDB is asked again, or until the sync is stopped."""
        end = time.monotonic() + _ASKS_AGAIN_S
        while time.monotonic() < end and not self._is_stopped():
            time.sleep(_POLL_S)

    def _moment_again(self, at: int | None, group: Sequence[TableStatus]) -> int | None:
        """Return the TSO of a load that has waited: a new one if TiDB no longer has the rows of that moment."""
        if at is None or self._tidb is None:
            return at
        try:
            return self._kept_tso(self._tidb, at, self._now(self._tidb))
        except TiCDCSourceError as error:
            self._warn_of_tidb(error, [each.table_name for each in group])
            return at

    # A load

    def _load(self, at: int | None, statuses: Sequence[TableStatus]) -> dict[str, TableStatus]:
        """Load tables as of one TSO; None is the current one. While TiDB does not answer, their state is `loading`."""
        tidb, config = self._tidb, self._config
        if tidb is None or config.tidb is None:
            return {}
        try:
            if at is None:
                at = self._now(tidb)
            tables = {parse_table(each.table_name): replace(each, loaded_ts=at) for each in statuses}
            report = load_tables(
                self._spark,
                tidb,
                list(tables),
                lambda table: replace(self._destination(table), is_older=True, replaces=tables[table].heals),
                folder=self._folder(at),
                at=at,
                parallel=config.parallel,
                rows_per_range=config.tidb.rows_per_range,
                zero_date=config.source_option("zeroDate", "null"),
                on_progress=self._on_load,
                stop=self._is_stopped,
            )
        except TiCDCSourceError as error:  # TiDB cannot be read, or that moment is gone
            self._warn_of_tidb(error, [each.table_name for each in statuses])
            return {each.table_name: each for each in statuses}
        found, away = {}, None
        for load in report.tables:
            status = tables[load.table]
            if load.error is not None and away is None and not self._is_stopped():
                away = self._is_away(tidb, statuses)
            found[status.table_name] = (
                self._complete(status, load) if load.error is None
                else status if away
                else self._failed(status, load.error)
            )  # fmt: skip
        return found

    def _is_away(self, tidb: TiDBAddress, statuses: Sequence[TableStatus]) -> bool:
        """Return whether TiDB does not answer now: then no load has failed for a table's sake."""
        try:
            self._now(tidb)
        except TiCDCSourceError as error:
            self._warn_of_tidb(error, [each.table_name for each in statuses])
            return True
        return False

    def _warn_of_tidb(self, error: TiCDCSourceError, names: Sequence[str]) -> None:
        why = self._redact(str(error))
        warn(f"Cannot load {', '.join(names)} yet: {why}. The sync tries again, and so does its next start")

    def _complete(self, status: TableStatus, load: TableLoad) -> TableStatus:
        """Return the status of a table that has its rows."""
        is_log = load.target == self._destination(parse_table(status.table_name)).log
        loaded = replace(
            status,
            target=load.target,
            kind=None if load.gone and status.kind is None else "log" if is_log else "table",
            state="following",
            reason=None,
            bad_records=0,
            bad_until=None,
            target_batch=None,
            complete_since=load.complete,
            loaded_ts=load.complete,
            resolved_ts=load.complete,
            heals=False,
        )
        return loaded.after_pause(status, status.reason or "its rows were read from TiDB", load.rows)

    def _failed(self, status: TableStatus, error: Exception) -> TableStatus:
        """Return the status of a table whose load has failed.

        Raises:
            Exception: the error affects all tables.
        """
        if self._is_stopped():
            return status
        if self._stops_all(error):
            raise error
        if isinstance(error, UnexplainedChangeError) and status.kind is not None and not status.heals:
            warn(f"{self._redact(str(error))}. Changes of {status.table_name} are applied; the next start loads it")
            return replace(status, state="following", loaded_ts=None)
        text = f"The load failed: {self._redact(str(error))}"[:_LONGEST_REASON]
        failed = replace(status, state="set aside", reason=text, loaded_ts=None, is_retried=is_fault(error))
        if status.heals:  # what it had is not complete any more, and the records of before are not kept
            failed = unclaimed(self._spark, failed)
        return failed

    def _destination(self, table: TableName) -> Destination:
        layout = self._config.layout
        return Destination(
            target=layout.target(table),
            log=layout.target(table, "__log"),
            settings=self._config.write_settings(table),
        )

    def _folder(self, at: int) -> str:
        return f"{self._config.checkpoint}/load/{at}"

    @property
    def _filter(self) -> TableFilter:
        return TableFilter(table_patterns(",".join(self._config.tables)) if self._config.tables else ())

    def _now(self, tidb: TiDBAddress) -> int:
        return current_tso(self._spark, tidb.url, user=tidb.user, password=tidb.password, properties=tidb.properties)

    def _kept_tso(self, tidb: TiDBAddress, at: int | None, now: int) -> int:
        """Return the TSO of a load that goes on: a new one if TiDB no longer has the rows of that moment."""
        if at is None:
            return now
        state = gc_state_of(self._spark, tidb, at)
        if not state.is_inside:
            warn(f"{state.advice}. The load starts again at TSO {now}, and reads unfinished tables again")
        return at if state.is_inside else now


def _by_moment(statuses: Iterable[TableStatus]) -> list[tuple[int | None, list[TableStatus]]]:
    """Return the statuses by their TSO, the oldest first."""
    groups: dict[int | None, list[TableStatus]] = {}
    for each in sorted(statuses, key=lambda each: each.loaded_ts or 0):
        groups.setdefault(each.loaded_ts, []).append(each)
    return [*groups.items()]


def _loading(status: TableStatus, at: int) -> TableStatus:
    """Return the status of a table while its rows are read as of a TSO."""
    return replace(status, state="loading", reason=None, waits_for_ddl=False, is_retried=False, loaded_ts=at)


def _is_loadable(status: TableStatus) -> bool:
    """Return whether a load makes the copy of a table complete: rows of a log cannot be told from those of a load."""
    return status.complete_since is None and status.kind != "log"
