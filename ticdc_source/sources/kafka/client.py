"""What a client library does for `lookup` and `fetch`, in our types and errors, and retries with a new client.

A folder for a library (`kafka_python/`) has a function `connect` that returns a `Client`; nothing outside of that
folder imports the library. Within one attempt the library itself tries one server after the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from ticdc_source.errors import KafkaUnavailableError, TiCDCSourceError
from ticdc_source.options.kafka_client import ClientSettings
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.topics import TopicPartition
from ticdc_source.sources.chunk import Chunk, FetchSettings
from ticdc_source.sources.kafka.patience import Limit, Patience


class Topic(NamedTuple):
    """A topic that exists, with its partitions in order; an internal one is the brokers' own."""

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
    """Partitions do not exist."""

    def __init__(self, topic_partitions: Iterable[TopicPartition], /) -> None:
        self.topic_partitions = sorted(topic_partitions)
        super().__init__(self.topic_partitions)


class OffsetOutOfRangeError(Exception):
    """The brokers have no record at the requested offset, nor is it the end."""


class LogTruncatedError(Exception):
    """A new leader lacks records that were already read."""


class PartitionReader(Protocol):
    """Reads the records of one topic partition, from an offset on."""

    def seek(self, offset: int) -> None: ...

    def poll(self, timeout_ms: float) -> tuple[Iterator[Chunk] | None, int]:
        """Wait for records.

        Returns:
            chunks (None if no record arrived), and the offset behind them. That offset may be higher than the last
            record's, and may rise without a record. The chunks are cut while they are iterated over.

        Raises:
            OffsetOutOfRangeError, LogTruncatedError: as they say.
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
    """

    servers: str
    library: str

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """The id of each topic as the last answer about the topic has it, as Kafka's tools print it.

        Topics of which the answer has none (brokers before 2.8, a deleted topic) are left out.
        """
        ...

    @property
    def leader_epochs(self) -> Mapping[TopicPartition, int]:
        """The epochs of the leaders that answered the last look-up of `LATEST`; brokers before 2.1 have none."""
        ...

    def topics(self, names: Iterable[str] | None, patience: Patience) -> dict[str, Topic]:
        """Return the topics with these names that exist (all visible topics for None), by name. Creates none.

        Raises:
            OptionError: a name cannot be that of a topic.
        """
        ...

    def offsets(self, times: Mapping[TopicPartition, int], patience: Patience) -> dict[TopicPartition, int]:
        """Return the offset of each partition's first record at or after a time, -1 if there is none.

        Args:
            times: in milliseconds since the epoch, or `EARLIEST` or `LATEST`; with read_committed, `LATEST` is the last
                stable offset.

        Raises:
            UnknownPartitionsError: some partitions do not exist.
        """
        ...

    def ends_of_epochs(self, epochs: Mapping[TopicPartition, int], patience: Patience) -> dict[TopicPartition, int]:
        """Return where a leader epoch ends in the log of each partition's leader; -1 where the leader does not know.

        Raises:
            UnknownPartitionsError: some partitions do not exist.
        """
        ...

    def topic_ids_at_leaders(
        self, topic_partitions: Iterable[TopicPartition], patience: Patience
    ) -> dict[TopicPartition, str]:
        """Return the topic's id as the broker knows it that each partition was read from, where it is known."""
        ...

    def reader(self, offset_range: OffsetRange, limits: FetchSettings, patience: Patience) -> PartitionReader:
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

    def brokers(self, patience: Patience) -> BrokerFacts: ...

    def committed(self, group: str, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group, without partitions of which it has none.

        Raises:
            TiCDCSourceError: the brokers refuse, or do not answer in `default_api_timeout_ms`.
        """
        ...

    def close(self) -> None: ...


# Connects, or raises what every method of `Client` raises.
Connect: TypeAlias = Callable[[ClientSettings, Patience], Client]
Answer = TypeVar("Answer")

_API_TIMEOUT = "kafka.default.api.timeout.ms"


class RetryingClient:
    """Connects at the first request, and again after a failure.

    A request may take `default_api_timeout_ms`, the first connection `bootstrap_timeout_ms`. A stream that has reached
    its brokers waits `broker_timeout_ms` for both, so that it survives a restart of the cluster. Before the first
    answer, wrong options are likelier than a restart, so permanent causes end the wait after some seconds; see
    `patience`.

    Args:
        reached: whether the brokers have already answered the driver of this stream.
        is_first: whether nobody has asked these brokers before: the driver is the first to do so.
    """

    def __init__(
        self, settings: ClientSettings, connect: Connect, *, reached: bool = False, is_first: bool = False
    ) -> None:
        self._settings = settings
        self._connect = connect
        self._reached = reached
        self._is_first = is_first
        self.client: Client | None = None

    @property
    def servers(self) -> str:
        return ",".join(self._settings.bootstrap_servers)

    @property
    def library(self) -> str | None:
        """The client library and its version; None before the first connection."""
        return None if self.client is None else self.client.library

    @property
    def stream_limit(self) -> Limit | None:
        """How long a stream waits once it has reached its brokers; None for a batch read."""
        stream_ms = self._settings.broker_timeout_ms
        return None if stream_ms is None else Limit(stream_ms, "brokerTimeoutMs")

    def fetch_at_most(self, size: int) -> None:
        """Close the connections; the next request connects again, and fetches ask for so many bytes."""
        self.close()
        self._settings = replace(self._settings, max_partition_fetch_bytes=size, fetch_max_bytes=size)

    def close(self) -> None:
        client, self.client = self.client, None
        if client is not None:
            client.close()

    def ask(
        self,
        request: Callable[[Client, Patience], Answer],
        *,
        retries: int = 0,
        interval_ms: float = 0,
        patience: Patience | None = None,
    ) -> Answer:
        """Return the answer to a request; retry with a new client while brokers do not answer.

        A request that brokers answered with an error is sent again `retries` times, `interval_ms` apart. `patience` is
        for the connection and the answer together; by default each has its own, as said above.

        Raises:
            TiCDCSourceError: whatever `request` raises; KafkaUnavailableError if the deadline has passed.
        """
        is_own = patience is None
        while True:
            try:
                if self.client is None:
                    self.client = self._connect(self._settings, patience or self._connection_wait())
                if patience is None:
                    pending = self._limit(self._settings.default_api_timeout_ms, _API_TIMEOUT)
                    patience = Patience(self.servers, "a request is pending", pending)
                answer = request(self.client, patience)
            except KafkaUnavailableError:
                self.close()
                if retries <= 0 or patience is None or patience.is_over:
                    raise
                retries -= 1
            except TiCDCSourceError:
                self.close()
                raise
            else:
                self._reached = True
                if is_own:
                    patience.answered()
                return answer
            time.sleep(min(interval_ms, patience.left_ms) / 1000)
            patience.check()

    def _connection_wait(self) -> Patience:
        # Name the option that took effect: unless it is set, the first has the value of the second.
        ms = self._settings.bootstrap_timeout_ms
        is_set = ms != self._settings.default_api_timeout_ms
        limit = self._limit(ms, "kafka.bootstrap.timeout.ms" if is_set else _API_TIMEOUT)
        if self._is_first and not self._reached:
            limit = limit._replace(ends_if_refused=not is_set)
        return Patience(self.servers, "no broker answers", limit)

    def _limit(self, ms: float, option: str) -> Limit:
        if self.stream_limit is not None and self._reached:
            return self.stream_limit
        return Limit(ms, option, ends_early=not self._reached)
