"""A TCP proxy that counts the requests of Kafka clients, and can be slow or hold answers; and a broker behind it."""

import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from examples.local_kafka import LocalKafka

HOST = "127.0.0.1"


@dataclass(eq=False)
class Connection:
    """A client's connection, and the one to the broker behind it."""

    client: socket.socket
    broker: socket.socket
    name: str = ""
    answered: int = 0
    is_held: bool = False
    is_open: bool = True


@dataclass(frozen=True)
class Hold:
    """Whose answers are held back: those of `most` connections of a client at a time, each after so many bytes."""

    name: str
    after: int
    most: int


class CountingProxy:
    """Forwards connections to a port, and counts requests and clients."""

    def __init__(self, target: int = 0) -> None:
        self.target = target
        self.requests: Counter[tuple[int, str]] = Counter()
        self.connections: list[str] = []
        self.rate: int | None = None
        self._lock = threading.Condition()
        self._hold: Hold | None = None
        self._all: list[Connection] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._run(self._accept)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.release()
        with self._lock:
            for one in self._all:
                self._end(one)
            threads = list(self._threads)
        for thread in threads:
            thread.join(10)

    def count(self, client_id: str) -> int:
        with self._lock:
            return sum(number for (_, client), number in self.requests.items() if client == client_id)

    @contextmanager
    def holding(self, client_id: str, *, after: int, most: int = 1_000_000) -> Iterator[None]:
        """Hold back the answers to a client while the block runs, and send them then."""
        with self._lock:
            self._hold = Hold(client_id, after, most)
            for one in self._all:
                one.answered, one.is_held = 0, False
        try:
            yield
        finally:
            self.release()

    def release(self) -> None:
        with self._lock:
            self._hold = None
            self._lock.notify_all()

    def held(self) -> list[Connection]:
        """Return the connections whose answers `holding()` has held back, also closed ones, in the order made."""
        with self._lock:
            return [one for one in self._all if one.is_held]

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
            connection = Connection(client, broker)
            with self._lock:
                self._all.append(connection)
            for work in (self._pass_requests_on, self._pass_answers_on):
                self._run(work, connection)

    def _pass_requests_on(self, connection: Connection) -> None:
        buffered = b""
        with suppress(OSError):
            while data := connection.client.recv(1 << 16):
                buffered += data
                while len(buffered) >= 4 and len(buffered) >= 4 + int.from_bytes(buffered[:4], "big"):
                    size = 4 + int.from_bytes(buffered[:4], "big")
                    self._count(buffered[4:size], connection)
                    buffered = buffered[size:]
                connection.broker.sendall(data)
        with self._lock:
            self._end(connection)
        connection.client.close()

    def _pass_answers_on(self, connection: Connection) -> None:
        with suppress(OSError):
            while data := connection.broker.recv(1 << 16 if self.rate is None else 1 << 12):
                if self.rate is not None:
                    time.sleep(len(data) / self.rate)
                self._wait(connection)
                connection.client.sendall(data)
                connection.answered += len(data)
        with self._lock:
            self._end(connection)
        connection.broker.close()

    def _wait(self, connection: Connection) -> None:
        with self._lock:
            while connection.is_open and (hold := self._hold) and connection.name == hold.name:
                if not connection.is_held:
                    others = sum(one.is_held and one.is_open for one in self._all)
                    if connection.answered < hold.after or others >= hold.most:
                        return
                    connection.is_held = True
                self._lock.wait()

    def _end(self, connection: Connection) -> None:
        """Shut both sockets: their threads close them."""
        connection.is_open = False
        self._lock.notify_all()
        for one in (connection.client, connection.broker):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _count(self, frame: bytes, connection: Connection) -> None:
        """Read the head of a request: API key, version, correlation id, and the client's id with its length."""
        api_key, _, _, length = struct.unpack(">hhih", frame[:10])
        client = frame[10 : 10 + max(0, length)].decode()
        with self._lock:
            self.requests[api_key, client] += 1
            if not connection.name:
                connection.name = client
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
