"""The reader of one topic partition: a `KafkaConsumer`'s polls → chunks."""

from __future__ import annotations

from collections.abc import Iterator

from kafka import TopicPartition as KafkaTopicPartition

from ticdc_source.options.offsets import OffsetRange
from ticdc_source.sources.chunk import Chunk
from ticdc_source.sources.kafka.kafka_python import library
from ticdc_source.sources.kafka.kafka_python.library_errors import our_errors
from ticdc_source.sources.kafka.kafka_python.slicing import SliceLimits

__all__ = ["BatchReader"]


class BatchReader:
    """Reads a consumer whose polls return iterators over chunks, as `slicing.slice_fetches` made it do.

    Args:
        slices: what `slice_fetches` was given.
        consumer: the consumer; nothing else may use it.
        offset_range: what to read.
        servers: the bootstrap servers, for messages.
    """

    def __init__(
        self, slices: SliceLimits, consumer: library.Consumer, offset_range: OffsetRange, servers: str
    ) -> None:
        self._slices = slices
        self._consumer = consumer
        self._topic_partition = KafkaTopicPartition(*offset_range.topic_partition)
        self._servers = servers
        with our_errors(servers):
            consumer.assign([self._topic_partition])
        self.seek(offset_range.start)

    def seek(self, offset: int) -> None:
        """Continue at another offset, which may lie inside a record batch."""
        self._slices.batch_end = -1
        with our_errors(self._servers):
            self._consumer.seek(self._topic_partition, offset)

    def poll(self, timeout_ms: float) -> tuple[Iterator[Chunk] | None, int]:
        """Wait for records; see `PartitionReader.poll`."""
        with our_errors(self._servers):
            polled = self._consumer.poll(timeout_ms=timeout_ms, max_records=1)  # one iterator
            position = self._consumer.position(self._topic_partition, timeout_ms=0)
        arrived = polled.get(self._topic_partition)
        return (arrived[0] if arrived else None), position
