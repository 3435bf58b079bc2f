"""The contract of a source of records (`RecordSource`): Kafka, the files of a storage sink, tables of TiDB.

A source finds offset ranges, reads them into chunks, plans streams, and reports lost records. All that it knows about
wire formats is in `WireFormats`. Nothing outside this folder asks which source it has: `choose.source_of` makes it from
the options. Another source is a subclass in a folder of its own, and a line there.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from ticdc_source.errors import DataLossError, warn
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.options.topics import TopicPartition
from ticdc_source.sources.chunk import Chunk, FetchSettings
from ticdc_source.sources.storage.file_format import FileFormat
from ticdc_source.sources.stream_offsets import OffsetJSON, Offsets, StreamLimits

# Returns members (they begin with `$`) for the end of a micro-batch, given the previous batch's offset, the beginnings
# of the next one, the ends of all topic partitions, and the recreated topics.
OffsetMembers: TypeAlias = Callable[[OffsetJSON, Offsets, Offsets, Iterable[str]], OffsetJSON]


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFormats:
    """What sources know about wire formats, by name."""

    in_topics: frozenset[str]
    in_files: Mapping[str, FileFormat]
    of_tables: str  # rows that TiDB itself sends
    lacking_commit_ts: frozenset[str] = frozenset()  # deletes may have none


class Fetcher(AbstractContextManager["Fetcher"]):
    """Reads offset ranges, one after the other, on the same connections."""

    library: str | None = None  # of the client, with its version if known; maybe None before the first range

    @abstractmethod
    def fetch(self, offset_range: OffsetRange) -> Iterator[Chunk]:
        """Yield exactly the records of a range, in offset order and in chunks bounded by `FetchSettings`.

        Raises:
            KafkaUnavailableError, StorageUnavailableError, TiDBUnavailableError: the source does not answer in time.
            DataLossError: records of the range no longer exist, and `fail_on_data_loss` is on.
            DecodeError: a record batch is damaged, or its codec is missing.
            OptionError: the login is refused, or the user may not read the topic or table.
        """

    def check_topics(self, planned: Mapping[TopicPartition, str]) -> None:
        """Report topics whose ids differ from the `planned` ones, because they were deleted and created again.

        Call it after reading everything. Files, rows as of a TSO, and topics before Kafka 2.8 have no ids.

        Raises:
            DataLossError: a topic has another id, and `fail_on_data_loss` is on.
            KafkaUnavailableError: the brokers do not answer.
        """

    def close(self) -> None:
        """Close the connections, if there are any; the next range connects again."""

    def __exit__(self, *_: object) -> None:
        self.close()


class StreamPlanner(Protocol):
    """Plans the micro-batches of one query. It lives in the driver's Python process and is never pickled."""

    def initial(self) -> OffsetJSON:
        """Where a new stream starts, resolved once."""
        ...

    def next(self, start: OffsetJSON, max_offsets: int | None = None, min_offsets: int | None = None) -> OffsetJSON:
        """Return the end of the micro-batch that begins at `start`; `start` itself if there is nothing to do.

        Args:
            max_offsets: the most offsets, or files, to read; 0 to keep the position.
            min_offsets: how many to wait for.

        Raises:
            DataLossError: unread records are gone, and `failOnDataLoss` is on.
        """
        ...

    def ranges(self, start: OffsetJSON, end: OffsetJSON) -> list[OffsetRange]:
        """The offset ranges between two offsets, without empty ones."""
        ...

    def behind(self, offset_range: OffsetRange) -> int | None:
        """The current number of offsets after a range; None if unknown."""
        ...

    def newest(self) -> OffsetJSON:
        """The ends of all topic partitions, for Spark's progress report."""
        ...

    def stop_at_latest(self) -> None:
        """End the stream at the current ends (Trigger.AvailableNow)."""
        ...


