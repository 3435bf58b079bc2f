"""Fetching without a broker: a stand-in with a log full of holes, and errors that no broker makes at will."""

import random
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, astuple, replace
from types import SimpleNamespace
from typing import Any

import kafka.errors
import pytest

from tests.sources.kafka.reading import StandIn
from tests.support.captured import make_options
from tests.support.seeds import each_seed
from ticdc_source.errors import AccessRefusedError, DataLossError, DecodeError, KafkaUnavailableError, TiCDCSourceError
from ticdc_source.options.kafka_client import ClientSettings
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.topics import TopicPartition
from ticdc_source.planning.fetchers import fetch_settings
from ticdc_source.sources.chunk import Chunk, FetchSettings
from ticdc_source.sources.kafka import KafkaFetcher
from ticdc_source.sources.kafka.answers import UnknownPartitionsError
from ticdc_source.sources.kafka.kafka_python.slicing import BatchReader
from ticdc_source.sources.kafka.patience import Cause, Patience

Polled = Mapping[Any, list[Iterator[Chunk]]]


def chunk_of(offsets: list[int]) -> Chunk:
    values: list[bytes | None] = [b"%d" % offset for offset in offsets]
    return Chunk("t", 0, offsets, [offset * 10 for offset in offsets], [None] * len(offsets), values, None)


class StubConsumer:
    """A sliced consumer of one partition: polls give some visible records, and the position runs ahead of them."""

    def __init__(self, visible: list[int], end: int, rng: random.Random) -> None:
        self.visible, self.end, self.rng = visible, end, rng
        self.at = -1
        self.polls = 0
        self._fetcher = SimpleNamespace(PartitionRecords=None)

    def highwater(self, _partition: Any) -> None:
        """What no test needs."""

    def assign(self, partitions: list[Any]) -> None:
        assert len(partitions) == 1

    def seek(self, _partition: Any, offset: int) -> None:
        self.at = offset

    def poll(self, *, timeout_ms: float, max_records: int) -> Polled:
        assert timeout_ms > 0
        assert max_records == 1
        self.polls += 1
        if self.rng.random() < 0.2:
            return {}
        coming = [offset for offset in self.visible if offset >= self.at]
        got = coming[: self.rng.randint(0, 20)]
        if got:
            self.at = got[-1] + 1
        following = [offset for offset in coming if offset >= self.at]
        if self.rng.random() < 0.5:  # a response ends with markers, or with what was compacted away
            self.at = self.rng.randint(self.at, following[0] if following else self.end)
        return {("t", 0): [self._cut(got)]} if got else {}

    def _cut(self, offsets: list[int]) -> Iterator[Chunk]:
        while offsets:
            count = self.rng.randint(1, 7)
            yield chunk_of(offsets[:count])
            offsets = offsets[count:]

    def position(self, _partition: Any, *, timeout_ms: float) -> int:
        assert timeout_ms == 0
        return self.at


CONFIG = ClientSettings(bootstrap_servers=("stub:1",), default_api_timeout_ms=1000, bootstrap_timeout_ms=1000)


class StubClient(StandIn):
    """A client whose consumer and log bounds are given."""

    def __init__(self, consumer: Any, earliest: int = 0, latest: int = 1 << 40) -> None:
        super().__init__()
        self._consumer, self.bounds = consumer, {-2: earliest, -1: latest}
        self.lookups = 0
        self.ids: list[str] = []  # of any topic, at one look after the other

    def reader(self, offset_range: OffsetRange, limits: FetchSettings, patience: Patience) -> BatchReader:
        assert patience.left_ms <= 2000
        reader = BatchReader(self._consumer, limits, self.servers)
        reader.begin(offset_range, limits)
        return reader

    def offsets(self, times: Mapping[TopicPartition, int], patience: Patience) -> dict[TopicPartition, int]:
        assert not patience.is_over
        self.lookups += 1
        return {topic_partition: self.bounds[at] for topic_partition, at in times.items()}

    def topic_ids_at_leaders(
        self, topic_partitions: Iterable[TopicPartition], patience: Patience
    ) -> dict[TopicPartition, str]:
        assert not patience.is_over
        topic_id = self.ids.pop(0)
        return dict.fromkeys(topic_partitions, topic_id) if topic_id else {}


