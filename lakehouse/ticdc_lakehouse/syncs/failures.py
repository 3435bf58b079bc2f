"""Failures of a sync: whether one affects every table or only its own, when to try again, and how the stream stops."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from pyspark.sql.streaming.query import StreamingQuery

from ticdc_lakehouse.errors import LogTypeError, TargetError, UnexplainedChangeError
from ticdc_lakehouse.syncs.config import SyncConfig
from ticdc_lakehouse.syncs.lease import LeaseLostError
from ticdc_lakehouse.syncs.steps import Why
from ticdc_lakehouse.targets.opening import is_conflict, retried
from ticdc_source import errors
from ticdc_source.developer_api import warn
from ticdc_source.errors import TiCDCSourceError

Result = TypeVar("Result")
LONGEST_REASON, LONGEST_WARNING = 2000, 500  # characters of an error

# An error of this package in the text of Spark, one of whose Python processes has raised it.
_OURS = re.compile(r"ticdc_(?:source|lakehouse)\.errors\.(\w+): (.*)")
# Errors of what all tables share: what is read, and the lease.
_OF_EVERY_TABLE = (
    errors.AccessRefusedError,
    errors.ClaimCheckUnavailableError,
    errors.KafkaUnavailableError,
    LeaseLostError,
    errors.SchemaRegistryUnavailableError,
    errors.StorageUnavailableError,
)
# Errors of the messages and the options of one table.
_OF_ONE_TABLE = (errors.DecodeError, errors.OptionError, errors.SchemaError)


def text_of(error: Exception) -> str:
    ours = _OURS.search(str(error))
    return ours[2] if ours is not None and not isinstance(error, TiCDCSourceError) else str(error)


def cause_of(error: Exception) -> TiCDCSourceError | None:
    """Return the error of this package, even if a Python process of Spark raised it; None if it is another's error."""
    if isinstance(error, TiCDCSourceError):
        return error
    ours = _OURS.search(str(error))
    kind = None if ours is None else getattr(errors, ours[1], None)
    if ours is None or not isinstance(kind, type) or not issubclass(kind, TiCDCSourceError):
        return None
    return kind(ours[2])


def is_fault(error: Exception) -> bool:
    """Whether the same write may succeed later, because an executor, a store or a catalog has failed.

    This package's own errors are no faults: the same messages, options and targets would give the same error again.
    """
    return cause_of(error) is None


def why_of(error: Exception) -> Why:
    if is_fault(error):
        return "fault"
    if isinstance(error, UnexplainedChangeError):
        return "unexplained"
    return "log" if isinstance(error, LogTypeError) else "verdict"


def shared_cause(error: Exception) -> TiCDCSourceError | None:
    """Return the error if every table would have it, even if a worker of Spark raised it; otherwise None."""
    cause = cause_of(error)
    return cause if isinstance(cause, _OF_EVERY_TABLE) else None


@dataclass(slots=True, kw_only=True)
class Shared:
    """Tells errors of one table from errors that affect every table."""

    stopping: Callable[[], bool]  # while a sync stops, errors are not those of a table
    try_store: Callable[[], None]  # reads and writes a small table in the store of all tables
    store: str = "The status table"
    redact: Callable[[str], str] = lambda text: text
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _tried_at: float = float("-inf")

    def retried(self, write: Callable[[], Result], what: str) -> Result:
        """Write; after a fault, warn and try again, up to four times, with longer pauses."""

        def again(error: Exception, pause: float) -> bool:
            if not is_fault(error) or self.stopping():
                return False
            if not is_conflict(error):
                why = " ".join(self.redact(text_of(error)).split())[:LONGEST_WARNING]
                warn(f"{what} cannot be written, and is tried again in {pause:g} s: {why}")
            return True

        return retried(write, again=again)

    def stops_all(self, error: Exception) -> bool:
        """Whether an error affects every table, as brokers, claim checks or the session are gone.

        If the store does not work, that is raised as an error.
        """
        if self.stopping() or shared_cause(error) is not None:
            return True
        if isinstance(error, _OF_ONE_TABLE):
            return False
        failed_at = self.clock()
        with self._lock:  # tables fail in parallel: one attempt after the last failure is enough
            if self._tried_at < failed_at:
                began = self.clock()
                self._check_store()
                self._tried_at = began
        return self.stopping()

    def _check_store(self) -> None:
        try:
            self.retried(self.try_store, self.store)
        except Exception as error:  # noqa: BLE001 (of any store)
            raise TargetError(
                f"{self.store} cannot be written and read: {self.redact(text_of(error))}. This affects every table, so "
                "the sync ends and sets no table aside. Fix the storage or the catalog, and start the sync again"
            ) from None


class Stream:
    """The streaming query of a sync, and how it ends."""

    def __init__(self, config: SyncConfig) -> None:
        self.query: StreamingQuery | None = None
        self.error: BaseException | None = None  # what has stopped it
        self.in_batch = False  # a micro-batch is being applied, or has failed
        self._redact, self._is_finite = config.redact, config.trigger is None
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Stop the loads. Errors from now on are taken for results of the stop, and set no table aside."""
        self._stopping.set()

    def fail(self, error: BaseException) -> None:
        """Stop with an error that affects every table, such as a lost lease."""
        self.error = self.error or self.without_secrets(error)
        self.stop()
        if self.query is not None:
            self.query.stop()

    def restart(self) -> None:
        self._stopping.clear()
        self.in_batch = False
        self.error = self.query = None

    def check(self) -> None:
        """Raise the error that has stopped the stream, if there is one."""
        if self.error is not None:
            raise self.error

    def is_stopped(self) -> bool:
        """Whether the sync is being stopped, by itself or by somebody who has stopped its query.

        A run without a trigger is not stopped when its query ends because all topics are read.
        """
        if self._stopping.is_set() or self.query is None or self.query.isActive:
            return self._stopping.is_set()
        return self.in_batch or not self._is_finite or self.query.exception() is not None

    def without_secrets(self, error: BaseException) -> BaseException:
        """Return the error, or one like it without secrets, as Spark logs errors and the command prints them."""
        if isinstance(error, Exception):
            error = cause_of(error) or error
        if not isinstance(error, Exception) or self._redact(str(error)) == str(error):
            return error
        kind = type(error) if isinstance(error, TiCDCSourceError) else TiCDCSourceError
        return kind(self._redact(str(error)))


_FIRST_WAIT_S = 60.0  # after a fault, before a table heals for the second time, and for DDL that may still come
_LONGEST_WAIT_S = 3600.0
_CALM_S = 120.0  # two healthy minutes after a wait reset it


class BackOff:
    """When to try a table again: first at once or in a minute, then after waits that double up to an hour."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._not_before: dict[str, float] = {}
        self._waits: dict[str, float] = {}

    def begins(self, name: str, *, at_end: bool = False) -> bool:
        """Whether to try a table now; if so, its next wait is longer.

        At the end of the stream (`at_end`), there is nothing to wait for.
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
        self._not_before[name] = max(self._not_before.get(name, 0), self._clock() + _FIRST_WAIT_S)
