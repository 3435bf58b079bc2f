"""HTTP requests that end in time: however slowly an answer comes, and whether or not it is over TLS."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

__all__ = ["Times", "failure", "fetch"]

_MOST_BYTES = 1 << 24


class Times(NamedTuple):
    """How long a request may take, in seconds.

    Attributes:
        connect: to connect.
        read: between two parts of the answer.
        whole: all of it.
    """

    connect: float
    read: float
    whole: float


def fetch(
    request: urllib.request.Request,
    times: Times,
    context: ssl.SSLContext | None = None,
    proxies: Mapping[str, str] | None = None,
) -> bytes:
    """Return what an endpoint answers to a request. A redirection is an error: it would send secrets elsewhere.

    Args:
        request: the request.
        times: how long it may take.
        context: the TLS context for `https`.
        proxies: by scheme, the URL of the proxy; None for those of the environment (`HTTPS_PROXY`, `NO_PROXY`).

    Raises:
        urllib.error.HTTPError: the answer is no success. The caller closes it.
        OSError, http.client.HTTPException: there is no answer; TimeoutError if the time is over.
    """
    limit = _Limit(times)
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects(), _HTTP(limit)]
    if context is not None:
        handlers.append(_HTTPS(limit, context))
    if proxies is not None:
        handlers.append(urllib.request.ProxyHandler(dict(proxies)))
    opener = urllib.request.build_opener(*handlers)
    timer = threading.Timer(times.whole, limit.end)
    timer.daemon = True
    timer.start()
    try:
        with opener.open(request, timeout=times.connect) as response:
            answer: bytes = response.read(_MOST_BYTES)
        if limit.is_over:
            raise TimeoutError
    except urllib.error.HTTPError:
        raise
    except (OSError, http.client.HTTPException) as error:  # urllib.error.URLError is an OSError
        if limit.is_over:
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()
    return answer


def failure(error: OSError | http.client.HTTPException) -> tuple[str, bool]:
    """Return why there was no answer, for people, and whether trying again is likely to be in vain.

    Args:
        error: what `fetch` has raised, and no `HTTPError`.
    """
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, ssl.SSLError):
        return f"no TLS: {reason.reason or type(reason).__name__}", True
    if isinstance(reason, socket.gaierror):
        return "no such host" if reason.errno == socket.EAI_NONAME else str(reason.strerror), True
    if isinstance(reason, ConnectionRefusedError):
        return "ECONNREFUSED (nothing listens there)", True
    if isinstance(reason, TimeoutError):
        return "no answer", False
    text = reason.strerror if isinstance(reason, OSError) else None
    return text or type(reason).__name__, False


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Makes a redirection an error."""

    def redirect_request(self, *_: object) -> None:
        return None


class _Limit:
    """Ends a request whose answer comes too slowly: each single byte of it may come in time."""

    def __init__(self, times: Times) -> None:
        self.connect, self._read = times.connect, times.read
        self.is_over = False
        self._socket: socket.socket | None = None

    def watch(self, connected: socket.socket) -> None:
        """Set the time-out of reads, and end the connection when the time is over."""
        connected.settimeout(self._read)
        self._socket = connected
        if self.is_over:
            self.end()

    def end(self) -> None:
        """End the connection: what reads from it finds its end."""
        self.is_over = True
        if self._socket is not None:
            with suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


class _HTTP(urllib.request.HTTPHandler):
    """Opens connections with one time-out to connect, and another one to read."""

    def __init__(self, limit: _Limit) -> None:
        super().__init__()
        self._limit = limit

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        limit = self._limit

        class Connection(http.client.HTTPConnection):
            def connect(self) -> None:
                self.timeout = limit.connect
                super().connect()
                limit.watch(self.sock)

        return self.do_open(Connection, request)


class _HTTPS(urllib.request.HTTPSHandler):
    """Does the same over TLS."""

    def __init__(self, limit: _Limit, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._limit, self._tls = limit, context

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        limit = self._limit

        class Connection(http.client.HTTPSConnection):
            def connect(self) -> None:
                self.timeout = limit.connect
                super().connect()
                limit.watch(self.sock)

        return self.do_open(Connection, request, context=self._tls)
