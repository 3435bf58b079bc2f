"""The table of options: a row has scope, name, parser, meaning and default, and is a field of `OptionTable`.

To add an option, add its row, under the scope that says where it applies; whoever needs it reads the attribute.
docs/reference/options.md, the names that are known, what commands and files refuse: all of that follows from the table.
"""

# ruff: noqa: RUF009 (`option` returns a dataclass field; its default is made once, and never changed)

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ticdc_source.options import parsers
from ticdc_source.options.option import CLIENT, DECODED, TYPED, Output, Scope
from ticdc_source.options.parsers import PartitionLists, PartitionNumbers, Secret

# How messages are found in records and parsed, whoever asks.
MESSAGES = Scope(frozenset({"topics", "files", "snapshot", "frames", "tail", "lag"}), is_of_messages=True)
# The same for those who need columns, and for the lines of files.
MESSAGES_WITH_COLUMNS = Scope(MESSAGES.uses - {"lag"}, is_of_messages=True)
LINES = Scope(frozenset({"files", "frames"}), is_of_messages=True)
# How records are fetched; `CLIENT` is the same of topics alone.
FETCH = Scope(frozenset({"topics", "files", "tail", "lag"}))
# Which part of them, and how Spark divides it.
PLAN = Scope(frozenset({"topics", "files"}))
TASKS = Scope(frozenset({"topics", "files", "snapshot"}))
TOPICS = Scope(frozenset({"topics"}))
# Which events and columns come out, and what is in them.
TABLES = Scope(frozenset({"topics", "files", "snapshot", "frames", "tail"}))
ROWS = Scope(TABLES.uses, DECODED)
TYPED_ROWS = Scope(TABLES.uses - {"tail"}, TYPED)
KAFKA_HEADERS = Scope(TABLES.uses - {"files", "snapshot"}, DECODED)
# What `tail` decides.
OUTPUT = Scope(TABLES.uses - {"tail"})
COLUMNS = Scope(TABLES.uses - {"tail"}, DECODED)
# Rows of TiDB itself, and TiDB.
SNAPSHOT = Scope(frozenset({"snapshot"}))
TIDB = Scope(TASKS.uses)


