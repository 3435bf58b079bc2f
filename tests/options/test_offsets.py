"""Offset ranges: pairing, clipping, splitting, sharing, and Spark's checkpoint layout."""

import json
import random

import pytest

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
    """Ranges of different partitions, some of them empty, some of them huge."""
    ranges = []
    for partition in range(rng.randint(1, 8)):
        start = rng.choice([0, rng.randint(0, 100), rng.randint(0, 2**50)])
        size = rng.choice([0, 1, rng.randint(0, 20), rng.randint(0, 10_000), rng.randint(0, 2**50)])
        ranges.append(OffsetRange("t", partition, start, start + size))
    return ranges


def assert_covers(pieces: list[OffsetRange], ranges: list[OffsetRange]) -> None:
    """Each range that is not empty is cut into consecutive pieces, none of them empty, in order."""
    remaining = list(pieces)
    for whole in ranges:
        place = whole.start
        while place < whole.end:
            piece = remaining.pop(0)
            assert (piece.topic_partition, piece.start) == (whole.topic_partition, place)
            assert piece.start < piece.end <= whole.end
            place = piece.end
    assert remaining == []


@pytest.mark.parametrize("seed", range(200))
def test_pieces_cover_the_ranges_exactly(seed: int) -> None:
    """However ranges are split, the pieces hold each offset once, in order, and none is empty."""
    rng = random.Random(seed)
    ranges = random_ranges(rng)
    longest = max(one.size for one in ranges)
    most = rng.choice([None, max(1, longest // rng.randint(1, 50)), longest + 1])
    least = rng.choice([None, rng.randint(1, 40)])
    pieces = split_ranges(ranges, least, most)
    assert_covers(pieces, ranges)
    if most is not None:
        assert all(piece.size <= most for piece in pieces)


@pytest.mark.parametrize("seed", range(100))
def test_min_partitions_is_about_reached(seed: int) -> None:
    """With offsets enough for it, the number of pieces is `min_partitions` but for rounding."""
    rng = random.Random(seed)
    ranges = [OffsetRange("t", number, 0, rng.randint(1_000, 100_000)) for number in range(rng.randint(1, 8))]
    least = rng.randint(len(ranges), 60)
    assert abs(len(split_ranges(ranges, least)) - least) <= len(ranges)


def test_pieces_of_one_range_differ_by_one_at_most() -> None:
    """A range is cut evenly."""
    sizes = {piece.size for piece in split_ranges([OffsetRange("t", 0, 5, 108)], 10)}
    assert sizes == {10, 11}


def test_one_small_and_one_big_range_as_in_spark() -> None:
    """What small ranges hold is left out of the proportions (Spark's KafkaOffsetRangeCalculatorSuite)."""
    ranges = [OffsetRange("t", 1, 0, 1), OffsetRange("t", 2, 0, 100)]
    assert split_ranges(ranges, 3) == [
        OffsetRange("t", 1, 0, 1),
        OffsetRange("t", 2, 0, 50),
        OffsetRange("t", 2, 50, 100),
    ]


def test_max_records_comes_first_and_min_partitions_does_not_undo_it() -> None:
    """Pieces that are many enough already are left alone."""
    pieces = split_ranges([OffsetRange("t", 0, 0, 100)], 3, 20)
    assert [piece.size for piece in pieces] == [20, 20, 20, 20, 20]


def test_max_records_then_min_partitions() -> None:
    """Pieces that are too few after `max_records` are cut further."""
    pieces = split_ranges([OffsetRange("t", 0, 0, 100)], 4, 50)
    assert [piece.size for piece in pieces] == [25, 25, 25, 25]


def test_nothing_to_split() -> None:
    """Empty ranges are dropped, also when all of them are empty."""
    assert split_ranges([OffsetRange("t", 0, 7, 7)], 4, 10) == []
    assert split_ranges([], 4, 10) == []


@pytest.mark.parametrize("seed", range(100))
def test_shares_are_proportional_and_starve_none(seed: int) -> None:
    """A share is its proportion rounded down, at least 1 where there is something, at most the size."""
    rng = random.Random(seed)
    sizes = {number: rng.choice([0, 1, rng.randint(0, 2**60)]) for number in range(rng.randint(1, 10))}
    limit = rng.randint(1, 2**40)
    shared = shares(sizes, limit)
    total = sum(sizes.values())
    for key, size in sizes.items():
        assert shared[key] == (min(size, max(1, size * limit // total)) if size else 0)
    assert sum(shared.values()) <= limit + len(sizes)


def test_ranges_come_by_topic_and_partition() -> None:
    """Ranges are ordered by topic and then by number, not by the text of the number."""
    places = [TopicPartition("b", 2), TopicPartition("b", 10), TopicPartition("a", 3)]
    ranges = ranges_between(dict.fromkeys(places, 1), dict.fromkeys(places, 4))
    assert ranges == [OffsetRange("a", 3, 1, 4), OffsetRange("b", 2, 1, 4), OffsetRange("b", 10, 1, 4)]


def test_start_behind_end_is_refused() -> None:
    """A start behind its end is an error in Spark's words."""
    with pytest.raises(OptionError, match="The resolved start offset 5 is greater than the resolved end offset 4"):
        ranges_between({T0: 5}, {T0: 4})


@pytest.mark.parametrize(
    ("start", "end", "fitted", "losses"),
    [
        (10, 20, (10, 20), 0),  # all that there is
        (12, 15, (12, 15), 0),
        (3, 15, (10, 15), 1),  # the start is aged out
        (3, 7, (10, 10), 1),  # all of it is
        (12, 25, (12, 20), 1),  # the end has not been written
        (25, 30, (20, 20), 1),
        (3, 30, (10, 20), 2),
        (25, 12, (20, 20), 1),  # a start beyond the log is a loss, whatever the end
        (15, 12, (15, 12), 0),  # the wrong way round: left for `ranges_between`
    ],
)
def test_clip(start: int, end: int, fitted: tuple[int, int], losses: int) -> None:
    """What is asked for is clipped to what there is, and each side that lost something is told."""
    starts, ends, lost = clip({T0: start}, {T0: end}, {T0: 10}, {T0: 20})
    assert (starts[T0], ends[T0]) == fitted
    assert len(lost) == losses
    assert all(text.startswith("t-0: ") for text in lost)


@pytest.mark.parametrize("seed", range(50))
def test_json_round_trip(seed: int) -> None:
    """Offsets survive the checkpoint's layout; equal ones give equal text in whatever order they come."""
    rng = random.Random(seed)
    places = [TopicPartition(rng.choice("abc"), number) for number in range(rng.randint(0, 12))]
    offsets = {place: rng.randint(0, 2**60) for place in places}
    rng.shuffle(places)
    shuffled = {place: offsets[place] for place in places}
    assert json.dumps(to_json_dict(offsets)) == json.dumps(to_json_dict(shuffled))
    assert from_json_dict(json.loads(json.dumps(to_json_dict(offsets)))) == offsets


def test_json_layout_is_sparks() -> None:
    """Partitions are text keys in numerical order, under topics in lexical order."""
    offsets = {TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3}
    assert json.dumps(to_json_dict(offsets)) == '{"a": {"0": 3}, "b": {"9": 2, "10": 1}}'


def test_ranges_print_as_kafka_does() -> None:
    """A partition and a range print with an address that can be searched for."""
    assert str(T1) == "t-1"
    assert str(OffsetRange("t", 1, 3, 9)) == "t-1 [3, 9)"
    assert OffsetRange("t", 1, 9, 3).size == 0
