"""The read context, from a sample or the metadata of an inferred schema; and warnings about it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from ticdc_source.errors import OptionError, TiCDCSourceError, nearest, warn
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.options.topics import TableFilter, TopicPartition, parse_table
from ticdc_source.pipeline.context import BatchScope, ReadContext
from ticdc_source.pipeline.metadata import Layout
from ticdc_source.planning.fetchers import driver_fetcher, record_source, search_of
from ticdc_source.planning.inference import (
    Sample,
    absent_names,
    ddl_texts_help,
    describe_table,
    find_protocol,
    infer_table,
    lacks_types,
    no_row_in_sample,
    take_sample,
)
from ticdc_source.planning.read_schema import warn_of_zone
from ticdc_source.protocols import PROTOCOLS
from ticdc_source.schema.ddl import ddl_types_of_tables, table_ddl_types, with_table_ddl
from ticdc_source.schema.model import (
    DEFINITIONS,
    KEY,
    MYSQL_TYPE,
    PROTOCOL,
    TABLE,
    VERSIONS,
    Column,
    ReadField,
    TableSchema,
    TypeVersions,
    definitions_of_json,
    merge_schemas,
    versions_of_json,
)
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import TIMESTAMP, ColumnType, parse_type
from ticdc_source.sources.record_source import Fetcher

_WINDOW = 4096  # records to scan for DDL events at a time
_TEXT = pa.string()  # one object for all columns of a context: it is pickled once


def context_of_schema(schema: pa.Schema, options: Options) -> ReadContext | None:
    """Return the context in the field metadata of an inferred schema; None for a user's schema."""
    fields = [
        (item.name.lower(), {name.decode(): value.decode() for name, value in item.metadata.items()})
        for item in _inferred_fields(schema, options)
    ]
    if not fields:
        return None
    _, first = fields[0]
    table, protocol = parse_table(first[TABLE]), first[PROTOCOL]
    definitions = definitions_of_json(first.get(DEFINITIONS, "[]"), table)
    is_told = PROTOCOLS[protocol].facts.of_tables and definitions
    fails_on_unknown_columns = options.on_schema_drift == "fail" and options.columns is None
    return ReadContext(
        protocol=protocol,
        table=table,
        columns={name: _column_of_metadata(name, metadata) for name, metadata in fields},
        expected=frozenset(name for name, _ in fields) if fails_on_unknown_columns else None,
        told_at=max(version for _, version in definitions) if is_told else None,
        definitions=definitions,
    )


def _column_of_metadata(name: str, metadata: Mapping[str, str]) -> ReadField:
    return ReadField(
        name,
        _TEXT,
        type=parse_type(metadata[MYSQL_TYPE]) if MYSQL_TYPE in metadata else None,
        versions=versions_of_json(metadata.get(VERSIONS, "[]")),
        key=KEY in metadata,
    )


def _inferred_fields(schema: pa.Schema, options: Options) -> list[pa.Field]:
    fields = list(schema)
    if options.output_format == "envelope":
        images = [item for item in schema if item.name.lower() in ("before", "after")]
        fields = list({inner.name: inner for item in images for inner in item.type}.values())
    return [item for item in fields if item.metadata and TABLE.encode() in item.metadata]


