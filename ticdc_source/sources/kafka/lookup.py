"""On the driver: the partitions that exist, their offsets, and the offset ranges of a batch read."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from ticdc_source.errors import DataLossError, OptionError, TiCDCSourceError, counted, nearest
from ticdc_source.options.kafka_client import client_settings
from ticdc_source.options.offsets import OffsetRange, clip, ranges_between
from ticdc_source.options.options import Options
from ticdc_source.options.ranges import EARLIEST, LATEST, Moment, by_partition, end_spec, start_spec, time_hint
from ticdc_source.options.topics import TopicPartition, listed, topic_choice
from ticdc_source.sources.kafka.answers import BrokerFacts, UnknownPartitionsError
from ticdc_source.sources.kafka.kafka_python.connect import Connect, RetryingClient, connect
from ticdc_source.sources.kafka.patience import Patience
from ticdc_source.sources.record_source import report_loss as report
from ticdc_source.sources.stream_offsets import Offsets

if TYPE_CHECKING:
    from ticdc_source.sources.kafka.kafka_python.connect import Client

DATA_LOSS = (
    "Some data may have been lost because they are not available in Kafka any more; either the data was "
    "aged out by Kafka or the topic may have been deleted before all the data in the topic was processed. "
    "If you don't want your query to fail on such cases, set the source option failOnDataLoss to false. "
    "Reason: "
)

_log = logging.getLogger(__name__)

# A missing topic is looked up twice: some brokers may not know a new topic yet.
SECOND_LOOK_SECONDS = 0.5
# Known partitions are gone after so many looks without them, half a second apart: a broker that has just started may
# know no topic for a while (Kafka 2.4 for 2.7 s, on a busy machine).
LOOKS_UNTIL_GONE = 10
# A lagging broker may answer with the id of a topic's predecessor.
LOOKS_UNTIL_RECREATED = 5

Answer = TypeVar("Answer")


class KafkaCluster(AbstractContextManager["KafkaCluster"]):
    """Looks up topic partitions and offsets for one read, and commits a stream's progress.

    It connects at the first look-up, waits as `RetryingClient` says, and creates nothing on the brokers. A look-up that
    fails at the brokers is retried `fetchOffset.numRetries` times, `fetchOffset.retryIntervalMs` apart, with a new
    client (like Spark's), unless a retry cannot help.
    """

    def __init__(self, options: Options, *, connect: Connect = connect) -> None:
        self._options = options
        self._brokers = RetryingClient(client_settings(options, driver=True), connect, is_first=True)
        self._choice = topic_choice(options)
        self._found: set[TopicPartition] = set()  # at the last look

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._brokers.close()

    def partitions(self, *, missing: bool = False, known: Iterable[TopicPartition] = ()) -> list[TopicPartition]:
        """The topic partitions to read, by topic and number.

        Args:
            missing: whether to leave out missing topics and partitions (a stream waits for them).
            known: partitions that existed before, by a checkpoint; those of other topics are ignored.

        Raises:
            OptionError: a topic or partition does not exist, or the user may not see it, or no topic matches.
        """
        self._found.update(filter(self._choice.includes, known))
        for look in range(LOOKS_UNTIL_GONE):
            if look:
                time.sleep(SECOND_LOOK_SECONDS)
            topics = self._look_up(lambda client, patience: client.topics(self._choice.names, patience))
            existing = sorted(filter(self._choice.includes, chain(*topics.values())))
            absent = None if missing else self._absent(topics, existing)
            if self._found.issubset(existing) and (absent is None or look):
                break
        if absent is not None:
            raise OptionError(absent)
        self._found = set(existing)
        return existing

    def _absent(self, topics: Mapping[str, Sequence[TopicPartition]], existing: Sequence[TopicPartition]) -> str | None:
        """What must exist and does not, as an error."""
        choice = self._choice
        unknown = [name for name in choice.names or () if name not in topics]
        if unknown:
            return self._look_up(lambda client, patience: _missing_message(unknown, client, patience))
        if len(existing) < len(choice.partitions):
            topic, partition = next(each for each in choice.partitions if each not in existing)
            count = counted(len(topics[topic]), "partition")
            return f"Option 'assign': partition {partition} of topic '{topic}' does not exist; it has {count}"
        if choice.pattern is not None and not existing:
            return f"Option 'subscribePattern': no topic matches '{choice.pattern.pattern}' as a whole"
        return None

    def earliest(self, topic_partitions: Iterable[TopicPartition]) -> Offsets:
        """The log start offset of each topic partition.

        Raises:
            DataLossError: a partition no longer exists.
        """
        return self._offsets(dict.fromkeys(topic_partitions, EARLIEST))

    def latest(self, topic_partitions: Iterable[TopicPartition]) -> Offsets:
        """The end offset of each topic partition; with read_committed, the last stable offset.

        Raises:
            DataLossError: a partition no longer exists.
        """
        return self._offsets(dict.fromkeys(topic_partitions, LATEST))

    def topic_ids(self) -> Mapping[str, str]:
        """The topic ids by name, as of the last look-ups; see `NetworkClient`."""
        client = self._brokers.client
        return {} if client is None else client.topic_ids

    def leader_epochs(self) -> Mapping[TopicPartition, int]:
        """The leaders' epochs as of the last look-ups of end offsets; see `NetworkClient`."""
        client = self._brokers.client
        return {} if client is None else client.leader_epochs

    def ends_of_epochs(self, epochs: Mapping[TopicPartition, int]) -> Offsets:
        """Where leader epochs end in the logs of the partitions' leaders; -1 if unknown.

        Raises:
            DataLossError: a partition no longer exists.
        """
        return self._of_existing(lambda client, patience: client.ends_of_epochs(epochs, patience))

    def by_timestamp(self, times: Mapping[TopicPartition, int], *, or_latest: bool) -> Offsets:
        """The offset of each partition's first record at or after a time, in milliseconds since the epoch.

        Raises:
            OptionError: a partition has no such record; with `or_latest` it gets its end offset instead.
            DataLossError: a partition no longer exists.
        """
        offsets = self._offsets(times)
        for topic_partition in sorted(offsets):
            if offsets[topic_partition] < 0 and not or_latest:
                raise OptionError(
                    f"No offset matched from request of topic-partition {topic_partition} and timestamp "
                    f"{times[topic_partition]}. Set the option startingOffsetsByTimestampStrategy to latest to start "
                    f"at the end there{time_hint(self._options) or '.'}"
                )
        without = [topic_partition for topic_partition, offset in offsets.items() if offset < 0]
        return offsets | (self.latest(without) if without else {})

    def resolve_ranges(self) -> list[OffsetRange]:
        """The offset ranges of a batch read: one per partition, even if empty, by topic and partition.

        Raises:
            OptionError: the options contradict the partitions or offsets that exist.
            DataLossError: requested offsets do not exist, and `failOnDataLoss` is on.
        """
        topic_partitions = self.partitions()
        requested_starts = by_partition(start_spec(self._options, streaming=False), topic_partitions, "start")
        requested_ends = by_partition(end_spec(self._options), topic_partitions, "end")
        starts, ends = self._resolve(topic_partitions, requested_starts, requested_ends)
        return ranges_between(starts, ends, time_hint(self._options))

    def starts(self, topic_partitions: Iterable[TopicPartition]) -> Offsets:
        """The start of a new stream in each partition, within the existing offsets."""
        topic_partitions = list(topic_partitions)
        if not topic_partitions:
            return {}
        requested = by_partition(start_spec(self._options, streaming=True), topic_partitions, "start")
        return self._resolve(topic_partitions, requested, dict.fromkeys(topic_partitions, LATEST))[0]

    def _resolve(
        self,
        topic_partitions: Sequence[TopicPartition],
        starts: Mapping[TopicPartition, int | Moment],
        ends: Mapping[TopicPartition, int | Moment],
    ) -> tuple[Offsets, Offsets]:
        # In this order: deletions and new records in between can only make the answers overlap more.
        earliest = self.earliest(topic_partitions)
        or_latest = self._options.starting_offsets_by_timestamp_strategy == "latest"
        start_times = self._at_times(starts, or_latest=or_latest)
        end_times = self._at_times(ends, or_latest=True)
        latest = self.latest(topic_partitions)
        resolved_starts = _resolved(starts, earliest, latest, start_times)
        resolved_ends = _resolved(ends, earliest, latest, end_times)
        clipped_starts, clipped_ends, lost = clip(resolved_starts, resolved_ends, earliest, latest)
        if lost:
            report_loss("; ".join(lost), fail=self._options.fail_on_data_loss)
        return clipped_starts, clipped_ends

    def everything(self) -> list[OffsetRange]:
        """All existing offsets of each partition, to sample for a stream's schema."""
        topic_partitions = self.partitions()
        earliest, latest = self.earliest(topic_partitions), self.latest(topic_partitions)
        return [OffsetRange(*each, min(earliest[each], latest[each]), latest[each]) for each in topic_partitions]

    def commit_group(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets for a consumer group, for monitoring; a failure is only logged."""
        try:
            self._brokers.ask(lambda client, _: client).commit(group, offsets)
        except (TiCDCSourceError, OSError, RuntimeError) as error:
            _log.warning("commitGroupOffsets: offsets were not committed for group %s: %s", group, error)

    def brokers(self) -> BrokerFacts:
        return self._look_up(lambda client, patience: client.brokers(patience))

    def committed(self, group: str, topic_partitions: Iterable[TopicPartition]) -> Offsets:
        return self._look_up(lambda client, _: client.committed(group, topic_partitions))

    def _at_times(self, asked: Mapping[TopicPartition, int | Moment], *, or_latest: bool) -> Offsets:
        times = {key: position.time for key, position in asked.items() if isinstance(position, Moment)}
        return self.by_timestamp(times, or_latest=or_latest) if times else {}

    def _offsets(self, times: Mapping[TopicPartition, int]) -> Offsets:
        return self._of_existing(lambda client, patience: client.offsets(times, patience))

    def _of_existing(self, ask: Callable[[Client, Patience], Offsets]) -> Offsets:
        try:
            return self._look_up(ask)
        except UnknownPartitionsError as error:
            deleted = listed(error.topic_partitions)
            raise DataLossError(f"{DATA_LOSS}Partitions {deleted} have been deleted.") from error

    def _look_up(self, ask: Callable[[Client, Patience], Answer]) -> Answer:
        return self._brokers.ask(
            ask,
            retries=self._options.fetch_offset_num_retries,
            interval_ms=self._options.fetch_offset_retry_interval_ms,
        )


def report_loss(reason: str, *, fail: bool) -> None:
    report(reason, fail=fail, begin=DATA_LOSS)


def _resolved(
    requested: Mapping[TopicPartition, int | Moment], earliest: Offsets, latest: Offsets, at_times: Offsets
) -> Offsets:
    resolved = {}
    for each, position in requested.items():
        if isinstance(position, Moment):
            # A record that arrived after the latest offset was looked up is not part of this read.
            resolved[each] = min(at_times[each], latest[each])
        else:
            resolved[each] = {EARLIEST: earliest[each], LATEST: latest[each]}.get(position, position)
    return resolved


def _missing_message(missing: Iterable[str], client: Client, patience: Patience) -> str:
    visible = client.topics(None, patience)
    near = sorted({match for name in missing for match in nearest(name, visible, 3)})
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    names = ", ".join(f"'{name}'" for name in missing)
    return f"Topic {names} does not exist on Kafka at {client.servers}, or the user may not see it{hint}"
