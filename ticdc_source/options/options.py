"""The options of one read, parsed and checked.

Spark passes option names in lower case, so names are compared without case everywhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ticdc_source.errors import OptionError
from ticdc_source.options.option import TYPED, Option, rows_of
from ticdc_source.options.table import OptionTable

OptionValue: TypeAlias = str | bool | int | float | None  # as a program gives one

# The advice for options that change typed columns, with `outputFormat=event`.
_ROWS_ARE_WHOLE = (
    "Its JSON has every column of a message, with zero dates and all digits: select fields with get_json_object or "
    "from_json, and supply types with 'tableDDL', which names the table"
)

# What follows an option's name in errors about options that do not apply to the kind of read.
_NOT_WITH_ROWS = (
    " is for messages, but snapshot=only reads rows from TiDB: leave one of them out. In a stream, snapshot=initial "
    "reads rows, then messages"
)
_NOT_WITH_FILES = " is for Kafka topics, but 'path' is a folder of storage sink files: leave one of them out"
_ONE_COMMIT_TS = ": all rows of snapshot=only have one commit-ts, that of 'snapshot.at': leave it out"
_FROM_THE_FIRST_ROW = ": snapshot=initial reads all rows, then all later changes: leave it out"
_NOT_WITH_INITIAL_SNAPSHOT = {
    "path": ": snapshot=initial continues with Kafka topics, not with files: leave one of them out",
    "snapshot.at": ": snapshot=initial reads TiDB as of the start of the stream: leave it out",
    "startingCommitTs": _FROM_THE_FIRST_ROW,
    "endingCommitTs": _FROM_THE_FIRST_ROW,
}


@dataclass(frozen=True, kw_only=True, repr=False)
class Options(OptionTable):
    """The options of one read; safe to print, as `repr` shows names only.

    Attributes:
        given: the given names, in lower case.
        kafka: the settings after `kafka.`, by lower-case name; they may be secrets.
    """

    given: frozenset[str]
    kafka: Mapping[str, str] = dataclasses.field(repr=False)
    is_stream: bool = False

    @classmethod
    def of(cls, given: Mapping[str, str], *, from_kafka: bool = True) -> Options:
        """Parse and check options, whose names may have any case; brokers and topics are required if `from_kafka`.

        Raises:
            OptionError: a value does not parse, options contradict one another, or a required one is missing.
        """
        lowered = {name.lower(): str(value) for name, value in given.items()}
        # Any: each value has its own type, which `option` ties to the annotation of its field.
        parsed: dict[str, Any] = {
            row.field: row.value_of(lowered[row.name.lower()]) for row in OPTIONS if row.name.lower() in lowered
        }
        if parsed.get("on_schema_drift") == "rescue":
            parsed.setdefault("rescued_data_column", "_rescued_data")
        kafka = {name.removeprefix("kafka."): value for name, value in lowered.items() if name.startswith("kafka.")}
        options = cls(given=frozenset(lowered), kafka=kafka, **parsed)
        rows = [row for row in OPTIONS if options.is_given(row.name)]
        for name, why in _refused(options, rows):
            raise OptionError(f"Option '{name}'{why}")
        if options.has_initial_snapshot:
            _check_kafka(options, [row for row in rows if "snapshot" not in row.scope.uses])
        elif from_kafka and not options.is_snapshot and options.path is None:
            _check_kafka(options, rows)
        _check_output(options, rows)
        _check_tidb(options, rows)
        return options

    def __repr__(self) -> str:
        return f"Options({', '.join(sorted(self.given))})"

    @property
    def is_typed(self) -> bool:
        """Whether the output has a table's columns."""
        return self.output_format in TYPED

    @property
    def is_snapshot(self) -> bool:
        return self.snapshot == "only"

    @property
    def has_initial_snapshot(self) -> bool:
        return self.snapshot == "initial"

    def is_given(self, name: str) -> bool:
        return name.lower() in self.given