def run(client: StubClient, offset_range: OffsetRange, config: ClientSettings = CONFIG, **how: Any) -> list[Chunk]:
    settings = FetchSettings(**{"max_records": 7, "max_bytes": 1000, "poll_timeout_ms": 1000, **how})
    with KafkaFetcher(config, settings, connect=lambda *_: client) as fetcher:
        return list(fetcher.fetch(offset_range))


@each_seed(300)
def test_exactly_the_visible_records_of_the_range(seed: int) -> None:
    """Whatever the holes and however records come: those of the range, once, in order, and then the end."""
    rng = random.Random(seed)
    log_end = rng.randint(1, 200)
    density = rng.choice([0.0, 0.1, 0.5, 0.95, 1.0])
    visible = [offset for offset in range(log_end) if rng.random() < density]
    start = rng.randint(0, log_end)
    end = rng.randint(start, log_end)
    consumer = StubConsumer(visible, log_end, rng)
    client = StubClient(consumer)
    chunks = run(client, OffsetRange("t", 0, start, end))
    offsets = [offset for chunk in chunks for offset in chunk.offsets]
    assert offsets == [offset for offset in visible if start <= offset < end]
    assert [value for chunk in chunks for value in chunk.values] == [b"%d" % offset for offset in offsets]
    assert [time for chunk in chunks for time in chunk.timestamps] == [offset * 10 for offset in offsets]
    assert all(len(chunk) for chunk in chunks)
    if density == 1.0:
        assert client.lookups == 0  # where there are no holes nothing is looked up


@pytest.mark.parametrize("fail", [True, False])
def test_a_hole_below_the_log_start_is_data_loss(fail: bool) -> None:
    """A hole that the log start has passed may have held records: data loss, or a warning and the rest."""
    consumer = StubConsumer([*range(10), *range(20, 30)], 30, random.Random(0))
    client = StubClient(consumer, earliest=15)
    if fail:
        with pytest.raises(DataLossError, match="t-0: offsets 10 to 14 are gone"):
            run(client, OffsetRange("t", 0, 0, 30))
    else:
        with pytest.warns(UserWarning, match="t-0: offsets 10 to 14 are gone"):
            chunks = run(client, OffsetRange("t", 0, 0, 30), fail_on_data_loss=False)
        assert [offset for chunk in chunks for offset in chunk.offsets] == [*range(10), *range(20, 30)]


def test_lost_ddl_is_named_with_lost_records() -> None:
    """With outputFormat=event, the warning says that DDL events among lost records are lost too."""
    consumer = StubConsumer([*range(20, 30)], 30, random.Random(0))
    lost = "offsets 0 to 14 are gone .*DDL events in these records, such as TRUNCATE or DROP TABLE, are lost too"

    def told(protocol: str, **options: str) -> str:
        how = fetch_settings(make_options(failOnDataLoss="false", **options), protocol)
        with pytest.warns(UserWarning, match="are gone") as caught:
            run(StubClient(consumer, earliest=15), OffsetRange("t", 0, 0, 30), **asdict(how))
        return str(caught[0].message)

    assert re.search(lost, told("open-protocol", outputFormat="event"))
    assert not re.search(lost, told("open-protocol"))
    assert not re.search(lost, told("canal-json", outputFormat="event"))  # it has one copy


class Raising(StubConsumer):
    """A consumer whose polls fail, the first `times` of them."""

    def __init__(self, error: Exception, times: int = 1 << 40) -> None:
        super().__init__(list(range(10)), 10, random.Random(0))
        self.error, self.times = error, times

    def poll(self, *, timeout_ms: float, max_records: int) -> Polled:
        self.times -= 1
        if self.times >= 0:
            raise self.error
        return super().poll(timeout_ms=timeout_ms, max_records=max_records)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (kafka.errors.CorruptRecordError("crc"), DecodeError),
        (kafka.errors.UnsupportedCodecError("Libraries for zstd compression codec not found"), DecodeError),
        (AssertionError("a parser at its wits' end"), DecodeError),
        (ValueError("a varint without an end"), DecodeError),
        (kafka.errors.TopicAuthorizationFailedError({"t"}), AccessRefusedError),
        (kafka.errors.KafkaConnectionError("gone"), KafkaUnavailableError),
        (RuntimeError("NetworkSelector closed!"), KafkaUnavailableError),
        (ConnectionResetError("gone"), KafkaUnavailableError),
    ],
)
def test_every_error_is_one_of_ours(error: Exception, ours: type[TiCDCSourceError]) -> None:
    """Whatever kafka-python raises becomes an error of ours, with the original among its causes."""
    with pytest.raises(ours) as caught:
        run(StubClient(Raising(error)), OffsetRange("t", 0, 3, 10))
    assert type(caught.value) is ours
    assert error in causes(caught.value)
    if isinstance(caught.value, DecodeError):
        assert astuple(caught.value.address)[:3] == ("t", 0, 3)


