"""`startingCommitTs` and `endingCommitTs` limit a read by commit-ts; `resolved` stands for the newest complete one."""

import logging
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.support.captured import TOPIC, Captured, Record, load, rows
from tests.support.messages import TSO, Message, canal, open_message, watermark
from ticdc_source.errors import DecodeError, OptionError, SchemaError
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.options.ranges import CommitRange
from ticdc_source.planning.watermarks import resolved_until
from ticdc_source.protocols import PROTOCOLS
from ticdc_source.sources.chunk import Chunk


def insert(commit_ts: int, number: int) -> Message:
    return canal("INSERT", [{"id": str(number)}], None, {"id": "int"}, _tidb={"commitTs": commit_ts})


def mark(ts: int) -> Message:
    return open_message(({"ts": ts, "t": 3}, b""))


def ddl(ts: int, query: str) -> Message:
    code = 4 if query.startswith("DROP") else 61
    return open_message(({"ts": ts, "scm": "test", "tbl": "t", "t": 2}, {"q": query, "t": code}))


class Topics:
    """Captured messages by topic partition, which are fetched by offset range."""

    def __init__(self, **topics: Sequence[Sequence[Message]]) -> None:
        self.topics = topics

    def ranges(self) -> list[OffsetRange]:
        return [
            OffsetRange(topic, partition, 0, len(messages))
            for topic, partitions in self.topics.items()
            for partition, messages in enumerate(partitions)
        ]

    def fetch(self, offset_range: OffsetRange) -> list[Chunk]:
        start, end = offset_range.start, offset_range.end
        messages = self.topics[offset_range.topic][offset_range.partition][start:end]
        offsets = list(range(start, end))
        return [Chunk(
            offset_range.topic, offset_range.partition, offsets, [10**13 + offset for offset in offsets],
            [key for key, _ in messages], [value for _, value in messages],
        )]  # fmt: skip

    def end(self) -> int:
        return resolved_until(self.ranges(), self.fetch, PROTOCOLS["open-protocol"])


def test_a_row_after_the_end_is_not_decoded() -> None:
    """A value that an ALTER after the end made possible does not fit the type before it, and does not matter."""
    messages = (insert(TSO, 1), insert(TSO + 5, 2**40), insert(TSO + 1, 2))

    assert [row["id"] for row in rows(*messages, endingCommitTs=str(TSO + 5))] == [1, 2]


def test_the_range_holds_its_start_and_not_its_end() -> None:
    """The range includes its start and excludes its end, so consecutive reads neither repeat nor lose a row."""
    messages = [insert(TSO + step, step) for step in range(5)]

    first = rows(*messages, endingCommitTs=str(TSO + 2))
    second = rows(*messages, startingCommitTs=str(TSO + 2))

    assert [row["id"] for row in first] == [0, 1]
    assert [row["id"] for row in second] == [2, 3, 4]
    assert not CommitRange()


EDGES = [None, 0, 1, TSO, (1 << 63) - 1, 1 << 63, 1 << 70]


@pytest.mark.parametrize("end", EDGES)
@pytest.mark.parametrize("start", EDGES)
def test_contains_each_agrees_with_contains(start: int | None, end: int | None) -> None:
    """`contains_each` agrees with `contains`, also if an option is larger than any commit-ts."""
    stamps = [0, 1, 2, TSO - 1, TSO, TSO + 1, (1 << 63) - 1]

    contained = CommitRange(start, end).contains_each(pa.array(stamps, pa.int64()))

    assert contained.to_pylist() == [CommitRange(start, end).contains(ts) for ts in stamps]


def test_a_row_without_time_cannot_be_limited() -> None:
    """A row with neither commit-ts nor event time is an error in a limited read."""
    message = canal("INSERT", [{"id": "1"}], None, {"id": "int"}, es=None)

    with pytest.raises(DecodeError, match=r"neither a commit-ts.*offset=0"):
        rows(message, startingCommitTs="1")


def test_other_words_than_resolved_are_refused() -> None:
    """`endingCommitTs` accepts only a number or `resolved`."""
    with pytest.raises(OptionError, match=r"endingCommitTs.*resolved"):
        Options.of({"kafka.bootstrap.servers": "b:1", "subscribe": "t", "endingCommitTs": "soon"})


def test_resolved_is_the_smallest_of_the_largest_watermarks() -> None:
    """`resolved` is the smallest over all partitions of a partition's largest watermark, which may not be its last."""
    topics = Topics(t=[[mark(TSO), mark(TSO + 9), mark(TSO + 5)], [mark(TSO + 1), mark(TSO + 7)]])

    assert topics.end() == TSO + 7


