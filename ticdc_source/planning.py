"""From the read schema and the options to what a worker needs to read; and what the driver learned on the way."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from ticdc_source.assembly import Layout
from ticdc_source.errors import SchemaError
from ticdc_source.events import TableName
from ticdc_source.kernels import Settings
from ticdc_source.options import Options
from ticdc_source.protocols import decoder_of
from ticdc_source.protocols.plan import Plan
from ticdc_source.reading import Reading
from ticdc_source.schema import KEY, MYSQL_TYPE, PROTOCOL, TABLE, VERSIONS, ReadField, TableSchema
from ticdc_source.tables import TableFilter, parse_table
from ticdc_source.types import TYPES, parse_type

__all__ = ["Known", "known_of_schema", "known_of_table", "layout_of", "reading_of"]


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
    """

    protocol: str | None = None
    table: TableName | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    columns: frozenset[str] | None = None
    versions: Mapping[str, Sequence[tuple[int, str]]] = field(default_factory=dict)
    keys: frozenset[str] = frozenset()


def known_of_schema(schema: pa.Schema, options: Options) -> Known | None:
    """Return what an inferred schema carries in its fields' metadata; None for one that the user wrote."""
    fields = [item for item in schema if item.metadata and TABLE.encode() in item.metadata]
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
    layout = Layout.of(schema, options.metadata_column_prefix, options.column_name_of_corrupt_record, rescued)
    if rescued is not None and layout.rescued is None:
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
    plan = Plan(
        tuple(_read_field(item, known) for item in fields),
        Settings(options.time_zone, options.zero_date, options.invalid_utf8),
        options.operations,
        options.preimages,
        columns,
        layout.rescued,
        rescue,
    )
    return Reading(
        decoder_of(known.protocol or "", options),
        plan,
        layout,
        TableFilter(options.tables or ()),
        known.table,
        options.mode,
        options.max_rows_per_batch,
    )


def _read_field(item: pa.Field, known: Known) -> ReadField:
    name = item.name.lower()
    text = known.types.get(name)
    versions = tuple((start, parse_type(version)) for start, version in known.versions.get(name, ()))
    return ReadField(item.name, item.type, parse_type(text) if text else None, versions, name in known.keys)
