"""Fill topics as fast as the broker accepts: record batches are made once and sent again and again.

The broker assigns new offsets to each copy, and writes them outside the part that a batch's checksum covers.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import cycle, islice
from typing import Any, NamedTuple

import kafka.errors
from kafka.protocol.producer import ProduceRequest
from kafka.record.memory_records import MemoryRecordsBuilder

from benchmarks.corpus import Message
from ticdc_source.options.kafka_client import client_settings
from ticdc_source.options.options import Options
from ticdc_source.sources.kafka.kafka_python.network_client import NetworkClient
from ticdc_source.sources.kafka.patience import Limit, Patience

_MAGIC = 2
_CODECS = {None: 0, "gzip": 1, "lz4": 3}
_TIMEOUT_MS = 30_000
_NOT_YET = (kafka.errors.NotLeaderForPartitionError, kafka.errors.UnknownTopicOrPartitionError)  # errors of a new topic
_LARGEST = 20 * 2**20  # the broker's message.max.bytes


class Batch(NamedTuple):
    """A record batch as Kafka stores it."""

    data: bytes
    records: int
    size: int
    rows: int


class Filled(NamedTuple):
    """What was written: records, bytes of their values, and changelog rows."""

    records: int
    size: int
    rows: int


def record_batch(messages: Iterable[Message], compression: str | None = None) -> Batch:
    """Return a record batch of messages."""
    builder = MemoryRecordsBuilder(_MAGIC, _CODECS[compression], _LARGEST)
    now = int(time.time() * 1000)
    count = size = rows = 0
    for key, value, own_rows in messages:
        if builder.append(now, key, value) is None:
            raise ValueError(f"more than {_LARGEST} bytes do not fit into one record batch")
        count += 1
        size += len(value or b"")
        rows += own_rows
    builder.close()
    return Batch(bytes(builder.buffer()), count, size, rows)


class Loader:
    """A connection for writing record batches to a single broker, which leads all partitions."""

    def __init__(self, client: NetworkClient) -> None:
        self._client = client

    def send(self, topic: str, batches: Mapping[int, bytes]) -> dict[int, int]:
        """Write a record batch to each of some partitions, in one request; return its first offset in each."""
        firsts: dict[int, int] = {}
        deadline = time.monotonic() + _TIMEOUT_MS / 1000
        while len(firsts) < len(batches):
            missing = {number: data for number, data in batches.items() if number not in firsts}
            for partition in self._sent(topic, missing):
                error = kafka.errors.for_code(partition.error_code)
                if error is kafka.errors.NoError:
                    firsts[partition.index] = partition.base_offset
                elif error not in _NOT_YET or time.monotonic() > deadline:
                    raise error(f"{topic}-{partition.index}")
        return firsts

    def _sent(self, topic: str, batches: Mapping[int, bytes]) -> Any:
        per_topic = ProduceRequest.TopicProduceData
        data = [per_topic.PartitionProduceData(index=number, records=batch) for number, batch in batches.items()]
        request = ProduceRequest(
            transactional_id=None,
            acks=1,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[per_topic(name=topic, partition_data=data)],
            max_version=9,
        )
        return self._client._ask(lambda: request, _patience()).responses[0].partition_responses

    def fill(
        self, topic: str, batches: Sequence[Batch], *, partitions: int = 1, size: int = 0, records: int = 0
    ) -> Filled:
        """Write at least this number of bytes of values, and of records: the batches in turn, to all partitions."""
        filled = Filled(0, 0, 0)
        for batch in cycle(batches):
            self.send(topic, dict.fromkeys(range(partitions), batch.data))
            filled = Filled(*(have + partitions * more for have, more in zip(filled, batch[1:], strict=True)))
            if filled.size >= size and filled.records >= records:
                break
        return filled


def _patience() -> Patience:
    return Patience("the broker of this run", "a request waits", Limit(_TIMEOUT_MS, "_TIMEOUT_MS"))


@contextmanager
def loader(bootstrap: str) -> Iterator[Loader]:
    """Connect to a broker."""
    options: Any = Options.of({"kafka.bootstrap.servers": bootstrap, "subscribe": "any"})
    with closing(NetworkClient(client_settings(options, driver=True), _patience())) as client:
        yield Loader(client)


def batches_of(
    messages: Iterator[Message], batch_bytes: int, total_bytes: int, compression: str | None = None
) -> list[Batch]:
    """Return record batches of about `batch_bytes` bytes of messages each, `total_bytes` altogether."""
    batches: list[Batch] = []
    while sum(batch.size for batch in batches) < total_bytes:
        first = next(messages)
        more = max(0, batch_bytes // len(first.value or b"-") - 1)
        batches.append(record_batch([first, *islice(messages, more)], compression))
    return batches
