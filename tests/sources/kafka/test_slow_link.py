"""A link that brings less than one fetch in `request.timeout.ms`: a request waits while its answer arrives."""

import random
from collections.abc import Iterator

import pytest

from examples.local_kafka import LocalKafka, create_topic, produce
from tests.support.proxy import CountingProxy, counted_kafka
from ticdc_source.options.kafka_client import client_settings
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.sources.chunk import FetchSettings
from ticdc_source.sources.kafka import KafkaFetcher

pytestmark = [pytest.mark.broker, pytest.mark.slow("a broker of its own behind a slow link")]


@pytest.fixture(scope="module")
def slow() -> Iterator[tuple[LocalKafka, CountingProxy]]:
    with counted_kafka() as both:
        yield both


def test_a_fetch_takes_longer_than_a_request_may_if_bytes_arrive(slow: tuple[LocalKafka, CountingProxy]) -> None:
    """At 100 KB/s, 300 KB that would be one fetch of three seconds arrive although a request may take half of that."""
    kafka, proxy = slow
    name = "slow"
    create_topic(kafka.bootstrap_servers, name)
    values = [random.Random(number).randbytes(10_000) for number in range(30)]
    produce(kafka.bootstrap_servers, name, [(0, None, value, [], None) for value in values], batch_bytes=20_000)
    given = {"request.timeout.ms": "1500", "max.partition.fetch.bytes": "400000"}
    given = {"bootstrap.servers": kafka.bootstrap_servers, **given}
    options = Options.of({"subscribe": name, **{f"kafka.{setting}": given[setting] for setting in given}})
    settings = FetchSettings(max_records=1000, max_bytes=1 << 20, poll_timeout_ms=15_000)

    proxy.rate = 100_000
    try:
        with KafkaFetcher(client_settings(options, driver=False), settings) as fetcher:
            chunks = list(fetcher.fetch(OffsetRange(name, 0, 0, 30)))
    finally:
        proxy.rate = None

    assert [value for chunk in chunks for value in chunk.values] == values
    assert len(chunks) == 1
