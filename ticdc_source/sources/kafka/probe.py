"""What is at an address: DNS, TCP, TLS, and whether Kafka answers there. It needs no client library.

A probe sends what every listener answers before a login: ApiVersions (KIP-35), and SaslHandshake, which listeners with
logins answer with their mechanisms (kafka.apache.org/protocol, SaslHandshake).
"""

from __future__ import annotations

import socket
import ssl
import struct
from contextlib import AbstractContextManager
from enum import Enum

_SECONDS = 4.0  # for each step
_LATE_ALERT_S = 0.3  # TLS 1.3 refuses a missing client certificate after the handshake
_API_VERSIONS, _SASL_HANDSHAKE = 18, 17
_UNSUPPORTED_MECHANISM = 33
_TLS_ALERT = b"\x15\x03"
_LARGEST_ANSWER = 1 << 20
_NO_MECHANISM = b"?"


class Spoken(Enum):
    """What answers a Kafka request."""

    KAFKA = "Kafka"
    TLS = "TLS"
    NOTHING = "nothing"  # the connection is closed, or silent
    OTHER = "something other than Kafka"


class Probe(AbstractContextManager["Probe"]):
    """A connection to examine, with TLS if the socket has it."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def with_tls(self, context: ssl.SSLContext, host: str) -> Probe:
        """Return the connection after a TLS handshake.

        Raises:
            OSError: the handshake fails (`ssl.SSLError`), or the other side refuses our certificate.
        """
        wrapped = context.wrap_socket(self._socket, server_hostname=host)
        wrapped.settimeout(_LATE_ALERT_S)
        try:
            wrapped.recv(1)  # brokers do not speak first: only an alert may come
        except TimeoutError:
            pass
        except OSError:
            wrapped.close()
            raise
        else:
            wrapped.close()
            raise ConnectionResetError("the connection was closed after the handshake")
        wrapped.settimeout(_SECONDS)
        return Probe(wrapped)

    @property
    def certificate(self) -> dict[str, object]:
        """The peer's certificate as in `ssl.SSLSocket.getpeercert`; empty if it was not checked."""
        certificate = self._socket.getpeercert() if isinstance(self._socket, ssl.SSLSocket) else None
        return dict(certificate) if isinstance(certificate, dict) else {}

    @property
    def tls_version(self) -> str | None:
        """Such as `TLSv1.3`; None without TLS."""
        return self._socket.version() if isinstance(self._socket, ssl.SSLSocket) else None

    def spoken(self) -> Spoken:
        """What answers ApiVersions, which needs no login."""
        try:
            answer = self._ask(_API_VERSIONS, 0, b"")
        except OSError:
            return Spoken.NOTHING
        return Spoken.TLS if answer.startswith(_TLS_ALERT) else Spoken.OTHER if len(answer) < 6 else Spoken.KAFKA  # noqa: PLR2004

    def mechanisms(self) -> list[str] | None:
        """The listener's SASL mechanisms; None if it needs no login, or does not tell."""
        try:
            answer = self._ask(_SASL_HANDSHAKE, 1, struct.pack(">h", len(_NO_MECHANISM)) + _NO_MECHANISM)
        except OSError:
            return None
        if len(answer) < 6 or struct.unpack(">h", answer[:2])[0] != _UNSUPPORTED_MECHANISM:  # noqa: PLR2004
            return None
        (count,) = struct.unpack(">i", answer[2:6])
        names, rest = [], answer[6:]
        for _ in range(min(count, 100)):
            (length,) = struct.unpack(">h", rest[:2])
            names.append(rest[2 : 2 + length].decode("utf-8", "replace"))
            rest = rest[2 + length :]
        return names

    def _ask(self, api_key: int, version: int, body: bytes) -> bytes:
        """Return what follows an answer's correlation id, or the first bytes of anything else."""
        client = b"ticdc-source-doctor"
        request = struct.pack(">hhih", api_key, version, 1, len(client)) + client + body
        self._socket.sendall(struct.pack(">i", len(request)) + request)
        head = self._exactly(8)
        size, correlation = struct.unpack(">ii", head)
        if correlation != 1 or not 4 <= size <= _LARGEST_ANSWER:  # noqa: PLR2004
            return head[:4]
        return self._exactly(size - 4)

    def _exactly(self, count: int) -> bytes:
        """Return `count` bytes, or a shorter TLS alert."""
        received = b""
        while len(received) < count:
            part = self._socket.recv(count - len(received))
            if not part:
                raise ConnectionResetError("Connection reset: closed without an answer")
            received += part
            if received.startswith(_TLS_ALERT):
                return received.ljust(count, b"\0")
        return received


def probe(host: str, port: int) -> Probe:
    """Connect by TCP.

    Raises:
        OSError: the name cannot be resolved (`socket.gaierror`), or nothing answers.
    """
    return Probe(socket.create_connection((host, port), timeout=_SECONDS))


def speaks_tls(host: str, port: int) -> bool:
    """Whether something at an address answers a TLS handshake, whatever its certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # only to find out whether it is TLS: nothing is sent
    try:
        with probe(host, port) as plain, plain.with_tls(context, host):
            return True
    except ssl.SSLEOFError:
        return False
    except ssl.SSLError as error:
        return "ALERT" in str(error).upper()
    except OSError:
        return False
