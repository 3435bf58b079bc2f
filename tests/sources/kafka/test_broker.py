"""Look-ups and fetching on a real broker: what is read, lost, waited for, and left behind."""

import base64
import json
import random
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import astuple
from pathlib import Path
from typing import Any

import kafka.codec
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader

from benchmarks.load import loader
from examples.local_kafka import ExternalKafka, LocalKafka, create_topic, delete_topic, produce
from tests.sources.kafka.reading import DEADLINE, fetch
from tests.support.messages import canal
from tests.support.record_batches import CODECS, changed, made, next_offset
from ticdc_source.errors import DataLossError, DecodeError, OptionError
from ticdc_source.options.kafka_client import ClientSettings, client_settings
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.options.topics import TopicPartition
from ticdc_source.planning.load import batch_options, load_schema, stream_options
from ticdc_source.sources.chunk import Chunk, FetchSettings
from ticdc_source.sources.kafka import KafkaCluster, KafkaFetcher
from ticdc_source.spark.readers import TiCDCReader, new_stream_reader
from ticdc_source.spark.schema import to_spark

pytestmark = pytest.mark.broker

Kafka = LocalKafka | ExternalKafka
MakeTopic = Callable[..., str]


def options(servers: str, **given: Any) -> Options:
    """Options for a broker; `kafka__client__id` is `kafka.client.id`, and what is no text becomes JSON."""
    texts = {
        name.replace("__", "."): value if isinstance(value, str) else json.dumps(value) for name, value in given.items()
    }
    return Options.of({"kafka.bootstrap.servers": servers, "fetchOffset.retryIntervalMs": "50", **texts})


def settings(servers: str, **kafka: str) -> ClientSettings:
    named = {f"kafka__{name}": value for name, value in kafka.items()}
    return client_settings(options(servers, subscribe="t", **named), driver=False)


def values(count: int, first: int = 0) -> list[tuple[int, None, bytes, list[Any], None]]:
    """Records of partition 0 with the numbers from `first` on as their values."""
    return [(0, None, b"%d" % number, [], None) for number in range(first, first + count)]


def read(
    servers: str, offset_range: OffsetRange, *, kafka: dict[str, str] | None = None, **how: Any
) -> list[tuple[int, bytes | None]]:
    return flat(fetch(offset_range, settings(servers, **(kafka or {})), **{**HOW, **how}))


# Settings with which a client holds little in advance.
SMALL = {"max__partition__fetch__bytes": "1", "fetch__max__bytes": "1"}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": 100,
    "min.cleanable.dirty.ratio": 0.001,
    "min.compaction.lag.ms": 0,
    "max.compaction.lag.ms": 100,
    "delete.retention.ms": 0,
}
HOW: dict[str, Any] = {"max_records": 1000, "max_bytes": 1 << 20, "poll_timeout_ms": 10_000}


def flat(chunks: Iterable[Chunk]) -> list[tuple[int, bytes | None]]:
    """The offsets and values of chunks, whose lists are all of the same length."""
    rows: list[tuple[int, bytes | None]] = []
    for chunk in chunks:
        assert len(chunk) == len(chunk.timestamps) == len(chunk.keys) == len(chunk.values)
        assert len(chunk)
        rows += zip(chunk.offsets, chunk.values, strict=True)
    return rows


def topics_of(servers: str) -> set[str]:
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        return set(admin.list_topics())


def delete_before(servers: str, topic: str, offset: int) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        admin.delete_records({KafkaTopicPartition(topic, 0): offset})


@pytest.fixture
def servers(broker: Kafka) -> str:
    return broker.bootstrap_servers


def fetched(servers: str, offset_range: OffsetRange, max_records: int = 1000, **kafka: str) -> list[tuple[Any, ...]]:
    how = {**HOW, "max_records": max_records, "include_headers": True}
    return [
        row
        for chunk in fetch(offset_range, settings(servers, **kafka), **how)
        for row in zip(chunk.offsets, chunk.timestamps, chunk.keys, chunk.values, chunk.headers or [], strict=True)
    ]


