"""A client by kafka-python's public names only, for versions that are built otherwise than the tested one.

It returns the same rows. It lacks what `network_client.py` adds. No public name tells why kafka-python waits, so each
server is looked at with a connection of our own first (`kafka.probe`), and a login that fails without a reason can only
be suspected. A request goes to the broker that the library chooses, also to one that is frozen, which delays a read by
up to half a minute or ends it. Every look-up lists all topics. A topic that is deleted while it is read is created
anew, if the brokers create topics on request. And no public name of `KafkaConsumer` tells the ids of topics, or the
epochs of leaders.
"""

from __future__ import annotations

import logging
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import TypeVar

import kafka.errors
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition

from ticdc_source.errors import KafkaUnavailableError, OptionError
from ticdc_source.options.kafka_client import ClientSettings
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.ranges import EARLIEST, LATEST
from ticdc_source.options.topics import TopicPartition, listed
from ticdc_source.sources.chunk import Chunk
from ticdc_source.sources.kafka.batches.cut import ChunkLimits
from ticdc_source.sources.kafka.client import BrokerFacts, NoAnswerError, PartitionReader, Topic, UnknownPartitionsError
from ticdc_source.sources.kafka.kafka_python import library
from ticdc_source.sources.kafka.kafka_python.compatibility import facts
from ticdc_source.sources.kafka.kafka_python.consumers import (
    commit_offsets,
    committed_offsets,
    consumer_settings,
    silence,
)
from ticdc_source.sources.kafka.kafka_python.library_errors import (
    cause_of,
    is_final,
    is_timeout,
    no_entry,
    other_answer,
    our_errors,
)
from ticdc_source.sources.kafka.kafka_python.readers import RecordReader
from ticdc_source.sources.kafka.kafka_python.sasl import LoginSession
from ticdc_source.sources.kafka.patience import Cause, Limit, Patience
from ticdc_source.sources.kafka.probe import Spoken, probe

__all__ = ["PlainClient"]

Answer = TypeVar("Answer")

_SECOND_LOOK_SECONDS = 0.2
_TRY_MS = 3_000.0  # how long a server may take at the first try
_PAUSE_SECONDS = 0.2  # between two rounds of all servers
_LEAST_SECONDS = 0.05  # to look at a server; without any time a socket does not even begin to connect


