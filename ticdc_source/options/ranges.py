"""Where a read starts and ends: Spark's seven offset options as data, checked without a broker.

Precedence, defaults and wording are those of Spark's Kafka source (`KafkaSourceProvider`,
kafka-error-conditions.json).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.errors import OptionError
from ticdc_source.options.options import Options
from ticdc_source.options.parsers import PartitionNumbers
from ticdc_source.options.topics import Assign, TopicPartition, topic_choice

__all__ = [
    "EARLIEST",
    "LATEST",
    "AtTime",
    "ByPartition",
    "ByTime",
    "CommitRange",
    "Everywhere",
    "Moment",
    "Spec",
    "end_spec",
    "positions",
    "start_spec",
    "validate",
]

# Kafka's own numbers (ListOffsets), which Spark's JSON uses too.
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


Spec: TypeAlias = Everywhere | ByPartition | ByTime | AtTime


class Moment(NamedTuple):
    """The first record at or after this time, in milliseconds since the epoch."""

    time: int


def start_spec(options: Options, *, streaming: bool) -> Spec:
    """Return where the read starts: startingTimestamp, else startingOffsetsByTimestamp, else startingOffsets.

    Raises:
        OptionError: the JSON is not of the documented form.
    """
    if options.starting_timestamp is not None:
        return AtTime(options.starting_timestamp)
    if options.starting_offsets_by_timestamp is not None:
        return ByTime(_by_partition(options.starting_offsets_by_timestamp))
    if not options.is_given("startingOffsets"):
        return Everywhere(LATEST if streaming else EARLIEST)
    return _offset_spec(options.starting_offsets)


def end_spec(options: Options) -> Spec:
    """Return where a batch read ends, with the same precedence.

    Raises:
        OptionError: the JSON is not of the documented form.
    """
    if options.ending_timestamp is not None:
        return AtTime(options.ending_timestamp)
    if options.ending_offsets_by_timestamp is not None:
        return ByTime(_by_partition(options.ending_offsets_by_timestamp))
    return _offset_spec(options.ending_offsets)


def _offset_spec(offsets: Literal["earliest", "latest"] | PartitionNumbers) -> Spec:
    if isinstance(offsets, str):
        return Everywhere(EARLIEST if offsets == "earliest" else LATEST)
    return ByPartition(_by_partition(offsets))


def _by_partition(given: PartitionNumbers) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, partition): number
        for topic, partitions in given.items()
        for partition, number in partitions.items()
    }


def validate(options: Options, *, streaming: bool) -> None:
    """Check, without a broker, everything about topics and offsets that can be checked so.

    Raises:
        OptionError: in Spark's words, where Spark has some.
    """
    chosen = topic_choice(options)
    start = start_spec(options, streaming=streaming)
    if streaming:
        for name, kind in (
            ("endingOffsets", "offset"),
            ("endingOffsetsByTimestamp", "timestamp"),
            ("endingTimestamp", "timestamp"),
        ):
            if options.is_given(name):
                msg = f"ending {kind} not valid in streaming queries (option '{name}')"
                raise OptionError(msg)
        specs = [(start, "start")]
    else:
        end = end_spec(options)
        _refuse_in_batch(start, LATEST, "starting offset", "startingOffsets")
        _refuse_in_batch(end, EARLIEST, "ending offset", "ending offset")
        if isinstance(start, ByPartition) and isinstance(end, ByPartition):
            _compare(start.offsets, end.offsets)
        specs = [(start, "start"), (end, "end")]
    if isinstance(chosen, Assign):
        for spec, which in specs:
            positions(spec, chosen.partitions, which)


def _refuse_in_batch(spec: Spec, refused: int, everywhere: str, one: str) -> None:
    word = "latest" if refused == LATEST else "earliest"
    if isinstance(spec, Everywhere) and spec.offset == refused:
        msg = f"{everywhere} can't be {word} for batch queries on Kafka"
        raise OptionError(msg)
    if isinstance(spec, ByPartition):
        for place, offset in spec.offsets.items():
            if offset == refused:
                msg = f"{one} for {place} can't be {word} for batch queries on Kafka"
                raise OptionError(msg)


def _compare(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
    if starts.keys() != ends.keys():
        msg = (
            "The specified start offset and end offset should have the same topic-partitions. "
            f"Topic-partitions for start offset: {_listed(starts)}, topic-partitions for end offset: "
            f"{_listed(ends)}."
        )
        raise OptionError(msg)
    for place, start in starts.items():
        if 0 <= ends[place] < start:
            msg = (
                f"The specified start offset {start} is greater than the end offset {ends[place]} for topic "
                f"{place.topic} partition {place.partition}."
            )
            raise OptionError(msg)


def positions(spec: Spec, partitions: Iterable[TopicPartition], which: str) -> dict[TopicPartition, int | Moment]:
    """Say for each partition there is what `spec` asks for: an offset, `EARLIEST`, `LATEST` or a `Moment`.

    Args:
        spec: a start or an end.
        partitions: all partitions that are read.
        which: "start" or "end", for messages.

    Raises:
        OptionError: the JSON does not name exactly these partitions.
    """
    there = sorted(partitions)
    match spec:
        case Everywhere(offset):
            return dict.fromkeys(there, offset)
        case AtTime(time):
            return dict.fromkeys(there, Moment(time))
        case ByPartition(offsets):
            if offsets.keys() != set(there):
                msg = (
                    f"Partitions specified for Kafka {which} offsets don't match what are assigned. Maybe "
                    "topic partitions are created or deleted while the query is running. Use -1 for latest, "
                    f"-2 for earliest. Specified: {_listed(offsets)} Assigned: {_listed(there)}"
                )
                raise OptionError(msg)
            return {place: offsets[place] for place in there}
        case ByTime(times):
            if times.keys() != set(there):
                msg = (
                    f"Partitions specified for Kafka timestamp based {which} offsets don't match what are "
                    "assigned. Maybe topic partitions are created or deleted while the query is running, or "
                    f"you didn't specify all the partitions. Specified: {_listed(times)} Assigned: "
                    f"{_listed(there)}"
                )
                raise OptionError(msg)
            return {place: Moment(times[place]) for place in there}


def _listed(places: Iterable[TopicPartition]) -> str:
    return "[" + ", ".join(str(place) for place in sorted(places)) + "]"


_2_63 = 1 << 63  # above every commit-ts, but not above what the options may say


class CommitRange(NamedTuple):
    """`[start, end)` of commit-ts; None is open."""

    start: int | None = None
    end: int | None = None

    def __bool__(self) -> bool:
        """Tell whether anything is left out at all."""
        return self.start is not None or self.end is not None

    def holds(self, commit_ts: int) -> bool:
        """Tell whether a commit-ts is wanted."""
        return (self.start is None or commit_ts >= self.start) and (self.end is None or commit_ts < self.end)

    def held(self, commit_ts: pa.Array) -> pa.Array:
        """Tell of each commit-ts (int64) whether it is wanted."""
        start = min(self.start or 0, _2_63)
        end = _2_63 if self.end is None else min(self.end, _2_63)
        return pc.and_(
            pc.greater(commit_ts, pa.scalar(start - 1, pa.int64())),
            pc.less_equal(commit_ts, pa.scalar(end - 1, pa.int64())),
        )
