"""From the read schema and the options to what a worker needs to read; and what the driver learned on the way."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from ticdc_source.driver.inference import Sample, describe_table
from ticdc_source.errors import SchemaError
from ticdc_source.events import TableName
from ticdc_source.kernels import Settings
from ticdc_source.options.options import Options
from ticdc_source.options.ranges import CommitRange
from ticdc_source.options.tables import TableFilter, parse_table
from ticdc_source.pipeline.layout import Layout
from ticdc_source.pipeline.read import Reading
from ticdc_source.protocols import decoder_of
from ticdc_source.protocols.documents import document_images
from ticdc_source.protocols.plan import Plan
from ticdc_source.schema.model import KEY, MYSQL_TYPE, PROTOCOL, TABLE, VERSIONS, ReadField, TableSchema, merge_schemas
from ticdc_source.schema.types import TYPES, parse_type

__all__ = ["Known", "known_of_schema", "known_of_table", "known_of_tables", "layout_of", "reading_of"]


# A column's name, its MySQL type, and the types that DDL events gave it, where they changed: (commit_ts, type).
KnownColumn = tuple[str, str | None, Sequence[tuple[int, str]]]


@dataclass(frozen=True)
class Known:
    """What is known of the messages before they are read, by the driver; travels to the workers.

    Attributes:
        protocol: the wire format; None where there was no record to tell it.
        table: the one table of the read, None where there was no row to tell it.
        types: MySQL types by lower-case column name.
        versions: likewise the types that DDL events gave a column, where they changed: (commit_ts, type).
        columns: lower-case names of all columns that inference saw, None where columns the schema lacks are
            columns that the user left out.
        keys: lower-case names of the columns of the handle key, as far as the wire tells.
        tables: with `outputFormat=event`, what inference found of each table: name, type and versions of the columns
            of which it knows more than every message says.
        ddl_from: the lowest partition of each topic, whose copy of a broadcast DDL event is kept.
        commit_end: what `endingCommitTs=resolved` stands for.
        provisional: whether there was no row to tell anything: a stream asks again with its next micro-batch.
    """

    protocol: str | None = None
    table: TableName | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    columns: frozenset[str] | None = None
    versions: Mapping[str, Sequence[tuple[int, str]]] = field(default_factory=dict)
    keys: frozenset[str] = frozenset()
    tables: Mapping[TableName, Sequence[KnownColumn]] = field(default_factory=dict)
    ddl_from: Mapping[str, int] = field(default_factory=dict)
    commit_end: int | None = None
    provisional: bool = False


def known_of_schema(schema: pa.Schema, options: Options) -> Known | None:
    """Return what an inferred schema carries in its fields' metadata; None for one that the user wrote."""
    fields = _inferred_fields(schema, options)
    if not fields:
        return None
    first = fields[0].metadata
    drift = options.on_schema_drift == "fail" and options.columns is None
    return Known(
        first[PROTOCOL.encode()].decode(),
        parse_table(first[TABLE.encode()].decode()),
        {item.name.lower(): item.metadata[MYSQL_TYPE.encode()].decode() for item in fields
         if MYSQL_TYPE.encode() in item.metadata},
        frozenset(item.name.lower() for item in fields) if drift else None,
        {item.name.lower(): json.loads(item.metadata[VERSIONS.encode()]) for item in fields
         if VERSIONS.encode() in item.metadata},
        frozenset(item.name.lower() for item in fields if KEY.encode() in item.metadata),
    )  # fmt: skip


def _inferred_fields(schema: pa.Schema, options: Options) -> list[pa.Field]:
    fields = list(schema)
    if options.output_format == "envelope":
        images = [item for item in schema if item.name.lower() in ("before", "after")]
        fields = list({inner.name: inner for item in images for inner in item.type}.values())
    return [item for item in fields if item.metadata and TABLE.encode() in item.metadata]


def known_of_tables(sample: Sample) -> Known:
    """Return what a sample tells of every table beyond what each message says (all, if messages have no types)."""
    decoder = sample.decoder
    if not decoder.types_in_ddl:
        return Known(decoder.name)
    names = {*sample.rows, *(event.table for event in sample.ddl if event.table.table)}
    return Known(decoder.name, tables={table: _known_columns(sample, table) for table in sorted(names)})


