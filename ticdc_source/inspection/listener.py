"""`progress_listener`: the progress of streaming queries, for the log, a callback and Prometheus."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from ticdc_source.inspection.progress import (
    EXPORTED,
    Line,
    ProgressCollector,
    ProgressTracker,
    Registry,
    StreamProgress,
)
from ticdc_source.pipeline.metric_files import MetricFiles, metric_files

_log = logging.getLogger(__name__)
# How many micro-batches before the first reported one show how far a restarted query was.
_HISTORY = 3
# Files of so many micro-batches may still come: a restart repeats the last one, and none before it.
_REPEATED = 2
_LOOK_S = 5.0  # how often the thread asks Spark which queries are in a micro-batch


def progress_listener(
    *,
    metrics_path: str | None = None,
    on_progress: Callable[[StreamProgress], None] | None = None,
    registry: Registry | None = None,
    every: float = 30.0,
    spark: SparkSession | None = None,
    clock: Callable[[], float] = time.time,
) -> ProgressListener:
    """Return a listener that reports the progress of streaming queries, for `spark.streams.addListener(…)`.

    It reports each table of a query after each micro-batch, when the query ends, and otherwise every 30 seconds, even
    during a long micro-batch. Each report is a line in the log of `ticdc_source`: at level INFO, or WARNING if records
    could not be read or DDL removed rows since the last one.

    Args:
        metrics_path: the option `metricsPath` of the queries. Without it, only rows and offset lags are known.
        on_progress: called with each report, from threads of Spark and of the listener; its errors are logged.
        registry: where Prometheus metrics are registered, such as `prometheus_client.REGISTRY`.
        every: the maximum number of seconds between two reports.
        spark: the session of the queries, if it is not the active one.
        clock: returns the time in seconds since 1970.

    Raises:
        ImportError: there is a registry, and `prometheus-client` is not installed.
    """
    session = spark or SparkSession.getActiveSession()
    return ProgressListener(metrics_path, on_progress, registry, every, session, clock)


class ProgressListener(StreamingQueryListener):
    """What `progress_listener` returns. It has one thread while queries run."""

    def __init__(
        self,
        metrics_path: str | None,
        on_progress: Callable[[StreamProgress], None] | None,
        registry: Registry | None,
        every: float,
        session: SparkSession | None,
        clock: Callable[[], float],
    ) -> None:
        self._metrics = None if metrics_path is None else _NewLines(metric_files(metrics_path))
        self._on_progress = on_progress
        self._registry = registry
        self._every = every
        self._session = session
        self._clock = clock
        self._lock = threading.Lock()
        self._trackers: dict[str, ProgressTracker] = {}
        self._due: dict[str, float] = {}  # when each query is reported again, by a monotonic clock
        self._said: dict[tuple[str, str | None], tuple[int | None, ...]] = {}  # each one's errors that were reported
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._collector = None if registry is None else ProgressCollector(self.reports, EXPORTED)
        if registry is not None:
            registry.register(self._collector)

    def reports(self) -> list[StreamProgress]:
        with self._lock:
            return [report for tracker in self._trackers.values() for report in tracker.reports(self._clock())]

    def close(self) -> None:
        """End the thread, and leave the Prometheus registry. Call `spark.streams.removeListener` first."""
        self._closed.set()
        if self._registry is not None and self._collector is not None:
            self._registry.unregister(self._collector)
            self._collector = None
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's name)
        tracker = self._tracker(str(event.id), event.name)
        with self._lock:
            tracker.state, tracker.run = "running", str(event.runId)
            # Replaces a failed query of the same name.
            for other in [other for other in self._trackers.values() if other.query == tracker.query]:
                if other is not tracker:
                    del self._trackers[other.query_id]

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = event.progress
        tracker = self._tracker(str(progress.id), progress.name)
        history, lines = ([], []) if self._metrics is None else self._metrics.of(tracker.query_id, progress.batchId)
        planned = datetime.fromisoformat(progress.timestamp.replace("Z", "+00:00")).timestamp()
        with self._lock:
            tracker.add_history(history)
            tracker.add_batch(
                progress.batchId,
                progress.numInputRows,
                [(source.endOffset, source.latestOffset) for source in progress.sources],
                lines,
                as_of=planned,
                now=self._clock(),
            )
        self._report(tracker)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        tracker = self._tracker(str(event.id), None)
        with self._lock:
            tracker.idle(self._clock())

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Report the end of a query; Prometheus sees a failed one until it is started again."""
        tracker = self._tracker(str(event.id), None)
        with self._lock:
            if tracker.run not in ("", str(event.runId)):  # Spark may tell of a restart before it tells of the end
                return
            tracker.state = "ended" if event.exception is None else "failed"
            tracker.is_busy = False
            if event.exception is None:
                del self._trackers[tracker.query_id]
                if self._metrics is not None:
                    self._metrics.forget(tracker.query_id)
        self._report(tracker)

    def _tracker(self, query_id: str, name: str | None) -> ProgressTracker:
        with self._lock:
            tracker = self._trackers.get(query_id)
            if tracker is None:
                tracker = ProgressTracker(query_id, name, has_lines=self._metrics is not None)
                self._trackers[query_id] = tracker
                self._due[query_id] = time.monotonic() + self._every
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._watch, name="ticdc progress", daemon=True)
                self._thread.start()
            return tracker

    def _watch(self) -> None:
        while not self._closed.wait(min(_LOOK_S, self._every)):
            with self._lock:
                running = [tracker for tracker in self._trackers.values() if tracker.state == "running"]
                if not running:
                    self._thread = None
                    return
            for tracker in running:
                batch, is_busy = tracker.batch, self._is_busy(tracker.query_id)
                with self._lock:
                    tracker.is_busy = is_busy and tracker.batch == batch  # unless it has ended meanwhile
                    is_due = time.monotonic() >= self._due[tracker.query_id] and tracker.state == "running"
                if is_due:
                    self._report(tracker)

    def _is_busy(self, query_id: str) -> bool:
        session = self._session or self.spark
        try:
            query = None if session is None else session.streams.get(query_id)
            return query is not None and query.status["isTriggerActive"] and query.status["isDataAvailable"]
        except Exception:  # noqa: BLE001 (it is ending, or belongs to another session)
            return False

    def _report(self, tracker: ProgressTracker) -> None:
        with self._lock:
            reports = tracker.reports(self._clock())
            if tracker.state == "running":
                self._due[tracker.query_id] = time.monotonic() + self._every
        for report in reports:
            bad = (report.decode_errors, report.dropped, report.destructive_ddl)
            is_new = any(bad) and self._said.get((report.query_id, report.table)) != bad
            self._said[report.query_id, report.table] = bad
            _log.log(logging.WARNING if is_new or report.state == "failed" else logging.INFO, "%s", report)
            try:
                if self._on_progress is not None:
                    self._on_progress(report)
            except Exception:  # noqa: BLE001 (user code must not end a query)
                _log.exception("The callback on_progress of progress_listener failed")