def context_of_sample(sample: Sample) -> ReadContext:
    """Return the context of a sample for `outputFormat=event`: what is known of each table.

    Raises:
        SchemaError: the messages of a table contradict the option `tableDDL`.
    """
    facts = sample.decoder.facts
    in_texts = {} if facts.types_in_ddl else ddl_types_of_tables(sample.ddl, whole=sample.whole)
    spellings: dict[TableName, list[TableName]] = {}
    for table in sorted({*sample.rows, *(event.table for event in sample.ddl if event.table.table), *in_texts}):
        if sample.tables.matches(table):
            spellings.setdefault(table.folded, []).append(table)
    tables: dict[TableName, Sequence[ReadField]] = {
        name: [ReadField(column, _TEXT, type=type_) for column, type_ in columns.items()]
        for name, columns in table_ddl_types(sample.table_ddl).items()
    }
    for name, spelled in spellings.items():
        schemas = [schema for table in spelled for schema in describe_table(sample, table, in_texts.get(name, {}))]
        merged = merge_schemas(schemas)
        if merged is not None:
            columns = with_table_ddl(merged, sample.table_ddl, required=False).columns
            tables[name] = [_column(column) for column in columns]
        declared = facts.types_in_ddl(spelled[0], sample.ddl) if facts.types_in_ddl else in_texts.get(name, {})
        given = {column.name for column in tables.get(name) or tables.get(TableName("", name.table), ())}
        rest = [
            ReadField(column, _TEXT, type=_supported(versions[-1][1]), versions=_if_several(versions))
            for column, versions in declared.items()
            if column not in given
        ]
        tables[name] = [*tables.get(name, ()), *rest]
    return ReadContext(
        protocol=facts.name,
        tables={name: columns for name, columns in tables.items() if columns},
        definitions=sample.definitions,
    )


def _column(column: Column) -> ReadField:
    return ReadField(
        column.name.lower(),
        _TEXT,
        type=None if column.is_open else _supported(column.type),
        versions=_if_several(column.versions),
        key=column.key,
    )


def _supported(type_: ColumnType | None) -> ColumnType | None:
    return type_ if type_ is not None and type_.is_supported else None


def _if_several(versions: TypeVersions) -> TypeVersions:
    return tuple(versions) if len(versions) > 1 else ()


def context_of_table(table: TableSchema, sample: Sample) -> ReadContext:
    """Return the context of an inferred table, for a read with a user's schema.

    The user left out missing columns on purpose, so `expected` stays None.
    """
    columns = {column.name: column for column in map(_column, table.columns)}
    return ReadContext(
        protocol=sample.decoder.facts.name, table=table.table, columns=columns, definitions=sample.definitions
    )


def warn_of_absent_names(sample: Sample) -> None:
    """Warn about names in the option `tables` without rows in the sample, if others have rows."""
    names = absent_names(sample)
    if sample.wanted and names.patterns:
        warn(no_row_in_sample(sample, names))


def warn_of_absent_tables(sample: Sample, options: Options) -> None:
    """Warn about tables in the options `tables` and `tableDDL` without messages, for `outputFormat=event`.

    Only a sample of all records of a batch shows that one of several tables has no row: other samples end with enough
    rows of any, and a stream goes on.
    """
    if sample.others and not sample.wanted:
        warn(no_row_in_sample(sample, sample.tables))
    elif sample.whole and not options.is_stream:
        warn_of_absent_names(sample)
    occurring = {table.folded for table in {*sample.rows, *(event.table for event in sample.ddl)}}
    names = {name.table for name in occurring}
    absent = [
        str(name) if name.database else name.table
        for name in table_ddl_types(sample.table_ddl)
        if (name.table not in names if not name.database else name not in occurring)
    ]
    if absent and occurring:
        listed = ", ".join(absent)
        warn(
            f"Option 'tableDDL' creates {listed}, but no message of the sample is about {listed}: it has an effect "
            "only if rows come later"
        )


def warn_of_missing_ddl(context: ReadContext, scope: BatchScope, options: Options) -> None:
    """Warn if the read outputs DDL events but lacks partition 0, which may be the only one with DDL events."""
    if options.output_format != "event":
        return
    without = [topic for topic, of_topic in scope.ddl_copies.items() if 0 not in of_topic]
    if without:
        decoder = PROTOCOLS.get(context.protocol or "")
        alone = decoder is not None and decoder.facts.ddl_partition == 0
        what = "has its DDL in partition 0 only" if alone else "may have DDL in partition 0"
        protocol = context.protocol or "the topic"
        warn(f"Partition 0 of {', '.join(without)} is not read; {protocol} {what}")


