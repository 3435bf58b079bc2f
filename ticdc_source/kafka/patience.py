"""How long brokers are waited for, and what is said meanwhile.

A client library tries the servers that it knows, and tells a `Patience` why each of them failed. That object knows when
to stop, writes to the log while the wait lasts, and makes the final error. `retry.py` decides how long a wait is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from ticdc_source.errors import KafkaUnavailableError

__all__ = ["Cause", "Limit", "Patience"]

_log = logging.getLogger(__name__)

# Nothing waits in silence for longer than the first; the second is the time from one line in the log to the next.
_FIRST_LINE_SECONDS, _NEXT_LINE_SECONDS = 3.0, 10.0
# So long it is tried if another try is most unlikely to help: a name server and a broker that is just starting may be
# wrong for a moment.
_CERTAIN_SECONDS = 5.0


class Cause(NamedTuple):
    """Why a server failed.

    Attributes:
        text: for a log line or an error.
        is_certain: whether the next try will end in the same way, unless somebody corrects an option.
    """

    text: str
    is_certain: bool = False


class Limit(NamedTuple):
    """How long to wait.

    Attributes:
        ms: so many milliseconds.
        option: the option that says so.
        ends_early: whether to wait no longer than some seconds if every server fails for a reason that is certain.
    """

    ms: float
    option: str
    ends_early: bool = False


class Patience:
    """One wait for brokers: its end, what was tried, and what of that is in the log.

    Args:
        servers: the bootstrap servers.
        waits_for: what is waited for.
        limit: how long.
        clock: a monotonic clock, in seconds.
        began: when the wait began by that clock; now if None.
    """

    def __init__(
        self,
        servers: str,
        waits_for: str,
        limit: Limit,
        *,
        clock: Callable[[], float] = time.monotonic,
        began: float | None = None,
    ) -> None:
        self._servers = servers
        self._waits_for = waits_for
        self._limit = limit
        self._clock = clock
        self._began = clock() if began is None else began
        self._deadline = self._began + limit.ms / 1000
        self._record = _Record(self._began + _FIRST_LINE_SECONDS)

    def part(self, ms: float) -> Patience:
        """Return a shorter wait within this one, for one of several tries: what is tried there is tried here, too."""
        part = object.__new__(Patience)
        part.__dict__.update(self.__dict__)
        part._deadline = min(self._deadline, self._clock() + ms / 1000)
        return part

    @property
    def left_ms(self) -> float:
        """How many milliseconds are left, 0 if none are."""
        return max(0.0, self._deadline - self._clock()) * 1000

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return self._clock() >= self._deadline

    @property
    def has_failures(self) -> bool:
        """Whether a server has failed."""
        return bool(self._record.servers)

    @property
    def pause_ms(self) -> float:
        """How many milliseconds a caller may block before it calls `tell`."""
        return min(self.left_ms, max(0.0, self._record.next_line - self._clock()) * 1000) + 1

    def failed(self, server: str, cause: Cause) -> None:
        """Remember that a server failed, and why; `tell` if it is time."""
        tries, _ = self._record.servers.get(server, (0, cause))
        self._record.servers[server] = tries + 1, cause
        self.tell()

    def lacks(self, text: str | None) -> None:
        """Remember what is missing although brokers answer, None for nothing."""
        self._record.missing = text

    def tell(self) -> None:
        """Write a line to the log, if it is time for one."""
        now = self._clock()
        if now < self._record.next_line:
            return
        self._record.next_line = now + _NEXT_LINE_SECONDS
        self._record.told = True
        _log.warning(
            "Kafka at %s: %s for %.0f s of at most %.0f s (%s); %s",
            self._servers,
            self._waits_for,
            now - self._began,
            self._limit.ms / 1000,
            self._limit.option,
            self.tried(),
        )

    def answered(self) -> None:
        """End the wait: the brokers have answered. A log line says so if one has said that they did not."""
        if self._record.told:
            _log.warning("Kafka at %s answers after %.0f s", self._servers, self._clock() - self._began)

    def tried(self) -> str:
        """Return which servers failed, and why."""
        record = self._record
        causes = [
            f"{server}: {cause.text}" + (f" ({tries} tries)" if tries > 1 else "")
            for server, (tries, cause) in record.servers.items()
        ]
        return "; ".join(filter(None, [record.missing, *causes])) or "no answer"

    def check(self) -> None:
        """Fail if there is nothing to wait for.

        Raises:
            KafkaUnavailableError: the time is over, or all servers fail for a reason that is certain.
        """
        seconds = self._clock() - self._began
        causes = [cause for _, cause in self._record.servers.values()]
        is_certain = self._limit.ends_early and bool(causes) and all(cause.is_certain for cause in causes)
        if self.is_over or (is_certain and seconds >= _CERTAIN_SECONDS):
            raise self.error()

    def error(self) -> KafkaUnavailableError:
        """Return the error of a wait that was in vain."""
        seconds = self._clock() - self._began
        limit = f"{self._limit.option} = {self._limit.ms:.0f} ms" if self.is_over else "more time would not help"
        return KafkaUnavailableError(
            f"Kafka at {self._servers} did not answer in {seconds:.1f} s ({limit}): {self.tried()}. Check "
            "kafka.bootstrap.servers, kafka.security.protocol and the network"
        )


class _Record:
    """What a wait and its parts share."""

    def __init__(self, next_line: float) -> None:
        self.servers: dict[str, tuple[int, Cause]] = {}  # the tries and the last failure of each
        self.missing: str | None = None
        self.next_line = next_line
        self.told = False
