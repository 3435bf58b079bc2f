"""Where a read starts and ends: the options of offsets, times and commit-ts, checked without a broker.

Precedence, defaults and error messages are those of Spark's Kafka source (`KafkaSourceProvider`,
kafka-error-conditions.json).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import OptionError, warn
from ticdc_source.options.options import OPTIONS, Options
from ticdc_source.options.parsers import PartitionNumbers
from ticdc_source.options.topics import TopicPartition, listed, topic_choice
from ticdc_source.schema import tso

# The numbers that Kafka's ListOffsets and Spark's JSON use.
EARLIEST, LATEST = -2, -1


class Moment(NamedTuple):
    """The first record at or after a time, in milliseconds since the epoch."""

    time: int


Position: TypeAlias = int | Moment  # an offset, `EARLIEST`, `LATEST`, or the offset at a time
# The same for every partition, or one for each.
OffsetSpec: TypeAlias = Position | Mapping[TopicPartition, Position]


def start_spec(options: Options, *, streaming: bool) -> OffsetSpec:
    """Return where the read starts: startingTimestamp, else startingOffsetsByTimestamp, else startingOffsets."""
    by_default = streaming and not options.is_given("startingOffsets")
    offsets = "latest" if by_default else options.starting_offsets
    return _spec(options.starting_timestamp, options.starting_offsets_by_timestamp, offsets)


def end_spec(options: Options) -> OffsetSpec:
    """Return where a batch read ends: endingTimestamp, else endingOffsetsByTimestamp, else endingOffsets."""
    return _spec(options.ending_timestamp, options.ending_offsets_by_timestamp, options.ending_offsets)


def _spec(time: int | None, times: PartitionNumbers | None, offsets: str | PartitionNumbers) -> OffsetSpec:
    if time is not None:
        return Moment(time)
    if times is not None:
        return {topic_partition: Moment(each) for topic_partition, each in _flat(times).items()}
    if isinstance(offsets, str):
        return EARLIEST if offsets == "earliest" else LATEST
    return _flat(offsets)


def _flat(numbers: PartitionNumbers) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, partition): number
        for topic, partitions in numbers.items()
        for partition, number in partitions.items()
    }


def validate(options: Options, *, streaming: bool) -> None:
    """Check the options of topics and offsets as far as possible without a broker.

    Raises:
        OptionError: the options contradict one another, or the kind of read does not support them; in Spark's words if
            Spark refuses the same.
    """
    if options.is_snapshot:
        if streaming:
            raise OptionError(
                "snapshot=only is supported only in batch reads. In a stream, set snapshot=initial and the topics of a "
                "changefeed"
            )
        return
    if options.has_initial_snapshot and not streaming:
        raise OptionError(
            "snapshot=initial is supported only in streams (spark.readStream). In a batch, read the rows with "
            "snapshot=only, then the changes with startingCommitTs = their _commit_version + 1"
        )
    chosen = topic_choice(options) if options.path is None else None
    start = start_spec(options, streaming=streaming)
    if streaming:
        for name in (row.name for row in OPTIONS if row.only == "batch" and options.is_given(row.name)):
            unit = "timestamp" if "Timestamp" in name else "offset"
            raise OptionError(f"ending {unit} not valid in streaming queries (option '{name}')")
    else:
        end = end_spec(options)
        _refuse_in_batch(start, LATEST, "starting offset", "startingOffsets")
        _refuse_in_batch(end, EARLIEST, "ending offset", "ending offset")
        if isinstance(start, Mapping) and isinstance(end, Mapping):
            _compare(start, end)
    if chosen is not None and chosen.partitions:
        by_partition(start, chosen.partitions, "start")
        if not streaming:
            by_partition(end, chosen.partitions, "end")
    warn_of_implausible_times(options)


_MILLISECONDS = "milliseconds since the epoch"
_COMMIT_TS = "a commit-ts (milliseconds since the epoch, times 2 to the 18th)"
# The possible units of a time, in milliseconds.
_UNITS = {
    "seconds": Fraction(1000),
    _MILLISECONDS: Fraction(1),
    "microseconds": Fraction(1, 1000),
    "nanoseconds": Fraction(1, 1_000_000),
    _COMMIT_TS: Fraction(1, tso.of_ms(1)),
}
# No number is a time between these years in two of the units. TiDB's first commit was in 2015.
_YEARS = (2015, 2100)
_FIRST_MS, _LAST_MS = (int(datetime(year, 1, 1, tzinfo=timezone.utc).timestamp() * 1000) for year in _YEARS)


def warn_of_implausible_times(options: Options) -> None:
    """Warn about times and commit-ts that are probably in another unit, as such a read silently reads too much."""
    for message in _implausible_times(options):
        warn(message)


def time_hint(options: Options) -> str:
    """Return the warnings of `warn_of_implausible_times`, to be appended to an error; "" without any."""
    return "".join(f". {message}" for message in _implausible_times(options))


def _implausible_times(options: Options) -> Iterator[str]:
    """Describe each time that is probably in another unit.

    0 means "from the first" and a number above every time "to the last", so they are not reported.
    """
    for name, number, unit in _times_given(options):
        ms = int(number * _UNITS[unit])
        meant = next((each for each, size in _UNITS.items() if _FIRST_MS <= int(number * size) < _LAST_MS), None)
        if number == 0 or meant == unit or (meant is None and ms >= _LAST_MS):
            continue
        is_early = ms < _FIRST_MS
        what = f"{_moment(ms)}, before TiDB existed" if is_early else f"after the year {_YEARS[1]}"
        hint = ""
        if meant is not None:
            meant_ms = int(number * _UNITS[meant])
            hint = f". As {meant}, it is {_moment(meant_ms)}: did you mean {int(meant_ms / _UNITS[unit])}?"
        yield f"Option '{name}' takes {unit}, and {number} is {what}{hint}"


def _times_given(options: Options) -> Iterator[tuple[str, int, str]]:
    """Yield the options that hold a time; for options with a time per partition, the first time."""

    def first(times: PartitionNumbers | None) -> int | None:
        return next(iter(_flat(times or {}).values()), None)

    for name, number, unit in (
        ("startingOffsetsByTimestamp", first(options.starting_offsets_by_timestamp), _MILLISECONDS),
        ("endingOffsetsByTimestamp", first(options.ending_offsets_by_timestamp), _MILLISECONDS),
        ("startingTimestamp", options.starting_timestamp, _MILLISECONDS),
        ("endingTimestamp", options.ending_timestamp, _MILLISECONDS),
        ("startingCommitTs", options.starting_commit_ts, _COMMIT_TS),
        ("endingCommitTs", options.ending_commit_ts, _COMMIT_TS),
    ):
        if isinstance(number, int):
            yield name, number, unit


def _moment(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, timezone.utc):%Y-%m-%d %H:%M} UTC"


def _refuse_in_batch(spec: OffsetSpec, refused: int, name: str, name_by_partition: str) -> None:
    word = "latest" if refused == LATEST else "earliest"
    if spec == refused:
        raise OptionError(f"{name} can't be {word} for batch queries on Kafka")
    for topic_partition, position in spec.items() if isinstance(spec, Mapping) else ():
        if position == refused:
            raise OptionError(f"{name_by_partition} for {topic_partition} can't be {word} for batch queries on Kafka")


def _compare(starts: Mapping[TopicPartition, Position], ends: Mapping[TopicPartition, Position]) -> None:
    if starts.keys() != ends.keys():
        raise OptionError(
            "The specified start offset and end offset should have the same topic-partitions. "
            f"Topic-partitions for start offset: {_listed(starts)}, topic-partitions for end offset: "
            f"{_listed(ends)}."
        )
    for topic_partition, start in starts.items():
        end = ends[topic_partition]
        if isinstance(start, int) and isinstance(end, int) and 0 <= end < start:
            raise OptionError(
                f"The specified start offset {start} is greater than the end offset {end} for topic "
                f"{topic_partition.topic} partition {topic_partition.partition}."
            )


def by_partition(
    spec: OffsetSpec, partitions: Iterable[TopicPartition], side: Literal["start", "end"]
) -> dict[TopicPartition, Position]:
    """Return the requested position in each partition.

    Raises:
        OptionError: `spec` does not name exactly these partitions.
    """
    assigned = sorted(partitions)
    if not isinstance(spec, Mapping):
        return dict.fromkeys(assigned, spec)
    if spec.keys() != set(assigned):
        kind, hint = "", ". Use -1 for latest, -2 for earliest."
        if any(isinstance(position, Moment) for position in spec.values()):
            kind, hint = "timestamp based ", ", or you didn't specify all the partitions."
        raise OptionError(
            f"Partitions specified for Kafka {kind}{side} offsets don't match what are assigned. Maybe topic "
            f"partitions are created or deleted while the query is running{hint} Specified: {_listed(spec)} "
            f"Assigned: {_listed(assigned)}"
        )
    return {topic_partition: spec[topic_partition] for topic_partition in assigned}


def _listed(topic_partitions: Iterable[TopicPartition]) -> str:
    return f"[{listed(sorted(topic_partitions))}]"


_2_63 = 1 << 63  # greater than every commit-ts; the options take any number


class CommitRange(NamedTuple):
    """The commit-ts `[start, end)`; None leaves that side open."""

    start: int | None = None
    end: int | None = None

    def __bool__(self) -> bool:
        return self.start is not None or self.end is not None

    def contains(self, commit_ts: int) -> bool:
        return (self.start is None or commit_ts >= self.start) and (self.end is None or commit_ts < self.end)

    def contains_each(self, commit_ts: pa.Array) -> pa.Array:
        start = min(self.start or 0, _2_63)
        end = _2_63 if self.end is None else min(self.end, _2_63)
        return pc.and_(
            pc.greater(commit_ts, pa.scalar(start - 1, pa.int64())),
            pc.less_equal(commit_ts, pa.scalar(end - 1, pa.int64())),
        )
