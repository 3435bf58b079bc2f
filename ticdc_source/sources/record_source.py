"""The contract of a source of records (`RecordSource`): Kafka, the files of a storage sink, tables of TiDB.

A source says which offset ranges there are, how a range is read into chunks, where a stream is, and what it means that
records are gone. It knows no wire format; what it must know of them, it is given (`WireFormats`). Nothing outside this
folder asks which source it has: `choose.source_of` makes it from the options. Another source is a subclass in a
folder of its own, and a line there.
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

# Returns members for the end of a micro-batch, which begin with `$`, given the offset of the previous batch, where the
# next one begins in each topic partition, the ends of all, and the topics that were deleted and created again.
OffsetMembers: TypeAlias = Callable[[OffsetJSON, Offsets, Offsets, Iterable[str]], OffsetJSON]


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFormats:
    """What sources must know of wire formats.

    Attributes:
        in_topics: the names of those that come in topics.
        in_files: those that a storage sink writes to files, by name.
        of_tables: that of rows that TiDB itself sends.
        lacking_commit_ts: those whose deletes may lack a commit-ts.
    """

    in_topics: frozenset[str]
    in_files: Mapping[str, FileFormat]
    of_tables: str
    lacking_commit_ts: frozenset[str] = frozenset()


class Fetcher(AbstractContextManager["Fetcher"]):
    """Reads offset ranges, one after the other, on the same connections. A context manager that closes itself."""

    @property
    @abstractmethod
    def library(self) -> str | None:
        """The client library that reads, and its version; None before the first range that is not empty."""

    @abstractmethod
    def fetch(self, offset_range: OffsetRange) -> Iterator[Chunk]:
        """Yield the records of a range in offset order, in chunks as bounded by `FetchSettings`.

        No record lies outside of the range. The iterator ends when the consumer's position reaches the end of the
        range, as its last offsets may hold no record (transaction markers, aborted or compacted records).

        Raises:
            KafkaUnavailableError, StorageUnavailableError, TiDBUnavailableError: the source does not answer, or a
                record does not arrive in time.
            DataLossError: records of the range no longer exist, and `fail_on_data_loss` is on.
            DecodeError: a record batch is damaged, or its codec is not available.
            OptionError: the brokers refuse the login, or the user may not read the topic.
        """

    def check_topics(self, planned: Mapping[TopicPartition, str]) -> None:
        """Report topics that were deleted and created again since it was planned to read them.

        To be called when everything has been read: whatever came before belongs to the topics of then, whose ids
        `planned` has. Files, rows as of a TSO, and topics on a broker before Kafka 2.8 have none: nothing is noticed.

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
        """Return where a new stream starts. It is resolved once."""
        ...

    def next(self, start: OffsetJSON, max_offsets: int | None = None, min_offsets: int | None = None) -> OffsetJSON:
        """Return where the micro-batch that begins at `start` ends; `start` itself if there is nothing to do.

        Args:
            start: the offset of the previous batch, as `initial()` or this method returned it (through JSON).
            max_offsets: how many offsets, or files, to read at most; 0 to stay where the stream is.
            min_offsets: how many to wait for.

        Raises:
            DataLossError: what was not read is gone, and `failOnDataLoss` is on.
        """
        ...

    def ranges(self, start: OffsetJSON, end: OffsetJSON) -> list[OffsetRange]:
        """Return the offset ranges between two offsets, without empty ones."""
        ...

    def behind(self, offset_range: OffsetRange) -> int | None:
        """Return how many offsets there are behind a range now; None if that is not known."""
        ...

    def newest(self) -> OffsetJSON:
        """Return the ends of all topic partitions, for Spark's report."""
        ...

    def stop_at_latest(self) -> None:
        """Fix the end of the stream at what there is now (Trigger.AvailableNow)."""
        ...


