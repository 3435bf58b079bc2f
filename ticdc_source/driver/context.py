"""The read context: what the driver learns about the messages and sends to the workers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from ticdc_source.driver.inference import Sample, describe_table, only_others
from ticdc_source.events import TableName
from ticdc_source.options.options import Options
from ticdc_source.options.tables import parse_table
from ticdc_source.options.topics import TopicPartition
from ticdc_source.protocols import PROTOCOLS
from ticdc_source.reports import warn
from ticdc_source.schema.ddl import ddl_types_of_tables, table_ddl_types, with_table_ddl
from ticdc_source.schema.model import (
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
    merge_schemas,
)
from ticdc_source.schema.types import TYPES, ColumnType

__all__ = [
    "ReadContext",
    "context_of_sample",
    "context_of_schema",
    "context_of_table",
    "lowest_partitions",
    "warn_of_absent_tables",
    "warn_of_missing_ddl",
]

# The types that DDL events declared for a column over time, as text: (commit_ts of the DDL, MySQL type), oldest first.
TypeTexts = Sequence[tuple[int, str]]
# A column's name, its MySQL type (None if unknown), its declared types over time, and how its strings are written.
ColumnContext = tuple[str, str | None, TypeTexts, Written]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadContext:
    """What the driver knows about the messages of a read. It is pickled and sent to the workers.

    Attributes:
        protocol: the protocol; None if there was no record to detect it from.
        table: the one table of the read; None if there was no row event to infer it from.
        types: MySQL types by lower-case column name.
        versions: the declared types over time, by lower-case column name.
        written: how strings are written, by lower-case column name, if messages do not tell.
        binary: lower-case names of the columns whose strings are binary, as a sample shows, if messages do not tell.
        columns: lower-case names of all columns that inference saw; None if unknown columns are not an error.
        keys: lower-case names of the handle key's columns; incomplete if the protocol does not carry them all.
        tables: with `outputFormat=event`, the columns of tables that are known beside single messages, by the table's
            name in lower case; `columns_of` looks them up.
        ddl_partitions: for each topic, the lowest partition that is read. Of a DDL event in all partitions, only its
            copy is kept.
        partitions: how many topic partitions are read; None if that is not known.
        commit_end: the commit-ts to which `endingCommitTs=resolved` was resolved.
        provisional: whether inference had no row yet; a stream then tries again with its next micro-batch.
    """

    protocol: str | None = None
    table: TableName | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, TypeTexts] = field(default_factory=dict)
    written: Mapping[str, Written] = field(default_factory=dict)
    binary: frozenset[str] = frozenset()
    columns: frozenset[str] | None = None
    keys: frozenset[str] = frozenset()
    tables: Mapping[TableName, Sequence[ColumnContext]] = field(default_factory=dict)
    ddl_partitions: Mapping[str, int] = field(default_factory=dict)
    partitions: int | None = None
    commit_end: int | None = None
    provisional: bool = False

    def columns_of(self, table: TableName) -> Sequence[ColumnContext]:
        """Return what is known of a table's columns with `outputFormat=event`; nothing if only messages tell."""
        name = lower_case(table)
        columns = self.tables.get(name)
        return self.tables.get(TableName("", name.table), ()) if columns is None else columns


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
        types={name: metadata[MYSQL_TYPE] for name, metadata in fields if MYSQL_TYPE in metadata},
        versions={name: json.loads(metadata[VERSIONS]) for name, metadata in fields if VERSIONS in metadata},
        written={name: Written[metadata[WRITTEN].upper()] for name, metadata in fields if WRITTEN in metadata},
        columns=frozenset(name for name, _ in fields) if fails_on_unknown_columns else None,
        keys=frozenset(name for name, metadata in fields if KEY in metadata),
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
    decoder = sample.decoder
    in_texts = {} if decoder.types_in_ddl else ddl_types_of_tables(sample.ddl, whole=sample.whole)
    spellings: dict[TableName, list[TableName]] = {}
    for table in sorted({*sample.rows, *(event.table for event in sample.ddl if event.table.table), *in_texts}):
        if sample.tables.matches(table):
            spellings.setdefault(lower_case(table), []).append(table)
    tables: dict[TableName, Sequence[ColumnContext]] = {
        name: [(column, str(type_), (), Written.UNKNOWN) for column, type_ in columns.items()]
        for name, columns in table_ddl_types(sample.table_ddl).items()
    }
    for name, spelled in spellings.items():
        schemas = [schema for table in spelled for schema in describe_table(sample, table, in_texts.get(name, {}))]
        merged = merge_schemas(schemas)
        if merged is not None:
            tables[name] = _columns(with_table_ddl(merged, sample.table_ddl, required=False))
        declared = decoder.declared(spelled[0], sample.ddl) if decoder.types_in_ddl else in_texts.get(name, {})
        given = {column for column, *_ in tables.get(name) or tables.get(TableName("", name.table), ())}
        rest = [_column(column, versions[-1][1], versions) for column, versions in declared.items()]
        tables[name] = [*tables.get(name, ()), *(column for column in rest if column[0] not in given)]
    return ReadContext(protocol=decoder.name, tables={name: columns for name, columns in tables.items() if columns})