def option_texts(options: Mapping[str, OptionValue]) -> dict[str, str]:
    """Return options as text, as `DataFrameReader.options` does; those that are None are left out."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
        if value is not None
    }


# The rows, in the order of docs/reference/options.md.
OPTIONS = rows_of(OptionTable)


def _check_output(options: Options, given: Iterable[Option]) -> None:
    for row in given:
        outputs = row.scope.outputs
        if options.output_format not in outputs:
            in_json = options.output_format == "event" and outputs == TYPED
            instead = _ROWS_ARE_WHOLE if in_json else "Leave it out, or choose another outputFormat"
            raise OptionError(
                f"Option '{row.name}' applies to outputFormat={', '.join(outputs)}, not to {options.output_format}. "
                f"{instead}"
            )
    batch, stream = ([row.name for row in given if row.only == kind] for kind in ("batch", "stream"))
    if options.ending_commit_ts == "resolved":
        batch.append("endingCommitTs=resolved")
    if batch and stream:
        raise OptionError(
            f"Option '{batch[0]}' is for batch reads only, and '{stream[0]}' for streams only: leave one out"
        )


def _refused(options: Options, given: Iterable[Option]) -> Iterator[tuple[str, str]]:
    """Yield options that do not apply to rows of TiDB or to files, and why."""
    kafka = [f"kafka.{name}" for name in options.kafka]
    names = {row.name: row.scope.uses for row in given}
    if options.is_snapshot:
        others = [name for name, uses in names.items() if "snapshot" not in uses]
        yield from ((name, _NOT_WITH_ROWS) for name in (*kafka, *others))
        yield from ((name, _ONE_COMMIT_TS) for name in names if name in ("startingCommitTs", "endingCommitTs"))
    elif options.has_initial_snapshot:
        reasons = _NOT_WITH_INITIAL_SNAPSHOT
        yield from ((name, reasons[name]) for name in names if name in reasons)
    elif options.path is not None:
        others = [name for name, uses in names.items() if "files" not in uses]
        bounds = {"startingOffsets": options.starting_offsets, "endingOffsets": options.ending_offsets}
        others += [name for name, value in bounds.items() if not isinstance(value, str)]
        yield from ((name, _NOT_WITH_FILES) for name in (*kafka, *others))


def _check_tidb(options: Options, given: Iterable[Option]) -> None:
    """Refuse incomplete options of TiDB, and TiDB for outputs without types."""
    if options.tidb_ssl_ca is not None and options.tidb_ssl_mode in ("disabled", "preferred", "required"):
        raise OptionError(
            f"Option 'tidb.ssl.ca': tidb.ssl.mode={options.tidb_ssl_mode} checks no certificate. Set verify_ca or "
            "verify_identity, or leave 'tidb.ssl.ca' out"
        )
    of_tidb = [row.name for row in given if row.name.startswith("tidb.")]
    if not of_tidb or options.snapshot != "off":
        return
    if options.tidb_url is None:
        raise OptionError(f"Option '{of_tidb[0]}' needs 'tidb.url', the host and port of a TiDB server")
    if not options.is_typed:
        raise OptionError(
            f"Option 'tidb.url' sets column types, but outputFormat={options.output_format} has no typed columns: "
            "leave it out; for JSON, 'tableDDL' supplies types"
        )


def _check_kafka(options: Options, given: Iterable[Option]) -> None:
    if not options.kafka.get("bootstrap.servers", "").strip():
        raise OptionError(
            "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer; for storage sink "
            "files, set 'path'. (Spark does not keep the options of CREATE TABLE … USING ticdc: use CREATE TEMPORARY "
            "VIEW, or spark.read.option(…))"
        )
    if options.commit_group_offsets and not options.kafka.get("group.id"):
        raise OptionError("Option 'commitGroupOffsets' needs 'kafka.group.id', the group to commit to")
    choices = {"subscribe": options.subscribe, "subscribePattern": options.subscribe_pattern, "assign": options.assign}
    chosen = [name for name, value in choices.items() if value is not None]
    if len(chosen) != 1:
        begin = "Only one of the following options can" if chosen else "One of the following options must"
        end = f"Given: {', '.join(chosen)}." if chosen else "The command 'ticdc-source options' lists all."
        raise OptionError(f"{begin} be specified for Kafka source: {', '.join(choices)}. {end}")
    for row in given:
        if "topics" not in row.scope.uses:
            of_rows = "snapshot" in row.scope.uses
            needs = "rows from TiDB (option 'snapshot')" if of_rows else "storage sink files ('path')"
            raise OptionError(f"Option '{row.name}' is for {needs}: leave it out for Kafka topics")
