"""Progress and lag of a streaming query: Spark's offsets and metrics lines → `StreamProgress`, for Prometheus too.

docs/design/0016-progress.md explains each lag. Callers pass the time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal, Protocol, TypeAlias

from ticdc_source.errors import CheckpointError, OptionError
from ticdc_source.options.topics import TopicPartition
from ticdc_source.planning.watermarks import Progress
from ticdc_source.schema.json_text import loads
from ticdc_source.schema.tso import age, duration, seconds
from ticdc_source.sources.stream_offsets import SNAPSHOT, offsets_of
from ticdc_source.sources.tidb.progress import SnapshotProgress

# Members of a metrics line that are not counts.
_MEMBERS = frozenset({
    "batch", "events", "lag", "max_commit_ts", "partition", "start", "table", "topic", "watermark"
})  # fmt: skip
# Lines of so many micro-batches are remembered: a restart repeats the last one, and none before it.
_REMEMBERED = 2

Kind: TypeAlias = Literal["counter", "gauge"]
State: TypeAlias = Literal["running", "ended", "failed"]
# A metrics line. Any: each member has a type of its own.
Line: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Exported:
    """A Prometheus metric; `member` names the member of the report that it exports."""

    name: str
    kind: Kind
    member: str
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamProgress:
    """The progress of a streaming query, for one table.

    Numbers of rows, errors and DDL are totals since the listener first saw the query. None means unknown. Without
    metric files, only `rows`, `offset_lag` and, once everything is read, `commit_lag` are known.

    A counter is a member of the metrics lines with the same name.

    Attributes:
        query: the name of the query, or its id if it has none.
        query_id: its id, the same after a restart.
        table: the table; None if it is unknown, or the query has several that the lines do not tell apart.
        batch: the last completed micro-batch; None before the first.
        at: the time of this report, in seconds since 1970.
        state: `running`, `ended`, or `failed` if it ended with an error.
        offset_lag: records in Kafka that were not read, as of the last micro-batch.
        commit_lag: seconds by which the query is behind Kafka: it rises only while something is left to read.
        watermark_lag: seconds since `resolved_ts`.
        commit_ts: the largest commit-ts that was read.
        resolved_ts: the smallest watermark of the topic partitions: every change up to and including it was read.
        decode_errors: records or events that could not be read.
        dropped: how many of these were dropped.
        destructive_ddl: DDL events that removed rows without delete events.
        snapshot_ranges: ranges of the initial load (`snapshot=initial`) read so far, of all tables; None without one,
            and when it is complete.
        snapshot_ranges_expected: the estimated number of ranges, from TiDB's statistics.
        snapshot_left: the estimated seconds until the initial load is complete.
    """

    query: str
    query_id: str
    table: str | None
    batch: int | None
    at: float
    state: State
    rows: int
    offset_lag: int | None
    commit_lag: float | None
    watermark_lag: float | None
    commit_ts: int | None
    resolved_ts: int | None
    decode_errors: int | None
    dropped: int | None
    destructive_ddl: int | None
    snapshot_ranges: int | None = None
    snapshot_ranges_expected: int | None = None
    snapshot_left: float | None = None

    @property
    def is_up(self) -> bool | None:
        """Whether the query runs; None after it ended without an error."""
        return None if self.state == "ended" else self.state == "running"

    def __str__(self) -> str:
        """Return a log line with what is known."""
        lags = {"commit_lag": self.commit_lag, "watermark_lag": self.watermark_lag}
        counts = {name: getattr(self, name) for name in ("rows", "offset_lag", *_COUNTED)}
        texts = {name: f"{value:.1f}s" for name, value in lags.items() if value is not None}
        texts |= {name: str(value) for name, value in counts.items() if value is not None}
        if self.snapshot_ranges is not None:
            left = "" if self.snapshot_left is None else f" (about {duration(self.snapshot_left)} left)"
            texts["snapshot_ranges"] = f"{self.snapshot_ranges}/{self.snapshot_ranges_expected}{left}"
        batch = "no micro-batch yet" if self.batch is None else f"micro-batch {self.batch}"
        table = "" if self.table is None else f", {self.table}"
        shown = " ".join(f"{name}={value}" for name, value in texts.items())
        return f"query {self.query}{table}, {batch}, {self.state}: {shown}"


# Each has the labels `query` and `table`. docs/reference/metrics.md is generated from them.
EXPORTED = (
    Exported("ticdc_rows_total", "counter", "rows", "rows read; by a sync without `metricsPath`, packed rows"),
    Exported("ticdc_offset_lag_records", "gauge", "offset_lag", "backlog: unread records in Kafka"),
    Exported(
        "ticdc_commit_lag_seconds",
        "gauge",
        "commit_lag",
        "age of the newest event read; without a backlog, the last micro-batch's duration, or 0 when idle",
    ),
    Exported(
        "ticdc_watermark_lag_seconds",
        "gauge",
        "watermark_lag",
        "age of the resolved ts, up to which every change was read",
    ),
    Exported("ticdc_decode_errors_total", "counter", "decode_errors", "records or events that could not be read"),
    Exported("ticdc_dropped_total", "counter", "dropped", "dropped bad records or events"),
    Exported(
        "ticdc_destructive_ddl_total",
        "counter",
        "destructive_ddl",
        "DDL events that removed rows without delete events",
    ),
    Exported("ticdc_snapshot_ranges", "gauge", "snapshot_ranges", "ranges of the initial load already read"),
    Exported(
        "ticdc_snapshot_ranges_expected", "gauge", "snapshot_ranges_expected", "estimated ranges of the initial load"
    ),
    Exported("ticdc_snapshot_left_seconds", "gauge", "snapshot_left", "estimated remaining time of the initial load"),
    Exported("ticdc_query_up", "gauge", "is_up", "1 while the query runs, 0 after a failure"),
)
_COUNTED = tuple(each.member for each in EXPORTED if each.kind == "counter" and each.member != "rows")


@dataclass(slots=True)
class _Position:
    """How far a topic partition has been read.

    Attributes:
        up_to_date_at: the last time nothing was left to read, in seconds since 1970; None if never.
        delay: the reader's lag at that time, in seconds.
    """

    next_offset: int
    end: int
    up_to_date_at: float | None = None
    delay: float = 0.0

    @property
    def left(self) -> int:
        return max(0, self.end - self.next_offset)

    def note(self, as_of: float, now: float) -> None:
        """If nothing is left, note at `now` that everything up to the time `as_of` has been read."""
        if not self.left:
            self.up_to_date_at = max(as_of, self.up_to_date_at or as_of)
            self.delay = max(0.0, now - as_of)


@dataclass(slots=True)
class SnapshotPace:
    """The pace of a snapshot since the first look at it."""

    _first: tuple[float, int] | None = None

    def left_s(self, snapshot: SnapshotProgress, now: float) -> float | None:
        """Estimate the seconds left; None if nothing was read since the first look."""
        if self._first is None:
            self._first = now, snapshot.ranges
        since, before = self._first
        done = snapshot.ranges - before
        return round((now - since) / done * (snapshot.expected_ranges - snapshot.ranges), 1) if done > 0 else None


def snapshot_of(offset: object) -> SnapshotProgress | None:
    """Return the progress of a stream's snapshot from its offset; None without one, or if it is complete."""
    try:
        snapshot = SnapshotProgress.of_json(offset[SNAPSHOT]) if isinstance(offset, dict) else None
    except (CheckpointError, KeyError):
        return None
    return snapshot if snapshot is not None and snapshot.tables else None


