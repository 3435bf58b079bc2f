"""How tables join a sync that has a TiDB: their rows are read as of a TSO, and later changes are applied.

While a table is loading, only its load writes it. Its records from the stream are kept, as for a table that is set
aside, and written once the load has ended. Before the first row is read, the status of the table says that it is
loading, and as of which TSO, so a sync that was killed continues the same load.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import copy_context
from functools import partial

from pyspark.sql import SparkSession

from ticdc_lakehouse.syncs.config import SyncConfig
from ticdc_lakehouse.syncs.failures import LONGEST_REASON, Result, Shared, Stream, text_of, why_of
from ticdc_lakehouse.syncs.loading import LoadProgress, load_tables
from ticdc_lakehouse.syncs.status import Following, Loading, TableStatus
from ticdc_lakehouse.syncs.steps import Begins, Failed, Loaded
from ticdc_lakehouse.tidb import TiDBConfig
from ticdc_source.developer_api import TableName, parse_table, warn
from ticdc_source.errors import DataLossError, TiCDCSourceError

LoadEvents = dict[str, Loaded | Failed]
_ASKS_AGAIN_S = 30.0  # after a load for which TiDB did not answer
_POLL_S = 0.2


class Joining:
    """Loads the tables of a sync from TiDB; without `[tidb]` it loads nothing.

    If the stream is stopped, loads end after the commits in progress, and the next start continues them.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: SyncConfig,
        stream: Stream,
        shared: Shared,
        on_load: Callable[[LoadProgress], None] | None = None,
    ) -> None:
        self._spark, self._config, self._tidb = spark, config, config.tidb
        self._stream, self._shared = stream, shared
        self._on_load = on_load
        self._lock = threading.Lock()
        self._done: LoadEvents = {}
        self._waiting: list[TableStatus] = []
        self._thread: threading.Thread | None = None

    # Before the first micro-batch

    def begins(self, statuses: Mapping[str, TableStatus], *, is_new: bool = False) -> dict[str, Begins]:
        """Return the tables to load, with their TSO: new tables, and those whose load has not ended.

        If the stream is new, an unfinished load takes a new TSO, or waits for one if TiDB does not answer: its old TSO
        may be older than the first change of the stream.
        """
        asked = {name: each.phase.at for name, each in statuses.items() if isinstance(each.phase, Loading)}
        if self._tidb is None:
            if asked:
                names = ", ".join(sorted(asked))
                warn(f"sync.toml no longer has [tidb]. Add it again, so that these tables can be loaded: {names}")
            return {}
        try:
            at = self._tidb.now()
            moments = {old: at if is_new else self._kept_tso(self._tidb, old, at) for old in set(asked.values())}
            return {
                **{name: Begins(at) for name in self._new(self._tidb, statuses, at)},
                **{name: Begins(moments[old]) for name, old in asked.items()},
            }
        except TiCDCSourceError as error:
            if not any(each.state == "following" for each in statuses.values()):
                raise
            warn(f"Cannot start loads now: {self._config.redact(str(error))}. Tables that need no load continue")
            return {name: Begins(None) for name in asked if is_new}

    def _new(self, tidb: TiDBConfig, statuses: Mapping[str, TableStatus], at: int) -> list[str]:
        """Return the tables of TiDB that the sync does not know, or whose copies lack rows."""
        names = [name for name in tidb.tables_at(self._config.table_filter, at) if self._config.selects(name)]
        refused = self._config.layout.refused([*map(parse_table, statuses), *names])
        spelt = {name.lower(): name for name in statuses}
        known = {table: statuses.get(spelt.get(str(table).lower(), "")) for table in names}
        return [
            str(table) if status is None else status.table_name
            for table, status in known.items()
            if (table not in refused if status is None else self._is_due(status))
        ]

    def _is_due(self, status: TableStatus) -> bool:
        """Whether a table is loaded although it follows: it is not known to be complete.

        If changes may be lost again, this is not repeated at each start. A log is never loaded again: its rows cannot
        be told from those of the load.
        """
        is_loadable = isinstance(status.phase, Following) and status.complete_since is None and status.kind != "log"
        return is_loadable and not (self._config.may_lose_changes and status.loaded_ts is not None)

    def load(self, statuses: Iterable[TableStatus]) -> LoadEvents:
        """Load tables, and return the results of the loads that have ended."""
        events: LoadEvents = {}
        for at, group in _by_moment(statuses):
            events |= self._load(at, group)
        return events

    # While the stream runs

    def has(self, table: TableName) -> bool:
        """Whether TiDB has a table; True if TiDB does not answer."""
        names = [str(table)]
        return self._tidb is not None and self._asked(lambda tidb: tidb.has(table, tidb.now()), names, otherwise=True)

    def moment(self, tables: Collection[str]) -> int | None:
        """Return the current TSO, as of which tables are read; if TiDB does not answer, warn and return None."""
        return self._asked(TiDBConfig.now, tables, otherwise=None)

    def load_beside(self, statuses: Iterable[TableStatus]) -> None:
        """Load tables in a thread of their own, while the stream goes on."""
        with self._lock:
            self._waiting += statuses
            if self._waiting and (self._thread is None or not self._thread.is_alive()):
                run = copy_context().run  # with the check whether this process may still write
                self._thread = threading.Thread(target=run, args=(self._run,), name="ticdc-sync loads", daemon=True)
                self._thread.start()

    def finished(self) -> LoadEvents:
        with self._lock:
            done, self._done = self._done, {}
        return done

    def join(self) -> None:
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._lock:
                waiting, self._waiting = self._waiting, []
                if not waiting or self._stream.is_stopped():
                    self._thread = None
                    return
            for at, group in _by_moment(waiting):
                try:
                    done = self._load(self._moment_again(at, group), group)
                except Exception as error:  # noqa: BLE001 (of Spark, Py4J, a catalog or a store: each has its own)
                    if not self._stream.is_stopped():
                        self._stream.fail(error)
                    return
                again = [each for each in group if each.table_name not in done]
                with self._lock:
                    self._done |= done
                    self._waiting += again
                if again:
                    self._pause()

    def _pause(self) -> None:
        """Wait before TiDB is asked again, or until the sync is stopped."""
        end = time.monotonic() + _ASKS_AGAIN_S
        while time.monotonic() < end and not self._stream.is_stopped():
            time.sleep(_POLL_S)

    def _moment_again(self, at: int, group: Sequence[TableStatus]) -> int:
        """Return the TSO of a load that has waited: a new one if TiDB no longer has the rows of the old one."""
        names = [each.table_name for each in group]
        return self._asked(lambda tidb: self._kept_tso(tidb, at, tidb.now()), names, otherwise=at)

    # A load

    def _load(self, at: int, statuses: Sequence[TableStatus]) -> LoadEvents:
        """Load tables as of one TSO; returns the results of those that have ended, none if TiDB does not answer."""
        tables = {parse_table(each.table_name): each for each in statuses}
        names = [each.table_name for each in statuses]
        heals = {table: each.state == "healing" for table, each in tables.items()}
        run = partial(load_tables, self._spark, self._config, tables=heals, at=at, on_progress=self._on_load)
        loads: dict[TableName, Loaded | Exception] = self._asked(
            lambda tidb: run(tidb, stop=self._stream.is_stopped), names, otherwise={}
        )
        ended: LoadEvents = {tables[name].table_name: load for name, load in loads.items() if isinstance(load, Loaded)}
        failed = {name: load for name, load in loads.items() if isinstance(load, Exception)}
        if failed and (self._stream.is_stopped() or self.moment(names) is None):
            return ended  # the loads failed because of the stop or of TiDB, not because of their tables
        for name, failure in failed.items():
            ended[tables[name].table_name] = self._failed(at, tables[name], failure)
        return ended

    def _failed(self, at: int, status: TableStatus, error: Exception) -> Failed:
        """Return the result of a load that has failed; an error that affects every table is raised."""
        if self._shared.stops_all(error):
            raise error
        text = self._config.redact(text_of(error))
        why = why_of(error)
        if why == "unexplained" and status.kind is not None and status.state == "loading":
            warn(f"{text}. Changes of {status.table_name} are applied, and the next start loads the table")
        return Failed(f"The load failed: {text}"[:LONGEST_REASON], why, at=at)

    def _asked(self, ask: Callable[[TiDBConfig], Result], names: Collection[str], *, otherwise: Result) -> Result:
        """Ask TiDB about tables; if it does not answer, warn that they wait. Without `[tidb]` nothing is asked."""
        try:
            return otherwise if self._tidb is None else ask(self._tidb)
        except TiCDCSourceError as error:  # TiDB cannot be read, or has no longer the rows of a TSO
            why = self._config.redact(str(error))
            warn(f"Cannot load {', '.join(names)} yet: {why}. The sync tries again, and so does its next start")
            return otherwise

    def _kept_tso(self, tidb: TiDBConfig, at: int | None, now: int) -> int:
        """Return the TSO of a load that continues: a new one if TiDB no longer has the rows of the old one."""
        if at is None:
            return now
        try:
            tidb.life_time(at)
        except DataLossError as error:
            why = self._config.redact(str(error))
            warn(f"{why}. The load starts again at TSO {now}, and reads unfinished tables again")
            return now
        return at


def _by_moment(statuses: Iterable[TableStatus]) -> list[tuple[int, list[TableStatus]]]:
    """Return the loading statuses by their TSO, the oldest first, without those that still wait for a TSO."""
    groups: dict[int, list[TableStatus]] = {}
    for each in statuses:
        if isinstance(each.phase, Loading) and each.phase.at is not None:
            groups.setdefault(each.phase.at, []).append(each)
    return sorted(groups.items())
