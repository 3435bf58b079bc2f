"""The streaming query of a sync: whether it is being stopped, and what has stopped it."""

from __future__ import annotations

import threading

from pyspark.sql.streaming.query import StreamingQuery

from ticdc_lakehouse.syncs.failures import cause_of
from ticdc_lakehouse.syncs.redaction import Redaction
from ticdc_source.errors import TiCDCSourceError

__all__ = ["Stream"]


class Stream:
    """The query that runs, and how it ends.

    Args:
        is_finite: whether it ends with the topics, without a trigger.
        redaction: hides secrets in errors.

    Attributes:
        query: the query; None before it is started.
        error: what has stopped it; None if nothing has.
        in_batch: whether a micro-batch is being applied, or has failed.
    """

    def __init__(self, redaction: Redaction, *, is_finite: bool) -> None:
        self.query: StreamingQuery | None = None
        self.error: BaseException | None = None
        self.in_batch = False
        self._redaction = redaction
        self._is_finite = is_finite
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
        """Begin anew, with another query."""
        self._stopping.clear()
        self.in_batch = False
        self.error = self.query = None

    def check(self) -> None:
        """Raise the error that has stopped it.

        Raises:
            BaseException: there is one.
        """
        if self.error is not None:
            raise self.error

    def is_stopped(self) -> bool:
        """Return whether the sync is being stopped, by itself or because somebody has stopped its query.

        A finite run whose query has ended because it has read the topics is not.
        """
        if self._stopping.is_set() or self.query is None or self.query.isActive:
            return self._stopping.is_set()
        return self.in_batch or not self._is_finite or self.query.exception() is not None

    def without_secrets(self, error: BaseException) -> BaseException:
        """Return an error, or what it says without secrets: Spark logs it, and the command prints it."""
        if isinstance(error, Exception):
            error = cause_of(error) or error
        if not isinstance(error, Exception) or self._redaction.text(str(error)) == str(error):
            return error
        kind = type(error) if isinstance(error, TiCDCSourceError) else TiCDCSourceError
        return kind(self._redaction.text(str(error)))
