"""What a read counts, and the lines of `metricsPath`.

Prometheus has what inspection/monitoring/progress.py tells, and of a sync what its syncs/reports.py tells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.kernels.arrays import Binaries
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.protocols.events import Split
from ticdc_source.schema.change_order import CHANGE_TYPES, DDL, WATERMARK
from ticdc_source.sources.chunk import Chunk


class TaskFacts(TypedDict, total=False):
    """Which Spark task wrote a metrics line: empty outside Spark; a batch read has no query and no micro-batch."""

    query: str | None
    batch: int | None
    stage: int
    task: int
    attempt: int
    time: float


@dataclass(frozen=True, slots=True)
class Metric:
    """A member of a metrics line, with its type in Spark, for documentation and tests.

    `events.insert` is the member `insert` of the object `events`. The unit of a text is "".
    """

    name: str
    type: str
    unit: str
    meaning: str
    nullable: bool = False


_ID, _RECORDS, _ROWS, _IMAGES, _EVENTS, _TSO = "id", "records", "rows", "row images", "events", "TSO"
# The members of a line, in its order. docs/reference/metrics.md is generated from them.
METRICS = (
    Metric("query", "string", _ID,
           "the id of the streaming query, the same after a restart; null in a batch read", nullable=True),
    Metric("batch", "bigint", "number", "the micro-batch; null in a batch read", nullable=True),
    Metric("stage", "bigint", _ID, "the stage in Spark"),
    Metric("task", "bigint", "number", "the task in the stage"),
    Metric("attempt", "bigint", "number",
           "the attempt of the task, from 0; each attempt that ends well writes its lines"),
    Metric("time", "double", "seconds since 1970 (UTC)",
           "when the offset range had been read, by the clock of the worker"),
    Metric("table", "string", "", "the table, if the read is of one table and the worker knows which", nullable=True),
    Metric("topic", "string", "", "the topic"),
    Metric("partition", "bigint", "number", "the topic partition"),
    Metric("start", "bigint", "offset", "where the offset range starts"),
    Metric("end", "bigint", "offset", "where it ends: the offset after the last one"),
    Metric("lag", "bigint", "offsets",
           "offsets from `end` to the end of the topic partition when the micro-batch was "
           "planned; null in a batch read", nullable=True),
    Metric("records", "bigint", _RECORDS, "Kafka records that were read"),
    Metric("bytes", "bigint", "bytes", "size of their keys and values"),
    Metric("rows", "bigint", _ROWS, "rows returned to Spark, including those for bad records"),
    Metric("events.insert", "bigint", _IMAGES, "rows that were inserted"),
    Metric("events.update_preimage", "bigint", _IMAGES, "rows as they were before an update"),
    Metric("events.update_postimage", "bigint", _IMAGES, "rows as they are after an update"),
    Metric("events.delete", "bigint", _IMAGES, "rows that were deleted"),
    Metric("events.ddl", "bigint", _EVENTS, "DDL events, of any table"),
    Metric("events.destructive_ddl", "bigint", _EVENTS,
           "DDL events that removed rows of what is read without delete events; each once in a task"),
    Metric("events.watermark", "bigint", _EVENTS, "watermarks"),
    Metric("events.other_tables", "bigint", _EVENTS, "row events of tables that are not read"),
    Metric("claim_checks", "bigint", _EVENTS, "events whose rows came from claim-check storage"),
    Metric("key_only", "bigint", _EVENTS, "events that had their key columns only"),
    Metric("checksums", "bigint", _EVENTS, "events whose checksum was verified"),
    Metric("wrong_checksums", "bigint", _EVENTS, "those of them whose checksum is wrong, and that were returned"),
    Metric("lost_deletes", "bigint", _RECORDS,
           "records that say that some row was deleted, and not which one: its table has no primary key"),
    Metric("skipped", "bigint", _RECORDS, "records without events: tombstones, and messages without a body"),
    Metric("decode_errors", "bigint", "records or events", "what could not be read"),
    Metric("dropped", "bigint", "records or events", "how many of these `mode=DROPMALFORMED` dropped"),
    Metric("rescued", "bigint", _ROWS, "rows with a value in the rescued column"),
    Metric("invalid_utf8", "bigint", "texts", "texts that are not UTF-8, read with U+FFFD for each invalid byte"),
    Metric("min_commit_ts", "bigint", _TSO,
           "the smallest commit-ts of what is returned; null without one", nullable=True),
    Metric("max_commit_ts", "bigint", _TSO,
           "the largest commit-ts of what is returned; null without one", nullable=True),
    Metric("watermark", "bigint", _TSO, "the largest watermark; null without one", nullable=True),
    Metric("ending_commit_ts", "bigint", _TSO,
           "`endingCommitTs`, or what `resolved` stands for; null without the option", nullable=True),
    Metric("client", "string", "", "the client library that fetched, and its version", nullable=True),
    Metric("decoded.native", "bigint", _IMAGES, "what the native path read"),
    Metric("decoded.general", "bigint", _IMAGES, "what the general path read"),
    Metric("native_fallback", "string", "",
           "why the worker did not take the native path; null if it did", nullable=True),
)  # fmt: skip


@dataclass(slots=True)
class Counters:
    """What was read of one offset range. Most of these are members of a metrics line: `METRICS` says what they count.

    Attributes:
        images: row images by `_change_type`.
        general, native: row images that the general path parsed, and that the native path read.
        watermarks: how many there were; `watermark` is the largest.
        other_rows: row events of other tables.
    """

    records: int = 0
    bytes: int = 0
    rows: int = 0
    images: Counter[int] = field(default_factory=Counter)
    general: int = 0
    native: int = 0
    ddl: int = 0
    watermarks: int = 0
    destructive_ddl: int = 0
    other_rows: int = 0
    claim_checks: int = 0
    key_only: int = 0
    checksums: int = 0
    wrong_checksums: int = 0
    lost_deletes: int = 0
    skipped: int = 0
    decode_errors: int = 0
    dropped: int = 0
    rescued: int = 0
    invalid_utf8: int = 0
    min_commit_ts: int | None = None
    max_commit_ts: int | None = None
    watermark: int | None = None

    def count_chunk(self, chunk: Chunk) -> None:
        """Count a chunk's records."""
        self.records += len(chunk)
        self.bytes += _bytes(chunk.keys) + _bytes(chunk.values)

    def count_split(self, split: Split) -> None:
        """Count the events that are not rows of this read."""
        self.ddl += len(split.ddl)
        self.watermarks += len(split.watermarks)
        self.skipped += split.skipped
        self.lost_deletes += split.lost_deletes
        # Until `count_events` says which of them are of a wanted table.
        self.other_rows += split.others + sum(map(len, split.tables.values()))
        for event in split.watermarks:
            self.watermark = event.ts if self.watermark is None else max(self.watermark, event.ts)

    def count_events(self, events: int) -> None:
        """Count so many row events, which `count_split` counted as those of other tables, as wanted."""
        self.other_rows -= events

    def count_rows(self, change_types: pa.Array, commit_ts: pa.Array) -> None:
        """Count the rows that are read."""
        if len(change_types):
            data = change_types.buffers()[1].to_pybytes()  # each is a byte
            for change_type in (*range(len(CHANGE_TYPES)), DDL, WATERMARK):
                end = change_types.offset + len(change_types)
                self.images[change_type] += data.count(change_type, change_types.offset, end)
        self.count_commits(commit_ts)

    def count_commits(self, commit_ts: pa.Array) -> None:
        """Fold commit-ts into the smallest and the largest."""
        low, high = (bound.as_py() for bound in pc.min_max(commit_ts).values())
        if low is not None:
            self.min_commit_ts = low if self.min_commit_ts is None else min(self.min_commit_ts, low)
            self.max_commit_ts = high if self.max_commit_ts is None else max(self.max_commit_ts, high)


