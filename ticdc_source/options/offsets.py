"""Offset ranges: pairing, clipping, splitting, and the form they have in Spark's checkpoints. No I/O.

The arithmetic is that of Spark's Kafka source (`KafkaOffsetRangeCalculator`,
`KafkaMicroBatchStream.rateLimit`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from ticdc_source.errors import OptionError
from ticdc_source.options.topics import TopicPartition

__all__ = [
    "OffsetRange",
    "TopicPartition",
    "fit",
    "from_json_dict",
    "ranges_between",
    "shares",
    "split_ranges",
    "to_json_dict",
]

Key = TypeVar("Key", bound=Hashable)


class OffsetRange(NamedTuple):
    """The offsets `[start, end)` of one topic partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets, not of records: compaction and transaction markers leave holes."""
        return max(0, self.end - self.start)

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic partition."""
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        """Return `topic-partition [start, end)`."""
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def ranges_between(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """Pair resolved starts and ends, in the order of topic and partition.

    Raises:
        OptionError: a start lies behind its end.
    """
    ranges = [OffsetRange(*place, starts[place], ends[place]) for place in sorted(starts)]
    for topic, partition, start, end in ranges:
        if start > end:
            msg = (
                f"The resolved start offset {start} is greater than the resolved end offset {end} for topic "
                f"{topic} partition {partition}. There may be multiple reasons: the start offset or "
                "timestamp is set too high; the end is set too low; or the Kafka topic partition is broken."
            )
            raise OptionError(msg)
    return ranges


def fit(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], list[str]]:
    """Clip what is asked for to what Kafka has.

    Returns:
        starts and ends within `[earliest, latest]`, and a sentence for each place where that lost something.
        A pair that is the wrong way round without touching those bounds is left as it is.
    """
    new_starts, new_ends, lost = dict(starts), dict(ends), []
    for place in sorted(starts):
        start, end, low, high = starts[place], ends[place], earliest[place], latest[place]
        clipped = min(max(start, low), high)
        if start < low:
            lost.append(f"{place}: offsets from {start} are asked for, but the earliest there is {low}")
        if start > high:
            lost.append(f"{place}: offsets from {start} are asked for, but the latest is {high}")
        elif end > high:
            lost.append(f"{place}: offsets to {end} are asked for, but the latest is {high}")
        if clipped != start or end > high:
            new_starts[place], new_ends[place] = clipped, min(max(end, clipped), high)
    return new_starts, new_ends, lost


def shares(sizes: Mapping[Key, int], limit: int) -> dict[Key, int]:
    """Share `limit` out in proportion to `sizes`, as Spark's rate limit does.

    A share is rounded down, but at least 1 where there is something, so that small ones are not starved (the
    sum may then be a little above `limit`), and never above the size.
    """
    total = sum(size for size in sizes.values() if size > 0)
    return {
        key: min(size, max(1, limit * size // total)) if size > 0 else 0  # (size > 0 implies total > 0)
        for key, size in sizes.items()
    }


def split_ranges(
    ranges: Sequence[OffsetRange], min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """Cut ranges into input partitions, as Spark's `KafkaOffsetRangeCalculator`.

    First no piece may have more than `max_records` offsets; then, where there are fewer pieces than
    `min_partitions`, big pieces are cut further in proportion to their size (a hint: the count may differ a
    little). Empty ranges are dropped.
    """
    pieces = [one for one in ranges if one.size > 0]
    if max_records is not None:
        pieces = [part for one in pieces for part in _cut(one, -(-one.size // max_records))]
    if min_partitions is None or len(pieces) >= min_partitions:
        return pieces
    total = sum(one.size for one in pieces)
    # Small pieces that stay whole are left out of the sum, or the big ones would get too few cuts.
    whole = [_cuts(one.size, total, min_partitions) == 1 for one in pieces]
    rest = sum(one.size for one, is_whole in zip(pieces, whole, strict=True) if not is_whole)
    wanted = max(min_partitions - sum(whole), 1)
    return [
        part
        for one, is_whole in zip(pieces, whole, strict=True)
        for part in _cut(one, 1 if is_whole else _cuts(one.size, rest, wanted))
    ]


def _cuts(size: int, total: int, pieces: int) -> int:
    # Java's Math.round: halves go up; and no piece is empty.
    return max(1, min(size, (2 * size * pieces + total) // (2 * total)))


def _cut(one: OffsetRange, count: int) -> list[OffsetRange]:
    parts, start = [], one.start
    for left in range(count, 0, -1):
        end = start + (one.end - start) // left
        parts.append(one._replace(start=start, end=end))
        start = end
    return parts


def to_json_dict(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Lay offsets out as Spark's checkpoints do: `{"topic": {"0": 42}}`.

    Topics come in lexical and partitions in numerical order: Spark compares a stream's offsets as JSON text.
    """
    laid: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(offsets):
        laid.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    return laid


def from_json_dict(laid: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Read what `to_json_dict` wrote."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, offsets in laid.items()
        for partition, offset in offsets.items()
    }
