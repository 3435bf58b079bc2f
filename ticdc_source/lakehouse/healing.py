"""Healing reads one table again from TiDB while the other tables go on, because the stream alone cannot keep it right.

TiDB gives the rows of now, so the older records of that table are no longer needed. Only a table with `history = true`
keeps them, for its log. A table heals at once; if it fails again, it waits, for longer each time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from ticdc_source.lakehouse.config import SyncConfig, TableConfig
from ticdc_source.lakehouse.status import TableStatus
from ticdc_source.options.table_filter import parse_table
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.ddl_kinds import ddl_kind, is_too_long
from ticdc_source.schema.mysql_ddl.old_rows import renamed_tables

__all__ = ["BackOff", "Healing", "can_heal", "healing_status"]

_FIRST_WAIT_S = 60.0  # after a fault, before a table heals for the second time, and for DDL that may still come
_LONGEST_WAIT_S = 3600.0
_CALM_S = 120.0  # a table that is well for so long after a wait begins with the first one again


class BackOff:
    """When a table is tried again that cannot go on: the first time at once or in a minute, then later each time.

    Args:
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # threads write the tables, and several may fail at once
        self._not_before: dict[str, float] = {}
        self._waits: dict[str, float] = {}

    def begins(self, name: str, *, at_end: bool = False) -> bool:
        """Return whether a table is tried now; then it waits longer the next time.

        Args:
            name: the table.
            at_end: whether the stream has ended, so that there is nothing to wait for.
        """
        with self._lock:
            now = self._clock()
            if at_end:
                self._not_before.pop(name, None)
            if now < self._not_before.get(name, now):
                return False
            calm_at = self._not_before.get(name, float("-inf")) + _CALM_S
            wait = min(2 * self._waits.get(name, 0), _LONGEST_WAIT_S) if now < calm_at else 0
            self._waits[name] = wait or _FIRST_WAIT_S
            self._not_before[name] = now + self._waits[name]
            return True

    def postpone(self, name: str) -> None:
        """Let a table wait that was set aside just now."""
        with self._lock:
            before = self._not_before.get(name, 0)
            self._not_before[name] = max(before, self._clock() + _FIRST_WAIT_S)


class Healing:
    """What heals, and when.

    Args:
        config: what is copied.
        tso: returns TiDB's TSO of now, or None if TiDB does not answer. It gets the name of the table, for a warning.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self, config: SyncConfig, tso: Callable[[str], int | None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._config = config
        self._tso = tso
        self.back_off = BackOff(clock)

    def can_heal(self, status: TableStatus) -> bool:
        """Return whether the sync may heal a table."""
        return can_heal(self._config, status)

    def start(
        self, status: TableStatus, reason: str, keep_from: int | None = None, *, at_end: bool = False
    ) -> TableStatus | None:
        """Return the status of a table that begins to heal; None if it must wait.

        Args:
            status: its status.
            reason: why it heals.
            keep_from: the first micro-batch that its history lacks, if it has one; its records are kept from there on.
            at_end: whether the stream has ended, so that there is nothing to wait for.
        """
        name = status.table_name
        if not self.back_off.begins(name, at_end=at_end):
            return None
        return replace(healing_status(self._config, status, reason, keep_from), loaded_ts=self._tso(name))

    def restart_after_loss(self, status: TableStatus, reason: str) -> TableStatus:
        """Return the status of a table that heals when the stream starts again: its TSO is taken then.

        Args:
            status: its status.
            reason: what is lost.
        """
        return healing_status(self._config, status, reason, status.set_aside_batch)

    def postpone(self, status: TableStatus) -> None:
        """Let a table that was set aside wait before it heals: DDL that explains its changes may still come."""
        self.back_off.postpone(status.table_name)

    def start_waiting(self, statuses: Mapping[str, TableStatus], *, at_end: bool = False) -> dict[str, TableStatus]:
        """Return the statuses of tables that have waited, and begin to heal now.

        Args:
            statuses: the statuses of all tables.
            at_end: whether the stream has ended, so that there is nothing to wait for.
        """
        found = {}
        for name, status in statuses.items():
            if not status.heals or status.state in ("loading", "left out") or not self._config.heal:
                continue
            started = self.start(status, status.reason or "", status.set_aside_batch, at_end=at_end)
            if started is not None:
                found[name] = started
        return found

    def start_renamed(
        self, ddl: Mapping[str, Sequence[DDLEvent]], statuses: Mapping[str, TableStatus]
    ) -> dict[str, TableStatus]:
        """Return the statuses of tables that begin to heal because their name means another table now, or none.

        A RENAME TABLE is among the DDL of the new name. What the old name means since then, only TiDB knows. Such a
        table does not wait: nothing else would keep its target right.

        Args:
            ddl: the DDL events of a micro-batch, by table.
            statuses: the statuses of all tables, after it.
        """
        spelt = {name.lower(): each for name, each in statuses.items()}
        found: dict[str, TableStatus] = {}
        for event, old in _renames(ddl):
            status = spelt.get(old.lower())
            if status is None or status.state != "following" or status.kind is None or not self.can_heal(status):
                continue
            if event.commit_ts is not None and event.commit_ts <= (status.loaded_ts or 0):
                continue
            reason = f"{' '.join(event.query.split())[:200]}: {status.table_name} is another table since then, or none"
            healing = replace(
                healing_status(self._config, status, reason, None), loaded_ts=self._tso(status.table_name)
            )
            if event.commit_ts is not None and status.resolved_ts is not None:  # its rows are right up to the RENAME
                healing = replace(healing, resolved_ts=min(status.resolved_ts, event.commit_ts - 1))
            found[status.table_name] = healing
        return found


def can_heal(config: SyncConfig, status: TableStatus) -> bool:
    """Return whether the sync may heal a table. A log cannot: its rows and those of the load would mix.

    The kind of a table is not known before its first rows, so its settings count too.

    Args:
        config: what is copied.
        status: the status of the table.
    """
    return config.heal and status.kind != "log" and not _settings(config, status).log


def healing_status(config: SyncConfig, status: TableStatus, reason: str | None, keep_from: int | None) -> TableStatus:
    """Return the status of a table that heals, at a TSO that is not known yet.

    Args:
        config: what is copied.
        status: its status.
        reason: why it heals.
        keep_from: the first micro-batch that its history lacks. Without a history, no records are kept.
    """
    return replace(
        status,
        state="loading",
        heals=True,
        reason=reason,
        waits_for_ddl=False,
        is_retried=False,
        columns=(),
        loaded_ts=None,
        set_aside_batch=keep_from if _settings(config, status).history else None,
        set_aside_since=None,
    )


def _settings(config: SyncConfig, status: TableStatus) -> TableConfig:
    return config.of_table(parse_table(status.table_name))


def _renames(ddl: Mapping[str, Sequence[DDLEvent]]) -> Iterator[tuple[DDLEvent, str]]:
    """Yield the events that rename tables, each with the name that a table had before."""
    for event in (event for events in ddl.values() for event in events):
        if ddl_kind(event) != "rename_table" or is_too_long(event):
            continue
        try:
            old_names = renamed_tables(event)
        except ValueError:  # the merge sets the table of the new name aside for the same text
            continue
        for old in old_names:
            yield event, str(old)