def test_a_leader_that_catches_up_costs_nothing() -> None:
    """'Out of range' from a leader that is behind is asked again, not taken for data loss."""
    consumer = Raising(kafka.errors.OffsetOutOfRangeError({}), times=3)
    chunks = run(StubClient(consumer, earliest=0, latest=10), OffsetRange("t", 0, 3, 10))
    assert [offset for chunk in chunks for offset in chunk.offsets] == list(range(3, 10))


def test_a_truncated_log_is_data_loss() -> None:
    """A leader whose log ends before what we have read has lost records."""
    error = kafka.errors.LogTruncationError({})
    with pytest.raises(DataLossError, match="t-0 was truncated"):
        run(StubClient(Raising(error)), OffsetRange("t", 0, 3, 10))
    with pytest.warns(UserWarning, match="t-0 was truncated"):
        chunks = run(StubClient(Raising(error, times=1)), OffsetRange("t", 0, 3, 10), fail_on_data_loss=False)
    assert [offset for chunk in chunks for offset in chunk.offsets] == list(range(3, 10))


def check(client: StubClient, planned: Mapping[TopicPartition, str], **how: Any) -> None:
    """Compare the topics with what was planned, through the stand-in."""
    settings = FetchSettings(**{"max_records": 7, "max_bytes": 1000, **how})
    with KafkaFetcher(CONFIG, settings, connect=lambda *_: client) as fetcher:
        fetcher.check_topics(planned)


def test_a_topic_that_is_recreated_while_it_is_read_is_data_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another id at the end of a read, in five looks, fails it and names both ids; or is a warning."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    text = r"Deleted and created again since this read was planned: topic t \(its id was OLD and is NEW\)"
    client = StubClient(None)
    client.ids = ["NEW"] * 10
    with pytest.raises(DataLossError, match=text):
        check(client, {TopicPartition("t", 0): "OLD", TopicPartition("u", 0): "NEW"})
    with pytest.warns(UserWarning, match=text):
        check(client, {TopicPartition("t", 0): "OLD"}, fail_on_data_loss=False)
    assert client.ids == []


def test_a_topic_without_an_id_or_behind_a_broker_that_lags_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers before 2.8 tell no id, a broker may tell the one of before, and nothing is asked for nothing."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    client = StubClient(None)
    client.ids = ["", "OLD", "OLD", "OLD", "OLD", "NEW"]
    check(client, {TopicPartition("t", 0): "NEW"})
    check(client, {TopicPartition("t", 0): "NEW"})
    check(client, {})
    assert client.ids == []


def test_silence_is_an_error_in_sparks_words() -> None:
    """A record that does not arrive is an error with its offset and the time that was waited."""
    silent = StubConsumer([], 3, random.Random(0))
    with pytest.raises(KafkaUnavailableError, match=r"Cannot fetch record for offset 3 of t-0 in \d+ ms"):
        run(StubClient(silent), OffsetRange("t", 0, 3, 10), poll_timeout_ms=50)


class Unreachable(StubClient):
    """A client whose brokers go away after the reader was made."""

    def offsets(self, times: Mapping[TopicPartition, int], patience: Patience) -> dict[TopicPartition, int]:  # noqa: ARG002
        patience.failed("b:1", Cause("ECONNREFUSED"))
        raise KafkaUnavailableError


