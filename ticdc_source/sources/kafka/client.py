"""What a client library does for `lookup` and `fetch`: the connection to brokers, in our types and errors.

A folder for a library (`kafka_python/`) has a function `connect` that returns a `Client`; nothing outside of that
folder imports the library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from ticdc_source.options.kafka_client import ClientSettings
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.topics import TopicPartition
from ticdc_source.sources.chunk import Chunk
from ticdc_source.sources.kafka.batches.cut import ChunkLimits
from ticdc_source.sources.kafka.patience import Patience

__all__ = [
    "BrokerFacts",
    "Client",
    "Connect",
    "LogTruncatedError",
    "OffsetOutOfRangeError",
    "PartitionReader",
    "Topic",
    "UnknownPartitionsError",
]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that exists.

    Attributes:
        name: its name.
        partitions: its partitions, in order.
        is_internal: whether it is one of the brokers' own.
    """

    name: str
    partitions: tuple[TopicPartition, ...]
    is_internal: bool


class BrokerFacts(NamedTuple):
    """What brokers say of themselves.

    Attributes:
        addresses: host and port of each broker, as it advertises them to clients.
        version: the release of Kafka that the brokers' requests fit, such as `3.9`; None if it is not known.
    """

    addresses: tuple[tuple[str, int], ...]
    version: str | None


class UnknownPartitionsError(Exception):
    """Partitions do not exist.

    Attributes:
        topic_partitions: those partitions, in order.
    """

    def __init__(self, topic_partitions: Iterable[TopicPartition], /) -> None:
        self.topic_partitions = sorted(topic_partitions)
        super().__init__(self.topic_partitions)


class OffsetOutOfRangeError(Exception):
    """The brokers have no record at the requested offset, nor is it the end."""


class LogTruncatedError(Exception):
    """A new leader lacks records that were already read."""


class PartitionReader(Protocol):
    """Reads the records of one topic partition, from an offset on."""

    def seek(self, offset: int) -> None:
        """Continue at another offset."""
        ...

    def poll(self, timeout_ms: float) -> tuple[Iterator[Chunk] | None, int]:
        """Wait for records.

        Args:
            timeout_ms: how many milliseconds to wait at most.

        Returns:
            chunks (None if no record arrived), and the offset behind them. That offset may be higher than the last
            record's, and may rise without a record. The chunks are cut while they are iterated over.

        Raises:
            OffsetOutOfRangeError: the brokers do not have the offset.
            LogTruncatedError: the log lacks records that were already read.
            DecodeError: a record batch is damaged; without an address. Also while the chunks are iterated over, which
                may raise whatever a parser raises on bytes that are no records.
            TiCDCSourceError: any other failure.
        """
        ...


class Client(Protocol):
    """A connection to brokers.

    A method that takes a `Patience` asks as many servers, and as often, as it needs within that time, and tells it what
    failed. It raises KafkaUnavailableError if the time is over, and OptionError if the brokers refuse the login or a
    permission, or their certificate is not trusted.

    Attributes:
        servers: the bootstrap servers, for messages.
        library: the name and version of the library.
        topic_ids: the id of each topic as the last answer about the topic has it, as Kafka's tools print it; without
            topics of which it has none (brokers before 2.8, a deleted topic).
        leader_epochs: the epoch of the leader that answered the last look-up of each partition's `LATEST`; without
            those of which it has none (brokers before 2.1).
    """

    servers: str
    library: str
    topic_ids: Mapping[str, str]
    leader_epochs: Mapping[TopicPartition, int]

    def topics(self, names: Iterable[str] | None, patience: Patience) -> dict[str, Topic]:
        """Return the topics with these names that exist (all visible topics for None), by name. Creates none.

        Raises:
            OptionError: a name cannot be that of a topic.
        """
        ...

    def offsets(self, times: Mapping[TopicPartition, int], patience: Patience) -> dict[TopicPartition, int]:
        """Look up offsets.

        Args:
            times: for each partition a time in milliseconds since the epoch, or `EARLIEST` or `LATEST`.
            patience: how long to wait.

        Returns:
            the offset of each partition's first record at or after the time, -1 if there is none. With isolation level
            read_committed, `LATEST` is the last stable offset.

        Raises:
            UnknownPartitionsError: some partitions do not exist.
        """
        ...

    def ends_of_epochs(self, epochs: Mapping[TopicPartition, int], patience: Patience) -> dict[TopicPartition, int]:
        """Ask each partition's leader where a leader epoch ends in its log: where its first later one begins.

        Returns:
            the offsets, -1 where the leader does not know.

        Raises:
            UnknownPartitionsError: some partitions do not exist.
        """
        ...

    def topic_ids_at_leaders(
        self, topic_partitions: Iterable[TopicPartition], patience: Patience
    ) -> dict[TopicPartition, str]:
        """Ask for the topic's id the broker that each partition was read from: it knows whose records it has sent.

        Returns:
            the ids, without those that are not known; see `topic_ids`.
        """
        ...

    def reader(self, offset_range: OffsetRange, limits: ChunkLimits, patience: Patience) -> PartitionReader:
        """Return a reader that starts at the start of the range. It ends the reader before it.

        It may return a few records behind the end of the range.
        """
        ...

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets for a group that has no members, in `default_api_timeout_ms` at most.

        Raises:
            TiCDCSourceError: the brokers refuse, for instance because the group has members.
        """
        ...

    def brokers(self, patience: Patience) -> BrokerFacts:
        """Look up the brokers, after the login."""
        ...

    def committed(self, group: str, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group, without partitions of which it has none.

        Raises:
            TiCDCSourceError: the brokers refuse, or do not answer in `default_api_timeout_ms`.
        """
        ...

    def close(self) -> None:
        """Close the connections; safe to repeat."""
        ...


# Connects, or raises what every method of `Client` raises.
Connect: TypeAlias = Callable[[ClientSettings, Patience], Client]
