"""Streams are planned, against a fake cluster of log starts and ends."""

import json
import random
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tests.support.captured import make_options
from tests.support.seeds import each_seed
from ticdc_source.errors import CheckpointError, DataLossError, OptionError
from ticdc_source.options.offsets import OffsetRange, pack
from ticdc_source.options.topics import TopicPartition
from ticdc_source.pipeline.context import DDLCoverage
from ticdc_source.planning.ddl_copies import StreamCoverage, coverage_of
from ticdc_source.sources.kafka import KafkaCluster
from ticdc_source.sources.kafka.topic_planner import TopicPlanner
from ticdc_source.sources.stream_offsets import EPOCHS, IDS, INITIAL, Offsets, StreamLimits, offsets_of
from ticdc_source.spark.readers import RememberingStreamReader

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@dataclass
class FakeCluster:
    """Log starts and ends by topic partition, and the names of the look-ups that were made."""

    first: dict[TopicPartition, int]
    last: dict[TopicPartition, int]
    begin_at: str = "latest"
    ids: dict[str, str] = field(default_factory=dict)
    elections: dict[TopicPartition, list[tuple[int, int]]] = field(default_factory=dict)  # epochs and where they began
    leaders: dict[TopicPartition, int] = field(default_factory=dict)  # their epochs, at the last look-up
    calls: list[str] = field(default_factory=list)
    known: list[list[TopicPartition]] = field(default_factory=list)

    def partitions(self, *, missing: bool = False, known: Iterable[TopicPartition] = ()) -> list[TopicPartition]:
        assert missing
        self.known.append(sorted(known))
        self.calls.append("partitions")
        return sorted(self.last)

    def starts(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        offsets = self.last if self.begin_at == "latest" else self.first
        return {each: offsets[each] for each in topic_partitions}

    def earliest(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self.calls.append("earliest")
        return {each: self.first[each] for each in topic_partitions}

    def latest(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self.calls.append("latest")
        gone = [each for each in topic_partitions if each not in self.last]
        if gone:
            raise DataLossError(gone)
        self.leaders.update({each: elections[-1][0] for each, elections in self.elections.items()})
        return {each: self.last[each] for each in topic_partitions}

    def topic_ids(self) -> dict[str, str]:
        return self.ids

    def leader_epochs(self) -> dict[TopicPartition, int]:
        return self.leaders

    def ends_of_epochs(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        self.calls.append("ends_of_epochs")
        return {
            each: next((start for later, start in self.elections[each] if later > epoch), self.last[each])
            for each, epoch in epochs.items()
        }


@dataclass
class Clock:
    """A clock that stands still until a test moves it."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def strict(reason: str) -> None:
    """Raise an error, as failOnDataLoss=true does."""
    raise DataLossError(reason)


def planner(cluster: FakeCluster, clock: Clock | None = None, *, fail: bool = True, **limits: float) -> TopicPlanner:
    report = strict if fail else lambda reason: warnings.warn(reason, stacklevel=2)
    clock = clock or Clock()
    lookup = cast("KafkaCluster", cluster)
    return TopicPlanner(lookup, StreamLimits(**{"min_interval": 0.0, **limits}), report, clock, clock.sleep)


def via_json(offset: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


def test_a_crash_in_batch_zero_starts_where_the_stream_started() -> None:
    """The first end offset holds the resolved start, so a replay reads from there although `latest` has moved."""
    cluster = FakeCluster({T0: 0}, {T0: 20})
    plan = planner(cluster)
    start = plan.initial()
    cluster.last[T0] = 50
    end = via_json(plan.next(via_json(start)))
    cluster.last[T0] = 90

    replay = planner(cluster)

    assert end == {"$init": {"t": {"0": 20}}, "t": {"0": 50}}
    assert replay.ranges(replay.initial(), end) == [OffsetRange("t", 0, 20, 50)]


def test_a_stream_without_data_keeps_its_start() -> None:
    """The first end offset differs from the start even without data, so Spark stores it, and then nothing is new."""
    plan = planner(FakeCluster({T0: 0}, {T0: 20}))
    start = plan.initial()

    first = via_json(plan.next(start))

    assert plan.ranges(start, first) == []
    assert json.dumps(plan.next(first)) == json.dumps(first)


def test_offsets_are_sorted_and_an_idle_stream_returns_its_start() -> None:
    """Topics are in lexical and partitions in numerical order, and an idle stream returns the same JSON text."""
    topic_partitions = [TopicPartition("b", n) for n in (10, 2, 0)] + [TopicPartition("a", 0)]
    first, last = dict.fromkeys(topic_partitions, 0), dict.fromkeys(topic_partitions, 5)
    plan = planner(FakeCluster(first, last, "earliest"))

    end = plan.next(plan.next(plan.initial()))
    odd = {"b": {"2": 5, "10": 5, "0": 5}, "a": {"0": 5}}

    assert (
        json.dumps({name: end[name] for name in end if name[0] != "$"})
        == '{"a": {"0": 5}, "b": {"0": 5, "2": 5, "10": 5}}'
    )
    assert json.dumps(plan.next(odd)) == json.dumps(odd)


def test_an_idle_stream_asks_at_most_five_times_a_second() -> None:
    cluster, clock = FakeCluster({T0: 0}, {T0: 5}), Clock()
    plan = planner(cluster, clock, min_interval=0.2)
    offset = plan.next(plan.initial())
    cluster.calls.clear()

    for _ in range(2000):
        clock.now += 0.01
        offset = plan.next(offset)
        plan.newest()

    assert 0 < len(cluster.calls) <= 100


def test_a_limit_is_divided_by_backlog_and_no_partition_starves() -> None:
    """A limit is divided in proportion to backlogs, each partition gets at least one offset, and all are read."""
    chooser = random.Random(seed := 4242)
    for _ in range(200):
        topic_partitions = [TopicPartition("t", n) for n in range(chooser.randint(1, 6))]
        last = {each: chooser.choice((0, 1, 7, 1000, 10**6)) for each in topic_partitions}
        plan = planner(FakeCluster(dict.fromkeys(topic_partitions, 0), last, "earliest"))
        offset, limit, read = plan.initial(), chooser.randint(1, 10**5), 0
        while (end := plan.next(offset, limit)) != offset:
            ranges = plan.ranges(offset, end)
            size = sum(offset_range.size for offset_range in ranges)
            waiting = [each for each in topic_partitions if offsets_of(offset).get(each, 0) < last[each]]
            assert size <= limit + len(topic_partitions), seed
            assert len(ranges) == len(waiting), seed
            read, offset = read + size, end
        assert read == sum(last.values()), seed


def test_waiting_for_a_least_number_of_offsets_ends_after_the_delay() -> None:
    """The option minOffsetsPerTrigger delays a batch until there are enough offsets, or maxTriggerDelay has passed."""
    cluster, clock = FakeCluster({T0: 0}, {T0: 0}), Clock()
    plan = planner(cluster, clock, max_delay=60)
    offset = plan.next(plan.initial(), None, 10)

    cluster.last[T0] = 5
    assert plan.next(offset, None, 10) == offset
    clock.now = 61
    assert plan.next(offset, None, 10) == {"t": {"0": 5}}
    cluster.last[T0] = 15
    assert plan.next({"t": {"0": 5}}, 100, 10) == {"t": {"0": 15}}


def test_a_delayed_batch_asks_no_more_than_an_idle_stream() -> None:
    """A delayed batch does not look up new partitions at each poll, and reports a loss."""
    cluster, clock = FakeCluster({T0: 0, T1: 0}, {T0: 5}), Clock()
    plan = planner(cluster, clock, min_interval=0.2)
    offset = plan.next(plan.initial(), None, 10)
    cluster.last[T1] = 3
    clock.now = 60
    cluster.calls.clear()

    for _ in range(100):
        clock.now += 0.01
        assert plan.next(offset, None, 10) == offset
    assert len(cluster.calls) <= 6

    clock.now += 60
    del cluster.last[T1]
    cluster.last[T0] = 2
    with pytest.raises(DataLossError, match="t-0's offset was changed from 5 to 2"):
        plan.next(offset, None, 10)


def test_new_partitions_start_at_their_first_record() -> None:
    cluster = FakeCluster({T0: 0}, {T0: 5})
    plan = planner(cluster)
    offset = plan.next(plan.initial())
    cluster.first[T1], cluster.last[T1] = 0, 3
    plan._listed_at = None

    end = plan.next(offset)

    assert plan.ranges(offset, end) == [OffsetRange("t", 1, 0, 3)]
    cluster.first[T1] = 2
    with pytest.raises(DataLossError, match="do not start from offset 0: t-1 at 2"):
        plan.ranges(offset, end)


@pytest.mark.parametrize(("change", "expected"), [
    ({T0: None}, "t-0 have been deleted"),
    ({T0: 2}, "t-0's offset was changed from 5 to 2"),
])  # fmt: skip
def test_deleted_and_recreated_partitions_are_data_loss(
    change: dict[TopicPartition, int | None], expected: str
) -> None:
    cluster = FakeCluster({T0: 0, T1: 0}, {T0: 5, T1: 5})
    offset = {"t": {"0": 5, "1": 5}}
    for topic_partition, end in change.items():
        if end is None:
            del cluster.last[topic_partition]
        else:
            cluster.last[topic_partition] = end
    cluster.last[T1] = 8

    with pytest.raises(DataLossError, match=expected):
        planner(cluster).next(offset)

    tolerant = planner(cluster, fail=False)
    with pytest.warns(UserWarning, match=expected):
        end_offset = tolerant.next(offset)
    with pytest.warns(UserWarning, match=expected):
        assert tolerant.ranges(offset, end_offset) == [OffsetRange("t", 1, 5, 8)]


def test_available_now_keeps_its_first_end() -> None:
    """AvailableNow fixes its end once, keeps it over limited batches, and ignores later records."""
    cluster = FakeCluster({T0: 0}, {T0: 10}, "earliest")
    plan = planner(cluster)
    plan.stop_at_latest()
    offset, seen = plan.initial(), []

    while (end := plan.next(offset, 4)) != offset:
        seen += [(offset_range.start, offset_range.end) for offset_range in plan.ranges(offset, end)]
        offset = end
        cluster.last[T0] += 100

    assert seen == [(0, 4), (4, 8), (8, 10)]


@pytest.mark.parametrize("changed", ["more", "fewer"])
def test_available_now_refuses_partitions_that_change(changed: str) -> None:
    """A partition that appears or disappears during AvailableNow is an error that says to restart."""
    cluster = FakeCluster({T0: 0, U0: 0}, {T0: 10} if changed == "more" else {T0: 10, U0: 5}, "earliest")
    plan = planner(cluster)
    plan.stop_at_latest()
    offset = plan.next(plan.initial(), 4)
    if changed == "more":
        cluster.last[U0] = 5
    else:
        del cluster.last[U0]
    plan._listed_at = None

    with pytest.raises(DataLossError, match=r"u-0 changed.*restart your query"):
        plan.next(offset, 4)


def test_a_topic_that_is_not_there_yet_is_waited_for() -> None:
    """A stream starts without any partition, and reads the topic from its first record once it exists."""
    cluster = FakeCluster({}, {})
    plan = planner(cluster)
    offset = via_json(plan.next(via_json(plan.initial())))
    assert offset == {"$init": {}}
    assert plan.next(offset) == offset

    cluster.first[T0], cluster.last[T0] = 0, 7
    end = plan.next(offset)

    assert plan.ranges(offset, end) == [OffsetRange("t", 0, 0, 7)]


def test_topic_ids_are_kept_in_offsets_and_an_offset_without_them_gets_them_with_the_next_batch() -> None:
    """Ids are in lexical order; an idle stream returns an offset without ids unchanged, down to its text."""
    cluster = FakeCluster({U0: 0, T0: 0}, {U0: 1, T0: 5}, "earliest")
    plan = planner(cluster)
    old = {"t": {"0": 5}, "u": {"0": 1}}
    cluster.ids = {"u": "U", "t": "T"}

    assert json.dumps(plan.next(old)) == json.dumps(old)
    cluster.last[T0] = 9
    end = via_json(plan.next(old))
    assert json.dumps(end) == '{"$ids": {"t": "T", "u": "U"}, "t": {"0": 9}, "u": {"0": 1}}'
    assert json.dumps(plan.next(end)) == json.dumps(end)
    assert plan.ranges(old, end) == [OffsetRange("t", 0, 5, 9)]
    assert json.dumps(plan.next(plan.initial())) == (
        '{"$init": {"t": {"0": 0}, "u": {"0": 0}}, "$ids": {"t": "T", "u": "U"}, "t": {"0": 9}, "u": {"0": 1}}'
    )
    cluster.ids = {}  # the look-up tells none, as that of another client library
    cluster.last[U0] = 2
    assert json.dumps(plan.next(end)) == '{"$ids": {"t": "T", "u": "U"}, "t": {"0": 9}, "u": {"0": 2}}'


RECREATED = r"Deleted and created again: topic t \(its id was OLD and is NEW\)"


@pytest.mark.parametrize("last", [0, 3, 5, 9])
def test_a_recreated_topic_is_data_loss_whatever_its_length(last: int) -> None:
    """A topic with another id fails the query and names both ids; or all of the new topic is read, and warned of."""
    cluster = FakeCluster({T0: 0, U0: 0}, {T0: last, U0: 7}, ids={"t": "NEW", "u": "U"})
    offset = {"$ids": {"t": "OLD", "u": "U"}, "t": {"0": 5, "1": 2}, "u": {"0": 4}}

    with pytest.raises(DataLossError, match=f"{RECREATED}.*failOnDataLoss=false.*startingOffsets"):
        planner(cluster).next(offset, None, 1000)  # at once, without waiting for a minimum

    tolerant = planner(cluster, fail=False)
    with pytest.warns(UserWarning, match=RECREATED):
        end = via_json(tolerant.next(offset))
    assert end == {"$ids": {"t": "NEW", "u": "U"}, "t": {"0": last}, "u": {"0": 7}}
    for plan in (tolerant, planner(cluster, fail=False)):  # also after a crash
        with pytest.warns(UserWarning, match=RECREATED):
            ranges = plan.ranges(offset, end)
        assert [each for each in ranges if each.topic == "t"] == [OffsetRange("t", 0, 0, last)][: last > 0]
        assert [each for each in ranges if each.topic == "u"] == [OffsetRange("u", 0, 4, 7)]
    assert tolerant.next(end) == end
    with pytest.raises(DataLossError, match=RECREATED):
        planner(cluster).ranges(offset, end)


def test_a_topic_that_is_recreated_after_planning_is_not_read_at_old_offsets() -> None:
    """A batch that was planned before a restart reads nothing of a topic that is another now; the next one reads it."""
    cluster = FakeCluster({T0: 0, U0: 0}, {T0: 9, U0: 7}, ids={"t": "NEW", "u": "U"})
    start = {"$ids": {"t": "OLD", "u": "U"}, "t": {"0": 2}, "u": {"0": 4}}
    planned = {"$ids": {"t": "OLD", "u": "U"}, "t": {"0": 5}, "u": {"0": 7}}

    with pytest.raises(DataLossError, match=RECREATED):
        planner(cluster).ranges(start, planned)

    plan = planner(cluster, fail=False)
    with pytest.warns(UserWarning, match=RECREATED):
        assert plan.ranges(start, planned) == [OffsetRange("u", 0, 4, 7)]
    with pytest.warns(UserWarning, match=RECREATED):
        assert plan.ranges(planned, plan.next(planned)) == [OffsetRange("t", 0, 0, 9)]


def test_a_broker_that_lags_behind_does_not_bring_an_old_topic_back() -> None:
    """One answer with the id of before is looked at again, and no id comes back once it was replaced."""
    cluster = FakeCluster({T0: 0}, {T0: 9}, ids={"t": "NEW"})
    plan = planner(cluster, fail=False)
    with pytest.warns(UserWarning, match=RECREATED):
        end = plan.next({"$ids": {"t": "OLD"}, "t": {"0": 5}})
    cluster.ids = {"t": "OLD"}
    assert plan.next(end) == end

    answers = iter(["OLD", "NEW"])
    cluster.topic_ids = lambda: {"t": next(answers)}  # type: ignore[method-assign]
    assert planner(cluster).next(end) == end


@pytest.mark.parametrize("fail", [True, False])
def test_a_new_id_is_believed_after_two_seconds(*, fail: bool) -> None:
    """A broker that lags for less, after a restart of the driver, recreates no topic; one look in two seconds would."""
    new = {"$ids": {"t": "NEW"}, "t": {"0": 100}}
    cluster, clock = FakeCluster({T0: 0}, {T0: 100}), Clock()
    cluster.topic_ids = lambda: {"t": "OLD" if clock.now < 1.9 else "NEW"}  # type: ignore[method-assign]
    plan = planner(cluster, clock, fail=fail)

    assert plan.next(new) == new
    assert 1.9 <= clock.now < 3
    cluster.topic_ids = lambda: {"t": "NEWER"}  # type: ignore[method-assign]
    cluster.calls.clear()
    with pytest.raises(DataLossError) if fail else pytest.warns(UserWarning, match="NEW and is NEWER"):
        plan.next(new)
    assert cluster.calls.count("latest") == 5


@pytest.mark.parametrize("between", ["deleted", "without ids"])
def test_an_old_id_does_not_come_back_after_a_look_that_told_none(between: str) -> None:
    """The id of a topic that vanished, or that was replaced before a look without ids, is that of a lagging broker."""
    cluster = FakeCluster({T0: 0}, {T0: 40}, ids={"t": "OLD"})
    plan = planner(cluster, fail=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        offset = plan.next({"$ids": {"t": "OLD"}, "t": {"0": 30}})
        if between == "deleted":
            del cluster.last[T0]
            offset = plan.next(offset)
            cluster.last[T0] = 40
        cluster.ids = {"t": "NEW"}
        offset = plan.next(offset)
    cluster.ids = {}
    assert plan.next(offset) == offset

    cluster.ids = {"t": "OLD"}

    assert offset == {"$ids": {"t": "NEW"}, "t": {"0": 40}}
    assert plan.next(offset) == offset


@pytest.mark.parametrize("fail", [True, False])
def test_an_idle_stream_of_an_earlier_release_notices_a_recreated_topic(*, fail: bool) -> None:
    """An offset without ids stays as it is; the id that the process saw beside it counts until the next batch."""
    cluster = FakeCluster({T0: 0}, {T0: 100}, ids={"t": "OLD"})
    plan = planner(cluster, fail=fail)
    offset = {"t": {"0": 100}}
    assert json.dumps(plan.next(offset)) == json.dumps(offset)
    cluster.ids, cluster.last = {"t": "NEW"}, {T0: 260}

    if fail:
        with pytest.raises(DataLossError, match=RECREATED):
            plan.next(offset)
        return
    with pytest.warns(UserWarning, match=RECREATED):
        end = via_json(plan.next(offset))
    with pytest.warns(UserWarning, match=RECREATED):
        assert plan.ranges(offset, end) == [OffsetRange("t", 0, 0, 260)]
    assert plan.next(end) == end == {"$ids": {"t": "NEW"}, "t": {"0": 260}}


def test_the_first_listing_looks_for_the_partitions_of_the_checkpoint() -> None:
    """A process that has just started knows them only from the offset; later the lookup remembers what it found."""
    offset, end = {"t": {"0": 3}}, {"$ids": {"t": "T"}, "t": {"0": 5}}
    for replays in (False, True):
        cluster, clock = FakeCluster({T0: 0}, {T0: 5}, ids={"t": "T"}), Clock()
        plan = planner(cluster, clock)
        if replays:
            plan.ranges(offset, end)
        plan.next(end if replays else offset)
        clock.now += 60
        plan.next(end)
        assert cluster.known == [[T0], []]


@pytest.mark.parametrize("knows_after", [3.0, 60.0])
def test_a_listed_topic_without_offsets_is_deleted_in_the_end(knows_after: float) -> None:
    """A broker that has just started may not know what another one lists; other topics go on."""
    cluster, clock = FakeCluster({T0: 0, U0: 0}, {T0: 5, U0: 5}), Clock()
    ends, offset = cluster.latest, {"t": {"0": 5}, "u": {"0": 5}}

    def latest(topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        topic_partitions = list(topic_partitions)
        if U0 in topic_partitions and clock.now < knows_after:
            raise DataLossError([U0])
        return ends(topic_partitions)

    cluster.latest = latest  # type: ignore[method-assign]
    if knows_after < 4:
        assert planner(cluster, clock).next(offset) == offset
        return
    with pytest.raises(DataLossError, match="Partitions u-0 have been deleted"):
        planner(cluster, clock).next(offset)
    with pytest.warns(UserWarning, match="Partitions u-0 have been deleted"):
        assert planner(cluster, clock, fail=False).next(offset) == {"t": {"0": 5}}


TRUNCATED = "Truncated by the election of a leader that lacked records: t-0 at offset 3, where epoch 1 ends in the log"


@pytest.mark.parametrize("last", [3, 5, 9])
def test_a_truncated_log_is_data_loss_whatever_its_length(last: int) -> None:
    """A log that a later leader has truncated fails the query although it has grown again; or is read from there on."""
    cluster = FakeCluster({T0: 0, U0: 0}, {T0: last, U0: 7}, elections={T0: [(1, 0), (4, 3)], U0: [(2, 0)]})
    offset = {"$epochs": {"t": {"0": 1}, "u": {"0": 2}}, "t": {"0": 5}, "u": {"0": 4}}

    with pytest.raises(DataLossError, match=f"{TRUNCATED} of the leader of epoch 4, and offset 5 had been reached"):
        planner(cluster).next(offset, None, 1000)  # at once, without waiting for a minimum

    tolerant = planner(cluster, fail=False)
    with pytest.warns(UserWarning, match=TRUNCATED):
        end = via_json(tolerant.next(offset))
    assert json.dumps(end) == (
        f'{{"$epochs": {{"t": {{"0": 4}}, "u": {{"0": 2}}}}, "t": {{"0": {last}}}, "u": {{"0": 7}}}}'
    )
    for plan in (tolerant, planner(cluster, fail=False)):  # also after a crash
        with pytest.warns(UserWarning, match=TRUNCATED):
            ranges = plan.ranges(offset, end)
        assert [each for each in ranges if each.topic == "t"] == [OffsetRange("t", 0, 3, last)][: last > 3]
        assert [each for each in ranges if each.topic == "u"] == [OffsetRange("u", 0, 4, 7)]
    assert tolerant.next(end) == end
    with pytest.raises(DataLossError, match=TRUNCATED):
        planner(cluster).ranges(offset, end)


def test_an_election_that_loses_nothing_costs_one_request() -> None:
    """A leader that has all records is asked once where the epoch ends, however often an idle stream looks."""
    cluster = FakeCluster({T0: 0}, {T0: 5}, "earliest", elections={T0: [(1, 0)]})
    plan = planner(cluster)
    end = plan.next(plan.initial())
    assert end["$epochs"] == {"t": {"0": 1}}
    for epoch in (2, 5):
        cluster.elections[T0].append((epoch, 5))
        cluster.calls.clear()
        for _ in range(20):
            assert plan.next(end) == end
        assert cluster.calls.count("ends_of_epochs") == 1

    cluster.last[T0] = 8
    later = plan.next(end)
    cluster.calls.clear()

    assert plan.ranges(end, later) == [OffsetRange("t", 0, 5, 8)]
    assert plan.next(later) == later
    assert "ends_of_epochs" not in cluster.calls


@dataclass
class DeletedInTheLook(FakeCluster):
    """A cluster whose partition t-1 is deleted when a leader is asked about epochs; listed and with ends until then."""

    def ends_of_epochs(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        self.last.pop(T1, None)
        if T1 in epochs:
            raise DataLossError("Partitions t-1 have been deleted.")
        return super().ends_of_epochs(epochs)


@pytest.mark.parametrize("planned", [False, True])
def test_a_partition_that_is_deleted_while_leaders_are_asked_is_lost_as_any(*, planned: bool) -> None:
    """It is an error, or with failOnDataLoss=false a warning, and the stream goes on with the other partitions."""
    start = {"$epochs": {"t": {"0": 1, "1": 1}}, "t": {"0": 5, "1": 5}}
    end = {"$epochs": {"t": {"0": 2, "1": 2}}, "t": {"0": 9, "1": 9}}

    def cluster() -> FakeCluster:
        elections = {tp: [(1, 0), (2, 7)] for tp in (T0, T1)}
        return DeletedInTheLook({T0: 0, T1: 0}, {T0: 9, T1: 9}, elections=elections)

    def ranges(plan: TopicPlanner) -> list[OffsetRange]:
        return plan.ranges(start, end if planned else via_json(plan.next(start)))

    with pytest.raises(DataLossError, match="Partitions t-1 have been deleted"):
        ranges(planner(cluster()))
    with pytest.warns(UserWarning, match="Partitions t-1 have been deleted") as told:
        read = ranges(planner(cluster(), fail=False))
    assert read == [OffsetRange("t", 0, 5, 9)]
    assert len(told) == (1 if planned else 2)  # when it is planned, and when it is read


@pytest.mark.parametrize("written", [{}, {"$epochs": {"t": {"0": 1}}}])
def test_without_epochs_there_is_no_data_loss(written: dict[str, Any]) -> None:
    """An offset without them, brokers without them, and a leader that cannot tell where one ends are no truncation."""
    cluster = FakeCluster({T0: 0}, {T0: 9}, elections={T0: [(1, 0), (4, 3)]} if not written else {})
    offset = {**written, "t": {"0": 5}}
    assert planner(cluster).ranges(offset, planner(cluster).next(offset)) == [OffsetRange("t", 0, 5, 9)]

    cluster.elections = {T0: [(1, 0), (4, 3)]}
    cluster.ends_of_epochs = lambda epochs: dict.fromkeys(epochs, -1)  # type: ignore[method-assign]
    assert planner(cluster).ranges(offset, planner(cluster).next(offset)) == [OffsetRange("t", 0, 5, 9)]


def test_a_log_that_is_truncated_after_planning_is_read_up_to_there() -> None:
    """A batch that was planned before a restart fails, or reads what is left of it; the next one reads the rest."""
    cluster = FakeCluster({T0: 0}, {T0: 20}, elections={T0: [(1, 0), (2, 4)]})
    start = {"$epochs": {"t": {"0": 1}}, "t": {"0": 2}}
    planned = {"$epochs": {"t": {"0": 1}}, "t": {"0": 9}}

    with pytest.raises(DataLossError, match="t-0 at offset 4"):
        planner(cluster).ranges(start, planned)

    plan = planner(cluster, fail=False)
    with pytest.warns(UserWarning, match="t-0 at offset 4"):
        assert plan.ranges(start, planned) == [OffsetRange("t", 0, 2, 4)]
    with pytest.warns(UserWarning, match="t-0 at offset 4"):
        assert plan.ranges(planned, plan.next(planned)) == [OffsetRange("t", 0, 4, 20)]
    cluster.elections[T0] = [(0, 0), (2, 1)]  # all of the batch, and what was read before it
    with pytest.warns(UserWarning, match="t-0 at offset 1"):
        assert planner(cluster, fail=False).ranges(start, planned) == []


def test_ends_that_are_looked_up_again_have_the_epochs_of_that_look() -> None:
    """An end that seemed to have gone back may come from a newer leader, and is not compared with the older one."""
    cluster = FakeCluster({T0: 0}, {T0: 3}, elections={T0: [(1, 0)]})
    ends = cluster.latest

    def latest(topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        answer = ends(topic_partitions)
        cluster.last, cluster.elections = {T0: 8}, {T0: [(1, 0), (2, 6)]}
        return answer

    cluster.latest = latest  # type: ignore[method-assign]
    plan = planner(cluster)

    end = plan.next({"$epochs": {"t": {"0": 1}}, "t": {"0": 5}})

    assert end == {"$epochs": {"t": {"0": 2}}, "t": {"0": 8}}
    assert plan.next(end) == end


def test_the_epochs_of_other_partitions_are_kept_when_ends_are_looked_up_again() -> None:
    """A connection that was lost in between knows no epochs but those of the partitions that were looked up again."""
    cluster = FakeCluster({T0: 0, T1: 0}, {T0: 3, T1: 9}, elections={T0: [(1, 0)], T1: [(3, 0)]})
    ends = cluster.latest

    def latest(topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        asked = list(topic_partitions)
        answer = ends(asked)
        cluster.leaders = {each: cluster.elections[each][-1][0] for each in asked}
        cluster.last[T0] = 8
        return answer

    cluster.latest = latest  # type: ignore[method-assign]

    end = planner(cluster).next({"$epochs": {"t": {"0": 1, "1": 3}}, "t": {"0": 5, "1": 7}})

    assert end == {"$epochs": {"t": {"0": 1, "1": 3}}, "t": {"0": 8, "1": 9}}


@dataclass
class ReplacedLog:
    """A log whose records have numbers of their own, under leaders of which some lack the last of them."""

    chooser: random.Random
    records: list[int] = field(default_factory=list)
    elections: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    written: int = 0

    def write(self) -> None:
        count = self.chooser.randint(1, 5)
        self.records += range(self.written, self.written + count)
        self.written += count

    def elect(self, kept: int) -> None:
        """Elect a leader that has the first records."""
        del self.records[kept:]
        epoch = self.elections[-1][0] + self.chooser.randint(1, 3)
        self.elections = [(each, start) for each, start in self.elections if start < kept] + [(epoch, kept)]

    def show(self, cluster: FakeCluster) -> None:
        cluster.last[T0], cluster.elections[T0] = len(self.records), self.elections


@pytest.mark.parametrize("fail", [True, False])
@each_seed(200)
def test_what_was_read_is_in_the_log_or_its_loss_is_told(seed: int, *, fail: bool) -> None:
    """Random elections, limits and restarts: that a read record is gone is told, and what replaced it is read once."""
    chooser = random.Random(seed)
    log, cluster = ReplacedLog(chooser), FakeCluster({T0: 0}, {T0: 0}, "earliest")
    log.show(cluster)
    plan, read = planner(cluster, fail=fail), list[int]()
    offset = plan.next(plan.initial())
    for _ in range(40):
        match chooser.choice(["write", "write", "clean", "unclean", "restart"]):
            case "write":
                log.write()
            case "clean":
                log.elect(len(log.records))
            case "unclean":
                log.elect(chooser.randint(0, len(log.records)))
            case "restart":
                plan = planner(cluster, fail=fail)
        log.show(cluster)
        is_lost = not set(read) <= set(log.records)
        if fail and is_lost:
            with pytest.raises(DataLossError, match="Truncated"):
                plan.next(offset)
            return
        if chooser.random() < 0.5:
            continue
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            end = via_json(plan.next(offset, chooser.choice([None, 2])))
            if end != offset:
                for offset_range in plan.ranges(offset, end):
                    read += log.records[offset_range.start : offset_range.end]
        told = any("Truncated" in str(warning.message) for warning in caught)
        assert not (is_lost and not told), "a loss that nobody told"
        assert not (told and not is_lost and fail), "a loss that was none"
        read = [number for number in read if number in log.records]
        assert read == sorted(set(read)), "read twice"
        assert read == log.records[: offsets_of(end)[T0]], "skipped"
        offset = end


Looks = list[dict[TopicPartition, int]]


def with_ddl(cluster: FakeCluster, looks: Looks, *, fail: bool = True) -> TopicPlanner:
    """Return a planner of a stream with DDL events; `looks` gets the starts around which it looks for copies."""

    class Looking(StreamCoverage):
        def around(self, starts: Offsets, latest: Offsets) -> dict[TopicPartition, DDLCoverage]:  # noqa: ARG002
            looks.append(dict(starts))
            exceptions = frozenset({"7-a"})
            return {each: DDLCoverage(after=1000 + start, exceptions=exceptions) for each, start in starts.items()}

    plan = planner(cluster, fail=fail)
    plan.members = Looking(cluster, make_options(outputFormat="event", failOnDataLoss=str(fail).lower()))  # type: ignore[arg-type]
    return plan


def test_which_ddl_a_stream_has_is_looked_up_when_it_starts_and_kept() -> None:
    """Every offset tells which DDL events lie before the start of a lower partition, and a restart knows it still."""
    looks: Looks = []
    cluster = FakeCluster({T0: 0, T1: 0, U0: 0}, {T0: 20, T1: 0, U0: 5})
    plan = with_ddl(cluster, looks)
    first = via_json(plan.next(via_json(plan.initial())))
    cluster.last[T0] = 30
    later = via_json(with_ddl(cluster, looks).next(first))

    assert looks == [{T0: 20}]  # no other partition asks what T1 and U0 have
    assert first["$ddl"] == later["$ddl"] == {"t": {"0": {"after": 1020, "exceptions": ["7-a"]}}}
    for end in (first, later):
        assert coverage_of(end) == {T0: DDLCoverage(after=1020, exceptions=frozenset({"7-a"}))}
    assert plan.next(later) == later


def test_a_stream_from_the_first_records_has_all_ddl() -> None:
    """Nothing is looked up, and no member is written, where a stream starts at offset 0 or an offset is an old one."""
    looks: Looks = []
    cluster = FakeCluster({T0: 0, T1: 0}, {T0: 20, T1: 20}, "earliest")
    plan = with_ddl(cluster, looks)
    new, old = plan.next(plan.initial()), plan.next({"t": {"0": 3, "1": 4}})

    assert looks == []
    assert "$ddl" not in {**new, **old}
    assert coverage_of(old) == {}


def test_lost_records_and_added_partitions_are_looked_at() -> None:
    """With failOnDataLoss=false, DDL events are looked for where a partition goes on, as where a stream starts."""
    looks: Looks = []
    cluster = FakeCluster({T0: 0, T1: 0}, {T0: 20, T1: 20}, "earliest")
    plan = with_ddl(cluster, looks, fail=False)
    first = plan.next(plan.initial())
    cluster.first[T0], cluster.last[T0] = 40, 50
    lost = plan.next(first)
    cluster.last |= {TopicPartition("t", 2): 90, TopicPartition("t", 3): 90}
    cluster.first |= {TopicPartition("t", 2): 60, TopicPartition("t", 3): 0}
    with pytest.warns(UserWarning, match="t-2 at 60"):
        added = with_ddl(cluster, looks, fail=False).next(lost)

    assert looks == [{T0: 40}, {TopicPartition("t", 2): 60}]
    assert set(lost["$ddl"]["t"]) == {"0"}
    assert set(added["$ddl"]["t"]) == {"0", "2"}


def test_the_ddl_of_a_topic_that_was_recreated_is_not_that_of_its_predecessor() -> None:
    """What the stream lacked of the deleted topic says nothing of the new one, which it reads from its first record."""
    cluster = FakeCluster({T0: 0, T1: 0}, {T0: 9, T1: 9}, ids={"t": "new"})
    plan = with_ddl(cluster, [], fail=False)
    start = {"$ids": {"t": "old"}, "$ddl": {"t": {"0": {"after": 5}}}, "t": {"0": 20, "1": 20}}

    with pytest.warns(UserWarning, match="Deleted and created again"):
        end = via_json(plan.next(start))
    covered = coverage_of(end)
    cluster.last[T0] = 12
    later = via_json(plan.next(end))

    assert covered == coverage_of(later) == {}
    assert plan.next(later) == later


class Remembering(RememberingStreamReader):
    """A reader of PySpark 4.0 and 4.1 with a planner of the test and `maxOffsetsPerTrigger=10`."""

    def __init__(self, plan: TopicPlanner) -> None:
        self._planner, self._last, self._has_planned, self._shown = plan, None, False, set()
        self._options = make_options(maxOffsetsPerTrigger="10")

    def ends(self) -> list[int]:
        """Return the offsets at which the next micro-batches end, up to one that reads nothing."""
        ends = [self.latestOffset()["t"]["0"]]
        while len(ends) < 2 or ends[-1] != ends[-2]:
            ends.append(via_json(self.latestOffset())["t"]["0"])
        return ends[:-1]


def test_the_limits_hold_on_a_spark_that_knows_none() -> None:
    """PySpark 4.0 and 4.1: a new stream goes in steps from its start, and a restarted one from the last planned end."""
    cluster = FakeCluster({T0: 0}, {T0: 35})
    cluster.starts = lambda _: {T0: 5}  # type: ignore[method-assign, assignment]

    assert Remembering(planner(cluster)).ends() == [15, 25, 35]
    restarted = Remembering(planner(cluster))
    assert restarted.partitions({"t": {"0": 15}}, {"t": {"0": 15}}) == []  # what Spark asks first
    assert restarted.ends() == [25, 35]


def test_a_spark_that_does_not_say_where_a_query_is_cannot_move_it_back() -> None:
    """PySpark 4.0 and 4.1 with a wrapper of Trigger.AvailableNow: an end that was planned too early is an error."""
    reader = Remembering(planner(FakeCluster({T0: 0}, {T0: 50})))
    reader.latestOffset()

    for told in (40, 10):  # also where the early end is that of the first run
        with pytest.raises(OptionError, match=r"triggerAvailableNowWrapper\.enabled to false"):
            reader.partitions({"t": {"0": told}}, {"t": {"0": told}})


def test_small_ranges_share_a_task() -> None:
    """Small ranges share a task, big ones do not, every range is read once, and minPartitions is kept."""
    small = [OffsetRange("t", n, 0, 100) for n in range(16)]
    mixed = [OffsetRange("t", 0, 0, 10**6), *small[1:4], OffsetRange("t", 4, 0, 10**6)]

    assert len(pack(small)) == 1
    assert [len(task) for task in pack(mixed)] == [1, 3, 1]
    assert [offset_range for task in pack(mixed) for offset_range in task] == mixed
    assert len(pack(small, 8)) == 16
    assert [[each.size for each in task] for task in pack(small[:4], None, 250)] == [[100, 100], [100, 100]]
    assert [[each.size for each in task] for task in pack([OffsetRange("t", 0, 0, 300)], None, 100)] == [[100]] * 3


@pytest.mark.parametrize(
    "offset",
    [
        {"t": {"0": -5}}, {"t": {"0": True}}, {"t": {"0": 1 << 63}}, {"t": {"zero": 5}}, {"t": 5}, None,
        {INITIAL: True, "t": {"0": -5}}, {IDS: {"t": 5}, "t": {"0": 5}}, {EPOCHS: {"t": {"0": -1}}, "t": {"0": 5}},
    ],
)  # fmt: skip
def test_an_edited_checkpoint_is_an_error_that_names_it(offset: Any) -> None:
    """Its offsets may be no offsets, or no JSON object; the error says what to do."""
    stream = planner(FakeCluster({TopicPartition("t", 0): 0}, {TopicPartition("t", 0): 9}))

    for plan in (
        lambda: stream.next(offset),
        lambda: stream.ranges(offset, {"t": {"0": 7}}),
        lambda: stream.ranges({"t": {"0": 0}}, offset),
    ):
        with pytest.raises(CheckpointError, match=r"checkpointLocation.*or start the query with a new checkpoint"):
            plan()
