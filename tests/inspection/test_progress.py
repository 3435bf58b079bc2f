"""What a query is reported as, from Spark's events and metrics lines."""

import json
from collections.abc import Mapping, Sequence

from ticdc_source.inspection.progress import Line, ProgressTracker, StreamProgress
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.pipeline.metrics import Counters, metrics_line

NOW = 1_700_000_000.0


def ts(seconds: float) -> int:
    """Return the TSO of a time in seconds since 1970, with a logical part."""
    return (round(seconds * 1000) << 18) + 7


def line(
    batch: int,
    start: int,
    end: int,
    *,
    partition: int = 0,
    table: str | None = "shop.orders",
    topic: str = "t",
    lag: int | None = None,
    **counted: int,
) -> Line:
    counters = Counters(rows=end - start)
    for name, value in counted.items():
        setattr(counters, name, value)
    offset_range = OffsetRange(topic, partition, start, end)
    return metrics_line(counters, offset_range, lag, {"query": "q", "batch": batch}, table=table)


def source(ends: Mapping[str, Sequence[int]], latest: Mapping[str, Sequence[int]] | None) -> tuple[str, str | None]:
    """Return the end offset and the latest offset of a source, as Spark reports them."""

    def text(offsets: Mapping[str, Sequence[int]]) -> str:
        return json.dumps(
            {"$ids": {"t": "x"}, **{topic: dict(enumerate(numbers)) for topic, numbers in offsets.items()}}
        )

    return text(ends), None if latest is None else text(latest)


class Query:
    """A query of topic `t`, and the time."""

    def __init__(self, *, has_lines: bool = True) -> None:
        self.tracker = ProgressTracker("q", None, has_lines=has_lines)
        self.batch = -1

    def ran(self, ends: Sequence[int], latest: Sequence[int] | None, *lines: Line, took: float, now: float) -> None:
        self.batch += 1
        sources = [source({"t": ends}, None if latest is None else {"t": latest}), ("17", None), (None, None)]
        self.tracker.add_batch(self.batch, 10, sources, lines, as_of=now - took, now=now)

    def read_snapshot(self, ranges: int, now: float, *, about: int = 950, **more: bool) -> None:
        """Add a micro-batch of a snapshot in ranges of 100 rows, up to so many of them; `about` rows in all."""
        self.batch += 1
        tables = {"shop.orders": {"ranges": ranges, "rows": ranges * 100, "about": about, **more}}
        offset = {"$snapshot": {"tso": ts(NOW), "size": 100, "tables": tables}, "t": {"0": 5}}
        lines = [line(self.batch, 0, 100, topic="shop.orders", partition=ranges, max_commit_ts=ts(NOW))]
        sources = [(json.dumps(offset), json.dumps({"t": {"0": 9}}))]
        self.tracker.add_batch(self.batch, 100, sources, lines, as_of=now - 1, now=now)

    def at(self, now: float) -> StreamProgress:
        (report,) = self.tracker.reports(now)
        return report


def test_a_stalled_stream_rises_and_an_idle_one_does_not() -> None:
    """With records left, the commit lag rises with time; once all is read, it is what the last micro-batch took."""
    query = Query()

    query.ran([5], [9], line(0, 0, 5, max_commit_ts=ts(NOW - 60)), took=1, now=NOW)
    stalled = [query.at(NOW + passed) for passed in (0, 100)]
    query.ran([9], [9], line(1, 5, 9, max_commit_ts=ts(NOW - 50)), took=2, now=NOW + 200)
    read = [query.at(NOW + 200 + passed) for passed in (0, 3600)]
    query.tracker.idle(NOW + 4000)

    assert [(report.commit_lag, report.offset_lag) for report in stalled] == [(60, 4), (160, 4)]
    assert [(report.commit_lag, report.offset_lag) for report in read] == [(2, 0), (2, 0)]
    assert query.at(NOW + 9000).commit_lag == 0
    assert query.at(NOW + 9000).commit_ts == ts(NOW - 50)


def test_a_micro_batch_that_hangs_rises() -> None:
    """A query that was up to date, and is in a micro-batch that does not end, is later every second since then."""
    query = Query()
    query.ran([9], [9], line(0, 0, 9, max_commit_ts=ts(NOW - 500)), took=1, now=NOW)
    query.tracker.idle(NOW + 10)

    query.tracker.is_busy = True

    assert [query.at(NOW + passed).commit_lag for passed in (10, 70)] == [0, 60]
    query.tracker.idle(NOW + 80)
    assert query.at(NOW + 200).commit_lag == 0


