"""Offset ranges: how they are paired, clipped, split and packed, and their JSON in checkpoints.

The arithmetic is that of Spark's Kafka source (`KafkaOffsetRangeCalculator`, `KafkaMicroBatchStream.rateLimit`).
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from ticdc_source.errors import CheckpointError, OptionError
from ticdc_source.options.topics import TopicPartition

# A task costs about as much as reading so many records (28 ms at 100,000 a second, rounded up).
_WORTH_A_TASK = 5_000

Key = TypeVar("Key", bound=Hashable)
_2_63 = 1 << 63


class OffsetRange(NamedTuple):
    """The offsets `[start, end)` of one topic partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets; records may be fewer, because compaction and transaction markers leave gaps."""
        return max(0, self.end - self.start)

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def ranges_between(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], hint: str = ""
) -> list[OffsetRange]:
    """Pair resolved starts and ends; return ranges ordered by topic and partition.

    Raises:
        OptionError: A start is greater than its end.
    """
    ranges = [OffsetRange(*key, starts[key], ends[key]) for key in sorted(starts)]
    for topic, partition, start, end in ranges:
        if start > end:
            raise OptionError(
                f"The resolved start offset {start} is greater than the resolved end offset {end} for topic "
                f"{topic} partition {partition}. There may be multiple reasons: the start offset or timestamp is set "
                f"too high; the end is set too low; or the Kafka topic partition is broken{hint or '.'}"
            )
    return ranges


def clip(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], list[str]]:
    """Clip requested offsets to those that Kafka has.

    Returns:
        Starts and ends within `[earliest, latest]`, and a sentence for each loss. A start greater than its end is kept
        if both are within these bounds.
    """
    new_starts, new_ends, losses = dict(starts), dict(ends), []
    for topic_partition in sorted(starts):
        start, end = starts[topic_partition], ends[topic_partition]
        low, high = earliest[topic_partition], latest[topic_partition]
        clipped = min(max(start, low), high)
        if start < low:
            losses.append(f"{topic_partition}: offsets from {start} are requested, but the earliest is {low}")
        if start > high:
            losses.append(f"{topic_partition}: offsets from {start} are requested, but the latest is {high}")
        elif end > high:
            losses.append(f"{topic_partition}: offsets to {end} are requested, but the latest is {high}")
        if clipped != start or end > high:
            new_starts[topic_partition], new_ends[topic_partition] = clipped, min(max(end, clipped), high)
    return new_starts, new_ends, losses


def shares(sizes: Mapping[Key, int], limit: int) -> dict[Key, int]:
    """Divide `limit` in proportion to `sizes`, as Spark's rate limit does.

    Shares are rounded down, but at least 1 unless the size is 0, so that small partitions do not starve: the sum may
    slightly exceed `limit`. No share exceeds its size.
    """
    total = sum(size for size in sizes.values() if size > 0)
    return {
        key: min(size, max(1, limit * size // total)) if size > 0 else 0  # (size > 0 implies total > 0)
        for key, size in sizes.items()
    }


def split_ranges(
    ranges: Sequence[OffsetRange], min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """Split ranges for input partitions, as Spark's `KafkaOffsetRangeCalculator` does.

    First, no range keeps more than `max_records` offsets. Then, if there are fewer than `min_partitions` ranges, large
    ones are split further in proportion to their size; the resulting number may differ slightly. Empty ranges are
    dropped.
    """
    pieces = [offset_range for offset_range in ranges if offset_range.size > 0]
    if max_records is not None:
        pieces = [part for piece in pieces for part in _split(piece, -(-piece.size // max_records))]
    if min_partitions is None or len(pieces) >= min_partitions:
        return pieces
    total = sum(piece.size for piece in pieces)
    # The sum leaves out small ranges that stay whole, or large ones would get too few parts.
    whole = [_part_count(piece.size, total, min_partitions) == 1 for piece in pieces]
    rest = sum(piece.size for piece, is_whole in zip(pieces, whole, strict=True) if not is_whole)
    rest_partitions = max(min_partitions - sum(whole), 1)
    return [
        part
        for piece, is_whole in zip(pieces, whole, strict=True)
        for part in _split(piece, 1 if is_whole else _part_count(piece.size, rest, rest_partitions))
    ]


def pack(
    ranges: Iterable[OffsetRange], at_least: int | None = None, max_records: int | None = None
) -> list[list[OffsetRange]]:
    """Pack small ranges together, in order, so that each input partition is worth a task. Large ranges stay alone.

    Args:
        at_least: `minPartitions`: if packing would yield fewer, the ranges are cut instead.
        max_records: `maxRecordsPerPartition`: larger ranges are cut, and no more offsets are packed together.
    """
    ranges = split_ranges(list(ranges), None, max_records)
    packed: list[list[OffsetRange]] = []
    max_packed = _WORTH_A_TASK if max_records is None else min(max_records, _WORTH_A_TASK)
    free = 0
    for offset_range in ranges:
        if offset_range.size <= free:
            packed[-1].append(offset_range)
            free -= offset_range.size
        else:
            packed.append([offset_range])
            free = max_packed - offset_range.size
    if at_least is not None and len(packed) < at_least:
        return [[offset_range] for offset_range in split_ranges(ranges, at_least)]
    return packed


def _part_count(size: int, total: int, partitions: int) -> int:
    # Java's Math.round rounds halves up. No part is empty.
    return max(1, min(size, (2 * size * partitions + total) // (2 * total)))


def _split(offset_range: OffsetRange, count: int) -> list[OffsetRange]:
    parts, start = [], offset_range.start
    for remaining in range(count, 0, -1):
        end = start + (offset_range.end - start) // remaining
        parts.append(offset_range._replace(start=start, end=end))
        start = end
    return parts


def to_json_dict(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets in the form of Spark's checkpoints: `{"topic": {"0": 42}}`.

    Topics are in lexical and partitions in numerical order: Spark compares the offsets of a stream as JSON text.
    """
    by_topic: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(offsets):
        by_topic.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    return by_topic


def from_json_dict(by_topic: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Return offsets from the form of Spark's checkpoints; the inverse of `to_json_dict`.

    Raises:
        CheckpointError: they do not have that form.
    """
    try:
        parsed = {
            TopicPartition(topic, int(partition)): offset
            for topic, offsets in by_topic.items()
            for partition, offset in offsets.items()
        }
    except (AttributeError, ValueError):
        raise unreadable(json.dumps(by_topic)) from None
    for topic_partition, offset in parsed.items():
        if type(offset) is not int or not 0 <= offset < _2_63:
            raise unreadable(f"{json.dumps(offset)} for {topic_partition}")
    return parsed


def unreadable(content: str) -> CheckpointError:
    return CheckpointError(
        f"The checkpoint of the query (the folder 'offsets' of its checkpointLocation) holds {content:.200} instead of "
        'offsets such as {"topic": {"0": 42}}: was it edited? Restore the file; or start the query with a new '
        "checkpoint and a new output, and with 'startingOffsets' at the last offsets that were written"
    )