def consumed(servers: str, offset_range: OffsetRange, level: str = "read_uncommitted") -> list[tuple[Any, ...]]:
    topic_partition = KafkaTopicPartition(*offset_range.topic_partition)
    rows: list[tuple[Any, ...]] = []
    with closing(KafkaConsumer(bootstrap_servers=servers, isolation_level=level)) as consumer:
        consumer.assign([topic_partition])
        consumer.seek(topic_partition, offset_range.start)
        deadline = time.monotonic() + DEADLINE
        while consumer.position(topic_partition) < offset_range.end:
            assert time.monotonic() < deadline
            arrived = consumer.poll(timeout_ms=500).get(topic_partition, [])
            rows += [(each.offset, each.timestamp, each.key, each.value, each.headers) for each in arrived]
    return [row for row in rows if row[0] < offset_range.end]


def kafka_python_has(codec: str) -> bool:
    """Whether kafka-python finds the library for a codec, which it needs and we do not."""
    return bool(getattr(kafka.codec, f"has_{codec}")())


class TestPartitions:
    def test_subscribe(self, servers: str, topic: MakeTopic) -> None:
        """All partitions of all topics are found, by topic and number."""
        one, two = sorted([topic(2), topic(11)])
        with KafkaCluster(options(servers, subscribe=f"{two},{one}")) as cluster:
            found = cluster.partitions()
        assert found == sorted(found)
        assert len(found) == 13
        assert {topic_partition.topic for topic_partition in found} == {one, two}

    def test_pattern(self, servers: str, topic: MakeTopic) -> None:
        """A pattern finds the topics whose whole name it matches, and no internal ones."""
        name = topic(2, prefix="pat.tern")
        with KafkaCluster(options(servers, subscribePattern=r"\Qpat.tern-\E.*|__.*")) as cluster:
            assert cluster.partitions() == [TopicPartition(name, 0), TopicPartition(name, 1)]
        with (
            KafkaCluster(options(servers, subscribePattern=name[:-1])) as cluster,
            pytest.raises(OptionError, match="no topic matches"),
        ):
            cluster.partitions()

    def test_assign(self, servers: str, topic: MakeTopic) -> None:
        """Assigned partitions are those that are read, and each must exist."""
        name = topic(3)
        with KafkaCluster(options(servers, assign={name: [2, 0]})) as cluster:
            assert cluster.partitions() == [TopicPartition(name, 0), TopicPartition(name, 2)]
        with (
            KafkaCluster(options(servers, assign={name: [1, 3]})) as cluster,
            pytest.raises(OptionError, match=f"partition 3 of topic '{name}' does not exist; it has 3 partitions"),
        ):
            cluster.partitions()

    def test_missing_topic_is_an_error_with_near_names_and_is_not_created(self, servers: str, topic: MakeTopic) -> None:
        """A misspelt topic is named with those it may be meant for; asking for it does not make it."""
        name = topic(prefix="tidb-orders")
        for given in ({"subscribe": f"{name}x"}, {"assign": {f"{name}x": [0]}}):
            with (
                KafkaCluster(options(servers, **given)) as cluster,
                pytest.raises(OptionError, match=rf"'{name}x' does not exist.*did you mean {name}\?"),
            ):
                cluster.resolve_ranges()
        assert f"{name}x" not in topics_of(servers)

    def test_invalid_name_is_an_error(self, servers: str) -> None:
        """A name that no topic can have is not waited for."""
        with (
            KafkaCluster(options(servers, subscribe="a b")) as cluster,
            pytest.raises(OptionError, match="'a b' is not a valid Kafka topic name"),
        ):
            cluster.partitions()


class TestClient:
    def test_commits_are_seen_by_others(self, servers: str, topic: MakeTopic) -> None:
        """What is committed for a group is what the group has; bootstrap servers may have a protocol before them."""
        name = topic()
        group = f"{name}-group"
        topic_partition = TopicPartition(name, 0)
        with KafkaCluster(options(f"PLAINTEXT://{servers}", subscribe=name)) as cluster:
            assert cluster.committed(group, [topic_partition]) == {}
            cluster.commit_group(group, {topic_partition: 3})
            assert cluster.committed(group, [topic_partition]) == {topic_partition: 3}
        with closing(KafkaConsumer(bootstrap_servers=servers, group_id=group)) as consumer:
            assert consumer.committed(KafkaTopicPartition(name, 0)) == 3

    def test_the_library_is_named(self, servers: str, topic: MakeTopic) -> None:
        """Metrics say what fetched, once something has been fetched."""
        name = topic()
        produce(servers, name, values(1))
        with KafkaFetcher(settings(servers), FetchSettings(max_records=10, max_bytes=1000)) as fetcher:
            assert fetcher.library is None
            assert flat(fetcher.fetch(OffsetRange(name, 0, 0, 1))) == [(0, b"0")]
            assert fetcher.library == f"kafka-python {kafka.__version__}"


