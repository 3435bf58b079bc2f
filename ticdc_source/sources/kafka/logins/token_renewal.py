"""Tokens of logins, each asked for again before it expires.

Java's `ExpiringCredentialRefreshingLogin` renews a token in a thread of its own, when 80 to 85 percent of its lifetime
are over, whether or not anybody needs it. Here whoever needs it after that time starts the renewal. That is early
enough: brokers want a login again at the end of a session, and clients begin it at 85 percent of that.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from ticdc_source.errors import KafkaUnavailableError, OptionError
from ticdc_source.options.parsers import Secret
from ticdc_source.options.security import LoginTimes
from ticdc_source.sources.kafka.patience import Cause, Patience

__all__ = ["FetchToken", "RenewedToken", "Token", "TokenUnavailableError"]

_log = logging.getLogger(__name__)

_RENEW_AT, _JITTER = 0.8, 0.05  # Java's sasl.login.refresh.window.factor and .jitter
_NEW_SECONDS = 1.0
# How long a client's IO thread waits for a renewal: an answer takes less, and its other requests are held up meanwhile.
_MOMENT_SECONDS = 1.0


class Token(NamedTuple):
    """What a broker wants to see, and for how many seconds it is valid from when it was asked for."""

    value: Secret
    seconds: float


class TokenUnavailableError(Exception):
    """There is no token now; there may be one a moment later.

    Attributes:
        cause: why, and whether it is likely to stay so.
    """

    def __init__(self, cause: Cause, /) -> None:
        super().__init__(cause.text)
        self.cause = cause


# Gets a token in so many seconds at most; raises TokenUnavailableError, or OptionError if another try would not help.
FetchToken: TypeAlias = Callable[[float], Token]


class _Held(NamedTuple):
    value: Secret
    asked_at: float
    valid_until: float


_NONE = _Held(Secret(""), -math.inf, -math.inf)


class RenewedToken:
    """A token that is renewed while it is used. Safe to use from several threads.

    Args:
        fetch: gets a token.
        source: where from, for messages.
        advice: what to look at if there is none, for messages.
        times: how long to wait.
    """

    def __init__(self, fetch: FetchToken, source: str, advice: str, times: LoginTimes) -> None:
        self._fetch = fetch
        self._source = source
        self._advice = advice
        self._times = times
        self._asking = threading.Lock()  # one thread asks; what it gets is for all
        self._held = _NONE
        self._ask_at = -math.inf
        self._failure: str | None = None
        self._pause_ms = float(times.retry_backoff_ms)

    def wait(self, patience: Patience) -> None:
        """Wait for a token, if there is no valid one.

        Raises:
            OptionError: the login is refused.
            KafkaUnavailableError: there is no token in time.
        """
        if self._is_valid:
            return
        with self._asking:
            if not self._is_valid:  # another thread may have got one meanwhile
                self._wait(patience)

    def replace(self, patience: Patience) -> bool:
        """Get another token, as brokers refuse this one. If it is new, another one would be refused too: it is dropped.

        A token that is not new may have expired early: a machine that is asleep does not count the time.

        Returns:
            whether there is another one.

        Raises:
            OptionError: the login is refused.
            KafkaUnavailableError: there is no token in time.
        """
        refused_at = time.monotonic()
        with self._asking:
            if self._held.asked_at >= refused_at:  # another thread has just done it
                return True
            if refused_at - self._held.asked_at < _NEW_SECONDS:
                self._held, self._ask_at = _NONE, -math.inf
                return False
            self._wait(patience)
        return True

    def value(self) -> str:
        """Return the token's text. If it is time for the next one, ask for that, and wait a moment for it.

        Raises:
            TokenUnavailableError: it has expired, and could not be renewed.
        """
        if time.monotonic() >= self._ask_at and self._asking.acquire(blocking=False):
            renewal = threading.Thread(target=self._renew, name="ticdc-login", daemon=True)
            renewal.start()
            renewal.join(_MOMENT_SECONDS)
        if not self._is_valid:
            raise TokenUnavailableError(Cause(f"no token from {self._source}: {self._failure or 'it has expired'}"))
        return self._held.value.reveal()

    @property
    def _is_valid(self) -> bool:
        return time.monotonic() < self._held.valid_until

    def _wait(self, patience: Patience) -> None:
        patience = patience.apart("there is no token for the login")
        self._pause_ms = float(self._times.retry_backoff_ms)
        while True:
            try:
                self._ask(patience.left_ms / 1000)
            except TokenUnavailableError as error:
                patience.failed(self._source, error.cause)
                try:
                    patience.check()
                except KafkaUnavailableError as end:
                    msg = f"There is no token for the login at Kafka: {patience.failures_text()}. Check {self._advice}"
                    raise KafkaUnavailableError(msg) from end
            else:
                patience.answered()
                return
            time.sleep(min(self._next_pause_ms(), patience.left_ms) / 1000)

    def _renew(self) -> None:
        try:
            self._ask((self._times.connect_timeout_ms + self._times.read_timeout_ms) / 1000)
        except Exception as error:  # noqa: BLE001 (whatever an endpoint or a package does, there will be another try)
            # What others raise may hold a secret.
            reason = str(error) if isinstance(error, (TokenUnavailableError, OptionError)) else type(error).__name__
            if self._failure is None:
                _log.warning("The login's token is not renewed, and will be tried again: %s", reason)
            self._failure = reason
            self._ask_at = time.monotonic() + self._next_pause_ms() / 1000
        finally:
            self._asking.release()

    def _ask(self, seconds: float) -> None:
        asked_at = time.monotonic()
        token = self._fetch(seconds)
        share = random.uniform(_RENEW_AT, _RENEW_AT + _JITTER)  # noqa: S311 (so that workers do not ask all at once)
        self._held = _Held(token.value, asked_at, asked_at + token.seconds)
        self._ask_at = asked_at + token.seconds * share
        if self._failure is not None:
            _log.warning("The login's token is renewed")
        self._failure, self._pause_ms = None, float(self._times.retry_backoff_ms)

    def _next_pause_ms(self) -> float:
        pause_ms = self._pause_ms
        self._pause_ms = min(max(2 * pause_ms, 1.0), float(self._times.retry_backoff_max_ms))
        return pause_ms
