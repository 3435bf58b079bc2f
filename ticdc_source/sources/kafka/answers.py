"""Brokers' answers as our types and errors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ticdc_source.options.topics import TopicPartition


class BrokerFacts(NamedTuple):
    """What brokers say about themselves.

    Attributes:
        addresses: the advertised host and port of each broker.
        version: the Kafka release that the brokers' requests fit, such as `3.9`; None if unknown.
    """

    addresses: tuple[tuple[str, int], ...]
    version: str | None


class UnknownPartitionsError(Exception):
    """Partitions do not exist."""

    def __init__(self, topic_partitions: Iterable[TopicPartition], /) -> None:
        self.topic_partitions = sorted(topic_partitions)
        super().__init__(self.topic_partitions)


class OffsetOutOfRangeError(Exception):
    """The brokers have no record at the requested offset, and it is not the end."""


class LogTruncatedError(Exception):
    """A new leader lacks records that were already read."""
