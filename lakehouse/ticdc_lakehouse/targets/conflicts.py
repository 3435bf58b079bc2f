"""Retry writes that fail temporarily: another writer has committed at the same time, or a store is unavailable."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TypeVar

from ticdc_source.errors import TiCDCSourceError

__all__ = ["is_conflict", "retried"]

Result = TypeVar("Result")

# Delta's and Iceberg's errors of two writers that commit at once, and of a commit whose answer was lost. A repeated
# write finds what it has committed by its number, so it is safe in each case.
_CONFLICT = re.compile(
    r"DELTA_CONCURRENT_|DELTA_METADATA_CHANGED|DELTA_PROTOCOL_CHANGED"
    r"|\b(?:Concurrent\w+|MetadataChanged|ProtocolChanged|CommitFailed|CommitStateUnknown)Exception\b"
    r"|Found conflicting files|Cannot commit,? .*(?:stale|concurrent|conflict)",
)
_PAUSES_S = (0.5, 1.0, 2.0, 4.0)  # before each further attempt


def is_conflict(error: Exception) -> bool:
    """Return whether another writer has committed at the same time, so that the same write may succeed now."""
    return not isinstance(error, TiCDCSourceError) and _CONFLICT.search(str(error)) is not None


def retried(
    write: Callable[[], Result],
    sleep: Callable[[float], object] = time.sleep,
    *,
    again: Callable[[Exception, float], bool] = lambda error, _: is_conflict(error),
) -> Result:
    """Write, and again after an error that may go away: four times, with longer pauses.

    Args:
        write: writes what it has not written yet.
        sleep: waits for so many seconds.
        again: returns whether an error may go away; it gets the pause, too. By default it is a commit of another
            writer at the same time.
    """
    for pause in _PAUSES_S:
        try:
            return write()
        except Exception as error:  # each engine has its own
            if not again(error, pause):
                raise
            sleep(pause)
    return write()
