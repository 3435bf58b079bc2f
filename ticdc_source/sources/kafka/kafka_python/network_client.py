"""A kafka-python client that always ends in time, creates nothing, and translates failures into our errors.

Within one attempt it tries one server after the other; `RetryingClient` makes a new client after a failure. It avoids
faults of kafka-python 3.0.12: KafkaConsumer's constructor leaks the IO thread when it fails; metadata look-ups have no
time-out; look-ups of offsets drop partitions without a leader (as if they had no new enough record) and spin on
partitions that do not exist. The private names used for that are listed in docs/design/0010.
"""

from __future__ import annotations

import base64
import math
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import kafka
import kafka.errors
from kafka import IsolationLevel, KafkaConsumer, OffsetAndMetadata
from kafka import TopicPartition as KafkaTopicPartition
from kafka.future import Future
from kafka.net.compat import KafkaNetClient
from kafka.net.selector import NetworkSelector
from kafka.protocol.consumer import ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import MetadataRequest

from ticdc_source.errors import OptionError
from ticdc_source.options.kafka_client import ClientSettings
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.ranges import LATEST
from ticdc_source.options.topics import TopicPartition, listed
from ticdc_source.sources.chunk import FetchSettings
from ticdc_source.sources.kafka.answers import BrokerFacts, UnknownPartitionsError
from ticdc_source.sources.kafka.kafka_python.connections import Connections, NodeId
from ticdc_source.sources.kafka.kafka_python.library_errors import AUTHENTICATION_ERRORS, cause_of, is_final, our_errors
from ticdc_source.sources.kafka.kafka_python.logins import TokenProvider, consumer_settings, login_settings
from ticdc_source.sources.kafka.kafka_python.slicing import BatchReader
from ticdc_source.sources.kafka.patience import Cause, Patience

_LOOK_UP_AGAIN_SECONDS = 1.0
# The time of one of several servers in the first round, so that a silent one does not hold up a read: answers take
# milliseconds. Each round doubles it.
_TRY_MS = 3_000.0
_PAUSE_SECONDS = 0.2
# A partition is gone if it is unknown for so long after a failure: restarting brokers may not know it at first.
_GONE_SECONDS = 3.0
_NO_LEADER = -1  # in kafka-python, for a partition known to have none
_UNKNOWN_END = -1  # a leader's answer if it does not know where an epoch ends
_PART_OF_ANSWER = Cause("part of an answer has arrived (on a slow link, lower kafka.max.partition.fetch.bytes)")
_SETUP_TIMES = ("socket_connection_setup_timeout_ms", "socket_connection_setup_timeout_max_ms")

Answered: TypeAlias = Any  # what brokers answer: kafka-python has no types, and attributes depend on the request


