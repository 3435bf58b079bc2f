"""How far the loads of tables are: a bar per table on a terminal, lines elsewhere. Threads of the load tell it."""

from __future__ import annotations

import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from ticdc_source.developer_api import Bars, duration, errors, print_json, visible

if TYPE_CHECKING:  # it imports pyspark, and `--help` need not wait for it
    from ticdc_lakehouse.syncs.loading import LoadProgress

__all__ = ["Loads", "as_line"]

_SECONDS = 10.0  # between two lines of a table


class Loads:
    """Shows the loads of tables.

    Args:
        json: whether the lines are JSON, for scripts, on standard output.
    """

    def __init__(self, *, json: bool = False) -> None:
        self._json = json
        self._screen = errors()
        self._lock = threading.Lock()
        self._told: dict[str, float] = {}
        self._bars: Bars | None = None

    def show(self, progress: LoadProgress) -> None:
        """Show that the load of a table has come further."""
        with self._lock:
            if self._bars is None and not self._json:
                self._bars = self._screen.bars("rows")
            if self._bars is not None:
                self._show_bar(self._bars, progress)
            elif self._is_due(progress):
                self._show_line(progress)

    def close(self) -> None:
        """Take the bars away: the command ends."""
        with self._lock:
            if self._bars is not None:
                self._bars.close()
                self._bars = None

    def _show_bar(self, bars: Bars, progress: LoadProgress) -> None:
        name = str(progress.table)
        rows = progress.of if progress.complete else min(progress.rows, progress.of)
        bars.show(name, rows, progress.of)
        if progress.complete or progress.failed:
            bars.end(name)
        if bars.all_ended:  # what joins later begins anew
            bars.close()
            self._bars = None

    def _is_due(self, progress: LoadProgress) -> bool:
        name, now = str(progress.table), time.monotonic()
        due = progress.complete or progress.failed or now - self._told.get(name, float("-inf")) >= _SECONDS
        if due:
            self._told[name] = now
        return due

    def _show_line(self, progress: LoadProgress) -> None:
        if self._json:
            print_json({**asdict(progress), "table": str(progress.table)}, indent=None)
        else:
            self._screen.print(visible(as_line(progress)))


def as_line(progress: LoadProgress) -> str:
    """Return how far a load is, and how long it will take, if that can be said."""
    if progress.complete:
        return f"{progress.table}: loaded, {progress.rows:,} rows in {duration(progress.seconds)}"
    if progress.failed:
        return f"{progress.table}: the load has failed"
    left = "" if progress.seconds_left is None else f", {duration(progress.seconds_left)} left"
    return f"{progress.table}: loading, {progress.rows:,} of about {progress.of:,} rows{left}"
