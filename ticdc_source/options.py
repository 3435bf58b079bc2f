"""The options: one row each, from which parsing, checking, errors and README's table all come.

Names and wording are those of Spark's Kafka source wherever the meaning is the same (Structured Streaming +
Kafka Integration Guide, section "Creating a Kafka Source"). Spark hands option names over in lower case;
names are compared without case everywhere.
"""

from __future__ import annotations

import difflib
import json
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ticdc_source.errors import OptionError

__all__ = ["OPTIONS", "Option", "Options", "options_table"]

# What Spark itself puts among the options: `load(path)`, and the noise of CREATE TABLE (spark.md §2.7).
_SPARK_NOISE = re.compile(r"^(option\..*|owner|provider|__.*)$")
_DURATION = re.compile(r"^(\d+)\s*(ms|s|m|min|h|d)?$")
_DURATION_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, None: 1}
_SIZE = re.compile(r"^(\d+)\s*(b|k|kb|m|mb|g|gb)?$")
_SIZE_BYTES = {None: 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}
_FIXED_OFFSET = re.compile(r"^[+-]\d{2}:\d{2}$")


def _text(value: str) -> str:
    return value


def _boolean(value: str) -> bool:
    lowered = value.strip().lower()
    if lowered not in ("true", "false"):
        msg = "expected true or false"
        raise ValueError(msg)
    return lowered == "true"


def _integer(minimum: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            msg = "Expected a single long value"
            raise ValueError(msg) from None
        if number < minimum:
            msg = "must be positive" if minimum == 1 else f"must be at least {minimum}"
            raise ValueError(msg)
        return number

    return parse


def _duration_ms(value: str) -> int:
    match = _DURATION.match(value.strip().lower())
    if match is None:
        msg = "expected a duration such as 500ms, 30s or 15m"
        raise ValueError(msg)
    return int(match[1]) * _DURATION_MS[match[2]]


def _size_bytes(value: str) -> int:
    match = _SIZE.match(value.strip().lower())
    if match is None or int(match[1]) == 0:
        msg = "expected a size such as 512k, 32m or 1g"
        raise ValueError(msg)
    return int(match[1]) * _SIZE_BYTES[match[2]]


def _one_of(*choices: str) -> Callable[[str], str]:
    by_lower = {choice.lower(): choice for choice in choices}

    def parse(value: str) -> str:
        choice = by_lower.get(value.strip().lower())
        if choice is None:
            near = difflib.get_close_matches(value.strip().lower(), by_lower, n=1)
            hint = f"; did you mean {by_lower[near[0]]}?" if near else ""
            msg = f"expected one of {', '.join(choices)}{hint}"
            raise ValueError(msg)
        return choice

    return parse


def _subset_of(*choices: str) -> Callable[[str], frozenset[str]]:
    one = _one_of(*choices)

    def parse(value: str) -> frozenset[str]:
        chosen = frozenset(one(part) for part in value.split(",") if part.strip())
        if not chosen:
            msg = f"expected some of {', '.join(choices)}"
            raise ValueError(msg)
        return chosen

    return parse


def split_names(value: str, separators: str = ",") -> list[str]:
    """Split a list of names; a name in backticks may hold commas, dots and blanks (`` doubles a backtick).

    With `separators=","` each returned item keeps its backticks; blanks around items are dropped.

    Raises:
        ValueError: a backtick is not closed.
    """
    items, start, quoted = [], 0, False
    for place, char in enumerate(value):
        if char == "`":
            quoted = not quoted
        elif char in separators and not quoted:
            items.append(value[start:place])
            start = place + 1
    if quoted:
        msg = f"a backtick is not closed in {value!r}"
        raise ValueError(msg)
    items.append(value[start:])
    return [item.strip() for item in items if item.strip()]


def unquote_name(name: str) -> str:
    """Take a name out of its backticks."""
    if len(name) >= 2 and name[0] == name[-1] == "`":  # noqa: PLR2004 (a pair)
        return name[1:-1].replace("``", "`")
    return name


def _names(value: str) -> tuple[str, ...]:
    names = tuple(unquote_name(part) for part in split_names(value))
    if not names:
        msg = "expected at least one name"
        raise ValueError(msg)
    return names


def _tables(value: str) -> tuple[tuple[str, str], ...]:
    patterns = []
    for item in split_names(value):
        parts = [unquote_name(part) for part in split_names(item, separators=".")]
        if len(parts) != 2:  # noqa: PLR2004 (database and table)
            msg = f"{item!r} is not of the form database.table; put names with dots, commas or blanks in backticks"
            raise ValueError(msg)
        patterns.append((parts[0], parts[1]))
    if not patterns:
        msg = "expected database.table, or database.*"
        raise ValueError(msg)
    return tuple(patterns)


def _time_zone(value: str) -> str:
    zone = value.strip()
    if _FIXED_OFFSET.match(zone):
        return zone
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        msg = "expected the --tz of the TiCDC server, a name such as Asia/Shanghai or an offset such as +08:00"
        raise ValueError(msg) from None
    return zone


def _json_object(example: str) -> Callable[[str], dict[str, Any]]:
    def parse(value: str) -> dict[str, Any]:
        try:
            parsed = json.loads(value)
        except json.JSONDecodeError:
            parsed = None
        if not isinstance(parsed, dict):
            msg = f"Expected e.g. {example}, got {value}"
            raise ValueError(msg)  # noqa: TRY004 (every parser of this table raises ValueError)
        return parsed

    return parse


_OFFSETS = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_TIMES = '{"topicA":{"0":1700000000000},"topicB":{"0":1700000000000}}'


def _offsets_or(*words: str) -> Callable[[str], Any]:
    """Parse `earliest`, `latest` or JSON; the text is checked here, its partitions against the brokers later."""

    def parse(value: str) -> Any:
        word = value.strip().lower()
        if word in words:
            return word
        return _json_object(_OFFSETS)(value)

    return parse


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


def _row(
    name: str, default: str, parse: Callable[[str], Any], meaning: str, *, stream_only: bool = False
) -> Option:
    attribute = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).replace(".", "_").lower()
    return Option(name, default, parse, meaning, attribute, stream_only)


