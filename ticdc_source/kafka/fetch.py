"""An offset range → bounded chunks of its records.

The rules are those of Spark's `KafkaDataConsumer`: a range ends by the consumer's *position*, because its
last offsets may be transaction markers, aborted or compacted away; what is gone although it lay in the range
is data loss; silence for too long is an error.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import kafka.errors
from kafka import TopicPartition as KafkaTopicPartition

from ticdc_source.errors import Address, DecodeError, KafkaUnavailableError, TiCDCSourceError
from ticdc_source.events import Chunk
from ticdc_source.kafka.api import ClientConfig, FetchSettings
from ticdc_source.kafka.batches.cut import Bounds, between
from ticdc_source.kafka.kafka_python.client import Client, translated
from ticdc_source.kafka.kafka_python.slicing import sliced
from ticdc_source.kafka.lookup import report_loss
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.ranges import EARLIEST, LATEST

__all__ = ["KafkaFetcher"]

# Waits for records double from the first to the second, so that a range that ends without any ends soon.
_FIRST_WAIT_MS, _LONGEST_WAIT_MS = 5, 500
# After so long without progress it is looked up whether there is anything to wait for, and again after as
# long; it counts after so many times in a row (a restarting broker may say for a moment that it knows no such
# topic).
_LOOK_AFTER_SECONDS, _LOOKS = 1.0, 3
_LOOK_TIMEOUT_MS = 5_000
# A fetch is unpacked as far as it is asked for: compressed, it may be a hundred times what has come. A chunk is about
# as much as an uncompressed fetch holds; of kafka-python as many records are wanted, by the size of those before.
_IN_HAND_BYTES = 4 << 20
_RECORD_BYTES = 500  # what a record takes beside its key and value
_FIRST_RECORDS = 128


class KafkaFetcher(AbstractContextManager["KafkaFetcher"]):
    """The `Fetcher` for Kafka; connects at the first range that is not empty.

    Args:
        config: what `client_config` returned.
        settings: how to read.
    """

    def __init__(self, config: ClientConfig, settings: FetchSettings) -> None:
        self._config = config
        self._settings = settings
        max_bytes = min(settings.max_bytes, _IN_HAND_BYTES)
        self._bounds = Bounds(settings.max_records, max_bytes, settings.include_headers)
        self._client: Client | None = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the next range connects again."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def fetch(self, offset_range: OffsetRange) -> Generator[Chunk, None, None]:
        """Yield the records of a range; see `Fetcher.fetch`."""
        if offset_range.size == 0:
            return
        if self._client is None:
            self._client = Client(self._config)
        bounds = self._bounds
        bounds.end = offset_range.end
        settings = self._settings
        reading = _Reading(
            self._client, offset_range, bounds, settings.poll_timeout_ms, fail=settings.fail_on_data_loss
        )
        yield from reading.chunks()


class _Reading:
    """One pass through one range: where it is, and what it has waited for."""

    def __init__(
        self, client: Client, wanted: OffsetRange, bounds: Bounds, poll_timeout_ms: int, *, fail: bool
    ) -> None:
        self._client = client
        self._wanted = wanted
        self._chunk_bounds = bounds
        self._place = wanted.topic_partition
        self._kafka_place = KafkaTopicPartition(*self._place)
        self._timeout_ms = poll_timeout_ms
        self._fail = fail
        self._expected = wanted.start  # the first offset not yet accounted for
        self._log_start: int | None = None  # as it was after the records in hand had come
        self._most = _FIRST_RECORDS  # records to ask for at a time
        self._rested()
        with self._our_errors():
            client.topics([wanted.topic], min(client.timeout_ms, poll_timeout_ms))
            self._consumer = client.consumer()
            self._is_sliced = sliced(self._consumer, bounds)
            self._consumer.assign([self._kafka_place])
            self._consumer.seek(self._kafka_place, wanted.start)

    def _rested(self) -> None:
        """Begin to wait anew: time that the caller took is not the brokers'."""
        self._waiting_since = self._looked_at = time.monotonic()
        self._wait_ms: float = _FIRST_WAIT_MS
        self._looks = 0

    def chunks(self) -> Iterator[Chunk]:
        """Yield the records of the range, some megabytes at a time at most."""
        end = self._wanted.end
        with self._our_errors():
            while self._expected < end:
                coming, position = self._poll()
                if coming is not None:
                    yield from self._accepted(coming, position)
                    self._rested()
                elif position > self._expected:
                    # Nothing visible in between: markers, aborted or compacted records.
                    self._account_for_hole(self._expected)
                    self._expected = position
                    self._rested()
                else:
                    self._wait()

    def _poll(self) -> tuple[Iterator[Chunk] | None, int]:
        """Ask for records once; an offset that is out of range is settled here.

        Returns:
            what has come, if anything has, and the position behind it.
        """
        self._log_start = None
        try:
            # Never more than can be in the range: the rest would be made into objects for nothing. And when the
            # last of them is taken, kafka-python does not begin to wait for what comes after the range.
            most = 1 if self._is_sliced else min(self._wanted.end - self._expected, self._most)
            polled = self._consumer.poll(timeout_ms=self._wait_ms, max_records=most)
            position = self._consumer.position(self._kafka_place, timeout_ms=0)
        except kafka.errors.OffsetOutOfRangeError:
            self._resettle()
        except kafka.errors.LogTruncationError as error:
            self._lost(f"{self._place} was truncated at or before offset {self._expected} ({error})")
            self._consumer.seek(self._kafka_place, self._expected)
        else:
            given = polled.get(self._kafka_place)
            if not given:
                return None, position
            return (given[0] if self._is_sliced else self._record_by_record(given)), position
        return None, self._expected

    def _record_by_record(self, records: list[Any]) -> Iterator[Chunk]:
        """Turn kafka-python's records into chunks: the general path."""
        # serialized_…_size is -1 for null
        sizes = [max(0, record.serialized_key_size) + max(0, record.serialized_value_size) for record in records]
        self._most = max(1, _IN_HAND_BYTES // (sum(sizes) // len(records) + _RECORD_BYTES))
        bounds = self._chunk_bounds
        first = 0
        while first < len(records):
            after, room = first + 1, bounds.most_bytes - sizes[first]
            while after < min(len(records), first + bounds.most_records) and room >= sizes[after]:
                room -= sizes[after]
                after += 1
            part = records[first:after]
            yield Chunk(
                self._place.topic,
                self._place.partition,
                [record.offset for record in part],
                [record.timestamp for record in part],
                [record.key for record in part],
                [record.value for record in part],
                [record.headers for record in part] if bounds.include_headers else None,
            )
            first = after

    def _accepted(self, coming: Iterator[Chunk], position: int) -> Iterator[Chunk]:
        """Yield chunks without what lies behind the end, and account for the holes in them and behind them."""
        end = self._wanted.end
        for chunk in coming:
            wanted = between(chunk, self._expected, end)
            if wanted.offsets:
                last = wanted.offsets[-1]
                if last + 1 - self._expected != len(wanted):
                    numbered = enumerate(wanted.offsets, self._expected)
                    self._account_for_hole(next(expected for expected, offset in numbered if expected != offset))
                self._expected = last + 1
                yield wanted
            if self._expected == end or chunk.offsets[-1] >= end:
                break
        if self._expected < end <= position:
            self._account_for_hole(self._expected)
        self._expected = max(self._expected, min(position, end))

    def _account_for_hole(self, missing: int) -> None:
        """Tell compaction and transactions, which leave holes, from records that were deleted unread."""
        if self._log_start is None:
            bounds = self._bounds(self._timeout_ms)
            self._log_start = None if bounds is None else bounds[0]
        if self._log_start is not None and self._log_start > missing:
            self._lost(f"{self._place}: offsets {missing} to {self._log_start - 1} are gone")

    def _resettle(self) -> None:
        """Answer 'offset out of range': report what is lost, and go on where that is possible."""
        bounds = self._bounds(self._timeout_ms)
        if bounds is None:
            return  # reported below, if it stays so
        earliest, latest = bounds
        if self._expected < earliest:
            self._lost(f"{self._place}: offsets {self._expected} to {earliest - 1} are gone")
            self._expected = min(earliest, self._wanted.end)
        elif self._expected > latest:
            self._lost(f"{self._place}: offset {self._expected} is asked for, but the latest is {latest}")
            self._expected = self._wanted.end
        # Else a leader that is still catching up: ask again, until the time is over.
        self._consumer.seek(self._kafka_place, self._expected)

    def _wait(self) -> None:
        """Wait longer the next time; give up when the time is over, or when there is nothing to wait for."""
        now = time.monotonic()
        self._wait_ms = min(2 * self._wait_ms, _LONGEST_WAIT_MS)
        left_ms = self._timeout_ms - (now - self._waiting_since) * 1000
        if left_ms <= 0:
            msg = (
                f"Cannot fetch record for offset {self._expected} of {self._place} in {self._timeout_ms} ms "
                f"(Kafka at {self._client.servers}; option kafkaConsumer.pollTimeoutMs)"
            )
            raise KafkaUnavailableError(msg)
        if now - self._looked_at < _LOOK_AFTER_SECONDS:
            return
        try:
            bounds = self._bounds(min(left_ms, _LOOK_TIMEOUT_MS))
        except (kafka.errors.KafkaError, OSError):
            self._looks = 0  # the brokers do not answer: that is no statement about the partition
        else:
            reason = None
            if bounds is None:
                reason = f"Partition {self._place} has been deleted."
            elif bounds[1] <= self._expected:
                reason = f"{self._place}: offsets to {self._wanted.end} were there, now the latest is {bounds[1]}"
            self._looks = self._looks + 1 if reason else 0
            if reason and self._looks >= _LOOKS:
                self._lost(reason)
                self._expected = self._wanted.end
        self._looked_at = time.monotonic()

    def _bounds(self, timeout_ms: float) -> tuple[int, int] | None:
        """Return the partition's earliest and latest offset; None if there is no such partition."""
        place = self._place
        try:
            earliest = self._client.offsets({place: EARLIEST}, timeout_ms)[place]
            latest = self._client.offsets({place: LATEST}, timeout_ms)[place]
        except kafka.errors.UnknownTopicOrPartitionError:
            return None
        return earliest, latest

    def _lost(self, reason: str) -> None:
        report_loss(f"{reason} (reading {self._wanted})", fail=self._fail)

    @contextmanager
    def _our_errors(self) -> Iterator[None]:
        """Turn what kafka-python raises inside the block into our errors."""
        try:
            yield
        except TiCDCSourceError:
            raise
        except (kafka.errors.CorruptRecordError, kafka.errors.UnsupportedCodecError) as error:
            raise self._undecodable(str(error)) from error
        except (kafka.errors.KafkaError, OSError, RuntimeError) as error:
            raise translated(error, self._client.servers, self._client.timeout_ms) from error
        except Exception as error:  # what its parsers raise on bytes that are no records
            reason = f"{type(error).__name__}: {error}"
            raise self._undecodable(reason) from error

    def _undecodable(self, reason: str) -> DecodeError:
        address = Address(topic=self._place.topic, partition=self._place.partition, offset=self._expected)
        return DecodeError(f"Kafka's record batch cannot be read: {reason}", address)
