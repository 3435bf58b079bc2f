"""The columns of the read schema: the table of metadata columns, and the role of each field of a schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa

from ticdc_source.errors import SchemaError
from ticdc_source.options.hints import spark_name
from ticdc_source.options.options import Options
from ticdc_source.schema.change_order import SEQUENCE
from ticdc_source.schema.model import TABLE
from ticdc_source.schema.types import TIMESTAMP, VARIANT

# First the members that jobs for other change feeds expect, then those that locate an event of TiCDC.
SOURCE = pa.struct(
    [
        pa.field("version", pa.string()),
        pa.field("connector", pa.string()),
        pa.field("name", pa.string()),
        pa.field("ts_ms", pa.int64()),
        pa.field("snapshot", pa.string()),
        pa.field("db", pa.string()),
        pa.field("table", pa.string()),
        pa.field("commit_ts", pa.int64()),
        pa.field("commit_timestamp", TIMESTAMP),
        pa.field("start_ts", pa.int64()),
        pa.field("cluster_id", pa.string()),
        pa.field("protocol", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("index", pa.int32()),
        pa.field("database", pa.string()),
    ]
)
NAMES = pa.list_(pa.field("element", pa.string()))
HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))


class MetadataColumn(NamedTuple):
    """A metadata column: its name without the prefix.

    `level` is the value of `includeMetadata` that adds it, or another option that does.
    """

    name: str
    arrow: pa.DataType
    level: str


# docs/reference/columns.md says what they mean.
METADATA: tuple[MetadataColumn, ...] = (
    MetadataColumn("change_type", pa.string(), "core"),
    MetadataColumn("commit_version", pa.int64(), "core"),
    MetadataColumn("commit_timestamp", TIMESTAMP, "core"),
    MetadataColumn("sequence", SEQUENCE, "core"),
    MetadataColumn("topic", pa.string(), "kafka"),
    MetadataColumn("partition", pa.int32(), "kafka"),
    MetadataColumn("offset", pa.int64(), "kafka"),
    MetadataColumn("timestamp", TIMESTAMP, "kafka"),
    MetadataColumn("key", pa.binary(), "kafka"),
    MetadataColumn("database", pa.string(), "all"),
    MetadataColumn("table", pa.string(), "all"),
    MetadataColumn("protocol", pa.string(), "all"),
    MetadataColumn("start_ts", pa.int64(), "all"),
    MetadataColumn("build_ts", pa.int64(), "all"),
    MetadataColumn("cluster_id", pa.string(), "all"),
    MetadataColumn("value", pa.binary(), "all"),
    MetadataColumn("headers", HEADERS, "includeHeaders"),
)


@dataclass(frozen=True, slots=True)
class FormatColumn:
    """A column that an `outputFormat` other than changelog has for every table.

    Attributes:
        arrow: None for a struct of the table's columns.
        fill: its name in `assemble._FILL` if assembly fills it from the facts of rows; "" if the rows bring it.
        prefixed: whether `metadataColumnPrefix` precedes the name.
        repeats: whether it repeats another column; without a prefix both have the same name.
    """

    name: str
    arrow: pa.DataType | None
    fill: str = ""
    _: KW_ONLY
    prefixed: bool = False
    repeats: bool = False


def _common(*names: str) -> tuple[FormatColumn, ...]:
    types = {column.name: column.arrow for column in METADATA}
    return tuple(FormatColumn(name, types[name], name, prefixed=True) for name in names)


# The columns of each `outputFormat`, in order; those of changelog are METADATA and the table's own.
FORMAT_COLUMNS: dict[str, tuple[FormatColumn, ...]] = {
    "changelog": (),
    "envelope": (
        FormatColumn("before", None),
        FormatColumn("after", None),
        FormatColumn("source", SOURCE, "source"),
        FormatColumn("op", pa.string(), "op"),
        FormatColumn("ts_ms", pa.int64(), "build_ts"),
        *_common("sequence"),
        FormatColumn("op", pa.string(), "op", prefixed=True, repeats=True),
    ),
    "event": (
        FormatColumn("event_type", pa.string(), "event_type", prefixed=True),
        FormatColumn("op", pa.string(), "event_op", prefixed=True),
        FormatColumn("database", pa.string(), prefixed=True),
        FormatColumn("table", pa.string(), prefixed=True),
        *_common("commit_version", "commit_timestamp", "start_ts", "sequence"),
        FormatColumn("key", pa.string()),
        FormatColumn("before", pa.string()),
        FormatColumn("after", pa.string()),
        FormatColumn("ddl_kind", pa.string()),
        FormatColumn("ddl_type", pa.string()),
        FormatColumn("ddl_type_code", pa.int32()),
        FormatColumn("ddl_query", pa.string()),
        FormatColumn("table_changes", pa.string()),
        FormatColumn("watermark_ts", pa.int64()),
    ),
    "record": (
        *_common("topic", "partition", "offset", "timestamp", "key", "value", "headers"),
        FormatColumn("tables", NAMES, prefixed=True),
        FormatColumn("event_types", NAMES, prefixed=True),
        *_common("commit_version"),
        FormatColumn("watermark_ts", pa.int64(), prefixed=True),
        FormatColumn("partitions", pa.int32(), prefixed=True),
    ),
}

# Columns of `outputFormat=event` that hold JSON text, or with `variantJson` VARIANT.
JSON_COLUMNS = frozenset({"key", "before", "after", "table_changes"})

# Not among METADATA: they have names of their own (columnNameOfCorruptRecord, rescuedDataColumn).
CORRUPT_RECORD = pa.string()
RESCUED_DATA = pa.string()

_LEVELS = {"core": (), "kafka": ("kafka",), "all": ("kafka", "all")}


def metadata_fields(options: Options) -> tuple[list[pa.Field], list[pa.Field]]:
    """Return the metadata columns of every changelog, and those that options add."""

    def of(*levels: str) -> list[pa.Field]:
        named = ((options.metadata_column_prefix + each.name, each) for each in METADATA if each.level in levels)
        return [pa.field(name, each.arrow) for name, each in named]

    return of("core"), of(*_LEVELS[options.include_metadata], *["includeHeaders"] * options.include_headers)


_WHOLE_PARTS = frozenset({"key", "value", "headers"})  # of a record, by their names in `assemble._FILL`


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The role of each field of the read schema.

    Attributes:
        metadata: the metadata columns: name in the schema → name in `assemble._FILL`.
        corrupt: the name of the corrupt-record column, None if the schema has none.
        rescued: the name of the rescued column, None if the schema has none.
        own: the columns that rows bring, unless the output is changelog: name → name in the schema.
    """

    schema: pa.Schema
    metadata: Mapping[str, str]
    corrupt: str | None
    rescued: str | None
    output: str
    own: Mapping[str, str]

    @cached_property
    def fields(self) -> tuple[tuple[str, str | None], ...]:
        """The name of each field, and its name in `assemble._FILL` or None."""
        fills = dict(self.metadata) if self.corrupt is None else {self.corrupt: "corrupt", **self.metadata}
        return tuple((name, fills.get(name)) for name in self.schema.names)

    @cached_property
    def required(self) -> tuple[tuple[int, pa.Field], ...]:
        """The index and field of NOT NULL fields, and of structs with such members."""
        return tuple((index, field) for index, field in enumerate(self.schema) if _is_required(field))

    @cached_property
    def repeated(self) -> frozenset[str]:
        """The parts of a record (`key`, `value`, `headers`) that each of its rows repeats."""
        return _WHOLE_PARTS & set(self.metadata.values())

    @cached_property
    def source(self) -> int | None:
        """The index of `source` in `outputFormat=envelope`; None if the schema has none."""
        return next((index for index, (_, fill) in enumerate(self.fields) if fill == "source"), None)

    @classmethod
    def of(cls, schema: pa.Schema, options: Options) -> Layout:
        """Find the role of each field by its name, ignoring case.

        Raises:
            SchemaError: a metadata column has a wrong type, `outputFormat` has no such column, or the rescued column is
                missing.
        """
        output, prefix = options.output_format, options.metadata_column_prefix
        corrupt, rescued = options.column_name_of_corrupt_record, options.rescued_data_column
        is_changelog = not FORMAT_COLUMNS[output]
        extra = {
            (prefix + column.name).lower(): column for column in METADATA if is_changelog or column.level != "core"
        }
        format_columns = {
            ((prefix if column.prefixed else "") + column.name).lower(): column
            for column in reversed(FORMAT_COLUMNS[output])  # without a prefix, the column itself, not its repetition
        }
        metadata, own, corrupt_name, rescued_name = {}, {}, None, None
        for field in schema:
            name = field.name.lower()
            if is_changelog and field.metadata and TABLE.encode() in field.metadata:
                continue  # inference found this column in the table, so it is not a metadata column
            if name in format_columns:
                column = format_columns[name]
                _require_format(field, column, may_be_variant=output == "event" and name in JSON_COLUMNS)
                if column.fill:
                    metadata[field.name] = column.fill
                else:
                    own[column.name] = field.name
            elif name == corrupt.lower():
                corrupt_name = field.name
                _require_type(field, CORRUPT_RECORD)
            elif rescued is not None and name == rescued.lower():
                rescued_name = field.name
                _require_type(field, RESCUED_DATA)
            elif name in extra:
                metadata[field.name] = extra[name].name
                _require_type(field, extra[name].arrow)
            elif not is_changelog:
                raise SchemaError(
                    f"Column {field.name}: outputFormat={output} has no such column; it has "
                    f"{', '.join(reversed(format_columns))}"
                )
        if rescued is not None and rescued_name is None:
            raise SchemaError(f"The schema lacks the column '{rescued}' of rescuedDataColumn: add {rescued} STRING")
        return cls(schema=schema, metadata=metadata, corrupt=corrupt_name, rescued=rescued_name, output=output, own=own)

    def data_fields(self) -> list[pa.Field]:
        """Return the fields that are table columns.

        Raises:
            SchemaError: `before` and `after` give one column different types.
        """
        if self.output == "changelog":
            others = {*self.metadata, self.corrupt, self.rescued}
            return [field for field in self.schema if field.name not in others]
        fields: dict[str, pa.Field] = {}
        for image in ("before", "after") if self.output == "envelope" else ():
            for field in self.schema.field(self.own[image]).type if image in self.own else ():
                if fields.setdefault(field.name.lower(), field).type != field.type:
                    raise SchemaError(f"Column {field.name} has different types in 'before' and 'after'")
        return list(fields.values())


