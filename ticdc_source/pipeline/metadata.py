"""The metadata columns, one row each: the read schema, the assembly and the docs come from these rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from ticdc_source.schema.ddl_kinds import KINDS
from ticdc_source.schema.types import TIMESTAMP

SEQUENCE = pa.struct(
    [
        pa.field("commit_ts", pa.int64()),
        pa.field("rank", pa.int32()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("index", pa.int32()),
    ]
)
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
