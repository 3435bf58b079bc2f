"""A kafka-python that is built otherwise gives the same rows from a real broker, and the metrics say so."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition

from examples.local_kafka import ExternalKafka, LocalKafka, Record, delete_topic, produce
from tests.sources.kafka.reshaped import SAID, reshaped
from tests.support.messages import TSO, canal
from ticdc_source.errors import DataLossError, KafkaUnavailableError, OptionError
from ticdc_source.options.fetching import FetchSettings
from ticdc_source.options.kafka_client import client_settings
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.options.topics import TopicPartition
from ticdc_source.planning.load import batch_options, infer_schema, plan_batch
from ticdc_source.sources.kafka import FETCHERS, KafkaCluster, KafkaFetcher
from ticdc_source.sources.kafka.client import Client, Connect
from ticdc_source.sources.kafka.kafka_python.compatibility import GUARDS, TESTED
from ticdc_source.sources.kafka.kafka_python.network_client import NetworkClient
from ticdc_source.sources.kafka.kafka_python.plain_client import PlainClient
from ticdc_source.sources.kafka.patience import Limit, Patience
from ticdc_source.spark.worker import TiCDCPartition, read_partition

pytestmark = pytest.mark.broker

Kafka = LocalKafka | ExternalKafka
MakeTopic = Callable[..., str]
Rows = list[dict[str, Any]]
CLIENTS: tuple[Connect, ...] = (NetworkClient, PlainClient)


@pytest.fixture
def servers(broker: Kafka) -> str:
    """The session's broker."""
    return broker.bootstrap_servers


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """After each test no thread of a client runs any more."""
    before = set(threading.enumerate())
    yield
    FETCHERS.close_all()
    left = [thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("kafka-io")]
    assert left == []


def given(servers: str, **options: str) -> dict[str, str]:
    """Options for a broker; `kafka__client__id` is `kafka.client.id`."""
    named = {name.replace("__", "."): value for name, value in options.items()}
    return {"kafka.bootstrap.servers": servers, "fetchOffset.retryIntervalMs": "50", **named}


