"""How far and how late a streaming query is: Spark's offsets and metrics lines → `StreamProgress`, and its lags.

docs/design/0016-progress.md says what each lag means, and why. Callers pass the time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from ticdc_source.errors import CheckpointError
from ticdc_source.options.topics import TopicPartition
from ticdc_source.planning.watermarks import Progress
from ticdc_source.schema.json_text import loads
from ticdc_source.schema.tso import seconds
from ticdc_source.sources.stream_offsets import offsets_of

__all__ = [
    "Line",
    "PartitionProgress",
    "ProgressTracker",
    "StreamProgress",
    "commit_lag",
    "offset_lag",
    "watermark_lag",
]

# The members that are added up. `destructive_ddl` is inside `events`.
_ADDED = ("rows", "decode_errors", "dropped")
_MEMBERS = frozenset({
    *_ADDED, "batch", "events", "lag", "max_commit_ts", "partition", "start", "table", "topic", "watermark"
})  # fmt: skip
_COUNTED = ("decode_errors", "dropped", "destructive_ddl")
# A micro-batch may be repeated after a restart, and no older one: so long its lines are remembered.
_REMEMBERED = 2

State: TypeAlias = Literal["running", "ended", "failed"]
# A metrics line. Any: each member has a type of its own (`METRICS`).
Line: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """How far a topic partition has been read.

    Attributes:
        up_to_date_at: the last time when nothing was left to read, in seconds since 1970; None for never.
        delay: how late the reader was when it last found nothing left, in seconds.
    """

    next_offset: int | None = None
    end: int | None = None
    commit_ts: int | None = None
    watermark: int | None = None
    up_to_date_at: float | None = None
    delay: float = 0.0

    @property
    def left(self) -> int | None:
        """The number of offsets that are left to read; None if it is not known."""
        if self.next_offset is None or self.end is None:
            return None
        return max(0, self.end - self.next_offset)

    @property
    def newest_read(self) -> float | None:
        """The time of the newest change or watermark that was read, or of the last time when nothing was left.

        In seconds since 1970; None if nothing is known.
        """
        times = [seconds(ts) for ts in (self.commit_ts, self.watermark) if ts is not None]
        if self.up_to_date_at is not None:
            times.append(self.up_to_date_at)
        return max(times, default=None)

    def noted(self, as_of: float, now: float) -> PartitionProgress:
        """Return this progress at `now`. If nothing is left, everything up to the time `as_of` has been read."""
        if self.left != 0:
            return self
        return replace(self, up_to_date_at=max(as_of, self.up_to_date_at or as_of), delay=max(0.0, now - as_of))

    def lag(self, now: float, *, is_busy: bool = False) -> float | None:
        """Return by how many seconds the reader is behind in this partition; None if nothing is known."""
        if self.left == 0 and not is_busy:
            return self.delay
        newest = self.newest_read
        return None if newest is None else now - newest


def offset_lag(partitions: Iterable[PartitionProgress]) -> int | None:
    """Return how many offsets are left to read in the topic partitions where it is known; None if it is of none."""
    left = [partition.left for partition in partitions if partition.left is not None]
    return sum(left) if left else None


def commit_lag(partitions: Iterable[PartitionProgress], now: float, *, is_busy: bool = False) -> float | None:
    """Return by how many seconds a reader is behind Kafka: how old the newest that it has read is, if more is left.

    Where nothing is left, it is the `delay`, so it does not grow while a topic is idle; but while the reader is known
    to be reading (`is_busy`), such partitions count too. It is never negative, whatever the clocks say.
    """
    each = [partition.lag(now, is_busy=is_busy) for partition in partitions]
    lags = [lag for lag in each if lag is not None]
    return max(0.0, *lags) if lags else None


def watermark_lag(resolved_ts: int | None, now: float) -> float | None:
    """Return how old the resolved ts is, in seconds: never negative, and None without one.

    TiCDC writes watermarks while nothing changes too, so this grows only if TiCDC, Kafka or the reader is late.
    """
    return None if resolved_ts is None else max(0.0, now - seconds(resolved_ts))


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamProgress:
    """How far a streaming query is, for one table.

    Numbers of rows, errors and DDL are totals since the listener first heard of the query. None means not known.
    Without metric files only `rows`, `offset_lag` and, once the query has read everything, `commit_lag` are.

    Attributes:
        query: the name of the query, or its id if it has none.
        query_id: its id, the same after a restart.
        table: the table; None if the query has several and the lines do not tell them apart, or if it is not known.
        batch: the last micro-batch that has ended; None before the first.
        at: the time of this report, in seconds since 1970.
        state: `running`, `ended`, or `failed` if it ended with an error.
        rows: rows that were read.
        offset_lag: records that are in Kafka and have not been read, as of the last micro-batch.
        commit_lag: seconds by which the query is behind Kafka: it rises while more is left to read, and not otherwise.
        watermark_lag: seconds since the resolved ts: every change up to it has been read.
        commit_ts: the largest commit-ts that was read.
        resolved_ts: the smallest watermark of the topic partitions; every change up to it, itself included, was read.
        decode_errors: records or events that could not be read.
        dropped: how many of these were dropped.
        destructive_ddl: DDL events that removed rows without delete events.
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

    @property
    def is_up(self) -> bool | None:
        """Whether the query runs; None if it has ended as it should."""
        return None if self.state == "ended" else self.state == "running"

    def __str__(self) -> str:
        """Return a line for a log: what is known, in plain units."""
        lags = {"commit_lag": self.commit_lag, "watermark_lag": self.watermark_lag}
        counts = {name: getattr(self, name) for name in ("rows", "offset_lag", *_COUNTED)}
        texts = {name: f"{value:.1f}s" for name, value in lags.items() if value is not None}
        texts |= {name: str(value) for name, value in counts.items() if value is not None}
        batch = "no micro-batch yet" if self.batch is None else f"micro-batch {self.batch}"
        table = "" if self.table is None else f", {self.table}"
        shown = " ".join(f"{name}={value}" for name, value in texts.items())
        return f"query {self.query}{table}, {batch}, {self.state}: {shown}"