class NetworkClient:
    """Metadata, offsets, and a KafkaConsumer, all on the same connections.

    A method with a `Patience` asks servers repeatedly within that time, and reports failures to it. Like the
    constructor, it raises KafkaUnavailableError if the time is over, and OptionError if the brokers refuse the login or
    a permission, or their certificate is not trusted.

    Attributes:
        topic_ids: the topic ids in the last answers, as Kafka's tools print them. Topics without one (brokers before
            2.8, a deleted topic) are left out.
        leader_epochs: of the leaders that answered the last look-up of `LATEST`; brokers before 2.1 have none.
    """

    def __init__(self, settings: ClientSettings, patience: Patience) -> None:
        self.servers = ",".join(settings.bootstrap_servers)
        self.library = f"kafka-python {kafka.__version__}"
        self.topic_ids: dict[str, str] = {}
        self.leader_epochs: dict[TopicPartition, int] = {}
        self._timeout_ms = settings.default_api_timeout_ms
        self._protocol = settings.security_protocol
        self._isolation = IsolationLevel.build_from(settings.isolation_level)
        self._settings = {**consumer_settings(settings), **login_settings(settings, patience)}
        self._net = NetworkSelector(**self._settings)
        given = {name: getattr(settings, name) for name in _SETUP_TIMES}  # `KafkaConsumer` does not know them
        times = {name: ms for name, ms in given.items() if ms is not None}
        self._manager = Connections(self._net, **self._settings, **times)
        self._client = KafkaNetClient(net=self._net, manager=self._manager)
        self._reader: BatchReader | None = None
        self._looked_up: dict[str, float] = {}  # when the leaders of a topic's partitions were
        self._groups: dict[str, KafkaConsumer] = {}  # for the offsets that a group has committed
        try:
            with our_errors(self.servers):
                self._net.start()
                self._find_brokers(patience)
        except BaseException:
            self.close()
            raise

    def _find_brokers(self, patience: Patience) -> None:
        while True:
            answer = self._ask(_metadata_request(()), patience)
            if answer.brokers:
                patience.set_missing(None)
                self._net.run(self._manager.bootstrapped_by, answer)
                return
            patience.set_missing("the answer names no brokers")
            self._pause(patience)

    def close(self) -> None:
        """Close the connections and end the IO thread; safe to repeat."""
        # Not KafkaConsumer.close(): all it adds is leaving a group and committing, and waiting for both.
        self._client.close()
        self._manager.close_sockets()

    def reader(self, offset_range: OffsetRange, limits: FetchSettings, patience: Patience) -> BatchReader:
        """Return a reader from the start of the range; it ends the previous one.

        It may return a few records after the end of the range.
        """
        with our_errors(self.servers):
            # The consumer would sleep until it knows the leader. The answer names all partitions of a topic, so it is
            # not repeated for each.
            if time.monotonic() - self._looked_up.get(offset_range.topic, -math.inf) > _LOOK_UP_AGAIN_SECONDS:
                self._metadata([offset_range.topic], patience)
                self._looked_up[offset_range.topic] = time.monotonic()
            if self._reader is None:
                # Without a group: nothing here joins one, and every poll would need its coordinator.
                self._reader = BatchReader(self._new_consumer(None), limits, self.servers)
        self._reader.begin(offset_range, limits)
        return self._reader

    def _new_consumer(self, group: str | None) -> KafkaConsumer:
        own = {"group_id": group, "kafka_client": lambda **_: self._client}
        return KafkaConsumer(**{**self._settings, **own})

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets for a group without members, within `default_api_timeout_ms`.

        Raises:
            TiCDCSourceError: the brokers refuse, for instance because the group has members.
        """
        kafka_offsets = {KafkaTopicPartition(*key): OffsetAndMetadata(at, "", -1) for key, at in offsets.items()}
        with our_errors(self.servers):
            self._of_group(group).commit(kafka_offsets, timeout_ms=self._timeout_ms)

    def committed(self, group: str, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return a group's committed offsets; partitions without one are left out.

        Raises:
            TiCDCSourceError: the brokers refuse, or do not answer in `default_api_timeout_ms`.
        """
        deadline = time.monotonic() + self._timeout_ms / 1000
        committed = {}
        with our_errors(self.servers):
            for key in topic_partitions:
                left_ms = (deadline - time.monotonic()) * 1000
                if left_ms <= 0:
                    raise kafka.errors.KafkaTimeoutError("no answer")
                offset = self._of_group(group).committed(KafkaTopicPartition(*key), timeout_ms=left_ms)
                if offset is not None and offset >= 0:
                    committed[key] = offset
        return committed

    def _of_group(self, group: str) -> KafkaConsumer:
        if group not in self._groups:
            self._groups[group] = self._new_consumer(group)
        return self._groups[group]

    def brokers(self, patience: Patience) -> BrokerFacts:
        with our_errors(self.servers):
            answer = self._ask(_metadata_request(()), patience)
        version = self._manager.broker_version
        return BrokerFacts(
            tuple((broker.host, broker.port) for broker in answer.brokers),
            None if version is None else ".".join(map(str, version)),
        )

    def topics(self, names: Iterable[str] | None, patience: Patience) -> dict[str, list[TopicPartition]]:
        """Return the partitions of existing topics with these names (None for all visible ones but the brokers' own).

        Raises:
            OptionError: a name is not valid for a topic.
        """
        names = None if names is None else list(names)
        with our_errors(self.servers):
            while True:
                entries = self._metadata(names, patience)
                unready = [
                    f"{name}: {_error_of(entries[name]).__name__}" for name in names or () if _waits(entries, name)
                ]
                if not unready:
                    break
                patience.set_missing(", ".join(unready))
                self._pause(patience)
            patience.set_missing(None)
            if names is None:
                existing = [name for name, topic in entries.items() if not topic.is_internal]
            else:
                existing = [name for name in names if _exists(name, entries.get(name))]
        numbers = {name: [each.partition_index for each in entries[name].partitions] for name in existing}
        return {name: [TopicPartition(name, number) for number in sorted(numbers[name])] for name in existing}

    def _metadata(self, names: Iterable[str] | None, patience: Patience) -> dict[str, Answered]:
        """Look up topics (None for all); return the response's entries by name."""
        response = self._ask(_metadata_request(None if names is None else tuple(names)), patience)
        if names is not None:
            self._manager.call_soon(self._manager.cluster.update_metadata, response)
        for topic in response.topics:
            topic_id = _topic_id_of(topic)
            if topic_id is None:
                self.topic_ids.pop(topic.name, None)
            else:
                self.topic_ids[topic.name] = topic_id
        return {topic.name: topic for topic in response.topics}

    def offsets(self, times: Mapping[TopicPartition, int], patience: Patience) -> dict[TopicPartition, int]:
        """Return the offset of each partition's first record at or after a time, -1 if there is none.

        Args:
            times: in milliseconds since the epoch, or `EARLIEST` or `LATEST`; with read_committed, `LATEST` is the last
                stable offset.

        Raises:
            UnknownPartitionsError: some partitions do not exist.
        """
        with our_errors(self.servers):
            return self._ask_leaders(self._list_offsets, times, patience)

    def ends_of_epochs(self, epochs: Mapping[TopicPartition, int], patience: Patience) -> dict[TopicPartition, int]:
        """Return where leader epochs end in the logs of the partitions' leaders; -1 if unknown to the leader.

        Raises:
            UnknownPartitionsError: some partitions do not exist.
        """
        with our_errors(self.servers):
            return self._ask_leaders(self._ends_of_epochs, epochs, patience)

    def topic_ids_at_leaders(
        self, topic_partitions: Iterable[TopicPartition], patience: Patience
    ) -> dict[TopicPartition, str]:
        """Return each partition's topic id as known to the broker it was read from, if any."""
        by_leader = defaultdict(list)
        for topic_partition in topic_partitions:
            leader = self._manager.cluster.leader_for_partition(KafkaTopicPartition(*topic_partition))
            by_leader[None if leader == _NO_LEADER else leader].append(topic_partition)
        ids = {}
        with our_errors(self.servers):
            for leader, led in by_leader.items():
                answer = self._ask(_metadata_request({key.topic for key in led}), patience, first=leader)
                answered = {topic.name: topic_id for topic in answer.topics if (topic_id := _topic_id_of(topic))}
                ids.update({key: answered[key.topic] for key in led if key.topic in answered})
        return ids

    def _ask_leaders(
        self,
        request: Callable[[int, Mapping[TopicPartition, int], Patience], dict[TopicPartition, int]],
        asked: Mapping[TopicPartition, int],
        patience: Patience,
    ) -> dict[TopicPartition, int]:
        """Ask the leader of each partition until all have answered; `request` asks one about its partitions."""
        offsets: dict[TopicPartition, int] = {}
        pending = dict(asked)
        unknown_before: set[TopicPartition] = set()
        unknown_since = time.monotonic()
        while True:
            leaders, unknown = self._leaders(pending, patience)
            for leader, led in leaders.items():
                offsets.update(request(leader, {key: pending[key] for key in led}, patience))
            pending = {key: at for key, at in pending.items() if key not in offsets}
            if not pending:
                patience.set_missing(None)
                return offsets
            now = time.monotonic()
            unknown_since = unknown_since if unknown & unknown_before else now
            # Unknown twice, or after a failure for a while: a broker that has just started may not know its topics.
            if unknown & unknown_before and (not patience.has_failures or now - unknown_since >= _GONE_SECONDS):
                raise UnknownPartitionsError(unknown)
            unknown_before = unknown
            patience.set_missing(f"no leader answers for {listed(sorted(pending))}")
            self._pause(patience)

    def _leaders(
        self, topic_partitions: Iterable[TopicPartition], patience: Patience
    ) -> tuple[dict[int, list[TopicPartition]], set[TopicPartition]]:
        """Return the partitions with a leader, by leader, and the partitions that do not exist."""
        asked = set(topic_partitions)
        leaders, existing = defaultdict(list), set()
        for name, topic in self._metadata(sorted({key.topic for key in asked}), patience).items():
            error = _error_of(topic)
            if issubclass(error, kafka.errors.AuthorizationError):
                raise error(name)
            if error is not kafka.errors.NoError and error is not kafka.errors.UnknownTopicOrPartitionError:
                existing |= {key for key in asked if key.topic == name}  # for now: to be asked again
                continue
            for partition in topic.partitions:
                topic_partition = TopicPartition(name, partition.partition_index)
                existing.add(topic_partition)
                if topic_partition in asked and partition.leader_id >= 0:
                    leaders[partition.leader_id].append(topic_partition)
        return dict(leaders), asked - existing

    def _list_offsets(
        self, leader: int, times: Mapping[TopicPartition, int], patience: Patience
    ) -> dict[TopicPartition, int]:
        new_partition = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition
        by_topic = defaultdict(list)
        for key, at in times.items():
            partition = new_partition(partition_index=key.partition, current_leader_epoch=-1, timestamp=at)
            by_topic[key.topic].append(partition)
        request = ListOffsetsRequest(
            isolation_level=self._isolation,
            topics=list(by_topic.items()),
            min_version=max(1, ListOffsetsRequest.min_version_for_isolation_level(self._isolation)),
        )
        offsets = {}
        for topic in self._ask_leader(request, leader, patience):
            for partition in topic.partitions:
                error = kafka.errors.for_code(partition.error_code)
                key = TopicPartition(topic.name, partition.partition_index)
                if key not in times:
                    continue  # whatever it says
                if error is kafka.errors.NoError:
                    offsets[key] = partition.offset
                    if times[key] == LATEST:
                        self.leader_epochs.pop(key, None)
                        if partition.leader_epoch is not None and partition.leader_epoch >= 0:
                            self.leader_epochs[key] = partition.leader_epoch
                elif issubclass(error, kafka.errors.AuthorizationError):
                    raise error(topic.name)
                # Anything else is a leader that is moving: to be asked again.
        return offsets

    def _ends_of_epochs(
        self, leader: int, epochs: Mapping[TopicPartition, int], patience: Patience
    ) -> dict[TopicPartition, int]:
        new_partition = OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition
        by_topic = defaultdict(list)
        for key, epoch in epochs.items():
            # With the current epoch, a broker that does not know yet that it is the leader answers, too.
            current = self.leader_epochs.get(key, -1)
            partition = new_partition(partition=key.partition, current_leader_epoch=current, leader_epoch=epoch)
            by_topic[key.topic].append(partition)
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=list(by_topic.items()))
        try:
            topics = self._ask_leader(request, leader, patience)
        except (kafka.errors.IncompatibleBrokerVersion, kafka.errors.UnsupportedVersionError):
            return dict.fromkeys(epochs, _UNKNOWN_END)
        ends = {}
        for topic in topics:
            for partition in topic.partitions:
                key = TopicPartition(topic.topic, partition.partition)
                error = kafka.errors.for_code(partition.error_code)
                if error is kafka.errors.NoError:
                    ends[key] = partition.end_offset
                elif error is kafka.errors.FencedLeaderEpochError:
                    self.leader_epochs.pop(key, None)  # a later leader's answer is as good
                elif not error.retriable:  # the right to read suffices; but some brokers are not Kafka's own
                    ends[key] = _UNKNOWN_END
                # Anything else is a leader that is moving: to be asked again.
        return ends

    def _ask_leader(self, request: object, leader: int, patience: Patience) -> Answered:
        """Return the topics in a leader's answer; empty without an answer, to ask again."""
        try:
            # Not all of the time: if a leader does not answer, another one may be elected.
            return self._send(request, leader, patience.limited_to(max(_TRY_MS, patience.left_ms / 2))).topics
        except _NodeFailedError:
            return ()

    def _ask(self, new_request: Callable[[], object], patience: Patience, *, first: NodeId | None = None) -> Answered:
        """Return any broker's answer: they are asked in turn, `first` first and failed ones last.

        Each gets a new request, in a version that it knows.
        """
        try_ms = _TRY_MS
        while True:
            nodes = self._manager.nodes()
            nodes.sort(key=lambda node: node != first)
            for place, node in enumerate(nodes):
                # A server that is silent takes no more than its share of the time.
                share = min(try_ms, patience.left_ms / (len(nodes) - place)) if len(nodes) > 1 else patience.left_ms
                try:
                    return self._send(new_request(), node, patience.limited_to(share))
                except _NodeFailedError:
                    patience.check()
            self._pause(patience)
            try_ms *= 2

    def _pause(self, patience: Patience) -> None:
        patience.check()
        time.sleep(min(_PAUSE_SECONDS, patience.left_ms / 1000))
        patience.log_if_due()

    def _send(self, request: object, node: NodeId, patience: Patience) -> Answered:
        """Return a node's answer to a request.

        Raises:
            _NodeFailedError: there is no answer; `patience` knows why.
        """
        sent: list[Future] = []
        began = time.monotonic()

        async def response() -> object:
            if not sent:
                sent.append(self._manager.send(request, node_id=node))
            return await self._manager.wait_for(sent[0], patience.pause_ms)

        while True:
            try:
                answer = self._net.run(response)
            except kafka.errors.KafkaError as error:
                is_timeout = isinstance(error, kafka.errors.KafkaTimeoutError)
                is_pause = is_timeout and sent and not sent[0].is_done
                if (is_pause and not patience.is_over) or (sent and sent[0].succeeded()):
                    patience.log_if_due()
                    continue
                if is_final(error) and not self._has_another_token(error, patience):
                    raise
                self._manager.failed(node)
                address, seconds = self._manager.address(node), time.monotonic() - began
                # Not worth reporting: a pause after a failure, or the end of the time soon after the try began.
                is_short = seconds < _PAUSE_SECONDS and patience.has_failures
                is_cut = is_timeout and (is_short or patience.is_cut_short(address, seconds))
                if not is_cut and not isinstance(error, kafka.errors.NodeNotReadyError):
                    cause = cause_of(error, self._protocol, accepted=node in self._manager.accepted)
                    has_part = is_timeout and self._manager.has_part_of_answer(node)
                    patience.failed(address, _PART_OF_ANSWER if has_part else cause)
                raise _NodeFailedError from error
            self._manager.answered(node)
            return answer

    def _has_another_token(self, error: kafka.errors.KafkaError, patience: Patience) -> bool:
        """Whether brokers refuse the token and there is another one to try."""
        provider = self._settings.get("sasl_oauth_token_provider")
        is_refused = isinstance(error, AUTHENTICATION_ERRORS)
        return is_refused and isinstance(provider, TokenProvider) and provider.replace(patience)


