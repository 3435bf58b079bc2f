"""What columns, members of metrics lines and findings mean, for the tables of the documentation.

`website/generate_docs.py` puts these texts beside the names and types that the code has, and fails if one is missing.
"""

from dataclasses import dataclass

from ticdc_source.schema.ddl_event import KINDS
from ticdc_source.schema.model import COMMENT, KEY, MYSQL_TYPE, TABLE, UNDECIDED, UNSTATED_PRECISION


@dataclass(frozen=True, slots=True)
class Metric:
    """A member of a metrics line, with its type in Spark.

    `events.insert` is the member `insert` of the object `events`. The unit of a text is "".
    """

    name: str
    type: str
    unit: str
    meaning: str
    nullable: bool = False


_ID, _RECORDS, _ROWS, _IMAGES, _EVENTS, _TSO = "id", "records", "rows", "row images", "events", "TSO"
# In the order of a line.
METRICS = (
    Metric("query", "string", _ID,
           "the id of the streaming query, the same after a restart; null in a batch read", nullable=True),
    Metric("batch", "bigint", "number", "the micro-batch; null in a batch read", nullable=True),
    Metric("stage", "bigint", _ID, "the stage in Spark"),
    Metric("task", "bigint", "number", "the task in the stage"),
    Metric("attempt", "bigint", "number",
           "the attempt of the task, from 0; each attempt that ends well writes its lines"),
    Metric("time", "double", "seconds since 1970 (UTC)",
           "when the offset range had been read, by the clock of the worker"),
    Metric("table", "string", "", "the table, if the read is of one table and the worker knows which", nullable=True),
    Metric("topic", "string", "", "the topic"),
    Metric("partition", "bigint", "number", "the topic partition"),
    Metric("start", "bigint", "offset", "where the offset range starts"),
    Metric("end", "bigint", "offset", "where it ends: the offset after the last one"),
    Metric("lag", "bigint", "offsets",
           "offsets from `end` to the end of the topic partition when the micro-batch was "
           "planned; null in a batch read", nullable=True),
    Metric("records", "bigint", _RECORDS, "Kafka records that were read"),
    Metric("bytes", "bigint", "bytes", "size of their keys and values"),
    Metric("rows", "bigint", _ROWS, "rows returned to Spark, including those for bad records"),
    Metric("events.insert", "bigint", _IMAGES, "rows that were inserted"),
    Metric("events.update_preimage", "bigint", _IMAGES, "rows as they were before an update"),
    Metric("events.update_postimage", "bigint", _IMAGES, "rows as they are after an update"),
    Metric("events.delete", "bigint", _IMAGES, "rows that were deleted"),
    Metric("events.ddl", "bigint", _EVENTS, "DDL events, of any table"),
    Metric("events.destructive_ddl", "bigint", _EVENTS,
           "DDL events that removed rows of what is read without delete events; each once in a task"),
    Metric("events.watermark", "bigint", _EVENTS, "watermarks"),
    Metric("events.other_tables", "bigint", _EVENTS, "row events of tables that are not read"),
    Metric("claim_checks", "bigint", _EVENTS, "events whose rows came from claim-check storage"),
    Metric("key_only", "bigint", _EVENTS, "events that had their key columns only"),
    Metric("checksums", "bigint", _EVENTS, "events whose checksum was verified"),
    Metric("wrong_checksums", "bigint", _EVENTS, "those of them whose checksum is wrong, and that were returned"),
    Metric("lost_deletes", "bigint", _RECORDS,
           "records that say that some row was deleted, and not which one: its table has no primary key"),
    Metric("skipped", "bigint", _RECORDS, "records without events: tombstones, and messages without a body"),
    Metric("decode_errors", "bigint", "records or events", "what could not be read"),
    Metric("dropped", "bigint", "records or events", "how many of these `mode=DROPMALFORMED` dropped"),
    Metric("rescued", "bigint", _ROWS, "rows with a value in the rescued column"),
    Metric("invalid_utf8", "bigint", "texts", "texts that are not UTF-8, read with U+FFFD for each invalid byte"),
    Metric("min_commit_ts", "bigint", _TSO,
           "the smallest commit-ts of what is returned; null without one", nullable=True),
    Metric("max_commit_ts", "bigint", _TSO,
           "the largest commit-ts of what is returned; null without one", nullable=True),
    Metric("watermark", "bigint", _TSO, "the largest watermark; null without one", nullable=True),
    Metric("ending_commit_ts", "bigint", _TSO,
           "`endingCommitTs`, or what `resolved` stands for; null without the option", nullable=True),
    Metric("client", "string", "", "the client library that fetched, and its version", nullable=True),
    Metric("decoded.native", "bigint", _IMAGES, "what the native path read"),
    Metric("decoded.general", "bigint", _IMAGES, "what the general path read"),
    Metric("native_fallback", "string", "",
           "why the worker did not take the native path; null if it did", nullable=True),
)  # fmt: skip

