"""kafka-python's objects as types, as far as they are used: the library has no types of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from ticdc_source.options.topics import TopicPartition
from ticdc_source.sources.chunk import Chunk

# A broker's number, or the name of a bootstrap server.
NodeId: TypeAlias = int | str

# What `socket.getaddrinfo` returns.
Address: TypeAlias = tuple[int, int, int, str, tuple[object, ...]]

# Keyword arguments of its classes: what each value is, only the class knows.
Settings: TypeAlias = dict[str, object]


class _Fetcher(Protocol):
    """What a `KafkaConsumer` reads with; `PartitionRecords` makes what hands out the records of a fetch."""

    PartitionRecords: Callable[..., object]


class Consumer(Protocol):
    """What is used of `KafkaConsumer`; a topic partition is its own `TopicPartition`, which is equal to ours.

    `slicing` has replaced the records that `poll` returns.
    """

    _fetcher: _Fetcher
    assign: Callable[[list[TopicPartition]], None]
    seek: Callable[[TopicPartition, int], None]
    poll: Callable[..., Mapping[TopicPartition, Sequence[Iterator[Chunk]]]]
    position: Callable[..., int]
    highwater: Callable[[TopicPartition], int | None]
    commit: Callable[..., None]
    committed: Callable[..., int | None]


class _PartitionMetadata(Protocol):
    partition_index: int
    leader_id: int


class TopicMetadata(Protocol):
    """A topic in the answer to a metadata request."""

    error_code: int
    name: str
    topic_id: object
    is_internal: bool
    partitions: Sequence[_PartitionMetadata]


class Future(Protocol):
    """What is used of its `Future`; a callback takes the value, an errback the error."""

    is_done: bool
    succeeded: Callable[[], bool]
    add_callback: Callable[[Callable[[object], object]], object]
    add_errback: Callable[[Callable[[BaseException], object]], object]


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
    """What is used of its `NetworkSelector`, the loop of the IO thread."""

    start: Callable[[], None]
    run: Callable[..., object]


class MemoryRecords(Protocol):
    """The records of a fetch."""

    _buffer: bytes


class Parser(Protocol):
    """What is used of its `KafkaProtocol`, the parser of one connection."""

    receive_bytes: Callable[[Sequence[memoryview]], list[object]]
    _validate_frame_size: Callable[[int], None]
    _process_response: Callable[[object], object]