class _NodeFailedError(Exception):
    """A node did not answer."""


def _metadata_request(names: Iterable[str] | None) -> Callable[[], MetadataRequest]:
    topic_class = MetadataRequest.MetadataRequestTopic
    topics = None if names is None else [topic_class(name=name) for name in names]
    return lambda: MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def _error_of(topic: Answered) -> type[kafka.errors.KafkaError]:
    error: type[kafka.errors.KafkaError] = kafka.errors.for_code(topic.error_code)
    return error


def _topic_id_of(topic: Answered) -> str | None:
    """Return a topic's id in the format of `kafka-topics.sh --describe`; None if the answer has none."""
    topic_id = topic.topic_id
    if _error_of(topic) is not kafka.errors.NoError or not isinstance(topic_id, uuid.UUID) or not topic_id.int:
        return None
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def _waits(topics: Mapping[str, Answered], name: str) -> bool:
    """Whether a topic may exist soon: it is new, or its leaders are being elected."""
    error = _error_of(topics[name]) if name in topics else kafka.errors.UnknownTopicOrPartitionError
    return error is not kafka.errors.UnknownTopicOrPartitionError and bool(error.retriable)


def _exists(name: str, topic: Answered | None) -> bool:
    if topic is None:
        return False
    error = _error_of(topic)
    if error is kafka.errors.InvalidTopicError:
        raise OptionError(f"'{name}' is not a valid Kafka topic name")
    if error is kafka.errors.NoError or error is kafka.errors.UnknownTopicOrPartitionError:
        return error is kafka.errors.NoError
    raise error(name)
