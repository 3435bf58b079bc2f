"""kafka-python's objects as types, as far as they are used: the library has no types of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from ticdc_source.options.topics import TopicPartition
from ticdc_source.sources.chunk import Chunk

__all__ = [
    "AbortedTransaction",
    "Address",
    "Connection",
    "Consumer",
    "Fetcher",
    "Future",
    "MemoryRecords",
    "Network",
    "Node",
    "NodeId",
    "Parser",
    "PartitionMetadata",
    "Settings",
    "TopicMetadata",
]

# A broker's number, or the name of a bootstrap server.
NodeId: TypeAlias = int | str

# What `socket.getaddrinfo` returns.
Address: TypeAlias = tuple[int, int, int, str, tuple[object, ...]]

# Keyword arguments of its classes: what each value is, only the class knows.
Settings: TypeAlias = dict[str, object]


class Fetcher(Protocol):
    """What a `KafkaConsumer` reads with.

    Attributes:
        PartitionRecords: makes what hands out the records of a fetch.
    """

    PartitionRecords: Callable[..., object]


class Consumer(Protocol):
    """What is used of `KafkaConsumer`; a topic partition is its own `TopicPartition`, which is equal to ours."""

    _fetcher: Fetcher

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions from now on."""

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read a partition from this offset on."""

    def poll(self, *, timeout_ms: float, max_records: int) -> Mapping[TopicPartition, Sequence[Iterator[Chunk]]]:
        """Wait for records; `slicing` has replaced them."""

    def position(self, partition: TopicPartition, *, timeout_ms: float) -> int:
        """Return the offset behind the records that `poll` has returned."""

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the partition's high watermark as the last answer to a fetch has it."""

    def commit(self, offsets: Mapping[TopicPartition, object], *, timeout_ms: float) -> None:
        """Commit offsets for the consumer's group."""

    def committed(self, partition: TopicPartition, *, timeout_ms: float) -> int | None:
        """Look up the offset that the consumer's group has committed."""


class PartitionMetadata(Protocol):
    """A partition in the answer to a metadata request."""

    partition_index: int
    leader_id: int


class TopicMetadata(Protocol):
    """A topic in the answer to a metadata request."""

    error_code: int
    name: str
    topic_id: object
    is_internal: bool
    partitions: Sequence[PartitionMetadata]


class Future(Protocol):
    """What is used of its `Future`."""

    is_done: bool

    def succeeded(self) -> bool:
        """Return whether it has ended with a value."""

    def add_callback(self, callback: Callable[[object], object]) -> object:
        """Call a function if it ends with a value."""

    def add_errback(self, callback: Callable[[BaseException], object]) -> object:
        """Call a function if it ends with an error."""


class Connection(Protocol):
    """A connection to a broker."""

    init_future: Future
    close_future: Future
    parser: Parser


class Node(Protocol):
    """A broker's address."""

    host: str
    port: int


class Network(Protocol):
    """What is used of its `NetworkSelector`: the loop of the IO thread."""

    def start(self) -> None:
        """Start the IO thread."""

    def run(self, coroutine: Callable[[], object]) -> object:
        """Run a coroutine on the IO thread, and return its result."""


class AbortedTransaction(Protocol):
    """An aborted transaction in the answer to a fetch."""

    producer_id: int
    first_offset: int


class MemoryRecords(Protocol):
    """The records of a fetch."""

    _buffer: bytes


class Parser(Protocol):
    """What is used of its `KafkaProtocol`: the parser of one connection."""

    receive_bytes: Callable[[Sequence[memoryview]], list[object]]

    def _validate_frame_size(self, size: int) -> None: ...

    def _process_response(self, answer: object) -> object: ...
