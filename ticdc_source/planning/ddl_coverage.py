"""Which copies of DDL events a batch has, and a stream from its start: asks the brokers what `ddl_copies` needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.options.topics import TopicPartition
from ticdc_source.pipeline.context import DDLCopies, ReadContext
from ticdc_source.planning.ddl_copies import (
    Coverage,
    DDLEdges,
    by_topic,
    coverage_from_json,
    coverage_to_json,
    has_ddl_copies,
    lower_partitions,
)
from ticdc_source.planning.fetchers import driver_fetcher
from ticdc_source.planning.inference import find_protocol
from ticdc_source.protocols import decoder_of
from ticdc_source.sources.record_source import RecordSource
from ticdc_source.sources.stream_offsets import INITIAL, OffsetJSON, Offsets, offsets_of

__all__ = ["StreamCoverage", "coverage_of", "ddl_copies_of_batch"]

# The member of a stream's offset that tells which DDL events the stream has from a partition (`StreamCoverage`).
_DDL = "$ddl"


def ddl_copies_of_batch(
    source: RecordSource, ranges: Sequence[OffsetRange], context: ReadContext, options: Options
) -> DDLCopies:
    """Return which copies of DDL events a batch has.

    Raises:
        TiCDCSourceError: the brokers do not answer.
    """
    by_partition = {offset_range.topic_partition: offset_range for offset_range in ranges if offset_range.size}
    lower = lower_partitions(by_partition)
    if not lower or not has_ddl_copies(context.protocol, options):
        return by_topic(by_partition, {})
    earliest, latest = source.earliest(lower), source.latest(lower)
    with driver_fetcher(options) as fetcher:
        edges = DDLEdges(fetcher.fetch, decoder_of(context.protocol or "", options), options, len(lower))
        return by_topic(by_partition, {tp: edges.of_range(by_partition[tp], earliest[tp], latest[tp]) for tp in lower})


@dataclass
class StreamCoverage:
    """The `OffsetMembers` of a stream of topics: which DDL events it has from each partition, if some lack any.

    Attributes:
        earliest: returns the log start of topic partitions.
        coverage: returns which DDL events the stream has from topic partitions that it reads from these offsets on,
            given the ends of all partitions; None if it has no DDL events, or each in one partition only.
        allows_loss: whether `failOnDataLoss` is off.
    """

    earliest: Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, int]]
    coverage: Callable[[Offsets, Offsets], Coverage] | None = None
    allows_loss: bool = False

    @classmethod
    def of(cls, source: RecordSource, options: Options) -> StreamCoverage:
        """Return that of a source."""
        return cls(source.earliest, _coverage_of_starts(source, options), allows_loss=not options.fail_on_data_loss)

    def __call__(self, start: OffsetJSON, begins: Offsets, latest: Offsets, recreated: Iterable[str]) -> OffsetJSON:
        """Return the member that tells which DDL events the stream has from each partition, if some lack any.

        Args:
            start: the offset of the previous batch.
            begins: where the next batch begins in each topic partition, new ones included.
            latest: the ends of all topic partitions.
            recreated: the topics that were deleted and created again.
        """
        coverage = {
            tp: copies for tp, copies in coverage_of(start).items() if tp in begins and tp.topic not in recreated
        }
        if self.coverage is not None and (edges := self._new_edges(start, begins, latest, recreated)):
            coverage |= self.coverage(edges, latest)
        member = coverage_to_json(coverage)
        return {_DDL: member} if member else {}

    def _new_edges(self, start: OffsetJSON, begins: Offsets, latest: Offsets, recreated: Iterable[str]) -> Offsets:
        """Return the topic partitions that begin behind records which the stream has not read, and where."""
        asked = lower_partitions(tp for tp in begins if tp in latest)
        continued = set() if start.get(INITIAL) else {tp for tp in offsets_of(start) if tp.topic not in recreated}
        edges = {tp: begins[tp] for tp in asked if tp not in continued and begins[tp]}
        if self.allows_loss and (read_on := [tp for tp in asked if tp in continued]):
            earliest = self.earliest(read_on)
            edges |= {tp: earliest[tp] for tp in read_on if earliest[tp] > begins[tp]}
        return edges


def coverage_of(offset: OffsetJSON) -> Coverage:
    """Return which DDL events the stream has from each partition, as far as some lack any."""
    return coverage_from_json(offset.get(_DDL, {}))


def _coverage_of_starts(source: RecordSource, options: Options) -> Callable[[Offsets, Offsets], Coverage] | None:
    """Return what tells which DDL events a stream has from partitions, given where it starts in them and all ends."""
    if options.output_format != "event" or not (
        options.protocol == "auto" or has_ddl_copies(options.protocol, options)
    ):
        return None

    def coverage(starts: Offsets, latest: Offsets) -> Coverage:
        topics = {topic for topic, _ in starts}
        ends = {tp: end for tp, end in latest.items() if tp.topic in topics}
        earliest = source.earliest(ends)
        with driver_fetcher(options) as fetcher:
            ranges = [OffsetRange(*tp, min(earliest[tp], end), end) for tp, end in ends.items()]
            protocol = find_protocol(ranges, fetcher.fetch, options)
            if protocol is None or not has_ddl_copies(protocol, options):
                return {}
            edges = DDLEdges(fetcher.fetch, decoder_of(protocol, options), options, len(starts))
            return {tp: edges.of_start(OffsetRange(*tp, at, ends[tp]), earliest[tp]) for tp, at in starts.items()}

    return coverage
