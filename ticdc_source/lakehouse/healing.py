"""Healing: a table that the stream alone cannot keep right is read again from TiDB, while the others go on.

TiDB is asked for its present rows, so every record that the stream has read by then is older: none of them is needed
any more, except by a history. A table heals at once; one that needs it again waits, for longer each time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from ticdc_source.events import DDLEvent
from ticdc_source.lakehouse.config import SyncConfig, TableConfig
from ticdc_source.lakehouse.status import TableStatus
from ticdc_source.options.table_filter import parse_table
from ticdc_source.schema.ddl_kinds import ddl_kind, is_too_long
from ticdc_source.schema.mysql_ddl.old_rows import renamed_tables

__all__ = ["Healing"]

_WAIT_S = 60.0  # for DDL that may still come, and between two healings of a table
_MOST_DOUBLINGS = 6  # of that wait: then it is an hour


class Healing:
    """What heals, and when.

    Args:
        config: what is copied.
        tso: returns the present TSO of TiDB for a table; None if TiDB does not answer.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self, config: SyncConfig, tso: Callable[[str], int | None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._config = config
        self._tso = tso
        self._clock = clock
        self._lock = threading.Lock()  # tables fail side by side
        self._due: dict[str, float] = {}
        self._doublings: dict[str, int] = {}

    def is_possible(self, status: TableStatus) -> bool:
        """Return whether a table heals: nothing tells the rows of a log from those of a load."""
        return self._config.heal and status.kind != "log" and not self._settings(status).log

    def begun(
        self, status: TableStatus, reason: str, batch_id: int | None, *, waits: bool = True
    ) -> TableStatus | None:
        """Return the status `loading` of a table that heals now; None if it must wait.

        Args:
            status: its status.
            reason: why it heals.
            batch_id: the first micro-batch that its history lacks, and whose records are kept; None if it lacks none.
            waits: whether it must wait if it has just healed.
        """
        name = status.table_name
        with self._lock:
            now, due = self._clock(), self._due.get(name, float("-inf"))
            if now < due and waits:
                return None
            doublings = self._doublings.get(name, -1) + 1 if now < due + 2 * _WAIT_S else 0
            self._doublings[name] = min(doublings, _MOST_DOUBLINGS)
            self._due[name] = now + _WAIT_S * 2 ** self._doublings[name]
        since = batch_id if self._settings(status).history else None
        return replace(_loading(status, reason), loaded_ts=self._tso(name), set_aside_batch=since)

    def lost(self, status: TableStatus, reason: str) -> TableStatus:
        """Return the status `loading` of a table of which records are lost; it heals at the next start of the stream.

        Args:
            status: its status, of a table that heals.
            reason: what is lost.
        """
        since = status.set_aside_batch if self._settings(status).history else None  # what was kept is for its log
        return replace(_loading(status, reason), set_aside_batch=since)

    def wait(self, status: TableStatus) -> None:
        """Let a table wait for DDL that explains its changes, before it heals."""
        with self._lock:
            self._due[status.table_name] = max(self._due.get(status.table_name, 0), self._clock() + _WAIT_S)

    def due(self, statuses: Mapping[str, TableStatus], *, at_end: bool = False) -> dict[str, TableStatus]:
        """Return the statuses `loading` of tables that had to wait, and heal now.

        Args:
            statuses: the statuses of all tables.
            at_end: whether the stream has ended, so that there is nothing to wait for.
        """
        found = {}
        for name, status in statuses.items():
            if status.state in ("loading", "left out") or not status.heals or not self._config.heal:
                continue
            if at_end:
                self._due.pop(name, None)
            begun = self.begun(status, status.reason or "", status.set_aside_batch)
            if begun is not None:
                found[name] = begun
        return found

    def renamed_away(
        self, ddl: Mapping[str, Sequence[DDLEvent]], statuses: Mapping[str, TableStatus]
    ) -> dict[str, TableStatus]:
        """Return the statuses `loading` of tables whose name another one has got, or none has now.

        The event is one of the new name. What the old name means since then, only TiDB knows.

        Args:
            ddl: the DDL events of a micro-batch, by table.
            statuses: the statuses of all tables, after it.
        """
        spelt = {name.lower(): each for name, each in statuses.items()}
        found: dict[str, TableStatus] = {}
        for event, old in _renames(ddl):
            status = spelt.get(old.lower())
            if status is None or status.state != "following" or status.kind is None or not self.is_possible(status):
                continue
            if event.commit_ts is not None and event.commit_ts <= (status.loaded_ts or 0):
                continue
            reason = f"{' '.join(event.query.split())[:200]}: {status.table_name} is another table since then, or none"
            known = [ts for ts in (status.resolved_ts, (event.commit_ts or 0) - 1) if ts is not None]
            begun = self.begun(replace(status, resolved_ts=min(known)), reason, None, waits=False)
            found |= {} if begun is None else {status.table_name: begun}
        return found

    def _settings(self, status: TableStatus) -> TableConfig:
        return self._config.of_table(parse_table(status.table_name))


def _loading(status: TableStatus, reason: str) -> TableStatus:
    healing = replace(status, state="loading", reason=reason, waits_for_ddl=False, heals=True, columns=())
    return replace(healing, loaded_ts=None, set_aside_batch=None, set_aside_since=None)


def _renames(ddl: Mapping[str, Sequence[DDLEvent]]) -> Iterator[tuple[DDLEvent, str]]:
    """Yield the events that rename tables, each with the name that a table had before."""
    for event in (event for events in ddl.values() for event in events):
        if ddl_kind(event) != "rename_table" or is_too_long(event):
            continue
        try:
            yield from ((event, str(old)) for old in renamed_tables(event))
        except ValueError:  # the table of the new name is refused for that
            continue
