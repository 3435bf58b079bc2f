"""How long to wait for brokers that do not answer: time limit, log lines and the final error.

Code that tries servers reports each failure to a `Patience`, which logs progress and decides when to give up.

Some causes end a wait early. A permanent one, such as a name unknown to DNS, does so until the brokers have answered
once. A refused connection may be a starting broker or a wrong port. It ends the wait only at the driver's first
contact, if every bootstrap server refuses and `kafka.bootstrap.timeout.ms` is not set (a job that starts together with
its brokers should set it).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from ticdc_source.errors import KafkaUnavailableError

_log = logging.getLogger(__name__)

# Seconds of waiting before the first log line, and between later log lines.
_FIRST_LOG_SECONDS, _LOG_INTERVAL_SECONDS = 3.0, 10.0
_ADVICE = "Check kafka.bootstrap.servers, kafka.security.protocol and the network"
_PERMANENT_FAILURE_SECONDS = 5.0  # not at once: DNS or a starting broker may fail briefly
_REFUSED_SECONDS = 2.0  # so that a wrong port is reported within five, including Python's start


class Cause(NamedTuple):
    """Why a server failed, as text for logs and errors."""

    text: str
    is_permanent: bool = False  # retries fail until the options or DNS are changed
    is_refused: bool = False  # nothing listens there


class Limit(NamedTuple):
    """The longest wait in milliseconds, and the option that sets it."""

    ms: float
    option: str
    ends_early: bool = False  # after `_PERMANENT_FAILURE_SECONDS`, if every failure so far is permanent
    ends_if_refused: bool = False  # after `_REFUSED_SECONDS`, if every server refuses


class Patience:
    """One wait for brokers: its deadline, the failures so far, and when to log next.

    Args:
        status: what is happening, for the log, such as "no broker answers" or "a request is pending".
        clock: a monotonic clock, in seconds.
        began: the start of the wait by that clock; None for now.
    """

    def __init__(
        self,
        servers: str,
        status: str,
        limit: Limit,
        *,
        clock: Callable[[], float] = time.monotonic,
        began: float | None = None,
    ) -> None:
        self._servers = servers
        self._status = status
        self._limit = limit
        self._clock = clock
        self._began = clock() if began is None else began
        self._deadline = self._began + limit.ms / 1000
        self._progress = _Progress(self._began + _FIRST_LOG_SECONDS)

    def limited_to(self, ms: float) -> Patience:
        """Return a shorter wait for one attempt, with the same failures and log times."""
        limited = object.__new__(Patience)
        limited.__dict__.update(self.__dict__)
        limited._deadline = min(self._deadline, self._clock() + ms / 1000)
        return limited

    def apart(self, status: str) -> Patience:
        """Return a wait for something else within the time left, with its own failures and log times."""
        other = object.__new__(Patience)
        other.__dict__.update(self.__dict__)
        other._began, other._status = self._clock(), status
        other._progress = _Progress(other._began + _FIRST_LOG_SECONDS)
        return other

    @property
    def left_ms(self) -> float:
        return max(0.0, self._deadline - self._clock()) * 1000

    @property
    def is_over(self) -> bool:
        return self._clock() >= self._deadline

    @property
    def has_failures(self) -> bool:
        return bool(self._progress.failures)

    def is_cut_short(self, server: str, seconds: float) -> bool:
        """Whether a try ended by the deadline after some seconds says less than an earlier failure."""
        return server in self._progress.failures and seconds < (self._clock() - self._began) / 2

    @property
    def pause_ms(self) -> float:
        """Milliseconds until just after the next log line or the deadline."""
        return min(self.left_ms, max(0.0, self._progress.next_line - self._clock()) * 1000) + 1

    def failed(self, server: str, cause: Cause) -> None:
        tries, _ = self._progress.failures.get(server, (0, cause))
        self._progress.failures[server] = tries + 1, cause
        self.log_if_due()

    def set_missing(self, text: str | None) -> None:
        """Set what is missing although brokers answer; None for nothing."""
        self._progress.missing = text

    def log_if_due(self) -> None:
        now = self._clock()
        if now < self._progress.next_line:
            return
        self._progress.next_line = now + _LOG_INTERVAL_SECONDS
        self._progress.has_logged = True
        _log.warning(
            "Kafka at %s: %s; waited %.0f s of at most %.0f s (%s): %s",
            self._servers,
            self._status,
            now - self._began,
            self._limit.ms / 1000,
            self._limit.option,
            self.failures_text(),
        )

    def answered(self) -> None:
        """Log that the brokers have answered, if this wait has logged a warning."""
        if self._progress.has_logged:
            _log.warning("Kafka at %s answers after %.0f s", self._servers, self._clock() - self._began)

    def failures_text(self) -> str:
        progress = self._progress
        causes = [
            f"{server}: {cause.text}" + (f" ({tries} tries)" if tries > 1 else "")
            for server, (tries, cause) in progress.failures.items()
        ]
        return "; ".join(filter(None, [progress.missing, *causes])) or "no answer"

    @property
    def _are_all_refused(self) -> bool:
        causes = [cause for _, cause in self._progress.failures.values()]
        return len(causes) >= len(set(self._servers.split(","))) and all(cause.is_refused for cause in causes)

    def check(self, lacking: str | None = None, advice: str = _ADVICE) -> None:
        """Raise KafkaUnavailableError if the deadline has passed, or more time would not help.

        Args:
            lacking: what is missing, if it is not an answer of Kafka.
        """
        seconds = self._clock() - self._began
        causes = [cause for _, cause in self._progress.failures.values()]
        is_permanent = self._limit.ends_early and bool(causes) and all(cause.is_permanent for cause in causes)
        is_hopeless = is_permanent and seconds >= _PERMANENT_FAILURE_SECONDS
        is_refused = self._limit.ends_if_refused and seconds >= _REFUSED_SECONDS and self._are_all_refused
        if not (self.is_over or is_hopeless or is_refused):
            return
        limit = "more time would not help"
        if self.is_over:
            limit = f"{self._limit.option} = {self._limit.ms:.0f} ms"
        elif self._are_all_refused:
            limit = "for brokers that are starting, set kafka.bootstrap.timeout.ms"
        silent = f"Kafka at {self._servers} did not answer in {seconds:.1f} s ({limit})"
        raise KafkaUnavailableError(f"{lacking or silent}: {self.failures_text()}. {advice}")


class _Progress:
    """The state that a wait shares with its shorter waits (`limited_to`)."""

    def __init__(self, next_line: float) -> None:
        self.failures: dict[str, tuple[int, Cause]] = {}  # by server: how often it failed, and why it last did
        self.missing: str | None = None
        self.next_line = next_line
        self.has_logged = False
