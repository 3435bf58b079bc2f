"""Connections to brokers: kafka-python's, without these faults of its version 3.0.12.

- `allow_auto_create_topics=False` does not reach its metadata requests.
- Bytes that arrive together with the end of a connection are dropped: the broker's reason for refusing a login. The
  refusal then looks like a network failure, and is retried until the time is over.
- A request times out while its answer arrives over a slow link, and the connection is closed.
- A TLS handshake has no time-out; a socket that cannot connect is not closed, and the reason is only logged; a socket
  with something left to send is not closed at the end.
- Requests and the bootstrap go to a random broker, even one that has just failed, and a server that accepts but never
  answers takes all the time.

The private names used here are listed in docs/design/0010.
"""

from __future__ import annotations

import random
import socket
import ssl
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias
from weakref import WeakSet

import kafka.errors
import pyarrow as pa
from kafka.future import Future
from kafka.net.connection import KafkaConnection
from kafka.net.inet import KafkaNetSocket
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.protocol.parser import KafkaProtocol

NodeId: TypeAlias = int | str  # a broker's number, or the name of a bootstrap server
Node: TypeAlias = Any  # its `host` and `port`


class Connections(KafkaConnectionManager):  # type: ignore[misc]  # kafka-python has no types
    """kafka-python's connections.

    Attributes:
        accepted: the nodes that accepted a connection as brokers do, and the login if there is one.
    """

    def __init__(self, net: NetworkSelector, **settings: object) -> None:
        super().__init__(net, **settings)
        self.accepted: set[NodeId] = set()
        self._failed_at: dict[NodeId, float] = {}
        self._transports: WeakSet[_ReceivesAnswers] = WeakSet()
        self.cluster.config["allow_auto_create_topics"] = False

    def get_connection(self, node_id: NodeId, *args: object, **kwargs: object) -> KafkaConnection:
        is_new = node_id not in self._conns
        if not self.bootstrapped:  # a failure would start kafka-python's own bootstrap beside ours
            kwargs["refresh_metadata_on_err"] = False
        connection = super().get_connection(node_id, *args, **kwargs)
        if is_new:
            connection.init_future.add_callback(lambda _: self.accepted.add(node_id))
            connection.init_future.add_errback(lambda _: self.failed(node_id))
            connection.close_future.add_errback(lambda _: self.failed(node_id))
            connection._request_timed_out = partial(self._timed_out, connection)  # noqa: SLF001
        return connection

    def _timed_out(self, connection: KafkaConnection, future: Future, sent_at: float, timeout_at: float) -> None:
        """Close the connection of a request without an answer, but only after as long a time without any bytes."""
        if connection.closed or future.is_done:
            return
        silent_at = connection.transport.last_read + timeout_at - sent_at
        if time.monotonic() < silent_at:  # answers come one after the other: this one, or one before it, is under way
            self._net.call_at(silent_at, lambda: self._timed_out(connection, future, sent_at, timeout_at))
        else:
            KafkaConnection._request_timed_out(connection, future, sent_at, timeout_at)  # noqa: SLF001

    def has_part_of_answer(self, node_id: NodeId) -> bool:
        """Whether an answer has begun to arrive from a node."""
        transport = getattr(self._conns.get(node_id), "transport", None)
        receiver = transport._receiver if isinstance(transport, _ReceivesAnswers) else None  # noqa: SLF001
        return receiver is not None and receiver.has_part

    def failed(self, node_id: NodeId) -> None:
        self._failed_at[node_id] = time.monotonic()

    def answered(self, node_id: NodeId) -> None:
        self._failed_at.pop(node_id, None)

    def nodes(self) -> list[NodeId]:
        """The nodes for any request, best first: connected and idle ones first, the latest failure last."""
        brokers = self.cluster.brokers()
        addresses = {(broker.host, broker.port) for broker in brokers}
        servers = [server for server in self.cluster.bootstrap_brokers() if (server.host, server.port) not in addresses]
        nodes = [
            node.node_id for node in (*random.sample(brokers, len(brokers)), *random.sample(servers, len(servers)))
        ]

        def rank(node_id: NodeId) -> tuple[float, bool, bool]:
            connection = self._conns.get(node_id)
            is_connected = connection is not None and connection.connected and not connection.paused
            is_idle = connection is None or not connection.in_flight_requests
            return self._failed_at.get(node_id, 0.0), not is_connected, not is_idle

        return sorted(nodes, key=rank)

    def least_loaded_node(self) -> NodeId | None:
        """The node for kafka-python's own requests; its choice could be one that has just failed."""
        return next((node for node in self.nodes() if not self._is_unready(node)), None)

    def _is_unready(self, node_id: NodeId) -> bool:
        connection = self._conns.get(node_id)
        return bool(connection is not None and connection.paused) or self.connection_delay(node_id) > 0

    def address(self, node_id: NodeId) -> str:
        node = self.cluster.broker_metadata(node_id)
        return str(node_id) if node is None else f"{node.host}:{node.port}"

    def bootstrapped_by(self, answer: object) -> None:
        """Take the brokers from a bootstrap server's answer, instead of kafka-python's own bootstrap."""
        self.cluster.update_metadata(answer)
        self._bootstrap_future = Future().success(value=True)
        self.cluster.start_refresh_loop()
        for server in self.cluster.bootstrap_brokers():
            self.close(server.node_id)

    def close_sockets(self) -> None:
        """Close sockets with unsent data, which kafka-python leaves open when its IO thread has ended."""
        for transport in self._transports:
            if transport._sock is not None:  # noqa: SLF001 (the transport's own way is to wait)
                transport._sock.close()  # noqa: SLF001

    async def _build_transport(self, node: Node, timeout_at: float | None = None) -> KafkaTCPTransport:
        sock = await self._connected_socket(node, timeout_at)
        transport_class, tls = _Transport, {}
        if self.ssl_enabled:
            transport_class, tls = _TLSTransport, {"ssl_context": self.config["ssl_context"]}
        transport = None
        try:
            transport = transport_class(self._net, sock, host=node.host, **tls)
            self._transports.add(transport)
            left_ms = None if timeout_at is None else max(0.0, timeout_at - time.monotonic()) * 1000
            await self.wait_for(self.call_soon(transport.handshake), left_ms)
        except kafka.errors.KafkaTimeoutError:
            (transport or sock).close()
            raise
        except BaseException as error:  # also when this coroutine is closed, because the client is
            (transport or sock).close()
            if not isinstance(error, Exception):
                raise
            raise kafka.errors.KafkaConnectionError(f"Handshake failed: {error}") from error
        return transport

    async def _connected_socket(self, node: Node, timeout_at: float | None) -> socket.socket:
        """Connect to one of the node's addresses, and close the socket if that fails."""
        sockets = KafkaNetSocket(self.config["proxy_url"])
        failure = kafka.errors.KafkaConnectionError("DNS Resolution failure")
        for family, socket_type, protocol, _, address in self._addresses(sockets, node):
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

    def _addresses(self, sockets: KafkaNetSocket, node: Node) -> Sequence[Any]:
        """Resolve a node's name; errors say why it failed."""
        if self.config["proxy_url"] is not None:  # which may resolve it
            return list(sockets.dns_lookup(node.host, node.port))
        try:
            return socket.getaddrinfo(node.host, node.port, socket.AF_UNSPEC, socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise kafka.errors.KafkaConnectionError(f"DNS lookup failed: {error.strerror}") from error
        except UnicodeError as error:  # a broker tells its clients a name that DNS cannot have
            raise kafka.errors.KafkaConnectionError("DNS lookup failed: not a host name") from error


class _ReceivesAnswers:
    """Changes to both of kafka-python's transports."""

    _protocol: KafkaConnection
    _sock: socket.socket | None
    _receiver: Receiver | None = None

    def _sock_recv(self) -> tuple[list[memoryview], Exception | None]:
        if self._sock is None:  # closed meanwhile, by the thread that uses the client
            return [], kafka.errors.KafkaConnectionError("closed")
        self._receiver = self._receiver or Receiver(self._protocol.parser)
        return self._receiver.read(self._sock)


class _Transport(_ReceivesAnswers, KafkaTCPTransport):  # type: ignore[misc]
    pass


class _TLSTransport(_ReceivesAnswers, KafkaSSLTransport):  # type: ignore[misc]
    pass


_SIZE_BYTES = 4  # an answer begins with its length


class Receiver:
    """Reads a broker's answers from the socket into the memory that they are decoded from.

    It replaces `receive_bytes` of kafka-python's parser, which copies bytes five times.
    """

    def __init__(self, parser: KafkaProtocol) -> None:
        self._parser = parser
        parser.receive_bytes = self._responses
        self._size = memoryview(bytearray(_SIZE_BYTES))
        self._answer: memoryview | None = None  # the one that is being read
        self._have = 0  # how many bytes of it, or of its size, have arrived

    @property
    def has_part(self) -> bool:
        return self._answer is not None or self._have > 0

    def read(self, sock: socket.socket) -> tuple[list[memoryview], Exception | None]:
        """Read the answers that have arrived; if there are none, maybe an error. For the parser's `receive_bytes`."""
        answers: list[memoryview] = []
        while True:
            missing = self._size if self._answer is None else self._answer
            if self._have < len(missing):
                count, failure = _received(sock, missing[self._have :])
                if not count:
                    return answers, None if answers else failure
                self._have += count
            if self._have == len(missing):
                self._have = 0
                if self._answer is not None:
                    answers.append(self._answer)
                    self._answer = None
                    continue
                size = int.from_bytes(self._size, "big", signed=True)
                try:
                    self._parser._validate_frame_size(size)  # noqa: SLF001 (what receive_bytes does)
                except kafka.errors.KafkaError as error:
                    return answers, error
                # A bytearray would be filled with zeros first.
                self._answer = memoryview(pa.allocate_buffer(size)).cast("B")

    def _responses(self, answers: Sequence[memoryview]) -> list[object]:
        return [self._parser._process_response(_Answer(answer)) for answer in answers]  # noqa: SLF001


class _Answer:
    """An answer as a file, for kafka-python's decoder."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def read(self, size: int | None = None) -> memoryview | bytes:
        begin, end = self._at, len(self._data) if size is None else self._at + size
        self._at = min(end, len(self._data))
        part = self._data[begin:end]
        return part if size is None else bytes(part)

    def seek(self, at: int) -> None:
        self._at = at

    def tell(self) -> int:
        return self._at


def _received(sock: socket.socket, into: memoryview) -> tuple[int, Exception | None]:
    """Receive once; return the number of bytes, an error, or neither if nothing has arrived yet."""
    try:
        count = sock.recv_into(into)
    except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return 0, None
    except OSError as error:
        return 0, kafka.errors.KafkaConnectionError(error)
    return count, None if count else kafka.errors.KafkaConnectionError("socket disconnected")
