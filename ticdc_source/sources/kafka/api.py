"""What the rest of the package asks of Kafka, beside look-ups (`KafkaCluster`): to read records, and to write them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.topics import TopicPartition
from ticdc_source.sources.chunk import Chunk

__all__ = ["ClientFacts", "Fetcher", "WrittenRecord"]


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


class Fetcher(AbstractContextManager["Fetcher"], Protocol):
    """Reads offset ranges, one after the other, on the same connections. A context manager that closes itself."""

    @property
    def client_facts(self) -> tuple[str | None, str | None]:
        """Which client library reads, as `ClientFacts`; unknown before the first range that is not empty."""
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

    def check_topics(self, planned: Mapping[TopicPartition, str]) -> None:
        """Report topics that were deleted and created again since it was planned to read them.

        To be called when everything has been read: whatever came before belongs to the topics of then. A broker before
        Kafka 2.8 has no topic ids, and nothing is noticed.

        Args:
            planned: the id that the topic of each partition that was read had.

        Raises:
            DataLossError: a topic has another id, and `fail_on_data_loss` is on.
            KafkaUnavailableError: the brokers do not answer.
        """
        ...

    def close(self) -> None:
        """Close the connections; the next range connects again."""
        ...