class TestRanges:
    def test_batch_defaults(self, servers: str, topic: MakeTopic) -> None:
        """A batch read covers what is there, one range for each partition, empty ones too."""
        name = topic(2)
        produce(servers, name, values(10))
        delete_before(servers, name, 4)
        with KafkaCluster(options(servers, subscribe=name)) as cluster:
            assert cluster.resolve_ranges() == [OffsetRange(name, 0, 4, 10), OffsetRange(name, 1, 0, 0)]

    def test_offsets_by_partition(self, servers: str, topic: MakeTopic) -> None:
        """Numbers are taken as they are, -2 is the earliest and -1 the latest."""
        name = topic(2)
        produce(servers, name, [(number % 2, None, b"x", [], None) for number in range(20)])
        given = {"startingOffsets": {name: {"0": 3, "1": -2}}, "endingOffsets": {name: {"0": -1, "1": 7}}}
        with KafkaCluster(options(servers, subscribe=name, **given)) as cluster:
            assert cluster.resolve_ranges() == [OffsetRange(name, 0, 3, 10), OffsetRange(name, 1, 0, 7)]
        given = {"startingOffsets": {name: {"0": 3}}}
        with (
            KafkaCluster(options(servers, subscribe=name, **given)) as cluster,
            pytest.raises(OptionError, match=rf"Specified: \[{name}-0\] Assigned: \[{name}-0, {name}-1\]"),
        ):
            cluster.resolve_ranges()

    def test_times(self, servers: str, topic: MakeTopic) -> None:
        """A time means the first record at or after it; an end that is later than all is the latest."""
        name = topic()
        produce(servers, name, [(0, None, b"x", [], 1_000_000 + 10 * number) for number in range(10)])

        def ranges(**given: Any) -> list[OffsetRange]:
            with KafkaCluster(options(servers, subscribe=name, **given)) as cluster:
                return cluster.resolve_ranges()

        assert ranges(startingTimestamp="1000015") == [OffsetRange(name, 0, 2, 10)]
        assert ranges(startingTimestamp="0", endingTimestamp="1000040") == [OffsetRange(name, 0, 0, 4)]
        assert ranges(endingTimestamp="2000000") == [OffsetRange(name, 0, 0, 10)]
        by_time = {"startingOffsetsByTimestamp": {name: {"0": 1_000_010}}}
        by_time |= {"endingOffsetsByTimestamp": {name: {"0": 1_000_011}}}
        assert ranges(**by_time) == [OffsetRange(name, 0, 1, 2)]
        with pytest.raises(OptionError, match=f"topic-partition {name}-0 and timestamp 2000000"):
            ranges(startingTimestamp="2000000")
        with pytest.raises(OptionError, match=r"to start at the end there\. .*did you mean 1790000040000\?$"):
            ranges(startingTimestamp="1790000040")
        latest = ranges(startingTimestamp="2000000", startingOffsetsByTimestampStrategy="latest")
        assert latest == [OffsetRange(name, 0, 10, 10)]
        with pytest.raises(OptionError, match="resolved start offset 5 is greater than the resolved end offset 3"):
            ranges(startingTimestamp="1000050", endingTimestamp="1000030")

    @pytest.mark.parametrize(
        ("start", "end", "reason", "left"),
        [
            (0, -1, "offsets from 0 are requested, but the earliest is 4", (4, 10)),
            (5, 99, "offsets to 99 are requested, but the latest is 10", (5, 10)),
            (12, -1, "offsets from 12 are requested, but the latest is 10", (10, 10)),
        ],
    )
    def test_offsets_that_are_not_there(
        self, servers: str, topic: MakeTopic, start: int, end: int, reason: str, left: tuple[int, int]
    ) -> None:
        """What is asked for and is not there is data loss: an error, or a warning and the rest."""
        name = topic()
        produce(servers, name, values(10))
        delete_before(servers, name, 4)
        given: dict[str, Any] = {
            "startingOffsets": {name: {"0": start}},
            "endingOffsets": {name: {"0": end}},
            "subscribe": name,
        }
        with (
            KafkaCluster(options(servers, **given)) as cluster,
            pytest.raises(DataLossError, match=f"Some data may have been lost.*failOnDataLoss.*{reason}"),
        ):
            cluster.resolve_ranges()
        with (
            KafkaCluster(options(servers, **given, failOnDataLoss="false")) as cluster,
            pytest.warns(UserWarning, match=reason),
        ):
            assert cluster.resolve_ranges() == [OffsetRange(name, 0, *left)]

    def test_read_committed_ends_at_the_last_stable_offset(self, servers: str, topic: MakeTopic) -> None:
        """What an open transaction has written is not yet there for a read_committed read."""
        name = topic()
        produce(servers, name, values(5))
        producer = KafkaProducer(bootstrap_servers=servers, transactional_id=f"{name}-open")
        with closing(producer):
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(name, b"undecided", partition=0)
            producer.flush()
            producer.send(name, b"undecided", partition=0).get(timeout=10)
            ends = {}
            for level in ("read_uncommitted", "read_committed"):
                with KafkaCluster(options(servers, subscribe=name, kafka__isolation__level=level)) as cluster:
                    ends[level] = cluster.resolve_ranges()[0].end
            producer.abort_transaction()
        assert ends == {"read_uncommitted": 7, "read_committed": 5}

    def test_topic_ids_come_with_every_look_up(self, servers: str, topic: MakeTopic) -> None:
        """A topic has the id that Kafka's tools show, another one once it is made anew, and none when it is gone."""
        name = topic()
        seen = []
        with KafkaCluster(options(servers, subscribe=name)) as cluster:
            assert cluster.topic_ids() == {}
            topic_partitions = cluster.partitions()
            for _ in range(2):
                cluster.latest(topic_partitions)
                with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
                    (described,) = admin.describe_topics([name])
                padded = cluster.topic_ids()[name] + "=="
                assert uuid.UUID(bytes=base64.urlsafe_b64decode(padded)) == uuid.UUID(str(described["topic_id"]))
                seen.append(padded)
                delete_topic(servers, name)
                create_topic(servers, name)
            delete_topic(servers, name)
            with pytest.raises(DataLossError):
                cluster.latest(topic_partitions)
            assert cluster.topic_ids() == {}
        assert len(set(seen)) == 2

    def test_leader_epochs_come_with_look_ups_of_ends(self, servers: str, topic: MakeTopic) -> None:
        """The leader tells its epoch with the end of a log, and where an epoch ends; of a later one it cannot tell."""
        name = topic()
        produce(servers, name, values(3))
        with KafkaCluster(options(servers, subscribe=name)) as cluster:
            (partition,) = cluster.partitions()
            cluster.earliest([partition])
            assert cluster.leader_epochs() == {}
            cluster.latest([partition])
            epoch = cluster.leader_epochs()[partition]
            assert cluster.ends_of_epochs({partition: epoch}) == {partition: 3}
            assert cluster.ends_of_epochs({partition: epoch + 1}) == {partition: -1}
            delete_topic(servers, name)
            with pytest.raises(DataLossError, match=f"Partitions {name}-0 have been deleted"):
                cluster.ends_of_epochs({partition: epoch})


