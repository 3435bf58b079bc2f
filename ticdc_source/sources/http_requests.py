"""HTTP requests that end in time, however slowly an answer comes.

Python's time-outs, and so those of urllib3, are for each read of a socket: a byte now and then passes them for ever. So
a thread asks, and whoever waits for it stops waiting when the time is over.
"""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

_MOST_BYTES = 1 << 24
_TRANSIENT = frozenset({408, 425, 429})
_SERVER_ERROR, _UNSUPPORTED = 500, frozenset({501, 505})
_PROXY_LOGIN = 407
_TUNNEL = re.compile(r"Tunnel connection failed: (\d{3})")  # http.client's words


class Times(NamedTuple):
    """How long a request may take, in seconds: to connect, between two parts of the answer, and as a whole."""

    connect: float
    read: float
    whole: float


class Answer(NamedTuple):
    """What an endpoint answers."""

    status: int
    body: bytes

    @property
    def status_text(self) -> str:
        """The status for people, such as `HTTP 404 Not Found`."""
        return f"HTTP {self.status} {http.client.responses.get(self.status, '')}".strip()

    @property
    def is_transient(self) -> bool:
        """Whether another try may have another answer."""
        return self.status in _TRANSIENT or (self.status >= _SERVER_ERROR and self.status not in _UNSUPPORTED)


class NotAnsweredError(Exception):
    """There is no answer; the text says why, and has no secret.

    Another try is likely to be in vain if that `is_permanent`; the endpoint's certificate is the reason if that
    `is_untrusted`.
    """

    def __init__(self, text: str, *, is_permanent: bool = False, is_untrusted: bool = False) -> None:
        super().__init__(text)
        self.is_permanent, self.is_untrusted = is_permanent, is_untrusted


def fetch(
    request: urllib.request.Request,
    times: Times,
    context: ssl.SSLContext | None = None,
    proxies: Mapping[str, str] | None = None,
) -> Answer:
    """Return what an endpoint answers, whatever the status. It follows no redirection, which would send secrets on.

    Args:
        times: how long it may take.
        context: for `https`.
        proxies: by scheme, the URL of the proxy; None for those of the environment (`HTTPS_PROXY`, `NO_PROXY`).

    Raises:
        NotAnsweredError: there is no answer in time.
    """
    handler = _Handler(times.read, context)
    opener = urllib.request.OpenerDirector()
    opener.add_handler(urllib.request.ProxyHandler(None if proxies is None else dict(proxies)))
    opener.add_handler(urllib.request.UnknownHandler())
    opener.add_handler(handler)
    results: list[Answer | NotAnsweredError] = []

    def ask() -> None:
        try:
            with opener.open(request, timeout=times.connect) as response:
                results.append(Answer(response.status, response.read(_MOST_BYTES)))
        except Exception as error:  # noqa: BLE001 (it is told in the thread that waits)
            results.append(_failure(error))

    asking = threading.Thread(target=ask, name="ticdc-http", daemon=True)
    try:
        asking.start()
    except RuntimeError:
        msg = "the system gives no more threads"
        raise NotAnsweredError(msg) from None
    asking.join(times.whole)
    result = results[0] if results else NotAnsweredError("no answer")
    handler.end()
    if isinstance(result, Answer) and result.status == _PROXY_LOGIN:
        result = _refused_by_proxy(_PROXY_LOGIN)
    if isinstance(result, NotAnsweredError):
        raise result
    return result


class _Handler(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Opens a connection that has a time-out of its own for reads, and can be ended by another thread."""

    def __init__(self, read_s: float, context: ssl.SSLContext | None) -> None:
        super().__init__(context=context)
        self._read_s = read_s
        self._socket: socket.socket | None = None  # the connection forgets it when the body of the answer begins

    def do_open(
        self, http_class: Callable[..., Any], req: urllib.request.Request, **arguments: Any
    ) -> http.client.HTTPResponse:
        handler = self

        class Connection(http_class):  # type: ignore[misc,valid-type]  # HTTPConnection or HTTPSConnection
            def connect(self) -> None:
                super().connect()
                handler._socket = self.sock
                self.sock.settimeout(handler._read_s)

        return super().do_open(Connection, req, **arguments)

    def end(self) -> None:
        if self._socket is not None:
            with suppress(OSError):  # an SSLSocket's own method would confuse who reads from it
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def _failure(error: Exception) -> NotAnsweredError:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, ssl.SSLCertVerificationError):
        return NotAnsweredError(str(reason.verify_message), is_permanent=True, is_untrusted=True)
    if isinstance(reason, ssl.SSLError):
        return NotAnsweredError(f"no TLS: {reason.reason or type(reason).__name__}", is_permanent=True)
    if isinstance(reason, socket.gaierror):
        text = "no such host" if reason.errno == socket.EAI_NONAME else str(reason.strerror)
        return NotAnsweredError(text, is_permanent=True)
    if isinstance(reason, ConnectionRefusedError):
        return NotAnsweredError("ECONNREFUSED (nothing listens there)", is_permanent=True)
    if isinstance(reason, TimeoutError):
        return NotAnsweredError("no answer")
    if isinstance(reason, str):  # urllib's own, such as "unknown url type: socks5"
        return NotAnsweredError(reason, is_permanent=True)
    if isinstance(reason, (http.client.InvalidURL, ValueError, OverflowError)):  # UnicodeError is a ValueError
        text = "HTTP cannot send this request: check the ports and characters in its URL, its login and the proxy's URL"
        return NotAnsweredError(f"{text} (other than ASCII, such as ä, is written %C3%A4)", is_permanent=True)
    tunnel = _TUNNEL.match(str(reason))
    if tunnel is not None:
        return _refused_by_proxy(int(tunnel[1]))
    return NotAnsweredError((reason.strerror if isinstance(reason, OSError) else None) or type(reason).__name__)


def _refused_by_proxy(status: int) -> NotAnsweredError:
    text = f"the proxy refuses ({Answer(status, b'').status_text})"
    if status == _PROXY_LOGIN:
        text += ": it wants a login, as in http://user:password@proxy:8080 (https_proxy)"
    return NotAnsweredError(text, is_permanent=status == _PROXY_LOGIN)
