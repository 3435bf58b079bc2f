"""Lags: of a reader that has stalled they rise, of an idle topic they do not, and they are never negative."""

from ticdc_source.inspection.monitoring.progress import PartitionProgress, commit_lag, offset_lag, watermark_lag
from ticdc_source.schema.tso import seconds

NOW = 1_700_000_000.0


def ts(seconds: float) -> int:
    """Return the TSO of a time in seconds since 1970, with a logical part."""
    return (round(seconds * 1000) << 18) + 7


def test_a_tso_is_a_time() -> None:
    """The milliseconds of a TSO are its upper bits."""
    assert seconds(ts(NOW + 0.5)) == NOW + 0.5


def test_a_stalled_reader_is_later_every_second() -> None:
    """While something is left, the lag is the age of the newest that was read."""
    stalled = [PartitionProgress(next_offset=5, end=9, commit_ts=ts(NOW - 30))]

    assert [commit_lag(stalled, NOW + passed) for passed in (0, 60, 3600)] == [30, 90, 3630]


def test_an_idle_topic_is_not_late() -> None:
    """While nothing is left, the lag does not grow, however old the newest change is."""
    idle = [PartitionProgress(next_offset=9, end=9, commit_ts=ts(NOW - 86_400))]
    slow = [PartitionProgress(next_offset=9, end=9, commit_ts=ts(NOW - 86_400), delay=2.5)]

    assert [commit_lag(idle, NOW + passed) for passed in (0, 3600)] == [0, 0]
    assert [commit_lag(slow, NOW + passed) for passed in (0, 3600)] == [2.5, 2.5]


def test_the_first_change_after_an_idle_time_is_not_late() -> None:
    """What comes after an idle day is as late as the reader has not looked, or as the last watermark is old."""
    looked = PartitionProgress(next_offset=9, end=10, commit_ts=ts(NOW - 86_400), up_to_date_at=NOW - 3)
    marked = PartitionProgress(next_offset=9, end=10, commit_ts=ts(NOW - 86_400), watermark=ts(NOW - 2))

    assert commit_lag([looked], NOW) == 3
    assert commit_lag([marked], NOW) == 2


def test_the_latest_partition_counts() -> None:
    """One topic partition that falls behind is seen beside others that do not, and one of which nothing is known."""
    positions = [
        PartitionProgress(next_offset=9, end=9, commit_ts=ts(NOW - 500)),
        PartitionProgress(next_offset=2, end=9, commit_ts=ts(NOW - 40)),
        PartitionProgress(next_offset=0, end=9),
    ]

    assert commit_lag(positions, NOW) == 40
    assert offset_lag(positions) == 16


def test_a_micro_batch_that_does_not_end_is_late() -> None:
    """While a reader is known to be reading, more is left, whatever was known before."""
    position = PartitionProgress(next_offset=9, end=9, commit_ts=ts(NOW - 500), up_to_date_at=NOW - 100)

    assert commit_lag([position], NOW, is_busy=True) == 100


def test_no_lag_is_negative() -> None:
    """With a clock that is behind TiDB's, and with offsets that went back, lags are 0."""
    ahead = [PartitionProgress(next_offset=5, end=9, commit_ts=ts(NOW + 10)), PartitionProgress(next_offset=9, end=5)]

    assert commit_lag(ahead, NOW) == 0
    assert offset_lag(ahead) == 4
    assert watermark_lag(ts(NOW + 10), NOW) == 0


def test_what_is_not_known_has_no_lag() -> None:
    """Without offsets, commit-ts and watermarks the lags are unknown, and not 0."""
    assert commit_lag([], NOW) is None
    assert commit_lag([PartitionProgress(next_offset=0, end=9)], NOW) is None
    assert offset_lag([PartitionProgress(next_offset=1), PartitionProgress(end=2)]) is None
    assert watermark_lag(None, NOW) is None


def test_watermarks_that_stop_are_late() -> None:
    """TiCDC writes watermarks while nothing changes: if they stop, that is seen, also of an idle topic."""
    assert [watermark_lag(ts(NOW - 1), NOW + passed) for passed in (0, 60)] == [1, 61]