# The metadata columns of `outputFormat=changelog`. Those of the other formats mean the same, if COLUMNS has no other
# text for them.
METADATA = {
    "_change_type": "`insert`, `update_preimage`, `update_postimage` or `delete`",
    "_commit_version": "TiDB's commit-ts (TSO); if the message has none, a lower bound: the event's time in "
    "milliseconds, `<< 18`",
    "_commit_timestamp": "the time in `_commit_version`: `_commit_version >> 18` is in milliseconds since the epoch, "
    "UTC",
    "_sequence": "sortable, and unique within a topic; `rank` is 0 for `delete` and `update_preimage`, and 1 "
    "otherwise; if the message has no commit-ts, `rank` is 1, and the place in the topic decides",
    "_topic": "Kafka topic",
    "_partition": "Kafka partition",
    "_offset": "Kafka offset",
    "_timestamp": "Kafka timestamp",
    "_key": "Kafka key",
    "_database": "database of the table",
    "_table": "name of the table",
    "_protocol": "protocol of the message",
    "_start_ts": "start-ts (TSO) of the row's transaction, which the rows of no other transaction have; NULL if the "
    "message does not carry it",
    "_build_ts": "when TiCDC wrote the message, in milliseconds since the epoch",
    "_cluster_id": "TiCDC's cluster id; NULL if the protocol does not carry it",
    "_value": "Kafka value",
    "_headers": "Kafka headers",
}
COLUMNS: dict[str, dict[str, str]] = {
    "envelope": {
        "before": "row before the change; NULL in an insert, and if the message lacks it",
        "after": "row after the change; NULL in a delete",
        "source": "where the event comes from",
        "op": "`c` insert, `u` update, `d` delete; `r` a row of a snapshot",
        "ts_ms": "when the message was written, in milliseconds since the epoch; NULL if it does not say",
        "_sequence": "sortable, and unique within a topic; `rank` is 0 for a delete that has a commit-ts, and 1 "
        "otherwise",
        "_op": "the same as `op`",
    },
    "event": {
        "_event_type": "`row`, `ddl`, `watermark`, or `bootstrap`, which defines a table and changes nothing",
        "_op": "operation of a row event: `insert`, `update` or `delete`",
        "_database": "database of the row or DDL",
        "_table": "table of the row or DDL; NULL for DDL on a database",
        "_commit_version": "commit-ts of a row or DDL; for a watermark, the watermark itself",
        "_sequence": "sortable, and unique within a topic; `rank` is 0 for a delete, 1 for an insert or update, 2 for "
        "DDL, 3 for a watermark; always 1 if there is no commit-ts",
        "key": "handle-key columns of the row, as JSON; NULL if the message does not name any",
        "before": "row before the change, as JSON",
        "after": "row after the change, as JSON",
        "ddl_kind": "what the DDL does, in the same word for all protocols: "
        + ", ".join(f"`{kind}`" for kind in KINDS),
        "ddl_type": "name of the DDL type: TiDB's name if the protocol carries TiDB's code, otherwise the protocol's "
        "own name; NULL if the message has none",
        "ddl_type_code": "TiDB's code of the DDL type; NULL if the protocol does not carry it",
        "ddl_query": "SQL of the DDL statement",
        "table_changes": "description of the table after the DDL, or in a `bootstrap`, as JSON; NULL if the protocol "
        "has none",
        "watermark_ts": "the watermark: TiCDC has sent all events up to this commit-ts to this topic partition before "
        "it",
    },
    "record": {
        "_tables": "the tables whose rows or DDL the record has, as `database.table`",
        "_event_types": "what the record has: `row`, `ddl`, `bootstrap` and `watermark`; `corrupt` if it cannot be "
        "read, or some of it; empty for a tombstone and other records without events",
        "_commit_version": "the smallest commit-ts of its rows and DDL; NULL if it has none, or if finding it takes "
        "parsing",
        "_watermark_ts": "the watermark; NULL if it has none",
        "_partitions": "how many topic partitions the read covers; 0 for rows of TiDB, and for lines of files; NULL in "
        "`decode`, which does not know it",
    },
}

