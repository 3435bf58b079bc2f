"""`progress_listener` on real streams: a stalled one is late, an idle one is not, and no replay is early."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from examples.local_kafka import produce
from tests.spark.conftest import MakeStream, MakeTopic
from tests.spark.streams import failure_of
from tests.support.messages import Message, canal
from ticdc_source import StreamProgress, progress_listener
from ticdc_source.spark.listener import ProgressListener

MakeListener = Callable[..., ProgressListener]
OPTIONS = {"startingOffsets": "earliest", "mode": "DROPMALFORMED", "protocol": "canal-json", "tables": "test.t"}
HOUR = 3600.0


class Clock:
    """The time, which a test can move."""

    def __init__(self) -> None:
        self.moved = 0.0

    def __call__(self) -> float:
        return time.time() + self.moved


class Reports(list[StreamProgress]):
    """What a listener has reported."""

    seen = 0

    def wait(self, holds: Callable[[StreamProgress], bool]) -> StreamProgress:
        """Wait for a report, after the last one that was waited for, for which something holds; return it."""
        deadline = time.monotonic() + 60
        while not any(map(holds, self[self.seen :])):
            assert time.monotonic() < deadline, self[-1:]
            time.sleep(0.05)
        found = next(filter(holds, self[self.seen :]))
        self.seen = self.index(found, self.seen) + 1
        return found


@pytest.fixture
def listener(spark: SparkSession) -> Iterator[MakeListener]:
    """A function that adds a listener to the session, until the test ends."""
    made: list[ProgressListener] = []

    def make(**given: object) -> ProgressListener:
        made.append(progress_listener(spark=spark, every=0.2, **given))  # type: ignore[arg-type]
        spark.streams.addListener(made[-1])
        return made[-1]

    yield make
    for one in made:
        spark.streams.removeListener(one)
        one.close()
    assert not [thread.name for thread in threading.enumerate() if thread.name == "ticdc progress"]


def ts(age: float) -> int:
    """Return the TSO of so many seconds ago."""
    return round((time.time() - age) * 1000) << 18


def insert(number: int, age: float) -> Message:
    """Return an insert that was committed so many seconds ago."""
    return canal("INSERT", [{"id": str(number)}], None, {"id": "int"}, _tidb={"commitTs": ts(age)})


def watermark(age: float) -> Message:
    """Return a watermark of so many seconds ago."""
    return canal("TIDB_WATERMARK", _tidb={"watermarkTs": ts(age)})


def write(servers: str, topic: str, *messages: Message) -> None:
    """Write messages to partition 0."""
    produce(servers, topic, [(0, *message, [], None) for message in messages])


def test_stalled_idle_and_replayed(
    stream: MakeStream, listener: MakeListener, servers: str, topic: MakeTopic, tmp_path: Path
) -> None:
    """The commit lag of a stalled stream rises, an idle topic's does not, and a replay's is never negative."""
    name, clock, reports, runs = topic(), Clock(), Reports(), threading.Event()
    write(servers, name, *(insert(number, age=300) for number in range(4)), insert(4, age=200), watermark(age=100))
    given = {**OPTIONS, "metricsPath": f"file://{tmp_path}/metrics", "maxOffsetsPerTrigger": 4}
    one = stream(name, "id int", **given)
    added = listener(metrics_path=given["metricsPath"], on_progress=reports.append, clock=clock)

    def each(frame: DataFrame, batch: int) -> None:
        frame.collect()
        assert batch == 0 or runs.wait(120)

    query = one.start(each)
    # The first micro-batch has ended, and the second does not.
    behind = reports.wait(lambda report: report.batch == 0)
    assert (behind.table, behind.rows, behind.offset_lag, behind.state) == ("test.t", 4, 2, "running")
    assert behind.watermark_lag is None
    clock.moved = HOUR
    stalled = reports.wait(lambda report: (report.commit_lag or 0) > HOUR)
    assert stalled.batch == 0
    assert stalled.commit_lag is not None
    assert HOUR + 300 <= stalled.commit_lag < 2 * HOUR
    runs.set()
    clock.moved = 0.0
    reports.wait(lambda report: report.batch == 1 and report.offset_lag == 0 and report.at < time.time() + 60)

    # Nothing more comes.
    clock.moved = HOUR
    idle = reports.wait(lambda report: report.at > time.time() + HOUR / 2)
    assert idle.commit_lag is not None
    assert idle.watermark_lag is not None
    assert idle.commit_lag < HOUR < idle.watermark_lag
    assert idle.offset_lag == 0
    clock.moved = 0.0

    # A micro-batch that does not end, of a stream that was up to date.
    runs.clear()
    write(servers, name, insert(0, age=900), (b"", b"{"), canal("TRUNCATE", isDdl=True, sql="TRUNCATE TABLE t"))
    clock.moved = HOUR
    stalled = reports.wait(lambda report: (report.commit_lag or 0) > HOUR / 2)
    assert (stalled.batch, stalled.rows) == (1, 5)
    runs.set()
    clock.moved = 0.0

    # What it had was a replay, an error and DDL. With a clock that is behind, nothing is negative.
    replayed = reports.wait(lambda report: report.batch == 2)
    assert (replayed.rows, replayed.commit_ts) == (6, idle.commit_ts)
    assert (replayed.decode_errors, replayed.dropped, replayed.destructive_ddl) == (1, 1, 1)
    clock.moved = -10 * HOUR
    early = reports.wait(lambda report: report.at < time.time() - HOUR)
    assert early.watermark_lag == 0
    assert early.commit_lag is not None
    assert 0 <= early.commit_lag < HOUR
    assert [report.query_id for report in added.reports()] == [query.id]

    query.stop()
    ended = reports.wait(lambda report: report.state == "ended")
    assert (ended.commit_lag, ended.watermark_lag, ended.rows) == (None, None, 6)
    assert added.reports() == []
    assert all(lag is None or lag >= 0 for report in reports for lag in (report.commit_lag, report.watermark_lag))


def test_what_is_known_without_files(
    stream: MakeStream, listener: MakeListener, servers: str, topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    """Without metric files a query that fails has been reported with its rows and offset lag, in the log too."""
    name, reports = topic(2), Reports()
    write(servers, name, *(insert(number, age=1) for number in range(5)))
    one = stream(name, "id int", **OPTIONS)
    caplog.set_level("INFO", "ticdc_source")

    def broken(report: StreamProgress) -> None:
        reports.append(report)
        raise ValueError(report.state)

    added = listener(on_progress=broken)

    def each(frame: DataFrame, batch: int) -> None:
        assert len(frame.collect()) == 5, batch

    query = one.start(each)
    read = reports.wait(lambda report: report.batch == 0)
    assert (read.rows, read.offset_lag, read.decode_errors, read.commit_ts) == (5, 0, None, None)
    write(servers, name, insert(5, age=1))
    failure_of(query)
    failed = reports.wait(lambda report: report.state == "failed")

    assert failed.is_up is False
    assert [report.state for report in added.reports()] == ["failed"]
    assert f"query {query.id}, micro-batch 0, running: " in caplog.text
    assert "WARNING" in {record.levelname for record in caplog.records if "failed: " in record.getMessage()}
    assert "on_progress of progress_listener has failed" in caplog.text