def _known_columns(sample: Sample, table: TableName) -> list[KnownColumn]:
    merged = merge_schemas(describe_table(sample, table))
    columns = {} if merged is None else {column.name.lower(): column for column in merged.columns}
    versions = dict(sample.decoder.declared(table, sample.ddl))
    names = dict.fromkeys([*columns, *versions])
    out: list[KnownColumn] = []
    for name in names:
        declared = versions.get(name, ())
        type_ = columns[name].type if name in columns else declared[-1][1]
        text = str(type_) if type_ is not None and type_.name in TYPES else None
        out.append((name, text, [(start, str(version)) for start, version in declared]))
    return out


def known_of_table(table: TableSchema, protocol: str) -> Known:
    """Return what inference found, for a schema that the user wrote: columns it lacks were left out on purpose."""
    return Known(
        protocol,
        table.table,
        {
            column.name.lower(): str(column.type)
            for column in table.columns
            if column.type is not None and column.type.name in TYPES
        },
        None,
        {
            column.name.lower(): [(start, str(type_)) for start, type_ in column.versions]
            for column in table.columns
            if len(column.versions) > 1
        },
        frozenset(column.name.lower() for column in table.columns if column.key),
    )


def layout_of(schema: pa.Schema, options: Options) -> Layout:
    """Tell the fields of the read schema apart.

    Raises:
        SchemaError: a metadata column has another type than it must have, or the rescued column is not there.
    """
    rescued = options.rescued_data_column
    layout = Layout.of(schema, options)
    if rescued is not None and layout.rescued is None and layout.output != "event":  # which lacks no column
        msg = f"The schema has no column '{rescued}' for what is rescued (rescuedDataColumn): add {rescued} STRING"
        raise SchemaError(msg)
    return layout


def reading_of(schema: pa.Schema, options: Options, known: Known) -> Reading:
    """Put together what a worker needs to read.

    Raises:
        SchemaError: a metadata column has another type than it must have, or the rescued column is not there.
    """
    layout = layout_of(schema, options)
    fields, columns = layout.data_fields(), known.columns
    rescue = options.on_schema_drift == "rescue"
    if rescue and options.columns is None:  # also what a schema of the user's leaves out is data that it lacks
        columns = frozenset(item.name.lower() for item in fields)
    settings = Settings(options.time_zone, options.zero_date, options.invalid_utf8)
    plan = Plan(
        tuple(_read_field(item, known) for item in fields),
        settings=settings,
        operations=options.operations,
        preimages=options.preimages,
        known=columns,
        rescued=layout.rescued,
        rescue=rescue,
        build_ts="build_ts" in layout.metadata.values(),
    )

    def plan_of(table: TableName) -> Plan:
        columns = known.tables.get(table, ())
        fields = tuple(_typed_field(name, pa.string(), text, versions) for name, text, versions in columns)
        return Plan(
            fields,
            settings=settings,
            operations=options.operations,
            preimages=options.preimages,
            documents=document_images,
        )

    end = known.commit_end if options.ending_commit_ts == "resolved" else options.ending_commit_ts
    return Reading(
        decoder_of(known.protocol or "", options),
        plan,
        layout,
        TableFilter(options.tables or ()),
        known.table,
        options.mode,
        options.max_rows_per_batch,
        CommitRange(options.starting_commit_ts, end),
        options.on_destructive_ddl,
        plan_of=plan_of,
    )


def _read_field(item: pa.Field, known: Known) -> ReadField:
    name = item.name.lower()
    return _typed_field(
        item.name, item.type, known.types.get(name), known.versions.get(name, ()), key=name in known.keys
    )


def _typed_field(
    name: str, arrow: pa.DataType, text: str | None, versions: Sequence[tuple[int, str]], *, key: bool = False
) -> ReadField:
    parsed = tuple((start, parse_type(version)) for start, version in versions)
    return ReadField(name, arrow, parse_type(text) if text else None, parsed, key)