class TestFetch:
    @pytest.mark.parametrize(
        "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long("another seed")) for seed in (2, 3, 4))]
    )
    def test_any_range_gives_exactly_its_records(self, servers: str, topic: MakeTopic, seed: int) -> None:
        """Whatever the range, the sizes of chunks and of fetches: its records, once, in order, in bounds."""
        rng = random.Random(seed)
        name = topic()
        written = [rng.randbytes(rng.choice([0, 10, 300, 3000])) for _ in range(3000)]
        produce(servers, name, [(0, None, value, [], None) for value in written], batch_bytes=20_000)
        kafka = {"max__partition__fetch__bytes": str(rng.choice([1, 5_000, 100_000, 1 << 20]))}
        bounds = {"max_records": rng.choice([1, 7, 100, 10_000]), "max_bytes": rng.choice([1, 1000, 1 << 20])}
        with KafkaFetcher(settings(servers, **kafka), FetchSettings(**{**HOW, **bounds})) as fetcher:
            for _ in range(4):
                start = rng.randint(0, 2900)
                end = rng.randint(start, min(3000, start + 300))
                chunks = list(fetcher.fetch(OffsetRange(name, 0, start, end)))
                assert flat(chunks) == list(enumerate(written[start:end], start))
                for chunk in chunks:
                    size = sum(len(value or b"") for value in chunk.values)
                    assert len(chunk) <= bounds["max_records"]
                    assert len(chunk) == 1 or size <= bounds["max_bytes"]

    def test_a_record_bigger_than_every_limit_is_read(self, servers: str, topic: MakeTopic) -> None:
        """One record may be bigger than a chunk, a fetch of a partition, and a whole fetch."""
        name = topic(config={"max.message.bytes": 8 << 20})
        produce(servers, name, [(0, None, b"x" * (6 << 20), [], None), (0, None, b"y", [], None)])
        small = {"max__partition__fetch__bytes": "1000", "fetch__max__bytes": "1000"}
        rows = read(servers, OffsetRange(name, 0, 0, 2), kafka=small, max_bytes=10)
        assert [(offset, len(value or b"")) for offset, value in rows] == [(0, 6 << 20), (1, 1)]

    def test_one_fetcher_reads_many_ranges(self, servers: str, topic: MakeTopic) -> None:
        """Ranges of several topics and partitions are read forwards and backwards with one client."""
        one, two = topic(2), topic()
        for name, partition in ((one, 0), (one, 1), (two, 0)):
            produce(servers, name, [(partition, None, b"%d" % number, [], None) for number in range(1000)])
        offset_ranges = [
            OffsetRange(name, partition, start, start + 50)
            for start in (950, 0, 500, 50)
            for name, partition in ((one, 0), (two, 0), (one, 1))
        ]
        began = time.monotonic()
        with KafkaFetcher(settings(servers), FetchSettings(**HOW)) as fetcher:
            for offset_range in offset_ranges:
                rows = flat(fetcher.fetch(offset_range))
                assert rows == [(number, b"%d" % number) for number in range(offset_range.start, offset_range.end)]
        assert time.monotonic() - began < DEADLINE

    def test_a_damaged_record_is_an_error_with_an_address(self, broker: Kafka, topic: MakeTopic) -> None:
        """A batch that fails its checksum is an error with its address; the records before it are read."""
        if broker.folder is None:
            pytest.skip("the broker's files are out of reach")
        name = topic()
        produce(broker.bootstrap_servers, name, values(3))
        produce(broker.bootstrap_servers, name, [(0, None, b"to-be-damaged", [], None)])
        (log,) = Path(broker.folder).glob(f"**/{name}-0/*.log")
        log.write_bytes(log.read_bytes().replace(b"to-be-damaged", b"to-be-DAMAGED"))
        rows = []
        with pytest.raises(DecodeError, match="crc") as caught:  # noqa: PT012 (what comes before counts)
            for chunk in fetch(OffsetRange(name, 0, 0, 4), settings(broker.bootstrap_servers), **HOW):
                rows += flat([chunk])
        assert [offset for offset, _ in rows] == [0, 1, 2]
        assert astuple(caught.value.address)[:3] == (name, 0, 3)


