"""Records as rows of a DataFrame, on the driver: their options, schema, read context and tables.

Nothing here depends on Spark. The workers' part is `pipeline/record_frames.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import pyarrow as pa

from ticdc_source.errors import DecodeError, OptionError, SchemaError, TiCDCSourceError
from ticdc_source.kernels.native import warn_of_missing
from ticdc_source.options.names import applies_to_frames, refuse_misspelt, warn_of_unknown
from ticdc_source.options.options import OPTIONS, Options
from ticdc_source.options.ranges import warn_of_implausible_times
from ticdc_source.options.topics import TableFilter
from ticdc_source.pipeline.context import DDLCopies, DDLCoverage, ReadContext
from ticdc_source.pipeline.metadata import metadata_fields
from ticdc_source.pipeline.record_frames import RECORD, record_chunks
from ticdc_source.planning.inference import Sample, infer_table, tell_order
from ticdc_source.planning.read_context import context_of_sample, context_of_schema, context_of_table
from ticdc_source.planning.read_schema import check_types, column_types, format_schema, read_schema
from ticdc_source.protocols import checked_protocol, decoder_of, protocol_of
from ticdc_source.schema.ddl import creates
from ticdc_source.schema.ddl_event import DDLEvent, removes_rows_of
from ticdc_source.schema.table_name import TableName, first_spellings


def frame_options(given: Mapping[str, str]) -> Options:
    """Return the checked options of a DataFrame's records.

    Raises:
        OptionError: an option is wrong, or about fetching from Kafka.
    """
    refuse_misspelt(given)
    options = Options.of(given, from_kafka=False)
    checked_protocol(options)
    check_types(options)
    kafka = [f"kafka.{name}" for name in options.kafka]
    names = (option.name for option in OPTIONS if options.is_given(option.name))
    refused = kafka + [name for name in names if not applies_to_frames(name)]
    if refused:
        raise OptionError(
            f"Option '{refused[0]}' is for reading Kafka, but these records come from a DataFrame: set it where the "
            "DataFrame is read"
        )
    if options.ending_commit_ts == "resolved":
        raise OptionError(
            "endingCommitTs=resolved is not supported for a DataFrame, which may lack records: set a commit-ts, such "
            "as the smallest, over the topic partitions, of each one's largest _watermark_ts"
        )
    warn_of_unknown(options)
    warn_of_implausible_times(options)
    warn_of_missing(options.native_code)
    return options


def sample_of_records(records: Iterable[pa.RecordBatch], options: Options) -> Sample | None:
    """Return the sample of the records that `survey` kept; None without a record, if the protocol is not set.

    Raises:
        OptionError: the protocol cannot be detected.
    """
    keys = [(name, "ascending") for name in ("topic", "partition", "offset")]
    table = pa.Table.from_batches(list(records), RECORD).sort_by(keys).combine_chunks()
    chunks = list(record_chunks(table.to_batches(), options))
    protocol = protocol_of(chunks, options)
    if protocol is None:
        return None
    decoder, tables = decoder_of(protocol, options), TableFilter(options.tables or ())
    sample = Sample(decoder, tables, table_ddl=options.table_ddl, most_unpacked=math.inf)  # each says something new
    for chunk in chunks:
        sample.add(chunk)
    return sample


def ddl_copies_in(sample: Sample | None) -> DDLCopies:
    """Return which DDL events the records of each topic partition have: `survey` keeps all."""
    copies: dict[str, dict[int, DDLCoverage]] = {}
    for place, identities in ({} if sample is None else sample.ddl_places).items():
        copies.setdefault(place.topic, {})[place.partition] = DDLCoverage(until=-1, exceptions=frozenset(identities))
    return copies


def schema_of_sample(
    sample: Sample | None, options: Options, earlier: Mapping[str, str] = MappingProxyType({})
) -> pa.Schema:
    """Infer the read schema from a sample; `earlier` as for `read_schema`.

    Raises:
        SchemaError: there is no sample, or no row in it.
        OptionError: there are several tables, or an option contradicts the messages.
        DecodeError: no row can be read.
    """
    if not options.is_typed:
        return format_schema(options)
    if sample is None or not (sample.scanned or sample.table_ddl):
        raise SchemaError(
            "The DataFrame has no record: the schema cannot be inferred. Pass it as `schema`, and the options "
            "'protocol' and 'tables'"
        )
    table = infer_table(sample)
    return read_schema(table, sample.decoder, options, earlier, sample.definitions)


def needs_sample(schema: pa.Schema | None, options: Options) -> bool:
    """Return whether `survey` must run before the records of a batch can be decoded."""
    if options.output_format == "record":
        return False
    return schema is None or not options.is_typed or context_of_schema(schema, options) is None


def context_of_records(schema: pa.Schema, sample: Sample | None, options: Options) -> ReadContext:
    """Return what the driver knows about the records of a DataFrame; `survey` does not run for a stream."""
    context = context_of_schema(schema, options) if options.is_typed else None
    if context is not None:
        return context
    if sample is None or options.output_format == "record":
        protocol = None if options.protocol == "auto" else options.protocol
        return ReadContext(protocol=protocol, table=TableFilter(options.tables or ()).exact)
    if options.is_typed:
        return context_of_table(infer_table(sample), sample)
    return context_of_sample(sample)


@dataclass(slots=True, kw_only=True)
class FoundTables:
    """The tables and DDL events of a micro-batch.

    Attributes:
        schemas: the read schema of each table with rows.
        column_types: the column types that this and earlier micro-batches have shown, by lower-case table name.
        errors: why a table with rows cannot be read.
        ddl: the new DDL events, by table, oldest first; each once.
        ddl_records: the records of these and of all earlier DDL events.
        corrupt: the error of the first unreadable record, whose table is unknown.
    """

    schemas: dict[TableName, pa.Schema] = field(default_factory=dict)
    column_types: dict[str, Mapping[str, str]] = field(default_factory=dict)
    errors: dict[TableName, TiCDCSourceError] = field(default_factory=dict)
    ddl: dict[TableName, list[DDLEvent]] = field(default_factory=dict)
    ddl_records: pa.RecordBatch
    corrupt: DecodeError | None = None


def find_tables(
    records: pa.RecordBatch,
    earlier_ddl: pa.RecordBatch,
    options: Options,
    earlier_tables: Iterable[TableName] = (),
    earlier_types: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    options_of: Callable[[TableName], Options] | None = None,
    known_ddl: Mapping[str, Sequence[DDLEvent]] = MappingProxyType({}),
) -> FoundTables:
    """Find the tables and DDL events of a micro-batch.

    Args:
        records: the records that `record_frames.survey` kept.
        earlier_ddl: the records with DDL of earlier micro-batches.
        options: the options of all tables.
        earlier_tables: the tables of earlier micro-batches.
        earlier_types: their column types, which decide for columns with only NULLs now.
        options_of: returns a table's options, if tables have their own.
        known_ddl: DDL known from elsewhere, by lower-case table name; it tells types and keys, and is not returned.

    Raises:
        OptionError: the protocol cannot be detected.
        DecodeError: a record cannot be read, so its table is unknown, and the mode is FAILFAST.
    """
    before, now = (sample_of_records([each], options) for each in (earlier_ddl, records))
    if now is None:
        return FoundTables(ddl_records=earlier_ddl, column_types=dict(earlier_types))
    if now.corrupt is not None and options.mode == "FAILFAST":
        raise now.corrupt.error
    returned = {event.identity for event in before.ddl} if before is not None else set()
    new = [event for event in _each_once(now.ddl) if event.identity not in returned]
    defined = before.definitions if before is not None else {}
    known_types = {name.lower(): types for name, types in earlier_types.items()}
    now.ddl = [*(before.ddl if before is not None else ()), *new]
    now.definitions = {**defined, **now.definitions}
    # Rows of TiDB bring their definitions in each micro-batch.
    newly = set() if now.decoder.facts.of_tables else now.definitions.keys() - defined.keys()
    result = FoundTables(
        ddl_records=_with_ddl(records, earlier_ddl, {event.identity for event in new}, newly, options),
        column_types=dict(known_types),
    )
    if now.corrupt is not None:
        result.corrupt = now.corrupt.error
    spelt = first_spellings([*earlier_tables, *now.rows, *(event.table for event in new)])
    names = list(dict.fromkeys(spelt[name.folded] for name in now.rows))
    others = list(dict.fromkeys(spelt[name.folded] for name in (*names, *earlier_tables)))
    for event in new:
        for table in _concerned(event, spelt[event.table.folded], others):
            if now.tables.matches_ddl(table):
                result.ddl.setdefault(table, []).append(event)
    for name in names:
        types = known_types.get(str(name).lower(), {})
        own = options if options_of is None else options_of(name)
        try:
            its_sample = _only(now, name, known_ddl.get(str(name).lower(), ()))
            schema = result.schemas[name] = schema_of_sample(its_sample, own, types)
        except TiCDCSourceError as error:
            result.errors[name] = error
        else:
            if str(name).lower() not in known_types:
                tell_order(its_sample)
            result.column_types[str(name).lower()] = {**types, **column_types(schema)}
    return result


def _concerned(event: DDLEvent, own: TableName, names: Iterable[TableName]) -> list[TableName]:
    """Return the tables that a DDL event affects: its own, and others that lose rows."""
    return list(dict.fromkeys([own, *(name for name in names if removes_rows_of(event, name))]))


def _each_once(ddl: Iterable[DDLEvent]) -> list[DDLEvent]:
    first: dict[str, DDLEvent] = {}
    for event in ddl:
        first.setdefault(event.identity, event)
    return sorted(first.values(), key=lambda event: event.moment)  # of one commit-ts: as they were written


def _with_ddl(
    records: pa.RecordBatch,
    earlier: pa.RecordBatch,
    new: set[str],
    defined: AbstractSet[tuple[TableName, int]],
    options: Options,
) -> pa.RecordBatch:
    """Return the records of earlier DDL, and one for each new DDL event and each newly defined version."""
    kept: list[pa.RecordBatch] = [earlier]
    wanted: set[object] = {*new, *defined}
    for row in range(records.num_rows):
        if not wanted:
            break
        alone = records.slice(row, 1)
        sample = sample_of_records([alone], options)
        told = set() if sample is None else {*(event.identity for event in sample.ddl), *sample.definitions} & wanted
        if told:
            wanted -= told
            kept.append(alone)
    return pa.Table.from_batches(kept).combine_chunks().to_batches(max_chunksize=None)[0] if kept[1:] else earlier


def _only(sample: Sample, name: TableName, known_ddl: Sequence[DDLEvent]) -> Sample:
    return replace(
        sample,
        tables=TableFilter(((name.database, name.table),)),
        rows={table: parts for table, parts in sample.rows.items() if table.is_same(name)},
        ddl=[*known_ddl, *sample.ddl],
        table_ddl=sample.table_ddl if creates(sample.table_ddl, name) else None,
    )


def metadata_schema(options: Options) -> pa.Schema:
    """Return the metadata columns alone: the schema of a table with only DDL."""
    core, extra = metadata_fields(options)
    return pa.schema([*core, *extra])