def read(options: dict[str, str], metrics: Path) -> tuple[Rows, list[dict[str, Any]]]:
    """Infer a schema and read a batch as Spark's driver and worker do, in this process: the rows, and the metrics."""
    options = {**options, "metricsPath": str(metrics)}
    parsed = batch_options(options)
    schema = infer_schema(options)
    plan = plan_batch(schema, parsed)
    FETCHERS.close_all()
    rows = [
        row
        for ranges in plan.partitions
        for batch in read_partition(TiCDCPartition(ranges, plan.context, plan.scope), schema, parsed)
        for row in batch.to_pylist()
    ]
    (file,) = metrics.iterdir()
    return rows, [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize(
    "guard",
    [
        pytest.param(guard, marks=pytest.mark.slow("two reads")) if number else guard
        for number, guard in enumerate(GUARDS)
    ],
)
def test_rows_are_the_same(servers: str, topic: MakeTopic, guard: str, tmp_path: Path) -> None:
    """Nulls, headers, aborted transactions and compression: schema and rows are those of the tested version.

    There is one warning, and each line of the metrics names the difference.
    """
    name = topic(2)
    kinds: list[tuple[Literal["commit", "abort"] | None, Literal["gzip"] | None]]
    kinds = [(None, None), ("commit", None), ("abort", None), (None, "gzip")]
    for ending, codec in kinds:
        records: list[Record] = []
        for number in range(50):
            key, value = canal("INSERT", [{"id": str(number)}], None, {"id": "int"}, _tidb={"commitTs": TSO + number})
            records.append((number % 2, key, value, [("h", b"1")] * (number % 3), 5_000 + number))
        produce(servers, name, records, transaction=ending, compression_type=codec)
    options = given(servers, subscribe=name, includeMetadata="all", includeHeaders="true")
    options["kafka.isolation.level"] = "read_committed"
    rows, lines = read(options, tmp_path / "tested")
    with reshaped(guard):  # another warning would be an error
        other_rows, other_lines = read(options, tmp_path / "other")

    assert len(rows) == 150
    assert other_rows == rows
    assert {(line["client"], line["client_fallback"]) for line in lines} == {(f"kafka-python {TESTED}", None)}
    assert {(line["client"], line["client_fallback"]) for line in other_lines} == {
        (f"kafka-python {TESTED}", f"{guard}: {SAID[guard]}")
    }


def topics_of(servers: str) -> set[str]:
    """The topics there are."""
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        return set(admin.list_topics())


class TestPlainClient:
    """What the client on public names looks up is what the other one does."""

    def test_look_ups(self, servers: str, topic: MakeTopic) -> None:
        """Partitions, the ends of a log that was cut at its start, and the offsets of times."""
        name = topic(3)
        produce(servers, name, [(number % 2, None, b"x", [], 1_000_000 + number) for number in range(20)])
        with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
            admin.delete_records({KafkaTopicPartition(name, 0): 4})

        def looked_up(connect: Connect) -> list[object]:
            found: list[object] = []
            for choice in (
                {"subscribe": name},
                {"subscribePattern": f"{name[:-1]}."},
                {"assign": json.dumps({name: [2, 0]})},
            ):
                with KafkaCluster(Options.of(given(servers, **choice)), connect=connect) as cluster:
                    found.append(cluster.partitions())
                    found.append(cluster.resolve_ranges())
            with KafkaCluster(Options.of(given(f"PLAINTEXT://{servers}", subscribe=name)), connect=connect) as cluster:
                times = {TopicPartition(name, 0): 1_000_011, TopicPartition(name, 1): 2_000_000}
                found.append(cluster.by_timestamp(times, or_latest=True))
            return found

        tested, plain = map(looked_up, CLIENTS)

        assert plain == tested
        assert tested[1] == [OffsetRange(name, 0, 4, 10), OffsetRange(name, 1, 0, 10), OffsetRange(name, 2, 0, 0)]
        assert tested[-1] == {TopicPartition(name, 0): 6, TopicPartition(name, 1): 10}

    def test_the_last_stable_offset(self, servers: str, topic: MakeTopic) -> None:
        """With read_committed, an open transaction is behind the end."""
        name = topic()
        producer = KafkaProducer(bootstrap_servers=servers, transactional_id=f"{name}-open")
        options = Options.of(given(servers, subscribe=name, kafka__isolation__level="read_committed"))
        with closing(producer):
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(name, b"undecided", partition=0).get(timeout=10)
            for connect in CLIENTS:
                with KafkaCluster(options, connect=connect) as cluster:
                    assert cluster.latest([TopicPartition(name, 0)]) == {TopicPartition(name, 0): 0}
            producer.abort_transaction()

    @pytest.mark.slow("each of two clients looks for several seconds")
    def test_a_missing_topic_is_not_created(self, servers: str, topic: MakeTopic) -> None:
        """Neither a look-up nor a fetch creates one, and both say that it is not there."""
        name = f"{topic()}-missing"
        options = Options.of(given(servers, subscribe=name))
        with (
            KafkaCluster(options, connect=PlainClient) as cluster,
            pytest.raises(OptionError, match=f"'{name}' does not exist"),
        ):
            cluster.partitions()
        settings = FetchSettings(max_records=10, max_bytes=1000, poll_timeout_ms=20_000)
        config = client_settings(options, driver=False)
        with (
            KafkaFetcher(config, settings, connect=PlainClient) as fetcher,
            pytest.raises(DataLossError, match=f"Partition {name}-0 has been deleted"),
        ):
            list(fetcher.fetch(OffsetRange(name, 0, 0, 20)))

        assert name not in topics_of(servers)

    def test_a_topic_that_goes_away_is_data_loss(self, servers: str, topic: MakeTopic) -> None:
        """Partitions that no longer exist are named, without waiting for the time-out."""
        name = topic()
        with KafkaCluster(Options.of(given(servers, subscribe=name)), connect=PlainClient) as cluster:
            topic_partitions = cluster.partitions()
            delete_topic(servers, name)
            with pytest.raises(DataLossError, match=f"Partitions {name}-0 have been deleted"):
                cluster.latest(topic_partitions)

    def test_commits(self, servers: str, topic: MakeTopic) -> None:
        """Both clients commit offsets that they and others can see."""
        name = topic()
        config = client_settings(Options.of(given(servers, subscribe=name)), driver=True)
        for number, connect in enumerate(CLIENTS, 3):
            client: Client
            patience = Patience(servers, "no broker answers", Limit(10_000, "an option"))
            with closing(connect(config, patience)) as client:
                client.commit(f"{name}-group", {TopicPartition(name, 0): number})
                looked_up = client.committed(f"{name}-group", [TopicPartition(name, 0)])
                assert looked_up == {TopicPartition(name, 0): number}
            with closing(KafkaConsumer(bootstrap_servers=servers, group_id=f"{name}-group")) as consumer:
                assert consumer.committed(KafkaTopicPartition(name, 0)) == number

    def test_a_silent_server(self) -> None:
        """A server that never answers is an error when the time is over, though kafka-python would wait."""
        with closing(socket.create_server(("127.0.0.1", 0))) as server:
            address = f"127.0.0.1:{server.getsockname()[1]}"
            options = Options.of(given(address, subscribe="t", kafka__bootstrap__timeout__ms="700"))
            with (
                KafkaCluster(options, connect=PlainClient) as cluster,
                pytest.raises(KafkaUnavailableError, match=rf"{address} did not answer in [\d.]+ s"),
            ):
                cluster.partitions()
