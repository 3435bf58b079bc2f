"""Connections to brokers: kafka-python's, without these faults of its version 3.0.12.

- `allow_auto_create_topics=False` does not reach its metadata requests.
- Bytes that arrive together with the end of a connection are thrown away: the broker's reason for refusing a login,
  which then looks like a network failure and is retried until the time is over.
- A TLS handshake has no time-out, a socket that cannot connect is not closed, and the reason is only logged.

Private names are used here: `compatibility.CONNECTIONS` guards them.
"""

from __future__ import annotations

import socket

import kafka.errors
from kafka.future import Future
from kafka.net.inet import KafkaNetSocket
from kafka.net.manager import KafkaConnectionManager
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from ticdc_source.kafka.kafka_python import library
from ticdc_source.kafka.kafka_python.errors import AUTHENTICATION_ERRORS, is_untrusted
from ticdc_source.kafka.kafka_python.receiving import Memory, Receiver

__all__ = ["Connections"]


class Connections(KafkaConnectionManager):  # type: ignore[misc]  # kafka-python has no types
    """kafka-python's connections.

    Attributes:
        last_error: why the last connection failed, None if none has.
    """

    def __init__(self, net: library.Network, **settings: object) -> None:
        super().__init__(net, **settings)
        self.last_error: BaseException | None = None
        self.cluster.config["allow_auto_create_topics"] = False
        self._given_up = Future()
        self._memory = Memory()

    def get_connection(self, node_id: int | str, *args: object, **kwargs: object) -> library.Connection:
        """Return a connection, and remember why it fails."""
        connection: library.Connection = super().get_connection(node_id, *args, **kwargs)
        if not connection.init_future.is_done:
            connection.init_future.add_errback(self._remember)
        return connection

    def _remember(self, error: BaseException) -> None:
        self.last_error = error
        # Java's client gives up at once, too: a retry solves neither.
        if (is_untrusted(error) or isinstance(error, AUTHENTICATION_ERRORS)) and not self._given_up.is_done:
            self._given_up.failure(error)

    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = True) -> None:  # noqa: FBT001, FBT002
        """Find the brokers, in `timeout_ms` milliseconds at most, even if a connection hangs.

        Raises:
            kafka.errors.KafkaError: no broker answered, or one refused.
        """

        async def find() -> None:
            outcome = Future()
            for end in (self.bootstrap_async(timeout_ms, refresh), self._given_up):
                end.add_callback(lambda value: None if outcome.is_done else outcome.success(value))
                end.add_errback(lambda error: None if outcome.is_done else outcome.failure(error))
            await self.wait_for(outcome, timeout_ms)

        self._net.run(find)

    async def _build_transport(self, node: library.Node, timeout_at: float | None = None) -> KafkaTCPTransport:
        sock = await self._connected_socket(node, timeout_at)
        transport_class, tls = _Transport, {}
        if self.ssl_enabled:
            transport_class, tls = _TLSTransport, {"ssl_context": self.config["ssl_context"]}
        transport = None
        try:
            transport = transport_class(self._net, sock, host=node.host, **tls)
            transport.memory = self._memory
            await transport.handshake()
        except BaseException as error:  # also when this coroutine is closed, because the client is
            (transport or sock).close()
            if not isinstance(error, Exception):
                raise
            msg = f"Handshake failed: {error}"
            raise kafka.errors.KafkaConnectionError(msg) from error
        return transport

    async def _connected_socket(self, node: library.Node, timeout_at: float | None) -> socket.socket:
        """Connect to one of the node's addresses; kafka-python's own leaves a socket open when that fails."""
        sockets = KafkaNetSocket(self.config["proxy_url"])
        failure = kafka.errors.KafkaConnectionError("DNS Resolution failure")
        for family, socket_type, protocol, _, address in sockets.dns_lookup(node.host, node.port):
            sock: socket.socket = sockets.socket(family, socket_type, protocol)
            try:
                sock.setblocking(False)  # noqa: FBT003 (its only argument)
                for option in self.config["socket_options"]:
                    sock.setsockopt(*option)
                connected: socket.socket = await sockets.sock_connect(self._net, sock, address, timeout_at=timeout_at)
            except (OSError, kafka.errors.KafkaError) as error:
                sock.close()
                failure = kafka.errors.KafkaConnectionError(f"unable to connect: {error}")
            except BaseException:
                sock.close()
                raise
            else:
                return connected
        raise failure


class _Transport(KafkaTCPTransport):  # type: ignore[misc]
    memory: Memory
    _receiver: Receiver | None = None

    def _sock_recv(self) -> tuple[bytes | list[memoryview], Exception | None]:
        self._receiver = self._receiver or Receiver(self._protocol.parser, self.memory)
        return self._receiver.read(self._sock)


class _TLSTransport(KafkaSSLTransport):  # type: ignore[misc]
    memory: Memory
    _receiver: Receiver | None = None

    def _sock_recv(self) -> tuple[bytes | list[memoryview], Exception | None]:
        self._receiver = self._receiver or Receiver(self._protocol.parser, self.memory)
        return self._receiver.read(self._sock)
