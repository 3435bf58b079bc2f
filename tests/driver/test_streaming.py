"""Planning of streams, against a broker made of numbers."""

import json
import random
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from ticdc_source.driver.streaming import StreamLimits, StreamPlanner, pack
from ticdc_source.errors import DataLossError
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.topics import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@dataclass
class Numbers:
    """Log starts and ends by partition, and how often they were asked for."""

    first: dict[TopicPartition, int]
    last: dict[TopicPartition, int]
    begin_at: str = "latest"
    asked: list[str] = field(default_factory=list)

    def partitions(self, *, missing: bool = False) -> list[TopicPartition]:
        assert missing
        self.asked.append("partitions")
        return sorted(self.last)

    def starts(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: (self.last if self.begin_at == "latest" else self.first)[place] for place in places}

    def earliest(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked.append("earliest")
        return {place: self.first[place] for place in places}

    def latest(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked.append("latest")
        gone = [place for place in places if place not in self.last]
        if gone:
            raise DataLossError(gone)
        return {place: self.last[place] for place in places}


@dataclass
class Time:
    """A clock that stands until it is told to go."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def strict(reason: str) -> None:
    """Fail, as failOnDataLoss does."""
    raise DataLossError(reason)


def planner(numbers: Numbers, time: Time | None = None, *, fail: bool = True, **limits: float) -> StreamPlanner:
    """Make a planner."""
    report = strict if fail else lambda reason: warnings.warn(reason, stacklevel=2)
    return StreamPlanner(numbers, StreamLimits(**{"min_interval": 0.0, **limits}), report, time or Time())


def via_json(offset: dict[str, Any]) -> dict[str, Any]:
    """Send an offset through the checkpoint."""
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


def test_a_crash_in_batch_zero_starts_where_the_stream_started() -> None:
    """The first end offset carries the resolved start: a replay reads from it, though "latest" has moved."""
    numbers = Numbers({T0: 0}, {T0: 20})
    plan = planner(numbers)
    start = plan.initial()
    numbers.last[T0] = 50
    end = via_json(plan.next(via_json(start)))
    numbers.last[T0] = 90

    replay = planner(numbers)

    assert end == {"$init": {"t": {"0": 20}}, "t": {"0": 50}}
    assert replay.ranges(replay.initial(), end) == [OffsetRange("t", 0, 20, 50)]


def test_a_stream_without_data_keeps_its_start() -> None:
    """Before any record the first end differs from the start, so that Spark writes it down; then nothing is new."""
    plan = planner(Numbers({T0: 0}, {T0: 20}))
    start = plan.initial()

    first = via_json(plan.next(start))

    assert plan.ranges(start, first) == []
    assert json.dumps(plan.next(first)) == json.dumps(first)


def test_the_initial_offset_is_resolved_once() -> None:
    """Spark asks twice in the first batch; the second answer is the first."""
    numbers = Numbers({T0: 0}, {T0: 20})
    plan = planner(numbers)

    first = plan.initial()
    numbers.last[T0] = 30

    assert plan.initial() == first


def test_offsets_are_sorted_and_idle_means_the_start_itself() -> None:
    """Topics in lexical order, partitions in numerical; nothing new gives the same JSON text back."""
    places = [TopicPartition("b", n) for n in (10, 2, 0)] + [TopicPartition("a", 0)]
    plan = planner(Numbers(dict.fromkeys(places, 0), dict.fromkeys(places, 5), "earliest"))

    end = plan.next(plan.next(plan.initial()))
    odd = {"b": {"2": 5, "10": 5, "0": 5}, "a": {"0": 5}}

    assert (
        json.dumps({name: end[name] for name in end if name[0] != "$"})
        == '{"a": {"0": 5}, "b": {"0": 5, "2": 5, "10": 5}}'
    )
    assert json.dumps(plan.next(odd)) == json.dumps(odd)


def test_an_idle_stream_asks_at_most_five_times_a_second() -> None:
    """Polled every 10 ms for 20 s, the brokers get at most 100 calls."""
    numbers, time = Numbers({T0: 0}, {T0: 5}), Time()
    plan = planner(numbers, time, min_interval=0.2)
    offset = plan.next(plan.initial())
    numbers.asked.clear()

    for _ in range(2000):
        time.now += 0.01
        offset = plan.next(offset)
        plan.newest()

    assert 0 < len(numbers.asked) <= 100


def test_a_limit_is_shared_by_backlog_and_starves_nobody() -> None:
    """Shares follow the backlog, each at least one, over and over until all is read, for random backlogs."""
    chooser = random.Random(seed := 4242)
    for _ in range(200):
        places = [TopicPartition("t", n) for n in range(chooser.randint(1, 6))]
        last = {place: chooser.choice((0, 1, 7, 1000, 10**6)) for place in places}
        plan = planner(Numbers(dict.fromkeys(places, 0), last, "earliest"))
        offset, limit, read = plan.initial(), chooser.randint(1, 10**5), 0
        while (end := plan.next(offset, limit)) != offset:
            ranges = plan.ranges(offset, end)
            size = sum(one.size for one in ranges)
            waiting = [place for place in places if plan._offsets(offset).get(place, 0) < last[place]]
            assert size <= limit + len(places), seed
            assert len(ranges) == len(waiting), seed
            read, offset = read + size, end
        assert read == sum(last.values()), seed


def test_waiting_for_a_least_number_of_offsets_ends_after_the_delay() -> None:
    """The option minOffsetsPerTrigger holds a batch back until there are enough, or maxTriggerDelay has passed."""
    numbers, time = Numbers({T0: 0}, {T0: 0}), Time()
    plan = planner(numbers, time, max_delay=60)
    offset = plan.next(plan.initial(), None, 10)

    numbers.last[T0] = 5
    assert plan.next(offset, None, 10) == offset
    time.now = 61
    assert plan.next(offset, None, 10) == {"t": {"0": 5}}
    numbers.last[T0] = 15
    assert plan.next({"t": {"0": 5}}, 100, 10) == {"t": {"0": 15}}


def test_waiting_asks_no_more_than_idling() -> None:
    """While a batch is held back, partitions that are new are not looked up at each poll; a loss is told at once."""
    numbers, time = Numbers({T0: 0, T1: 0}, {T0: 5}), Time()
    plan = planner(numbers, time, min_interval=0.2)
    offset = plan.next(plan.initial(), None, 10)
    numbers.last[T1] = 3
    time.now = 60
    numbers.asked.clear()

    for _ in range(100):
        time.now += 0.01
        assert plan.next(offset, None, 10) == offset
    assert len(numbers.asked) <= 6

    time.now += 60
    del numbers.last[T1]
    numbers.last[T0] = 2
    with pytest.raises(DataLossError, match="t-0's offset was changed from 5 to 2"):
        plan.next(offset, None, 10)


def test_new_partitions_start_at_their_first_record() -> None:
    """A partition that comes up later is read from its start, which must be offset 0."""
    numbers = Numbers({T0: 0}, {T0: 5})
    plan = planner(numbers)
    offset = plan.next(plan.initial())
    numbers.first[T1], numbers.last[T1] = 0, 3
    plan._listed_at = None

    end = plan.next(offset)

    assert plan.ranges(offset, end) == [OffsetRange("t", 1, 0, 3)]
    numbers.first[T1] = 2
    with pytest.raises(DataLossError, match="do not start from offset 0: t-1 at 2"):
        plan.ranges(offset, end)


@pytest.mark.parametrize(("change", "expected"), [
    ({T0: None}, "t-0 have been deleted"),
    ({T0: 2}, "t-0's offset was changed from 5 to 2"),
])  # fmt: skip
def test_deleted_and_recreated_partitions_are_data_loss(
    change: dict[TopicPartition, int | None], expected: str
) -> None:
    """Partitions that are gone or went back fail the query; without failOnDataLoss it warns and goes on."""
    numbers = Numbers({T0: 0, T1: 0}, {T0: 5, T1: 5})
    offset = {"t": {"0": 5, "1": 5}}
    for place, end in change.items():
        if end is None:
            del numbers.last[place]
        else:
            numbers.last[place] = end
    numbers.last[T1] = 8

    with pytest.raises(DataLossError, match=expected):
        planner(numbers).next(offset)

    tolerant = planner(numbers, fail=False)
    with pytest.warns(UserWarning, match=expected):
        end_offset = tolerant.next(offset)
    with pytest.warns(UserWarning, match=expected):
        assert tolerant.ranges(offset, end_offset) == [OffsetRange("t", 1, 5, 8)]


def test_a_topic_may_go_between_two_listings() -> None:
    """A topic deleted while its partitions are still listed is a loss like any other: a warning where that will do."""
    numbers = Numbers({T0: 0, U0: 0}, {T0: 5, U0: 5}, "earliest")
    plan, strictly = planner(numbers, fail=False), planner(numbers)
    offset = plan.next(plan.initial())
    strictly.next(strictly.initial())
    del numbers.last[U0]

    with pytest.warns(UserWarning, match="Partitions u-0 have been deleted"):
        assert plan.next(offset) == {"t": {"0": 5}}
    with pytest.raises(DataLossError, match="Partitions u-0 have been deleted"):
        strictly.next(offset)


def test_available_now_ends_at_what_was_there_at_first() -> None:
    """The end is fixed once, kept over several limited batches, and left alone by later records."""
    numbers = Numbers({T0: 0}, {T0: 10}, "earliest")
    plan = planner(numbers)
    plan.stop_at_latest()
    offset, seen = plan.initial(), []

    while (end := plan.next(offset, 4)) != offset:
        seen += [(one.start, one.end) for one in plan.ranges(offset, end)]
        offset = end
        numbers.last[T0] += 100

    assert seen == [(0, 4), (4, 8), (8, 10)]


def test_available_now_refuses_partitions_that_change() -> None:
    """A partition that comes or goes while it runs is an error that says to restart."""
    numbers = Numbers({T0: 0, U0: 0}, {T0: 10}, "earliest")
    plan = planner(numbers)
    plan.stop_at_latest()
    offset = plan.next(plan.initial(), 4)
    numbers.last[U0] = 5
    plan._listed_at = None

    with pytest.raises(DataLossError, match=r"u-0 changed.*restart your query"):
        plan.next(offset, 4)


def test_a_topic_that_is_not_there_yet_is_waited_for() -> None:
    """A stream starts without any partition, and reads the topic from its first record once it is there."""
    numbers = Numbers({}, {})
    plan = planner(numbers)
    offset = via_json(plan.next(via_json(plan.initial())))
    assert offset == {"$init": {}}
    assert plan.next(offset) == offset

    numbers.first[T0], numbers.last[T0] = 0, 7
    end = plan.next(offset)

    assert plan.ranges(offset, end) == [OffsetRange("t", 0, 0, 7)]


def test_small_ranges_share_a_task() -> None:
    """Sixteen small ranges are few tasks, big ones stay alone, all are read once, and minPartitions is kept."""
    small = [OffsetRange("t", n, 0, 100) for n in range(16)]
    mixed = [OffsetRange("t", 0, 0, 10**6), *small[1:4], OffsetRange("t", 4, 0, 10**6)]

    assert len(pack(small)) == 1
    assert [len(piece) for piece in pack(mixed)] == [1, 3, 1]
    assert [one for piece in pack(mixed) for one in piece] == mixed
    assert len(pack(small, 8)) == 16
    assert [[one.size for one in piece] for piece in pack(small[:4], None, 250)] == [[100, 100], [100, 100]]
    assert [[one.size for one in piece] for piece in pack([OffsetRange("t", 0, 0, 300)], None, 100)] == [[100]] * 3
