"""What columns, members of metrics lines and findings mean, for the tables of the documentation.

`website/generate_docs.py` puts these texts beside the names and types that the code has, and fails if one is missing.
"""

from dataclasses import dataclass

from ticdc_source.schema.ddl_event import KINDS
from ticdc_source.schema.model import COMMENT, KEY, MYSQL_TYPE, TABLE, UNDECIDED, UNSTATED_PRECISION


@dataclass(frozen=True, slots=True)
class Metric:
    """A member of a metrics line, with its type in Spark. `events.insert` is the member `insert` of `events`."""

    name: str
    type: str
    meaning: str
    nullable: bool = False


# In the order of a line.
METRICS = (
    Metric("query", "string",
           "id of the streaming query, kept across restarts; null in a batch read", nullable=True),
    Metric("batch", "bigint", "number of the micro-batch; null in a batch read", nullable=True),
    Metric("stage", "bigint", "Spark's stage id, task number and attempt number, from 0"),
    Metric("task", "bigint", "Spark's stage id, task number and attempt number, from 0"),
    Metric("attempt", "bigint", "Spark's stage id, task number and attempt number, from 0"),
    Metric("time", "double", "when the worker finished reading the range, in seconds since 1970"),
    Metric("table", "string", "the table, if only one is read", nullable=True),
    Metric("topic", "string", "the topic partition"),
    Metric("partition", "bigint", "the topic partition"),
    Metric("start", "bigint", "first offset of the range, and one past its last"),
    Metric("end", "bigint", "first offset of the range, and one past its last"),
    Metric("lag", "bigint",
           "backlog when the micro-batch was planned: offsets from `end` to the end of the partition; null in a "
           "batch read",
           nullable=True),
    Metric("records", "bigint", "Kafka records read, and the size of their keys and values"),
    Metric("bytes", "bigint", "Kafka records read, and the size of their keys and values"),
    Metric("rows", "bigint", "rows returned to Spark, including those for bad records"),
    Metric("events.insert", "bigint", "inserted rows"),
    Metric("events.update_preimage", "bigint", "old and new rows of updates"),
    Metric("events.update_postimage", "bigint", "old and new rows of updates"),
    Metric("events.delete", "bigint", "deleted rows"),
    Metric("events.ddl", "bigint", "DDL events, of any table"),
    Metric("events.destructive_ddl", "bigint",
           "DDL events that removed rows without delete events, each counted once per task"),
    Metric("events.watermark", "bigint", "watermarks"),
    Metric("events.other_tables", "bigint", "row events of tables that are not read"),
    Metric("claim_checks", "bigint", "events read from claim-check storage, and events with only key columns"),
    Metric("key_only", "bigint", "events read from claim-check storage, and events with only key columns"),
    Metric("checksums", "bigint", "events whose checksum was checked, and events returned with a wrong one"),
    Metric("wrong_checksums", "bigint", "events whose checksum was checked, and events returned with a wrong one"),
    Metric("lost_deletes", "bigint", "avro records that delete a row without identifying it"),
    Metric("skipped", "bigint", "records without events, such as tombstones"),
    Metric("decode_errors", "bigint", "bad records: records or events that could not be read"),
    Metric("dropped", "bigint", "bad records that `mode=DROPMALFORMED` dropped"),
    Metric("rescued", "bigint", "rows with a value in the rescued column"),
    Metric("invalid_utf8", "bigint", "text values that are not UTF-8, with U+FFFD for each invalid byte"),
    Metric("min_commit_ts", "bigint", "smallest and largest commit-ts returned, or null", nullable=True),
    Metric("max_commit_ts", "bigint", "smallest and largest commit-ts returned, or null", nullable=True),
    Metric("watermark", "bigint", "largest watermark, or null", nullable=True),
    Metric("ending_commit_ts", "bigint",
           "`endingCommitTs` as a number, even for `resolved`, or null", nullable=True),
    Metric("client", "string", "the Kafka client and its version", nullable=True),
    Metric("decoded.native", "bigint", "row images decoded by the native and by the general path"),
    Metric("decoded.general", "bigint", "row images decoded by the native and by the general path"),
    Metric("native_fallback", "string",
           "why the worker did not take the native path, or null", nullable=True),
)  # fmt: skip

