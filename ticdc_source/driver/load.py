"""What the driver does for each read: options → offset ranges → sample → read schema, context, input partitions.

This module does not depend on Spark. `source.py` and `spark/` call it, and any other reader can.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from ticdc_source.driver.ddl_copies import Coverage, DDLEdges, by_topic, lower_partitions
from ticdc_source.driver.definition_search import Bounds, DefinitionSearch
from ticdc_source.driver.files import (
    VersionSearch,
    file_fetcher,
    packed_files,
    ranges_of,
    sampled,
    schema_ranges,
    with_protocol,
)
from ticdc_source.driver.inference import (
    Fetch,
    MakesSearch,
    Sample,
    ddl_texts_help,
    find_protocol,
    infer_table,
    lacks_types,
    nothing_there,
    take_sample,
)
from ticdc_source.driver.previous_rows import last_commit_ts
from ticdc_source.driver.read_context import (
    context_of_sample,
    context_of_schema,
    context_of_table,
    lowest_partitions,
    warn_of_absent_names,
    warn_of_absent_tables,
    warn_of_missing_ddl,
)
from ticdc_source.driver.read_schema import check_types, format_schema, read_schema
from ticdc_source.driver.resolved_ts import resolved_until
from ticdc_source.errors import OptionError, SchemaError, TiCDCSourceError, nearest, warn
from ticdc_source.events import Chunk, TableName
from ticdc_source.kafka import Fetcher, FetchSettings, KafkaCluster, KafkaFetcher
from ticdc_source.kernels.native import warn_of_missing
from ticdc_source.options.kafka_client import client_settings
from ticdc_source.options.names import refuse_misspelt, warn_of_unknown
from ticdc_source.options.offsets import OffsetRange, pack
from ticdc_source.options.options import OPTIONS, Options
from ticdc_source.options.ranges import validate, warn_of_implausible_times
from ticdc_source.options.table_filter import TableFilter
from ticdc_source.options.topics import TopicPartition
from ticdc_source.pipeline.context import DDLCopies, ReadContext, ReadScope
from ticdc_source.pipeline.layout import Layout
from ticdc_source.protocols import PROTOCOLS, checked_protocol, decoder_of
from ticdc_source.protocols.base import Decoder, Place
from ticdc_source.schema.model import TableSchema
from ticdc_source.storage import CHECKPOINT, Changefeed

__all__ = [
    "BatchPlan",
    "ReadContexts",
    "batch_options",
    "coverage_of_starts",
    "ddl_passed_by",
    "driver_fetcher",
    "fetch_settings",
    "infer_schema",
    "plan_batch",
    "previous_rows",
    "schema_of_ranges",
    "stream_options",
]

# Records per chunk while the driver does not know the protocol yet.
_DRIVER_CHUNK_RECORDS = 4000
_WINDOW = 4096  # records to scan for DDL events at a time


def batch_options(given: Mapping[str, str]) -> Options:
    """Return the options of a batch read, checked as far as possible without a broker.

    Raises:
        OptionError: an option is wrong, or not supported in batch reads.
    """
    options = _parsed(given)
    warn_of_unknown(options)
    validate(options, streaming=False)
    checked_protocol(options)
    check_types(options)
    for option in OPTIONS.values():
        if option.only == "stream" and options.is_given(option.name):
            warn(f"Option '{option.name}' is ignored: it applies to streams only")
    return options


def stream_options(given: Mapping[str, str]) -> Options:
    """Return the options of a stream, checked as far as possible without a broker.

    Raises:
        OptionError: an option is wrong, or not supported in streams.
    """
    options = replace(_parsed(given), is_stream=True)
    validate(options, streaming=True)
    checked_protocol(options)
    check_types(options)
    if options.ending_commit_ts == "resolved":
        msg = "endingCommitTs=resolved is supported only in batch reads: a stream has no end"
        raise OptionError(msg)
    return options


def _parsed(given: Mapping[str, str]) -> Options:
    refuse_misspelt(given)
    return Options.of(given)


def infer_schema(given: Mapping[str, str]) -> pa.Schema:
    """Return the read schema that the options ask for, inferred from the messages.

    Raises:
        TiCDCSourceError: an option is wrong, the brokers do not answer, or the messages do not determine a schema.
    """
    options = _parsed(given)
    warn_of_unknown(options)
    warn_of_missing(options.native_code)
    checked_protocol(options)
    check_types(options)
    if not options.is_typed:  # the same columns for all tables
        warn_of_implausible_times(options)
        return format_schema(options)
    ranges, options = _ranges_to_sample(options)
    with driver_fetcher(options) as fetcher:
        return schema_of_ranges(ranges, fetcher.fetch, options, partial(topic_search, options=options))


def schema_of_ranges(
    ranges: Sequence[OffsetRange], fetch: Fetch, options: Options, search: MakesSearch | None = None
) -> pa.Schema:
    """Infer the read schema from the records of the given offset ranges.

    Args:
        ranges: the offset ranges to sample.
        fetch: yields the records of an offset range, from any storage.
        options: the options.
        search: see `take_sample`.

    Raises:
        SchemaError: the ranges hold no record, or no row event.
        OptionError: there are several tables or protocols, or an option contradicts the messages.
        DecodeError: no row can be read.
    """
    if not options.is_typed:
        return format_schema(options)
    sample = take_sample(ranges, fetch, options, search)
    if sample is None or not sample.scanned:
        raise nothing_there(ranges, options)
    table = infer_table(sample)
    warn_of_absent_names(sample)
    return read_schema(table, sample.decoder, options, definitions=sample.definitions)


def _ranges_to_sample(options: Options) -> tuple[list[OffsetRange], Options]:
    """Return the ranges to sample: those of a batch read, or the whole log if the options are valid only for a stream.

    The names of files tell the protocol, and the options have it then.

    At load() Spark does not say whether the read is a batch or a stream. Options that are invalid for both are refused
    here; the reader refuses those that are invalid for one.
    """
    try:
        validate(options, streaming=False)
    except OptionError:
        validate(options, streaming=True)
        batch = False
    else:
        batch = True
    if options.path is not None:
        look = Changefeed(options.path).look()
        options = with_protocol(options, look)
        return sampled(ranges_of(look, options)), options
    with KafkaCluster(options) as cluster:
        return cluster.resolve_ranges() if batch else cluster.everything(), options


# The driver chooses for each DDL event the partition that returns it; workers of other partitions drop their copies.
_LOST_COPIES = (
    "DDL events among these records are lost to this read, such as TRUNCATE or DROP TABLE: their copies in other "
    "partitions are not returned. Compare the tables with TiDB"
)


def fetch_settings(options: Options, protocol: str | None = None) -> FetchSettings:
    """Return how to fetch records of a protocol; None if it is not known yet."""
    chunk_records = _DRIVER_CHUNK_RECORDS if protocol is None else PROTOCOLS[protocol].facts.chunk_records
    return FetchSettings(
        max_records=min(chunk_records, options.max_rows_per_batch),
        max_bytes=options.max_bytes_per_batch,
        include_headers=options.include_headers or options.output_format == "record",
        poll_timeout_ms=options.kafka_consumer_poll_timeout_ms,
        fail_on_data_loss=options.fail_on_data_loss,
        lost_too=_LOST_COPIES if _has_ddl_copies(protocol, options) else "",
        max_record_bytes=options.max_message_bytes,
        native=options.native_code != "off",
    )


def driver_fetcher(options: Options) -> Fetcher:
    """Return a fetcher for the driver, which samples: of a file only the first rows."""
    if options.path is not None:
        protocol = None if options.protocol == "auto" else options.protocol
        return file_fetcher(
            options, fetch_settings(options), protocol=protocol, max_rows=options.infer_schema_max_records
        )
    return KafkaFetcher(client_settings(options, driver=True), fetch_settings(options))


def topic_search(decoder: Decoder, options: Options, *, driver: bool = True) -> DefinitionSearch | VersionSearch:
    """Return what looks in a topic for versions of tables that rows name; it connects when it is needed.

    A worker of a stream waits for them as long as for records (`kafkaConsumer.pollTimeoutMs`).

    Args:
        decoder: the decoder of the protocol.
        options: the options.
        driver: whether this is the driver.
    """
    if options.path is not None:
        protocol = decoder.facts.name
        settings = fetch_settings(options, protocol)
        return VersionSearch(file_fetcher(options, settings, protocol=protocol, max_rows=None), decoder)
    fetch, bounds = _elsewhere(options, driver=driver)
    return DefinitionSearch(
        decoder,
        fetch,
        bounds,
        limit=options.infer_schema_max_scanned_records,
        timeout_s=options.infer_schema_timeout_ms / 1000,
        wait_s=options.kafka_consumer_poll_timeout_ms / 1000 if options.is_stream and not driver else 0,
    )


def previous_rows(
    decoder: Decoder, options: Options, *, driver: bool = True
) -> Callable[[TableName, Place, int], int | None]:
    """Return what looks in a topic partition for the row before an offset; it connects when it is needed.

    Args:
        decoder: the decoder of the protocol.
        options: the options.
        driver: whether this is the driver.
    """
    fetch, bounds = _elsewhere(options, driver=driver)
    return partial(
        last_commit_ts,
        decoder=decoder,
        fetch=fetch,
        bounds=bounds,
        limit=options.infer_schema_max_scanned_records,
        timeout_s=options.infer_schema_timeout_ms / 1000,
    )


def _elsewhere(options: Options, *, driver: bool) -> tuple[Fetch, Bounds]:
    """Return what fetches records beside those of a read, and what returns the bounds of topic partitions."""

    def fetch(wanted: OffsetRange) -> Iterator[Chunk]:
        with KafkaFetcher(client_settings(options, driver=driver), fetch_settings(options)) as fetcher:
            yield from fetcher.fetch(wanted)

    def bounds(topic_partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        with KafkaCluster(options) as cluster:
            earliest, latest = cluster.earliest(topic_partitions), cluster.latest(topic_partitions)
        return {each: (earliest[each], latest[each]) for each in earliest.keys() & latest.keys()}

    return fetch, bounds


class BatchPlan(NamedTuple):
    """What a batch reads.

    Attributes:
        partitions: the offset ranges of each input partition.
        context: what the driver knows about the messages.
        scope: what it covers.
    """

    partitions: list[list[OffsetRange]]
    context: ReadContext
    scope: ReadScope


def plan_batch(schema: pa.Schema, options: Options) -> BatchPlan:
    """Resolve the offsets of a batch read; cut large ranges, and pack small ones, into input partitions.

    Raises:
        TiCDCSourceError: the brokers do not answer, requested offsets no longer exist, or the messages do not fit the
            options.
    """
    warn_of_missing(options.native_code)
    if options.path is not None:
        return _plan_files(schema, options, options.path)
    with KafkaCluster(options) as cluster:
        ranges = cluster.resolve_ranges()
        ends = {offset_range.topic_partition: offset_range.end for offset_range in ranges}
        topic_ids = dict(cluster.topic_ids())
        context = ReadContexts(schema, options, cluster.earliest).of(ranges, ends)
        copies = _ddl_copies(cluster, ranges, context, options)
    end = None
    if options.ending_commit_ts == "resolved":
        if context.protocol is None:
            raise nothing_there(ranges, options)
        with driver_fetcher(options) as fetcher:
            end = resolved_until(ranges, fetcher.fetch, decoder_of(context.protocol, options))
    scope = ReadScope(ddl_copies=copies, partitions=len(ends), commit_end=end, topic_ids=topic_ids)
    warn_of_missing_ddl(context, scope, options)
    return BatchPlan(pack(ranges, options.min_partitions, options.max_records_per_partition), context, scope)


def _plan_files(schema: pa.Schema, options: Options, path: str) -> BatchPlan:
    """Return what a batch of files reads; see `plan_batch`."""
    changefeed = Changefeed(path)
    look = changefeed.look()
    changefeed.warn_of_uncounted(look)
    options = with_protocol(options, look)
    ranges = ranges_of(look, options)
    ends = {each.topic_partition: each.end for each in ranges}
    context = ReadContexts(schema, options, changefeed.earliest).of(ranges, ends)
    end = None
    if options.ending_commit_ts == "resolved":
        if look.checkpoint is None:
            msg = f"endingCommitTs=resolved: 'path' {changefeed} has no file {CHECKPOINT.topic} yet, which says it"
            raise SchemaError(msg)
        end = look.checkpoint + 1
    scope = ReadScope(partitions=1, one_watermark=True, commit_end=end)
    return BatchPlan(packed_files(ranges, look.sizes, options.min_partitions), context, scope)


def _ddl_copies(
    cluster: KafkaCluster, ranges: Sequence[OffsetRange], context: ReadContext, options: Options
) -> DDLCopies:
    """Return which copies of DDL events a batch has."""
    non_empty = [offset_range for offset_range in ranges if offset_range.size]
    topic_partitions = [offset_range.topic_partition for offset_range in non_empty]
    lower = lower_partitions(topic_partitions)
    if not lower or not _has_ddl_copies(context.protocol, options):
        return by_topic(topic_partitions, {})
    earliest, latest = cluster.earliest(topic_partitions), cluster.latest(topic_partitions)
    with driver_fetcher(options) as fetcher:
        edges = DDLEdges(fetcher.fetch, decoder_of(context.protocol or "", options), options, len(lower))
        return by_topic(topic_partitions, edges.of_batch(non_empty, earliest, latest))


def _has_ddl_copies(protocol: str | None, options: Options) -> bool:
    """Return whether the read outputs DDL events, and every partition has a copy of them."""
    if options.output_format != "event" or protocol is None:
        return False
    return PROTOCOLS[protocol].facts.ddl_partition is None


def coverage_of_starts(
    cluster: KafkaCluster, options: Options
) -> Callable[[Mapping[TopicPartition, int], Mapping[TopicPartition, int]], Coverage] | None:
    """Return what tells which DDL events a stream has from partitions, given where it starts in them and all ends."""
    if options.output_format != "event" or not (
        options.protocol == "auto" or _has_ddl_copies(options.protocol, options)
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
        if protocol is None or not _has_ddl_copies(protocol, options):
            yield None
        else:
            yield DDLEdges(fetcher.fetch, decoder_of(protocol, options), options, partitions)


class ReadContexts:
    """Returns the read context of a batch, or of each micro-batch of a stream. It lives in the driver's Python process.

    With `outputFormat=event`, DDL events may be the only source of a table's column types and labels. Then this class
    scans the DDL events that precede the batch's range (or the first micro-batch), and those of every later
    micro-batch. A row is thus decoded identically in a batch, in a stream and after the stream's restart.

    Args:
        schema: the read schema.
        options: the options.
        earliest: returns the log start of each topic partition.
        warns_of_absent: whether tables that the options name and the sampled ranges lack are worth a warning. To a
            reader of the last few records they are not.
    """

    def __init__(
        self,
        schema: pa.Schema,
        options: Options,
        earliest: Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, int]],
        *,
        warns_of_absent: bool = True,
    ) -> None:
        self._schema = schema
        self._options = options
        self._earliest = earliest
        self._warns_of_absent = warns_of_absent
        self._context: ReadContext | None = None
        self._sample: Sample | None = None  # set only if types or labels come from DDL events: those seen so far
        self._ddl_helps: bool | None = None  # `ddl_texts_help` of this sample

    def of(self, ranges: Sequence[OffsetRange], ends: Mapping[TopicPartition, int]) -> ReadContext:
        """Return the context of a batch, or of the next micro-batch.

        Args:
            ranges: the offset ranges that it reads.
            ends: the end offset of each topic partition in this batch or micro-batch.

        Raises:
            OptionError: the sample contains more than one table or protocol.
        """
        if self._sample is not None:
            before = len(self._sample.ddl)
            of_files = self._options.path is not None
            with_ddl = schema_ranges(ranges) if of_files else _ranges_of_ddl(self._sample, self._ddl_helps, ranges)
            with driver_fetcher(self._options) as fetcher:
                _add_ddl(self._sample, with_ddl, fetcher)
            if len(self._sample.ddl) > before:
                self._ddl_helps = ddl_texts_help(self._sample)
                self._context = context_of_sample(self._sample)
        elif self._context is None:
            self._context = self._infer_context(ranges, ends)
        elif self._context.provisional:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an earlier micro-batch has reported them
                self._context = self._infer_context(ranges, ends)
        assert self._context is not None  # noqa: S101 (for mypy)
        return self._context

    def _infer_context(self, ranges: Sequence[OffsetRange], ends: Mapping[TopicPartition, int]) -> ReadContext:
        options = self._options
        if options.path is not None:
            ranges = sampled(ranges)
        if options.is_typed:
            return self._of_schema_or_sample(ranges)
        with driver_fetcher(options) as fetcher:
            if options.output_format == "record":
                protocol = find_protocol(ranges, fetcher.fetch, options)
                # If all records are bad, any decoder says so; the next micro-batch looks again.
                return ReadContext(protocol=protocol or next(iter(PROTOCOLS)), provisional=protocol is None)
            sample = take_sample(ranges, fetcher.fetch, options, partial(topic_search, options=options))
            if sample is None:
                return ReadContext(protocol=None if options.protocol == "auto" else options.protocol, provisional=True)
            in_form = sample.decoder.facts.types_in_ddl is not None and (not sample.rows or lacks_types(sample))
            in_text = ddl_texts_help(sample)
            if in_form or in_text is not False:
                self._sample, self._ddl_helps = sample, in_text
                in_range = list(sample.ddl)
                whole = self._add_history(sample, ranges, ends, fetcher)
                if not whole and not in_form:  # an unseen ALTER may have changed the labels: rely on the range alone
                    sample.ddl = in_range
                if (in_form or in_text) and not (whole and sample.whole):
                    warn(
                        "Not all DDL events were scanned (inferSchema.maxScannedRecords, inferSchema.timeoutMs): "
                        "columns whose types or labels appear only in DDL events are shown as the messages have them",
                    )
            if self._warns_of_absent:
                warn_of_absent_tables(sample, options)
            return context_of_sample(sample)

    def _of_schema_or_sample(self, ranges: Sequence[OffsetRange]) -> ReadContext:
        """Return the context stored in an inferred schema; if there is none, infer it from a sample of the ranges."""
        options = self._options
        context = context_of_schema(self._schema, options)
        if context is not None:
            return context
        with driver_fetcher(options) as fetcher:
            sample = take_sample(ranges, fetcher.fetch, options, partial(topic_search, options=options))
        if sample is None:
            return ReadContext(protocol=None if options.protocol == "auto" else options.protocol, provisional=True)
        try:
            inferred = infer_table(sample)
        except TiCDCSourceError as error:
            if isinstance(error, OptionError) and sample.rows:  # several tables
                raise
            warn(str(error))
            table = TableFilter(options.tables or ()).exact
            # If `tables` names one table, there is nothing more to infer, unless its types come from DDL events.
            provisional = table is None or sample.decoder.facts.types_in_ddl is not None
            return ReadContext(protocol=sample.decoder.facts.name, table=table, provisional=provisional)
        warn_of_absent_names(sample)
        _warn_of_absent_columns(Layout.of(self._schema, options).data_fields(), inferred)
        return context_of_table(inferred, sample)

    def _add_history(
        self, sample: Sample, ranges: Sequence[OffsetRange], ends: Mapping[TopicPartition, int], fetcher: Fetcher
    ) -> bool:
        """Add the DDL events before a batch, or before a stream's first micro-batch; return whether all were scanned.

        A DDL event is sent to all partitions of a topic, or only to the first: the lowest partition is enough.
        """
        lowest = {tp.topic: tp for tp in sorted(ends, reverse=True)}.values()
        begins = {**ends, **{offset_range.topic_partition: offset_range.start for offset_range in ranges}}
        deadline = time.monotonic() + self._options.infer_schema_timeout_ms / 1000
        limit = self._options.infer_schema_max_scanned_records
        for topic_partition, earliest in self._earliest(lowest).items():
            end = begins[topic_partition]
            while end > earliest:  # backwards: the newest are the most informative
                if limit <= 0 or time.monotonic() >= deadline:
                    return False
                start = max(earliest, end - min(limit, _WINDOW))
                _add_ddl(sample, [OffsetRange(*topic_partition, start, end)], fetcher)
                limit -= end - start
                end = start
        return True


def _ranges_of_ddl(sample: Sample, helps: bool | None, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:  # noqa: FBT001 (as `ddl_texts_help` returns it)
    """Return the ranges of a micro-batch to scan for DDL events.

    If all partitions have a copy of a DDL event, the one of the lowest partition may come in a later micro-batch than
    the rows after it. So all are scanned, unless no column depends on them so far.
    """
    only = sample.decoder.facts.ddl_partition
    if only is not None:
        return [each for each in ranges if each.partition == only]
    if sample.decoder.facts.types_in_ddl or helps:
        return list(ranges)
    lowest = lowest_partitions(each.topic_partition for each in ranges)
    return [each for each in ranges if each.partition == lowest[each.topic]]


def _add_ddl(sample: Sample, ranges: Iterable[OffsetRange], fetcher: Fetcher) -> None:
    for offset_range in ranges:
        for chunk in fetcher.fetch(offset_range):
            sample.add(chunk, rows=False)


def _warn_of_absent_columns(fields: Sequence[pa.Field], inferred: TableSchema) -> None:
    """Warn about columns of the user's schema that occur in no sampled message: they are NULL."""
    inferred_names = {column.name.lower(): column.name for column in inferred.columns}
    for item in fields:
        if item.name.lower() not in inferred_names:
            near = nearest(item.name, inferred_names)
            hint = f". Did you mean {inferred_names[near[0]]}?" if near else ""
            msg = f"The schema's column {item.name} is in no message of {inferred.table} that was sampled"
            warn(f"{msg}: it is NULL if a message lacks it{hint}")
