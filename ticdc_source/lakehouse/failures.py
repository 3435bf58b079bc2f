"""Why a table could not be written: every table is affected, or it alone is."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ticdc_source import errors
from ticdc_source.errors import (
    ClaimCheckUnavailableError,
    DecodeError,
    KafkaUnavailableError,
    OptionError,
    SchemaError,
    SchemaRegistryUnavailableError,
    TiCDCSourceError,
)

__all__ = ["Shared", "cause_of", "shared_cause", "text_of"]

# What Spark says of an error of ours that one of its Python processes has raised.
_OURS = re.compile(r"ticdc_source\.errors\.(\w+): (.*)")
# What all of them are read from.
_OF_EVERY_TABLE = (ClaimCheckUnavailableError, KafkaUnavailableError, SchemaRegistryUnavailableError)
_OF_ONE_TABLE = (DecodeError, OptionError, SchemaError)  # what the messages and the options of a table are


def text_of(error: Exception) -> str:
    """Return what an error says; of one that was raised on a worker, what it said there."""
    ours = _OURS.search(str(error))
    return ours[2] if ours is not None and not isinstance(error, TiCDCSourceError) else str(error)


def cause_of(error: Exception) -> TiCDCSourceError | None:
    """Return an error of this package, also if one of Spark's Python processes raised it; None if it is another's."""
    if isinstance(error, TiCDCSourceError):
        return error
    ours = _OURS.search(str(error))
    kind = None if ours is None else getattr(errors, ours[1], None)
    if ours is None or not isinstance(kind, type) or not issubclass(kind, TiCDCSourceError):
        return None
    return kind(ours[2])


def shared_cause(error: Exception) -> TiCDCSourceError | None:
    """Return the error that every table would have, also if a worker raised it; None if this is none."""
    cause = cause_of(error)
    return cause if isinstance(cause, _OF_EVERY_TABLE) else None


@dataclass(slots=True, kw_only=True)
class Shared:
    """Tells errors of one table from those that would set every table aside.

    Attributes:
        stopping: returns whether the sync is stopped: what its end does to tables is not their trouble.
        try_store: reads and writes a small table in the store of all tables; raises an error if that fails.
        clock: a monotonic clock, in seconds.
    """

    stopping: Callable[[], bool]
    try_store: Callable[[], None]
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _tried_at: float = float("-inf")

    def stops_all(self, error: Exception) -> bool:
        """Return whether an error is none of one table: brokers, claim checks, the session or the store are gone.

        Raises:
            Exception: what the store says, if it is the store.
        """
        if self.stopping():
            return True
        if shared_cause(error) is not None:
            return True
        if isinstance(error, _OF_ONE_TABLE):
            return False
        failed_at = self.clock()
        with self._lock:  # tables fail side by side: one attempt after the last of them is enough
            if self._tried_at < failed_at:
                began = self.clock()
                self.try_store()
                self._tried_at = began
        return self.stopping()