def test_the_error_in_the_midst_of_a_read_names_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the look-ups of a long wait meet is in its error, and the option is the one that was in force."""
    monkeypatch.setattr("ticdc_source.sources.kafka.fetch._LOOK_AFTER_SECONDS", 0.01)
    silent = StubConsumer([], 3, random.Random(0))
    with pytest.raises(KafkaUnavailableError, match=r"kafkaConsumer\.pollTimeoutMs\): b:1: ECONNREFUSED"):
        run(Unreachable(silent), OffsetRange("t", 0, 3, 10), poll_timeout_ms=50)
    stream = replace(CONFIG, broker_timeout_ms=90)
    with pytest.raises(KafkaUnavailableError, match=r"in \d+ ms .*brokerTimeoutMs\): b:1: ECONNREFUSED"):
        run(Unreachable(silent), OffsetRange("t", 0, 3, 10), stream, poll_timeout_ms=50)


class Away(StubClient):
    """A client whose brokers are away when the reader is made, for longer than a record is waited for."""

    def reader(self, offset_range: OffsetRange, limits: FetchSettings, patience: Patience) -> BatchReader:
        time.sleep(0.06)
        return super().reader(offset_range, limits, patience)


class SilentAtFirst(StubConsumer):
    """A consumer whose first poll brings nothing."""

    def poll(self, *, timeout_ms: float, max_records: int) -> Polled:
        if not self.polls:
            self.polls += 1
            return {}
        return super().poll(timeout_ms=timeout_ms, max_records=max_records)


def test_the_time_for_a_record_begins_when_brokers_have_answered() -> None:
    """Brokers that come back after `kafkaConsumer.pollTimeoutMs` have that time for the first record all the same."""
    consumer = SilentAtFirst(list(range(10)), 10, random.Random(0))

    chunks = run(Away(consumer), OffsetRange("t", 0, 3, 10), poll_timeout_ms=50)

    assert [offset for chunk in chunks for offset in chunk.offsets] == list(range(3, 10))


class Flapping(StubClient):
    """A client whose brokers answer every second look-up of a partition's bounds, and send no record."""

    def offsets(self, times: Mapping[TopicPartition, int], patience: Patience) -> dict[TopicPartition, int]:
        found = super().offsets(times, patience)
        if self.lookups % 3 == 1:  # then the two of the next bounds are answered
            raise KafkaUnavailableError
        return found


def test_brokers_that_answer_look_ups_only_do_not_hold_a_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait ends after both of its limits, although brokers that come back start one of them anew."""
    monkeypatch.setattr("ticdc_source.sources.kafka.fetch._LOOK_AFTER_SECONDS", 0.001)
    client = Flapping(StubConsumer([], 3, random.Random(0)))
    with pytest.raises(KafkaUnavailableError, match=r"Cannot fetch record for offset 3 of t-0 in \d+ ms"):
        run(client, OffsetRange("t", 0, 3, 10), poll_timeout_ms=500)
    assert client.lookups > 3


class Restarted(StubClient):
    """A client whose broker knows no topic at the first look-ups, and sends nothing until then."""

    def __init__(self, blank_looks: int) -> None:
        super().__init__(StubConsumer([], 3, random.Random(0)), latest=10)
        self.blank_looks = blank_looks

    def offsets(self, times: Mapping[TopicPartition, int], patience: Patience) -> dict[TopicPartition, int]:
        if self.lookups >= self.blank_looks:
            self._consumer.end, self._consumer.visible = 10, list(range(10))
            return super().offsets(times, patience)
        self.lookups += 1
        raise UnknownPartitionsError(times)


def test_a_worker_looks_as_often_as_the_driver_before_a_partition_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """After nine looks that do not find the partition its records are still read; the tenth makes it data loss."""
    monkeypatch.setattr("ticdc_source.sources.kafka.fetch._LOOK_AFTER_SECONDS", 0.001)
    monkeypatch.setattr("ticdc_source.sources.kafka.fetch.SECOND_LOOK_SECONDS", 0.001, raising=False)
    for fail in (True, False):
        chunks = run(Restarted(9), OffsetRange("t", 0, 3, 10), fail_on_data_loss=fail)
        assert [offset for chunk in chunks for offset in chunk.offsets] == list(range(3, 10))
    deleted = Restarted(1 << 40)
    with pytest.raises(DataLossError, match="t-0 has been deleted"):
        run(deleted, OffsetRange("t", 0, 3, 10))
    assert deleted.lookups == 10


def test_an_outage_at_a_hole_ends_in_sparks_words() -> None:
    """The error has the topic, partition and offset, and each server's cause."""
    holes = Unreachable(StubConsumer([7, 8, 9], 10, random.Random(0)))
    with pytest.raises(KafkaUnavailableError, match=r"^Cannot fetch record for offset 3 of t-0 in .*: ECONNREFUSED"):
        run(holes, OffsetRange("t", 0, 3, 10))


def test_an_empty_range_needs_no_connection() -> None:
    """Nothing is read of an empty range, and nobody is asked."""
    with KafkaFetcher(CONFIG, FetchSettings(max_records=1, max_bytes=1)) as fetcher:
        assert list(fetcher.fetch(OffsetRange("t", 0, 1, 1))) == []