def _bytes(parts: Sequence[bytes | None]) -> int:
    if isinstance(parts, Binaries):
        return parts.nbytes
    try:
        return sum(map(len, parts))  # type: ignore[arg-type]
    except TypeError:  # some are None
        return sum(map(len, filter(None, parts)))


def metrics_line(
    counters: Counters,
    read: OffsetRange,
    lag: int | None,
    task: TaskFacts,
    commit_end: int | None = None,
    *,
    table: str | None = None,
    client: str | None = None,
    native_fallback: str | None = None,
) -> dict[str, object]:
    """Return the metrics line of one offset range; `METRICS` says what its members mean."""
    values: dict[str, object] = {
        **task,
        "table": table,
        **read._asdict(),
        "lag": lag,
        **{one.name: getattr(counters, one.name) for one in fields(counters)},
        **{f"events.{name}": counters.images[change_type] for change_type, name in enumerate(CHANGE_TYPES)},
        "events.ddl": counters.ddl,
        "events.destructive_ddl": counters.destructive_ddl,
        "events.watermark": counters.watermarks,
        "events.other_tables": counters.other_rows,
        "ending_commit_ts": commit_end,
        "client": client,
        "decoded.native": counters.native,
        "decoded.general": counters.general,
        "native_fallback": native_fallback,
    }
    line: dict[str, Any] = {}
    for name in (metric.name for metric in METRICS if metric.name in values):
        group, _, member = name.rpartition(".")
        (line.setdefault(group, {}) if group else line)[member] = values[name]
    return line