# The metadata columns of `outputFormat=changelog`. Those of the other formats mean the same, if COLUMNS has no other
# text for them.
METADATA = {
    "_change_type": "`insert`, `update_preimage`, `update_postimage` or `delete`",
    "_commit_version": "TiDB's commit-ts (TSO); without one, a lower bound: the event time in ms `<< 18` (csv: NULL)",
    "_commit_timestamp": "the time in the commit-ts, UTC",
    "_sequence": "sort key of changes, unique per topic; `rank` is 0 for `delete` and `update_preimage` with a "
    "commit-ts, else 1",
    "_topic": "Kafka topic",
    "_partition": "Kafka partition",
    "_offset": "Kafka offset",
    "_timestamp": "Kafka timestamp",
    "_key": "Kafka key",
    "_database": "database of the table",
    "_table": "name of the table",
    "_protocol": "protocol of the message",
    "_start_ts": "start-ts (TSO) of the row's transaction, or NULL",
    "_build_ts": "when TiCDC wrote the message: epoch milliseconds, or NULL",
    "_cluster_id": "TiCDC's cluster id, or NULL",
    "_value": "Kafka value",
    "_headers": "Kafka headers",
}
COLUMNS: dict[str, dict[str, str]] = {
    "envelope": {
        "before": "row before the change, or NULL",
        "after": "row after the change, or NULL",
        "source": "where the event comes from",
        "op": "`c` (insert), `u` (update), `d` (delete) or `r` (row of an initial load)",
        "ts_ms": "when the message was written: epoch milliseconds, or NULL",
        "_sequence": "as in changelog; `rank` is 0 for a delete with a commit-ts, else 1",
        "_op": "the same as `op`",
    },
    "event": {
        "_event_type": "`row`, `ddl`, `watermark` or `bootstrap` (which only defines a table)",
        "_op": "`insert`, `update` or `delete`, or NULL",
        "_database": "database of the row or DDL",
        "_table": "table of the row or DDL, or NULL",
        "_commit_version": "commit-ts, or the watermark",
        "_sequence": "as in changelog; `rank` is 0 (delete), 1 (insert or update), 2 (DDL or bootstrap) or "
        "3 (watermark); without a commit-ts, always 1",
        "key": "handle-key columns as JSON, or NULL",
        "before": "row before the change, as JSON",
        "after": "row after the change, as JSON",
        "ddl_kind": "kind of the DDL, the same in all protocols: " + ", ".join(f"`{kind}`" for kind in KINDS),
        "ddl_type": "type of the DDL, as the protocol or TiDB names it",
        "ddl_type_code": "TiDB's code for the DDL type, or NULL",
        "ddl_query": "the statement",
        "table_changes": "JSON definition of the table after this DDL or `bootstrap`, else NULL",
        "watermark_ts": "the watermark: earlier records of this topic partition hold all events up to this commit-ts",
    },
    "record": {
        "_tables": "tables of the record's rows and DDL, as `database.table`",
        "_event_types": "`row`, `ddl`, `bootstrap`, `watermark`, `corrupt`; empty for a record without events",
        "_commit_version": "the record's smallest commit-ts; NULL if finding it needs parsing",
        "_watermark_ts": "the watermark, or NULL",
        "_partitions": "number of topic partitions read; 0 for TiDB or files, NULL from `ticdc_source.decode`",
    },
}

# The field metadata of a table column that users may rely on.
FIELD_METADATA = {
    MYSQL_TYPE: "MySQL type, with all known details",
    KEY: "`true` for the columns of the handle key, else absent",
    "ticdc.handle_key": "whether part of the handle key",
    "ticdc.primary_key": "whether part of the primary key",
    "ticdc.unique_key": "whether part of another unique key",
    "ticdc.nullable": "whether nullable",
    "ticdc.generated": "whether generated",
    "ticdc.default": "default value, without quotes",
    COMMENT: "comment",
    UNDECIDED: "`true` if the type is undecided: only NULLs were sampled",
    UNSTATED_PRECISION: "`true` for a DECIMAL of unknown precision",
    TABLE: "the table",
}

# The findings of `ticdc-source inspect`: what a person should know before reading a topic, by the code that scripts
# look for.
FINDINGS = {
    "empty": "no records in the offset range",
    "not-whole": "not all records were read, so counts and DDL are incomplete",
    "no-such-table": "the option `tables` matches no table of the topic",
    "late": "the watermark is more than ten minutes old",
    "several-protocols": "messages are in several protocols",
    "unknown-protocol": "unsupported protocol",
    "bad-records": "some records cannot be read (one finding per reason)",
    "refused": "`load()` would reject these options for a table; the message says why",
    "types-uncertain": "messages do not fully state types (precision, length or labels)",
    "timestamp-shifted": "TIMESTAMP values are off by a time zone: set `timeZone`",
    "no-key": "a table's key is unknown, so its changes cannot be merged",
    "no-commit-ts": "messages have no commit-ts",
    "no-watermarks": "without watermarks, `endingCommitTs=resolved` fails, and the lag is unknown",
    "no-old-rows": "updates have no `update_preimage`",
    "handle-key-only": "large messages have only key columns: set `onHandleKeyOnly=null`",
    "claim-check": "large messages are in claim-check storage: set `claimCheckLocation`",
    "destructive-ddl": "DDL removed rows without delete events",
}

# What the errors of the package mean, by name.
ERRORS = {
    "TiCDCSourceError": "the base class of all others",
    "AccessRefusedError": "the brokers refuse the login or the topic",
    "CheckpointError": "a checkpoint does not hold offsets of this source",
    "ClaimCheckUnavailableError": "claim-check storage cannot be read",
    "DataLossError": "records of the range are no longer in Kafka, or their files are gone",
    "DecodeError": "a record or a value cannot be read",
    "FramingError": "the frames of an open-protocol record do not match its length",
    "KafkaUnavailableError": "the brokers did not answer in time",
    "OptionError": "an option is missing, invalid, or contradicts another one",
    "SchemaError": "messages and the requested schema do not match",
    "SchemaRegistryUnavailableError": "the registry does not answer, or refuses the request",
    "StorageUnavailableError": "storage sink files cannot be read",
    "TiDBUnavailableError": "TiDB does not answer",
    "UnsupportedTypeError": "a column has a type that is not supported",
}
