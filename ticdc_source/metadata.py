"""The metadata columns: one row each, from which the read schema, the assembly and README's table come."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from ticdc_source.types import TIMESTAMP

__all__ = [
    "CORRUPT_RECORD",
    "HEADERS",
    "METADATA",
    "RESCUED_DATA",
    "SEQUENCE",
    "MetadataColumn",
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
HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))


class MetadataColumn(NamedTuple):
    """A metadata column.

    Attributes:
        name: its name without the prefix.
        arrow: its Arrow type.
        level: the `includeMetadata` that brings it, or the option.
        meaning: one line for the README.
    """

    name: str
    arrow: pa.DataType
    level: str
    meaning: str


METADATA: tuple[MetadataColumn, ...] = (
    MetadataColumn("change_type", pa.string(), "core", "`insert`, `update_preimage`, `update_postimage` or `delete`"),
    MetadataColumn("commit_version", pa.int64(), "core",
                   "TiDB's commit-ts (TSO); where the wire has none, a lower bound: the event's time in ms `<< 18`"),
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
    MetadataColumn("cluster_id", pa.string(), "all", "TiCDC's cluster id, where the wire tells (debezium)"),
    MetadataColumn("value", pa.binary(), "all", "the whole Kafka value"),
    MetadataColumn("headers", HEADERS, "includeHeaders", "Kafka headers"),
)  # fmt: skip

# Not among METADATA: they have names of their own (columnNameOfCorruptRecord, rescuedDataColumn).
CORRUPT_RECORD = pa.string()
RESCUED_DATA = pa.string()

_LEVELS = {"core": ("core",), "kafka": ("core", "kafka"), "all": ("core", "kafka", "all")}


def metadata_columns(include: str, *, headers: bool) -> list[MetadataColumn]:
    """Return the metadata columns that `includeMetadata` and `includeHeaders` bring, in order."""
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