@dataclass(slots=True)
class _Table:
    commits: dict[TopicPartition, int] = field(default_factory=dict)
    progress: Progress = field(default_factory=Progress)
    counted: Counter[str] = field(default_factory=Counter)
    topics: set[str] = field(default_factory=set)

    def add(self, line: Line, *, counts: bool) -> None:
        partition = TopicPartition(line["topic"], line["partition"])
        commit_ts = line["max_commit_ts"]
        if commit_ts is not None:
            self.commits[partition] = max(commit_ts, self.commits.get(partition, commit_ts))
        self.topics.add(partition.topic)
        # Ranges of a snapshot never have a watermark, and wait for none.
        marks = [] if line["watermark"] is None else [(partition, line["watermark"])]
        self.progress = self.progress.after(line["batch"], marks, None)
        if counts:
            self.counted.update({name: {**line["events"], **line}[name] for name in ("rows", *_COUNTED)})


class ProgressTracker:
    """Follows one streaming query. The caller has the clock, and reads the metric files.

    Attributes:
        run: the id of the current run; empty if its start was not seen.
    """

    def __init__(self, query_id: str, name: str | None, *, has_lines: bool) -> None:
        self.query_id = query_id
        self.query = name or query_id
        self.batch: int | None = None
        self.state: State = "running"
        self.run = ""
        self.is_busy = False
        self._has_lines = has_lines
        self._input_rows = 0
        self._partitions: dict[TopicPartition, _Position] = {}
        self._tables: dict[str | None, _Table] = {None: _Table()}
        self._seen: set[tuple[object, ...]] = set()
        self._snapshot: SnapshotProgress | None = None
        self._snapshot_left: float | None = None
        self._pace = SnapshotPace()

    def add_batch(
        self,
        batch: int,
        rows: int,
        sources: Iterable[tuple[str | None, str | None]],
        lines: Iterable[Line],
        *,
        as_of: float,
        now: float,
    ) -> None:
        """Add a completed micro-batch, planned at `as_of`.

        Each source is its end offset and latest offset, as JSON; those not in Kafka's form are ignored.
        """
        self.batch, self.is_busy = batch, False
        self._input_rows += rows
        complete = _complete(lines)
        behind = {TopicPartition(line["topic"], line["partition"]): line["lag"] or 0 for line in complete}
        offsets: dict[TopicPartition, int] = {}
        ends: dict[TopicPartition, int] = {}
        positions: dict[TopicPartition, _Position] = {}
        self._snapshot = None
        for end_text, latest_text in sources:
            end, latest = _offset(end_text), _offsets(_offset(latest_text))
            self._snapshot = self._snapshot or snapshot_of(end)
            for partition, offset in _offsets(end).items():
                # Before PySpark 4.2 only the planner says where a topic ends.
                ends[partition] = latest.get(partition, offset + behind.get(partition, 0))
                offsets[partition] = min(offset, offsets.get(partition, offset))  # of two sources, the slower
        for partition, offset in offsets.items():
            before = self._partitions.get(partition)
            position = _Position(offset, ends[partition], None if before is None else before.up_to_date_at)
            position.note(as_of, now)
            positions[partition] = position
        self._partitions = positions
        self._snapshot_left = None if self._snapshot is None else self._pace.left_s(self._snapshot, now)
        self._add(complete, counts=True)
        self._seen = {what for what in self._seen if isinstance(what[0], int) and what[0] > batch - _REMEMBERED}

    def add_history(self, lines: Iterable[Line]) -> None:
        """Add lines from before the query was followed: they tell its position, and their rows are not counted."""
        self._add(_complete(lines), counts=False)

    def idle(self, now: float) -> None:
        self.is_busy = False
        for position in self._partitions.values():
            position.end = position.next_offset
            position.note(now, now)

    def reports(self, now: float) -> list[StreamProgress]:
        if self.batch is not None and not self._partitions and not self._seen:
            return []  # a query of something else
        return [self._report(name, table, now) for name, table in self._tables.items()]

    def _add(self, lines: Iterable[Line], *, counts: bool) -> None:
        for line in lines:
            what = (line["batch"], line["table"], line["topic"], line["partition"], line["start"])
            if what not in self._seen:
                self._seen.add(what)
                self._table(line["table"]).add(line, counts=counts)
        for table in self._tables.values():
            total = len(self._partitions_of(table)) or None
            table.progress = table.progress.after(self.batch or 0, [], total)

    def _table(self, name: str | None) -> _Table:
        """Return the table of a line; lines of workers that saw no row have no name, and mean the only table."""
        if len(self._tables) == 1:
            (only,) = self._tables
            if name is None:
                return self._tables[only]
            if only is None:
                self._tables[name] = self._tables.pop(None)
        return self._tables.setdefault(name, _Table())

    def _partitions_of(self, table: _Table) -> Mapping[TopicPartition, _Position]:
        if len(self._tables) == 1:
            return self._partitions
        return {each: where for each, where in self._partitions.items() if each.topic in table.topics}

    def _report(self, name: str | None, table: _Table, now: float) -> StreamProgress:
        left = [position.left for position in self._partitions_of(table).values()]
        runs = self.state == "running"
        return StreamProgress(
            query=self.query,
            query_id=self.query_id,
            table=name,
            batch=self.batch,
            at=now,
            state=self.state,
            rows=table.counted["rows"] if self._has_lines else self._input_rows,
            offset_lag=sum(left) if left else None,
            commit_lag=self._commit_lag(table, now) if runs else None,
            watermark_lag=age(table.progress.resolved_ts, now) if runs else None,
            commit_ts=max(table.commits.values(), default=None),
            resolved_ts=table.progress.resolved_ts,
            **{each: table.counted[each] if self._has_lines else None for each in _COUNTED},
            snapshot_ranges=None if self._snapshot is None else self._snapshot.ranges,
            snapshot_ranges_expected=None if self._snapshot is None else self._snapshot.expected_ranges,
            snapshot_left=self._snapshot_left,
        )

    def _commit_lag(self, table: _Table, now: float) -> float | None:
        """Return how many seconds the query is behind Kafka, by its slowest partition; never negative.

        While records are left, that is the age of the newest one read. If none are left, it is `delay`, which does not
        grow while a topic is idle; during a micro-batch, these partitions count like the others.
        """
        lags = []
        for partition, position in self._partitions_of(table).items():
            if not position.left and not self.is_busy:
                lags.append(position.delay)
                continue
            read = (table.commits.get(partition), table.progress.watermarks.get(partition))
            times = [seconds(ts) for ts in read if ts is not None]
            if position.up_to_date_at is not None:
                times.append(position.up_to_date_at)
            if times:
                lags.append(now - max(times))
        return max(0.0, *lags) if lags else None