@dataclass(frozen=True, kw_only=True, repr=False)
class OptionTable:
    """The rows. The attribute of an option that was not given has its default, or None if it has no default."""

    # What to read

    assign: PartitionLists | None = CLIENT.optional(
        "assign", parsers.partition_lists, 'topic partitions to read, as JSON, such as `{"topicA":[0,1]}`'
    )
    subscribe: str | None = CLIENT.optional("subscribe", str, "topics to read, comma-separated")
    subscribe_pattern: str | None = CLIENT.optional("subscribePattern", str, "regular expression for whole topic names")
    path: str | None = PLAN.optional(
        "path",
        parsers.folder,
        "folder of a TiCDC storage sink to read instead of topics, such as `s3://bucket/changefeed`; also the argument "
        "of `load()`",
        secret=True,
    )
    protocol: str = MESSAGES.option(
        "protocol",
        parsers.lower_case,
        "protocol of the changefeed; `auto` detects it, and fails if it finds several",
        default="auto",
    )
    tables: tuple[tuple[str, str], ...] | None = TABLES.optional(
        "tables",
        parsers.table_patterns,
        "tables to read, such as `db.t, db2.*`; put names with dots, commas or spaces in backticks. "
        "`outputFormat=changelog` and `envelope` read one table",
    )
    output_format: Output = OUTPUT.option(
        "outputFormat",
        parsers.one_of("changelog", "envelope", "event", "record"),
        "`changelog`: one row per insert or delete of a table, two per update. `envelope`: one row per event of a"
        " table. `event`: events of all tables, DDL and watermarks, with rows as JSON. `record`: Kafka records, not "
        "decoded",
        default="changelog",
    )

    # Rows of TiDB itself

    snapshot: Literal["off", "initial", "only"] = TASKS.option(
        "snapshot",
        parsers.one_of("off", "initial", "only"),
        "`only` (batches) reads rows from TiDB as of a point in time; `initial` (streams) reads all existing rows, "
        "then the changes from the topics",
        default="off",
    )
    snapshot_at: int | Literal["now"] = SNAPSHOT.option(
        "snapshot.at",
        parsers.moment,
        "for `only`: `now`, a TSO, or a time such as `2026-11-27 10:00:00` (UTC), no older than TiDB's "
        "`tidb_gc_life_time`",
        default="now",
    )
    snapshot_rows_per_range: int = SNAPSHOT.option(
        "snapshot.rowsPerRange",
        parsers.whole_number(1),
        "rows per key range; each range becomes one Spark input partition",
        default="200000",
    )
    snapshot_max_ranges_per_trigger: int = SNAPSHOT.option(
        "snapshot.maxRangesPerTrigger",
        parsers.whole_number(1),
        "maximum ranges per micro-batch",
        default="16",
        only="stream",
    )
    tidb_url: tuple[str, int] | None = TIDB.optional(
        "tidb.url",
        parsers.host_and_port,
        "address of a TiDB server, such as `tidb:4000`. Without `snapshot`, TiDB only supplies the current columns, "
        "types and keys",
        secret=True,
    )
    tidb_user: str | None = TIDB.optional("tidb.user", parsers.stripped, "user with the SELECT privilege")
    tidb_password: Secret | None = TIDB.optional("tidb.password", Secret, "password", secret=True)
    tidb_ssl_mode: Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"] | None = TIDB.optional(
        "tidb.ssl.mode",
        parsers.one_of("disabled", "preferred", "required", "verify_ca", "verify_identity"),
        "as in MySQL's clients: `disabled`, `preferred` (default), `required`, `verify_ca`, `verify_identity` (default "
        "with `tidb.ssl.ca`); only the last two check the certificate",
    )
    tidb_ssl_ca: str | None = TIDB.optional(
        "tidb.ssl.ca", parsers.stripped, "PEM file to check TiDB's certificate against"
    )

    # Where the read starts and ends

    starting_offsets: Literal["earliest", "latest"] | PartitionNumbers = PLAN.option(
        "startingOffsets",
        parsers.offsets,
        "`earliest`, `latest` (streams only; their default), or JSON with an offset for every partition, such as"
        ' `{"topicA":{"0":23,"1":-2}}`; -2 means earliest, -1 latest',
        default="earliest",
    )
    starting_timestamp: int | None = TOPICS.optional(
        "startingTimestamp",
        parsers.time_ms,
        "start at the first record at or after this Kafka timestamp, in epoch milliseconds; overrides "
        "`startingOffsetsByTimestamp` and `startingOffsets`",
    )
    starting_offsets_by_timestamp: PartitionNumbers | None = TOPICS.optional(
        "startingOffsetsByTimestamp",
        parsers.times,
        'start time of each partition, as JSON, such as `{"topicA":{"0":1700000000000}}`; overrides `startingOffsets`',
    )
    starting_offsets_by_timestamp_strategy: Literal["error", "latest"] = TOPICS.option(
        "startingOffsetsByTimestampStrategy",
        parsers.one_of("error", "latest"),
        "if a partition has only older records, `error` fails and `latest` starts at its end",
        default="error",
    )
    ending_offsets: Literal["earliest", "latest"] | PartitionNumbers = PLAN.option(
        "endingOffsets",
        parsers.offsets,
        "`latest`, or JSON with an offset for every partition; -1 is latest",
        default="latest",
        only="batch",
    )
    ending_timestamp: int | None = TOPICS.optional(
        "endingTimestamp",
        parsers.time_ms,
        "end before the first record at or after this Kafka timestamp, in epoch milliseconds",
        only="batch",
    )
    ending_offsets_by_timestamp: PartitionNumbers | None = TOPICS.optional(
        "endingOffsetsByTimestamp", parsers.times, "end time of each partition, as JSON", only="batch"
    )
    starting_commit_ts: int | None = ROWS.optional(
        "startingCommitTs",
        parsers.whole_number(0),
        "keep only events with this or a later commit-ts; applied after decoding",
    )
    ending_commit_ts: int | Literal["resolved"] | None = ROWS.optional(
        "endingCommitTs",
        parsers.resolved_or_number,
        "keep only events with an earlier commit-ts. `resolved` (batches) ends at the smallest of the partitions' "
        "largest watermarks, so no transaction is split",
    )
    fail_on_data_loss: bool = FETCH.option(
        "failOnDataLoss",
        parsers.boolean,
        "fail if Kafka no longer has all records of the range; `false` warns and reads the rest",
        default="true",
    )

    # How Spark divides the read

    max_offsets_per_trigger: int | None = PLAN.optional(
        "maxOffsetsPerTrigger",
        parsers.whole_number(1),
        "maximum offsets per micro-batch, divided among partitions by backlog",
        only="stream",
    )
    min_offsets_per_trigger: int | None = PLAN.optional(
        "minOffsetsPerTrigger",
        parsers.whole_number(1),
        "minimum new offsets before a micro-batch starts",
        only="stream",
    )
    max_trigger_delay: int = PLAN.option(
        "maxTriggerDelay",
        parsers.duration_ms,
        "maximum time to wait for `minOffsetsPerTrigger`",
        default="15m",
        only="stream",
    )
    min_partitions: int | None = PLAN.optional(
        "minPartitions", parsers.whole_number(1), "approximate minimum number of Spark input partitions"
    )
    max_records_per_partition: int | None = TOPICS.optional(
        "maxRecordsPerPartition", parsers.whole_number(1), "maximum offsets per Spark input partition"
    )

    # Rows and columns

    preimages: bool = ROWS.option(
        "preimages",
        parsers.boolean,
        "`false` drops `update_preimage` rows (in `envelope` and `event`: the `before` of updates)",
        default="true",
    )
    operations: frozenset[Literal["insert", "update", "delete"]] = ROWS.option(
        "operations", parsers.subset_of("insert", "update", "delete"), "changes to keep", default="insert,update,delete"
    )
    columns: tuple[str, ...] | None = TYPED_ROWS.optional(
        "columns", parsers.names, "table columns to read, comma-separated"
    )
    include_metadata: Literal["core", "kafka", "all"] = COLUMNS.option(
        "includeMetadata",
        parsers.one_of("core", "kafka", "all"),
        "`kafka` adds `_topic _partition _offset _timestamp _key`; `all` also adds "
        "`_database _table _protocol _start_ts _build_ts _cluster_id _value`",
        default="core",
    )
    include_headers: bool = KAFKA_HEADERS.option(
        "includeHeaders", parsers.boolean, "`true` adds `_headers`, the Kafka headers", default="false"
    )
    metadata_column_prefix: str = OUTPUT.option("metadataColumnPrefix", str, "prefix of metadata columns", default="_")

    # The schema

    infer_schema_max_records: int = MESSAGES_WITH_COLUMNS.option(
        "inferSchema.maxRecords",
        parsers.whole_number(1),
        "rows to infer the schema from, half from each end of the range",
        default="1000",
    )
    infer_schema_max_scanned_records: int = MESSAGES.option(
        "inferSchema.maxScannedRecords",
        parsers.whole_number(1),
        "maximum records that schema inference scans for rows and DDL",
        default="100000",
    )
    infer_schema_timeout_ms: int = MESSAGES.option(
        "inferSchema.timeoutMs", parsers.duration_ms, "time limit of schema inference", default="10000"
    )
    schema_hints: str | None = TYPED_ROWS.optional(
        "schemaHints", str, "types of some columns, as Spark DDL, such as `amount decimal(10,2), flag boolean`"
    )
    table_ddl: str | None = MESSAGES_WITH_COLUMNS.optional(
        "tableDDL",
        str,
        "`CREATE TABLE` statements, as `SHOW CREATE TABLE` prints them, for precisions, labels, lengths and names"
        " that messages lack",
    )
    unspecified_decimal: str | None = TYPED_ROWS.optional(
        "unspecifiedDecimal", str, "type of DECIMAL columns of unknown precision, such as `decimal(20,4)` or `string`"
    )
    variant_json: bool = COLUMNS.option(
        "variantJson",
        parsers.boolean,
        "`true` reads JSON columns, and the JSON of `outputFormat=event`, as Spark's VARIANT",
        default="false",
    )

    # Values

    time_zone: str = ROWS.option(
        "timeZone",
        parsers.time_zone,
        "time zone (`--tz`) of the TiCDC server, for TIMESTAMP values in messages without a zone",
        default="UTC",
    )
    zero_date: Literal["null", "fail"] = TYPED_ROWS.option(
        "zeroDate",
        parsers.one_of("null", "fail"),
        "`null` reads zero and invalid dates, such as `0000-00-00`, as NULL; `fail` makes them errors",
        default="null",
    )
    invalid_utf8: Literal["replace", "fail"] = ROWS.option(
        "invalidUtf8",
        parsers.one_of("replace", "fail"),
        "`replace` turns each byte that is not UTF-8 into U+FFFD; `fail` makes such text an error",
        default="replace",
    )

    # What cannot be read, and what the schema lacks

    mode: Literal["FAILFAST", "PERMISSIVE", "DROPMALFORMED"] = ROWS.option(
        "mode",
        parsers.one_of("FAILFAST", "PERMISSIVE", "DROPMALFORMED"),
        "if a record cannot be read, or a value does not fit its column, `FAILFAST` fails, `PERMISSIVE` returns the "
        "record in a row of its own, and `DROPMALFORMED` drops, counts and logs it",
        default="FAILFAST",
    )
    column_name_of_corrupt_record: str = COLUMNS.option(
        "columnNameOfCorruptRecord", str, "name of the column that `mode=PERMISSIVE` adds", default="_corrupt_record"
    )
    on_schema_drift: Literal["fail", "ignore", "rescue"] = TYPED_ROWS.option(
        "onSchemaDrift",
        parsers.one_of("fail", "ignore", "rescue"),
        "if the schema lacks a column, `fail` fails, `ignore` leaves it out, and `rescue` puts its values into the "
        "rescued column, along with values that do not fit their own column",
        default="fail",
    )
    rescued_data_column: str | None = TYPED_ROWS.optional(
        "rescuedDataColumn",
        str,
        "name of the rescued column, which also keeps bytes that are not UTF-8; with `onSchemaDrift=rescue`, "
        "`_rescued_data` by default",
    )
    on_destructive_ddl: Literal["warn", "fail", "ignore"] = ROWS.option(
        "onDestructiveDDL",
        parsers.one_of("warn", "fail", "ignore"),
        "for DDL that removes rows without delete events (such as TRUNCATE or DROP TABLE), `warn` logs it, `fail` "
        "fails, `ignore` does nothing",
        default="warn",
    )

    # Large messages

    value_compression: Literal["auto", "none", "snappy", "lz4"] = MESSAGES.option(
        "valueCompression",
        parsers.one_of("auto", "none", "snappy", "lz4"),
        "TiCDC's `large-message-handle-compression`; `auto` detects it",
        default="auto",
    )
    max_message_bytes: int = MESSAGES.option(
        "maxMessageBytes",
        parsers.size_bytes,
        "maximum size of a decompressed message or a claim-check file; larger ones are bad records",
        default="72m",
    )
    claim_check_location: str | None = ROWS.optional(
        "claimCheckLocation", parsers.folder, "folder of TiCDC's claim-check files (path or fsspec URL)", secret=True
    )
    on_handle_key_only: Literal["fail", "null"] = ROWS.option(
        "onHandleKeyOnly",
        parsers.one_of("fail", "null"),
        "if a message has only key columns, `fail` fails, `null` reads the other columns as NULL",
        default="fail",
    )
    verify_checksum: Literal["off", "warn", "fail"] = ROWS.option(
        "verifyChecksum",
        parsers.one_of("off", "warn", "fail"),
        "row checksums of simple and avro: `warn` logs and counts rows that do not match, `fail` makes them "
        "bad records",
        default="off",
    )

    debezium_binary_handling_mode: Literal["base64", "base64-url-safe", "hex", "bytes"] | None = ROWS.optional(
        "debezium.binaryHandlingMode",
        parsers.one_of("base64", "base64-url-safe", "hex", "bytes"),
        "the changefeed's `debezium-binary-handling-mode`. Default: base64, with a warning for columns that may be hex",
    )

    # Storage sink files

    terminator: str | None = LINES.optional(
        "terminator",
        parsers.delimiter,
        "`terminator` of the sink, which ends each row: by default `\\r\\n`, in JSON also `\\n`",
    )
    csv_delimiter: str = LINES.option("csv.delimiter", parsers.delimiter, "`delimiter` of the sink", default=",")
    csv_quote: str = LINES.option("csv.quote", parsers.quote, "`quote` of the sink", default='"')
    csv_null: str = LINES.option("csv.null", str, "`null` of the sink", default="\\N")
    csv_include_commit_ts: bool = LINES.option(
        "csv.includeCommitTs", parsers.boolean, "`include-commit-ts` of the sink", default="true"
    )
    csv_output_old_value: bool | None = LINES.optional(
        "csv.outputOldValue", parsers.boolean, "`output-old-value` of the sink; detected, unless `csv.quote` is empty"
    )
    csv_binary_encoding_method: Literal["base64", "hex"] = LINES.option(
        "csv.binaryEncodingMethod",
        parsers.one_of("base64", "hex"),
        "`binary-encoding-method` of the sink",
        default="base64",
    )

    # The schema registry, of Avro messages

    schema_registry_url: tuple[str, ...] | None = MESSAGES.optional(
        "schema.registry.url",
        parsers.registry_urls,
        "URLs of a schema registry with Confluent's API, comma-separated, such as `http://registry:8081`",
        secret=True,
    )
    basic_auth_user_info: Secret | None = MESSAGES.optional(
        "basic.auth.user.info", parsers.user_info, "`user:password` for the schema registry", secret=True
    )
    bearer_auth_token: Secret | None = MESSAGES.optional(
        "bearer.auth.token", parsers.secret, "bearer token for the schema registry", secret=True
    )
    schema_registry_ssl_truststore_location: str | None = MESSAGES.optional(
        "schema.registry.ssl.truststore.location",
        parsers.stripped,
        "PEM or PKCS12 file to check the registry's certificate against",
    )
    schema_registry_ssl_truststore_password: Secret | None = MESSAGES.optional(
        "schema.registry.ssl.truststore.password", Secret, "password of the truststore", secret=True
    )
    schema_registry_ssl_keystore_location: str | None = MESSAGES.optional(
        "schema.registry.ssl.keystore.location",
        parsers.stripped,
        "PEM or PKCS12 file with the client's certificate and key",
    )
    schema_registry_ssl_keystore_password: Secret | None = MESSAGES.optional(
        "schema.registry.ssl.keystore.password", Secret, "password of the keystore", secret=True
    )
    schema_registry_ssl_key_password: Secret | None = MESSAGES.optional(
        "schema.registry.ssl.key.password", Secret, "password of the key in the keystore", secret=True
    )
    proxy_host: str | None = MESSAGES.optional(
        "proxy.host",
        parsers.stripped,
        "HTTP proxy for the registry; by default from the environment (`HTTPS_PROXY`, `NO_PROXY`)",
    )
    proxy_port: int = MESSAGES.option("proxy.port", parsers.whole_number(1), "port of the proxy", default="8080")
    http_connect_timeout_ms: int = MESSAGES.option(
        "http.connect.timeout.ms", parsers.duration_ms, "timeout for connecting to the registry", default="10000"
    )
    http_read_timeout_ms: int = MESSAGES.option(
        "http.read.timeout.ms", parsers.duration_ms, "timeout for the registry's answer", default="10000"
    )
    glue_region: str | None = MESSAGES.optional(
        "glue.region", parsers.stripped, "region of AWS Glue Schema Registry, if not in AWS's configuration"
    )
    glue_endpoint: str | None = MESSAGES.optional("glue.endpoint", parsers.stripped, "custom URL of AWS Glue")

    # Kafka

    fetch_offset_num_retries: int = FETCH.option(
        "fetchOffset.numRetries", parsers.whole_number(0), "retries of an offset look-up", default="3"
    )
    fetch_offset_retry_interval_ms: int = FETCH.option(
        "fetchOffset.retryIntervalMs", parsers.duration_ms, "time before each retry", default="1000"
    )
    fetch_offset_min_interval_ms: int = PLAN.option(
        "fetchOffset.minIntervalMs",
        parsers.duration_ms,
        "how long an offset look-up is reused",
        default="200",
        only="stream",
    )
    kafka_consumer_poll_timeout_ms: int = CLIENT.option(
        "kafkaConsumer.pollTimeoutMs",
        parsers.duration_ms,
        "how long a read waits for the next record before it fails",
        default="120000",
    )
    broker_timeout_ms: int = TOPICS.option(
        "brokerTimeoutMs",
        parsers.duration_ms,
        "how long a running stream waits for its brokers",
        default="300000",
        only="stream",
    )
    group_id_prefix: str | None = CLIENT.optional(
        "groupIdPrefix", str, "prefix of the client id that brokers see; the source joins no consumer group"
    )

    # Output and monitoring

    max_rows_per_batch: int = MESSAGES.option(
        "maxRowsPerBatch", parsers.whole_number(1), "maximum rows in an Arrow record batch", default="8192"
    )
    max_bytes_per_batch: int = MESSAGES.option(
        "maxBytesPerBatch", parsers.size_bytes, "approximate maximum size of an Arrow record batch", default="32m"
    )
    commit_group_offsets: bool = TOPICS.option(
        "commitGroupOffsets",
        parsers.boolean,
        "`true` commits processed offsets to the consumer group `kafka.group.id`, for monitoring only",
        default="false",
        only="stream",
    )
    metrics_path: str | None = TASKS.optional(
        "metricsPath",
        parsers.metrics_folder,
        "path or URI of a folder for metrics, one JSON line per offset range",
        secret=True,
    )
    native_code: Literal["auto", "off", "require"] = MESSAGES.option(
        "nativeCode",
        parsers.one_of("auto", "off", "require"),
        "`auto` uses the native path (Rust) where it is installed, `off` never does, `require` fails without it",
        default="auto",
    )
    strict_options: bool = MESSAGES.option(
        "strictOptions",
        parsers.boolean,
        "`true` makes every unknown option an error, `false` only near misses",
        default="false",
    )
