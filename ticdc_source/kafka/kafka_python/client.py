"""A kafka-python client that never waits for ever, creates nothing, and speaks of failures in our errors.

What kafka-python 3.0.12 leaves to its caller is done here: KafkaConsumer's constructor leaks the IO thread
when it fails; its metadata look-ups have no time-out; and its look-ups of offsets drop partitions that have
no leader (as if no record were young enough) and spin on those that do not exist.
"""

from __future__ import annotations

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

from ticdc_source.errors import KafkaUnavailableError, OptionError, TiCDCSourceError
from ticdc_source.kafka.kafka_python.connections import (
    AUTHENTICATION_ERRORS,
    Connections,
    connection_settings,
    is_untrusted,
)
from ticdc_source.options.topics import TopicPartition

__all__ = ["Client", "translated"]


class Client:
    """A connected client: metadata, offsets, and a KafkaConsumer on the same connections.

    Args:
        config: what `client_config` returned.

    Raises:
        KafkaUnavailableError: no broker answered within `bootstrap_timeout_ms`.
        OptionError: a certificate file cannot be read, or the brokers refuse the login.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.servers = ",".join(config["bootstrap_servers"])
        self.timeout_ms: int = config["default_api_timeout_ms"]
        self._isolation = IsolationLevel.build_from(config["isolation_level"])
        self._settings = connection_settings(config)
        self._net = NetworkSelector(**self._settings)
        self._manager = Connections(self._net, **self._settings)
        self._client = KafkaNetClient(net=self._net, manager=self._manager)
        self._consumer: Any = None
        self._committer: Any = None
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

    def consumer(self) -> Any:
        """Return the one KafkaConsumer of this client, which ends with it."""
        if self._consumer is None:
            # Without its group: nothing here joins one, and with one every poll would want its coordinator.
            self._consumer = self._new_consumer(None)
        return self._consumer

    def _new_consumer(self, group: str | None) -> Any:
        known = KafkaConsumer.DEFAULT_CONFIG.keys()
        settings = {name: value for name, value in self._settings.items() if name in known}
        settings.update(group_id=group, enable_auto_commit=False, kafka_client=lambda **_: self._client)
        return KafkaConsumer(**settings)

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Write offsets down for a group that nobody joins.

        Raises:
            kafka.errors.KafkaError: the request failed, or the group has members.
        """
        if self._committer is None:
            self._committer = self._new_consumer(group)
        self._committer.commit(
            {KafkaTopicPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()},
            timeout_ms=self.timeout_ms,
        )

    def topics(self, names: Iterable[str] | None, timeout_ms: float | None = None) -> dict[str, Any]:
        """Look topics up: all of them with None.

        Returns:
            the response's entry by topic name: `error_code`, `is_internal`, `partitions` with
            `partition_index` and `leader_id`.

        Raises:
            kafka.errors.KafkaError: the request failed.
        """
        topic_of = MetadataRequest.MetadataRequestTopic
        wanted = None if names is None else [topic_of(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        response = self._send(request, None, timeout_ms)
        if names is not None:
            # So that leaders are known when a consumer is assigned partitions: it would sleep until they are.
            self._manager.call_soon(self._manager.cluster.update_metadata, response)
        return {topic.name: topic for topic in response.topics}

    def offsets(
        self, times: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Look offsets up: of the first record at or after a time (ms), or at `EARLIEST` or `LATEST`.

        With isolation level read_committed, `LATEST` is the last stable offset.

        Returns:
            an offset for each partition, -1 where no record is that young.

        Raises:
            kafka.errors.UnknownTopicOrPartitionError: some do not exist; its only argument is their list.
            kafka.errors.KafkaError: the request failed, or some still have no leader at the end of the time.
        """
        deadline = time.monotonic() + (self.timeout_ms if timeout_ms is None else timeout_ms) / 1000
        found: dict[TopicPartition, int] = {}
        pending = dict(times)
        unknown_before: set[TopicPartition] = set()
        while pending:
            left_ms = (deadline - time.monotonic()) * 1000
            if left_ms <= 0:
                msg = f"no leader for {', '.join(map(str, sorted(pending)))}"
                raise kafka.errors.LeaderNotAvailableError(msg)
            leaders, unknown = self._leaders(pending, left_ms)
            for leader, places in leaders.items():
                answer = self._list_offsets(leader, {place: pending[place] for place in places}, left_ms)
                found.update(answer)
            pending = {place: at for place, at in pending.items() if place not in found}
            if unknown & unknown_before:  # twice: a broker that has just started may not know its topics yet
                raise kafka.errors.UnknownTopicOrPartitionError(sorted(unknown))
            unknown_before = unknown
            if pending:
                time.sleep(min(0.2, max(0.0, deadline - time.monotonic())))
        return found

    def _leaders(
        self, places: Iterable[TopicPartition], timeout_ms: float
    ) -> tuple[dict[int, list[TopicPartition]], set[TopicPartition]]:
        wanted = set(places)
        leaders, known = defaultdict(list), set()
        for name, topic in self.topics(sorted({place.topic for place in wanted}), timeout_ms).items():
            error = kafka.errors.for_code(topic.error_code)
            if issubclass(error, kafka.errors.AuthorizationError):
                raise error(name)
            if error is not kafka.errors.NoError and error is not kafka.errors.UnknownTopicOrPartitionError:
                known |= {place for place in wanted if place.topic == name}  # as yet: to be asked again
                continue
            for partition in topic.partitions:
                place = TopicPartition(name, partition.partition_index)
                known.add(place)
                if place in wanted and partition.leader_id >= 0:
                    leaders[partition.leader_id].append(place)
        return dict(leaders), wanted - known

    def _list_offsets(
        self, leader: int, times: Mapping[TopicPartition, int], timeout_ms: float
    ) -> dict[TopicPartition, int]:
        by_topic = defaultdict(list)
        for place, at in times.items():
            partition = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                partition_index=place.partition, current_leader_epoch=-1, timestamp=at
            )
            by_topic[place.topic].append(partition)
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
                # Anything else is a leader on the move: to be asked again.
        return found

    def _send(self, request: Any, node: int | None, timeout_ms: float | None) -> Any:
        limit = self.timeout_ms if timeout_ms is None else timeout_ms

        async def send() -> Any:
            return await self._manager.wait_for(self._manager.send(request, node_id=node), limit)

        return self._net.run(send)


def translated(
    error: Exception, servers: str, timeout_ms: float, reason: BaseException | None = None
) -> TiCDCSourceError:
    """Return kafka-python's `error` as one of ours; texts of brokers and sockets hold no secrets.

    Args:
        error: what was raised.
        servers: the bootstrap servers, for the message.
        timeout_ms: the time that was given.
        reason: why the last connection failed, where that is known.
    """
    if isinstance(error, TiCDCSourceError):
        return error
    if isinstance(error, AUTHENTICATION_ERRORS):
        return OptionError(
            f"Kafka at {servers} refuses the login: {error}. Check kafka.sasl.mechanism and kafka.sasl.jaas.config"
        )
    if isinstance(error, kafka.errors.AuthorizationError):
        what = ", ".join(map(str, error.args))
        return OptionError(f"Kafka at {servers} does not permit this user to read {what} ({type(error).__name__})")
    if is_untrusted(error):
        return OptionError(
            f"The certificate of Kafka at {servers} is not trusted: {error}. Check kafka.ssl.truststore.location"
        )
    because = "" if reason is None or str(reason) == str(error) else f"; last connection: {reason}"
    return KafkaUnavailableError(
        f"Kafka at {servers} did not answer in {timeout_ms:.0f} ms: {error}{because}. Check "
        "kafka.bootstrap.servers, kafka.security.protocol and the network; kafka.default.api.timeout.ms says how long "
        "to wait"
    )
