"""Why a table could not be written: every table is affected, or it alone is."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from ticdc_lakehouse.errors import LogTypeError, TargetError, UnexplainedChangeError
from ticdc_lakehouse.syncs.lease import LeaseLostError
from ticdc_lakehouse.syncs.steps import Why
from ticdc_lakehouse.targets.conflicts import is_conflict, retried
from ticdc_source import errors
from ticdc_source.developer_api import warn
from ticdc_source.errors import (
    AccessRefusedError,
    ClaimCheckUnavailableError,
    DecodeError,
    KafkaUnavailableError,
    OptionError,
    SchemaError,
    SchemaRegistryUnavailableError,
    StorageUnavailableError,
    TiCDCSourceError,
)

__all__ = ["Shared", "cause_of", "is_fault", "shared_cause", "text_of", "why_of"]

Result = TypeVar("Result")
_LONGEST_WARNING = 500  # characters of an error

# What Spark says of an error of ours that one of its Python processes has raised.
_OURS = re.compile(r"ticdc_(?:source|lakehouse)\.errors\.(\w+): (.*)")
# What all of them are read from, and the right to write them.
_OF_EVERY_TABLE = (
    AccessRefusedError,
    ClaimCheckUnavailableError,
    KafkaUnavailableError,
    LeaseLostError,
    SchemaRegistryUnavailableError,
    StorageUnavailableError,
)
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


def is_fault(error: Exception) -> bool:
    """Whether the same write may succeed later, because an executor, a store or a catalog has failed.

    This package's own errors are verdicts: about messages, options and targets they say the same again.
    """
    return cause_of(error) is None


def why_of(error: Exception) -> Why:
    """Return what kind of reason a failure has."""
    if is_fault(error):
        return "fault"
    if isinstance(error, UnexplainedChangeError):
        return "unexplained"
    return "log" if isinstance(error, LogTypeError) else "verdict"


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
        store: the name of that table.
        redact: hides secrets in what an error says.
        clock: a monotonic clock, in seconds.
    """

    stopping: Callable[[], bool]
    try_store: Callable[[], None]
    store: str = "The status table"
    redact: Callable[[str], str] = lambda text: text
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _tried_at: float = float("-inf")

    def retried(self, write: Callable[[], Result], what: str) -> Result:
        """Write, and again after a fault, which is a warning; four times, with longer pauses.

        Args:
            write: writes what it has not written yet.
            what: what cannot be written, for the warning.
        """

        def again(error: Exception, pause: float) -> bool:
            if not is_fault(error) or self.stopping():
                return False
            if not is_conflict(error):
                why = " ".join(self.redact(text_of(error)).split())[:_LONGEST_WARNING]
                warn(f"{what} cannot be written, and is tried again in {pause:g} s: {why}")
            return True

        return retried(write, again=again)

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
                self._check_store()
                self._tried_at = began
        return self.stopping()

    def _check_store(self) -> None:
        """Write and read the status table.

        Raises:
            TargetError: that fails, so all tables are affected.
        """
        try:
            self.retried(self.try_store, self.store)
        except Exception as error:  # noqa: BLE001 (of any store)
            msg = (
                f"{self.store} cannot be written and read: {self.redact(text_of(error))}. This affects all tables, so "
                "none is set aside. Fix the storage or the catalog, and start again"
            )
            raise TargetError(msg) from None
