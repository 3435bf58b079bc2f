"""A client by kafka-python's public names only, for versions that are built otherwise than the tested one.

It returns the same rows. It lacks what `network_client.py` adds: why a server fails is known only from the library's
log, which says "disconnected" for a refused login; a request goes to the broker that the library chooses, also to one
that is frozen, which delays a read by up to half a minute or ends it; every look-up
lists all topics; a topic that is deleted while it is read is created anew, if the brokers create topics on request; and
no public name of `KafkaConsumer` tells the ids of topics.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import kafka.errors
from kafka import KafkaConsumer, OffsetAndMetadata
from kafka import TopicPartition as KafkaTopicPartition

from ticdc_source.errors import KafkaUnavailableError, OptionError
from ticdc_source.events import Chunk
from ticdc_source.kafka.api import ClientConfig
from ticdc_source.kafka.batches.cut import ChunkLimits
from ticdc_source.kafka.client import BrokerFacts, NoAnswerError, PartitionReader, Topic, UnknownPartitionsError
from ticdc_source.kafka.kafka_python import library
from ticdc_source.kafka.kafka_python.compatibility import facts
from ticdc_source.kafka.kafka_python.errors import cause_of, is_final, is_timeout, our_errors
from ticdc_source.kafka.kafka_python.groups import committed_offsets
from ticdc_source.kafka.kafka_python.logins import LoginSession
from ticdc_source.kafka.kafka_python.readers import RecordReader
from ticdc_source.kafka.kafka_python.settings import connection_settings, consumer_settings, silence
from ticdc_source.kafka.patience import Limit, Patience
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.ranges import EARLIEST, LATEST
from ticdc_source.options.topics import TopicPartition

__all__ = ["PlainClient"]

Answer = TypeVar("Answer")

_SECOND_LOOK_SECONDS = 0.2
_TRY_MS = 3_000.0  # how long a server may take at the first try
_LOOK_MS = 200.0  # how often what the library logs is looked at


class PlainClient:
    """The `Client` by `KafkaConsumer`s.

    Args:
        config: what `client_config` returned.
        patience: how long to wait for a broker.

    Raises:
        KafkaUnavailableError: no broker answered in time.
        OptionError: a certificate file cannot be read, or the brokers refuse the login.
    """

    def __init__(self, config: ClientConfig, patience: Patience) -> None:
        self.servers = ",".join(config["bootstrap_servers"])
        self.facts = facts()
        self.topic_ids: Mapping[str, str] = {}
        self._timeout_ms: int = config["default_api_timeout_ms"]
        self._protocol: str = config.get("security_protocol", "PLAINTEXT")
        self._settings = consumer_settings(connection_settings(config))
        self._login = LoginSession(config, patience)
        self._settings.update(self._login.settings)
        if str(self._settings["security_protocol"]).startswith("SASL"):
            # Which loggers of this version log what is sent is not known.
            silence(name for name in list(logging.root.manager.loggerDict) if name.split(".")[0] == "kafka")
        self._committer: library.Consumer | None = None
        try:
            self._consumer = self._new_consumer(None, patience)
        except BaseException as error:
            if isinstance(error, OptionError):
                self._login.forget()
            self._login.close()
            raise

    def close(self) -> None:
        """Close the connections; safe to repeat."""
        for consumer in (self._consumer, self._committer):
            if consumer is not None:
                consumer.close(autocommit=False)
        self._login.close()

    def reader(self, offset_range: OffsetRange, limits: ChunkLimits, patience: Patience) -> PartitionReader:
        """Return a reader; see `Client.reader`."""
        try:
            self._check_existing([offset_range.topic_partition], patience)
        except UnknownPartitionsError:  # a consumer that is assigned one may create it
            return _AbsentReader(offset_range.start)
        return RecordReader(self._consumer, offset_range, limits, self.servers)

    def _new_consumer(self, group: str | None, patience: Patience) -> library.Consumer:
        servers = self.servers.split(",")
        random.shuffle(servers)
        try_ms = _TRY_MS
        while True:
            for place, server in enumerate(servers):
                # kafka-python tries a random one again and again, also one that is silent.
                share = patience.left_ms / (len(servers) - place)
                try:
                    part = patience.limited_to(share if len(servers) == 1 else min(try_ms, share))
                    return self._consumer_at(server, group, part)
                except KafkaUnavailableError:
                    patience.check()
            try_ms *= 2

    def _consumer_at(self, server: str, group: str | None, patience: Patience) -> library.Consumer:
        settings = {
            **self._settings,
            "bootstrap_servers": [server],
            "group_id": group,
            "enable_auto_commit": False,
            "allow_auto_create_topics": False,
            "bootstrap_timeout_ms": patience.left_ms,
        }
        clients = []
        make = settings.get("kafka_client")
        if callable(make):  # its constructor closes nothing when it fails

            def remembered(**configs: object) -> object:
                clients.append(make(**configs))
                return clients[-1]

            settings["kafka_client"] = remembered
        try:
            with our_errors(self.servers):
                consumer: library.Consumer = self._in_time(lambda: KafkaConsumer(**settings), patience, server)
        except BaseException:
            for client in clients:
                client.close()
            raise
        return consumer

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets; see `Client.commit`."""
        limit = Limit(self._timeout_ms, "kafka.default.api.timeout.ms")
        if self._committer is None:
            self._committer = self._new_consumer(group, Patience(self.servers, "a commit is pending", limit))
        try:
            kafka_offsets = {KafkaTopicPartition(*key): OffsetAndMetadata(at, "", -1) for key, at in offsets.items()}
            self._committer.commit(kafka_offsets, timeout_ms=self._timeout_ms)
        except kafka.errors.KafkaError as error:
            raise KafkaUnavailableError(str(error)) from error

    def committed(self, group: str, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return committed offsets; see `Client.committed`."""
        limit = Limit(self._timeout_ms, "kafka.default.api.timeout.ms")
        consumer = self._new_consumer(group, Patience(self.servers, "committed offsets are looked up", limit))
        try:
            with our_errors(self.servers):
                return committed_offsets(consumer, topic_partitions, self._timeout_ms)
        finally:
            consumer.close(autocommit=False)

    def brokers(self, patience: Patience) -> BrokerFacts:
        """Look up the brokers; see `Client.brokers`."""
        del patience
        return BrokerFacts()  # no public name tells

    def topics(self, names: Iterable[str] | None, patience: Patience) -> dict[str, Topic]:
        """Look up topics; see `Client.topics`. An invalid name is one of a topic that does not exist."""
        with our_errors(self.servers, repeats=True):
            visible = self._in_part(self._consumer.topics, patience)  # all of them, so that none is created
            found = {}
            for name in visible if names is None else names:
                numbers = self._consumer.partitions_for_topic(name)
                if numbers:
                    topic_partitions = tuple(TopicPartition(name, number) for number in sorted(numbers))
                    found[name] = Topic(name, topic_partitions, name not in visible)
        return found

    def offsets(self, times: Mapping[TopicPartition, int], patience: Patience) -> dict[TopicPartition, int]:
        """Look up offsets; see `Client.offsets`."""
        self._check_existing(times, patience)
        found: dict[TopicPartition, int] = {}
        look_ups: dict[int, Callable[..., dict[TopicPartition, int]]] = {
            EARLIEST: self._consumer.beginning_offsets,
            LATEST: self._consumer.end_offsets,
        }
        with our_errors(self.servers, repeats=True):
            for at, look_up in look_ups.items():
                asked = [KafkaTopicPartition(*key) for key in times if times[key] == at]
                found.update(self._complete(look_up, asked, patience))
            at_times = {KafkaTopicPartition(*key): at for key, at in times.items() if at not in look_ups}
            answers = {}
            if at_times:
                answers = self._in_part(
                    lambda: self._consumer.offsets_for_times(at_times, timeout_ms=patience.left_ms), patience
                )
            without = [key for key in at_times if answers.get(key) is None]
            # An answer is None also for a partition without a leader: then this one fails.
            self._complete(self._consumer.end_offsets, without, patience)
            for key in at_times:
                answer = answers.get(key)
                found[key] = -1 if answer is None else answer.offset
        return {TopicPartition(*key): offset for key, offset in found.items()}

    def _complete(
        self,
        look_up: Callable[..., dict[TopicPartition, int]],
        topic_partitions: list[TopicPartition],
        patience: Patience,
    ) -> dict[TopicPartition, int]:
        """Look up offsets of partitions, or fail."""
        if not topic_partitions:
            return {}
        try:
            return self._in_part(lambda: look_up(topic_partitions, timeout_ms=patience.left_ms), patience)
        except KeyError as error:  # kafka-python's own, for a partition without a leader
            msg = f"no leader for {', '.join(f'{key.topic}-{key.partition}' for key in topic_partitions)}"
            raise kafka.errors.LeaderNotAvailableError(msg) from error

    def _check_existing(self, topic_partitions: Iterable[TopicPartition], patience: Patience) -> None:
        """Fail for partitions that do not exist: kafka-python would look them up until the time is over."""
        asked = set(topic_partitions)
        names = sorted({key.topic for key in asked})
        for is_second_look in (False, True):
            existing = {key for topic in self.topics(names, patience).values() for key in topic.partitions}
            if not asked - existing:
                return
            if not is_second_look:  # a broker that has just started may not know its topics yet
                time.sleep(_SECOND_LOOK_SECONDS)
        raise UnknownPartitionsError(asked - existing)

    def _in_part(self, call: Callable[[], Answer], patience: Patience) -> Answer:
        """Return what a call returns, in a part of the time: then a new client may meet a broker that answers.

        Raises:
            NoAnswerError: it took longer.
        """
        try:
            return self._in_time(call, patience.limited_to(max(_TRY_MS, patience.left_ms / 2)), self.servers)
        except KafkaUnavailableError as error:
            patience.check()
            raise NoAnswerError(self.servers, "no answer") from error

    def _in_time(self, call: Callable[[], Answer], patience: Patience, server: str) -> Answer:
        """Return what a call returns that has no time-out of its own; if it takes too long, it goes on in a thread.

        Closing the client ends that thread.

        Raises:
            KafkaUnavailableError: it took too long.
            kafka.errors.KafkaError: whatever the call raises.
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

        with _failures_in_log() as failures:
            threading.Thread(target=run, name="ticdc-look-up", daemon=True).start()
            while not done.wait(min(patience.pause_ms, _LOOK_MS) / 1000):
                self._tell(failures, patience, server)
                patience.check()
            self._tell(failures, patience, server)
        if errors and (patience.is_over or is_timeout(errors[0])):
            raise patience.error() from errors[0]
        if errors:
            raise errors[0]
        return answers[0]

    def _tell(self, failures: list[BaseException], patience: Patience, server: str) -> None:
        """Tell `patience` what the library has logged.

        Raises:
            kafka.errors.KafkaError: another try would not help.
        """
        while failures:
            error = failures.pop(0)
            if is_final(error):
                raise error
            # With SASL, a server that closes the connection again and again most likely refuses the login.
            patience.failed(server, cause_of(error, self._protocol, accepted=self._protocol.startswith("SASL")))
        patience.log_if_due()


@contextmanager
def _failures_in_log() -> Iterator[list[BaseException]]:
    """Collect the errors that kafka-python logs meanwhile: there is no other public way to learn why it waits."""
    failures: list[BaseException] = []

    class Collector(logging.Handler):
        last: BaseException | None = None

        def emit(self, record: logging.LogRecord) -> None:
            arguments = record.args if isinstance(record.args, tuple) else ()
            for argument in arguments:
                # A failure is logged several times, and the end of kafka-python's own patience is none.
                if not isinstance(argument, BaseException) or argument is self.last:
                    continue
                if argument.args and not is_timeout(argument):
                    self.last = argument
                    failures.append(argument)

    collector = Collector(logging.WARNING)
    logger = logging.getLogger("kafka")
    logger.addHandler(collector)
    try:
        yield failures
    finally:
        logger.removeHandler(collector)


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
