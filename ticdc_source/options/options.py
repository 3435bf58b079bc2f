"""The table of options, and the options of one read: a frozen dataclass whose field metadata is the table.

The table of docs/reference/options.md is generated from that metadata. Spark passes option names in lower case, so
names are compared without case everywhere.
"""

# ruff: noqa: RUF009 (`option` returns a dataclass field; its default is made once, and never changed)

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ticdc_source.options import parsers
from ticdc_source.options.checks import check_files, check_kafka, check_output
from ticdc_source.options.option import DECODED, TYPED, Option, Output, option
from ticdc_source.options.parsers import PartitionLists, PartitionNumbers
from ticdc_source.options.secret import Secret

__all__ = ["OPTIONS", "Options", "applies_to_records"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Options:
    """The options of one read, parsed and checked by `Options.of`; safe to print, as `repr` shows names only.

    Every option is an attribute in snake case, such as `options.starting_offsets`. An option that was not given has
    the value of its default, or None if it has no default.

    Attributes:
        given: The names that were given, in lower case.
        kafka: The settings after `kafka.`, by lower-case name. They may be secrets.
        is_stream: Whether the read is known to be a stream.
    """

    given: frozenset[str]
    kafka: Mapping[str, str] = dataclasses.field(repr=False)
    is_stream: bool = False

    # What to read

    assign: PartitionLists | None = option(
        "assign", parsers.partition_lists, 'topic partitions to read, as JSON, for example `{"topicA":[0,1]}`'
    )
    subscribe: str | None = option("subscribe", parsers.text, "topics to read, comma-separated")
    subscribe_pattern: str | None = option(
        "subscribePattern",
        parsers.text,
        "regular expression for the topics to read; it must match the whole name of a topic",
    )
    path: str | None = option(
        "path",
        parsers.folder,
        "instead of topics: folder of a changefeed with a storage sink, a path or a URL that fsspec supports, for "
        "example `s3://bucket/changefeed`; also the argument of `load()`",
        secret=True,
    )
    protocol: str = option(
        "protocol",
        parsers.lower_case,
        "`protocol` of the changefeed; `auto` detects it from the messages, and fails if they use several protocols",
        default="auto",
    )
    tables: tuple[tuple[str, str], ...] | None = option(
        "tables",
        parsers.table_patterns,
        "tables to read, for example `db.t, db2.*`; put names with dots, commas or blanks in backticks. "
        "`changelog` and `envelope` read exactly one table, the others any number. Required for those two if the "
        "topics contain several tables. A batch read warns of names without rows; `record`, which takes no sample, "
        "does not",
    )
    output_format: Output = option(
        "outputFormat",
        parsers.one_of("changelog", "envelope", "event", "record"),
        "`changelog`: one table, typed columns; one row per insert or delete, two per update. `envelope`: one table, "
        "one row per event, with `before` and `after`. `event`: all tables, DDL and watermarks, with rows as JSON. "
        "`record`: Kafka records, not decoded",
        default="changelog",
    )

    # Where the read starts and ends

    starting_offsets: Literal["earliest", "latest"] | PartitionNumbers = option(
        "startingOffsets",
        parsers.offsets,
        '`earliest`, `latest`, or JSON with an offset for every partition, for example `{"topicA":{"0":23,"1":-2}}`; '
        "-2 means earliest, -1 latest. The default of a stream is `latest`. Batch reads do not accept `latest`",
        default="earliest",
    )
    starting_timestamp: int | None = option(
        "startingTimestamp",
        parsers.time_ms,
        "start at the first record at or after this time, in milliseconds since the epoch",
    )
    starting_offsets_by_timestamp: PartitionNumbers | None = option(
        "startingOffsetsByTimestamp",
        parsers.times,
        'the start time of each partition, as JSON, for example `{"topicA":{"0":1700000000000}}`',
    )
    starting_offsets_by_timestamp_strategy: Literal["error", "latest"] = option(
        "startingOffsetsByTimestampStrategy",
        parsers.one_of("error", "latest"),
        "if a partition has no record at or after its start time: `error` fails, `latest` starts at the latest offset",
        default="error",
    )
    ending_offsets: Literal["earliest", "latest"] | PartitionNumbers = option(
        "endingOffsets",
        parsers.offsets,
        '`latest`, or JSON with an offset for every partition, for example `{"topicA":{"0":50,"1":-1}}`; -1 means '
        "latest",
        default="latest",
        only="batch",
    )
    ending_timestamp: int | None = option(
        "endingTimestamp",
        parsers.time_ms,
        "end before the first record at or after this time, in milliseconds since the epoch",
        only="batch",
    )
    ending_offsets_by_timestamp: PartitionNumbers | None = option(
        "endingOffsetsByTimestamp",
        parsers.times,
        'the end time of each partition, as JSON, for example `{"topicA":{"0":1700000000000}}`',
        only="batch",
    )
    starting_commit_ts: int | None = option(
        "startingCommitTs",
        parsers.integer(0),
        "keep only events with this commit-ts or a later one; applied after decoding",
        outputs=DECODED,
    )
    ending_commit_ts: int | Literal["resolved"] | None = option(
        "endingCommitTs",
        parsers.resolved_or_integer,
        "keep only events with an earlier commit-ts; applied after decoding. `resolved` (batch reads only) ends at the "
        "smallest, over all topic partitions, of their largest watermarks, so that no transaction is split",
        outputs=DECODED,
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        parsers.boolean,
        "`true` fails if Kafka no longer has all records of the range; `false` warns and reads the remaining ones",
        default="true",
    )

    # How Spark divides the read

    max_offsets_per_trigger: int | None = option(
        "maxOffsetsPerTrigger",
        parsers.integer(1),
        "maximum number of offsets in a micro-batch, divided among partitions in proportion to their backlog",
        only="stream",
    )
    min_offsets_per_trigger: int | None = option(
        "minOffsetsPerTrigger",
        parsers.integer(1),
        "minimum number of new offsets for which a micro-batch starts",
        only="stream",
    )
    max_trigger_delay: int = option(
        "maxTriggerDelay",
        parsers.duration_ms,
        "maximum time to wait for `minOffsetsPerTrigger`",
        default="15m",
        only="stream",
    )
    min_partitions: int | None = option(
        "minPartitions",
        parsers.integer(1),
        "minimum number of Spark input partitions; offset ranges are split to reach about this number",
    )
    max_records_per_partition: int | None = option(
        "maxRecordsPerPartition",
        parsers.integer(1),
        "maximum number of offsets in a Spark input partition; larger offset ranges are split",
    )

    # Rows and columns

    preimages: bool = option(
        "preimages",
        parsers.boolean,
        "`false` drops `update_preimage` rows (in `envelope` and `event`, `before` of updates); needed for AUTO CDC in "
        "declarative pipelines, which would apply them",
        default="true",
        outputs=DECODED,
    )
    operations: frozenset[Literal["insert", "update", "delete"]] = option(
        "operations",
        parsers.subset_of("insert", "update", "delete"),
        "keep only rows of these operations, comma-separated",
        default="insert,update,delete",
        outputs=DECODED,
    )
    columns: tuple[str, ...] | None = option(
        "columns", parsers.names, "read only these table columns, comma-separated", outputs=TYPED
    )
    include_metadata: Literal["core", "kafka", "all"] = option(
        "includeMetadata",
        parsers.one_of("core", "kafka", "all"),
        "`kafka` adds `_topic _partition _offset _timestamp _key`; `all` also adds "
        "`_database _table _protocol _start_ts _build_ts _cluster_id _value`",
        default="core",
        outputs=DECODED,
    )
    include_headers: bool = option(
        "includeHeaders",
        parsers.boolean,
        "`true` adds `_headers`, the Kafka headers",
        default="false",
        outputs=DECODED,
    )
    metadata_column_prefix: str = option(
        "metadataColumnPrefix",
        parsers.text,
        "prefix of metadata column names, instead of the underscore",
        default="_",
    )

    # The schema

    infer_schema_max_records: int = option(
        "inferSchema.maxRecords",
        parsers.integer(1),
        "number of rows from which to infer the schema, half from each end of the range",
        default="1000",
    )
    infer_schema_max_scanned_records: int = option(
        "inferSchema.maxScannedRecords",
        parsers.integer(1),
        "maximum number of records to scan for these rows and for DDL events",
        default="100000",
    )
    infer_schema_timeout_ms: int = option(
        "inferSchema.timeoutMs",
        parsers.duration_ms,
        "maximum time to scan for these rows and for DDL events, in milliseconds",
        default="10000",
    )
    schema_hints: str | None = option(
        "schemaHints",
        parsers.text,
        "types of some columns, as Spark DDL, for example `amount decimal(10,2), flag boolean`",
        outputs=TYPED,
    )
    table_ddl: str | None = option(
        "tableDDL",
        parsers.text,
        "`CREATE TABLE` statements, as printed by `SHOW CREATE TABLE`; they supply precisions, labels and lengths that "
        "the messages do not carry, and names that avro cannot spell",
    )
    unspecified_decimal: str | None = option(
        "unspecifiedDecimal",
        parsers.text,
        "type of DECIMAL columns whose precision is not known, for example `decimal(20,4)` or `string`",
        outputs=TYPED,
    )
    variant_json: bool = option(
        "variantJson",
        parsers.boolean,
        "`true` reads JSON columns, and the JSON columns of `outputFormat=event`, as Spark's VARIANT",
        default="false",
        outputs=DECODED,
    )

    # Values

    time_zone: str = option(
        "timeZone",
        parsers.time_zone,
        "time zone of TIMESTAMP values in messages, which do not name it: the `--tz` of the TiCDC server",
        default="UTC",
        outputs=DECODED,
    )
    zero_date: Literal["null", "fail"] = option(
        "zeroDate",
        parsers.one_of("null", "fail"),
        "zero and invalid dates such as `0000-00-00`: `null` reads them as NULL, `fail` makes them errors",
        default="null",
        outputs=TYPED,
    )
    invalid_utf8: Literal["replace", "fail"] = option(
        "invalidUtf8",
        parsers.one_of("replace", "fail"),
        "text that is not UTF-8: `replace` replaces each invalid byte with U+FFFD and counts the text in the metrics; "
        "`fail` makes it an error",
        default="replace",
        outputs=DECODED,
    )

    # What cannot be read, and what the schema lacks

    mode: Literal["FAILFAST", "PERMISSIVE", "DROPMALFORMED"] = option(
        "mode",
        parsers.one_of("FAILFAST", "PERMISSIVE", "DROPMALFORMED"),
        "a record that cannot be read, or has a value that does not fit its type: `FAILFAST` fails; `PERMISSIVE` "
        "returns it in a row of its own; `DROPMALFORMED` drops, counts and logs it",
        default="FAILFAST",
        outputs=DECODED,
    )
    column_name_of_corrupt_record: str = option(
        "columnNameOfCorruptRecord",
        parsers.text,
        "name of the column that `mode=PERMISSIVE` adds",
        default="_corrupt_record",
        outputs=DECODED,
    )
    on_schema_drift: Literal["fail", "ignore", "rescue"] = option(
        "onSchemaDrift",
        parsers.one_of("fail", "ignore", "rescue"),
        "a column that is not in the schema: `fail` fails; `ignore` leaves it out; `rescue` keeps its values as JSON "
        "in the rescued column, and also values that do not fit the type of their column",
        default="fail",
        outputs=TYPED,
    )
    rescued_data_column: str | None = option(
        "rescuedDataColumn",
        parsers.text,
        "name of the rescued column; `_rescued_data` if only `onSchemaDrift=rescue` is set. The column also keeps the "
        "bytes of text that is not UTF-8",
        outputs=TYPED,
    )
    on_destructive_ddl: Literal["warn", "fail", "ignore"] = option(
        "onDestructiveDDL",
        parsers.one_of("warn", "fail", "ignore"),
        "DDL that removes rows without delete events (TRUNCATE; DROP TABLE or DATABASE; DROP, TRUNCATE or EXCHANGE "
        "PARTITION): `warn` logs it, `fail` fails, `ignore` does nothing",
        default="warn",
        outputs=DECODED,
    )

    # Large messages

    value_compression: Literal["auto", "none", "snappy", "lz4"] = option(
        "valueCompression",
        parsers.one_of("auto", "none", "snappy", "lz4"),
        "value of TiCDC's `large-message-handle-compression`; `auto` detects it from the first bytes of each message",
        default="auto",
    )
    max_message_bytes: int = option(
        "maxMessageBytes",
        parsers.size_bytes,
        "maximum size of a message after decompression, by TiCDC's codec, by Kafka's, or from a claim-check file; "
        "`mode` decides about a larger one. The default fits all rows that TiDB accepts by default: 6 MiB "
        "(`txn-entry-size-limit`), twice in an update, and up to 6 bytes in JSON for each byte",
        default="72m",
    )
    claim_check_location: str | None = option(
        "claimCheckLocation",
        parsers.folder,
        "folder of TiCDC's claim-check files: a path, or a URL that fsspec supports",
        secret=True,
        outputs=DECODED,
    )
    on_handle_key_only: Literal["fail", "null"] = option(
        "onHandleKeyOnly",
        parsers.one_of("fail", "null"),
        "messages that have only the key columns: `fail` fails, `null` reads the other columns as NULL",
        default="fail",
        outputs=DECODED,
    )
    verify_checksum: Literal["off", "warn", "fail"] = option(
        "verifyChecksum",
        parsers.one_of("off", "warn", "fail"),
        "checksums of rows of simple and avro (`integrity-check-level=correctness`): `warn` logs and counts rows that "
        "do not match theirs, `fail` makes them bad records",
        default="off",
        outputs=DECODED,
    )

    debezium_binary_handling_mode: Literal["base64", "base64-url-safe", "hex", "bytes"] | None = option(
        "debezium.binaryHandlingMode",
        parsers.one_of("base64", "base64-url-safe", "hex", "bytes"),
        "`debezium-binary-handling-mode` of the changefeed: how debezium's texts hold binary values, which no message "
        "tells. By default they are read as base64, with a warning for a column that may be hex",
        outputs=DECODED,
    )

    # Files of a storage sink

    terminator: str | None = option(
        "terminator",
        parsers.delimiter,
        "`terminator` of the sink, which ends a row in a file of `path`. By default `\\r\\n`, and in JSON also `\\n`",
    )
    csv_delimiter: str = option(
        "csv.delimiter", parsers.delimiter, "`delimiter` of the sink's CSV, between two fields", default=","
    )
    csv_quote: str = option(
        "csv.quote", parsers.quote, "`quote` of the sink's CSV, around text; may be empty", default='"'
    )
    csv_null: str = option("csv.null", parsers.text, "`null` of the sink's CSV, which stands for NULL", default="\\N")
    csv_include_commit_ts: bool = option(
        "csv.includeCommitTs", parsers.boolean, "`include-commit-ts` of the sink's CSV", default="true"
    )
    csv_output_old_value: bool | None = option(
        "csv.outputOldValue",
        parsers.boolean,
        "`output-old-value` of the sink's CSV; by default the rows tell it, unless `csv.quote` is empty",
    )
    csv_binary_encoding_method: Literal["base64", "hex"] = option(
        "csv.binaryEncodingMethod",
        parsers.one_of("base64", "hex"),
        "`binary-encoding-method` of the sink's CSV",
        default="base64",
    )

    # The schema registry, of Avro messages

    schema_registry_url: tuple[str, ...] | None = option(
        "schema.registry.url",
        parsers.registry_urls,
        "URLs of a schema registry with Confluent's API, comma-separated, for example `http://registry:8081`; a user "
        "and a password may be in them",
        secret=True,
    )
    basic_auth_user_info: Secret | None = option(
        "basic.auth.user.info", parsers.user_info, "`user:password` for the schema registry", secret=True
    )
    bearer_auth_token: Secret | None = option(
        "bearer.auth.token", parsers.secret, "bearer token for the schema registry", secret=True
    )
    schema_registry_ssl_truststore_location: str | None = option(
        "schema.registry.ssl.truststore.location",
        parsers.stripped,
        "file with the certificates that the schema registry's is checked against: PEM or PKCS #12",
    )
    schema_registry_ssl_truststore_password: Secret | None = option(
        "schema.registry.ssl.truststore.password", Secret, "password of that file", secret=True
    )
    schema_registry_ssl_keystore_location: str | None = option(
        "schema.registry.ssl.keystore.location",
        parsers.stripped,
        "file with the certificate and the key by which the schema registry knows this client",
    )
    schema_registry_ssl_keystore_password: Secret | None = option(
        "schema.registry.ssl.keystore.password", Secret, "password of that file", secret=True
    )
    schema_registry_ssl_key_password: Secret | None = option(
        "schema.registry.ssl.key.password", Secret, "password of the key in that file", secret=True
    )
    proxy_host: str | None = option(
        "proxy.host",
        parsers.stripped,
        "HTTP proxy for the schema registry; by default that of the environment (`HTTPS_PROXY`, `NO_PROXY`)",
    )
    proxy_port: int = option("proxy.port", parsers.integer(1), "port of that proxy", default="8080")
    http_connect_timeout_ms: int = option(
        "http.connect.timeout.ms",
        parsers.duration_ms,
        "time to connect to the schema registry, in milliseconds",
        default="10000",
    )
    http_read_timeout_ms: int = option(
        "http.read.timeout.ms",
        parsers.duration_ms,
        "time that the schema registry has for an answer, in milliseconds",
        default="10000",
    )
    glue_region: str | None = option(
        "glue.region",
        parsers.stripped,
        "region of AWS Glue Schema Registry, if AWS's own configuration does not say it",
    )
    glue_endpoint: str | None = option(
        "glue.endpoint", parsers.stripped, "URL of AWS Glue, instead of that of the region"
    )

    # Kafka

    fetch_offset_num_retries: int = option(
        "fetchOffset.numRetries", parsers.integer(0), "maximum number of retries of an offset look-up", default="3"
    )
    fetch_offset_retry_interval_ms: int = option(
        "fetchOffset.retryIntervalMs",
        parsers.duration_ms,
        "time to wait before each retry, in milliseconds",
        default="1000",
    )
    fetch_offset_min_interval_ms: int = option(
        "fetchOffset.minIntervalMs",
        parsers.duration_ms,
        "how long the result of an offset look-up is reused, in milliseconds",
        default="200",
        only="stream",
    )
    kafka_consumer_poll_timeout_ms: int = option(
        "kafkaConsumer.pollTimeoutMs",
        parsers.duration_ms,
        "the read fails if no record arrives for this time, in milliseconds",
        default="120000",
    )
    broker_timeout_ms: int = option(
        "brokerTimeoutMs",
        parsers.duration_ms,
        "how long a stream that has reached its brokers once waits for brokers that do not answer, in milliseconds. "
        "Until then, and in batch reads, it is `kafka.default.api.timeout.ms`",
        default="300000",
        only="stream",
    )
    group_id_prefix: str | None = option(
        "groupIdPrefix",
        parsers.text,
        "prefix of the client id that brokers see; there is no group id, as the source joins no consumer group",
    )

    # Output and monitoring

    max_rows_per_batch: int = option(
        "maxRowsPerBatch", parsers.integer(1), "maximum number of rows in an Arrow record batch", default="8192"
    )
    max_bytes_per_batch: int = option(
        "maxBytesPerBatch",
        parsers.size_bytes,
        "approximate maximum size of an Arrow record batch in bytes; exceeded if a single Kafka record is larger",
        default="32m",
    )
    commit_group_offsets: bool = option(
        "commitGroupOffsets",
        parsers.boolean,
        "`true` commits the offsets of finished micro-batches to the group `kafka.group.id`, for monitoring; best "
        "effort",
        default="false",
        only="stream",
    )
    metrics_path: str | None = option(
        "metricsPath",
        parsers.metrics_folder,
        "path, or URI such as `s3://…`, of a folder: one JSON line of counters per topic partition and micro-batch",
        secret=True,
    )
    native_code: Literal["auto", "off", "require"] = option(
        "nativeCode",
        parsers.one_of("auto", "off", "require"),
        "the native path: `auto` takes it where it is installed, `off` never, `require` fails without it",
        default="auto",
    )
    strict_options: bool = option(
        "strictOptions",
        parsers.boolean,
        "`true` makes every unknown option an error; `false` only those that are nearly the name of one",
        default="false",
    )

    @classmethod
    def of(cls, given: Mapping[str, str], *, from_kafka: bool = True) -> Options:
        """Parse and check options by name, in any case; without brokers and topics if records come from elsewhere.

        Raises:
            OptionError: A value does not parse, options contradict one another, or a required one is missing.
        """
        lowered = {name.lower(): str(value) for name, value in given.items()}
        # Any: each value has its own type, which `option` ties to the annotation of its field.
        parsed: dict[str, Any] = {
            attribute: row.value_of(lowered[row.name.lower()])
            for attribute, row in OPTIONS.items()
            if row.name.lower() in lowered
        }
        if parsed.get("on_schema_drift") == "rescue":
            parsed.setdefault("rescued_data_column", "_rescued_data")
        kafka = {name.removeprefix("kafka."): value for name, value in lowered.items() if name.startswith("kafka.")}
        options = cls(given=frozenset(lowered), kafka=kafka, **parsed)
        if options.path is not None:
            check_files(options)
        elif from_kafka:
            check_kafka(options)
        check_output(options, OPTIONS.values())
        return options

    def __repr__(self) -> str:
        """Return the names that were given, without values: some may be secrets."""
        return f"Options({', '.join(sorted(self.given))})"

    @property
    def is_typed(self) -> bool:
        """Whether the columns of `outputFormat` are those of a table."""
        return self.output_format in TYPED

    def is_given(self, name: str) -> bool:
        """Return whether the option was given, in any case."""
        return name.lower() in self.given


# The table of options by attribute, in the order of docs/reference/options.md.
OPTIONS: Mapping[str, Option] = {
    field.name: field.metadata["option"] for field in dataclasses.fields(Options) if "option" in field.metadata
}

_BY_NAME = {row.name.lower(): row for row in OPTIONS.values()}


def applies_to_records(name: str) -> bool:
    """Return whether an option, in any case, applies to `outputFormat=record`; one without a meaning does."""
    row = _BY_NAME.get(name.lower())
    return row is None or "record" in row.outputs