@dataclass(slots=True)
class _Table:
    """What the lines say of one table."""

    commits: dict[TopicPartition, int] = field(default_factory=dict)
    progress: Progress = field(default_factory=Progress)
    counted: Counter[str] = field(default_factory=Counter)

    def add(self, line: Line, *, counts: bool) -> None:
        partition = TopicPartition(line["topic"], line["partition"])
        commit_ts = line["max_commit_ts"]
        if commit_ts is not None:
            self.commits[partition] = max(commit_ts, self.commits.get(partition, commit_ts))
        self.progress = self.progress.after(line["batch"], [(partition, line["watermark"])], None)
        if counts:
            self.counted.update({name: line[name] for name in _ADDED})
            self.counted["destructive_ddl"] += line["events"]["destructive_ddl"]


class ProgressTracker:
    """Follows one streaming query. The caller has the clock, and reads the metric files.

    Attributes:
        run: which of its runs that is; empty if its start was not heard of.
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
        self._partitions: dict[TopicPartition, PartitionProgress] = {}
        self._tables: dict[str | None, _Table] = {None: _Table()}
        self._seen: set[tuple[object, ...]] = set()

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
        """Add a micro-batch that has ended, and was planned at `as_of`: what came later is not known.

        Of each source there are the end offset and the latest offset, as JSON; only Kafka's form counts.
        """
        self.batch, self.is_busy = batch, False
        self._input_rows += rows
        complete = _complete(lines)
        behind = {TopicPartition(line["topic"], line["partition"]): line["lag"] or 0 for line in complete}
        offsets: dict[TopicPartition, int] = {}
        ends: dict[TopicPartition, int] = {}
        for end_text, latest_text in sources:
            latest = _offsets(latest_text)
            for partition, offset in _offsets(end_text).items():
                # Before PySpark 4.2 Spark does not say where a topic ends; the planner does.
                ends[partition] = latest.get(partition, offset + behind.get(partition, 0))
                offsets[partition] = min(offset, offsets.get(partition, offset))  # of two sources, the slower
        before = {partition: each.up_to_date_at for partition, each in self._partitions.items()}
        self._partitions = {
            partition: PartitionProgress(
                next_offset=offset, end=ends[partition], up_to_date_at=before.get(partition)
            ).noted(as_of, now)
            for partition, offset in offsets.items()
        }
        self._add(complete, counts=True)
        self._seen = {what for what in self._seen if isinstance(what[0], int) and what[0] > batch - _REMEMBERED}

    def add_history(self, lines: Iterable[Line]) -> None:
        """Add lines from before the query was followed: they say how far it was, and their rows do not count."""
        self._add(_complete(lines), counts=False)

    def idle(self, now: float) -> None:
        """Note that Spark has found nothing more to read, at a time in seconds since 1970."""
        self.is_busy = False
        self._partitions = {
            partition: replace(each, end=each.next_offset).noted(now, now)
            for partition, each in self._partitions.items()
        }

    def reports(self, now: float) -> list[StreamProgress]:
        """Return the progress of each table at a time, in seconds since 1970."""
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
        """Return the table of a line: without a name it is the only one; lines of workers that saw no row have none."""
        if len(self._tables) == 1:
            (only,) = self._tables
            if name is None:
                return self._tables[only]
            if only is None:
                self._tables[name] = self._tables.pop(None)
        return self._tables.setdefault(name, _Table())

    def _partitions_of(self, table: _Table) -> Mapping[TopicPartition, PartitionProgress]:
        if len(self._tables) == 1:
            return self._partitions
        topics = {partition.topic for partition in table.progress.watermarks}
        return {each: where for each, where in self._partitions.items() if each.topic in topics}

    def _report(self, name: str | None, table: _Table, now: float) -> StreamProgress:
        positions = [
            replace(each, commit_ts=table.commits.get(partition), watermark=table.progress.watermarks.get(partition))
            for partition, each in self._partitions_of(table).items()
        ]
        runs = self.state == "running"
        return StreamProgress(
            query=self.query,
            query_id=self.query_id,
            table=name,
            batch=self.batch,
            at=now,
            state=self.state,
            rows=table.counted["rows"] if self._has_lines else self._input_rows,
            offset_lag=offset_lag(positions),
            commit_lag=commit_lag(positions, now, is_busy=self.is_busy) if runs else None,
            watermark_lag=watermark_lag(table.progress.resolved_ts, now) if runs else None,
            commit_ts=max(table.commits.values(), default=None),
            resolved_ts=table.progress.resolved_ts,
            **{each: table.counted[each] if self._has_lines else None for each in _COUNTED},
        )


def _complete(lines: Iterable[Line]) -> list[Line]:
    """Return the lines that have all members which are used here: another release may have written others."""
    return [line for line in lines if line.keys() >= _MEMBERS]


def _offsets(text: str | None) -> dict[TopicPartition, int]:
    """Return an offset as Spark reports it; empty if it is not of Kafka's form."""
    try:
        offset = None if text is None else loads(text)
        return offsets_of(offset) if isinstance(offset, dict) else {}
    except (CheckpointError, ValueError):
        return {}
