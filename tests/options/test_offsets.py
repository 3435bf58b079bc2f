"""Offset ranges: pairing, clipping, splitting, shares, and the JSON of Spark's checkpoints."""

import json
import random

import pytest

from tests.support.seeds import each_seed
from ticdc_source.errors import OptionError
from ticdc_source.options.offsets import (
    OffsetRange,
    clip,
    from_json_dict,
    ranges_between,
    shares,
    split_ranges,
    to_json_dict,
)
from ticdc_source.options.topics import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def random_ranges(rng: random.Random) -> list[OffsetRange]:
    """Return ranges of different partitions; some are empty, some are huge."""
    ranges = []
    for partition in range(rng.randint(1, 8)):
        start = rng.choice([0, rng.randint(0, 100), rng.randint(0, 2**50)])
        size = rng.choice([0, 1, rng.randint(0, 20), rng.randint(0, 10_000), rng.randint(0, 2**50)])
        ranges.append(OffsetRange("t", partition, start, start + size))
    return ranges


def assert_covers(pieces: list[OffsetRange], ranges: list[OffsetRange]) -> None:
    """Check that the pieces of each range are consecutive, in order and not empty, and cover the range."""
    remaining = list(pieces)
    for whole in ranges:
        offset = whole.start
        while offset < whole.end:
            piece = remaining.pop(0)
            assert (piece.topic_partition, piece.start) == (whole.topic_partition, offset)
            assert piece.start < piece.end <= whole.end
            offset = piece.end
    assert remaining == []


@each_seed(200)
def test_pieces_cover_the_ranges_exactly(seed: int) -> None:
    """However ranges are split, the pieces contain each offset once, in order, and none is empty."""
    rng = random.Random(seed)
    ranges = random_ranges(rng)
    longest = max(offset_range.size for offset_range in ranges)
    max_records = rng.choice([None, max(1, longest // rng.randint(1, 50)), longest + 1])
    min_partitions = rng.choice([None, rng.randint(1, 40)])
    pieces = split_ranges(ranges, min_partitions, max_records)
    assert_covers(pieces, ranges)
    if max_records is not None:
        assert all(piece.size <= max_records for piece in pieces)


@pytest.mark.parametrize(
    ("sizes", "min_partitions", "max_records", "expected"),
    [
        ([1, 100], 3, None, [1, 50, 50]),  # the proportions leave out small ranges (KafkaOffsetRangeCalculatorSuite)
        ([100], 3, 20, [20] * 5),  # there are enough pieces already
        ([100], 4, 50, [25] * 4),  # too few after `max_records`
        ([0], 4, 10, []),
        ([], 4, 10, []),
    ],
)
def test_pieces_are_those_of_spark(
    sizes: list[int], min_partitions: int, max_records: int | None, expected: list[int]
) -> None:
    """`max_records` comes first, then `min_partitions` if there are too few; empty ranges are dropped."""
    ranges = [OffsetRange("t", partition, 0, size) for partition, size in enumerate(sizes)]

    assert [piece.size for piece in split_ranges(ranges, min_partitions, max_records)] == expected


@each_seed(100)
def test_shares_are_proportional_and_starve_none(seed: int) -> None:
    """A share is its proportion rounded down, but at least 1 unless the size is 0, and at most the size."""
    rng = random.Random(seed)
    sizes = {number: rng.choice([0, 1, rng.randint(0, 2**60)]) for number in range(rng.randint(1, 10))}
    limit = rng.randint(1, 2**40)
    shared = shares(sizes, limit)
    total = sum(sizes.values())
    for key, size in sizes.items():
        assert shared[key] == (min(size, max(1, size * limit // total)) if size else 0)
    assert sum(shared.values()) <= limit + len(sizes)


def test_ranges_come_by_topic_and_partition() -> None:
    topic_partitions = [TopicPartition("b", 2), TopicPartition("b", 10), TopicPartition("a", 3)]
    ranges = ranges_between(dict.fromkeys(topic_partitions, 1), dict.fromkeys(topic_partitions, 4))
    assert ranges == [OffsetRange("a", 3, 1, 4), OffsetRange("b", 2, 1, 4), OffsetRange("b", 10, 1, 4)]


def test_a_start_greater_than_its_end_is_refused() -> None:
    with pytest.raises(OptionError, match="The resolved start offset 5 is greater than the resolved end offset 4"):
        ranges_between({T0: 5}, {T0: 4})
    with pytest.raises(OptionError, match=r"the Kafka topic partition is broken; a hint$"):
        ranges_between({T0: 5}, {T0: 4}, "; a hint")


@pytest.mark.parametrize(
    ("start", "end", "fitted", "losses"),
    [
        (10, 20, (10, 20), 0),  # the whole log
        (12, 15, (12, 15), 0),
        (3, 15, (10, 15), 1),  # the start has expired
        (3, 7, (10, 10), 1),  # the whole range has
        (12, 25, (12, 20), 1),  # the end is not written yet
        (25, 30, (20, 20), 1),
        (3, 30, (10, 20), 2),
        (25, 12, (20, 20), 1),  # a start beyond the log is a loss, whatever the end
        (15, 12, (15, 12), 0),  # `ranges_between` refuses this
    ],
)
def test_clip(start: int, end: int, fitted: tuple[int, int], losses: int) -> None:
    """Requested offsets are clipped to those that exist, and each side that loses offsets is reported."""
    starts, ends, lost = clip({T0: start}, {T0: end}, {T0: 10}, {T0: 20})
    assert (starts[T0], ends[T0]) == fitted
    assert len(lost) == losses
    assert all(text.startswith("t-0: ") for text in lost)


@each_seed(50)
def test_json_round_trip(seed: int) -> None:
    rng = random.Random(seed)
    topic_partitions = [TopicPartition(rng.choice("abc"), number) for number in range(rng.randint(0, 12))]
    offsets = {topic_partition: rng.randint(0, 2**60) for topic_partition in topic_partitions}
    rng.shuffle(topic_partitions)
    shuffled = {topic_partition: offsets[topic_partition] for topic_partition in topic_partitions}
    assert json.dumps(to_json_dict(offsets)) == json.dumps(to_json_dict(shuffled))
    assert from_json_dict(json.loads(json.dumps(to_json_dict(offsets)))) == offsets