def test_a_partition_without_watermark_is_named() -> None:
    """A range without watermarks is an error that names the partition, and the TiCDC setting that adds them."""
    topics = Topics(t=[[mark(TSO)], [ddl(TSO, "create table t (id int)")]])

    with pytest.raises(SchemaError, match="no watermark in the range of t-1"):
        topics.end()
    captured = Captured.of(insert(TSO, 1))
    with pytest.raises(SchemaError, match="enable-tidb-extension=true"):
        resolved_until(captured.ranges(), captured.fetch, PROTOCOLS["canal-json"])


def test_a_topic_whose_table_was_dropped_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """A topic without watermarks since its DROP TABLE does not hold back the others, and a warning is logged."""
    gone = [mark(TSO), ddl(TSO + 1, "DROP TABLE `test`.`t`")]
    later = TSO + (120_000 << 18)
    topics = Topics(alive=[[mark(later)]], gone=[gone, gone])

    with caplog.at_level(logging.WARNING):
        assert topics.end() == later
    assert "gone has had no watermark" in caplog.text
    assert Topics(alive=[[mark(later)]], slow=[[ddl(TSO - 1, "DROP TABLE t"), mark(TSO)]]).end() == TSO


@pytest.mark.parametrize("query", ["ALTER TABLE t ADD c INT", "ALTER TABLE `t` RENAME COLUMN `a` TO `b`",
                                   "ALTER TABLE `t` RENAME INDEX `a` TO `b`"])  # fmt: skip
def test_a_topic_is_waited_for_after_ddl_that_keeps_its_table(query: str) -> None:
    """A topic that is silent after DDL that keeps its table is slow, so it holds back the others."""
    later = TSO + (120_000 << 18)

    assert Topics(alive=[[mark(later)]], slow=[[mark(TSO), ddl(TSO + 1, query)]]).end() == TSO


def test_a_topic_is_not_silent_at_once() -> None:
    """A topic whose DROP TABLE is only seconds older than the newest watermark still holds back the others."""
    topics = Topics(alive=[[mark(TSO + (5_000 << 18))]], slow=[[mark(TSO), ddl(TSO + 1, "DROP TABLE `test`.`t`")]])

    assert topics.end() == TSO


@pytest.mark.slow("20,000 rows a stream")
@pytest.mark.parametrize("scenario", ["stream.open-protocol", "stream.canal-json.tidb-extension"])
def test_resolved_cuts_no_transaction(scenario: str) -> None:
    """Wherever a captured stream is cut, each commit below the resolved end is whole, except for replayed rows."""
    captured = load(scenario)
    whole: dict[int, int] = {}
    for commit_ts in events_of(captured, {partition: len(found) for partition, found in captured.partitions.items()}):
        whole[commit_ts] = whole.get(commit_ts, 0) + 1
    for share in (0.3, 0.55, 0.8):
        lengths = {partition: int(len(found) * share) for partition, found in captured.partitions.items()}
        ranges = [OffsetRange(TOPIC, partition, 0, length) for partition, length in lengths.items()]
        end = resolved_until(ranges, captured.fetch, PROTOCOLS[captured.header["protocol"]])
        part: dict[int, int] = {}
        for commit_ts in events_of(captured, lengths):
            part[commit_ts] = part.get(commit_ts, 0) + 1
        below = {commit_ts for commit_ts in whole if commit_ts < end}
        assert below
        assert all(part.get(commit_ts, 0) >= 1 for commit_ts in below)
        replayed = {commit_ts for commit_ts in below if part[commit_ts] < whole[commit_ts]}
        assert replayed <= replays(captured)


def events_of(captured: Captured, lengths: dict[int, int]) -> list[int]:
    return [
        event["commit_ts"]
        for partition, length in lengths.items()
        for record in captured.partitions[partition][:length]
        for event in events(record)
        if event["op"] in ("insert", "update", "delete")
    ]


def replays(captured: Captured) -> set[int]:
    return {
        event["commit_ts"]
        for found in captured.partitions.values()
        for record in found
        for event in events(record)
        if event.get("replay")
    }


def events(record: Record) -> list[dict[str, Any]]:
    return list(record.truth["events"]) if record.truth["op"] == "batch" else [dict(record.truth)]


def test_watermarks_of_canal_json_are_read_too() -> None:
    """`resolved` also uses the TIDB_WATERMARK messages of canal-json."""
    captured = Captured.of(insert(TSO, 1), watermark(TSO + 3))

    assert resolved_until(captured.ranges(), captured.fetch, PROTOCOLS["canal-json"]) == TSO + 3