class PlainClient:
    """The `Client` by `KafkaConsumer`s.

    `connect` says what it takes and raises.
    """

    def __init__(self, settings: ClientSettings, patience: Patience) -> None:
        self.servers = ",".join(settings.bootstrap_servers)
        self.facts = facts()
        self.topic_ids: Mapping[str, str] = {}
        self.leader_epochs: Mapping[TopicPartition, int] = {}
        self._timeout_ms = settings.default_api_timeout_ms
        self._protocol = settings.security_protocol
        self._settings = consumer_settings(settings)
        self._login = LoginSession(settings, patience)
        self._settings.update(self._login.settings)
        if settings.login is not None:
            # Which loggers of this version log what is sent is not known.
            silence(name for name in list(logging.root.manager.loggerDict) if name.split(".")[0] == "kafka")
        self._groups: dict[str, library.Consumer] = {}  # for the offsets that a group has committed
        try:
            self._consumer = self._new_consumer(None, patience)
        except BaseException as error:
            if isinstance(error, OptionError):
                self._login.forget()
            self._login.close()
            raise

    def close(self) -> None:
        """Close the connections; safe to repeat."""
        for consumer in (self._consumer, *self._groups.values()):
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
                part = patience.limited_to(share if len(servers) == 1 else min(try_ms, share))
                with our_errors(self.servers):
                    cause = self._failure_at(server, part)
                    if cause is None:
                        try:
                            return self._consumer_at(server, group, part)
                        except KafkaUnavailableError:
                            cause = no_entry(self._protocol)
                patience.failed(server, cause)
                patience.check()
            time.sleep(min(_PAUSE_SECONDS, patience.left_ms / 1000))
            patience.check()
            try_ms *= 2

    def _failure_at(self, server: str, patience: Patience) -> Cause | None:
        """Look at a server with a connection of our own, and return why kafka-python would wait for it.

        Raises:
            OSError: its certificate is not trusted.
            kafka.errors.UnsupportedSaslMechanismError: it has no such login.
        """
        if self._settings["proxy_url"] is not None:  # which may know names and ways that are not known here
            return None
        if (
            self._settings.get("client_dns_lookup") == "resolve_canonical_bootstrap_servers_only"
        ):  # another name is checked
            return None
        host, _, port = server.rpartition("://")[2].rpartition(":")
        host = host.strip("[]")
        tls = self._settings.get("ssl_context")
        try:
            with ExitStack() as open_probes:
                connection = open_probes.enter_context(
                    probe(host, int(port), max(patience.left_ms / 1000, _LEAST_SECONDS))
                )
                if isinstance(tls, ssl.SSLContext):
                    connection = open_probes.enter_context(connection.with_tls(tls, host))
                spoken = connection.greet()
                mechanisms = connection.mechanisms() if self._protocol.startswith("SASL") else None
        except OSError as error:
            if is_final(error):
                raise
            return cause_of(error, self._protocol, accepted=self._protocol.startswith("SASL"))
        if spoken is not Spoken.KAFKA:
            return other_answer(self._protocol, is_alert=spoken is Spoken.TLS)
        if mechanisms and self._settings["sasl_mechanism"] not in mechanisms:
            msg = f"the listener takes {', '.join(mechanisms)}"
            raise kafka.errors.UnsupportedSaslMechanismError(msg)
        return None

    def _consumer_at(self, server: str, group: str | None, patience: Patience) -> library.Consumer:
        settings = {
            **self._settings,
            "bootstrap_servers": [server],
            "group_id": group,
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
            consumer: library.Consumer = self._in_time(lambda: KafkaConsumer(**settings), patience)
        except BaseException:
            for client in clients:
                client.close()
            raise
        return consumer

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets; see `Client.commit`."""
        commit_offsets(self._of_group(group), offsets, self._timeout_ms)

    def committed(self, group: str, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return committed offsets; see `Client.committed`."""
        with our_errors(self.servers):
            return committed_offsets(self._of_group(group), topic_partitions, self._timeout_ms)

    def _of_group(self, group: str) -> library.Consumer:
        """Return the consumer that commits and looks up a group's offsets."""
        if group not in self._groups:
            limit = Limit(self._timeout_ms, "kafka.default.api.timeout.ms")
            self._groups[group] = self._new_consumer(group, Patience(self.servers, "a group is looked up", limit))
        return self._groups[group]

    def brokers(self, patience: Patience) -> BrokerFacts:
        """Look up the brokers; see `Client.brokers`."""
        del patience
        return BrokerFacts()  # no public name tells

    def topics(self, names: Iterable[str] | None, patience: Patience) -> dict[str, Topic]:
        """Look up topics; see `Client.topics`. An invalid name is one of a topic that does not exist."""
        with our_errors(self.servers, repeats=True):
            visible = self._in_part(self._consumer.topics, patience)  # all of them, so that none is created
            topics = {}
            for name in visible if names is None else names:
                numbers = self._consumer.partitions_for_topic(name)
                if numbers:
                    topic_partitions = tuple(TopicPartition(name, number) for number in sorted(numbers))
                    topics[name] = Topic(name, topic_partitions, name not in visible)
        return topics

    def offsets(self, times: Mapping[TopicPartition, int], patience: Patience) -> dict[TopicPartition, int]:
        """Look up offsets; see `Client.offsets`."""
        self._check_existing(times, patience)
        offsets: dict[TopicPartition, int] = {}
        look_ups: dict[int, Callable[..., dict[TopicPartition, int]]] = {
            EARLIEST: self._consumer.beginning_offsets,
            LATEST: self._consumer.end_offsets,
        }
        with our_errors(self.servers, repeats=True):
            for at, look_up in look_ups.items():
                asked = [KafkaTopicPartition(*key) for key in times if times[key] == at]
                offsets.update(self._complete(look_up, asked, patience))
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
                offsets[key] = -1 if answer is None else answer.offset
        return {TopicPartition(*key): offset for key, offset in offsets.items()}

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
            msg = f"no leader for {listed(f'{key.topic}-{key.partition}' for key in topic_partitions)}"
            raise kafka.errors.LeaderNotAvailableError(msg) from error

    def ends_of_epochs(self, epochs: Mapping[TopicPartition, int], patience: Patience) -> dict[TopicPartition, int]:
        """Return nothing; see `Client.ends_of_epochs`."""
        del epochs, patience
        return {}

    def topic_ids_at_leaders(
        self, topic_partitions: Iterable[TopicPartition], patience: Patience
    ) -> dict[TopicPartition, str]:
        """Return nothing; see `Client.topic_ids_at_leaders`."""
        del topic_partitions, patience
        return {}

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
            return self._in_time(call, patience.limited_to(max(_TRY_MS, patience.left_ms / 2)))
        except KafkaUnavailableError as error:
            patience.check()
            raise NoAnswerError(self.servers, "no answer") from error

    def _in_time(self, call: Callable[[], Answer], patience: Patience) -> Answer:
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

        threading.Thread(target=run, name="ticdc-look-up", daemon=True).start()
        while not done.wait(patience.pause_ms / 1000):
            patience.log_if_due()
            patience.check()
        if errors and (patience.is_over or is_timeout(errors[0])):
            raise patience.error() from errors[0]
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
