"""The read schema: the columns that Spark gets, from the inferred table and the options."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa

from ticdc_source.errors import OptionError, SchemaError, UnsupportedTypeError, nearest, warn
from ticdc_source.options.hints import hint_of, parse_hint_type, parse_hints, spark_name, string_hint
from ticdc_source.options.options import Options
from ticdc_source.pipeline.metadata import CORRUPT_RECORD, FORMAT_COLUMNS, JSON_COLUMNS, RESCUED_DATA, metadata_fields
from ticdc_source.protocols.decoding import Decoder
from ticdc_source.schema.ddl import declared_tables, seen_type
from ticdc_source.schema.model import (
    DEFINITIONS,
    KEY,
    MYSQL_TYPE,
    PROTOCOL,
    TABLE,
    UNDECIDED,
    UNSTATED_PRECISION,
    VERSIONS,
    Column,
    Definitions,
    TableSchema,
    definitions_as_json,
    versions_as_json,
)
from ticdc_source.schema.table_name import TableName, quoted_name
from ticdc_source.schema.types import CONVERSIONS, TIMESTAMP, TYPES, VARIANT, category_of


class _Choice(NamedTuple):
    """The type of a column; if the messages do not determine it, why, and whether DDL could."""

    arrow: pa.DataType
    why: str = ""
    ddl_helps: bool = True


def read_schema(
    table: TableSchema,
    decoder: Decoder,
    options: Options,
    earlier: Mapping[str, str] = MappingProxyType({}),
    definitions: Definitions | None = None,
) -> pa.Schema:
    """Return the read schema of a table for `outputFormat=changelog` or `envelope`.

    Each table column has field metadata: the public keys of docs/reference/columns.md, and for the reader
    `ticdc.protocol` and `ticdc.versions`; the first one also `ticdc.definitions`. Spark passes it to the reader, so
    inference runs only once. `earlier` has the types that earlier messages showed (`column_types`), for undecided
    columns.

    Raises:
        OptionError: a hint or `columns` names an unknown column, or a table column has the name of a metadata column.
        SchemaError: a hint asks for a type that cannot hold the column's values without loss.
        UnsupportedTypeError: a column has an unsupported type.
    """
    hints = parse_hints(options.schema_hints or "")
    _refuse_unknown("schemaHints", hints, table)
    wanted = None if options.columns is None else [name.lower() for name in options.columns]
    _refuse_unknown("columns", wanted or (), table)
    columns = [column for column in table.columns if wanted is None or column.name.lower() in wanted]
    data: list[pa.Field] = []
    doubts: dict[str, _Choice] = {}
    for column in columns:
        asked = _asked_type(column, hints, earlier, options)
        choice = _choice(column, asked, table, options)
        if choice.why:
            doubts[column.name] = choice
        facts = {TABLE: quoted_name(*table.table), PROTOCOL: decoder.facts.name, **column.facts.as_metadata()}
        if column.type is not None and column.type.is_supported and not column.is_open:
            facts[MYSQL_TYPE] = str(column.type)
        if column.key:
            facts[KEY] = "true"
        is_users = bool(options.unspecified_decimal) or column.name.lower() in hints
        if asked is None and column.is_undecided:
            facts[UNDECIDED] = "true"
        elif column.has_unstated_precision and pa.types.is_decimal(choice.arrow) and not is_users:
            facts[UNSTATED_PRECISION] = "true"
        if len(column.versions) > 1:
            facts[VERSIONS] = versions_as_json(column.versions)
        if definitions and not data:
            facts[DEFINITIONS] = definitions_as_json(definitions, table.table)
        data.append(pa.field(column.name, choice.arrow, metadata=facts))
    if doubts:
        warn(_doubts_message(table, doubts, options))
    zoneless = [
        field.name
        for field, column in zip(data, columns, strict=True)
        if field.type == TIMESTAMP and (column.is_local or not decoder.facts.zoned_timestamps)
    ]
    warn_of_zone(table.table, zoneless, options)

    if options.output_format == "envelope":
        return format_schema(options, pa.struct(data))
    core, extra = metadata_fields(options)
    extra += _set_aside(options)
    _refuse_collisions([*core, *extra], data, options)
    return pa.schema([*core, *data, *extra])


def _set_aside(options: Options) -> Iterator[pa.Field]:
    """Yield the columns for bad records and rescued values."""
    if options.mode == "PERMISSIVE":
        yield pa.field(options.column_name_of_corrupt_record, CORRUPT_RECORD)
    if options.rescued_data_column is not None:
        yield pa.field(options.rescued_data_column, RESCUED_DATA)


def column_types(schema: pa.Schema) -> dict[str, str]:
    """Return the decided Spark types of a read schema's table columns, by lower-case name."""
    return {
        field.name.lower(): spark_name(field.type)
        for field in schema
        if field.metadata
        and TABLE.encode() in field.metadata
        and UNDECIDED.encode() not in field.metadata
        and field.type != VARIANT  # never undecided, and hints cannot name it
    }


