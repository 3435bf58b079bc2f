"""A TCP proxy that counts the requests of Kafka clients, and a broker behind it."""

import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from examples.local_kafka import LocalKafka

HOST = "127.0.0.1"
FETCH = 1  # the API key of a fetch request


class CountingProxy:
    """Forwards connections to a port, and counts requests and clients.

    Attributes:
        target: the port that connections are forwarded to.
        port: the port that clients connect to.
        requests: how often each request was sent, by its API key and the client's id.
        connections: the client id of each connection, in the order of their first requests.
    """

    def __init__(self, target: int = 0) -> None:
        self.target = target
        self.requests: Counter[tuple[int, str]] = Counter()
        self.connections: list[str] = []
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._run(self._accept)

    def close(self) -> None:
        """Stop listening, and end all connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            threads = list(self._threads)
        for thread in threads:
            thread.join(10)

    def count(self, client_id: str) -> int:
        """Return how many requests clients of this id have sent."""
        with self._lock:
            return sum(number for (_, client), number in self.requests.items() if client == client_id)

    def _run(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, name="counting-proxy", daemon=True)
        with self._lock:
            self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection((HOST, self.target))
            except OSError:  # the broker does not run: the client sees a closed connection
                client.close()
                continue
            with self._lock:
                self._open |= {client, broker}
            for way in ((client, broker, True), (broker, client, False)):
                self._run(self._pass_on, *way)

    def _pass_on(self, source: socket.socket, sink: socket.socket, counting: bool) -> None:
        buffered, first = b"", True
        with suppress(OSError):
            while data := source.recv(1 << 16):
                buffered += data if counting else b""
                while counting and len(buffered) >= 4 and len(buffered) >= 4 + int.from_bytes(buffered[:4], "big"):
                    size = 4 + int.from_bytes(buffered[:4], "big")
                    self._count(buffered[4:size], first)
                    buffered, first = buffered[size:], False
                sink.sendall(data)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        source.close()
        with self._lock:
            self._open.discard(source)

    def _count(self, frame: bytes, first: bool) -> None:
        """Read the head of a request: API key, version, correlation id, and the client's id with its length."""
        api_key, _, _, length = struct.unpack(">hhih", frame[:10])
        client = frame[10 : 10 + max(0, length)].decode()
        with self._lock:
            self.requests[api_key, client] += 1
            if first:
                self.connections.append(client)


@contextmanager
def counted_kafka() -> Iterator[tuple[LocalKafka, CountingProxy]]:
    """Run a broker that advertises the address of a proxy, so that every client connects through it."""
    proxy = CountingProxy()
    try:
        kafka = LocalKafka(properties={"advertised.listeners": f"PLAINTEXT://{HOST}:{proxy.port}"})
        proxy.target = int(kafka.bootstrap_servers.rsplit(":", 1)[1])
        with kafka:
            yield kafka, proxy
    finally:
        proxy.close()
