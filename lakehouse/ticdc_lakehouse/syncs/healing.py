"""When a table that cannot go on is tried again, and which tables heal because their name means another one now.

A table that heals is read again from TiDB while the others go on, because the stream alone cannot keep it right. TiDB
gives the rows of now, so the older records of that table are no longer needed. Only a table with `history = true` keeps
them, for its log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from ticdc_lakehouse.syncs.steps import Renamed
from ticdc_source.developer_api import DDLEvent, ddl_kind, is_too_long, renamed_tables

__all__ = ["BackOff", "renames"]

_FIRST_WAIT_S = 60.0  # after a fault, before a table heals for the second time, and for DDL that may still come
_LONGEST_WAIT_S = 3600.0
_CALM_S = 120.0  # two healthy minutes after a wait reset it


class BackOff:
    """When a table is tried again that cannot go on: the first time at once or in a minute, then later each time.

    Args:
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._not_before: dict[str, float] = {}
        self._waits: dict[str, float] = {}

    def begins(self, name: str, *, at_end: bool = False) -> bool:
        """Return whether a table is tried now; then it waits longer the next time.

        Args:
            name: the table.
            at_end: whether the stream has ended, so that there is nothing to wait for.
        """
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
        self._not_before[name] = max(self._not_before.get(name, 0), self._clock() + _FIRST_WAIT_S)


def renames(ddl: Mapping[str, Sequence[DDLEvent]]) -> Iterator[tuple[str, Renamed]]:
    """Yield the old names of tables that are renamed: what these mean since then, only TiDB knows.

    Args:
        ddl: the DDL events of a micro-batch, by table. A RENAME TABLE is among those of the new name.
    """
    for event in (event for events in ddl.values() for event in events):
        if ddl_kind(event) != "rename_table" or is_too_long(event):
            continue
        try:
            old_names = renamed_tables(event)
        except ValueError:  # the merge sets the table of the new name aside for the same text
            continue
        for old in old_names:
            told = f"{' '.join(event.query.split())[:200]}: {old} is another table since then, or none"
            yield str(old), Renamed(told, event.commit_ts)