OPTIONS: tuple[Option, ...] = (
    _row("assign", "", _json_object('{"topicA":[0,1],"topicB":[0,1]}'),
         'topic partitions to read, as JSON: `{"topicA":[0,1]}`'),
    _row("subscribe", "", _text, "topics to read, separated by commas"),
    _row("subscribePattern", "", _text, "a regular expression that the whole topic name must match"),
    _row("protocol", "auto", _one_of("auto", "open-protocol", "canal-json", "debezium"),
         "TiCDC's `protocol`; `auto` looks at the first messages and refuses a mix"),
    _row("tables", "", _tables,
         "`db.t, db2.*`; names with dots, commas or blanks in backticks. Needed where a topic holds several tables"),
    _row("outputFormat", "changelog", _one_of("changelog"), "`changelog`: one table, one row per row image, flat and typed"),
    _row("startingOffsets", "earliest", _offsets_or("earliest", "latest"),
         "`earliest`, or JSON with every partition (-2 earliest, -1 latest); batch reads refuse latest"),
    _row("startingTimestamp", "", _integer(0), "start at the first record at or after this time, ms since the epoch"),
    _row("startingOffsetsByTimestamp", "", _json_object(_TIMES), "the same by partition, as JSON"),
    _row("startingOffsetsByTimestampStrategy", "error", _one_of("error", "latest"),
         "what to do where no record is that young"),
    _row("endingOffsets", "latest", _offsets_or("latest", "earliest"), "`latest`, or JSON with every partition (-1 latest); batch only"),
    _row("endingTimestamp", "", _integer(0), "end before the first record at or after this time; batch only"),
    _row("endingOffsetsByTimestamp", "", _json_object(_TIMES), "the same by partition, as JSON; batch only"),
    _row("failOnDataLoss", "true", _boolean, "fail where records of the range are gone; `false` warns and reads what is left"),
    _row("minPartitions", "", _integer(1), "split the ranges into at least so many input partitions"),
    _row("maxRecordsPerPartition", "", _integer(1), "split ranges with more offsets than this"),
    _row("preimages", "true", _boolean, "`false` drops `update_preimage` rows (AUTO CDC must not see them)"),
    _row("operations", "insert,update,delete", _subset_of("insert", "update", "delete"), "only rows of these operations"),
    _row("columns", "", _names, "only these table columns, separated by commas"),
    _row("includeMetadata", "core", _one_of("core", "kafka", "all"),
         "`kafka` adds `_topic _partition _offset _timestamp _key`; `all` adds `_database _table _protocol _build_ts _cluster_id _value` too"),
    _row("includeHeaders", "false", _boolean, "adds `_headers`, the Kafka headers"),
    _row("metadataColumnPrefix", "_", _text, "replaces the underscore before the metadata columns' names"),
    _row("inferSchema.maxRecords", "1000", _integer(1),
         "rows of the wanted table to infer the schema from, half from each end of the range"),
    _row("inferSchema.maxScannedRecords", "100000", _integer(1), "records to scan for those rows at most"),
    _row("inferSchema.timeoutMs", "10000", _duration_ms, "time to spend on that at most"),
    _row("schemaHints", "", _text, "types for some columns, in Spark's DDL: `amount decimal(10,2), flag boolean`"),
    _row("unspecifiedDecimal", "", _text,
         "type of DECIMAL columns whose precision is not on the wire, such as `decimal(20,4)` or `string`"),
    _row("timeZone", "UTC", _time_zone, "the `--tz` of the TiCDC server: TIMESTAMP texts are in it, unmarked"),
    _row("zeroDate", "null", _one_of("null", "fail"), "what to do with zero and invalid dates such as `0000-00-00`"),
    _row("invalidUtf8", "replace", _one_of("replace", "fail"), "what to do with text that is not UTF-8"),
    _row("mode", "FAILFAST", _one_of("FAILFAST", "PERMISSIVE", "DROPMALFORMED"),
         "for a record that cannot be read or a value that does not fit: fail; keep it in a row of its own; or drop, count and log it"),
    _row("columnNameOfCorruptRecord", "_corrupt_record", _text, "the column that `PERMISSIVE` adds"),
    _row("onSchemaDrift", "fail", _one_of("fail", "ignore"), "what to do with a column that the schema lacks"),
    _row("fetchOffset.numRetries", "3", _integer(0), "how often to retry an offset look-up"),
    _row("fetchOffset.retryIntervalMs", "1000", _duration_ms, "wait between those"),
    _row("kafkaConsumer.pollTimeoutMs", "120000", _duration_ms, "fail when no record comes for this long"),
    _row("groupIdPrefix", "", _text, "prefix of the consumer group's name, where `kafka.group.id` is not set"),
    _row("maxRowsPerBatch", "8192", _integer(1), "rows in an Arrow record batch at most"),
    _row("maxBytesPerBatch", "32m", _size_bytes, "bytes of Kafka records behind a record batch at most, one record excepted"),
    _row("strictOptions", "false", _boolean, "`true` makes an unknown option an error"),
)

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
        lowered = {name.lower(): str(value) for name, value in given.items() if value is not None}
        self.given = frozenset(lowered)
        self.kafka = {
            name.removeprefix("kafka."): value for name, value in lowered.items() if name.startswith("kafka.")
        }
        self._values: dict[str, Any] = {}
        for option in OPTIONS:
            text = lowered.get(option.name.lower())
            if text is None:
                value = option.parse(option.default) if option.default else None
            else:
                value = _parsed(option, text)
            self._values[option.name] = value
            setattr(self, option.attribute, value)
        self._report_unknown(lowered)
        self._cross_check()

    def __getattr__(self, name: str) -> Any:
        """Fail for an attribute that no row of `OPTIONS` makes (the others are set by `__init__`)."""
        raise AttributeError(name)

    def __getitem__(self, name: str) -> Any:
        """Return the parsed value of the option with this documented name."""
        return self._values[name]

    def __iter__(self) -> Any:
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


def _parsed(option: Option, text: str) -> Any:
    try:
        return option.parse(text)
    except ValueError as error:
        if str(error) == "must be positive":
            raise OptionError(f"{option.name} must be positive, got {text}") from None
        raise OptionError(f"Option '{option.name}': {error}, got '{text}'" if "got " not in str(error)
                          else f"Option '{option.name}': {error}") from None


def options_table() -> str:
    """Return README's table of options."""
    lines = ["| option | default | meaning |", "|---|---|---|"]
    lines.append("| `kafka.bootstrap.servers` | required | brokers, `host:port` separated by commas |")
    lines.append(
        "| `kafka.*` | | passed to the Kafka client under its Java name; settings the source owns are refused |"
    )
    lines += [
        f"| `{option.name}` | {f'`{option.default}`' if option.default else ''} | {option.meaning.replace('|', chr(92) + '|')} |"
        for option in OPTIONS
    ]
    return "\n".join(lines)
