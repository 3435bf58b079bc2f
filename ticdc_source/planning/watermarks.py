"""Watermarks folded over micro-batches: the resolved ts, and what the next micro-batch must know."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ticdc_source.errors import CheckpointError
from ticdc_source.options.topics import TopicPartition
from ticdc_source.schema.json_text import loads
from ticdc_source.schema.tso import duration, seconds

_VERSION = 1
_LONG_S = 600.0  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What is known after a micro-batch.

    Attributes:
        batch_id: the number of the micro-batch; -1 before the first.
        watermarks: the largest watermark of each topic partition that has had a record; None before its first.
        partitions: how many topic partitions the stream reads; None if that is not known.
        resolved_ts: every event up to it, itself included, has been read, from all topic partitions; None while a topic
            partition has had no watermark. It never decreases.
        skipped: the tables that could not be read, and are left out since: the number of the micro-batch, and why.
        tables: the names of all tables so far.
        column_types: the types of their columns that messages have shown: by table, by column.
    """

    batch_id: int = -1
    watermarks: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    partitions: int | None = None
    resolved_ts: int | None = None
    skipped: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    tables: frozenset[str] = frozenset()
    column_types: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def after(
        self, batch_id: int, watermarks: Iterable[tuple[TopicPartition, int | None]], partitions: int | None
    ) -> Progress:
        """Return the progress after the next micro-batch.

        A watermark may be smaller than the one before it, and the larger one counts (docs/wire.md, item 99). All events
        up to the smallest, over all topic partitions, have been read (docs/wire.md, item 100).

        Args:
            watermarks: the topic partitions that it has records of, with their largest watermark; None for none.
            partitions: how many topic partitions the stream reads now; None if that is not known.
        """
        folded = dict(self.watermarks)
        for topic_partition, watermark in watermarks:
            marks = [mark for mark in (watermark, folded.get(topic_partition)) if mark is not None]
            folded[topic_partition] = max(marks, default=None)
        total = self.partitions if partitions is None else partitions
        marks = [mark for mark in folded.values() if mark is not None]
        resolved = self.resolved_ts
        if total is not None and 0 < total <= len(marks) == len(folded):
            resolved = min(marks) if resolved is None else max(min(marks), resolved)
        return replace(self, batch_id=batch_id, watermarks=folded, partitions=total, resolved_ts=resolved)

    def without_watermark(self) -> str:
        """Return why there is no resolved ts yet, for a warning."""
        if self.partitions is None:
            return "how many topic partitions there are is not known: SyncState(…, partitions=…) says it"
        marks = sum(mark is not None for mark in self.watermarks.values())
        return f"{marks} of {max(self.partitions, len(self.watermarks))} topic partitions have had a watermark"

    def laggard(self) -> str | None:
        """Return which topic partition holds the resolved ts back for long, for a warning; None if none does."""
        marks = {topic_partition: mark for topic_partition, mark in self.watermarks.items() if mark is not None}
        if self.resolved_ts is None or not marks:
            return None
        slowest, newest = min(marks, key=lambda each: marks[each]), max(marks.values())
        behind = seconds(newest) - seconds(marks[slowest])
        if behind < _LONG_S:
            return None
        return (
            f"{slowest} holds the resolved ts back: its last watermark is {duration(behind)} older than the "
            "newest. A topic whose tables were all dropped or renamed gets no more watermarks: leave it out of the "
            "stream, and start with a new checkpoint and a new SyncState"
        )

    def as_json(self) -> str:
        return json.dumps(
            {
                "version": _VERSION,
                "batch_id": self.batch_id,
                "watermarks": [
                    [*topic_partition, mark] for topic_partition, mark in sorted(self.watermarks.items(), key=str)
                ],
                "partitions": self.partitions,
                "resolved_ts": self.resolved_ts,
                "skipped": {name: list(skip) for name, skip in self.skipped.items()},
                "tables": sorted(self.tables),
                "column_types": {name: dict(columns) for name, columns in self.column_types.items()},
            }
        )

    @classmethod
    def of_json(cls, text: str) -> Progress:
        """Return the progress that `as_json` has written.

        Raises:
            CheckpointError: the text is something else.
        """
        try:
            saved = loads(text)
            if saved["version"] != _VERSION:
                msg = f"It has version {saved['version']}, and this release writes version {_VERSION}"
                raise CheckpointError(msg)
            return cls(
                batch_id=int(saved["batch_id"]),
                watermarks={TopicPartition(topic, partition): mark for topic, partition, mark in saved["watermarks"]},
                partitions=saved["partitions"],
                resolved_ts=saved["resolved_ts"],
                skipped={name: (int(number), str(why)) for name, (number, why) in saved["skipped"].items()},
                tables=frozenset(saved["tables"]),
                column_types={name: dict(columns) for name, columns in saved.get("column_types", {}).items()},
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            msg = f"It is not what a SyncState writes: {type(error).__name__}: {error}"
            raise CheckpointError(msg) from None
