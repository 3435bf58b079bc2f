"""Tokens of logins: one per process and login, renewed before it expires.

Java's `ExpiringCredentialRefreshingLogin` does the same: it has a token for each login of a process, and a thread that
gets the next one when 80 to 85 percent of its lifetime are over. Here the thread runs while a client is connected.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ticdc_source.errors import KafkaUnavailableError, OptionError
from ticdc_source.options.secret import Secret
from ticdc_source.options.security import LoginTimes
from ticdc_source.sources.kafka.patience import Cause, Patience

__all__ = ["TOKENS", "FetchToken", "RenewedToken", "Token", "TokenPool", "TokenUnavailableError"]

_log = logging.getLogger(__name__)

# Java's sasl.login.refresh.window.factor and .jitter. Re-authentication begins at 85 percent of a session's lifetime.
_RENEW_AT, _JITTER = 0.8, 0.05
_SHORTEST_PAUSE_SECONDS = 0.05
_LONGEST_SECONDS = 86_400.0  # without a new token; a thread cannot wait for as long as some tokens are valid
_NEW_SECONDS = 1.0


class Token(NamedTuple):
    """What a broker wants to see.

    Attributes:
        value: its text.
        seconds: how long it is valid from when it was asked for.
    """

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


@dataclass(slots=True)
class _State:
    """What changes: the token, when it was asked for, until when it is valid, when to renew it, why that failed."""

    token: Token | None = None
    asked_at: float = 0.0
    valid_until: float = 0.0
    renew_at: float = 0.0
    failure: str = "it has expired"
    users: int = 0
    ended: threading.Event = field(default_factory=threading.Event)


class RenewedToken:
    """A token that is renewed while somebody uses it. Safe to use from several threads.

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
        self._lock = threading.Lock()  # of the state
        self._fetching = threading.Lock()  # one thread fetches the first token, the others wait for it
        self._state = _State()

    def open(self, patience: Patience) -> None:
        """Get a token unless there is a valid one, and renew it from now on, until `close`.

        Raises:
            OptionError: the login is refused.
            KafkaUnavailableError: there is no token in time.
        """
        with self._fetching:
            if not self._is_valid():
                self._fetch_first(patience)
            with self._lock:
                self._state.users += 1
                if self._state.users == 1:
                    self._state.ended = threading.Event()
                    threading.Thread(
                        target=self._renew, args=(self._state.ended,), name="ticdc-login", daemon=True
                    ).start()

    def close(self) -> None:
        """Renew it no more, if nobody else uses it."""
        with self._lock:
            self._state.users -= 1
            if self._state.users == 0:
                self._state.ended.set()

    def forget(self) -> None:
        """Use the token no more: brokers refuse it."""
        with self._lock:
            self._state.valid_until = 0.0

    def replace(self, patience: Patience) -> bool:
        """Get another token, unless this one is new: then another one would be refused too.

        A token that is not new may have expired early: a machine that is asleep does not count the time.

        Returns:
            whether there is another one.

        Raises:
            OptionError: the login is refused.
            KafkaUnavailableError: there is no token in time.
        """
        refused_at = time.monotonic()
        with self._fetching:
            with self._lock:
                asked_at = self._state.asked_at
            if asked_at >= refused_at:  # another thread has just done it
                return True
            if refused_at - asked_at < _NEW_SECONDS:
                return False
            self._fetch_first(patience)
        return True

    @property
    def is_idle(self) -> bool:
        """Whether nobody uses it, and it has expired."""
        with self._lock:
            return not self._state.users and time.monotonic() >= self._state.valid_until

    def value(self) -> str:
        """Return the token's text, without waiting.

        Raises:
            TokenUnavailableError: it has expired, and could not be renewed.
        """
        with self._lock:
            token, failure = self._state.token, self._state.failure
            if token is None or time.monotonic() >= self._state.valid_until:
                raise TokenUnavailableError(Cause(f"no token from {self._source}: {failure}"))
        return token.value.reveal()

    def _is_valid(self) -> bool:
        with self._lock:
            return time.monotonic() < self._state.valid_until

    def _fetch_first(self, patience: Patience) -> None:
        patience = patience.apart("there is no token for the login")
        pause_ms = float(self._times.retry_backoff_ms)
        while True:
            try:
                self._keep(self._fetch, patience.left_ms / 1000)
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
            time.sleep(min(pause_ms, patience.left_ms) / 1000)
            pause_ms = self._longer(pause_ms)

    def _keep(self, fetch: FetchToken, seconds: float) -> None:
        asked_at = time.monotonic()
        token = fetch(seconds)
        share = random.uniform(_RENEW_AT, _RENEW_AT + _JITTER)  # noqa: S311 (so that workers do not ask all at once)
        with self._lock:
            self._state.token, self._state.asked_at = token, asked_at
            self._state.valid_until = asked_at + token.seconds
            self._state.renew_at = asked_at + min(token.seconds, _LONGEST_SECONDS) * share

    def _longer(self, pause_ms: float) -> float:
        return min(max(2 * pause_ms, 1.0), float(self._times.retry_backoff_max_ms))

    def _renew(self, ended: threading.Event) -> None:
        pause_ms = float(self._times.retry_backoff_ms)
        has_failed = False
        while not ended.wait(max(self._state.renew_at - time.monotonic(), _SHORTEST_PAUSE_SECONDS)):
            try:
                self._keep(self._fetch, (self._times.connect_timeout_ms + self._times.read_timeout_ms) / 1000)
            except Exception as error:  # noqa: BLE001 (the thread goes on, whatever an endpoint or a package does)
                # What others raise may hold a secret.
                reason = str(error) if isinstance(error, (TokenUnavailableError, OptionError)) else type(error).__name__
                if not has_failed:
                    _log.warning("The login's token is not renewed, and will be tried again: %s", reason)
                has_failed = True
                with self._lock:
                    self._state.failure = reason
                    self._state.renew_at = time.monotonic() + pause_ms / 1000
                pause_ms = self._longer(pause_ms)
            else:
                if has_failed:
                    _log.warning("The login's token is renewed")
                pause_ms, has_failed = float(self._times.retry_backoff_ms), False


class TokenPool:
    """The tokens of a process, by login. Safe to use from several threads."""

    def __init__(self) -> None:
        self._tokens: dict[Hashable, RenewedToken] = {}
        self._lock = threading.Lock()

    def of(self, login: Hashable, make: Callable[[], RenewedToken]) -> RenewedToken:
        """Return the token of a login; equal logins share one.

        Args:
            login: all that the token depends on.
            make: makes one for a login that is new.
        """
        with self._lock:
            self._tokens = {key: token for key, token in self._tokens.items() if key == login or not token.is_idle}
            if login not in self._tokens:
                self._tokens[login] = make()
            return self._tokens[login]

    def clear(self) -> None:
        """Forget all tokens, in a process that was forked: the threads that renew them are in its parent."""
        self._tokens, self._lock = {}, threading.Lock()


# The tokens of this process: each of its clients would otherwise ask for one of its own.
TOKENS = TokenPool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=TOKENS.clear)
