"""HTTP requests with a total time limit, however slowly an answer comes."""

from __future__ import annotations

import http.client
import io
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

_MOST_BYTES = 1 << 24
_TRANSIENT = frozenset({408, 425, 429})
_SERVER_ERROR, _UNSUPPORTED = 500, frozenset({501, 505})
_PROXY_LOGIN = 407
_TUNNEL = re.compile(r"Tunnel connection failed: (\d{3})")  # http.client's words


class Times(NamedTuple):
    """Time limits of a request, in seconds: to connect to an address, between two parts of the answer, and in all."""

    connect: float
    read: float
    whole: float


class Answer(NamedTuple):
    """An endpoint's answer."""

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
    """There is no answer; the text says why, without secrets.

    `is_permanent`: a retry is unlikely to help; `is_untrusted`: because of the certificate.
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
    """Send a request and return the answer, whatever its status. Redirections are not followed: they could get secrets.

    Args:
        context: for `https`.
        proxies: the proxy's URL by scheme; None for the environment's (`HTTPS_PROXY`, `NO_PROXY`).

    Raises:
        NotAnsweredError: there is no answer in time.
    """
    opener = urllib.request.OpenerDirector()
    opener.add_handler(urllib.request.ProxyHandler(None if proxies is None else dict(proxies)))
    opener.add_handler(urllib.request.UnknownHandler())
    opener.add_handler(_Handler(times.read, time.monotonic() + times.whole, context))
    result: Answer | NotAnsweredError
    try:
        with opener.open(request, timeout=min(times.connect, times.whole)) as response:
            result = Answer(response.status, response.read(_MOST_BYTES))
    except Exception as error:  # noqa: BLE001 (its text may have secrets, so it is no context of ours)
        result = _failure(error)
    if isinstance(result, Answer) and result.status == _PROXY_LOGIN:
        result = _refused_by_proxy(_PROXY_LOGIN)
    if isinstance(result, NotAnsweredError):
        raise result
    return result


class _Handler(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Opens connections whose answers are read `_InTime`."""

    def __init__(self, read_s: float, ends_at: float, context: ssl.SSLContext | None) -> None:
        super().__init__(context=context)
        self._read_s, self._ends_at = read_s, ends_at

    def do_open(
        self, http_class: Callable[..., Any], req: urllib.request.Request, **arguments: Any
    ) -> http.client.HTTPResponse:
        read_s, ends_at = self._read_s, self._ends_at

        def connect(address: tuple[str, int], timeout: float, source: Any) -> socket.socket:  # noqa: ANN401
            """Like `socket.create_connection`, whose limit is per address, with a limit for all addresses of a host."""
            refusal: OSError = TimeoutError()
            for *_, (host, port, *_) in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
                left = min(timeout, ends_at - time.monotonic())
                if left <= 0:
                    break
                try:
                    return socket.create_connection((str(host), int(port)), left, source)
                except OSError as error:
                    refusal = error
            raise refusal

        class Connection(http_class):  # type: ignore[misc,valid-type]  # HTTPConnection or HTTPSConnection
            def __init__(self, *settings: Any, **more: Any) -> None:
                super().__init__(*settings, **more)
                self._create_connection = connect

            @staticmethod
            def response_class(connected: socket.socket, *level: Any, **arguments: Any) -> http.client.HTTPResponse:
                in_time: Any = _InTime(connected, read_s, ends_at)  # what `HTTPResponse` needs of a socket
                return http.client.HTTPResponse(in_time, *level, **arguments)

        return super().do_open(Connection, req, **arguments)


class _InTime(io.RawIOBase):
    """The bytes from a socket: each read waits at most `read_s`, and all end at a given time.

    Python's time-outs are per read, so an answer that trickles in would never end.
    """

    def __init__(self, connected: socket.socket, read_s: float, ends_at: float) -> None:
        self._socket, self._read_s, self._ends_at = connected, read_s, ends_at
        self._file = connected.makefile("rb", buffering=0)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:  # noqa: ANN401 (whatever can be written to)
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(min(self._read_s, left))
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


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
