"""Why a table could not be written: every table is affected, or it alone is; when it is tried again; what a stop is."""

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
_LONGEST_WARNING = 500  # characters of an error

# What Spark says of an error of ours that one of its Python processes has raised.
_OURS = re.compile(r"ticdc_(?:source|lakehouse)\.errors\.(\w+): (.*)")
# What all of them are read from, and the right to write them.
_OF_EVERY_TABLE = (
    errors.AccessRefusedError,
    errors.ClaimCheckUnavailableError,
    errors.KafkaUnavailableError,
    LeaseLostError,
    errors.SchemaRegistryUnavailableError,
    errors.StorageUnavailableError,
)
# What the messages and the options of a table are.
_OF_ONE_TABLE = (errors.DecodeError, errors.OptionError, errors.SchemaError)


def text_of(error: Exception) -> str:
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
    """Tells errors of one table from those that would set every table aside."""

    stopping: Callable[[], bool]  # what the end of a sync does to tables is not their trouble
    try_store: Callable[[], None]  # reads and writes a small table in the store of all tables
    store: str = "The status table"
    redact: Callable[[str], str] = lambda text: text
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _tried_at: float = float("-inf")

    def retried(self, write: Callable[[], Result], what: str) -> Result:
        """Write, and again after a fault, which is a warning; four times, with longer pauses."""

        def again(error: Exception, pause: float) -> bool:
            if not is_fault(error) or self.stopping():
                return False
            if not is_conflict(error):
                why = " ".join(self.redact(text_of(error)).split())[:_LONGEST_WARNING]
                warn(f"{what} cannot be written, and is tried again in {pause:g} s: {why}")
            return True

        return retried(write, again=again)

    def stops_all(self, error: Exception) -> bool:
        """Whether an error affects every table: brokers, claim checks or the session are gone.

        If the store is, what it says is raised.
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
        try:
            self.retried(self.try_store, self.store)
        except Exception as error:  # noqa: BLE001 (of any store)
            raise TargetError(
                f"{self.store} cannot be written and read: {self.redact(text_of(error))}. This affects all tables, so "
                "none is set aside. Fix the storage or the catalog, and start again"
            ) from None


class Stream:
    """The query that runs, and how it ends."""

    def __init__(self, config: SyncConfig) -> None:
        self.query: StreamingQuery | None = None
        self.error: BaseException | None = None  # what has stopped it
        self.in_batch = False  # a micro-batch is being applied, or has failed
        self._redact, self._is_finite = config.redact, config.trigger is None
        self._stopping = threading.Event()

    def stop(self) -> None:
        """End the loads, and take errors from now on for what the stop has caused: they set no table aside."""
        self._stopping.set()

    def fail(self, error: BaseException) -> None:
        """Stop with an error that affects all tables, such as that another sync writes them now."""
        self.error = self.error or self.without_secrets(error)
        self.stop()
        if self.query is not None:
            self.query.stop()

    def restart(self) -> None:
        self._stopping.clear()
        self.in_batch = False
        self.error = self.query = None

    def check(self) -> None:
        """Raise the error that has stopped it, if there is one."""
        if self.error is not None:
            raise self.error

    def is_stopped(self) -> bool:
        """Whether the sync is being stopped, by itself or because somebody has stopped its query.

        A finite run whose query has ended because it has read the topics is not.
        """
        if self._stopping.is_set() or self.query is None or self.query.isActive:
            return self._stopping.is_set()
        return self.in_batch or not self._is_finite or self.query.exception() is not None

    def without_secrets(self, error: BaseException) -> BaseException:
        """Return an error, or what it says without secrets: Spark logs it, and the command prints it."""
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
    """When a table is tried again that cannot go on: the first time at once or in a minute, then later each time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._not_before: dict[str, float] = {}
        self._waits: dict[str, float] = {}

    def begins(self, name: str, *, at_end: bool = False) -> bool:
        """Whether a table is tried now; then it waits longer the next time.

        If the stream is `at_end`, there is nothing to wait for.
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
