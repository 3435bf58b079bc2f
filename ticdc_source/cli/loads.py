"""How far the loads of tables are: a bar per table on a terminal, lines elsewhere. Threads of the load tell it."""

from __future__ import annotations

import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ticdc_source.cli.screen import errors, plain, print_json
from ticdc_source.schema.tso import duration

if TYPE_CHECKING:  # it imports pyspark, and `--help` need not wait for it
    from ticdc_source.lakehouse.loading import LoadProgress

__all__ = ["Loads", "as_line"]

_SECONDS = 10.0  # between two lines of a table


class Loads:
    """Shows the loads of tables.

    Args:
        json: whether the lines are JSON, for scripts, on standard output.
    """

    def __init__(self, *, json: bool = False) -> None:
        self._json = json
        self._console = errors()
        self._lock = threading.Lock()
        self._told: dict[str, float] = {}
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def show(self, progress: LoadProgress) -> None:
        """Show that the load of a table has come further."""
        with self._lock:
            if self._console.is_terminal and not self._json:
                self._show_bar(progress)
            elif self._is_due(progress):
                self._show_line(progress)

    def close(self) -> None:
        """Take the bars away: the command ends."""
        with self._lock:
            if self._bars is not None:
                self._bars.stop()
                self._bars = None
                self._tasks = {}

    def _show_bar(self, progress: LoadProgress) -> None:
        name = str(progress.table)
        if self._bars is None:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("rows"))
            self._bars = Progress(*columns, TimeRemainingColumn(), console=self._console)
            self._bars.start()
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(plain(name), total=progress.of)
        rows = progress.of if progress.complete else min(progress.rows, progress.of)
        self._bars.update(self._tasks[name], completed=rows, total=progress.of)
        if progress.complete or progress.failed:
            self._bars.stop_task(self._tasks[name])
            self._told[name] = progress.seconds
        if all(task in self._told for task in self._tasks):  # what joins later begins anew
            self._bars.stop()
            self._bars, self._tasks, self._told = None, {}, {}

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
            self._console.print(plain(as_line(progress)))


def as_line(progress: LoadProgress) -> str:
    """Return how far a load is, and how long it will take, if that can be said."""
    if progress.complete:
        return f"{progress.table}: loaded, {progress.rows:,} rows in {duration(progress.seconds)}"
    if progress.failed:
        return f"{progress.table}: the load has failed"
    left = "" if progress.seconds_left is None else f", {duration(progress.seconds_left)} left"
    return f"{progress.table}: loading, {progress.rows:,} of about {progress.of:,} rows{left}"