class TestPaths:
    """What a real broker stores: the records that kafka-python's own consumer returns."""

    @pytest.mark.parametrize(
        "codec",
        [
            None,
            "zstd",
            *(pytest.param(one, marks=pytest.mark.slow("another codec")) for one in CODECS if one != "zstd"),
        ],
    )
    @pytest.mark.parametrize(
        "log_append", [False, pytest.param(True, marks=pytest.mark.long("once more for each codec"))]
    )
    def test_one_huge_batch_and_many_small_ones(
        self, servers: str, topic: MakeTopic, codec: str | None, log_append: bool
    ) -> None:
        """Batches of any codec and size, with times of producers or the broker: the same in any range."""
        config = {"message.timestamp.type": "LogAppendTime"} if log_append else {}
        name = topic(config={"max.message.bytes": 8 << 20, **config})
        rng = random.Random(codec or "none")
        count = 0
        with loader(servers) as to_kafka:
            for records in (3000, 1, 1, 2, 40, 1, 1, 500):
                batch = made(rng, 0, largest=128, count=records)
                count += next_offset(batch)
                to_kafka.send(name, {0: changed(batch, codec=codec)})
        for start, end in ((0, count), (1, count - 1), (1500, 2500), (2999, 3005), (rng.randint(0, 3000), 3001)):
            offset_range = OffsetRange(name, 0, start, end)
            rows = fetched(servers, offset_range)
            assert [row[0] for row in rows] == list(range(start, end))
            if codec in {None, "gzip"} or kafka_python_has(codec):
                assert rows == consumed(servers, offset_range)
            assert rows == fetched(servers, offset_range, max_records=7)