def _columns(table: TableSchema) -> list[ColumnContext]:
    return [
        _column(
            column.name.lower(),
            None if column.is_open and not _is_shown_binary(column) else column.type,
            column.versions,
            column.written,
        )
        for column in table.columns
    ]


def _is_shown_binary(column: Column) -> bool:
    """Return whether a sample shows that the strings of a column are binary; its messages do not say it."""
    return column.type is not None and column.type.family == "binary" and column.written is not Written.UNKNOWN


def _column(
    name: str, type_: ColumnType | None, versions: TypeVersions, written: Written = Written.UNKNOWN
) -> ColumnContext:
    text = str(type_) if type_ is not None and type_.name in TYPES else None
    return name, text, [(start, str(version)) for start, version in versions] if len(versions) > 1 else (), written


def lower_case(table: TableName) -> TableName:
    """Return the name of a table in lower case: TiDB compares names without case."""
    return TableName(table.database.lower(), table.table.lower())


def context_of_table(table: TableSchema, protocol: str) -> ReadContext:
    """Return the context of an inferred table, for a read with a schema that a user wrote.

    Columns that the user's schema lacks were left out on purpose, so `columns` stays None.
    """
    columns = {column.name.lower(): column for column in table.columns}
    return ReadContext(
        protocol=protocol,
        table=table.table,
        types={
            name: str(column.type)
            for name, column in columns.items()
            if column.type is not None and column.type.name in TYPES and not column.is_open
        },
        written={name: column.written for name, column in columns.items() if column.written},
        binary=frozenset(name for name, column in columns.items() if column.is_open and _is_shown_binary(column)),
        versions={
            name: [(start, str(type_)) for start, type_ in column.versions]
            for name, column in columns.items()
            if len(column.versions) > 1
        },
        keys=frozenset(name for name, column in columns.items() if column.key),
    )


def lowest_partitions(topic_partitions: Iterable[TopicPartition]) -> dict[str, int]:
    """Return the lowest partition of each topic."""
    lowest: dict[str, int] = {}
    for topic, partition in topic_partitions:
        lowest[topic] = min(partition, lowest.get(topic, partition))
    return lowest


def warn_of_absent_tables(sample: Sample) -> None:
    """Warn about tables of the options `tables` and `tableDDL` that no message is about, for `outputFormat=event`."""
    if sample.others and not sample.rows:
        warn(only_others(sample))
    found = {lower_case(table) for table in {*sample.rows, *(event.table for event in sample.ddl)}}
    names = {name.table for name in found}
    absent = [
        str(name) if name.database else name.table
        for name in table_ddl_types(sample.table_ddl)
        if (name.table not in names if not name.database else name not in found)
    ]
    if absent and found:
        listed = ", ".join(absent)
        warn(
            f"Option 'tableDDL' creates {listed}, and no message of the sample is about {listed}: it is of use "
            "only if rows of that table come later"
        )


def warn_of_missing_ddl(context: ReadContext, options: Options) -> None:
    """Warn if the read outputs DDL events but not partition 0, which may be the only partition with DDL events."""
    if options.output_format != "event":
        return
    without = [topic for topic, partition in context.ddl_partitions.items() if partition != 0]
    if without:
        decoder = PROTOCOLS.get(context.protocol or "")
        alone = decoder is not None and decoder.ddl_partition == 0
        what = "has its DDL in partition 0 only" if alone else "may have DDL in partition 0"
        protocol = context.protocol or "the topic"
        warn(f"Partition 0 of {', '.join(without)} is not read; {protocol} {what}")
