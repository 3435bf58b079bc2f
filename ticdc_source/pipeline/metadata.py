"""The metadata columns, one row each: the read schema, the assembly and README's table come from these rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from ticdc_source.schema.types import TIMESTAMP

__all__ = [
    "CORRUPT_RECORD",
    "FORMAT_COLUMNS",
    "HEADERS",
    "JSON_COLUMNS",
    "METADATA",
    "RESCUED_DATA",
    "SEQUENCE",
    "SOURCE",
    "FormatColumn",
    "MetadataColumn",
    "event_table",
    "metadata_columns",
    "metadata_table",
]

SEQUENCE = pa.struct(
    [
        pa.field("commit_ts", pa.int64()),
        pa.field("rank", pa.int32()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("index", pa.int32()),
    ]
)
SOURCE = pa.struct(
    [
        pa.field("database", pa.string()),
        pa.field("table", pa.string()),
        pa.field("commit_ts", pa.int64()),
        pa.field("commit_timestamp", TIMESTAMP),
        pa.field("cluster_id", pa.string()),
        pa.field("protocol", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("index", pa.int32()),
    ]
)
HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))


class MetadataColumn(NamedTuple):
    """A metadata column.

    Attributes:
        name: its name without the prefix.
        arrow: its Arrow type.
        level: the value of `includeMetadata` that adds it, or another option that does.
        meaning: one line for the README.
    """

    name: str
    arrow: pa.DataType
    level: str
    meaning: str


METADATA: tuple[MetadataColumn, ...] = (
    MetadataColumn("change_type", pa.string(), "core", "`insert`, `update_preimage`, `update_postimage` or `delete`"),
    MetadataColumn("commit_version", pa.int64(), "core",
                   "TiDB's commit-ts (TSO); if the message has none, a lower bound: the event's time in ms `<< 18`"),
    MetadataColumn("commit_timestamp", TIMESTAMP, "core", "`_commit_version >> 18`, UTC"),
    MetadataColumn("sequence", SEQUENCE, "core",
                   "orderable and unique in a topic; `rank` is 0 for delete and update_preimage, else 1"),
    MetadataColumn("topic", pa.string(), "kafka", "Kafka topic"),
    MetadataColumn("partition", pa.int32(), "kafka", "Kafka partition"),
    MetadataColumn("offset", pa.int64(), "kafka", "Kafka offset"),
    MetadataColumn("timestamp", TIMESTAMP, "kafka", "Kafka timestamp"),
    MetadataColumn("key", pa.binary(), "kafka", "Kafka key"),
    MetadataColumn("database", pa.string(), "all", "database of the table"),
    MetadataColumn("table", pa.string(), "all", "name of the table"),
    MetadataColumn("protocol", pa.string(), "all", "wire format"),
    MetadataColumn("build_ts", pa.int64(), "all", "when TiCDC wrote the message, ms since the epoch"),
    MetadataColumn("cluster_id", pa.string(), "all", "TiCDC's cluster id; NULL if the wire format lacks it"),
    MetadataColumn("value", pa.binary(), "all", "the whole Kafka value"),
    MetadataColumn("headers", HEADERS, "includeHeaders", "Kafka headers"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatColumn:
    """A column that an `outputFormat` other than changelog has for every table.

    Attributes:
        name: its name without the prefix.
        arrow: its Arrow type; None for a struct of the table's columns.
        prefixed: whether `metadataColumnPrefix` precedes the name.
        fill: its name in `assemble._FILL`, if the assembly fills it from the facts of a row; "" if the rows bring it.
        meaning: one line for the README.
    """

    name: str
    arrow: pa.DataType | None
    prefixed: bool
    fill: str
    meaning: str


_COMMON = {column.name: column for column in METADATA if column.level == "core"}


def _common(name: str, meaning: str = "") -> FormatColumn:
    column = _COMMON[name]
    return FormatColumn(name=name, arrow=column.arrow, prefixed=True, fill=name, meaning=meaning or column.meaning)


def _own(name: str, arrow: pa.DataType | None, meaning: str, *, fill: str = "", prefixed: bool = False) -> FormatColumn:
    return FormatColumn(name=name, arrow=arrow, prefixed=prefixed, fill=fill, meaning=meaning)


# The columns of each `outputFormat`, in order; those of changelog are METADATA and the table's own.
FORMAT_COLUMNS: dict[str, tuple[FormatColumn, ...]] = {
    "changelog": (),
    "envelope": (
        _own("op", pa.string(), "`c`, `u` or `d`", fill="envelope_op", prefixed=True),
        _own("before", None, "the row before; NULL for `c`, and if the message lacks it"),
        _own("after", None, "the row after; NULL for `d`"),
        _own("source", SOURCE, "where the event comes from; a member is NULL if the message lacks it", fill="source"),
        _common("sequence"),
    ),
    "event": (
        _own("event_type", pa.string(), "`row`, `ddl` or `watermark`", fill="event_type", prefixed=True),
        _own("op", pa.string(), "of a row: `insert`, `update` or `delete`", fill="event_op", prefixed=True),
        _own("database", pa.string(), "database of the row or DDL", prefixed=True),
        _own("table", pa.string(), "its table; NULL for the DDL of a database", prefixed=True),
        _common("commit_version", "the commit-ts of a row or DDL, the watermark of a watermark"),
        _common("commit_timestamp"),
        _common(
            "sequence", "orderable and unique in a topic; `rank`: 0 delete, 1 insert and update, 2 DDL, 3 watermark"
        ),
        _own("key", pa.string(), "the handle-key columns of the row, JSON; NULL if the message names none"),
        _own("before", pa.string(), "the row before, JSON"),
        _own("after", pa.string(), "the row after, JSON"),
        _own(
            "ddl_type",
            pa.string(),
            "the name of the DDL's type: TiDB's if the wire format has its code, else the wire format's own",
        ),
        _own("ddl_type_code", pa.int32(), "TiDB's code of it; NULL if the wire format lacks it"),
        _own("ddl_query", pa.string(), "the statement"),
        _own(
            "table_changes",
            pa.string(),
            "what the DDL event says of the table afterwards, JSON; NULL if the wire format lacks it",
        ),
        _own("watermark_ts", pa.int64(), "all events of this topic partition up to this commit-ts came before"),
    ),
}

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


def metadata_table() -> str:
    """Return README's table of metadata columns."""
    lines = ["| column | type | with | meaning |", "|---|---|---|---|"]
    lines += [
        f"| `_{column.name}` | `{_SPARK_NAMES[column.arrow]}` | {_BROUGHT_BY[column.level]} | {column.meaning} |"
        for column in METADATA
    ]
    return "\n".join(lines)


def event_table() -> str:
    """Return README's table of the columns of `outputFormat=event`."""
    lines = ["| column | type | meaning |", "|---|---|---|"]
    for column in FORMAT_COLUMNS["event"]:
        type_ = _SPARK_NAMES[column.arrow]
        lines.append(f"| `{'_' if column.prefixed else ''}{column.name}` | `{type_}` | {column.meaning} |")
    return "\n".join(lines)


_SPARK_NAMES = {
    pa.string(): "string", pa.int32(): "int", pa.int64(): "bigint", pa.binary(): "binary", TIMESTAMP: "timestamp",
    SEQUENCE: "struct<commit_ts bigint, rank int, partition int, offset bigint, index int>",
    HEADERS: "array<struct<key string, value binary>>",
}  # fmt: skip
_BROUGHT_BY = {
    "core": "always",
    "kafka": "`includeMetadata=kafka`",
    "all": "`includeMetadata=all`",
    "includeHeaders": "`includeHeaders`",
}
