"""The options of one read, parsed and checked by the table of options.

Spark hands option names over in lower case; names are compared without case everywhere.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ticdc_source.errors import OptionError
from ticdc_source.options.parsers import (
    TIMES_EXAMPLE,
    boolean,
    duration_ms,
    folder,
    integer,
    integer_or,
    json_object,
    names,
    offsets_or,
    one_of,
    size_bytes,
    subset_of,
    tables,
    text,
    time_zone,
)

__all__ = ["OPTIONS", "Option", "Options", "options_table"]


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        name: the name as documented.
        default: the default as the README prints it ("" for none).
        parse: text to value; raises ValueError with a sentence that does not repeat the option's name.
        meaning: one line for the README.
        attribute: the attribute of `Options` that holds the value.
        stream_only: ignored, with a warning, by batch reads.
    """

    name: str
    default: str
    parse: Callable[[str], Any]
    meaning: str
    attribute: str
    stream_only: bool = False


def _row(name: str, default: str, parse: Callable[[str], Any], meaning: str, *, stream_only: bool = False) -> Option:
    attribute = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).replace(".", "_").lower()
    return Option(name, default, parse, meaning, attribute, stream_only)


OPTIONS: tuple[Option, ...] = (
    _row(
        "assign",
        "",
        json_object('{"topicA":[0,1],"topicB":[0,1]}'),
        'topic partitions to read, as JSON: `{"topicA":[0,1]}`',
    ),
    _row("subscribe", "", text, "topics to read, separated by commas"),
    _row("subscribePattern", "", text, "a regular expression that the whole topic name must match"),
    _row(
        "protocol",
        "auto",
        one_of("auto", "open-protocol", "canal-json", "debezium"),
        "TiCDC's `protocol`; `auto` looks at the first messages and refuses a mix",
    ),
    _row(
        "tables",
        "",
        tables,
        "`db.t, db2.*`; names with dots, commas or blanks in backticks. Needed where a topic holds several tables",
    ),
    _row(
        "outputFormat",
        "changelog",
        one_of("changelog", "envelope", "event"),
        "`changelog`: one table, one row per row image, flat and typed; `envelope`: one table, one row per event, "
        "with `before` and `after`; `event`: all tables, with DDL and watermarks, rows as JSON",
    ),
    _row(
        "startingOffsets",
        "earliest",
        offsets_or("earliest", "latest"),
        "`earliest`, `latest`, or JSON with every partition (-2 earliest, -1 latest); a stream starts at `latest` "
        "by default, a batch read refuses that",
    ),
    _row("startingTimestamp", "", integer(0), "start at the first record at or after this time, ms since the epoch"),
    _row("startingOffsetsByTimestamp", "", json_object(TIMES_EXAMPLE), "the same by partition, as JSON"),
    _row(
        "startingOffsetsByTimestampStrategy",
        "error",
        one_of("error", "latest"),
        "what to do where no record is that young",
    ),
    _row(
        "endingOffsets",
        "latest",
        offsets_or("latest", "earliest"),
        "`latest`, or JSON with every partition (-1 latest); batch only",
    ),
    _row("endingTimestamp", "", integer(0), "end before the first record at or after this time; batch only"),
    _row("endingOffsetsByTimestamp", "", json_object(TIMES_EXAMPLE), "the same by partition, as JSON; batch only"),
    _row("startingCommitTs", "", integer(0), "only what has this commit-ts or a later one; looked at after decoding"),
    _row(
        "endingCommitTs",
        "",
        integer_or("resolved", at_least=1),
        "only what has an earlier commit-ts; `resolved` (batch only): earlier than the smallest, over the topic "
        "partitions, of each one's largest watermark, so that no transaction is cut",
    ),
    _row(
        "failOnDataLoss",
        "true",
        boolean,
        "fail where records of the range are gone; `false` warns and reads what is left",
    ),
    _row(
        "maxOffsetsPerTrigger", "", integer(1), "offsets of a micro-batch at most, shared by backlog", stream_only=True
    ),
    _row("minOffsetsPerTrigger", "", integer(1), "wait for so many offsets before a micro-batch", stream_only=True),
    _row("maxTriggerDelay", "15m", duration_ms, "how long to wait for those", stream_only=True),
    _row("minPartitions", "", integer(1), "split the ranges into at least so many input partitions"),
    _row("maxRecordsPerPartition", "", integer(1), "split ranges with more offsets than this"),
    _row("preimages", "true", boolean, "`false` drops `update_preimage` rows (AUTO CDC must not see them)"),
    _row(
        "operations", "insert,update,delete", subset_of("insert", "update", "delete"), "only rows of these operations"
    ),
    _row("columns", "", names, "only these table columns, separated by commas"),
    _row(
        "includeMetadata",
        "core",
        one_of("core", "kafka", "all"),
        "`kafka` adds `_topic _partition _offset _timestamp _key`; `all` adds "
        "`_database _table _protocol _build_ts _cluster_id _value` too",
    ),
    _row("includeHeaders", "false", boolean, "adds `_headers`, the Kafka headers"),
    _row("metadataColumnPrefix", "_", text, "replaces the underscore before the metadata columns' names"),
    _row(
        "inferSchema.maxRecords",
        "1000",
        integer(1),
        "rows of the wanted table to infer the schema from, half from each end of the range",
    ),
    _row("inferSchema.maxScannedRecords", "100000", integer(1), "records to scan for those rows at most"),
    _row("inferSchema.timeoutMs", "10000", duration_ms, "time to spend on that at most"),
    _row("schemaHints", "", text, "types for some columns, in Spark's DDL: `amount decimal(10,2), flag boolean`"),
    _row(
        "tableDDL",
        "",
        text,
        "`CREATE TABLE` texts, as `SHOW CREATE TABLE` prints them: precisions, labels and lengths that the wire lacks",
    ),
    _row(
        "unspecifiedDecimal",
        "",
        text,
        "type of DECIMAL columns whose precision is not on the wire, such as `decimal(20,4)` or `string`",
    ),
    _row(
        "variantJson",
        "false",
        boolean,
        "`true` reads json columns, and the JSON of `outputFormat=event`, as Spark's VARIANT",
    ),
    _row("timeZone", "UTC", time_zone, "the `--tz` of the TiCDC server: TIMESTAMP texts are in it, unmarked"),
    _row("zeroDate", "null", one_of("null", "fail"), "what to do with zero and invalid dates such as `0000-00-00`"),
    _row(
        "invalidUtf8",
        "replace",
        one_of("replace", "fail"),
        "what to do with text that is not UTF-8: put U+FFFD for each bad byte, counted; or fail",
    ),
    _row(
        "mode",
        "FAILFAST",
        one_of("FAILFAST", "PERMISSIVE", "DROPMALFORMED"),
        "for a record that cannot be read or a value that does not fit: fail; keep it in a row of its own; "
        "or drop, count and log it",
    ),
    _row("columnNameOfCorruptRecord", "_corrupt_record", text, "the column that `PERMISSIVE` adds"),
    _row(
        "onSchemaDrift",
        "fail",
        one_of("fail", "ignore", "rescue"),
        "what to do with a column that the schema lacks: fail; leave it out; or keep its values, and "
        "such as do not fit their column's type, as JSON in the rescued column",
    ),
    _row(
        "rescuedDataColumn",
        "",
        text,
        "a column for what is rescued, `_rescued_data` with `onSchemaDrift=rescue`; it "
        "also keeps the bytes of text that is not UTF-8",
    ),
    _row(
        "onDestructiveDDL",
        "warn",
        one_of("warn", "fail", "ignore"),
        "what to do at a DDL that removes rows without delete events: DROP TABLE, TRUNCATE, DROP, TRUNCATE or "
        "EXCHANGE PARTITION, DROP DATABASE",
    ),
    _row(
        "valueCompression",
        "auto",
        one_of("auto", "none", "snappy", "lz4"),
        "TiCDC's `large-message-handle-compression`; `auto` tells by the first bytes of each message",
    ),
    _row("claimCheckLocation", "", folder, "the folder of TiCDC's claim-check files: a path, or a URL of fsspec"),
    _row("onHandleKeyOnly", "fail", one_of("fail", "null"), "messages with key columns only: fail, or read NULLs"),
    _row("fetchOffset.numRetries", "3", integer(0), "how often to retry an offset look-up"),
    _row("fetchOffset.retryIntervalMs", "1000", duration_ms, "wait between those"),
    _row("fetchOffset.minIntervalMs", "200", duration_ms, "how long an offset look-up is good for", stream_only=True),
    _row("kafkaConsumer.pollTimeoutMs", "120000", duration_ms, "fail when no record comes for this long"),
    _row("groupIdPrefix", "", text, "prefix of the client id that the brokers see (no consumer group is joined)"),
    _row("maxRowsPerBatch", "8192", integer(1), "rows in an Arrow record batch at most"),
    _row(
        "maxBytesPerBatch",
        "32m",
        size_bytes,
        "about how many bytes an Arrow record batch holds at most, one Kafka record excepted",
    ),
    _row(
        "commitGroupOffsets",
        "false",
        boolean,
        "commit what a stream has finished to the group `kafka.group.id`, for monitoring; best effort",
        stream_only=True,
    ),
    _row("metricsPath", "", text, "a folder that gets a JSON line per topic partition and micro-batch"),
    _row("strictOptions", "false", boolean, "`true` makes an unknown option an error"),
)


