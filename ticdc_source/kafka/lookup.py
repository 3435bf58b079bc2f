"""On the driver: the partitions there are, the offsets they have, and the offset ranges of a batch read."""

from __future__ import annotations

import difflib
import logging
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import kafka.errors

from ticdc_source.errors import DataLossError, OptionError, TiCDCSourceError
from ticdc_source.kafka.kafka_python.client import Client, translated
from ticdc_source.options.kafka_client import client_config
from ticdc_source.options.offsets import OffsetRange, clip, ranges_between
from ticdc_source.options.ranges import EARLIEST, LATEST, Moment, by_partition, end_spec, start_spec
from ticdc_source.options.topics import Assign, Subscribe, SubscribePattern, TopicPartition, topic_choice

__all__ = ["DATA_LOSS", "KafkaCluster"]

DATA_LOSS = (
    "Some data may have been lost because they are not available in Kafka any more; either the data was "
    "aged out by Kafka or the topic may have been deleted before all the data in the topic was processed. "
    "If you don't want your query to fail on such cases, set the source option failOnDataLoss to false. "
    "Reason: "
)

# A topic that was made a moment ago is not yet known to every broker: a missing one is looked for twice.
_log = logging.getLogger(__name__)
_SECOND_LOOK_SECONDS = 0.5

Answer = TypeVar("Answer")


