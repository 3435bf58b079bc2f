"""What the rest of the package asks of Kafka: look-ups (`Cluster`) and records (`Fetcher`).

`KafkaCluster` and `KafkaFetcher` implement them with the client library in `kafka_python/`. Another client library is a
folder beside that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from ticdc_source.events import Chunk
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.topics import TopicPartition

__all__ = ["ClientConfig", "ClientFacts", "Cluster", "FetchSettings", "Fetcher", "Writer", "WrittenRecord"]

# What `options.kafka_client.client_config` returns: values of many types, each known to the client library only.
ClientConfig: TypeAlias = Mapping[str, Any]


class ClientFacts(NamedTuple):
    """Which client library reads, for `metricsPath`.

    Attributes:
        client: its name and version; None before the first connection.
        fallback: which of its private parts are not built as expected, so that a slower way is taken; None if all are.
    """

    client: str | None = None
    fallback: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRecord:
    """A record to write.

    Attributes:
        partition: the partition.
        timestamp: Kafka's timestamp, in milliseconds since the epoch; -1 for the time when it is written.
        key, value: None is Kafka's null.
        headers: names and values.
    """

    partition: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Writer(AbstractContextManager["Writer"], Protocol):
    """Writes records. Only `ticdc-source replay` does."""

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic."""
        ...

    def write(self, topic: str, records: Iterable[WrittenRecord]) -> int:
        """Write records in their order, and return their number when the brokers have all of them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How a `Fetcher` reads.

    Attributes:
        max_records: records in a chunk at most.
        max_bytes: bytes of keys and values in a chunk at most, unless it is a single record.
        include_headers: whether chunks have headers.
        poll_timeout_ms: how many milliseconds to wait for a record that should be there.
        fail_on_data_loss: whether missing records are an error, or a warning.
        max_record_bytes: bytes of a record of a compressed record batch at most; a larger one is a chunk of its own,
            without key and value and with `Chunk.failure`.
        native: whether the native path cuts record batches, if it is there.
    """

    max_records: int
    max_bytes: int
    include_headers: bool = False
    poll_timeout_ms: int = 120_000
    fail_on_data_loss: bool = True
    max_record_bytes: int = 72 << 20
    native: bool = True


class Cluster(AbstractContextManager["Cluster"], Protocol):
    """Look-ups of topic partitions and offsets for one read, and commits of a stream's progress.

    A context manager that closes itself. An implementation connects at the first look-up, retries look-ups that
    failed, and creates nothing on the brokers.

    Every look-up raises:
        OptionError: the brokers refuse the login, the certificate is not trusted, or the user lacks a permission.
        KafkaUnavailableError: the brokers do not answer in time.
    """

    def partitions(self, *, missing: bool = False, known: Iterable[TopicPartition] = ()) -> list[TopicPartition]:
        """Return the topic partitions to read, by topic and number.

        Args:
            missing: leave out topics and partitions that do not exist (a stream waits for them) instead of failing.
            known: partitions that existed before, as a checkpoint has them; those of other topics do not matter.

        Raises:
            OptionError: a topic or partition does not exist (or the user may not see it), or no topic matches.
        """
        ...

    def earliest(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offset of each topic partition.

        Raises:
            DataLossError: a partition no longer exists.
        """
        ...

    def latest(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end offset of each topic partition; with read_committed, the last stable offset.

        Raises:
            DataLossError: a partition no longer exists.
        """
        ...

    def topic_ids(self) -> Mapping[str, str]:
        """Return the ids of the topics as the last look-ups had them, by name; this asks nothing.

        A topic that is deleted and created again has another id. Those without an id are left out: brokers before
        Kafka 2.8 have none, and a client library may not ask for them.
        """
        ...

    def resolve_ranges(self) -> list[OffsetRange]:
        """Return the offset ranges of a batch read: one for each partition, empty ones too, by topic and partition.

        Raises:
            OptionError: the options contradict the partitions or offsets that exist.
            DataLossError: requested offsets do not exist, and `failOnDataLoss` is on (else a warning says so, and the
                ranges hold the offsets that exist).
        """
        ...

    def starts(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset where a new stream starts in each partition, within the offsets that exist.

        Raises:
            OptionError: the options contradict the partitions that exist.
            DataLossError: requested offsets do not exist, and `failOnDataLoss` is on.
        """
        ...

    def everything(self) -> list[OffsetRange]:
        """Return the range from the earliest to the latest offset of each partition, as a sample for a stream's schema.

        Raises:
            OptionError: as `partitions`.
        """
        ...

    def commit_group(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets for a consumer group, so that others can see them; a failure is only logged."""
        ...

    def committed(self, group: str, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets that a consumer group has committed, without partitions of which it has none."""
        ...

    def close(self) -> None:
        """Close the connections; the next look-up connects again."""
        ...


class Fetcher(AbstractContextManager["Fetcher"], Protocol):
    """Reads offset ranges, one after the other, on the same connections. A context manager that closes itself."""

    @property
    def client_facts(self) -> ClientFacts:
        """Which client library reads; unknown before the first range that is not empty."""
        ...

    def fetch(self, offset_range: OffsetRange) -> Iterator[Chunk]:
        """Yield the records of a range in offset order, in chunks as bounded by `FetchSettings`.

        No record lies outside of the range. The iterator ends when the consumer's position reaches the end of the
        range, as its last offsets may hold no record (transaction markers, aborted or compacted records).

        Raises:
            KafkaUnavailableError: the brokers do not answer, or a record does not arrive in time.
            DataLossError: records of the range no longer exist, and `fail_on_data_loss` is on.
            DecodeError: a record batch is damaged, or its codec is not available.
            OptionError: the brokers refuse the login, or the user may not read the topic.
        """
        ...

    def close(self) -> None:
        """Close the connections; the next range connects again."""
        ...
