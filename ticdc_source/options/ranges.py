"""Where a read starts and ends: the options of offsets, times and commit-ts, checked without a broker.

Precedence, defaults and error messages are those of Spark's Kafka source (`KafkaSourceProvider`,
kafka-error-conditions.json).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Literal, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import OptionError, warn
from ticdc_source.options.options import Options
from ticdc_source.options.parsers import PartitionNumbers
from ticdc_source.options.topics import Assign, TopicPartition, listed, topic_choice
from ticdc_source.schema import tso

__all__ = [
    "EARLIEST",
    "LATEST",
    "AtTime",
    "ByPartition",
    "ByTime",
    "CommitRange",
    "Everywhere",
    "Moment",
    "OffsetSpec",
    "by_partition",
    "end_spec",
    "start_spec",
    "time_hint",
    "validate",
    "warn_of_implausible_times",
]

# The numbers that Kafka's ListOffsets and Spark's JSON use.
EARLIEST, LATEST = -2, -1


class Everywhere(NamedTuple):
    """`EARLIEST` or `LATEST` in every partition."""

    offset: int


class ByPartition(NamedTuple):
    """An offset, `EARLIEST` or `LATEST` for each partition."""

    offsets: Mapping[TopicPartition, int]


class ByTime(NamedTuple):
    """A time for each partition, in milliseconds since the epoch."""

    times: Mapping[TopicPartition, int]


class AtTime(NamedTuple):
    """One time for all partitions, in milliseconds since the epoch."""

    time: int


OffsetSpec: TypeAlias = Everywhere | ByPartition | ByTime | AtTime


class Moment(NamedTuple):
    """The first record at or after a time, in milliseconds since the epoch."""

    time: int


def start_spec(options: Options, *, streaming: bool) -> OffsetSpec:
    """Return where the read starts: startingTimestamp, else startingOffsetsByTimestamp, else startingOffsets."""
    if options.starting_timestamp is not None:
        return AtTime(options.starting_timestamp)
    if options.starting_offsets_by_timestamp is not None:
        return ByTime(_flat(options.starting_offsets_by_timestamp))
    if not options.is_given("startingOffsets"):
        return Everywhere(LATEST if streaming else EARLIEST)
    return _offset_spec(options.starting_offsets)


def end_spec(options: Options) -> OffsetSpec:
    """Return where a batch read ends: endingTimestamp, else endingOffsetsByTimestamp, else endingOffsets."""
    if options.ending_timestamp is not None:
        return AtTime(options.ending_timestamp)
    if options.ending_offsets_by_timestamp is not None:
        return ByTime(_flat(options.ending_offsets_by_timestamp))
    return _offset_spec(options.ending_offsets)


def _offset_spec(offsets: Literal["earliest", "latest"] | PartitionNumbers) -> OffsetSpec:
    if isinstance(offsets, str):
        return Everywhere(EARLIEST if offsets == "earliest" else LATEST)
    return ByPartition(_flat(offsets))


def _flat(numbers: PartitionNumbers) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, partition): number
        for topic, partitions in numbers.items()
        for partition, number in partitions.items()
    }


def validate(options: Options, *, streaming: bool) -> None:
    """Check the options of topics and offsets as far as possible without a broker.

    Raises:
        OptionError: The options contradict one another, or a batch read or a stream does not support them; in Spark's
            words if Spark refuses the same.
    """
    chosen = topic_choice(options) if options.path is None else None
    start = start_spec(options, streaming=streaming)
    if streaming:
        for name, unit in (
            ("endingOffsets", "offset"),
            ("endingOffsetsByTimestamp", "timestamp"),
            ("endingTimestamp", "timestamp"),
        ):
            if options.is_given(name):
                msg = f"ending {unit} not valid in streaming queries (option '{name}')"
                raise OptionError(msg)
    else:
        end = end_spec(options)
        _refuse_in_batch(start, LATEST, "starting offset", "startingOffsets")
        _refuse_in_batch(end, EARLIEST, "ending offset", "ending offset")
        if isinstance(start, ByPartition) and isinstance(end, ByPartition):
            _compare(start.offsets, end.offsets)
    if isinstance(chosen, Assign):
        by_partition(start, chosen.partitions, "start")
        if not streaming:
            by_partition(end, chosen.partitions, "end")
    warn_of_implausible_times(options)


class _Unit(NamedTuple):
    """What a number of a time can count.

    Attributes:
        name: in words, after "as".
        to_ms: returns the milliseconds since the epoch.
        from_ms: the inverse.
    """

    name: str
    to_ms: Callable[[int], int]
    from_ms: Callable[[int], int]


_MILLISECONDS = _Unit("milliseconds since the epoch", lambda number: number, lambda ms: ms)
_COMMIT_TS = _Unit("a commit-ts (milliseconds since the epoch, times 2 to the 18th)", tso.physical_ms, tso.of_ms)
_UNITS = (
    _Unit("seconds", lambda number: number * 1000, lambda ms: ms // 1000),
    _MILLISECONDS,
    _Unit("microseconds", lambda number: number // 1000, lambda ms: ms * 1000),
    _Unit("nanoseconds", lambda number: number // 1_000_000, lambda ms: ms * 1_000_000),
    _COMMIT_TS,
)
# In no two units is one number a time between the two years. TiDB's first commit is of 2015.
_YEARS = (2015, 2100)
_FIRST_MS, _LAST_MS = (int(datetime(year, 1, 1, tzinfo=timezone.utc).timestamp() * 1000) for year in _YEARS)


def warn_of_implausible_times(options: Options) -> None:
    """Warn about times and commit-ts that were probably given in another unit: such a read is silently too long."""
    for message in _implausible_times(options):
        warn(message)


def time_hint(options: Options) -> str:
    """Return what `warn_of_implausible_times` says, to go behind the sentence of an error; empty if it is silent."""
    return "".join(f". {message}" for message in _implausible_times(options))


def _implausible_times(options: Options) -> Iterator[str]:
    """Yield what is odd about each time that was probably given in another unit.

    0 says "from the first", and a number above every time "to the last": they are no mistake.
    """
    for name, number, unit in _times_given(options):
        ms = unit.to_ms(number)
        meant = next((other for other in _UNITS if _FIRST_MS <= other.to_ms(number) < _LAST_MS), None)
        if number == 0 or meant is unit or (meant is None and ms >= _LAST_MS):
            continue
        is_early = ms < _FIRST_MS
        what = f"{_moment(ms)}, before there was a TiDB" if is_early else f"after the year {_YEARS[1]}"
        hint = ""
        if meant is not None:
            meant_ms = meant.to_ms(number)
            hint = f". As {meant.name}, it is {_moment(meant_ms)}: did you mean {unit.from_ms(meant_ms)}?"
        yield f"Option '{name}' takes {unit.name}, and {number} is {what}{hint}"


def _times_given(options: Options) -> Iterator[tuple[str, int, _Unit]]:
    """Yield the options that hold a time: of those with a time for each partition, the first."""
    for name, times in (
        ("startingOffsetsByTimestamp", options.starting_offsets_by_timestamp),
        ("endingOffsetsByTimestamp", options.ending_offsets_by_timestamp),
    ):
        for time in list(_flat(times or {}).values())[:1]:
            yield name, time, _MILLISECONDS
    for name, number, unit in (
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
    if isinstance(spec, Everywhere) and spec.offset == refused:
        msg = f"{name} can't be {word} for batch queries on Kafka"
        raise OptionError(msg)
    if isinstance(spec, ByPartition):
        for topic_partition, offset in spec.offsets.items():
            if offset == refused:
                msg = f"{name_by_partition} for {topic_partition} can't be {word} for batch queries on Kafka"
                raise OptionError(msg)


def _compare(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
    if starts.keys() != ends.keys():
        msg = (
            "The specified start offset and end offset should have the same topic-partitions. "
            f"Topic-partitions for start offset: {_listed(starts)}, topic-partitions for end offset: "
            f"{_listed(ends)}."
        )
        raise OptionError(msg)
    for topic_partition, start in starts.items():
        end = ends[topic_partition]
        if 0 <= end < start:
            msg = (
                f"The specified start offset {start} is greater than the end offset {end} for topic "
                f"{topic_partition.topic} partition {topic_partition.partition}."
            )
            raise OptionError(msg)


def by_partition(
    spec: OffsetSpec, partitions: Iterable[TopicPartition], side: Literal["start", "end"]
) -> dict[TopicPartition, int | Moment]:
    """Return what `spec` asks for in each partition: an offset, `EARLIEST`, `LATEST` or a `Moment`.

    Args:
        spec: Where the read starts or ends.
        partitions: All partitions of the read.
        side: Which of the two `spec` is; for error messages.

    Raises:
        OptionError: `spec` does not name exactly these partitions.
    """
    assigned = sorted(partitions)
    match spec:
        case Everywhere(offset):
            return dict.fromkeys(assigned, offset)
        case AtTime(time):
            return dict.fromkeys(assigned, Moment(time))
        case ByPartition(offsets):
            if offsets.keys() != set(assigned):
                msg = (
                    f"Partitions specified for Kafka {side} offsets don't match what are assigned. Maybe "
                    "topic partitions are created or deleted while the query is running. Use -1 for latest, "
                    f"-2 for earliest. Specified: {_listed(offsets)} Assigned: {_listed(assigned)}"
                )
                raise OptionError(msg)
            return {topic_partition: offsets[topic_partition] for topic_partition in assigned}
        case ByTime(times):
            if times.keys() != set(assigned):
                msg = (
                    f"Partitions specified for Kafka timestamp based {side} offsets don't match what are "
                    "assigned. Maybe topic partitions are created or deleted while the query is running, or "
                    f"you didn't specify all the partitions. Specified: {_listed(times)} Assigned: "
                    f"{_listed(assigned)}"
                )
                raise OptionError(msg)
            return {topic_partition: Moment(times[topic_partition]) for topic_partition in assigned}


def _listed(topic_partitions: Iterable[TopicPartition]) -> str:
    return f"[{listed(sorted(topic_partitions))}]"


_2_63 = 1 << 63  # greater than every commit-ts; the options take any number


class CommitRange(NamedTuple):
    """The commit-ts `[start, end)`; None leaves that side open."""

    start: int | None = None
    end: int | None = None

    def __bool__(self) -> bool:
        """Return whether the range excludes any commit-ts."""
        return self.start is not None or self.end is not None

    def contains(self, commit_ts: int) -> bool:
        """Return whether a commit-ts is in the range."""
        return (self.start is None or commit_ts >= self.start) and (self.end is None or commit_ts < self.end)

    def contains_each(self, commit_ts: pa.Array) -> pa.Array:
        """Return for each commit-ts (int64) whether it is in the range (boolean)."""
        start = min(self.start or 0, _2_63)
        end = _2_63 if self.end is None else min(self.end, _2_63)
        return pc.and_(
            pc.greater(commit_ts, pa.scalar(start - 1, pa.int64())),
            pc.less_equal(commit_ts, pa.scalar(end - 1, pa.int64())),
        )
