"""A kafka-python client that always ends in time, creates nothing, and translates failures into our errors.

It does what kafka-python 3.0.12 leaves to its caller: KafkaConsumer's constructor leaks the IO thread when it fails;
its metadata look-ups have no time-out; and its look-ups of offsets drop partitions without a leader (as if no record
were young enough) and spin on partitions that do not exist. Private names are used for that:
`compatibility.CONNECTIONS` guards them.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import kafka.errors
from kafka import KafkaConsumer, OffsetAndMetadata
from kafka import TopicPartition as KafkaTopicPartition
from kafka.net.compat import KafkaNetClient
from kafka.net.selector import NetworkSelector
from kafka.protocol.consumer import IsolationLevel, ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from ticdc_source.errors import KafkaUnavailableError, OptionError
from ticdc_source.kafka.api import ClientConfig
from ticdc_source.kafka.batches.cut import ChunkLimits
from ticdc_source.kafka.client import Topic, UnknownPartitionsError
from ticdc_source.kafka.kafka_python import library
from ticdc_source.kafka.kafka_python.compatibility import facts
from ticdc_source.kafka.kafka_python.connections import Connections
from ticdc_source.kafka.kafka_python.errors import our_errors, translated
from ticdc_source.kafka.kafka_python.readers import BatchReader, RecordReader
from ticdc_source.kafka.kafka_python.settings import connection_settings, consumer_settings
from ticdc_source.kafka.kafka_python.slicing import SliceLimits, slice_fetches
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.topics import TopicPartition

__all__ = ["NetworkClient"]

_LOOK_UP_AGAIN_SECONDS = 1.0


class NetworkClient:
    """The `Client` of kafka-python: metadata, offsets, and a KafkaConsumer, all on the same connections.

    Args:
        config: what `client_config` returned.

    Raises:
        KafkaUnavailableError: no broker answered within `bootstrap_timeout_ms`.
        OptionError: a certificate file cannot be read, or the brokers refuse the login.
    """

    def __init__(self, config: ClientConfig) -> None:
        self.servers = ",".join(config["bootstrap_servers"])
        self.timeout_ms: int = config["default_api_timeout_ms"]
        self.facts = facts()
        self._isolation = IsolationLevel.build_from(config["isolation_level"])
        self._settings = connection_settings(config)
        self._net = NetworkSelector(**self._settings)
        self._manager = Connections(self._net, **self._settings)
        self._client = KafkaNetClient(net=self._net, manager=self._manager)
        self._consumer: library.Consumer | None = None
        self._slice_limits: SliceLimits | None = None
        self._looked_up: dict[str, float] = {}  # when the leaders of a topic's partitions were
        self._committer: library.Consumer | None = None
        timeout_ms = config["bootstrap_timeout_ms"]
        try:
            self._net.start()
            self._manager.bootstrap(timeout_ms)
        except BaseException as error:
            reason = self._manager.last_error
            self.close()
            if isinstance(error, Exception):
                raise translated(error, self.servers, timeout_ms, reason) from error
            raise

    def close(self) -> None:
        """Close the connections and end the IO thread; safe to repeat."""
        # Not KafkaConsumer.close(): all it adds is leaving a group and committing, and waiting for both.
        self._client.close()

    def reader(self, offset_range: OffsetRange, limits: ChunkLimits, timeout_ms: float) -> RecordReader:
        """Return a reader; see `Client.reader`."""
        with our_errors(self.servers, self.timeout_ms):
            # So that the leader is known when the consumer is assigned the partition: it would sleep until it is. Of
            # many partitions of one topic not each looks again: the answer names all of them.
            if time.monotonic() - self._looked_up.get(offset_range.topic, -math.inf) > _LOOK_UP_AGAIN_SECONDS:
                self._metadata([offset_range.topic], timeout_ms)
                self._looked_up[offset_range.topic] = time.monotonic()
            if self._consumer is None:
                # Without its group: nothing here joins one, and with one every poll would want its coordinator.
                self._consumer = self._new_consumer(None)
            if self._slice_limits is None:
                self._slice_limits = SliceLimits(limits, offset_range.end)
            self._slice_limits.chunk, self._slice_limits.end = limits, offset_range.end
            is_sliced = slice_fetches(self._consumer, self._slice_limits)
        if is_sliced:
            slices = self._slice_limits
            return BatchReader(slices, self._consumer, offset_range, limits, self.servers, self.timeout_ms)
        return RecordReader(self._consumer, offset_range, limits, self.servers, self.timeout_ms)

    def _new_consumer(self, group: str | None) -> library.Consumer:
        settings = consumer_settings(self._settings)
        settings.update(group_id=group, enable_auto_commit=False, kafka_client=lambda **_: self._client)
        consumer: library.Consumer = KafkaConsumer(**settings)
        return consumer

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets; see `Client.commit`."""
        try:
            if self._committer is None:
                self._committer = self._new_consumer(group)
            kafka_offsets = {KafkaTopicPartition(*key): OffsetAndMetadata(at, "", -1) for key, at in offsets.items()}
            self._committer.commit(kafka_offsets, timeout_ms=self.timeout_ms)
        except kafka.errors.KafkaError as error:
            raise KafkaUnavailableError(str(error)) from error

    def topics(self, names: Iterable[str] | None) -> dict[str, Topic]:
        """Look up topics; see `Client.topics`."""
        names = None if names is None else list(names)
        with our_errors(self.servers, self.timeout_ms):
            found = self._metadata(names)
            existing = found.keys() if names is None else [name for name in names if _exists(name, found.get(name))]
        return {name: _topic(found[name]) for name in existing}

    def _metadata(
        self, names: Iterable[str] | None, timeout_ms: float | None = None
    ) -> dict[str, library.TopicMetadata]:
        """Look up topics, all of them with None; return the entries of the response by name.

        Raises:
            kafka.errors.KafkaError: the request failed.
        """
        topic_class = MetadataRequest.MetadataRequestTopic
        topics = None if names is None else [topic_class(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        response = self._send(request, None, timeout_ms)
        if names is not None:
            self._manager.call_soon(self._manager.cluster.update_metadata, response)
        return {topic.name: topic for topic in response.topics}

    def offsets(
        self, times: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Look up offsets; see `Client.offsets`."""
        deadline = time.monotonic() + (self.timeout_ms if timeout_ms is None else timeout_ms) / 1000
        with our_errors(self.servers, self.timeout_ms):
            return self._offsets(times, deadline)

    def _offsets(self, times: Mapping[TopicPartition, int], deadline: float) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        pending = dict(times)
        unknown_before: set[TopicPartition] = set()
        while pending:
            left_ms = (deadline - time.monotonic()) * 1000
            if left_ms <= 0:
                msg = f"no leader for {', '.join(map(str, sorted(pending)))}"
                raise kafka.errors.LeaderNotAvailableError(msg)
            leaders, unknown = self._leaders(pending, left_ms)
            for leader, led in leaders.items():
                answer = self._list_offsets(leader, {key: pending[key] for key in led}, left_ms)
                found.update(answer)
            pending = {key: at for key, at in pending.items() if key not in found}
            if unknown & unknown_before:  # twice: a broker that has just started may not know its topics yet
                raise UnknownPartitionsError(unknown)
            unknown_before = unknown
            if pending:
                time.sleep(min(0.2, max(0.0, deadline - time.monotonic())))
        return found

    def _leaders(
        self, topic_partitions: Iterable[TopicPartition], timeout_ms: float
    ) -> tuple[dict[int, list[TopicPartition]], set[TopicPartition]]:
        """Return the partitions by their leader, without those that have none, and the partitions that do not exist."""
        asked = set(topic_partitions)
        leaders, known = defaultdict(list), set()
        for name, topic in self._metadata(sorted({key.topic for key in asked}), timeout_ms).items():
            error = kafka.errors.for_code(topic.error_code)
            if issubclass(error, kafka.errors.AuthorizationError):
                raise error(name)
            if error is not kafka.errors.NoError and error is not kafka.errors.UnknownTopicOrPartitionError:
                known |= {key for key in asked if key.topic == name}  # for now: to be asked again
                continue
            for partition in topic.partitions:
                topic_partition = TopicPartition(name, partition.partition_index)
                known.add(topic_partition)
                if topic_partition in asked and partition.leader_id >= 0:
                    leaders[partition.leader_id].append(topic_partition)
        return dict(leaders), asked - known

    def _list_offsets(
        self, leader: int, times: Mapping[TopicPartition, int], timeout_ms: float
    ) -> dict[TopicPartition, int]:
        by_topic = defaultdict(list)
        for topic_partition, at in times.items():
            partition = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                partition_index=topic_partition.partition, current_leader_epoch=-1, timestamp=at
            )
            by_topic[topic_partition.topic].append(partition)
        request = ListOffsetsRequest(
            isolation_level=self._isolation,
            topics=list(by_topic.items()),
            min_version=max(1, ListOffsetsRequest.min_version_for_isolation_level(self._isolation)),
        )
        try:
            response = self._send(request, leader, timeout_ms)
        except (kafka.errors.NodeNotReadyError, kafka.errors.UnknownBrokerIdError):
            return {}  # just restarted, or just elected: to be asked again
        found = {}
        for topic in response.topics:
            for partition in topic.partitions:
                error = kafka.errors.for_code(partition.error_code)
                if error is kafka.errors.NoError:
                    found[TopicPartition(topic.name, partition.partition_index)] = partition.offset
                elif issubclass(error, kafka.errors.AuthorizationError):
                    raise error(topic.name)
                # Anything else is a leader that is moving: to be asked again.
        return found

    def _send(self, request: object, node: int | None, timeout_ms: float | None) -> Any:
        """Return the response to a request, whose attributes depend on the request: hence `Any`."""
        limit = self.timeout_ms if timeout_ms is None else timeout_ms

        async def send() -> object:
            response: object = await self._manager.wait_for(self._manager.send(request, node_id=node), limit)
            return response

        return self._net.run(send)


def _exists(name: str, topic: library.TopicMetadata | None) -> bool:
    """Return whether a topic exists.

    Raises:
        OptionError: its name cannot be that of a topic.
        kafka.errors.KafkaError: something else is wrong with it.
    """
    if topic is None:
        return False
    error = kafka.errors.for_code(topic.error_code)
    if error is kafka.errors.InvalidTopicError:
        msg = f"'{name}' is not a valid name of a Kafka topic"
        raise OptionError(msg)
    if error is kafka.errors.NoError or error is kafka.errors.UnknownTopicOrPartitionError:
        return error is kafka.errors.NoError
    raise error(name)


def _topic(topic: library.TopicMetadata) -> Topic:
    numbers = sorted(partition.partition_index for partition in topic.partitions)
    return Topic(topic.name, tuple(TopicPartition(topic.name, number) for number in numbers), topic.is_internal)
