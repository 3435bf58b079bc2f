"""The columns of the read schema: the metadata columns, one row each, and which field of a schema is what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa

from ticdc_source.errors import SchemaError
from ticdc_source.options.hints import spark_name
from ticdc_source.options.options import Options
from ticdc_source.schema.change_order import SEQUENCE
from ticdc_source.schema.ddl_kinds import KINDS
from ticdc_source.schema.model import TABLE
from ticdc_source.schema.types import TIMESTAMP, VARIANT

# First the members for which jobs of other change feeds look, then what locates an event of TiCDC.
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
    """A metadata column: its name without the prefix, and one line for the documentation.

    `level` is the value of `includeMetadata` that adds it, or another option that does.
    """

    name: str
    arrow: pa.DataType
    level: str
    meaning: str


METADATA: tuple[MetadataColumn, ...] = (
    MetadataColumn("change_type", pa.string(), "core", "`insert`, `update_preimage`, `update_postimage` or `delete`"),
    MetadataColumn("commit_version", pa.int64(), "core",
                   "TiDB's commit-ts (TSO); if the message has none, a lower bound: the event's time in milliseconds, "
                   "`<< 18`"),
    MetadataColumn("commit_timestamp", TIMESTAMP, "core", "the time in `_commit_version`: `_commit_version >> 18` is "
                   "in milliseconds since the epoch, UTC"),
    MetadataColumn("sequence", SEQUENCE, "core",
                   "sortable, and unique within a topic; `rank` is 0 for `delete` and `update_preimage`, and 1 "
                   "otherwise; if the message has no commit-ts, `rank` is 1, and the place in the topic decides"),
    MetadataColumn("topic", pa.string(), "kafka", "Kafka topic"),
    MetadataColumn("partition", pa.int32(), "kafka", "Kafka partition"),
    MetadataColumn("offset", pa.int64(), "kafka", "Kafka offset"),
    MetadataColumn("timestamp", TIMESTAMP, "kafka", "Kafka timestamp"),
    MetadataColumn("key", pa.binary(), "kafka", "Kafka key"),
    MetadataColumn("database", pa.string(), "all", "database of the table"),
    MetadataColumn("table", pa.string(), "all", "name of the table"),
    MetadataColumn("protocol", pa.string(), "all", "protocol of the message"),
    MetadataColumn("start_ts", pa.int64(), "all", "start-ts (TSO) of the row's transaction, which the rows of no other "
                   "transaction have; NULL if the message does not carry it"),
    MetadataColumn("build_ts", pa.int64(), "all", "when TiCDC wrote the message, in milliseconds since the epoch"),
    MetadataColumn("cluster_id", pa.string(), "all", "TiCDC's cluster id; NULL if the protocol does not carry it"),
    MetadataColumn("value", pa.binary(), "all", "Kafka value"),
    MetadataColumn("headers", HEADERS, "includeHeaders", "Kafka headers"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatColumn:
    """A column that an `outputFormat` other than changelog has for every table.

    Attributes:
        arrow: its Arrow type; None for a struct of the table's columns.
        prefixed: whether `metadataColumnPrefix` precedes the name.
        fill: its name in `assemble._FILL`, if the assembly fills it from the facts of a row; "" if the rows bring it.
        meaning: one line for the documentation.
        repeats: whether it repeats another column under a second name. Without a prefix both have the same name.
    """

    name: str
    arrow: pa.DataType | None
    prefixed: bool
    fill: str
    meaning: str
    repeats: bool = False


_COMMON = {column.name: column for column in METADATA}


def _common(name: str, meaning: str = "") -> FormatColumn:
    column = _COMMON[name]
    return FormatColumn(name=name, arrow=column.arrow, prefixed=True, fill=name, meaning=meaning or column.meaning)


def _own(name: str, arrow: pa.DataType | None, meaning: str, *, fill: str = "", prefixed: bool = False) -> FormatColumn:
    return FormatColumn(name=name, arrow=arrow, prefixed=prefixed, fill=fill, meaning=meaning)


# The columns of each `outputFormat`, in order; those of changelog are METADATA and the table's own.
FORMAT_COLUMNS: dict[str, tuple[FormatColumn, ...]] = {
    "changelog": (),
    "envelope": (
        _own("before", None, "row before the change; NULL in an insert, and if the message lacks it"),
        _own("after", None, "row after the change; NULL in a delete"),
        _own("source", SOURCE, "where the event comes from", fill="source"),
        _own("op", pa.string(), "`c` insert, `u` update, `d` delete; `r` a row of a snapshot", fill="op"),
        _own("ts_ms", pa.int64(),
             "when the message was written, in milliseconds since the epoch; NULL if it does not "
             "say", fill="build_ts"),
        _common("sequence",
                "sortable, and unique within a topic; `rank` is 0 for a delete that has a commit-ts, and 1 "
                "otherwise"),
        FormatColumn(name="op", arrow=pa.string(), prefixed=True, fill="op", meaning="the same as `op`", repeats=True),
    ),
    "event": (
        _own("event_type", pa.string(),
             "`row`, `ddl`, `watermark`, or `bootstrap`, which defines a table "
             "and changes nothing", fill="event_type", prefixed=True),
        _own("op", pa.string(),
             "operation of a row event: `insert`, `update` or `delete`", fill="event_op", prefixed=True),
        _own("database", pa.string(), "database of the row or DDL", prefixed=True),
        _own("table", pa.string(), "table of the row or DDL; NULL for DDL on a database", prefixed=True),
        _common("commit_version", "commit-ts of a row or DDL; for a watermark, the watermark itself"),
        _common("commit_timestamp"),
        _common("start_ts"),
        _common("sequence",
                "sortable, and unique within a topic; `rank` is 0 for a delete, 1 for an insert or update, 2 for "
                "DDL, 3 for a watermark; always 1 if there is no commit-ts"),
        _own("key", pa.string(), "handle-key columns of the row, as JSON; NULL if the message does not name any"),
        _own("before", pa.string(), "row before the change, as JSON"),
        _own("after", pa.string(), "row after the change, as JSON"),
        _own("ddl_kind", pa.string(), "what the DDL does, in the same word for all protocols: "
             + ", ".join(f"`{kind}`" for kind in KINDS)),
        _own("ddl_type", pa.string(),
             "name of the DDL type: TiDB's name if the protocol carries TiDB's code, otherwise the protocol's own "
             "name; NULL if the message has none"),
        _own("ddl_type_code", pa.int32(), "TiDB's code of the DDL type; NULL if the protocol does not carry it"),
        _own("ddl_query", pa.string(), "SQL of the DDL statement"),
        _own("table_changes", pa.string(),
             "description of the table after the DDL, or in a `bootstrap`, as JSON; NULL if the protocol has none"),
        _own("watermark_ts", pa.int64(),
             "the watermark: TiCDC has sent all events up to this commit-ts to this topic partition before it"),
    ),
    "record": (
        _common("topic"),
        _common("partition"),
        _common("offset"),
        _common("timestamp"),
        _common("key"),
        _common("value"),
        _common("headers"),
        _own("tables", NAMES, "the tables whose rows or DDL the record has, as `database.table`", prefixed=True),
        _own("event_types", NAMES,
             "what the record has: `row`, `ddl`, `bootstrap` and `watermark`; `corrupt` if it "
             "cannot be read, or some of it; empty for a tombstone and other records without "
             "events", prefixed=True),
        _common("commit_version",
                "the smallest commit-ts of its rows and DDL; NULL if it has none, or if finding it takes parsing"),
        _own("watermark_ts", pa.int64(), "the watermark; NULL if it has none", prefixed=True),
        _own("partitions", pa.int32(),
             "how many topic partitions the read covers; NULL in `decode`, which does not know it", prefixed=True),
    ),
}  # fmt: skip

# Columns of `outputFormat=event` that hold JSON text, or with `variantJson` VARIANT.
JSON_COLUMNS = frozenset({"key", "before", "after", "table_changes"})

# Not among METADATA: they have names of their own (columnNameOfCorruptRecord, rescuedDataColumn).
CORRUPT_RECORD = pa.string()
RESCUED_DATA = pa.string()

_LEVELS = {"core": ("core",), "kafka": ("core", "kafka"), "all": ("core", "kafka", "all")}


def metadata_columns(include: str, *, headers: bool) -> list[MetadataColumn]:
    """Return the metadata columns that `includeMetadata` and `includeHeaders` add, in order."""
    levels = _LEVELS[include] + (("includeHeaders",) if headers else ())
    return [column for column in METADATA if column.level in levels]


_WHOLE_PARTS = frozenset({"key", "value", "headers"})  # of a record, by their names in `assemble._FILL`


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Which field of the read schema is what.

    Attributes:
        schema: the read schema.
        metadata: the metadata columns: name in the schema → name in `assemble._FILL`.
        corrupt: the name of the corrupt-record column, None if the schema has none.
        rescued: the name of the rescued column, None if the schema has none.
        output: the option `outputFormat`.
        own: the columns that the rows bring, for `outputFormat` other than changelog: name → name in the schema.
    """

    schema: pa.Schema
    metadata: Mapping[str, str]
    corrupt: str | None
    rescued: str | None
    output: str
    own: Mapping[str, str]

    @cached_property
    def fields(self) -> tuple[tuple[str, str | None], ...]:
        """The name of each field, and its name in `assemble._FILL` if that fills it."""
        fills = dict(self.metadata) if self.corrupt is None else {self.corrupt: "corrupt", **self.metadata}
        return tuple((name, fills.get(name)) for name in self.schema.names)

    @cached_property
    def required(self) -> tuple[tuple[int, pa.Field], ...]:
        """The fields that must not be NULL, or are structs with such members, with their indexes."""
        return tuple((index, field) for index, field in enumerate(self.schema) if _is_required(field))

    @cached_property
    def repeated(self) -> frozenset[str]:
        """Which of a record's `key`, `value` and `headers` are in each of its rows."""
        return _WHOLE_PARTS & set(self.metadata.values())

    @cached_property
    def source(self) -> int | None:
        """The index of `source` in `outputFormat=envelope`; None if the schema has none."""
        return next((index for index, (_, fill) in enumerate(self.fields) if fill == "source"), None)

    @classmethod
    def of(cls, schema: pa.Schema, options: Options) -> Layout:
        """Return the layout of a schema, whose fields are told apart by name, without case.

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
            for column in reversed(FORMAT_COLUMNS[output])  # without a prefix, the column itself and not its repetition
        }
        metadata, own, corrupt_name, rescued_name = {}, {}, None, None
        for field in schema:
            name = field.name.lower()
            if is_changelog and field.metadata and TABLE.encode() in field.metadata:
                continue  # inference found this column in the table: it is no metadata column, whatever its name
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
                msg = (
                    f"Column {field.name}: outputFormat={output} has no such column; it has "
                    f"{', '.join(reversed(format_columns))}"
                )
                raise SchemaError(msg)
        if rescued is not None and rescued_name is None:
            msg = f"The schema has no column '{rescued}' for what is rescued (rescuedDataColumn): add {rescued} STRING"
            raise SchemaError(msg)
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
                    msg = f"Column {field.name} has one type in 'before' and another in 'after'"
                    raise SchemaError(msg)
        return list(fields.values())


def _require_type(field: pa.Field, expected: pa.DataType | None) -> None:
    if expected is not None and field.type != expected:
        msg = (
            f"Column {field.name} has the type {spark_name(field.type)}; as a metadata column it must be "
            f"{spark_name(expected)}"
        )
        raise SchemaError(msg)


def _require_format(field: pa.Field, column: FormatColumn, *, may_be_variant: bool) -> None:
    """Check a column of an `outputFormat` other than changelog."""
    if column.fill == "source":
        _require_members(field)
    elif not (may_be_variant and field.type == VARIANT):
        _require_type(field, column.arrow)
    if column.arrow is None and not pa.types.is_struct(field.type):
        msg = f"Column {field.name} has the type {spark_name(field.type)}; it must be a struct of the table's columns"
        raise SchemaError(msg)


def _require_members(source: pa.Field) -> None:
    """Check the members of `source` in a schema of the user's: any of those there are, in any order."""
    if not pa.types.is_struct(source.type) or not source.type.num_fields:
        _require_type(source, SOURCE)
    member_types = {member.name: member.type for member in SOURCE}
    for member in source.type:
        arrow = member_types.get(member.name.lower())
        if arrow is None:
            listed = ", ".join(field.name for field in SOURCE)
            msg = f"Column {source.name}.{member.name}: source has no such member; it has {listed}"
            raise SchemaError(msg)
        if member.type != arrow:
            has = f"Column {source.name}.{member.name} has the type {spark_name(member.type)}"
            msg = f"{has}; it must be {spark_name(arrow)}"
            raise SchemaError(msg)


def _is_required(field: pa.Field) -> bool:
    if pa.types.is_struct(field.type) and not all(child.nullable for child in field.type):
        return True
    return not field.nullable
