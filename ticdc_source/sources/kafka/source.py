"""Kafka as a `RecordSource`, and a worker's pool of fetchers: connecting costs more than a small batch."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property

from ticdc_source.errors import OptionError
from ticdc_source.options.kafka_client import ClientSettings, client_settings
from ticdc_source.options.offsets import OffsetRange, pack
from ticdc_source.options.topics import TopicPartition
from ticdc_source.sources.chunk import FetchSettings
from ticdc_source.sources.kafka.fetch import KafkaFetcher
from ticdc_source.sources.kafka.lookup import DATA_LOSS, KafkaCluster
from ticdc_source.sources.kafka.topic_planner import TopicPlanner
from ticdc_source.sources.record_source import Fetcher, OffsetMembers, RecordSource, StreamPlanner
from ticdc_source.sources.stream_offsets import Offsets, StreamLimits


class KafkaSource(RecordSource):
    """The topics that the options choose."""

    is_one_log = False
    loss = DATA_LOSS

    @cached_property
    def _cluster(self) -> KafkaCluster:
        return KafkaCluster(self._options)

    def close(self) -> None:
        if "_cluster" in vars(self):
            self._cluster.close()

    def described(self, ranges: Iterable[OffsetRange]) -> str:
        return ", ".join(sorted({each.topic for each in ranges})) or "the topics"

    def check_protocol(self, protocol: str) -> None:
        if protocol != "auto" and protocol not in self._formats.in_topics:
            raise OptionError(
                f"protocol={protocol} is only in storage sink files: set 'path' instead of topics, or another protocol"
            )

    def batch_ranges(self) -> list[OffsetRange]:
        return self._cluster.resolve_ranges()

    def ranges_to_infer_from(self, *, batch: bool) -> list[OffsetRange]:
        return self._cluster.resolve_ranges() if batch else self._cluster.everything()

    def earliest(self, topic_partitions: Iterable[TopicPartition]) -> Offsets:
        return self._cluster.earliest(topic_partitions)

    def latest(self, topic_partitions: Iterable[TopicPartition]) -> Offsets:
        return self._cluster.latest(topic_partitions)

    def existing(self) -> Iterable[TopicPartition]:
        return self._cluster.partitions(missing=True)

    def topic_ids(self) -> Mapping[str, str]:
        return self._cluster.topic_ids()

    def pieces(self, ranges: Sequence[OffsetRange]) -> list[list[OffsetRange]]:
        return pack(ranges, self._options.min_partitions, self._options.max_records_per_partition)

    def fetcher(
        self,
        settings: FetchSettings,
        *,
        protocol: str | None = None,  # noqa: ARG002 (the records of all look alike here)
        max_rows: int | None = None,  # noqa: ARG002 (there are no files)
        driver: bool = True,
    ) -> Fetcher:
        return KafkaFetcher(client_settings(self._options, driver=driver), settings)

    def task_fetcher(
        self,
        settings: FetchSettings,
        protocol: str,  # noqa: ARG002 (the records of all look alike here)
        *,
        fresh: bool,
    ) -> AbstractContextManager[Fetcher]:
        return FETCHERS.borrow(client_settings(self._options, driver=False), settings, fresh=fresh)

    def stream(self, limits: StreamLimits, members: OffsetMembers | None = None) -> StreamPlanner:
        return TopicPlanner(self._cluster, limits, self.report_loss, members=members)

    def commit(self, offsets: Offsets) -> None:
        group = self._options.kafka.get("group.id")
        if self._options.commit_group_offsets and group:
            self._cluster.commit_group(group, offsets)


_MAX_IDLE = 16


class FetcherPool:
    """Idle fetchers, by their settings. Thread-safe."""

    def __init__(self) -> None:
        # The most recently used one is the last. A borrowed fetcher is not in here: no two tasks share one.
        self._idle: dict[tuple[ClientSettings, FetchSettings], Fetcher] = {}
        self._lock = threading.Lock()

    @contextmanager
    def borrow(self, client: ClientSettings, settings: FetchSettings, *, fresh: bool = False) -> Iterator[Fetcher]:
        """Lend an idle fetcher with these settings, or a new one; it is returned unless the block fails."""
        key = (client, settings)
        with self._lock:
            idle = None if fresh else self._idle.pop(key, None)
        fetcher = idle or KafkaFetcher(client, settings)
        try:
            yield fetcher
        except BaseException:  # also GeneratorExit: an abandoned fetch leaves records in flight
            fetcher.close()
            raise
        with self._lock:
            dropped = [self._idle.pop(key)] if key in self._idle else []
            self._idle[key] = fetcher
            dropped += [self._idle.pop(oldest) for oldest in list(self._idle)[:-_MAX_IDLE]]
        for each in dropped:
            each.close()

    def close_all(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, {}
        for fetcher in idle.values():
            fetcher.close()


# The pool of this process. Spark runs the tasks of many micro-batches in one Python worker, but keeps nothing between
# them itself; `planning.partitions` keeps table versions for the same reason.
FETCHERS = FetcherPool()
