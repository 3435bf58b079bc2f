"""Three brokers, of which some die, freeze or start again while they are read."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager

import pytest

from examples.local_kafka import LocalKafka, LocalKafkaCluster, create_topic, produce
from ticdc_source.options.kafka_client import client_settings
from ticdc_source.options.options import Options
from ticdc_source.sources.chunk import Chunk, FetchSettings
from ticdc_source.sources.kafka import KafkaCluster, KafkaFetcher
from ticdc_source.sources.kafka.kafka_python.network_client import NetworkClient
from ticdc_source.sources.kafka.patience import Limit, Patience

pytestmark = [pytest.mark.broker, pytest.mark.long("three brokers, which it starts again and again")]

RECORDS = 300
READS = int(os.environ.get("TICDC_READS", "5"))  # with each fault
LOOK_UPS = 10
SESSION_SECONDS = 3.0
LONGEST = 240.0  # seconds until a broker is back in the metadata; it takes one on two idle cores


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalKafkaCluster]:
    """Three brokers, and a topic `t` of three partitions with a replica on each."""
    with LocalKafkaCluster(session_seconds=SESSION_SECONDS) as brokers:
        create_topic(brokers.bootstrap_servers, "t", 3, replicas=3)
        produce(brokers.bootstrap_servers, "t", [(n % 3, None, b"%d" % n, [], None) for n in range(RECORDS)])
        yield brokers


def given(cluster: LocalKafkaCluster) -> Options:
    return Options.of({"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "t"})


def read(options: Options) -> set[bytes | None]:
    """Read the topic as a driver and a worker do, each with connections of its own."""
    with KafkaCluster(options) as lookup:
        ranges = lookup.resolve_ranges()
    settings = FetchSettings(max_records=50, max_bytes=1 << 20, poll_timeout_ms=60_000)
    with KafkaFetcher(client_settings(options, driver=False), settings) as fetcher:
        chunks: list[Chunk] = [chunk for offset_range in ranges for chunk in fetcher.fetch(offset_range)]
    return {value for chunk in chunks for value in chunk.values}


def is_listed(cluster: LocalKafkaCluster, broker: LocalKafka) -> bool:
    """Return whether the first broker's metadata, which tell clients whom to ask, still have another broker."""
    options = Options.of({"kafka.bootstrap.servers": cluster.brokers[0].bootstrap_servers, "subscribe": "t"})
    config = client_settings(options, driver=True)
    patience = Patience(cluster.brokers[0].bootstrap_servers, "no answer", Limit(30_000, "of this test"))
    with closing(NetworkClient(config, patience)) as client:
        listed = client._manager.cluster.brokers()
    return any(f"{each.host}:{each.port}" == broker.bootstrap_servers for each in listed)


@contextmanager
def killed(broker: LocalKafka) -> Iterator[None]:
    broker.kill()
    try:
        yield
    finally:
        broker.start()


@contextmanager
def frozen(broker: LocalKafka) -> Iterator[None]:
    broker.pause()
    try:
        yield
    finally:
        broker.resume()


@pytest.mark.parametrize(
    ("trouble", "at_a_time"),
    # Reads at a time: after a few seconds the others no longer name a broker that is away, and nobody asks it.
    [(killed, 5), (frozen, 1)],
)
def test_one_broker_of_three_ends_no_read(
    cluster: LocalKafkaCluster, trouble: Callable[[LocalKafka], AbstractContextManager[None]], at_a_time: int
) -> None:
    """Whichever broker a request would go to: the reads that begin while one is dead or frozen return every record."""
    everything = {b"%d" % number for number in range(RECORDS)}
    broken = cluster.brokers[2]
    complete = listed = 0
    began = time.monotonic()
    for first in range(0, READS, at_a_time):
        deadline = time.monotonic() + LONGEST
        while not is_listed(cluster, broken):  # a moment after its last return
            assert time.monotonic() < deadline, f"not listed in {LONGEST} s"
            time.sleep(0.05)
        with trouble(broken):
            for _ in range(min(at_a_time, READS - first)):
                listed += is_listed(cluster, broken)
                complete += read(given(cluster)) == everything
    seconds = time.monotonic() - began
    assert read(given(cluster)) == everything
    print(  # noqa: T201 (the figure)
        f"one of three brokers {trouble.__name__}: {complete} of {READS} reads complete; it was a "
        f"bootstrap server of all, in the metadata at the beginning of {listed}; {seconds:.0f} s (TICDC_READS)"
    )
    assert complete == READS
    assert listed


def test_a_look_up_survives_the_death_of_the_broker_it_talked_to(cluster: LocalKafkaCluster) -> None:
    """A stream's look-ups, on connections that it keeps, go on when a broker dies and when it comes back."""
    with KafkaCluster(given(cluster)) as lookup:
        partitions = lookup.partitions()
        for broker in cluster.brokers[1:]:
            with killed(broker):
                for _ in range(LOOK_UPS):
                    assert sum(lookup.latest(partitions).values()) == RECORDS