class RecordSource(AbstractContextManager["RecordSource"]):
    """Where the records of one read come from. It connects at first use."""

    # Whether one watermark covers all topic partitions, and each DDL event comes once. Otherwise each topic partition
    # has its own watermarks, and maybe copies of DDL events.
    is_one_log: bool
    loss: str  # how an error about lost records begins

    def __init__(self, options: Options, formats: WireFormats) -> None:
        self._options = options
        self._formats = formats

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the next look-up connects again."""

    # What it is.

    @abstractmethod
    def described(self, ranges: Iterable[OffsetRange]) -> str:
        """Describe the location of ranges for messages, without secrets."""

    def check_protocol(self, protocol: str) -> None:
        """Raise OptionError for a wire format that this source never has, without connecting."""

    def check_detected(self, protocol: str | None) -> None:
        """Raise OptionError if the wire format detected in a stream's records does not suit the read."""

    def protocol(self, offsets_read: Iterable[TopicPartition] = ()) -> str | None:  # noqa: ARG002 (for others)
        """The wire format, if the source or the partitions of a stream's offset tell it.

        Raises:
            OptionError: the option `protocol` contradicts it.
        """
        return None

    def reading(self) -> tuple[RecordSource, Options]:
        """The source, with its options, of the ranges that a stream planned last."""
        return self, self._options

    # Which ranges there are.

    @abstractmethod
    def batch_ranges(self) -> list[OffsetRange]:
        """The offset ranges of a batch read.

        Raises:
            OptionError: the options contradict what exists.
            DataLossError: requested offsets do not exist, and `failOnDataLoss` is on.
        """

    @abstractmethod
    def ranges_to_infer_from(self, *, batch: bool) -> list[OffsetRange]:
        """The ranges whose first and last records tell the schema; for a stream, everything that exists.

        Raises:
            OptionError, DataLossError: as `batch_ranges`.
            SchemaError: there is no data to infer a schema from.
        """

    def sampled(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """The part of a batch's ranges to sample."""
        return list(ranges)

    def with_ddl(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange] | None:  # noqa: ARG002 (for others)
        """The ranges that have DDL; None if the wire format decides."""
        return None

    def defining(self, around: OffsetRange, version: int) -> list[OffsetRange] | None:  # noqa: ARG002 (for others)
        """The ranges that define a version of the table whose rows are `around`; None if they must be searched for.

        Raises:
            StorageUnavailableError: the source cannot be read.
        """
        return None

    @abstractmethod
    def earliest(self, topic_partitions: Iterable[TopicPartition]) -> Offsets:
        """The first existing offset, for topic partitions that may have records before the read."""

    @abstractmethod
    def latest(self, topic_partitions: Iterable[TopicPartition]) -> Offsets:
        """The end offset of each topic partition."""

    def existing(self) -> Iterable[TopicPartition]:
        """The topic partitions that exist now, even if not read yet; none for one log."""
        return ()

    def topic_ids(self) -> Mapping[str, str]:
        """The known ids of topics, as of the last look-ups."""
        return {}

    def resolved_end(self) -> int | None:
        """The commit-ts below which a batch is complete; None if watermarks in its records tell it.

        Raises:
            SchemaError: the source does not know it yet.
        """
        return None

    # How a range is read.

    @abstractmethod
    def pieces(self, ranges: Sequence[OffsetRange]) -> list[list[OffsetRange]]:
        """The ranges of each input partition: large ones are cut, small ones packed together."""

    @abstractmethod
    def fetcher(
        self, settings: FetchSettings, *, protocol: str | None = None, max_rows: int | None = None, driver: bool = True
    ) -> Fetcher:
        """Make a fetcher for the driver or a worker; it reads at most `max_rows` of each file."""

    def task_fetcher(
        self,
        settings: FetchSettings,
        protocol: str,
        *,
        fresh: bool,  # noqa: ARG002 (for others)
    ) -> AbstractContextManager[Fetcher]:
        """A context with a fetcher that the next task may reuse.

        `fresh` asks for new connections, so that a retried task does not meet the same fault again.
        """
        return self.fetcher(settings, protocol=protocol)

    # Where a stream is.

    @abstractmethod
    def stream(self, limits: StreamLimits, members: OffsetMembers | None = None) -> StreamPlanner:
        """The planner of a stream. `members` matter only if the source is not one log."""

    def commit(self, offsets: Offsets) -> None:
        """Publish a stream's position, if the options ask for it. Never fails."""

    # What loss means.

    def report_loss(self, reason: str) -> None:
        report_loss(reason, fail=self._options.fail_on_data_loss, begin=self.loss)


def report_loss(reason: str, *, fail: bool, begin: str) -> None:
    """Report lost records, as an error that begins with `begin`, or as a warning."""
    if fail:
        raise DataLossError(begin + reason)
    warn(f"Data has been lost (failOnDataLoss is off, so the rest is read): {reason}")