class RecordSource(AbstractContextManager["RecordSource"]):
    """Where the records of one read come from. It connects at first use, and closes itself as a context manager.

    Attributes:
        is_one_log: whether all topic partitions together are one log: one watermark speaks for all of them, and each
            DDL event comes once. If not, each topic partition has watermarks of its own, and may have a copy of each
            DDL event.
        loss: how an error about lost records begins.
    """

    is_one_log: bool
    loss: str

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
        """Return what a message calls the place of some ranges, without secrets."""

    @abstractmethod
    def check_protocol(self, protocol: str) -> None:
        """Refuse a wire format that never comes from such a source; connect to nothing.

        Raises:
            OptionError: it is one.
        """

    def check_detected(self, protocol: str | None) -> None:
        """Refuse a wire format that was found in the records of a stream, and that such a read cannot have.

        Raises:
            OptionError: it is one.
        """

    def protocol(self, offsets_read: Iterable[TopicPartition] = ()) -> str | None:  # noqa: ARG002 (for others)
        """Return the wire format, if something beside the messages or the partitions of a stream's offset tells it.

        Raises:
            OptionError: the option `protocol` contradicts it.
        """
        return None

    def reading(self) -> tuple[RecordSource, Options]:
        """Return what reads the ranges that a stream planned last, and its options: this source, or a part of it.

        A micro-batch has ranges of one source.
        """
        return self, self._options

    # Which ranges there are.

    @abstractmethod
    def batch_ranges(self) -> list[OffsetRange]:
        """Return the offset ranges of a batch read.

        Raises:
            OptionError: the options contradict what exists.
            DataLossError: requested offsets do not exist, and `failOnDataLoss` is on.
        """

    @abstractmethod
    def ranges_to_infer_from(self, *, batch: bool) -> list[OffsetRange]:
        """Return the ranges of which the first and last records tell the schema: all there are if it is no batch.

        Raises:
            OptionError, DataLossError: as `batch_ranges`.
            SchemaError: there is nothing to infer a schema from.
        """

    def sampled(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """Return the parts of a batch's ranges that a sample needs."""
        return list(ranges)

    def with_ddl(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange] | None:  # noqa: ARG002 (for others)
        """Return those ranges that have DDL; None if the wire format decides."""
        return None

    def defining(self, around: OffsetRange, version: int) -> list[OffsetRange] | None:  # noqa: ARG002 (for others)
        """Return the ranges that define a version of the table whose rows a range has; None if they must be searched.

        Raises:
            StorageUnavailableError: the source cannot be asked.
        """
        return None

    @abstractmethod
    def earliest(self, topic_partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the first offset that exists, of those topic partitions that have some before a read."""

    @abstractmethod
    def latest(self, topic_partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the end offset of each topic partition."""

    @abstractmethod
    def existing(self) -> Iterable[TopicPartition]:
        """Return the topic partitions that exist now, with those of which nothing has been read."""

    def topic_ids(self) -> Mapping[str, str]:
        """Return the ids of topics as the last look-ups had them, as far as they are known."""
        return {}

    def resolved_end(self) -> int | None:
        """Return the commit-ts below which a batch is complete; None if the watermarks of its records tell it.

        Raises:
            SchemaError: the source should tell it, and does not yet.
        """
        return None

    # How a range is read.

    @abstractmethod
    def pieces(self, ranges: Sequence[OffsetRange]) -> list[list[OffsetRange]]:
        """Return the ranges of each input partition: large ones cut, small ones together."""

    @abstractmethod
    def fetcher(
        self, settings: FetchSettings, *, protocol: str | None = None, max_rows: int | None = None, driver: bool = True
    ) -> Fetcher:
        """Return a fetcher, for the driver or a worker; of each file it reads `max_rows` at most."""

    def task_fetcher(
        self,
        settings: FetchSettings,
        protocol: str,
        *,
        fresh: bool,  # noqa: ARG002 (for others)
    ) -> AbstractContextManager[Fetcher]:
        """Return a context manager whose value is a fetcher: a new one, or one that the next task reuses.

        With `fresh` it has new connections, because a retried task must not meet the same fault again.
        """
        return self.fetcher(settings, protocol=protocol)

    # Where a stream is.

    @abstractmethod
    def stream(self, limits: StreamLimits, members: OffsetMembers | None = None) -> StreamPlanner:
        """Return what plans a stream; see `OffsetMembers` (None for a source that is one log)."""

    def commit(self, offsets: Offsets) -> None:
        """Show others how far a stream is, if the options ask for it. It never fails."""

    # What loss means.

    def report_loss(self, reason: str) -> None:
        """Report that records are gone, as an error unless `failOnDataLoss` is off."""
        report_loss(reason, fail=self._options.fail_on_data_loss, begin=self.loss)


def report_loss(reason: str, *, fail: bool, begin: str) -> None:
    """Report lost records: as an error that begins with `begin` if `fail` is on, else as a warning."""
    if fail:
        raise DataLossError(begin + reason)
    warn(f"Data has been lost (failOnDataLoss is off, what is left is read): {reason}")
