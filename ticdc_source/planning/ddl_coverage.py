"""Which copies of DDL events a batch has, and a stream from its start: asks the brokers what `ddl_copies` needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.options.topics import TopicPartition
from ticdc_source.pipeline.context import DDLCopies, ReadContext
from ticdc_source.planning.ddl_copies import Coverage, DDLEdges, by_topic, has_ddl_copies, lower_partitions
from ticdc_source.planning.fetchers import driver_fetcher
from ticdc_source.planning.inference import find_protocol
from ticdc_source.protocols import decoder_of
from ticdc_source.sources.kafka import KafkaCluster

__all__ = ["coverage_of_starts", "ddl_copies_of_batch", "ddl_passed_by"]


def ddl_copies_of_batch(
    cluster: KafkaCluster, ranges: Sequence[OffsetRange], context: ReadContext, options: Options
) -> DDLCopies:
    """Return which copies of DDL events a batch has.

    Raises:
        TiCDCSourceError: the brokers do not answer.
    """
    non_empty = [offset_range for offset_range in ranges if offset_range.size]
    topic_partitions = [offset_range.topic_partition for offset_range in non_empty]
    lower = lower_partitions(topic_partitions)
    if not lower or not has_ddl_copies(context.protocol, options):
        return by_topic(topic_partitions, {})
    earliest, latest = cluster.earliest(topic_partitions), cluster.latest(topic_partitions)
    with driver_fetcher(options) as fetcher:
        edges = DDLEdges(fetcher.fetch, decoder_of(context.protocol or "", options), options, len(lower))
        return by_topic(topic_partitions, edges.of_batch(non_empty, earliest, latest))


def coverage_of_starts(
    cluster: KafkaCluster, options: Options
) -> Callable[[Mapping[TopicPartition, int], Mapping[TopicPartition, int]], Coverage] | None:
    """Return what tells which DDL events a stream has from partitions, given where it starts in them and all ends."""
    if options.output_format != "event" or not (
        options.protocol == "auto" or has_ddl_copies(options.protocol, options)
    ):
        return None

    def coverage(starts: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> Coverage:
        topics = {topic for topic, _ in starts}
        ends = {tp: end for tp, end in latest.items() if tp.topic in topics}
        earliest = cluster.earliest(ends)
        with _ddl_edges(options, earliest, ends, len(starts)) as edges:
            return {} if edges is None else edges.of_starts(starts, earliest, ends)

    return coverage


def ddl_passed_by(
    cluster: KafkaCluster, options: Options
) -> Callable[[Mapping[TopicPartition, int]], Mapping[str, int]]:
    """Return what tells up to which commit-ts the DDL events of topics lie before offsets (`DDLEdges.passed`)."""

    def passed(begins: Mapping[TopicPartition, int]) -> Mapping[str, int]:
        earliest = cluster.earliest(begins)
        with _ddl_edges(options, earliest, begins, len(begins)) as edges:
            return {} if edges is None else edges.passed(begins, earliest)

    return passed


@contextmanager
def _ddl_edges(
    options: Options, earliest: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], partitions: int
) -> Iterator[DDLEdges | None]:
    """Yield what reads DDL events at the edges of partitions; None if the protocol has no copies of DDL."""
    ranges = [OffsetRange(*tp, min(earliest[tp], end), end) for tp, end in ends.items()]
    with driver_fetcher(options) as fetcher:
        protocol = find_protocol(ranges, fetcher.fetch, options)
        if protocol is None or not has_ddl_copies(protocol, options):
            yield None
        else:
            yield DDLEdges(fetcher.fetch, decoder_of(protocol, options), options, partitions)
