"""The driver's part of each read: options → offset ranges → sample → read schema, context, input partitions.

It does not depend on Spark, so any reader can call it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from ticdc_source.errors import OptionError, warn
from ticdc_source.kernels.native import warn_of_missing
from ticdc_source.options.names import refuse_misspelt, warn_of_unknown
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import OPTIONS, Options
from ticdc_source.options.ranges import validate, warn_of_implausible_times
from ticdc_source.pipeline.context import BatchScope
from ticdc_source.planning.ddl_copies import ddl_copies_of_batch
from ticdc_source.planning.fetchers import Fetch, driver_fetcher, record_source, search_of
from ticdc_source.planning.inference import MakesSearch, infer_table, nothing_there, take_sample, tell_order
from ticdc_source.planning.partitions import Partition
from ticdc_source.planning.read_context import (
    ContextFinder,
    context_of_schema,
    warn_of_absent_names,
    warn_of_missing_ddl,
)
from ticdc_source.planning.read_schema import check_types, format_schema, read_schema
from ticdc_source.planning.watermarks import resolved_until
from ticdc_source.protocols import FORMATS, checked_protocol, decoder_of
from ticdc_source.sources.choose import telling_schema
from ticdc_source.sources.record_source import RecordSource


def batch_options(given: Mapping[str, str]) -> Options:
    """Return the options of a batch read, checked as far as possible without a broker.

    Raises:
        OptionError: an option is wrong, or not supported in batch reads.
    """
    options = _parsed(given)
    warn_of_unknown(options)
    validate(options, streaming=False)
    for option in OPTIONS:
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
    if options.ending_commit_ts == "resolved":
        raise OptionError("endingCommitTs=resolved is supported only in batch reads: a stream has no end")
    return options


def _parsed(given: Mapping[str, str]) -> Options:
    refuse_misspelt(given)
    options = Options.of(given)
    record_source(options).check_protocol(checked_protocol(options))
    check_types(options)
    return options


def load_schema(given: Mapping[str, str]) -> pa.Schema:
    """Return the read schema that the options ask for, inferred from the messages.

    Raises:
        TiCDCSourceError: an option is wrong, the brokers do not answer, or the messages do not determine a schema.
    """
    options = _parsed(given)
    warn_of_unknown(options)
    warn_of_missing(options.native_code)
    if not options.is_typed:  # all tables have the same columns
        warn_of_implausible_times(options)
        return format_schema(options)
    ranges, options = _ranges_to_sample(options)
    with driver_fetcher(options) as fetcher:
        return schema_of_ranges(ranges, fetcher.fetch, options, partial(search_of, options=options))


def schema_of_ranges(
    ranges: Sequence[OffsetRange], fetch: Fetch, options: Options, search: MakesSearch | None = None
) -> pa.Schema:
    """Infer the read schema from the records of the given offset ranges; `search` as for `take_sample`.

    Raises:
        SchemaError: the ranges hold no record, or no row event.
        OptionError: there are several tables or protocols, or an option contradicts the messages.
        DecodeError: no row can be read.
    """
    if not options.is_typed:
        return format_schema(options)
    sample = take_sample(ranges, fetch, options, search)
    if sample is None or not (sample.scanned or sample.table_ddl):
        raise nothing_there(ranges, options)
    table = infer_table(sample)
    warn_of_absent_names(sample)
    tell_order(sample)
    return read_schema(table, sample.decoder, options, definitions=sample.definitions)


def _ranges_to_sample(options: Options) -> tuple[list[OffsetRange], Options]:
    """Return the ranges to sample, and the options, with the protocol if the source tells it.

    At load() Spark does not say whether the read is a batch or a stream. The ranges are those of a batch, or the whole
    log if the options are valid only for a stream. Options that are invalid for both are refused here; the reader
    refuses those that are invalid for one.
    """
    batch = True
    try:
        validate(options, streaming=False)
    except OptionError:
        validate(options, streaming=True)
        batch = False
    source, options = telling_schema(options, FORMATS)  # not connected yet
    with source:
        ranges = source.ranges_to_infer_from(batch=batch)
        return ranges, _with_protocol(options, source)


def _with_protocol(options: Options, source: RecordSource) -> Options:
    protocol = source.protocol()
    return options if protocol is None else replace(options, protocol=protocol)


def _as_of_schema(schema: pa.Schema, options: Options) -> Options:
    """Replace `snapshot.at=now` by the TSO at load(), so that all actions read the same."""
    context = context_of_schema(schema, options) if options.is_typed and options.snapshot_at == "now" else None
    versions = [] if context is None else [version for _, version in context.definitions]
    return replace(options, snapshot_at=max(versions)) if versions else options


def plan_batch(schema: pa.Schema, options: Options) -> list[Partition]:
    """Resolve the offsets of a batch read; cut large ranges and pack small ones into input partitions.

    There is always one, maybe without a range: otherwise Spark would invent a partition.

    Raises:
        TiCDCSourceError: the brokers do not answer, requested offsets no longer exist, or the messages do not fit the
            options.
    """
    warn_of_missing(options.native_code)
    options = _as_of_schema(schema, options)
    with record_source(options) as source:
        ranges = source.batch_ranges()
        options = _with_protocol(options, source)
        ends = {offset_range.topic_partition: offset_range.end for offset_range in ranges}
        topic_ids = dict(source.topic_ids())
        context = ContextFinder(schema, options, source.earliest).find(ranges, ends)
        copies = {} if source.is_one_log else ddl_copies_of_batch(source, ranges, context, options)
        end = source.resolved_end() if options.ending_commit_ts == "resolved" else None
    if options.ending_commit_ts == "resolved" and end is None:
        if context.protocol is None:
            raise nothing_there(ranges, options)
        with driver_fetcher(options) as fetcher:
            end = resolved_until(ranges, fetcher.fetch, decoder_of(context.protocol, options))
    scope = BatchScope(
        ddl_copies=copies,
        partitions=1 if source.is_one_log else len(ends),
        commit_end=end,
        topic_ids=topic_ids,
        one_watermark=source.is_one_log,
    )
    warn_of_missing_ddl(context, scope, options)
    return [Partition(piece, context, scope) for piece in source.pieces(ranges) or [[]]]
