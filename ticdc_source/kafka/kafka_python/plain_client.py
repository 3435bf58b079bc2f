"""A client by kafka-python's public names only, for versions that are built otherwise than the tested one.

It returns the same rows. It lacks what `network_client.py` adds: a refused login or an untrusted certificate is
reported as brokers that do not answer in time; every look-up lists all topics; and a topic that is deleted while it is
read is created anew, if the brokers create topics on request.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

import kafka.errors
from kafka import KafkaConsumer, OffsetAndMetadata
from kafka import TopicPartition as KafkaTopicPartition

from ticdc_source.errors import KafkaUnavailableError
from ticdc_source.events import Chunk
from ticdc_source.kafka.api import ClientConfig
from ticdc_source.kafka.batches.cut import ChunkLimits
from ticdc_source.kafka.client import PartitionReader, Topic, UnknownPartitionsError
from ticdc_source.kafka.kafka_python import library
from ticdc_source.kafka.kafka_python.compatibility import facts
from ticdc_source.kafka.kafka_python.errors import our_errors, translated
from ticdc_source.kafka.kafka_python.readers import RecordReader
from ticdc_source.kafka.kafka_python.settings import connection_settings, consumer_settings, silence
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.ranges import EARLIEST, LATEST
from ticdc_source.options.topics import TopicPartition

__all__ = ["PlainClient"]

Answer = TypeVar("Answer")

_SECOND_LOOK_SECONDS = 0.2


class PlainClient:
    """The `Client` by `KafkaConsumer`s.

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
        self._bootstrap_timeout_ms: int = config["bootstrap_timeout_ms"]
        self._settings = consumer_settings(connection_settings(config))
        if str(self._settings["security_protocol"]).startswith("SASL"):
            # Which loggers of this version log what is sent is not known.
            silence(name for name in list(logging.root.manager.loggerDict) if name.split(".")[0] == "kafka")
        self._committer: library.Consumer | None = None
        self._consumer = self._new_consumer(None)

    def close(self) -> None:
        """Close the connections; safe to repeat."""
        for consumer in (self._consumer, self._committer):
            if consumer is not None:
                consumer.close(autocommit=False)

    def reader(self, offset_range: OffsetRange, limits: ChunkLimits, timeout_ms: float) -> PartitionReader:
        """Return a reader; see `Client.reader`."""
        try:
            self._check_existing([offset_range.topic_partition], timeout_ms)
        except UnknownPartitionsError:  # a consumer that is assigned one may create it
            return _AbsentReader(offset_range.start)
        return RecordReader(self._consumer, offset_range, limits, self.servers, self.timeout_ms)

    def _new_consumer(self, group: str | None) -> library.Consumer:
        settings = {
            **self._settings,
            "group_id": group,
            "enable_auto_commit": False,
            "allow_auto_create_topics": False,
        }
        clients = []
        make = settings.get("kafka_client")
        if callable(make):  # its constructor closes nothing when it fails

            def remembered(**configs: object) -> object:
                clients.append(make(**configs))
                return clients[-1]

            settings["kafka_client"] = remembered
        try:
            consumer: library.Consumer = _in_time(lambda: KafkaConsumer(**settings), self._bootstrap_timeout_ms)
        except BaseException as error:
            for client in clients:
                client.close()
            if isinstance(error, Exception):
                raise translated(error, self.servers, self._bootstrap_timeout_ms) from error
            raise
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
        """Look up topics; see `Client.topics`. An invalid name is one of a topic that does not exist."""
        return self._topics(names, self.timeout_ms)

    def _topics(self, names: Iterable[str] | None, timeout_ms: float) -> dict[str, Topic]:
        with our_errors(self.servers, self.timeout_ms):
            visible = _in_time(self._consumer.topics, timeout_ms)  # all of them, so that none is created
            found = {}
            for name in visible if names is None else names:
                numbers = self._consumer.partitions_for_topic(name)
                if numbers:
                    topic_partitions = tuple(TopicPartition(name, number) for number in sorted(numbers))
                    found[name] = Topic(name, topic_partitions, name not in visible)
        return found

    def offsets(
        self, times: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Look up offsets; see `Client.offsets`."""
        limit_ms = self.timeout_ms if timeout_ms is None else timeout_ms
        self._check_existing(times, limit_ms)
        found: dict[TopicPartition, int] = {}
        look_ups: dict[int, Callable[..., dict[TopicPartition, int]]] = {
            EARLIEST: self._consumer.beginning_offsets,
            LATEST: self._consumer.end_offsets,
        }
        with our_errors(self.servers, self.timeout_ms):
            for at, look_up in look_ups.items():
                asked = [KafkaTopicPartition(*key) for key in times if times[key] == at]
                found.update(self._complete(look_up, asked, limit_ms))
            at_times = {KafkaTopicPartition(*key): at for key, at in times.items() if at not in look_ups}
            answers = self._consumer.offsets_for_times(at_times, timeout_ms=limit_ms) if at_times else {}
            without = [key for key in at_times if answers.get(key) is None]
            # An answer is None also for a partition without a leader: then this one fails.
            self._complete(self._consumer.end_offsets, without, limit_ms)
            for key in at_times:
                answer = answers.get(key)
                found[key] = -1 if answer is None else answer.offset
        return {TopicPartition(*key): offset for key, offset in found.items()}

    def _complete(
        self,
        look_up: Callable[..., dict[TopicPartition, int]],
        topic_partitions: list[TopicPartition],
        timeout_ms: float,
    ) -> dict[TopicPartition, int]:
        """Look up offsets of partitions, or fail."""
        if not topic_partitions:
            return {}
        try:
            return look_up(topic_partitions, timeout_ms=timeout_ms)
        except KeyError as error:  # kafka-python's own, for a partition without a leader
            msg = f"no leader for {', '.join(f'{key.topic}-{key.partition}' for key in topic_partitions)}"
            raise kafka.errors.LeaderNotAvailableError(msg) from error

    def _check_existing(self, topic_partitions: Iterable[TopicPartition], timeout_ms: float) -> None:
        """Fail for partitions that do not exist: kafka-python would look them up until the time is over."""
        asked = set(topic_partitions)
        names = sorted({key.topic for key in asked})
        for is_second_look in (False, True):
            existing = {key for topic in self._topics(names, timeout_ms).values() for key in topic.partitions}
            if not asked - existing:
                return
            if not is_second_look:  # a broker that has just started may not know its topics yet
                time.sleep(_SECOND_LOOK_SECONDS)
        raise UnknownPartitionsError(asked - existing)


def _in_time(call: Callable[[], Answer], timeout_ms: float) -> Answer:
    """Return what a call returns that has no time-out of its own; if it takes too long, it goes on in a thread.

    Closing the client ends that thread.

    Raises:
        kafka.errors.KafkaTimeoutError: it took too long.
    """
    done = threading.Event()
    answers: list[Answer] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(call())
        except BaseException as error:  # noqa: BLE001 (raised below)
            errors.append(error)
        done.set()

    threading.Thread(target=run, name="ticdc-look-up", daemon=True).start()
    if not done.wait(timeout_ms / 1000):
        msg = f"no answer in {timeout_ms:.0f} ms"
        raise kafka.errors.KafkaTimeoutError(msg)
    if errors:
        raise errors[0]
    return answers[0]


class _AbsentReader:
    """The reader of a topic partition that does not exist: no record arrives."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def seek(self, offset: int) -> None:
        """Continue at another offset."""
        self._offset = offset

    def poll(self, timeout_ms: float, max_records: int) -> tuple[Iterator[Chunk] | None, int]:
        """Wait for nothing; see `PartitionReader.poll`."""
        del max_records
        time.sleep(timeout_ms / 1000)
        return None, self._offset