class ContextFinder:
    """Returns the read context of a batch, or of each micro-batch of a stream. It lives in the driver's Python process.

    With `outputFormat=event`, DDL events may be the only source of column types and labels. Then it scans the DDL
    events before the batch's range (or the first micro-batch), and those of every later micro-batch, so that a row is
    decoded alike in a batch, in a stream and after its restart.

    `earliest` returns the log starts of topic partitions. `warns_of_absent`: whether to warn about tables in the
    options that the sample lacks, which a reader of only the last records should not.
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
        self._source = record_source(options)
        self._earliest = earliest
        self._warns_of_absent = warns_of_absent
        self._context: ReadContext | None = None
        self._sample: Sample | None = None  # the DDL events seen so far, if types or labels come from them
        self._ddl_helps: bool | None = None  # `ddl_texts_help` of this sample

    def find(self, ranges: Sequence[OffsetRange], ends: Mapping[TopicPartition, int]) -> ReadContext:
        """Return the context of a batch or micro-batch, given its ranges and the end of each topic partition.

        Raises:
            OptionError: the sample contains more than one table or protocol.
        """
        if self._sample is not None:
            before = len(self._sample.ddl)
            with_ddl = self._source.with_ddl(ranges)
            if with_ddl is None:
                with_ddl = _ranges_of_ddl(self._sample, self._ddl_helps, ranges)
            with driver_fetcher(self._options) as fetcher:
                _add_ddl(self._sample, with_ddl, fetcher)
            if len(self._sample.ddl) > before:
                self._ddl_helps = ddl_texts_help(self._sample)
                self._context = context_of_sample(self._sample)
        elif self._context is None:
            self._context = self._infer_context(ranges, ends)
            _warn_of_checksums(self._context.protocol, self._options)
        elif self._context.provisional:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an earlier micro-batch has reported them
                self._context = self._infer_context(ranges, ends)
        assert self._context is not None  # noqa: S101 (for mypy)
        return self._context

    def _infer_context(self, ranges: Sequence[OffsetRange], ends: Mapping[TopicPartition, int]) -> ReadContext:
        options = self._options
        ranges = self._source.sampled(ranges)
        if options.is_typed:
            return self._of_schema_or_sample(ranges)
        with driver_fetcher(options) as fetcher:
            if options.output_format == "record":
                protocol = find_protocol(ranges, fetcher.fetch, options)
                # If all records are bad, any decoder reports them; the next micro-batch looks again.
                return ReadContext(protocol=protocol or next(iter(PROTOCOLS)), provisional=protocol is None)
            sample = take_sample(ranges, fetcher.fetch, options, partial(search_of, options=options))
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
                        "columns whose types or labels appear only in DDL events are shown as the messages have them"
                    )
            if self._warns_of_absent:
                warn_of_absent_tables(sample, options)
            return context_of_sample(sample)

    def _of_schema_or_sample(self, ranges: Sequence[OffsetRange]) -> ReadContext:
        """Return the context in an inferred schema, else infer it from a sample of the ranges."""
        options = self._options
        context = context_of_schema(self._schema, options)
        if context is not None and not self._is_of_other_source(context):
            return context
        with driver_fetcher(options) as fetcher:
            if context is not None:
                protocol = find_protocol(ranges, fetcher.fetch, options)
                _refuse_other_names(context, protocol)
                if protocol is not None and not PROTOCOLS[protocol].facts.zoned_timestamps:
                    fields = Layout.of(self._schema, options).data_fields()
                    zoneless = [each.name for each in fields if each.type == TIMESTAMP]
                    warn_of_zone(context.table or TableName("", ""), zoneless, options)
                return replace(context, protocol=protocol, definitions={}, provisional=protocol is None)
            sample = take_sample(ranges, fetcher.fetch, options, partial(search_of, options=options))
        if sample is None:
            return ReadContext(protocol=None if options.protocol == "auto" else options.protocol, provisional=True)
        try:
            inferred = infer_table(sample)
        except TiCDCSourceError as error:
            if isinstance(error, OptionError) and sample.rows:  # several tables
                raise
            warn(str(error))
            table = TableFilter(options.tables or ()).exact
            # If `tables` names one table, nothing else is to be inferred, unless its types come from DDL events.
            provisional = table is None or sample.decoder.facts.types_in_ddl is not None
            return ReadContext(protocol=sample.decoder.facts.name, table=table, provisional=provisional)
        warn_of_absent_names(sample)
        _warn_of_absent_columns(Layout.of(self._schema, options).data_fields(), inferred)
        return context_of_table(inferred, sample)

    def _is_of_other_source(self, context: ReadContext) -> bool:
        """Whether TiDB told the schema, and messages are read."""
        protocol = context.protocol
        return protocol is not None and PROTOCOLS[protocol].facts.of_tables and self._source.protocol() != protocol

    def _add_history(
        self, sample: Sample, ranges: Sequence[OffsetRange], ends: Mapping[TopicPartition, int], fetcher: Fetcher
    ) -> bool:
        """Add the DDL events before a batch or a stream's first micro-batch; return whether all were scanned.

        DDL events are in all partitions of a topic, or only in the first: the lowest partition is enough.
        """
        lowest = {tp.topic: tp for tp in sorted(ends, reverse=True)}.values()
        begins = {**ends, **{offset_range.topic_partition: offset_range.start for offset_range in ranges}}
        deadline = time.monotonic() + self._options.infer_schema_timeout_ms / 1000
        limit = self._options.infer_schema_max_scanned_records
        for topic_partition, earliest in self._earliest(lowest).items():
            end = begins[topic_partition]
            while end > earliest:  # backwards, as the newest tell most
                if limit <= 0 or time.monotonic() >= deadline:
                    return False
                start = max(earliest, end - min(limit, _WINDOW))
                _add_ddl(sample, [OffsetRange(*topic_partition, start, end)], fetcher)
                limit -= end - start
                end = start
        return True


def _refuse_other_names(context: ReadContext, protocol: str | None) -> None:
    """Refuse a table whose names in messages differ from TiDB's."""
    sent_name = None if protocol is None else PROTOCOLS[protocol].facts.sent_name
    if sent_name is None or context.table is None:
        return
    other = [name for name in (*context.table, *context.columns) if sent_name(name) != name]
    if other:
        raise OptionError(
            f"Table {context.table}: {protocol} writes the name {other[0]} as {sent_name(other[0])}, so TiDB's columns "
            "do not fit these messages. Leave 'tidb.url' out, and set 'tableDDL' to what SHOW CREATE TABLE prints"
        )


