"""Reads of one range, and what tests of a real broker and of stand-ins share."""

from collections.abc import Generator, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from ticdc_source.options.kafka_client import ClientSettings
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.topics import TopicPartition
from ticdc_source.sources.chunk import Chunk, FetchSettings
from ticdc_source.sources.kafka import KafkaFetcher
from ticdc_source.sources.kafka.client import BrokerFacts, PartitionReader, Topic
from ticdc_source.sources.kafka.patience import Patience

# Seconds: what hangs, or is tried in vain, takes longer; what goes on, on a busy machine too, does not.
DEADLINE = 30


def fetch(offset_range: OffsetRange, client: ClientSettings, **settings: Any) -> Generator[Chunk, None, None]:
    """Yield the chunks of a range; the fetcher is closed at the end, also at an early one."""
    with KafkaFetcher(client, FetchSettings(**settings)) as fetcher:
        yield from fetcher.fetch(offset_range)


class StandIn:
    """A `Client` that answers nothing: tests override what they ask."""

    servers, library = "b:1", "stub"
    topic_ids: Mapping[str, str] = MappingProxyType({})
    leader_epochs: Mapping[TopicPartition, int] = MappingProxyType({})

    def topics(self, names: Iterable[str] | None, patience: Patience) -> dict[str, Topic]:
        raise NotImplementedError

    def offsets(self, times: Mapping[TopicPartition, int], patience: Patience) -> dict[TopicPartition, int]:
        raise NotImplementedError

    def ends_of_epochs(self, epochs: Mapping[TopicPartition, int], patience: Patience) -> dict[TopicPartition, int]:
        raise NotImplementedError

    def topic_ids_at_leaders(
        self, topic_partitions: Iterable[TopicPartition], patience: Patience
    ) -> dict[TopicPartition, str]:
        raise NotImplementedError

    def reader(self, offset_range: OffsetRange, limits: FetchSettings, patience: Patience) -> PartitionReader:
        raise NotImplementedError

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        raise NotImplementedError

    def brokers(self, patience: Patience) -> BrokerFacts:
        raise NotImplementedError

    def committed(self, group: str, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to close."""
