"""Readers of one topic partition: a `KafkaConsumer`'s polls → chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from kafka import TopicPartition as KafkaTopicPartition

from ticdc_source.errors import DecodeError
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.sources.chunk import Chunk
from ticdc_source.sources.kafka.batches.cut import ChunkLimits
from ticdc_source.sources.kafka.kafka_python import library
from ticdc_source.sources.kafka.kafka_python.library_errors import our_errors
from ticdc_source.sources.kafka.kafka_python.slicing import SliceLimits

__all__ = ["BatchReader", "RecordReader"]

# As many records are asked for at a time as are about this many bytes, by the size of those before: a fetch is unpacked
# only as far, and compressed it may unpack to a hundred times its size.
_POLL_BYTES = 4 << 20
_RECORD_BYTES = 500  # what a record takes beside its key and value
_FIRST_RECORDS = 128


class RecordReader:
    """The general path: reads record by record, by public names only.

    Args:
        consumer: the consumer; nothing else may use it.
        offset_range: what to read.
        limits: how large a chunk is.
        servers: the bootstrap servers, for messages.
    """

    def __init__(
        self,
        consumer: library.Consumer,
        offset_range: OffsetRange,
        limits: ChunkLimits,
        servers: str,
    ) -> None:
        self._consumer = consumer
        self._topic_partition = KafkaTopicPartition(*offset_range.topic_partition)
        self._limits = limits
        self._servers = servers
        self._max_records = _FIRST_RECORDS  # to ask for at a time
        self._previous = -1  # the offset before the next record's
        with our_errors(servers):
            consumer.assign([self._topic_partition])
        self.seek(offset_range.start)

    def seek(self, offset: int) -> None:
        """Continue at another offset."""
        with our_errors(self._servers):
            self._consumer.seek(self._topic_partition, offset)
        self._previous = offset - 1

    def poll(self, timeout_ms: float, max_records: int) -> tuple[Iterator[Chunk] | None, int]:
        """Wait for records; see `PartitionReader.poll`."""
        with our_errors(self._servers):
            polled = self._consumer.poll(timeout_ms=timeout_ms, max_records=self._records_to_ask_for(max_records))
            position = self._consumer.position(self._topic_partition, timeout_ms=0)
        arrived = polled.get(self._topic_partition)
        return (self._chunks(arrived) if arrived else None), position

    def _records_to_ask_for(self, max_records: int) -> int:
        # Never more than can be in the range: kafka-python would make objects of the rest. And when the last of them is
        # taken, it does not begin to wait for what comes after the range.
        return min(max_records, self._max_records)

    def _chunks(self, arrived: Sequence[object]) -> Iterator[Chunk]:
        records = cast("Sequence[library.ConsumerRecord]", arrived)
        # serialized_…_size is -1 for null
        sizes = [max(0, record.serialized_key_size) + max(0, record.serialized_value_size) for record in records]
        self._max_records = max(1, _POLL_BYTES // (sum(sizes) // len(records) + _RECORD_BYTES))
        return self._rising(records, sizes)

    def _rising(self, records: Sequence[library.ConsumerRecord], sizes: Sequence[int]) -> Iterator[Chunk]:
        """Yield the records whose offsets rise.

        Raises:
            DecodeError: the offset of the next one does not, which a checksum cannot tell.
        """
        offsets = [record.offset for record in records]
        before = [self._previous, *offsets[:-1]]
        self._previous = offsets[-1]
        rising = next((index for index, offset in enumerate(offsets) if offset <= before[index]), len(offsets))
        yield from self._cut(records[:rising], sizes)
        if rising < len(offsets):
            msg = f"a record at offset {offsets[rising]}, where one from {before[rising] + 1} on is expected"
            raise DecodeError(msg)

    def _cut(self, records: Sequence[library.ConsumerRecord], sizes: Sequence[int]) -> Iterator[Chunk]:
        limits = self._limits
        first = 0
        while first < len(records):
            after, bytes_left = first + 1, limits.max_bytes - sizes[first]
            while after < min(len(records), first + limits.max_records) and bytes_left >= sizes[after]:
                bytes_left -= sizes[after]
                after += 1
            part = records[first:after]
            yield Chunk(
                self._topic_partition.topic,
                self._topic_partition.partition,
                [record.offset for record in part],
                [-1 if record.timestamp is None else record.timestamp for record in part],
                [record.key for record in part],
                [record.value for record in part],
                [record.headers for record in part] if limits.include_headers else None,
            )
            first = after


class BatchReader(RecordReader):
    """The fast path: the consumer's polls return iterators over chunks, as `slicing.slice_fetches` made it do.

    Args:
        slices: what `slice_fetches` was given.
        consumer, offset_range, limits, servers: see `RecordReader`.
    """

    def __init__(
        self,
        slices: SliceLimits,
        consumer: library.Consumer,
        offset_range: OffsetRange,
        limits: ChunkLimits,
        servers: str,
    ) -> None:
        self._slices = slices
        super().__init__(consumer, offset_range, limits, servers)

    def seek(self, offset: int) -> None:
        """Continue at another offset, which may lie inside a record batch."""
        self._slices.batch_end = -1
        super().seek(offset)

    def _records_to_ask_for(self, max_records: int) -> int:  # noqa: ARG002
        return 1  # one iterator

    def _chunks(self, arrived: Sequence[object]) -> Iterator[Chunk]:
        return cast("Iterator[Chunk]", arrived[0])