def _warn_of_checksums(protocol: str | None, options: Options) -> None:
    if options.verify_checksum != "off" and protocol is not None and not PROTOCOLS[protocol].facts.has_checksums:
        warn(f"Option 'verifyChecksum' has no effect: {protocol} has no checksums; simple and avro have")


def _ranges_of_ddl(sample: Sample, helps: bool | None, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:  # noqa: FBT001 (as `ddl_texts_help` returns it)
    """Return the ranges of a micro-batch to scan for DDL events.

    If all partitions have a copy of a DDL event, the lowest one's may come in a later micro-batch than the rows after
    the event. So all are scanned, unless no column depends on DDL events so far.
    """
    only = sample.decoder.facts.ddl_partition
    if only is not None:
        return [each for each in ranges if each.partition == only]
    if sample.decoder.facts.types_in_ddl or helps:
        return list(ranges)
    lowest = {each.topic: each.partition for each in sorted(ranges, reverse=True)}
    return [each for each in ranges if each.partition == lowest[each.topic]]


def _add_ddl(sample: Sample, ranges: Iterable[OffsetRange], fetcher: Fetcher) -> None:
    for offset_range in ranges:
        for chunk in fetcher.fetch(offset_range):
            sample.add(chunk, rows=False)


def _warn_of_absent_columns(fields: Sequence[pa.Field], inferred: TableSchema) -> None:
    """Warn about columns of the user's schema that no sampled message has."""
    inferred_names = {column.name.lower(): column.name for column in inferred.columns}
    for item in fields:
        if item.name.lower() not in inferred_names:
            near = nearest(item.name, inferred_names)
            hint = f". Did you mean {inferred_names[near[0]]}?" if near else ""
            msg = f"The schema's column {item.name} is in no sampled message of {inferred.table}"
            warn(f"{msg}: it is NULL if a message lacks it{hint}")
