"""Kafka as a `RecordSource`, and the fetchers that a worker process keeps: connecting costs more than a small batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from ticdc_source.errors import OptionError
from ticdc_source.options.kafka_client import ClientSettings, client_settings
from ticdc_source.options.offsets import OffsetRange, pack
from ticdc_source.options.options import Options
from ticdc_source.options.topics import TopicPartition
from ticdc_source.sources.chunk import FetchSettings
from ticdc_source.sources.kafka.fetch import KafkaFetcher
from ticdc_source.sources.kafka.lookup import DATA_LOSS, KafkaCluster
from ticdc_source.sources.kafka.topic_planner import TopicPlanner
from ticdc_source.sources.record_source import Fetcher, OffsetMembers, RecordSource, StreamPlanner, WireFormats
from ticdc_source.sources.stream_offsets import Offsets, StreamLimits


class KafkaSource(RecordSource):
    """The topics that the options choose."""

    is_one_log = False
    loss = DATA_LOSS

    def __init__(self, options: Options, formats: WireFormats) -> None:
        super().__init__(options, formats)
        self._made: KafkaCluster | None = None

    @property
    def _cluster(self) -> KafkaCluster:
        if self._made is None:
            self._made = KafkaCluster(self._options)
        return self._made

    def close(self) -> None:
        if self._made is not None:
            self._made.close()

    def described(self, ranges: Iterable[OffsetRange]) -> str:
        return ", ".join(sorted({each.topic for each in ranges})) or "the topics"

    def check_protocol(self, protocol: str) -> None:
        if protocol != "auto" and protocol not in self._formats.in_topics:
            msg = (
                f"protocol={protocol} comes in files of a storage sink, and in no topic: set 'path' instead of topics, "
                "or another protocol"
            )
            raise OptionError(msg)

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
        if self._options.commit_group_offsets and group and self._made is not None:
            self._made.commit_group(group, offsets)


_IDLE_SECONDS = 300.0  # as Spark's spark.kafka.consumer.cache.timeout
_MAX_IDLE = 16


class FetcherPool:
    """Idle fetchers, by the settings they were made with. Thread-safe."""

    def __init__(self) -> None:
        # The most recently used one is the last. A borrowed fetcher is not in here: no two tasks share one.
        self._idle: dict[tuple[ClientSettings, FetchSettings], tuple[Fetcher, float]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def borrow(self, client: ClientSettings, settings: FetchSettings, *, fresh: bool = False) -> Iterator[Fetcher]:
        """Lend an idle fetcher with these settings, or a new one; it comes back unless the block fails."""
        key = (client, settings)
        self._close_old()
        with self._lock:
            idle = None if fresh else self._idle.pop(key, None)
        fetcher = KafkaFetcher(client, settings) if idle is None else idle[0]
        try:
            yield fetcher
        except BaseException:  # also GeneratorExit: an abandoned fetch leaves records in flight
            fetcher.close()
            raise
        with self._lock:
            replaced = self._idle.pop(key, None)
            self._idle[key] = (fetcher, time.monotonic())
        if replaced is not None:
            replaced[0].close()

    def close_all(self) -> None:
        with self._lock:
            idle = list(self._idle.values())
            self._idle.clear()
        for fetcher, _ in idle:
            fetcher.close()

    def _close_old(self) -> None:
        limit = time.monotonic() - _IDLE_SECONDS
        with self._lock:
            keys = list(self._idle)
            old = [key for key in keys if self._idle[key][1] < limit] + keys[: max(0, len(keys) - _MAX_IDLE)]
            dropped = [self._idle.pop(key)[0] for key in dict.fromkeys(old)]
        for fetcher in dropped:
            fetcher.close()


# The pool of this process. Spark runs the tasks of many micro-batches in the same Python worker, and keeps nothing else
# between them; `planning.partitions` keeps versions of tables for the same reason.
FETCHERS = FetcherPool()