def _complete(lines: Iterable[Line]) -> list[Line]:
    """Return the lines with all members used here: another release may have written the others."""
    members = _MEMBERS.union(("rows", *_COUNTED))
    return [line for line in lines if {*line.keys(), *line.get("events", ())} >= members]


def _offset(text: str | None) -> object:
    try:
        return None if text is None else loads(text)
    except ValueError:
        return None


def _offsets(offset: object) -> dict[TopicPartition, int]:
    try:
        return offsets_of(offset) if isinstance(offset, dict) else {}
    except CheckpointError:
        return {}


class Registry(Protocol):
    """What registers collectors: a `prometheus_client.CollectorRegistry`."""

    def register(self, collector: object, /) -> None: ...

    def unregister(self, collector: object, /) -> None: ...


_LABELS = ("query", "table")


class ProgressCollector:
    """The collector of a Prometheus registry. Each report has the labels and the members of the metrics.

    Raises:
        ImportError: `prometheus-client` is not installed.
    """

    def __init__(self, reports: Callable[[], Iterable[object]], metrics: Sequence[Exported]) -> None:
        from prometheus_client import core  # noqa: PLC0415 (only those who use Prometheus need it)

        self._families: Mapping[Kind, Callable[..., object]] = {
            "counter": core.CounterMetricFamily,
            "gauge": core.GaugeMetricFamily,
        }
        self._reports = reports
        self._metrics = metrics

    def describe(self) -> Sequence[object]:
        """Return nothing, so that the registry asks for no values at registration."""
        return ()

    def collect(self) -> Iterator[object]:
        reports = [(report, [value or "" for value in attrgetter(*_LABELS)(report)]) for report in self._reports()]
        for exported in self._metrics:
            family = self._families[exported.kind](exported.name, exported.meaning, labels=_LABELS)
            member = attrgetter(exported.member)
            for report, labels in reports:
                value = member(report)
                if value is not None:
                    family.add_metric(labels, float(value))  # type: ignore[attr-defined]
            yield family


@contextmanager
def served(port: int) -> Iterator[Registry]:
    """Serve a registry over HTTP while the block runs.

    Raises:
        OptionError: `prometheus-client` is not installed, or the port is taken.
    """
    try:
        import prometheus_client  # noqa: PLC0415 (only those who use Prometheus need it)
    except ImportError:
        raise OptionError(
            "Metrics for Prometheus need prometheus-client: pip install 'ticdc-source[prometheus]'"
        ) from None
    registry: Any = prometheus_client.CollectorRegistry()
    try:
        server, thread = prometheus_client.start_http_server(port, registry=registry)
    except OSError as error:
        raise OptionError(f"Metrics for Prometheus cannot be served on port {port}: {error.strerror}") from None
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
