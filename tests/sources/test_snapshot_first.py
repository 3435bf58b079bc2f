"""A stream that begins with a snapshot is planned, against a fake cluster and a fake table of TiDB."""

import warnings
from typing import Any, cast

import pytest

from tests.planning.test_streaming import T0, T1, FakeCluster, via_json
from ticdc_source.errors import CheckpointError, DataLossError, OptionError
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.planning.load import batch_options, stream_options
from ticdc_source.protocols import FORMATS
from ticdc_source.schema.table_name import TableName
from ticdc_source.sources.choose import SnapshotFirstSource
from ticdc_source.sources.kafka.source import KafkaSource
from ticdc_source.sources.record_source import StreamPlanner
from ticdc_source.sources.stream_offsets import StreamLimits
from ticdc_source.sources.tidb.progress import SnapshotProgress, TableProgress
from ticdc_source.sources.tidb.source import SnapshotSource

GIVEN = {
    "snapshot": "initial",
    "kafka.bootstrap.servers": "broker:9092",
    "subscribe": "t",
    "tables": "shop.orders",
    "tidb.url": "tidb:4000",
    "tidb.user": "reader",
    "snapshot.maxRangesPerTrigger": "2",
}
ORDERS = TableName("shop", "orders")
RANGES = 5  # of ten rows
MOMENT = 4_707_000


class FakeRows(SnapshotSource):
    """The table shop.orders, which has a key of whole numbers."""

    def begin(self) -> SnapshotProgress:
        return SnapshotProgress(MOMENT, 10, {ORDERS: TableProgress()})

    def advance(self, progress: SnapshotProgress, most: int) -> tuple[SnapshotProgress, list[OffsetRange]]:
        first = progress.tables[ORDERS].ranges
        last = min(first + most, RANGES)
        is_done = last == RANGES
        table = TableProgress(None if is_done else (str(last * 10),), last, last * 10, is_done)
        return SnapshotProgress(progress.tso, 10, {ORDERS: table}), _ranges(first, last)

    def between(self, before: SnapshotProgress, after: SnapshotProgress) -> list[OffsetRange]:
        return _ranges(before.tables[ORDERS].ranges, after.tables[ORDERS].ranges)


def _ranges(first: int, last: int) -> list[OffsetRange]:
    return [OffsetRange(str(ORDERS), number, 0, 10) for number in range(first, last)]


class FakeSource(SnapshotFirstSource):
    """The source, of a fake cluster and of fake rows."""

    def __init__(self, cluster: FakeCluster, **others: str) -> None:
        super().__init__(stream_options({**GIVEN, **others}), FORMATS)
        self._cluster = cast("Any", cluster)

    def rows_at(self, tso: Any) -> SnapshotSource:
        return FakeRows(super().rows_at(tso)._options, FORMATS)


def planner(cluster: FakeCluster, **others: str) -> tuple[FakeSource, StreamPlanner]:
    source = FakeSource(cluster, **others)
    return source, source.stream(StreamLimits(min_interval=0.0))


def numbers(ranges: list[OffsetRange]) -> list[int]:
    assert {each.topic for each in ranges} == {str(ORDERS)}
    return [each.partition for each in ranges]


def test_rows_come_first_then_the_changes_since() -> None:
    """Kafka's part of the offset waits; a replay in another process has the same ranges; then only the TSO is left."""
    cluster = FakeCluster({T0: 0, T1: 0}, {T0: 20, T1: 30}, ids={"t": "first"})
    source, plan = planner(cluster)
    start = via_json(plan.initial())
    first = via_json(plan.next(start))
    cluster.last[T0] = 50
    second, seen = first, []
    offsets = [first]
    while "tables" in second["$snapshot"] and len(offsets) < 9:
        second = via_json(plan.next(second))
        offsets.append(second)

    for before, after in zip([start, *offsets], offsets, strict=False):
        again_source, again = planner(cluster)
        ranges = plan.ranges(before, after)
        assert again.ranges(before, after) == ranges
        own = [one.reading()[1] for one in (source, again_source)]
        assert own[0].snapshot == own[1].snapshot
        if "tables" in after["$snapshot"]:
            seen.append(numbers(ranges))
            assert (own[0].snapshot, own[0].snapshot_at) == ("only", MOMENT)
        else:
            assert ranges == [OffsetRange(*T0, 20, 50)]
            assert (own[0].snapshot, own[0].starting_commit_ts) == ("off", MOMENT + 1)
    assert seen == [[0, 1], [2, 3], [4]]
    assert [each["t"] for each in offsets] == [{"0": 20, "1": 30}] * 3 + [{"0": 50, "1": 30}]
    assert first["$ids"] == {"t": "first"}
    assert first["$snapshot"]["tables"] == {"shop.orders": {"after": ["20"], "ranges": 2, "rows": 20}}
    assert offsets[2]["$snapshot"]["tables"] == {"shop.orders": {"ranges": 5, "rows": 50, "done": True}}
    assert offsets[3]["$snapshot"] == {"tso": MOMENT}
    assert plan.next(offsets[3]) == offsets[3]


def test_a_crash_in_the_first_micro_batch_reads_the_planned_moment() -> None:
    """The offset in the checkpoint counts, not what `initial` finds again."""
    cluster = FakeCluster({T0: 0}, {T0: 20})
    _, plan = planner(cluster)
    end = via_json(plan.next(via_json(plan.initial())))
    cluster.last[T0] = 90
    _, again = planner(cluster)
    start = via_json(again.initial())
    start["$snapshot"]["tso"] += 5

    assert numbers(again.ranges(start, end)) == [0, 1]
    assert end["t"] == {"0": 20}
    assert end["$init"] == {"t": {"0": 20}}


