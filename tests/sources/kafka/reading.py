"""Read one range with a fetcher of its own."""

from collections.abc import Generator
from typing import Any

from ticdc_source.options.kafka_client import ClientSettings
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.sources.chunk import Chunk, FetchSettings
from ticdc_source.sources.kafka import KafkaFetcher


def fetch(offset_range: OffsetRange, client: ClientSettings, **settings: Any) -> Generator[Chunk, None, None]:
    """Yield the chunks of a range; the fetcher is closed at the end, also at an early one."""
    with KafkaFetcher(client, FetchSettings(**settings)) as fetcher:
        yield from fetcher.fetch(offset_range)