class _NewLines:
    """Reads the new metric files of queries."""

    def __init__(self, files: MetricFiles) -> None:
        self._files = files
        self._read: dict[str, set[str]] = {}  # the files of each query that were read
        self._has_warned = False

    def forget(self, query_id: str) -> None:
        """Forget an ended query: after a restart, its last files say how far it was."""
        self._read.pop(query_id, None)

    def of(self, query_id: str, batch: int) -> tuple[list[Line], list[Line]]:
        """Return the lines from before the first micro-batch asked for, and the new ones up to this micro-batch.

        A failure is logged once; the files are read with the next micro-batch.
        """
        is_first = query_id not in self._read
        read = self._read.setdefault(query_id, set())
        history: list[Line] = []
        lines: list[Line] = []
        try:
            numbered = [(_batch_of(name, query_id), name) for name in self._files.names()]
            oldest = max(0, batch - (_HISTORY if is_first else _REPEATED))
            for number, name in sorted((number, name) for number, name in numbered if oldest <= number <= batch):
                if name not in read:
                    (history if is_first and number < batch else lines).extend(self._files.read(name))
                    read.add(name)
        except OSError as error:
            if not self._has_warned:
                _log.warning("The metric files cannot be read: %s", self._files.shown(error))
            self._has_warned = True
        else:
            self._has_warned = False
        self._read[query_id] = {name for name in read if _batch_of(name, query_id) > batch - _HISTORY}
        return history, lines


def _batch_of(name: str, query_id: str) -> int:
    """Return the number of the micro-batch in the name of a metric file; -1 for a file of something else."""
    number = name.removeprefix(f"{query_id}-").partition("-")[0]
    return int(number) if name.startswith(f"{query_id}-") and number.isdecimal() else -1