def test_an_idle_stream_returns_what_it_was_given() -> None:
    """When all rows are planned and nothing has changed, there is no micro-batch."""
    _, plan = planner(FakeCluster({T0: 0}, {T0: 20}), **{"snapshot.maxRangesPerTrigger": "9"})
    end = via_json(plan.next(via_json(plan.initial())))

    assert plan.next(end) == end
    assert plan.ranges(end, end) == []


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("done", [False, True])
def test_retention_that_overtakes_the_snapshot_is_an_error(fail: str, done: bool) -> None:
    """Nothing is skipped, whatever failOnDataLoss says: while rows are read, and when changes would come next."""
    cluster = FakeCluster({T0: 0}, {T0: 20})
    _, plan = planner(cluster, failOnDataLoss=fail, **({"snapshot.maxRangesPerTrigger": "9"} if done else {}))
    end = via_json(plan.next(via_json(plan.initial())))
    cluster.first[T0], cluster.last[T0] = 21, 40

    with pytest.raises(DataLossError, match=r"t-0 \(offset 20, but the first is 21\)\. Nothing has been skipped"):
        plan.next(end)


def test_retention_that_comes_near_is_a_warning() -> None:
    """It comes when most records that lay before the changes are gone, and says what to do."""
    cluster = FakeCluster({T0: 0, T1: 0}, {T0: 20, T1: 20})
    _, plan = planner(cluster, **{"snapshot.maxRangesPerTrigger": "1"})
    end = via_json(plan.next(via_json(plan.initial())))
    cluster.first[T0] = 10
    end = via_json(plan.next(end))
    cluster.first[T0] = 11

    with pytest.warns(UserWarning, match=r"deleted more than half .*: t-0\. .*retention\.ms"):
        plan.next(end)


@pytest.mark.parametrize("most", ["2", "9"])
@pytest.mark.parametrize("last", [3, 40])
def test_a_topic_that_is_created_again_is_an_error(most: str, last: int) -> None:
    """So is it with failOnDataLoss=false, which would go on with the new topic; in the middle, and at the hand-over."""
    cluster = FakeCluster({T0: 0}, {T0: 20}, ids={"t": "first"})
    _, plan = planner(cluster, failOnDataLoss="false", **{"snapshot.maxRangesPerTrigger": most})
    end = via_json(plan.next(via_json(plan.initial())))
    cluster.ids = {"t": "second"}
    cluster.last[T0] = last

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(DataLossError, match="Nothing has been skipped"):
            plan.next(end)


def test_a_checkpoint_keeps_its_kind() -> None:
    """A stream that began with a snapshot keeps the option, and no other gets it."""
    cluster = FakeCluster({T0: 0}, {T0: 20})
    source, plan = planner(cluster)
    end = via_json(plan.next(via_json(plan.initial())))

    with pytest.raises(CheckpointError, match="keep the option"):
        KafkaSource.stream(source, StreamLimits()).next(end)
    with pytest.raises(CheckpointError, match="leave snapshot=initial out"):
        plan.next({"t": {"0": 20}})
    with pytest.raises(CheckpointError, match=r"unknown member \$snapshot"):
        plan.next({**end, "$snapshot": {"tables": {}}})


def test_without_a_topic_there_is_no_start() -> None:
    """A changefeed that is made later would lack changes."""
    _, plan = planner(FakeCluster({}, {}))

    with pytest.raises(OptionError, match="Create the changefeed first"):
        plan.initial()


def test_topics_that_are_empty_are_a_warning() -> None:
    """Their changefeed may begin after the snapshot; a record, even one that is deleted, shows that it is there."""
    _, plan = planner(FakeCluster({T0: 0, T1: 0}, {T0: 0, T1: 0}))
    _, later = planner(FakeCluster({T0: 0, T1: 5}, {T0: 0, T1: 5}), startingOffsets="earliest")

    with pytest.warns(UserWarning, match=r"written to t, so .*create it, wait for its first message"):
        plan.initial()
    later.initial()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"snapshot.at": "now"}, "'snapshot.at'.*: leave it out"),
        ({"startingCommitTs": "7"}, "'startingCommitTs'.*: leave it out"),
        ({"endingCommitTs": "467775488000000000"}, "'endingCommitTs'.*: leave it out"),
        ({"path": "/changefeed"}, "not with files"),
        ({"protocol": "avro"}, "its deletes have no commit-ts"),
        ({"tidb.url": ""}, "tidb.url"),
    ],
)
def test_what_contradicts_a_snapshot_is_refused(changed: dict[str, str], message: str) -> None:
    """The error names the option."""
    with pytest.raises(OptionError, match=message):
        stream_options({**GIVEN, **changed})


def test_a_batch_is_refused() -> None:
    """The error says what to use instead."""
    with pytest.raises(OptionError, match="In a batch, read the rows with snapshot=only"):
        batch_options({name: value for name, value in GIVEN.items() if name != "snapshot.maxRangesPerTrigger"})


def test_messages_alone_need_no_snapshot() -> None:
    """Its options without `snapshot` are refused."""
    with pytest.raises(OptionError, match="is for rows from TiDB"):
        Options.of({name: value for name, value in GIVEN.items() if name != "snapshot"})