def _require_type(field: pa.Field, expected: pa.DataType | None) -> None:
    if expected is not None and field.type != expected:
        raise SchemaError(
            f"Column {field.name} has the type {spark_name(field.type)}; as a metadata column it must be "
            f"{spark_name(expected)}"
        )


def _require_format(field: pa.Field, column: FormatColumn, *, may_be_variant: bool) -> None:
    if column.fill == "source":
        _require_members(field)
    elif not (may_be_variant and field.type == VARIANT):
        _require_type(field, column.arrow)
    if column.arrow is None and not pa.types.is_struct(field.type):
        raise SchemaError(
            f"Column {field.name} has the type {spark_name(field.type)}; it must be a struct of the table's columns"
        )


def _require_members(source: pa.Field) -> None:
    """Check the members of `source` in a user's schema: any of the known ones, in any order."""
    if not pa.types.is_struct(source.type) or not source.type.num_fields:
        _require_type(source, SOURCE)
    member_types = {member.name: member.type for member in SOURCE}
    for member in source.type:
        arrow = member_types.get(member.name.lower())
        if arrow is None:
            listed = ", ".join(field.name for field in SOURCE)
            raise SchemaError(f"Column {source.name}.{member.name}: source has no such member; it has {listed}")
        if member.type != arrow:
            has = f"Column {source.name}.{member.name} has the type {spark_name(member.type)}"
            raise SchemaError(f"{has}; it must be {spark_name(arrow)}")


def _is_required(field: pa.Field) -> bool:
    if pa.types.is_struct(field.type) and not all(child.nullable for child in field.type):
        return True
    return not field.nullable
