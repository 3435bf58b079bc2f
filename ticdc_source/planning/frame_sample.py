"""Records that come as rows of a DataFrame, on the driver: their options, their schema and their read context.

Nothing here depends on Spark. `pipeline/record_frames.py` has what runs on the workers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa

from ticdc_source.errors import OptionError, SchemaError
from ticdc_source.kernels.native import warn_of_missing
from ticdc_source.options.names import applies_to_frames, refuse_misspelt, warn_of_unknown
from ticdc_source.options.options import OPTIONS, Options
from ticdc_source.options.ranges import warn_of_implausible_times
from ticdc_source.options.topics import TableFilter
from ticdc_source.pipeline.context import DDLCopies, DDLCoverage, ReadContext
from ticdc_source.pipeline.record_frames import record_chunks
from ticdc_source.pipeline.rows import RECORD
from ticdc_source.planning.inference import Sample, infer_table
from ticdc_source.planning.read_context import context_of_sample, context_of_schema, context_of_table
from ticdc_source.planning.read_schema import check_types, format_schema, read_schema
from ticdc_source.protocols import checked_protocol, decoder_of, detect_protocol

__all__ = [
    "FrameSample",
    "context_of_records",
    "frame_options",
    "needs_sample",
    "sample_of_records",
    "schema_of_sample",
]


def frame_options(given: Mapping[str, str], *, is_stream: bool = False) -> Options:
    """Return the options of a DataFrame's records, checked.

    Args:
        given: options by name, in any case.
        is_stream: whether the DataFrame is a stream.

    Raises:
        OptionError: an option is wrong, or is about fetching from Kafka.
    """
    refuse_misspelt(given)
    options = Options.of(given, from_kafka=False)
    checked_protocol(options)
    check_types(options)
    kafka = [f"kafka.{name}" for name in options.kafka]
    names = (option.name for option in OPTIONS if options.is_given(option.name))
    refused = kafka + [name for name in names if not applies_to_frames(name)]
    if refused:
        msg = f"Option '{refused[0]}' says how to read Kafka; here the records come from a DataFrame: set it there"
        raise OptionError(msg)
    if options.ending_commit_ts == "resolved":
        msg = (
            "endingCommitTs=resolved is not supported for the records of a DataFrame, which need not be all: give the "
            "commit-ts, such as the smallest over the topic partitions of their largest _watermark_ts"
        )
        raise OptionError(msg)
    warn_of_unknown(options)
    warn_of_implausible_times(options)
    warn_of_missing(options.native_code)
    return replace(options, is_stream=is_stream)


class FrameSample(NamedTuple):
    """What `survey` has found in the records of a DataFrame.

    Attributes:
        sample: the sample; None if there is no record and the protocol is not set.
        ddl_copies: which DDL events the records of each topic partition have: `survey` keeps all.
    """

    sample: Sample | None
    ddl_copies: DDLCopies


def sample_of_records(records: Iterable[pa.RecordBatch], options: Options) -> FrameSample:
    """Return the sample of what `survey` has kept.

    Raises:
        OptionError: the protocol cannot be detected.
    """
    keys = [(name, "ascending") for name in ("topic", "partition", "offset")]
    table = pa.Table.from_batches(list(records), RECORD).sort_by(keys).combine_chunks()
    chunks = list(record_chunks(table.to_batches(), options))
    protocol = detect_protocol(chunks) if options.protocol == "auto" else options.protocol
    if protocol is None:
        return FrameSample(None, {})
    decoder, tables = decoder_of(protocol, options), TableFilter(options.tables or ())
    sample = Sample(decoder, tables, table_ddl=options.table_ddl, most_unpacked=math.inf)  # each says something new
    copies: dict[str, dict[int, set[str]]] = {}
    for chunk in chunks:
        before = len(sample.ddl)
        sample.add(chunk)
        identities = copies.setdefault(chunk.topic, {}).setdefault(chunk.partition, set())
        identities.update(event.identity for event in sample.ddl[before:])
    return FrameSample(
        sample,
        {
            topic: {
                partition: DDLCoverage(until=-1, exceptions=frozenset(identities))
                for partition, identities in of_topic.items()
            }
            for topic, of_topic in copies.items()
        },
    )


def schema_of_sample(
    sample: Sample | None, options: Options, earlier: Mapping[str, str] = MappingProxyType({})
) -> pa.Schema:
    """Return the read schema that inference finds in a sample.

    Args:
        sample: the sample; None if there is no record.
        options: the options.
        earlier: the types that earlier records have shown; see `read_schema`.

    Raises:
        SchemaError: there is no sample, or no row in it.
        OptionError: there are several tables, or an option contradicts the messages.
        DecodeError: no row can be read.
    """
    if not options.is_typed:
        return format_schema(options)
    if sample is None or not (sample.scanned or sample.table_ddl):
        msg = (
            "The DataFrame has no record: the schema cannot be inferred. Give it as `schema`, and the options "
            "'protocol' and 'tables'"
        )
        raise SchemaError(msg)
    table = infer_table(sample)
    return read_schema(table, sample.decoder, options, earlier, sample.definitions)


def needs_sample(schema: pa.Schema | None, options: Options) -> bool:
    """Return whether `survey` must run before the records of a batch can be decoded."""
    if options.output_format == "record":
        return False
    return schema is None or not options.is_typed or context_of_schema(schema, options) is None


def context_of_records(schema: pa.Schema, sampled: FrameSample | None, options: Options) -> ReadContext:
    """Return what the driver knows about the records of a DataFrame.

    Args:
        schema: the read schema.
        sampled: what `survey` found; None if it did not run, as for a stream.
        options: the options.
    """
    context = context_of_schema(schema, options) if options.is_typed else None
    if context is not None:
        return context
    sample = None if sampled is None else sampled.sample
    if sample is None or options.output_format == "record":
        protocol = None if options.protocol == "auto" else options.protocol
        return ReadContext(protocol=protocol, table=TableFilter(options.tables or ()).exact)
    if options.is_typed:
        return context_of_table(infer_table(sample), sample)
    return context_of_sample(sample)