# The field metadata of a table column that users may rely on.
FIELD_METADATA = {
    MYSQL_TYPE: "its MySQL type, as far as it is known",
    KEY: "`true` for the columns of the handle key, the key by which TiCDC identifies a row; otherwise absent",
    "ticdc.handle_key": "`true` or `false`: whether it is part of the handle key",
    "ticdc.primary_key": "`true` or `false`: whether it is part of the primary key",
    "ticdc.unique_key": "`true` or `false`: whether it is part of a unique key other than the primary key",
    "ticdc.nullable": "`true` or `false`: whether it may be NULL",
    "ticdc.generated": "`true` or `false`: whether it is a generated column",
    "ticdc.default": "its default, as DDL or the message writes it, without quotes; absent also if it has none",
    COMMENT: "its comment, under Spark's own key; absent also if it has none",
    UNDECIDED: "`true` if only values could tell the Spark type, and the sample has only NULLs; otherwise absent",
    UNSTATED_PRECISION: "`true` for a DECIMAL of 38 digits whose precision nothing states; otherwise absent",
    TABLE: "the table",
}

# The findings of `ticdc-source inspect`: what a person should know before reading a topic, by the code that scripts
# look for.
FINDINGS = {
    "empty": "the offset range of a topic has no record",
    "not-whole": "not all records were read: counts and DDL are those of a part",
    "no-such-table": "no row is of a table that the option `tables` names",
    "late": "the watermark of a topic is more than ten minutes behind this machine's clock",
    "several-protocols": "a topic has messages of several protocols",
    "unknown-protocol": "records have an unsupported protocol",
    "bad-records": "records or events cannot be read; one finding per reason, with the first address",
    "refused": "`load()` refuses a table with these options; the finding gives the reason",
    "types-uncertain": "messages do not fully say the types of columns: precision, length, members of ENUM or SET",
    "timestamp-shifted": "TIMESTAMP columns differ from the commit times as time zones do: the offset for `timeZone`",
    "no-key": "neither the messages of a table nor DDL name its key: its changes cannot be merged",
    "no-commit-ts": "messages have no commit-ts",
    "no-watermarks": "partitions have no watermark: `endingCommitTs=resolved` does not work, and lag is not known",
    "no-old-rows": "the changefeed sends no old rows: updates have no `update_preimage`",
    "handle-key-only": "large messages have their key columns only: reads fail without `onHandleKeyOnly=null`",
    "claim-check": "large messages lie in claim-check storage: reads need `claimCheckLocation`",
    "destructive-ddl": "DDL removed rows without delete events",
}
