"""Reads of one range, and what tests of a real broker and of stand-ins share."""

import time
from collections.abc import Generator
from typing import Any

from ticdc_source.options.kafka_client import ClientSettings, client_settings
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.sources.chunk import Chunk, FetchSettings
from ticdc_source.sources.kafka import KafkaFetcher
from ticdc_source.sources.kafka.kafka_python.network_client import NetworkClient

# Seconds: what hangs, or is tried in vain, takes longer; what goes on, on a busy machine too, does not.
DEADLINE = 30


def fetch(offset_range: OffsetRange, client: ClientSettings, **settings: Any) -> Generator[Chunk, None, None]:
    """Yield the chunks of a range; the fetcher is closed at the end, also at an early one."""
    with KafkaFetcher(client, FetchSettings(**settings)) as fetcher:
        yield from fetcher.fetch(offset_range)


def numbers_of(given: Options, records: int, pause: float = 0.0, chunk: int = 10) -> list[int]:
    """Return the values of topic t, which are numbers, with a pause after each chunk."""
    found: list[int] = []
    settings = {"max_records": chunk, "max_bytes": 1 << 20, "poll_timeout_ms": 20_000}
    for part in fetch(OffsetRange("t", 0, 0, records), client_settings(given, driver=False), **settings):
        found += [int(value) for value in part.values if value is not None]
        time.sleep(pause)
    return found


class StandIn(NetworkClient):
    """A client that is connected to nothing: tests override what they ask."""

    def __init__(self) -> None:
        self.servers, self.library = "b:1", "stub"
        self.topic_ids, self.leader_epochs = {}, {}

    def close(self) -> None:
        """Nothing to close."""
