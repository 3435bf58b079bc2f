"""Options that contradict one another, or that are missing: those of topics, of files, and of each output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from ticdc_source.errors import OptionError
from ticdc_source.options.option import Option

__all__ = ["check_files", "check_kafka", "check_output"]

# Options that only topics have, beside `kafka.*`.
_OF_TOPICS = (
    "assign",
    "brokerTimeoutMs",
    "commitGroupOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "groupIdPrefix",
    "includeHeaders",
    "kafkaConsumer.pollTimeoutMs",
    "maxRecordsPerPartition",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "subscribe",
    "subscribePattern",
)

# What to do instead of setting an option that does not apply to `outputFormat=event`.
_ROWS_ARE_WHOLE = "Its JSON has every column that a message has"
_INSTEAD = {
    "columns": f"{_ROWS_ARE_WHOLE}: select members of it with get_json_object or from_json",
    "schemaHints": "Its rows are JSON of many tables: give types with 'tableDDL', which names the table",
    "unspecifiedDecimal": "Its JSON has all digits of a decimal",
    "zeroDate": "Its JSON has zero dates as text",
    "onSchemaDrift": f"{_ROWS_ARE_WHOLE}, so nothing drifts",
    "rescuedDataColumn": f"{_ROWS_ARE_WHOLE}, so nothing needs rescue",
}


class _Options(Protocol):
    """What is checked of `Options`, which imports this module."""

    def is_given(self, name: str) -> bool: ...
    @property
    def kafka(self) -> Mapping[str, str]: ...
    @property
    def output_format(self) -> str: ...
    @property
    def ending_commit_ts(self) -> int | str | None: ...
    @property
    def starting_offsets(self) -> object: ...
    @property
    def ending_offsets(self) -> object: ...
    @property
    def commit_group_offsets(self) -> bool: ...
    @property
    def subscribe(self) -> str | None: ...
    @property
    def subscribe_pattern(self) -> str | None: ...
    @property
    def assign(self) -> object: ...


def check_output(options: _Options, rows: Iterable[Option]) -> None:
    """Refuse options that do not apply to `outputFormat`, and options of batch reads beside options of streams.

    Raises:
        OptionError: there are such options.
    """
    given = [row for row in rows if options.is_given(row.name)]
    for row in given:
        if options.output_format not in row.outputs:
            msg = (
                f"Option '{row.name}' applies to outputFormat={', '.join(row.outputs)}, not to "
                f"{options.output_format}. {_INSTEAD.get(row.name, 'Leave it out, or choose another outputFormat')}"
            )
            raise OptionError(msg)
    batch, stream = ([row.name for row in given if row.only == kind] for kind in ("batch", "stream"))
    if options.ending_commit_ts == "resolved":
        batch.append("endingCommitTs=resolved")
    if batch and stream:
        msg = f"Option '{batch[0]}' is for batch reads only, and '{stream[0]}' for streams only: leave one out"
        raise OptionError(msg)


def check_files(options: _Options) -> None:
    """Refuse options of topics beside `path`.

    Raises:
        OptionError: there is one.
    """
    kafka = [f"kafka.{name}" for name in options.kafka]
    refused = kafka + [name for name in _OF_TOPICS if options.is_given(name)]
    bounds = {"startingOffsets": options.starting_offsets, "endingOffsets": options.ending_offsets}
    by_name = [name for name, value in bounds.items() if not isinstance(value, str)]
    if refused or by_name:
        msg = (
            f"Option '{(refused + by_name)[0]}' is for topics of Kafka, and 'path' is a folder with files of a "
            "storage sink: leave one of them out"
        )
        raise OptionError(msg)


def check_kafka(options: _Options) -> None:
    """Refuse a read of topics without brokers or topics.

    Raises:
        OptionError: it lacks one of them.
    """
    if not options.kafka.get("bootstrap.servers", "").strip():
        msg = (
            "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer; for files of a storage "
            "sink it is 'path'. (Spark does not keep the options of CREATE TABLE … USING ticdc: use CREATE TEMPORARY "
            "VIEW, or spark.read.option(…))"
        )
        raise OptionError(msg)
    if options.commit_group_offsets and not options.kafka.get("group.id"):
        msg = "Option 'commitGroupOffsets' needs 'kafka.group.id', the group to commit to"
        raise OptionError(msg)
    choices = {"subscribe": options.subscribe, "subscribePattern": options.subscribe_pattern, "assign": options.assign}
    chosen = [name for name, value in choices.items() if value is not None]
    if len(chosen) != 1:
        begin = "Only one of the following options can" if chosen else "One of the following options must"
        end = f"Given: {', '.join(chosen)}." if chosen else "The command 'ticdc-source options' lists all."
        msg = f"{begin} be specified for Kafka source: {', '.join(choices)}. {end}"
        raise OptionError(msg)
