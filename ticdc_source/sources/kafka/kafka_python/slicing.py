"""Record batches, not single records: kafka-python's consumer hands out what a fetch returned.

kafka-python 3.0 unpacks a fetch in `Fetcher.PartitionRecords`. `Slice` replaces it for one consumer, and passes the
record batches on as they arrived. All the rest is kafka-python's: connections, sessions, leaders, positions, errors. As
the position moves behind the whole fetch at once, the next fetch is under way before this one is read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import kafka.errors
from kafka import IsolationLevel, KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition
from kafka.record.legacy_records import LegacyRecordBatch

from ticdc_source.errors import DecodeError
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.topics import TopicPartition
from ticdc_source.sources.chunk import Chunk, FetchSettings
from ticdc_source.sources.kafka.cut import chunks_of
from ticdc_source.sources.kafka.kafka_python.library_errors import our_errors
from ticdc_source.sources.kafka.record_batches import AbortedTransaction, Fetched, LegacyRecord, record_batches

_MAGIC = 16  # where the message format is written


@dataclass(slots=True)
class SliceLimits:
    """The current limits of a consumer's polls.

    Attributes:
        highwater: returns the partition's high watermark in the last answer, if any.
        batch_end: the end of the last record batch taken; -1 if the consumer has moved since.
    """

    chunk: FetchSettings
    end: int
    highwater: Callable[[TopicPartition], int | None] = lambda _: None
    batch_end: int = -1


class Slice:
    """Replaces kafka-python's `PartitionRecords`: it returns one object, an iterator over chunks, not records.

    `limits` may change while this waits for its turn.
    """

    def __init__(
        self,
        limits: SliceLimits,
        fetch_offset: int,
        tp: TopicPartition,
        records: Any,  # noqa: ANN401 (kafka-python's `MemoryRecords`)
        *,
        check_crcs: bool = True,
        isolation_level: object = IsolationLevel.READ_UNCOMMITTED,
        aborted_transactions: Iterable[AbortedTransaction] | None = None,
        on_drain: Callable[[Slice], object] = lambda _: None,
        **_: object,  # deserializers and metrics
    ) -> None:
        self.topic_partition = tp
        self.fetch_offset = self.next_fetch_offset = fetch_offset
        self.leader_epoch = -1
        self.bytes_read = self.records_read = 0
        self._limits = limits
        self._on_drain = on_drain
        self._left = True
        is_committed = isolation_level == IsolationLevel.READ_COMMITTED
        self._fetched: Fetched | None = Fetched(
            topic=tp.topic,
            partition=tp.partition,
            start=fetch_offset,
            data=records._buffer,  # noqa: SLF001 (its public way out is batch by batch, each copied)
            read_legacy=legacy_records,
            check_crcs=check_crcs,
            aborted=tuple(aborted_transactions or ()) if is_committed else None,
        )

    def __bool__(self) -> bool:
        """Whether anything is left; until then, no more is fetched."""
        return self._left

    def take(self, _max_records: int | None = None) -> list[Iterator[Chunk]]:
        """Return everything at once, and move to the offset after it.

        At the end of the range, something seems to be left, so that nothing more is fetched.
        """
        fetched, self._fetched = self._fetched, None
        if fetched is None:
            self.drain()
            return []
        limits = self._limits
        batches, damage = record_batches(
            fetched.data,
            fetched.start,
            limits.highwater(self.topic_partition),
            at_batch=fetched.start == limits.batch_end,
        )
        if batches:
            self.next_fetch_offset = max(self.next_fetch_offset, batches[-1].next_offset)
            self.leader_epoch = batches[-1].leader_epoch
            limits.batch_end = batches[-1].next_offset
        self.bytes_read = len(fetched.data)
        if damage is None and self.next_fetch_offset < limits.end:
            self.drain()
        return [chunks_of(fetched, batches, damage, limits.chunk, limits.end)] if batches or damage else []

    def drain(self) -> None:
        self._fetched = None
        if self._left:
            self._left = False
            self._on_drain(self)


def legacy_records(message: memoryview, check_crcs: bool) -> Iterator[LegacyRecord]:  # noqa: FBT001 (`ReadLegacy`)
    """Yield the records of a message older than format v2, maybe a compressed set of messages; see `ReadLegacy`.

    Raises:
        DecodeError: a checksum is wrong, or kafka-python lacks the library for the codec.
    """
    try:
        for record in LegacyRecordBatch(message, message[_MAGIC]):
            if check_crcs and not record.validate_crc():
                raise DecodeError(f"Record at offset {record.offset} failed crc check")
            timestamp = -1 if record.timestamp is None else record.timestamp
            yield LegacyRecord(record.offset, timestamp, record.key, record.value)
    except (kafka.errors.CorruptRecordError, kafka.errors.UnsupportedCodecError) as error:
        raise DecodeError(str(error)) from error


class BatchReader:
    """Reads one topic partition after the other. It owns the consumer, and makes its polls return chunk iterators."""

    def __init__(self, consumer: KafkaConsumer, limits: FetchSettings, servers: str) -> None:
        self._consumer = consumer
        self._servers = servers
        self._slices = SliceLimits(limits, 0, consumer.highwater)
        consumer._fetcher.PartitionRecords = functools.partial(Slice, self._slices)  # noqa: SLF001

    def begin(self, offset_range: OffsetRange, limits: FetchSettings) -> None:
        self._slices.chunk, self._slices.end = limits, offset_range.end
        self._topic_partition = KafkaTopicPartition(*offset_range.topic_partition)
        with our_errors(self._servers):
            self._consumer.assign([self._topic_partition])
        self.seek(offset_range.start)

    def seek(self, offset: int) -> None:
        self._slices.batch_end = -1
        with our_errors(self._servers):
            self._consumer.seek(self._topic_partition, offset)

    def poll(self, timeout_ms: float) -> tuple[Iterator[Chunk] | None, int]:
        """Wait for records.

        Returns:
            chunks (None if no record arrived), which are cut while you iterate, and the next offset, which may be
            further than after the last record, and rise without one.

        Raises:
            OffsetOutOfRangeError, LogTruncatedError: see there.
            DecodeError: a record batch is damaged; without an address. Also while iterating, which may raise whatever
                parsers raise on bytes that are not records.
            TiCDCSourceError: any other failure.
        """
        with our_errors(self._servers):
            polled = self._consumer.poll(timeout_ms=timeout_ms, max_records=1)  # one iterator
            position = self._consumer.position(self._topic_partition, timeout_ms=0)
        arrived = polled.get(self._topic_partition)
        return (arrived[0] if arrived else None), position
