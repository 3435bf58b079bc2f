"""`progress_listener`: which files it reads, and that a real stream's metrics reach Prometheus.

tests/inspection/test_progress.py has what it makes of them.
"""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import QueryStartedEvent, QueryTerminatedEvent

from tests.inspection.test_progress import line
from tests.spark.conftest import MakeStream, MakeTopic
from tests.spark.streams import write
from tests.support.messages import Message, canal
from tests.support.s3 import s3_server
from ticdc_source import StreamProgress, progress_listener
from ticdc_source.inspection.listener import ProgressListener, _NewLines
from ticdc_source.pipeline.metric_files import MetricFiles

MakeListener = Callable[..., ProgressListener]
OPTIONS = {"startingOffsets": "earliest", "mode": "DROPMALFORMED", "protocol": "canal-json", "tables": "test.t"}


class Reports(list[StreamProgress]):
    """What a listener has reported."""

    seen = 0

    def wait(self, holds: Callable[[StreamProgress], bool]) -> StreamProgress:
        """Wait for a report, after the last one that was waited for, for which something holds; return it."""
        deadline = time.monotonic() + 240  # a first micro-batch takes long on a busy machine
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
    return round((time.time() - age) * 1000) << 18


def insert(number: int, age: float) -> Message:
    return canal("INSERT", [{"id": str(number)}], None, {"id": "int"}, _tidb={"commitTs": ts(age)})


def watermark(age: float) -> Message:
    return canal("TIDB_WATERMARK", _tidb={"watermarkTs": ts(age)})


def test_only_new_files_are_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A listener reads a query's files once: at first those of the last micro-batches, which do not count, too."""
    files = MetricFiles(str(tmp_path / "metrics"))
    for query in ("q", "q-1", "other"):
        for batch in range(9):
            files.write(f"{query}-{batch:09d}", [line(batch, batch, batch + 1)])
    files.write("batch", [line(0, 0, 1)])
    new = _NewLines(files)

    def batches(query: str, batch: int) -> tuple[list[int], list[int]]:
        history, lines = new.of(query, batch)
        return [each["batch"] for each in history], [each["batch"] for each in lines]

    assert batches("q", 6) == ([3, 4, 5], [6])
    files.write("q-000000006", [line(6, 9, 9)])  # a second action of the micro-batch
    assert batches("q", 7) == ([], [6, 7])
    assert batches("q", 7) == ([], [])
    assert batches("q-1", 0) == ([], [0])
    new.forget("q")
    assert batches("q", 8) == ([5, 6, 6, 7], [8])

    (tmp_path / "metrics" / f"q-000000009-{'0' * 32}.jsonl").write_text("{")
    assert [batches("q", 9), batches("q", 9)] == [([], []), ([], [])]
    assert caplog.text.count("The metric files cannot be read") == 1


@pytest.mark.long("a server for S3")
def test_metrics_in_s3_reach_prometheus(
    stream: MakeStream, listener: MakeListener, servers: str, topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    """Workers write to S3, the listener reads there, and Prometheus gets it over HTTP; the URI's secret is nowhere."""
    prometheus: Any = pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")
    name, reports, registry = topic(), Reports(), prometheus.CollectorRegistry()
    write(servers, name, *(insert(number, age=60) for number in range(5)), watermark(age=30), (b"", b"{"))
    caplog.set_level("DEBUG", "ticdc_source")
    server, thread = prometheus.start_http_server(0, "127.0.0.1", registry)
    try:
        with s3_server("bucket") as query:
            path = f"s3://key:s3cr3t@bucket/metrics?{query}"
            added = listener(metrics_path=path, on_progress=reports.append, registry=registry)
            running = stream(name, "id int", **OPTIONS, metricsPath=path).start()
            read = reports.wait(lambda report: report.batch == 0)
            with urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
                text = answer.read().decode()
            running.stop()
            reports.wait(lambda report: report.state == "ended")
            added.close()
            assert b"ticdc_" not in prometheus.generate_latest(registry)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

    labels = f'{{query="{running.id}",table="test.t"}}'
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert (read.rows, read.decode_errors, read.dropped) == (5, 1, 1)
    assert found[f"ticdc_rows_total{labels}"] == "5.0"
    assert found[f"ticdc_decode_errors_total{labels}"] == "1.0"
    assert found[f"ticdc_query_up{labels}"] == "1.0"
    assert float(found[f"ticdc_watermark_lag_seconds{labels}"]) >= 30
    assert "s3cr3t" not in caplog.text + text + repr(reports) + repr(vars(added))


def test_the_end_of_a_run_that_comes_late_is_not_that_of_the_next_run() -> None:
    """Spark tells of a start at once, and of an end later: a query that was started again runs."""
    query, first, second = (str(uuid.UUID(int=number)) for number in range(3))
    moment = "2026-01-01T00:00:00.000Z"

    def started(run: str) -> QueryStartedEvent:
        return QueryStartedEvent.fromJson(
            {"id": query, "runId": run, "name": "name", "timestamp": moment, "jobTags": []}
        )

    def failed(run: str) -> QueryTerminatedEvent:
        return QueryTerminatedEvent.fromJson(
            {"id": query, "runId": run, "exception": "it has failed", "errorClassOnException": None}
        )

    reported: list[StreamProgress] = []
    listener = ProgressListener(None, reported.append, None, 60, None, time.time)
    listener.onQueryStarted(started(first))
    listener.onQueryStarted(started(second))
    listener.onQueryTerminated(failed(first))

    assert [report.state for report in listener.reports()] == ["running"]
    listener.onQueryTerminated(failed(second))
    assert [report.state for report in listener.reports()] == ["failed"]
    listener.close()