def format_schema(options: Options, row: pa.DataType | None = None) -> pa.Schema:
    """Return the read schema for `outputFormat=envelope` or `event`.

    `row` is the struct of the table's columns, for envelope only.

    Raises:
        OptionError: two columns have one name.
    """
    prefix = options.metadata_column_prefix
    format_columns = [column for column in FORMAT_COLUMNS[options.output_format] if prefix or not column.repeats]
    names = [(prefix if column.prefixed else "") + column.name for column in format_columns]
    as_variant = JSON_COLUMNS if options.variant_json and options.output_format == "event" else frozenset()
    fields = [
        pa.field(name, VARIANT if column.name in as_variant else column.arrow or row)
        for name, column in zip(names, format_columns, strict=True)
    ]
    _, extra = metadata_fields(options)
    own = {prefix + column.name for column in format_columns if column.prefixed}
    fields += [field for field in extra if field.name not in own]
    fields += _set_aside(options)
    twice = _first_repeated(fields)
    if twice is not None:
        raise OptionError(
            f"outputFormat={options.output_format} has two columns {twice.name}: choose another "
            "'metadataColumnPrefix', 'columnNameOfCorruptRecord' or 'rescuedDataColumn'"
        )
    return pa.schema(fields)


def _first_repeated(fields: Iterable[pa.Field]) -> pa.Field | None:
    """Return the first field with the name of an earlier one, ignoring case."""
    names: set[str] = set()
    for field in fields:
        if field.name.lower() in names:
            return field
        names.add(field.name.lower())
    return None


def check_types(options: Options) -> None:
    """Check the types in options, even if the user's schema makes them unnecessary.

    Raises:
        OptionError: `schemaHints` or `unspecifiedDecimal` is not in Spark's DDL, or `tableDDL` not in MySQL's.
    """
    if options.table_ddl:
        declared_tables(options.table_ddl)
    parse_hints(options.schema_hints or "")
    if options.unspecified_decimal:
        parse_hint_type(options.unspecified_decimal, "unspecifiedDecimal")


def _asked_type(
    column: Column, hints: Mapping[str, pa.DataType], earlier: Mapping[str, str], options: Options
) -> pa.DataType | None:
    """Return a column's type from an option or an earlier message; None to leave it to the messages."""
    name = column.name.lower()
    if name in hints:
        return hints[name]
    if column.type is not None and column.type.is_unspecified and options.unspecified_decimal:
        return parse_hint_type(options.unspecified_decimal, "unspecifiedDecimal")
    if column.is_undecided and name in earlier:
        arrow = parse_hint_type(earlier[name], "schemaHints")
        return arrow if column.is_readable_as(arrow) else None
    return None


def _choice(column: Column, hint: pa.DataType | None, table: TableSchema, options: Options) -> _Choice:
    where = f"Column {column.name} of {table.table}"
    if column.type is None:
        if hint is not None:
            return _Choice(hint)
        if column.json_type is None:
            return _Choice(pa.string(), "no type, only NULLs in the sample")
        return _Choice(column.json_type, "no type, only JSON values")
    if not column.type.is_supported:
        if hint == pa.string():
            return _Choice(hint)
        raise UnsupportedTypeError(f"{where}: type {column.type} is not supported; {string_hint(column.name)}")
    natural = column.type.arrow
    if hint is not None:
        if not column.is_readable_as(hint):
            categories = sorted({"string"}.union(*(CONVERSIONS.get(category_of(each), ()) for each in column.readings)))
            allowed = ", ".join(_CATEGORY_NAMES.get(category, category) for category in categories)
            raise SchemaError(
                f"{where}: {seen_type(column)} cannot be read as {spark_name(hint)} without loss; it can be read as "
                f"{spark_name(natural)}, or as {allowed}: cast it afterwards"
            )
        return _Choice(hint)
    if column.conflict:
        why = "its versions have types of different kinds, which only MySQL's text can hold"
        return _Choice(pa.string(), why, ddl_helps=False)
    if column.type.name == "json" and options.variant_json:
        return _Choice(VARIANT)
    if _has_several_spark_types(column):
        return _Choice(natural, seen_type(column))
    if column.type.is_unspecified and column.type.scale is None:
        return _Choice(natural, "DECIMAL without precision, only NULLs in the sample")
    if column.type.is_unspecified and pa.types.is_string(natural):
        return _Choice(natural, "DECIMAL of more than 38 digits, which Spark does not have", ddl_helps=False)
    return _Choice(natural)