def test_the_first_change_after_an_idle_time_is_not_late() -> None:
    """What comes after an idle day is as late as the reader has not looked; before that, what it took counts."""
    query = Query()
    query.ran([9], [9], line(0, 0, 9, max_commit_ts=ts(NOW - 86_400)), took=2.5, now=NOW - 3)

    assert [query.at(NOW + passed).commit_lag for passed in (0, 3600)] == [2.5, 2.5]
    query.ran([9], [10], took=0, now=NOW)
    assert query.at(NOW).commit_lag == 5.5


def test_the_latest_partition_counts() -> None:
    """A topic partition that falls behind is seen beside one that does not, and one of which nothing is known."""
    query = Query()
    lines = [line(0, 0, 9, max_commit_ts=ts(NOW - 500)), line(0, 0, 2, partition=1, max_commit_ts=ts(NOW - 40))]
    query.ran([9, 2, 0], [9, 9, 9], *lines, took=1, now=NOW)

    assert (query.at(NOW).commit_lag, query.at(NOW).offset_lag) == (40, 16)


def test_a_replay_is_never_negative_and_moves_nothing_back() -> None:
    """Old commit-ts and watermarks, sent again, leave the largest ones; a clock that is behind gives 0."""
    query = Query()
    query.ran([5], [9], line(0, 0, 5, max_commit_ts=ts(NOW - 5), watermark=ts(NOW - 4)), took=1, now=NOW)
    query.ran([7], [9], line(1, 5, 7, max_commit_ts=ts(NOW - 900), watermark=ts(NOW - 901)), took=1, now=NOW + 1)

    report = query.at(NOW + 1)
    assert (report.commit_lag, report.watermark_lag) == (5, 5)
    assert (report.commit_ts, report.resolved_ts) == (ts(NOW - 5), ts(NOW - 4))
    assert (query.at(NOW - 60).commit_lag, query.at(NOW - 60).watermark_lag) == (0, 0)


def test_watermarks_tell_an_idle_table_from_a_late_one() -> None:
    """Rows are old, and watermarks come: nothing is late. Watermarks stop: the watermark lag rises, and no other."""
    query = Query()

    for second in range(3):
        one = line(second, second, second + 1, watermark=ts(NOW + second - 1), rows=0)
        query.ran([second + 1], [second + 2], one, took=0.1, now=NOW + second)
    assert query.at(NOW + 2).commit_lag == query.at(NOW + 2).watermark_lag == 1
    query.tracker.idle(NOW + 12)

    late = query.at(NOW + 62)
    assert (late.commit_lag, late.watermark_lag) == (0, 61)


def test_every_partition_must_have_a_watermark() -> None:
    """Until each topic partition has had a watermark, there is no resolved ts; then the smallest counts."""
    query = Query()
    query.ran([5, 5], [5, 5], line(0, 0, 5, watermark=ts(NOW)), took=1, now=NOW)
    assert query.at(NOW).watermark_lag is None

    query.ran([5, 6], [5, 6], line(1, 5, 6, partition=1, watermark=ts(NOW - 3)), took=1, now=NOW)
    assert query.at(NOW).watermark_lag == 3


def test_repeated_lines_count_once() -> None:
    """A task that is tried again, a second action, and a micro-batch after a restart add no rows and no errors."""
    query = Query()
    one = line(0, 0, 5, decode_errors=2, dropped=1, destructive_ddl=1)
    query.ran([5], [5], one, {**one, "attempt": 1}, {**one, "stage": 7}, took=1, now=NOW)
    query.batch -= 1
    query.ran([5], [5], one, took=1, now=NOW)

    report = query.at(NOW)
    assert (report.rows, report.decode_errors, report.dropped, report.destructive_ddl) == (5, 2, 1, 1)


def test_what_was_before_is_known_and_does_not_count() -> None:
    """Lines from before the listener say how far a restarted query was; their rows are not counted again."""
    query = Query()
    query.batch = 6
    query.tracker.add_history([line(6, 0, 5, max_commit_ts=ts(NOW - 60), decode_errors=3)])

    query.ran([5], [9], took=1, now=NOW)

    report = query.at(NOW)
    assert (report.commit_lag, report.rows, report.decode_errors) == (60, 0, 0)