def options_table() -> str:
    """Return README's table of options."""
    lines = ["| option | default | meaning |", "|---|---|---|"]
    lines.append("| `kafka.bootstrap.servers` | required | brokers, `host:port` separated by commas |")
    lines.append(
        "| `kafka.*` | | passed to the Kafka client under its Java name; settings the source owns are refused |"
    )
    lines += [
        f"| `{option.name}` | {f'`{option.default}`' if option.default else ''} | {option.meaning} |"
        for option in OPTIONS
    ]
    return "\n".join(lines)


# What Spark itself puts among the options: `load(path)`, and the noise of CREATE TABLE.
_SPARK_NOISE = re.compile(r"^(option\..*|owner|provider|__.*)$")


_BY_LOWER = {option.name.lower(): option for option in OPTIONS}


class Options(Mapping[str, Any]):
    """The options of one read: parsed, checked, and safe to print (values of `kafka.*` are never shown).

    Every option is an attribute, in snake case: `options.starting_offsets`; an option that was not given has
    its default's value, or None where there is no default. `kafka` holds what followed `kafka.`, by lower-case
    Java name. As a mapping it holds the parsed values by documented name.

    Raises:
        OptionError: a value does not parse, or `strictOptions` is on and a name is unknown.
    """

    kafka: Mapping[str, str]

    def __init__(self, given: Mapping[str, str]) -> None:
        lowered = {name.lower(): str(value) for name, value in given.items()}
        self.given = frozenset(lowered)
        self.kafka = {
            name.removeprefix("kafka."): value for name, value in lowered.items() if name.startswith("kafka.")
        }
        self._values: dict[str, Any] = {}
        for option in OPTIONS:
            value_text = lowered.get(option.name.lower())
            if value_text is None:
                value = option.parse(option.default) if option.default else None
            else:
                value = _parsed(option, value_text)
            self._set(option, value)
        if self._values["onSchemaDrift"] == "rescue" and self._values["rescuedDataColumn"] is None:
            self._set(_BY_LOWER["rescueddatacolumn"], "_rescued_data")
        self._report_unknown(lowered)
        self._cross_check()

    def _set(self, option: Option, value: Any) -> None:
        self._values[option.name] = value
        setattr(self, option.attribute, value)

    def __getattr__(self, name: str) -> Any:
        """Fail for an attribute that no row of `OPTIONS` makes (the others are set by `__init__`)."""
        raise AttributeError(name)

    def __getitem__(self, name: str) -> Any:
        """Return the parsed value of the option with this documented name."""
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the documented names."""
        return iter(self._values)

    def __len__(self) -> int:
        """Return the number of options there are."""
        return len(self._values)

    def __repr__(self) -> str:
        """Name what was given; no values, as some may be secrets."""
        return f"Options({', '.join(sorted(self.given))})"

    def is_given(self, name: str) -> bool:
        """Tell whether the option was given, in any case."""
        return name.lower() in self.given

    def _report_unknown(self, lowered: Mapping[str, str]) -> None:
        for name in sorted(lowered):
            if name in _BY_LOWER or name.startswith("kafka.") or _SPARK_NOISE.match(name):
                continue
            near = difflib.get_close_matches(name, [*_BY_LOWER, "kafka.bootstrap.servers"], n=1)
            known = _BY_LOWER[near[0]].name if near and near[0] in _BY_LOWER else (near[0] if near else None)
            hint = f"; did you mean '{known}'?" if known else "; see the README for the options there are"
            message = f"Unknown option '{name}'{hint}"
            if self.strict_options:
                raise OptionError(message)
            warnings.warn(message, stacklevel=4)

    def _cross_check(self) -> None:
        if not self.kafka.get("bootstrap.servers", "").strip():
            msg = (
                "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer. (Spark does not "
                "keep the options of CREATE TABLE … USING ticdc: use CREATE TEMPORARY VIEW, or spark.read.option(…))"
            )
            raise OptionError(msg)
        if self.commit_group_offsets and not self.kafka.get("group.id"):
            msg = "Option 'commitGroupOffsets' needs 'kafka.group.id', the group to commit to"
            raise OptionError(msg)
        chosen = [name for name in ("subscribe", "subscribePattern", "assign") if self._values[name] is not None]
        if not chosen:
            msg = (
                "One of the following options must be specified for Kafka source: subscribe, subscribePattern, "
                "assign. See the docs for more details."
            )
            raise OptionError(msg)
        if len(chosen) > 1:
            msg = (
                "Only one of the following options can be specified for Kafka source: subscribe, "
                f"subscribePattern, assign. Given: {', '.join(chosen)}."
            )
            raise OptionError(msg)


def _parsed(option: Option, given: str) -> Any:
    try:
        return option.parse(given)
    except ValueError as error:
        if str(error) == "must be positive":
            msg = f"{option.name} must be positive, got {given}"
        elif "got " in str(error):
            msg = f"Option '{option.name}': {error}"
        else:
            msg = f"Option '{option.name}': {error}, got '{given}'"
        raise OptionError(msg) from None