# Categories whose names are not those of Spark's types.
_CATEGORY_NAMES = {"integer": "tinyint to bigint", "interval": "interval day to second", "array": "array<float>"}


def _doubts_message(table: TableSchema, doubts: Mapping[str, _Choice], options: Options) -> str:
    """Return the warning about uncertain column types, with the options that silence it."""
    lines = [f"The messages of {table.table} do not fully say the types of its columns:"]
    lines += [f"  {name} is read as {spark_name(doubt.arrow)} ({doubt.why})" for name, doubt in doubts.items()]
    if any(doubt.ddl_helps for doubt in doubts.values()):
        name = quoted_name(*filter(None, table.table))
        lines.append(f"To set the types, paste what SHOW CREATE TABLE {name} prints:")
        lines.append(f'  .option("tableDDL", """CREATE TABLE {name} (…)""")')
    hints = [hint_of(name, doubt.arrow) for name, doubt in doubts.items()]
    given = [options.schema_hints] if options.schema_hints else []
    lines.append("To keep these types, or to choose others:")
    hint = json.dumps(", ".join([*given, *hints]), ensure_ascii=False)  # a literal of Python
    lines.append(f'  .option("schemaHints", {hint})')
    return "\n".join(lines)


def warn_of_zone(table: TableName, columns: Sequence[str], options: Options) -> None:
    """Warn about TIMESTAMP columns whose messages do not name the time zone, unless `timeZone` is set."""
    if columns and not options.is_given("timeZone"):
        warn(
            f"TIMESTAMP columns of {table} ({', '.join(columns)}) come in the time zone of the TiCDC server, which "
            f"the messages do not name; they are read as {options.time_zone}. Set 'timeZone' to the server's --tz, "
            f'even if it is the same:\n  .option("timeZone", "{options.time_zone}")'
        )


def _has_several_spark_types(column: Column) -> bool:
    """Whether a column may have MySQL types with different Spark types."""
    rows = [TYPES[name] for name in column.behind] if column.is_open else []
    return len({arrow for row in rows for arrow in (row.arrow, row.unsigned) if arrow is not None}) > 1


def _refuse_unknown(option: str, names: Iterable[str] | Mapping[str, object], table: TableSchema) -> None:
    columns = {column.name.lower(): column.name for column in table.columns}
    for name in names:
        if name not in columns:
            near = nearest(name, columns)
            hint = f"; did you mean '{columns[near[0]]}'?" if near else "."
            raise OptionError(
                f"Option '{option}': {table.table} has no column '{name}'{hint} It has: {', '.join(columns.values())}"
            )


def _refuse_collisions(metadata: list[pa.Field], data: list[pa.Field], options: Options) -> None:
    taken = {field.name.lower(): field.name for field in metadata}
    own = {
        name.lower(): (option, example)
        for option, name, example in (
            ("columnNameOfCorruptRecord", options.column_name_of_corrupt_record, "_bad_record"),
            ("rescuedDataColumn", options.rescued_data_column, "_drift"),
        )
        if name is not None
    }
    twice = _first_repeated(metadata)
    if twice is not None:
        raise OptionError(
            f"Option '{own[twice.name.lower()][0]}': {twice.name} is a metadata column: choose another name"
        )
    for field in data:
        if field.name.lower() in taken:
            option, example = own.get(field.name.lower(), ("metadataColumnPrefix", "_ticdc_"))
            raise OptionError(
                f"The table has a column '{field.name}', but '{taken[field.name.lower()]}' is a metadata column: "
                f"rename the metadata column with the option '{option}', e.g. .option('{option}', '{example}')"
            )
