"""Several brokers of one cluster, each of which can be killed, paused and started again."""

import base64
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from examples.local_kafka.broker import LocalKafka


class _Follower(LocalKafka):
    """A broker whose controller is another one."""

    def __init__(
        self, controller: str, number: int, *, heap: str, cluster: str, properties: Mapping[str, object]
    ) -> None:
        super().__init__(heap=heap, cluster=cluster, properties=properties)
        self._controller = controller
        self._number = number

    def _coordination(self, listeners: str) -> dict[str, object]:
        both = super()._coordination(listeners)
        return {**both, "process.roles": "broker", "node.id": self._number, "listeners": listeners}


class LocalKafkaCluster:
    """A cluster on this machine. Its first broker is the controller too: without that one no leader is elected.

    Args:
        brokers: how many. A topic can have as many replicas: `create_topic(…, replicas=3)`.
        heap: the maximum size of each Java's heap.
        session_seconds: how long the controller waits for a broker that is dead, before it elects other leaders and
            leaves the broker out of the metadata. Kafka's default is 9.

    Attributes:
        brokers: the brokers, the controller first.
        bootstrap_servers: where clients connect: the addresses of all brokers.
    """

    def __init__(self, brokers: int = 3, *, heap: str = "256m", session_seconds: float = 9.0) -> None:
        cluster = base64.b64encode(uuid.uuid4().bytes, b"AA").decode().rstrip("=")
        session_ms = int(session_seconds * 1000)
        properties = {"broker.session.timeout.ms": session_ms, "broker.heartbeat.interval.ms": session_ms // 4}
        first = LocalKafka(heap=heap, cluster=cluster, properties=properties)
        self.brokers = [first]
        for number in range(2, brokers + 1):
            follower = _Follower(first.controller, number, heap=heap, cluster=cluster, properties=properties)
            self.brokers.append(follower)
        self.bootstrap_servers = ",".join(broker.bootstrap_servers for broker in self.brokers)

    def __enter__(self) -> "LocalKafkaCluster":  # noqa: PYI034  # typing.Self is Python 3.11's
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start all brokers side by side: a controller without them answers no client."""
        with ThreadPoolExecutor(len(self.brokers)) as threads:
            list(threads.map(LocalKafka.start, self.brokers))

    def halt(self) -> None:
        """End all brokers and keep their data: `start()` starts them again."""
        for broker in reversed(self.brokers):
            broker.halt()

    def stop(self) -> None:
        """End all brokers and remove what they have written."""
        for broker in reversed(self.brokers):
            broker.stop()
