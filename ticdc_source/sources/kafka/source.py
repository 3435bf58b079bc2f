"""Kafka as a `RecordSource`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

from ticdc_source.errors import OptionError
from ticdc_source.options.kafka_client import client_settings
from ticdc_source.options.offsets import OffsetRange, pack
from ticdc_source.options.options import Options
from ticdc_source.options.topics import TopicPartition
from ticdc_source.sources.chunk import FetchSettings
from ticdc_source.sources.kafka.fetch import KafkaFetcher
from ticdc_source.sources.kafka.lookup import DATA_LOSS, KafkaCluster
from ticdc_source.sources.kafka.pool import FETCHERS
from ticdc_source.sources.kafka.topic_planner import TopicPlanner
from ticdc_source.sources.record_source import Fetcher, OffsetMembers, RecordSource, WireFormats
from ticdc_source.sources.stream_offsets import Offsets, StreamLimits

__all__ = ["KafkaSource"]


class KafkaSource(RecordSource):
    """The topics that the options choose."""

    is_one_log = False
    loss = DATA_LOSS

    def __init__(self, options: Options, formats: WireFormats) -> None:
        super().__init__(options, formats)
        self._made: KafkaCluster | None = None

    @property
    def _cluster(self) -> KafkaCluster:
        """What asks the brokers; the options must name topics."""
        if self._made is None:
            self._made = KafkaCluster(self._options)
        return self._made

    def close(self) -> None:
        """Close the connections."""
        if self._made is not None:
            self._made.close()

    def described(self, ranges: Iterable[OffsetRange]) -> str:
        """Return the names of topics."""
        return ", ".join(sorted({each.topic for each in ranges})) or "the topics"

    def check_protocol(self, protocol: str) -> None:
        """Refuse a wire format of files only."""
        if protocol != "auto" and protocol not in self._formats.in_topics:
            msg = (
                f"protocol={protocol} comes in files of a storage sink, and in no topic: set 'path' instead of topics, "
                "or another protocol"
            )
            raise OptionError(msg)

    def batch_ranges(self) -> list[OffsetRange]:
        """Return one range for each topic partition."""
        return self._cluster.resolve_ranges()

    def ranges_to_infer_from(self, *, batch: bool) -> list[OffsetRange]:
        """Return one range for each topic partition."""
        return self._cluster.resolve_ranges() if batch else self._cluster.everything()

    def earliest(self, topic_partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the log start of each topic partition."""
        return self._cluster.earliest(topic_partitions)

    def latest(self, topic_partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the end of each topic partition."""
        return self._cluster.latest(topic_partitions)

    def existing(self) -> Iterable[TopicPartition]:
        """Return the topic partitions that exist; a stream waits for missing topics."""
        return self._cluster.partitions(missing=True)

    def topic_ids(self) -> Mapping[str, str]:
        """Return the ids of topics."""
        return self._cluster.topic_ids()

    def pieces(self, ranges: Sequence[OffsetRange]) -> list[list[OffsetRange]]:
        """Cut large ranges, and pack small ones."""
        return pack(ranges, self._options.min_partitions, self._options.max_records_per_partition)

    def fetcher(
        self,
        settings: FetchSettings,
        *,
        protocol: str | None = None,  # noqa: ARG002 (the records of all look alike here)
        max_rows: int | None = None,  # noqa: ARG002 (there are no files)
        driver: bool = True,
    ) -> Fetcher:
        """Return a fetcher with connections of its own."""
        return KafkaFetcher(client_settings(self._options, driver=driver), settings)

    def task_fetcher(
        self,
        settings: FetchSettings,
        protocol: str,  # noqa: ARG002 (the records of all look alike here)
        *,
        fresh: bool,
    ) -> AbstractContextManager[Fetcher]:
        """Borrow a fetcher of this process."""
        return FETCHERS.borrow(client_settings(self._options, driver=False), settings, fresh=fresh)

    def stream(self, limits: StreamLimits, members: OffsetMembers | None = None) -> TopicPlanner:
        """Return what plans a stream."""
        return TopicPlanner(self._cluster, limits, self.report_loss, members=members)

    def commit(self, offsets: Offsets) -> None:
        """Commit to the consumer group, if asked to."""
        group = self._options.kafka.get("group.id")
        if self._options.commit_group_offsets and group and self._made is not None:
            self._made.commit_group(group, offsets)