class KafkaCluster(AbstractContextManager["KafkaCluster"]):
    """Look-ups for one read; connects at the first one. A context manager.

    A look-up takes at most `default.api.timeout.ms`, and as long for each repetition; finding the brokers at
    all takes at most `bootstrap.timeout.ms` and is not repeated.

    Every look-up is repeated `fetchOffset.numRetries` times, `fetchOffset.retryIntervalMs` apart and each
    time with a new client (as Spark's does), but for errors that trying again does not mend. Nothing is
    created on the brokers.

    Args:
        options: the read's `Options`.
        config: what `client_config` returned, to do without its warnings a second time.

    Raises:
        OptionError: from the constructor as `client_config`; from every look-up when the login is refused,
            the certificate not trusted, or the user not permitted.
        KafkaUnavailableError: from every look-up when the brokers do not answer in time.
    """

    def __init__(self, options: Any, config: Mapping[str, Any] | None = None) -> None:
        self._options = options
        self._config = client_config(options, driver=True) if config is None else config
        self._choice = topic_choice(options)
        self._client: Client | None = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the next look-up makes new ones."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def partitions(self, *, missing: bool = False) -> list[TopicPartition]:
        """Return the partitions to read, in the order of topic and number.

        Args:
            missing: what is not there is left out (a stream waits for it), rather than an error.

        Raises:
            OptionError: a topic or partition does not exist (or the user may not see it), or no name matches.
        """
        match self._choice:
            case Subscribe(topics):
                there = self._look_up(lambda client: self._existing(client, topics, missing=missing))
                return sorted(place for places in there.values() for place in places)
            case Assign(wanted):
                names = sorted({place.topic for place in wanted})
                there = self._look_up(lambda client: self._existing(client, names, missing=missing))
                if missing:
                    return [place for place in wanted if place in there.get(place.topic, ())]
                for place in wanted:
                    if place not in there[place.topic]:
                        msg = (
                            f"Option 'assign': partition {place.partition} of topic '{place.topic}' does not "
                            f"exist; it has {len(there[place.topic])} partitions"
                        )
                        raise OptionError(msg)
                return list(wanted)
            case SubscribePattern(pattern):
                everything = self._look_up(lambda client: client.topics(None))
                matching = {
                    name: topic
                    for name, topic in everything.items()
                    if not topic.is_internal and pattern.fullmatch(name)
                }
                if not matching and not missing:
                    msg = f"Option 'subscribePattern': no topic matches '{pattern.pattern}' as a whole"
                    raise OptionError(msg)
                return sorted(place for topic in matching.values() for place in _places(topic))

    def earliest(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start of each partition.

        Raises:
            DataLossError: a partition is gone.
        """
        return self._offsets(dict.fromkeys(places, EARLIEST))

    def latest(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of each partition: with read_committed, of what is decided (the last stable offset).

        Raises:
            DataLossError: a partition is gone.
        """
        return self._offsets(dict.fromkeys(places, LATEST))

    def by_timestamp(self, times: Mapping[TopicPartition, int], *, or_latest: bool) -> dict[TopicPartition, int]:
        """Return the offset of each partition's first record at or after a time.

        Args:
            times: the times, in milliseconds since the epoch.
            or_latest: what to do where no record is that young: take the end, or fail.

        Raises:
            OptionError: there is none, and `or_latest` is off.
            DataLossError: a partition is gone.
        """
        found = self._offsets(times)
        for place in sorted(found):
            if found[place] < 0 and not or_latest:
                msg = (
                    f"No offset matched from request of topic-partition {place} and timestamp "
                    f"{times[place]}. Set the option startingOffsetsByTimestampStrategy to latest to start "
                    "at the end there."
                )
                raise OptionError(msg)
        missing = [place for place, offset in found.items() if offset < 0]
        return found | (self.latest(missing) if missing else {})

    def resolve_ranges(self) -> list[OffsetRange]:
        """Plan a batch read: one range for each partition, empty ones too, by topic and partition.

        Raises:
            OptionError: what was asked for does not fit the partitions there are, or makes no sense with
                them.
            DataLossError: offsets are asked for that are not there, and `failOnDataLoss` is on (else a
                warning says so, and the ranges hold what is there).
        """
        places = self.partitions()
        wanted_starts = by_partition(start_spec(self._options, streaming=False), places, "start")
        wanted_ends = by_partition(end_spec(self._options), places, "end")
        # In this order: what retention or new records change meanwhile can only make the answers overlap
        # more.
        earliest = self.earliest(places)
        or_latest = self._options.starting_offsets_by_timestamp_strategy == "latest"
        start_times = self._at_times(wanted_starts, or_latest=or_latest)
        end_times = self._at_times(wanted_ends, or_latest=True)
        latest = self.latest(places)
        starts = _resolved(wanted_starts, earliest, latest, start_times)
        ends = _resolved(wanted_ends, earliest, latest, end_times)
        starts, ends, lost = clip(starts, ends, earliest, latest)
        if lost:
            report_loss("; ".join(lost), fail=self._options.fail_on_data_loss)
        return ranges_between(starts, ends)

    def starts(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where a new stream starts in each partition, by the options; within what is there.

        Raises:
            OptionError: what was asked for does not fit the partitions there are.
            DataLossError: offsets are asked for that are not there, and `failOnDataLoss` is on.
        """
        places = list(places)
        if not places:
            return {}
        wanted = by_partition(start_spec(self._options, streaming=True), places, "start")
        earliest = self.earliest(places)
        or_latest = self._options.starting_offsets_by_timestamp_strategy == "latest"
        times = self._at_times(wanted, or_latest=or_latest)
        latest = self.latest(places)
        starts = _resolved(wanted, earliest, latest, times)
        starts, _, lost = clip(starts, latest, earliest, latest)
        if lost:
            report_loss("; ".join(lost), fail=self._options.fail_on_data_loss)
        return starts

    def everything(self) -> list[OffsetRange]:
        """Return all that is there: where a stream's schema is inferred from.

        Raises:
            OptionError: as `partitions`.
        """
        places = self.partitions()
        earliest = self.earliest(places)
        latest = self.latest(places)
        return [OffsetRange(*place, min(earliest[place], latest[place]), latest[place]) for place in places]

    def commit_group(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Write offsets down for a consumer group, for others to see; what goes wrong is only logged."""
        try:
            if self._client is None:
                self._client = Client(self._config)
            self._client.commit(group, offsets)
        except (kafka.errors.KafkaError, TiCDCSourceError, OSError, RuntimeError) as error:
            _log.warning("commitGroupOffsets: group %s was not told the offsets: %s", group, error)

    def _at_times(self, wanted: Mapping[TopicPartition, int | Moment], *, or_latest: bool) -> dict[TopicPartition, int]:
        times = {place: asked.time for place, asked in wanted.items() if isinstance(asked, Moment)}
        return self.by_timestamp(times, or_latest=or_latest) if times else {}

    def _existing(
        self, client: Client, names: Iterable[str], *, missing: bool = False
    ) -> dict[str, list[TopicPartition]]:
        """Return the partitions of these topics, all of which must exist unless `missing` is allowed."""
        names = list(names)
        for second_look in (False, True):
            there = client.topics(names)
            absent = []
            for name in names:
                error = kafka.errors.for_code(there[name].error_code if name in there else 3)
                if error is kafka.errors.UnknownTopicOrPartitionError:
                    absent.append(name)
                elif error is kafka.errors.InvalidTopicError:
                    msg = f"'{name}' is not a valid name of a Kafka topic"
                    raise OptionError(msg)
                elif error is not kafka.errors.NoError:
                    raise error(name)
            if not absent or missing:
                break
            if second_look:
                raise OptionError(_missing_message(absent, client))
            time.sleep(_SECOND_LOOK_SECONDS)
        return {name: _places(there[name]) for name in names if name not in absent}

    def _offsets(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        try:
            return self._look_up(lambda client: client.offsets(times))
        except kafka.errors.UnknownTopicOrPartitionError as error:
            gone = ", ".join(map(str, error.args[0]))
            msg = f"{DATA_LOSS}Partitions {gone} have been deleted."
            raise DataLossError(msg) from error

    def _look_up(self, ask: Callable[[Client], Answer]) -> Answer:
        """Ask with the client there is, or with new ones."""
        retries = self._options.fetch_offset_num_retries
        while True:
            if self._client is None:
                self._client = Client(self._config)  # has its own time-out, and is not tried again after it
            client = self._client
            try:
                return ask(client)
            except (kafka.errors.UnknownTopicOrPartitionError, TiCDCSourceError):
                raise
            except (kafka.errors.KafkaError, OSError, RuntimeError) as error:
                self.close()
                failed = translated(error, client.servers, client.timeout_ms)
                if retries <= 0 or isinstance(failed, OptionError):
                    raise failed from error
            retries -= 1
            time.sleep(self._options.fetch_offset_retry_interval_ms / 1000)


def report_loss(reason: str, *, fail: bool) -> None:
    """Fail, or warn, as `failOnDataLoss` says.

    Raises:
        DataLossError: `fail` is on.
    """
    if fail:
        raise DataLossError(DATA_LOSS + reason)
    warnings.warn(f"Data has been lost (failOnDataLoss is off, what is left is read): {reason}", stacklevel=3)


def _resolved(
    wanted: Mapping[TopicPartition, int | Moment],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    at_times: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    resolved = {}
    for place, asked in wanted.items():
        if isinstance(asked, Moment):
            # A record that came after the latest was looked up is not part of this read.
            resolved[place] = min(at_times[place], latest[place])
        else:
            resolved[place] = {EARLIEST: earliest[place], LATEST: latest[place]}.get(asked, asked)
    return resolved


def _places(topic: Any) -> list[TopicPartition]:
    return sorted(TopicPartition(topic.name, partition.partition_index) for partition in topic.partitions)


def _missing_message(missing: list[str], client: Client) -> str:
    visible = [name for name, topic in client.topics(None).items() if not topic.is_internal]
    near = sorted({match for name in missing for match in difflib.get_close_matches(name, visible, n=3)})
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    names = ", ".join(f"'{name}'" for name in missing)
    return f"Topic {names} does not exist on Kafka at {client.servers}, or the user may not see it{hint}"
