"""What a read counts, and the lines of `metricsPath`."""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.events import CHANGE_TYPES, DDL, WATERMARK, Binaries, Chunk, Split
from ticdc_source.options.offsets import OffsetRange

__all__ = ["Counters", "TaskFacts", "metrics_line", "write_lines"]

_log = logging.getLogger(__name__)


class TaskFacts(TypedDict, total=False):
    """Which Spark task wrote a metrics line: empty outside Spark; a batch read has no query and no micro-batch."""

    query: str | None
    batch: int | None
    stage: int
    task: int
    attempt: int
    time: float


@dataclass(slots=True)
class Counters:
    """What was read of one offset range.

    Attributes:
        records: Kafka records.
        bytes: bytes of their keys and values.
        rows: rows returned to Spark, including those for bad records.
        images: row images by `_change_type`.
        general: row images that the general path parsed, one by one.
        native: row images that the native path read.
        ddl, watermarks: events of each.
        destructive_ddl: DDL events that removed rows of what is read without delete events.
        other_rows: row events of other tables.
        claim_checks: events whose rows were read from claim-check storage.
        key_only: events that came with their key columns only.
        skipped: records without events (tombstones, header-only messages).
        decode_errors: records or events that could not be read.
        dropped: how many of these `mode=DROPMALFORMED` dropped.
        rescued: rows with a value in the rescued column.
        invalid_utf8: texts that are not UTF-8, read with U+FFFD for each invalid byte.
        min_commit_ts, max_commit_ts: of the rows; None without rows.
        watermark: the largest watermark; None without one.
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
    client: str | None = None,
    client_fallback: str | None = None,
    native_fallback: str | None = None,
) -> dict[str, object]:
    """Return the metrics line of one offset range.

    Args:
        counters: what was counted.
        read: the offset range.
        lag: the number of offsets behind its end when the read was planned; None if unknown.
        task: which Spark task read it.
        commit_end: the option `endingCommitTs`, or the commit-ts that `resolved` stands for.
        client: the client library that fetched, and its version.
        client_fallback: why that library took a slower way; None if it did not.
        native_fallback: why this process did not take the native path; None if it did.
    """
    return {
        **task,
        "topic": read.topic,
        "partition": read.partition,
        "start": read.start,
        "end": read.end,
        "lag": lag,
        "records": counters.records,
        "bytes": counters.bytes,
        "rows": counters.rows,
        "events": {
            **{name: counters.images[change_type] for change_type, name in enumerate(CHANGE_TYPES)},
            "ddl": counters.ddl,
            "destructive_ddl": counters.destructive_ddl,
            "watermark": counters.watermarks,
            "other_tables": counters.other_rows,
        },
        "claim_checks": counters.claim_checks,
        "key_only": counters.key_only,
        "skipped": counters.skipped,
        "decode_errors": counters.decode_errors,
        "dropped": counters.dropped,
        "rescued": counters.rescued,
        "invalid_utf8": counters.invalid_utf8,
        "min_commit_ts": counters.min_commit_ts,
        "max_commit_ts": counters.max_commit_ts,
        "watermark": counters.watermark,
        "ending_commit_ts": commit_end,
        "client": client,
        "client_fallback": client_fallback,
        "decoded": {"native": counters.native, "general": counters.general},
        "native_fallback": native_fallback,
    }


def write_lines(folder: str, name: str, lines: Iterable[Mapping[str, object]]) -> None:
    """Write a task's lines as one new file in a folder. A reader sees the whole file or none, also after a crash.

    Metrics never fail a read: a failure is logged.
    """
    text = "".join(json.dumps(line) + "\n" for line in lines)
    final = Path(folder) / f"{name}-{uuid.uuid4().hex}.jsonl"
    draft = final.with_name(f".{final.name}.tmp")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(final)
    except OSError as error:
        _log.warning("metricsPath: %s cannot be written: %s", final, error)
