"""The counters of a read, and the lines of `metricsPath`.

The Prometheus metrics are in inspection/progress.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.kernels.arrays import Binaries
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.protocols.events import Split
from ticdc_source.schema.change_order import CHANGE_TYPES
from ticdc_source.sources.chunk import Chunk


class TaskFacts(TypedDict, total=False):
    """The Spark task that wrote a metrics line: empty outside Spark; a batch read has no query or micro-batch."""

    query: str | None
    batch: int | None
    stage: int
    task: int
    attempt: int
    time: float


@dataclass(slots=True)
class Counters:
    """What was read of one offset range, for the metrics line (docs/reference/metrics.md).

    Attributes:
        images: row images by `_change_type`.
        general, native: row images that the general path parsed, and that the native path read.
        watermarks: their number; `watermark` is the largest.
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
        self.records += len(chunk)
        self.bytes += _bytes(chunk.keys) + _bytes(chunk.values)

    def count_split(self, split: Split) -> None:
        """Count the events that are not rows of this read."""
        self.ddl += len(split.ddl)
        self.watermarks += len(split.watermarks)
        self.skipped += split.skipped
        self.lost_deletes += split.lost_deletes
        # Until `count_events` says which of them belong to a wanted table.
        self.other_rows += split.others + sum(map(len, split.tables.values()))
        for event in split.watermarks:
            self.watermark = event.ts if self.watermark is None else max(self.watermark, event.ts)

    def count_events(self, events: int) -> None:
        """Count row events as wanted, which `count_split` has counted as those of other tables."""
        self.other_rows -= events

    def count_rows(self, change_types: pa.Array, commit_ts: pa.Array) -> None:
        for counted in pc.value_counts(change_types).to_pylist():
            self.images[counted["values"]] += counted["counts"]
        self.count_commits(commit_ts)

    def count_commits(self, commit_ts: pa.Array) -> None:
        low, high = (bound.as_py() for bound in pc.min_max(commit_ts).values())
        if low is not None:
            self.min_commit_ts = low if self.min_commit_ts is None else min(self.min_commit_ts, low)
            self.max_commit_ts = high if self.max_commit_ts is None else max(self.max_commit_ts, high)


def _bytes(parts: Sequence[bytes | None]) -> int:
    if isinstance(parts, Binaries):
        return parts.nbytes
    return sum(map(len, filter(None, parts)))


# Members of `events` in a metrics line beside images, with the names of their counters.
_EVENTS = {
    "ddl": "ddl", "destructive_ddl": "destructive_ddl", "watermark": "watermarks", "other_tables": "other_rows",
}  # fmt: skip


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
    """Return the metrics line of one offset range; see docs/reference/metrics.md."""
    counts = {each.name: getattr(counters, each.name) for each in fields(counters)}
    images, native, general = (counts.pop(name) for name in ("images", "native", "general"))
    others = {name: counts.pop(counter) for name, counter in _EVENTS.items()}
    return {
        **task,
        "table": table,
        **read._asdict(),
        "lag": lag,
        **counts,
        "events": {**{name: images[change_type] for change_type, name in enumerate(CHANGE_TYPES)}, **others},
        "ending_commit_ts": commit_end,
        "client": client,
        "decoded": {"native": native, "general": general},
        "native_fallback": native_fallback,
    }
