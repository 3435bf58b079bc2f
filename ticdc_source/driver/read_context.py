"""The read context, from a sample or from the metadata of an inferred schema; and warnings about what it shows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from ticdc_source.driver.inference import Sample, absent_names, describe_table, no_row_in_sample
from ticdc_source.errors import warn
from ticdc_source.events import TableName
from ticdc_source.options.options import Options
from ticdc_source.options.table_filter import parse_table
from ticdc_source.options.topics import TopicPartition
from ticdc_source.pipeline.context import ColumnContext, ReadContext, ReadScope, lower_case
from ticdc_source.protocols import PROTOCOLS
from ticdc_source.schema.ddl import ddl_types_of_tables, table_ddl_types, with_table_ddl
from ticdc_source.schema.model import (
    DEFINITIONS,
    KEY,
    MYSQL_TYPE,
    PROTOCOL,
    TABLE,
    VERSIONS,
    WRITTEN,
    Column,
    TableSchema,
    TypeVersions,
    Written,
    definitions_of_json,
    merge_schemas,
)
from ticdc_source.schema.types import ColumnType, parse_type

__all__ = [
    "context_of_sample",
    "context_of_schema",
    "context_of_table",
    "lowest_partitions",
    "warn_of_absent_names",
    "warn_of_absent_tables",
    "warn_of_missing_ddl",
]


def context_of_schema(schema: pa.Schema, options: Options) -> ReadContext | None:
    """Return the context from the field metadata of an inferred schema; None for a schema that a user wrote."""
    fields = [
        (item.name.lower(), {name.decode(): value.decode() for name, value in item.metadata.items()})
        for item in _inferred_fields(schema, options)
    ]
    if not fields:
        return None
    _, first = fields[0]
    fails_on_unknown_columns = options.on_schema_drift == "fail" and options.columns is None
    return ReadContext(
        protocol=first[PROTOCOL],
        table=parse_table(first[TABLE]),
        columns={name: _column_of_metadata(name, metadata) for name, metadata in fields},
        expected=frozenset(name for name, _ in fields) if fails_on_unknown_columns else None,
        definitions=definitions_of_json(first.get(DEFINITIONS, "[]"), parse_table(first[TABLE])),
    )


def _column_of_metadata(name: str, metadata: Mapping[str, str]) -> ColumnContext:
    return ColumnContext(
        name=name,
        type=parse_type(metadata[MYSQL_TYPE]) if MYSQL_TYPE in metadata else None,
        versions=tuple((start, parse_type(text)) for start, text in json.loads(metadata.get(VERSIONS, "[]"))),
        written=Written[metadata[WRITTEN].upper()] if WRITTEN in metadata else Written.UNKNOWN,
        key=KEY in metadata,
    )


def _inferred_fields(schema: pa.Schema, options: Options) -> list[pa.Field]:
    fields = list(schema)
    if options.output_format == "envelope":
        images = [item for item in schema if item.name.lower() in ("before", "after")]
        fields = list({inner.name: inner for item in images for inner in item.type}.values())
    return [item for item in fields if item.metadata and TABLE.encode() in item.metadata]


def context_of_sample(sample: Sample) -> ReadContext:
    """Return the context of a sample for `outputFormat=event`: what the other outputs would know of each table.

    Raises:
        SchemaError: the messages of a table contradict the option `tableDDL`.
    """
    facts = sample.decoder.facts
    in_texts = {} if facts.types_in_ddl else ddl_types_of_tables(sample.ddl, whole=sample.whole)
    spellings: dict[TableName, list[TableName]] = {}
    for table in sorted({*sample.rows, *(event.table for event in sample.ddl if event.table.table), *in_texts}):
        if sample.tables.matches(table):
            spellings.setdefault(lower_case(table), []).append(table)
    tables: dict[TableName, Sequence[ColumnContext]] = {
        name: [ColumnContext(name=column, type=type_) for column, type_ in columns.items()]
        for name, columns in table_ddl_types(sample.table_ddl).items()
    }
    for name, spelled in spellings.items():
        schemas = [schema for table in spelled for schema in describe_table(sample, table, in_texts.get(name, {}))]
        merged = merge_schemas(schemas)
        if merged is not None:
            columns = with_table_ddl(merged, sample.table_ddl, required=False).columns
            tables[name] = [_column(column, as_shown=True) for column in columns]
        declared = facts.types_in_ddl(spelled[0], sample.ddl) if facts.types_in_ddl else in_texts.get(name, {})
        given = {column.name for column in tables.get(name) or tables.get(TableName("", name.table), ())}
        rest = [
            ColumnContext(name=column, type=_supported(versions[-1][1]), versions=_if_several(versions))
            for column, versions in declared.items()
            if column not in given
        ]
        tables[name] = [*tables.get(name, ()), *rest]
    return ReadContext(
        protocol=facts.name,
        tables={name: columns for name, columns in tables.items() if columns},
        definitions=sample.definitions,
    )


def _column(column: Column, *, as_shown: bool = False) -> ColumnContext:
    """Return the context of an inferred column.

    Args:
        column: the column.
        as_shown: whether a type that messages leave open counts where the sample shows it.
    """
    is_open = column.is_open and not (as_shown and _is_shown_binary(column))
    return ColumnContext(
        name=column.name.lower(),
        type=None if is_open else _supported(column.type),
        versions=_if_several(column.versions),
        written=column.written,
        key=column.key,
        binary=is_open and _is_shown_binary(column),
    )


def _is_shown_binary(column: Column) -> bool:
    """Return whether a sample shows that the strings of a column are binary; its messages do not say it."""
    return column.type is not None and column.type.family == "binary" and column.written is not Written.UNKNOWN


def _supported(type_: ColumnType | None) -> ColumnType | None:
    return type_ if type_ is not None and type_.is_supported else None


def _if_several(versions: TypeVersions) -> TypeVersions:
    return tuple(versions) if len(versions) > 1 else ()


def context_of_table(table: TableSchema, sample: Sample) -> ReadContext:
    """Return the context of an inferred table, for a read with a schema that a user wrote.

    Columns that the user's schema lacks were left out on purpose, so `expected` stays None.
    """
    columns = {column.name: column for column in map(_column, table.columns)}
    return ReadContext(
        protocol=sample.decoder.facts.name, table=table.table, columns=columns, definitions=sample.definitions
    )


def lowest_partitions(topic_partitions: Iterable[TopicPartition]) -> dict[str, int]:
    """Return the lowest partition of each topic."""
    lowest: dict[str, int] = {}
    for topic, partition in topic_partitions:
        lowest[topic] = min(partition, lowest.get(topic, partition))
    return lowest


def warn_of_absent_names(sample: Sample) -> None:
    """Warn about names of the option `tables` that the sample lacks, though it has rows of another one."""
    names = absent_names(sample)
    if sample.wanted and names.patterns:
        warn(no_row_in_sample(sample, names))


def warn_of_absent_tables(sample: Sample, options: Options) -> None:
    """Warn about tables of the options `tables` and `tableDDL` that no message is about, for `outputFormat=event`.

    A sample of several tables ends when it has enough rows of any, and a stream has more to come: only a sample of all
    records of a batch tells that one of these tables has no row.
    """
    if sample.others and not sample.wanted:
        warn(no_row_in_sample(sample, sample.tables))
    elif sample.whole and not options.is_stream:
        warn_of_absent_names(sample)
    occurring = {lower_case(table) for table in {*sample.rows, *(event.table for event in sample.ddl)}}
    names = {name.table for name in occurring}
    absent = [
        str(name) if name.database else name.table
        for name in table_ddl_types(sample.table_ddl)
        if (name.table not in names if not name.database else name not in occurring)
    ]
    if absent and occurring:
        listed = ", ".join(absent)
        warn(
            f"Option 'tableDDL' creates {listed}, and no message of the sample is about {listed}: it is of use "
            "only if rows of that table come later"
        )


def warn_of_missing_ddl(context: ReadContext, scope: ReadScope, options: Options) -> None:
    """Warn if the read outputs DDL events but not partition 0, which may be the only partition with DDL events."""
    if options.output_format != "event":
        return
    without = [topic for topic, of_topic in scope.ddl_copies.items() if 0 not in of_topic]
    if without:
        decoder = PROTOCOLS.get(context.protocol or "")
        alone = decoder is not None and decoder.facts.ddl_partition == 0
        what = "has its DDL in partition 0 only" if alone else "may have DDL in partition 0"
        protocol = context.protocol or "the topic"
        warn(f"Partition 0 of {', '.join(without)} is not read; {protocol} {what}")