class TestInvisibleRecords:
    """Offsets without a record for us: markers of transactions, aborted data, compacted records."""

    @pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
    def test_transactions_and_headers(self, servers: str, topic: MakeTopic, level: str) -> None:
        """Of transactions in turns, with headers and nulls, any range has the records of kafka-python's consumer."""
        name = topic()
        records = [(0, b"k", None, [("h", b"1")], 5), (0, None, b"v", [], 6), (0, b"", b"", [("h", b"")] * 2, 7)]
        for ending in ("commit", "abort", None, "abort", "commit"):
            produce(servers, name, records, transaction=ending)
        everything = consumed(servers, OffsetRange(name, 0, 0, 19), level)
        for start, end in ((0, 19), (0, 4), (3, 4), (4, 8), (5, 19), (9, 13), (18, 19)):  # 3, 7, 14 and 18 are markers
            rows = fetched(servers, OffsetRange(name, 0, start, end), isolation__level=level)
            assert rows == [row for row in everything if start <= row[0] < end]
        assert len(everything) == (9 if level == "read_committed" else 15)
        assert {tuple(row[4] or ()) for row in everything} == {(("h", b"1"),), (), (("h", b""),) * 2}

    @pytest.mark.slow("waits for the cleaner")
    def test_compaction(self, servers: str, topic: MakeTopic) -> None:
        """Offsets that compaction has emptied are passed over at the start, inside and at the end."""
        name = topic(config=COMPACTED)
        for _ in range(10):
            produce(servers, name, [(0, b"%d" % (number % 7), b"x", [], None) for number in range(20)])
        everything = OffsetRange(name, 0, 0, 200)
        deadline = time.monotonic() + 60
        while len(kept := [offset for offset, _ in read(servers, everything)]) > 40:
            assert time.monotonic() < deadline, "the broker does not compact"
            produce(servers, name, [(0, b"roll", b"x", [], None)])  # an active segment is not compacted
            time.sleep(0.5)
        assert kept[-1] >= 193  # the last of each key stays
        for start, end in ((0, 200), (0, 1), (0, kept[0]), (kept[0], kept[0] + 1), (50, 150), (10, 199)):
            while True:
                rows = [offset for offset, _ in read(servers, OffsetRange(name, 0, start, end))]
                before, kept = kept, [offset for offset, _ in read(servers, everything)]
                if kept == before:
                    break  # else the broker has compacted more meanwhile
            assert rows == [offset for offset in kept if start <= offset < end]


