"""An offset range → bounded chunks of its records, by the rules of Spark's `KafkaDataConsumer`.

A range ends by the consumer's *position*, because its last offsets may have no record (transaction markers, aborted or
compacted records). Missing records of the range are data loss, and silence for too long is an error.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from ticdc_source.errors import Address, DecodeError, KafkaUnavailableError, TiCDCSourceError
from ticdc_source.options.kafka_client import ClientSettings
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.ranges import EARLIEST, LATEST
from ticdc_source.options.topics import TopicPartition
from ticdc_source.sources.chunk import Chunk, FetchSettings
from ticdc_source.sources.kafka.answers import LogTruncatedError, OffsetOutOfRangeError, UnknownPartitionsError
from ticdc_source.sources.kafka.cut import between
from ticdc_source.sources.kafka.kafka_python.connect import Connect, RetryingClient, connect
from ticdc_source.sources.kafka.lookup import LOOKS_UNTIL_GONE, LOOKS_UNTIL_RECREATED, SECOND_LOOK_SECONDS, report_loss
from ticdc_source.sources.kafka.patience import Limit, Patience
from ticdc_source.sources.record_source import Fetcher

if TYPE_CHECKING:
    from ticdc_source.sources.kafka.kafka_python.connect import Client, PartitionReader

# The wait for records doubles from the first value to the second. It starts low, so that a range without records at its
# end ends soon.
_FIRST_WAIT_MS, _LONGEST_WAIT_MS = 5, 500
# After so long without progress, and again after as long, the log's bounds are looked up, to find out whether there is
# anything to wait for. "Nothing" counts after as many looks in a row as the driver takes, and as far apart: a broker
# that has just started may not know the topic.
_LOOK_AFTER_SECONDS = 1.0
_LOOK_TIMEOUT_MS = 5_000
# The size of an uncompressed fetch: a compressed one may unpack to a hundred times its size.
_MAX_CHUNK_BYTES = 4 << 20


class KafkaFetcher(Fetcher):
    """The `Fetcher` for Kafka; connects at the first range that is not empty."""

    def __init__(self, client: ClientSettings, settings: FetchSettings, *, connect: Connect = connect) -> None:
        # A stream's worker has the patience of a stream from the beginning: the driver has reached the brokers.
        self._brokers = RetryingClient(client, connect, reached=client.broker_timeout_ms is not None)
        self._settings = settings

    def close(self) -> None:
        self._brokers.close()

    def fetch(self, offset_range: OffsetRange) -> Generator[Chunk, None, None]:
        if offset_range.size == 0:
            return
        read = _RangeRead(self._brokers, offset_range, self._settings)
        self.library = read.client.library
        yield from read.chunks()

    def check_topics(self, planned: Mapping[TopicPartition, str]) -> None:
        if not planned:
            return
        for look in range(LOOKS_UNTIL_RECREATED):
            if look:
                time.sleep(SECOND_LOOK_SECONDS)
            ids = self._brokers.ask(lambda client, patience: client.topic_ids_at_leaders(planned, patience))
            changed = {key.topic: (planned[key], ids[key]) for key in sorted(ids) if ids[key] != planned[key]}
            if not changed:
                return
        topics = ", ".join(f"{topic} (its id was {old} and is {new})" for topic, (old, new) in changed.items())
        report_loss(
            f"Deleted and created again since this read was planned: topic {topics}. The read may have rows of the new "
            "topic at offsets of the old one. Run the query again",
            fail=self._settings.fail_on_data_loss,
        )


class _RangeRead:
    """One pass through one range: its position, and how long it has waited."""

    def __init__(self, brokers: RetryingClient, offset_range: OffsetRange, settings: FetchSettings) -> None:
        self._range = offset_range
        self._topic_partition = offset_range.topic_partition
        self._timeout_ms = settings.poll_timeout_ms
        limit = Limit(self._timeout_ms, "kafkaConsumer.pollTimeoutMs")
        self._limit = max(limit, brokers.stream_limit or limit)  # while brokers do not answer
        self._both_seconds = (limit.ms + self._limit.ms) / 1000  # however often brokers come back
        self._fail = settings.fail_on_data_loss
        self._lost_too = "" if self._fail or not settings.lost_too else f". {settings.lost_too}"
        self._expected = offset_range.start  # the first offset not yet accounted for
        self._log_start: int | None = None  # as it was after the records in hand had arrived
        limits = replace(settings, max_bytes=min(settings.max_bytes, _MAX_CHUNK_BYTES))

        def reader(client: Client, patience: Patience) -> tuple[Client, PartitionReader]:
            return client, client.reader(offset_range, limits, patience)

        with self._addressed_errors():
            self.client, self._reader = brokers.ask(reader)
        self._progressed()  # now: brokers may have been away for longer than a record is waited for

    def _progressed(self) -> None:
        self._progress_at = time.monotonic()
        self._start_waiting()

    def _start_waiting(self) -> None:
        """Restart the clock, so that the caller's time does not count as a wait."""
        self._waiting_since = self._looked_at = time.monotonic()
        self._wait_ms: float = _FIRST_WAIT_MS
        self._looks = 0
        self._patience: Patience | None = None  # of this wait, once it is a long one
        self._is_answered = True  # whether the brokers answered when they were last asked, in this wait

    def chunks(self) -> Iterator[Chunk]:
        end = self._range.end
        with self._addressed_errors():
            while self._expected < end:
                arrived, position = self._poll()
                if arrived is not None:
                    yield from self._accepted(arrived, position)
                    self._progressed()
                elif position > self._expected:
                    # The position advanced without visible records: transaction markers, aborted or compacted records.
                    self._account_for_hole(self._expected)
                    self._expected = position
                    self._progressed()
                else:
                    self._wait()

    def _poll(self) -> tuple[Iterator[Chunk] | None, int]:
        """Poll once; if the offset is out of range, seek to one that exists. See `BatchReader.poll`."""
        self._log_start = None
        try:
            return self._reader.poll(self._wait_ms)
        except OffsetOutOfRangeError:
            self._continue_in_range()
        except LogTruncatedError as error:
            self._lost(f"{self._topic_partition} was truncated at or before offset {self._expected} ({error})")
            self._reader.seek(self._expected)
        return None, self._expected

    def _accepted(self, arrived: Iterator[Chunk], position: int) -> Iterator[Chunk]:
        """Yield chunks up to the end of the range, and account for gaps in and after them."""
        end = self._range.end
        for arriving in arrived:
            chunk = between(arriving, self._expected, end)
            if chunk.offsets:
                last = chunk.offsets[-1]
                if last + 1 - self._expected != len(chunk):
                    numbered = enumerate(chunk.offsets, self._expected)
                    self._account_for_hole(next(expected for expected, offset in numbered if expected != offset))
                self._expected = last + 1
                yield chunk
            if self._expected == end or arriving.offsets[-1] >= end:
                break
        if self._expected < end <= position:
            self._account_for_hole(self._expected)
        self._expected = max(self._expected, min(position, end))

    def _account_for_hole(self, missing: int) -> None:
        """Tell gaps of compaction and transactions from records that were deleted before reading."""
        if self._log_start is None:
            self._progressed()  # up to the hole
            bounds = self._bounds()
            self._log_start = None if bounds is None else bounds[0]
        if self._log_start is not None and self._log_start > missing:
            self._lost(f"{self._topic_partition}: offsets {missing} to {self._log_start - 1} are gone")

    def _continue_in_range(self) -> None:
        """Handle an offset out of range: report what is lost, and continue where records exist."""
        bounds = self._bounds()
        if bounds is None:
            return  # reported by `_wait`, if it stays so
        earliest, latest = bounds
        if self._expected < earliest:
            self._lost(f"{self._topic_partition}: offsets {self._expected} to {earliest - 1} are gone")
            self._expected = min(earliest, self._range.end)
        elif self._expected > latest:
            self._lost(f"{self._topic_partition}: offset {self._expected} is requested, but the latest is {latest}")
            self._expected = self._range.end
        # Otherwise the leader is still catching up: poll again until the time is over.
        self._reader.seek(self._expected)

    def _wait(self) -> None:
        """Lengthen the next wait; give up when the time is over, or if there is nothing to wait for."""
        now = time.monotonic()
        self._wait_ms = min(2 * self._wait_ms, _LONGEST_WAIT_MS)
        patience = self._current_patience()
        patience.log_if_due()
        if patience.is_over or (self._is_answered and (now - self._waiting_since) * 1000 >= self._timeout_ms):
            raise self._unavailable(patience.failures_text())
        if now - self._looked_at < (SECOND_LOOK_SECONDS if self._looks else _LOOK_AFTER_SECONDS):
            return
        try:
            bounds = self._bounds(_LOOK_TIMEOUT_MS)
        except TiCDCSourceError:
            self._looks = 0  # no answer says nothing about the partition: start counting again
            self._is_answered = False
        else:
            if not self._is_answered:  # the brokers are back: from now on the record may be waited for
                patience.answered()
                self._start_waiting()
                patience = self._current_patience()
            reason = None
            if bounds is None:
                reason = f"Partition {self._topic_partition} has been deleted."
            elif bounds[1] <= self._expected:
                reason = (
                    f"{self._topic_partition}: offsets to {self._range.end} existed, but now the latest is {bounds[1]}"
                )
            patience.set_missing(
                reason or (bounds and f"the brokers answer that it ends at {bounds[1]}, but send no record")
            )
            self._looks = self._looks + 1 if reason else 0
            if reason and self._looks >= LOOKS_UNTIL_GONE:
                self._lost(reason)
                self._expected = self._range.end
        self._looked_at = time.monotonic()

    def _current_patience(self) -> Patience:
        """The deadline of this wait, shared by all requests to brokers."""
        if self._patience is None:
            status = f"offset {self._expected} of {self._topic_partition} has not arrived"
            patience = Patience(self.client.servers, status, self._limit, began=self._waiting_since)
            seconds_left = self._progress_at + self._both_seconds - time.monotonic()
            self._patience = patience.limited_to(seconds_left * 1000)
        return self._patience

    def _bounds(self, timeout_ms: float | None = None) -> tuple[int, int] | None:
        topic_partition = self._topic_partition
        patience = self._current_patience()
        if timeout_ms is not None:
            patience = patience.limited_to(timeout_ms)
        try:
            earliest = self.client.offsets({topic_partition: EARLIEST}, patience)[topic_partition]
            latest = self.client.offsets({topic_partition: LATEST}, patience)[topic_partition]
        except UnknownPartitionsError:
            return None
        except KafkaUnavailableError as error:
            patience.set_missing(None)  # what brokers answered before they went away
            self._is_answered = False
            raise self._unavailable(patience.failures_text() if patience.has_failures else str(error)) from error
        return earliest, latest

    def _unavailable(self, reason: str) -> KafkaUnavailableError:
        """Return an error in Spark's words, with the total time since the last record."""
        waited_ms = (time.monotonic() - self._progress_at) * 1000
        option = "kafkaConsumer.pollTimeoutMs" if self._is_answered else self._limit.option
        return KafkaUnavailableError(
            f"Cannot fetch record for offset {self._expected} of {self._topic_partition} in {waited_ms:.0f} ms "
            f"(Kafka at {self.client.servers}; option {option}): {reason}"
        )

    def _lost(self, reason: str) -> None:
        report_loss(f"{reason} (reading {self._range}){self._lost_too}", fail=self._fail)

    @contextmanager
    def _addressed_errors(self) -> Iterator[None]:
        """Add an address to errors about undecodable bytes."""
        try:
            yield
        except DecodeError as error:
            raise self._undecodable(error.reason) from error
        except TiCDCSourceError:
            raise
        except Exception as error:  # whatever parsers raise on malformed bytes
            raise self._undecodable(f"{type(error).__name__}: {error}") from error

    def _undecodable(self, reason: str) -> DecodeError:
        address = Address(
            topic=self._topic_partition.topic, partition=self._topic_partition.partition, offset=self._expected
        )
        return DecodeError(f"Kafka's record batch cannot be read: {reason}", address)