def test_tables_are_told_apart() -> None:
    """A query with several tables has a report of each; lines of tasks that saw no row belong to the only table."""
    query = Query()
    query.ran([5, 0], [5, 0], line(0, 0, 5, table=None, rows=0), took=1, now=NOW)
    assert query.at(NOW).table is None
    query.ran([6, 0], [6, 0], line(1, 5, 6), line(1, 0, 0, partition=1, table=None), took=1, now=NOW)
    assert (query.at(NOW).table, query.at(NOW).rows) == ("shop.orders", 1)

    sources = [source({"t": [7, 0]}, {"t": [8, 0]}), source({"u": [3]}, {"u": [9]})]
    lines = [line(2, 6, 7), line(2, 0, 3, topic="u", table="shop.items", max_commit_ts=ts(NOW - 9))]
    query.tracker.add_batch(2, 4, sources, lines, as_of=NOW, now=NOW)

    orders, items = query.tracker.reports(NOW)
    assert (orders.table, orders.rows, orders.offset_lag) == ("shop.orders", 2, 1)
    assert (items.table, items.rows, items.offset_lag, items.commit_lag) == ("shop.items", 3, 6, 9)


def test_spark_alone_tells_offsets() -> None:
    """Without metric files there are rows and the offset lag, and the commit lag since the query was up to date."""
    query = Query(has_lines=False)
    query.ran([5], [9], took=1, now=NOW)
    first = query.at(NOW)
    query.ran([9], [9], took=1, now=NOW + 1)
    query.ran([9], [12], took=1, now=NOW + 10)

    assert (first.rows, first.offset_lag, first.commit_lag, first.decode_errors) == (10, 4, None, None)
    assert (query.at(NOW + 20).rows, query.at(NOW + 20).commit_lag) == (30, 20)


def test_before_pyspark_4_2_lines_tell_what_is_left() -> None:
    """If Spark does not say where a topic ends, the lag that the planner found counts."""
    query = Query()
    query.ran([5, 3], None, line(0, 0, 5, lag=4, max_commit_ts=ts(NOW - 60)), took=1, now=NOW)

    assert (query.at(NOW).offset_lag, query.at(NOW).commit_lag) == (4, 60)


def test_a_query_that_has_ended_has_no_lag() -> None:
    """A query that has failed is not up, and is not late; one that has ended is neither."""
    query = Query()
    query.ran([5], [9], line(0, 0, 5, max_commit_ts=ts(NOW - 60), watermark=ts(NOW)), took=1, now=NOW)
    assert query.at(NOW).is_up is True

    query.tracker.state = "failed"
    assert (query.at(NOW).is_up, query.at(NOW).commit_lag, query.at(NOW).watermark_lag) == (False, None, None)
    query.tracker.state = "ended"
    assert query.at(NOW).is_up is None


def test_queries_of_something_else_are_left_out() -> None:
    tracker = ProgressTracker("q", "rates", has_lines=True)
    tracker.add_batch(0, 10, [("17", "18"), ("[1]", None), ('{"a": 1}', "x")], [], as_of=NOW, now=NOW)

    assert tracker.reports(NOW) == []


def test_a_report_is_a_line() -> None:
    query = Query()
    query.ran([5], [9], line(0, 0, 5, max_commit_ts=ts(NOW - 60)), took=1, now=NOW)

    assert str(query.at(NOW)) == (
        "query q, shop.orders, micro-batch 0, running: commit_lag=60.0s rows=5 offset_lag=4 decode_errors=0 dropped=0 "
        "destructive_ddl=0"
    )


def test_a_snapshot_says_how_far_it_is() -> None:
    """Ranges of about how many, and the time left; behind it nothing is said, and watermarks count as ever."""
    query = Query()
    reports = []
    for ranges, seconds in ((1, 0), (4, 30)):
        query.read_snapshot(ranges, NOW + seconds)
        reports.append(query.at(NOW + seconds))
    query.read_snapshot(12, NOW + 110)
    reports.append(query.at(NOW + 110))
    query.read_snapshot(13, NOW + 120, done=True)
    reports.append(query.at(NOW + 120))
    query.ran([9], [9], line(4, 5, 9, watermark=ts(NOW + 130)), took=1, now=NOW + 130)

    assert [(each.snapshot_ranges, each.snapshot_ranges_expected, each.snapshot_left) for each in reports] == [
        (1, 10, None), (4, 10, 60), (12, 13, 10), (13, 13, 0)
    ]  # fmt: skip
    assert [(each.offset_lag, each.resolved_ts) for each in reports] == [(4, None)] * 4
    assert str(reports[1]).endswith(" snapshot_ranges=4/10 (about 1 min 0 s left)")
    assert (query.at(NOW + 130).snapshot_ranges, query.at(NOW + 130).resolved_ts) == (None, ts(NOW + 130))


def test_a_line_of_another_release_is_left_out() -> None:
    query = Query()
    query.ran([5], [9], {"batch": 0, "topic": "t"}, line(0, 0, 5), took=1, now=NOW)
    query.tracker.add_history([{"batch": 0}])

    assert query.at(NOW).rows == 5