class TestDataLoss:
    @pytest.fixture(autouse=True)
    def three_looks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Three looks are enough for brokers that run; `test_fetch.py` holds the ten."""
        monkeypatch.setattr("ticdc_source.sources.kafka.fetch.LOOKS_UNTIL_GONE", 3)

    @pytest.mark.parametrize("fail", [True, False])
    def test_a_start_before_the_log_start(self, servers: str, topic: MakeTopic, fail: bool) -> None:
        """Records that are gone when a task begins are data loss, or a warning and the rest."""
        name = topic()
        produce(servers, name, values(10))
        delete_before(servers, name, 6)
        message = f"{name}-0: offsets 2 to 5 are gone .reading {name}-0 .2, 8"
        if fail:
            with pytest.raises(DataLossError, match=f"Some data may have been lost.*{message}"):
                read(servers, OffsetRange(name, 0, 2, 8))
        else:
            with pytest.warns(UserWarning, match=message):
                rows = read(servers, OffsetRange(name, 0, 2, 8), fail_on_data_loss=False)
            assert [offset for offset, _ in rows] == [6, 7]
            with pytest.warns(UserWarning, match="offsets 2 to 5 are gone"):  # a range that is gone altogether
                assert read(servers, OffsetRange(name, 0, 2, 5), fail_on_data_loss=False) == []

    @pytest.mark.parametrize("fail", [True, False])
    def test_the_log_start_overtakes_the_reader(self, servers: str, topic: MakeTopic, fail: bool) -> None:
        """Records that are deleted while a range is read are never skipped silently."""
        name = topic()
        produce(servers, name, values(200), batch_bytes=1)
        chunks = fetch(
            OffsetRange(name, 0, 0, 200),
            settings(servers, **SMALL),
            **{**HOW, "max_records": 5},
            fail_on_data_loss=fail,
        )
        first = next(chunks)
        delete_before(servers, name, 150)
        if fail:
            with pytest.raises(DataLossError, match=r"offsets \d+ to 149 are gone"):
                flat(chunks)
        else:
            with pytest.warns(UserWarning, match=r"offsets \d+ to 149 are gone"):
                rows = flat([first, *chunks])
            offsets = [offset for offset, _ in rows]
            assert offsets[-50:] == list(range(150, 200))
            assert offsets[:-50] == list(range(len(offsets) - 50))
            assert len(offsets) < 100

    def test_a_topic_that_is_made_anew(self, servers: str, topic: MakeTopic) -> None:
        """A topic that begins anew with fewer records is data loss long before the time-out."""
        name = topic()
        produce(servers, name, values(200), batch_bytes=1)
        chunks = fetch(
            OffsetRange(name, 0, 0, 200),
            settings(servers, **SMALL),
            **{**HOW, "max_records": 5, "poll_timeout_ms": 60_000},
        )
        next(chunks)
        delete_topic(servers, name)
        create_topic(servers, name)
        began = time.monotonic()
        with pytest.raises(DataLossError, match=name):
            flat(chunks)
        assert time.monotonic() - began < DEADLINE

    def test_a_range_beyond_the_end(self, servers: str, topic: MakeTopic) -> None:
        """Offsets that were planned and are not there are data loss."""
        name = topic()
        produce(servers, name, values(10))
        began = time.monotonic()
        with pytest.raises(DataLossError, match="the latest is 10"):
            read(servers, OffsetRange(name, 0, 15, 20), poll_timeout_ms=60_000)
        with pytest.warns(UserWarning, match="the latest is 10"):
            assert read(servers, OffsetRange(name, 0, 15, 20), fail_on_data_loss=False) == []
        assert time.monotonic() - began < DEADLINE


class TestTrouble:
    def test_early_close_is_quick_and_leaves_nothing(self, servers: str, topic: MakeTopic) -> None:
        """A reader that is left in the middle closes its threads and sockets at once."""
        name = topic()
        produce(servers, name, values(5000))
        sockets = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
        for _ in range(5):
            how = {**HOW, "max_records": 10, "poll_timeout_ms": 120_000}
            chunks = fetch(OffsetRange(name, 0, 0, 5000), settings(servers), **how)
            next(chunks)
            began = time.monotonic()
            chunks.close()
            assert time.monotonic() - began < DEADLINE
        if sockets:
            assert len(list(Path("/proc/self/fd").iterdir())) <= sockets


@pytest.mark.parametrize("is_stream", [True, pytest.param(False, marks=pytest.mark.slow("as a stream, once more"))])
def test_a_topic_that_is_recreated_between_planning_and_reading(
    servers: str, topic: MakeTopic, *, is_stream: bool
) -> None:
    """A task that was planned for the topic before fails, although the new one has the offsets too."""
    name = topic()

    def write(count: int) -> None:
        rows = [canal("INSERT", [{"id": str(number)}], None, {"id": "int"}) for number in range(count)]
        produce(servers, name, [(0, *row, [], None) for row in rows])

    write(3)
    given = {"kafka.bootstrap.servers": servers, "subscribe": name}
    schema = to_spark(load_schema(given))
    reader: DataSourceReader | DataSourceStreamReader
    if is_stream:
        reader = new_stream_reader(schema, stream_options(given))
        with KafkaCluster(stream_options(given)) as cluster:
            cluster.partitions()
            planned = {"$ids": dict(cluster.topic_ids()), name: {"0": 3}}
        (task,) = reader.partitions({name: {"0": 0}}, planned)
        reader.stop()
    else:
        reader = TiCDCReader(schema, batch_options(given))
        (task,) = reader.partitions()
    assert len(list(reader.read(task))) == 1
    delete_topic(servers, name)
    create_topic(servers, name)
    write(5)

    with pytest.raises(DataLossError, match=f"since this read was planned: topic {name} "):
        list(reader.read(task))
