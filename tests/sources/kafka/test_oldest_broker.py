"""The oldest Kafka that is supported gives the same rows: the tests of a real broker, once more on Kafka 2.4."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from examples.data import read_messages, read_truth
from examples.demo.pipeline import current_rows, read_changes
from examples.local_kafka import LocalKafka, OldestKafka, produce
from tests.sources.kafka import test_broker
from tests.sources.kafka.reading import fetch
from tests.spark.streams import Stream
from ticdc_source.options.kafka_client import client_settings
from ticdc_source.sources.kafka import KafkaCluster

# One process has the Spark session: it runs all tests here, with one broker.
pytestmark = [pytest.mark.slow("starts another broker"), pytest.mark.broker, pytest.mark.xdist_group("spark")]

MakeTopic = Callable[..., str]
servers = test_broker.servers


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalKafka]:
    with OldestKafka(sasl=True) as kafka:
        yield kafka


class TestRanges(test_broker.TestRanges):
    def test_topic_ids_come_with_every_look_up(self, servers: str, topic: MakeTopic) -> None:
        """Topics of this broker have no ids: no look-up tells any."""
        with KafkaCluster(test_broker.options(servers, subscribe=topic())) as cluster:
            assert cluster.latest(cluster.partitions())
            assert cluster.topic_ids() == {}


class TestFetch(test_broker.TestFetch):
    @pytest.mark.parametrize("seed", [0])
    def test_any_range_gives_exactly_its_records(self, servers: str, topic: MakeTopic, seed: int) -> None:
        """Whatever the range, the sizes of chunks and of fetches: its records, once, in order, in bounds."""
        super().test_any_range_gives_exactly_its_records(servers, topic, seed)


class TestInvisibleRecords(test_broker.TestInvisibleRecords):
    pass


def test_a_login_lets_us_in(broker: LocalKafka, topic: MakeTopic) -> None:
    """Look-ups and fetches work after a login with SASL."""
    name = topic()
    produce(broker.bootstrap_servers, name, test_broker.values(1))
    login = f'username="{broker.user}" password="{broker.password}"'
    given = test_broker.options(
        str(broker.sasl_bootstrap_servers),
        subscribe=name,
        kafka__security__protocol="SASL_PLAINTEXT",
        kafka__sasl__mechanism="PLAIN",
        kafka__sasl__jaas__config=f"org.apache.kafka.common.security.plain.PlainLoginModule required {login};",
    )
    with KafkaCluster(given) as cluster:
        (offset_range,) = cluster.resolve_ranges()
    assert test_broker.flat(fetch(offset_range, client_settings(given, driver=False), **test_broker.HOW)) == [(0, b"0")]


def test_spark_reads_the_demos_messages(
    broker: LocalKafka, topic: MakeTopic, spark: SparkSession, tmp_path: Path
) -> None:
    """A batch and a stream return all changes, and the table that SQL has."""
    name, table = topic(3), "shop.orders"
    produce(broker.bootstrap_servers, name, [(*message, [], None) for message in read_messages("canal-json")])
    truth = read_truth()[table]

    changes = read_changes(spark, broker.bootstrap_servers, name, table)
    assert current_rows(changes).count() == len(truth.rows)

    given: dict[str, Any] = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": name,
        "tables": table,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "10000",
    }
    stream = Stream(spark, spark.readStream.format("ticdc").options(**given).load(), tmp_path)
    query = stream.finish()
    assert len(query.recentProgress) == 2
    places = ["_sequence.partition", "_sequence.offset", "_change_type"]
    written = spark.read.parquet(str(tmp_path / "output")).select(*places).toArrow()
    assert sorted(written.to_pylist(), key=str) == sorted(changes.select(*places).toArrow().to_pylist(), key=str)
