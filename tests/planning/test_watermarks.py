"""The resolved ts: watermarks of topic partitions, folded over micro-batches."""

import json
from dataclasses import replace

import pytest

from ticdc_source.errors import CheckpointError
from ticdc_source.options.topics import TopicPartition
from ticdc_source.planning.watermarks import Progress

A, B, C = (TopicPartition("t", number) for number in range(3))
MINUTE = 60_000 << 18  # as a TSO


def test_the_smallest_of_the_largest_watermarks_counts() -> None:
    """The resolved ts is the smallest, over all topic partitions, of their largest watermarks, and never decreases."""
    first = Progress().after(0, [(A, 10)], 2)
    second = first.after(1, [(A, 8), (B, 7)], 2)
    third = second.after(2, [(A, 9), (B, 20)], 2)

    assert [each.resolved_ts for each in (first, second, third)] == [None, 7, 10]
    assert "1 of 2 topic partitions" in first.without_watermark()


def test_a_new_partition_holds_it_back() -> None:
    """Until a new topic partition has a watermark, the resolved ts stays; it is not lost."""
    before = Progress().after(0, [(A, 10), (B, 10)], 2)
    grown = before.after(1, [(A, 20), (B, 20)], 3)

    assert grown.resolved_ts == 10
    assert grown.after(2, [(C, 15)], 3).resolved_ts == 15


def test_a_partition_with_rows_and_no_watermark_counts() -> None:
    """A topic partition that has records and no watermark holds back, whatever number of partitions was given."""
    progress = Progress().after(0, [(A, 60), (B, None)], 1)

    assert progress.resolved_ts is None
    assert progress.after(1, [(B, 50)], 1).resolved_ts == 50


def test_an_unknown_number_of_partitions_resolves_nothing() -> None:
    progress = Progress().after(0, [(A, 60)], None)

    assert progress.resolved_ts is None
    assert "SyncState" in progress.without_watermark()


def test_a_partition_far_behind_is_named() -> None:
    """A topic partition that is ten minutes behind the newest watermark is named; one that is not, is not."""
    behind = Progress().after(0, [(A, 60 * MINUTE), (B, 10 * MINUTE)], 2)

    assert "t-1 holds the resolved ts back" in (behind.laggard() or "")
    assert behind.after(1, [(B, 55 * MINUTE)], 2).laggard() is None


def test_it_is_read_as_it_was_written() -> None:
    progress = Progress(batch_id=3, watermarks={A: 5, B: None}, partitions=2, resolved_ts=4,
                        skipped={"shop.a": (2, "why")}, tables=frozenset({"shop.a", "shop.b"}),
                        column_types={"shop.a": {"price": "decimal(38,2)"}})  # fmt: skip

    assert Progress.of_json(progress.as_json()) == progress
    before = {name: value for name, value in json.loads(progress.as_json()).items() if name != "column_types"}
    assert Progress.of_json(json.dumps(before)) == replace(progress, column_types={})  # of an earlier release
    edited = [json.dumps({**before, name: []}) for name in ("column_types", "skipped")]
    for text in ("{}", "no JSON", '{"version": 2}', *edited):
        with pytest.raises(CheckpointError):
            Progress.of_json(text)
