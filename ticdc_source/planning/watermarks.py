"""What watermarks prove: the end of a batch with `endingCommitTs=resolved`, and up to where a stream is complete.

The newest watermarks count, so offset ranges are read backwards from their ends.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ticdc_source.errors import CheckpointError, SchemaError
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.topics import TopicPartition, listed
from ticdc_source.planning.fetchers import Fetch, windows_from_end
from ticdc_source.protocols.decoding import Decoder, splits_of
from ticdc_source.protocols.events import Split
from ticdc_source.schema.ddl_event import ddl_kind
from ticdc_source.schema.json_text import loads
from ticdc_source.schema.tso import duration, of_ms, physical_ms, seconds

_log = logging.getLogger(__name__)

# TiCDC writes watermarks to all topics at once, every few seconds. A topic without them for so long gets no more, and
# its range does not just end after a DDL event.
_INACTIVITY = of_ms(60_000)
_ENDS_TABLE = frozenset({"drop_table", "rename_table", "drop_database"})
# A watermark is older than its record. Records older than the largest watermark by more than this have no larger one,
# unless clocks differ by as much. Then an older watermark is used: less is read, but only complete transactions.
CLOCKS_DIFFER_MS = 60_000
_VERSION = 1
_LONG_S = 600.0


def holds_no_larger_watermark(oldest_ms: int | None, watermark: int | None) -> bool:
    """Whether no earlier record can hold a larger watermark.

    `oldest_ms` is the timestamp of the oldest record read; None or -1 if unknown.
    """
    if watermark is None or oldest_ms is None:
        return False
    return 0 <= oldest_ms < physical_ms(watermark) - CLOCKS_DIFFER_MS


@dataclass
class _Seen:
    watermark: int = 0  # 0 for none, as of other commit-ts here
    last_ddl: int = 0
    ends: set[int] = field(default_factory=set)  # commit-ts of the DDL that end a table

    def note(self, split: Split) -> None:
        self.watermark = max([self.watermark, *(mark.ts for mark in split.watermarks)])
        for event in split.ddl:
            self.last_ddl = max(self.last_ddl, event.commit_ts or 0)
            if ddl_kind(event) in _ENDS_TABLE:
                self.ends.add(event.commit_ts or 0)


def resolved_until(ranges: Sequence[OffsetRange], fetch: Fetch, decoder: Decoder) -> int:
    """Return the exclusive end of a read: the smallest, over the topic partitions, of each one's largest watermark.

    A read below it cuts no transaction, because all events up to a watermark are written before it (pingcap/ticdc
    cmd/kafka-consumer/writer.go, the global watermark). A topic whose tables were all dropped or renamed gets no more
    watermarks. It would hold back all others, so it is ignored if its last event is a DROP or RENAME of a table
    (event_router.go, active topics).

    Raises:
        SchemaError: a topic partition has no watermark in its range.
    """
    seen = {offset_range.topic_partition: _look(offset_range, fetch, decoder) for offset_range in ranges}
    inactive = _topics_without_watermarks(seen)
    if inactive and inactive < {topic_partition.topic for topic_partition in seen}:
        names = ", ".join(sorted(inactive))
        _log.warning("endingCommitTs=resolved: %s has had no watermark since its last DDL, and is left out", names)
        seen = {each: facts for each, facts in seen.items() if each.topic not in inactive}
    marks = {topic_partition: facts.watermark for topic_partition, facts in seen.items()}
    missing = sorted(topic_partition for topic_partition, mark in marks.items() if not mark)
    if missing or not marks:
        need = decoder.facts.watermarks_need
        advice = "wait for the first one, or widen the range" if need is None else f"TiCDC writes them only with {need}"
        raise SchemaError(
            f"endingCommitTs=resolved: no watermark in the range of {listed(missing) or 'the topics'}; {advice}"
        )
    slowest = min(marks, key=lambda each: marks[each])
    _log.info("endingCommitTs=resolved is %d, the watermark of %s", marks[slowest], slowest)
    return marks[slowest]


def _look(offset_range: OffsetRange, fetch: Fetch, decoder: Decoder) -> _Seen:
    """Read one range backwards until no larger watermark can come; watermarks go back when TiCDC restarts."""
    seen = _Seen()
    for window in windows_from_end(offset_range, fetch):
        oldest: int | None = None
        for chunk in window:
            for split in splits_of(decoder, chunk):
                seen.note(split)
            if chunk.timestamps and oldest is None:
                oldest = chunk.timestamps[0]
        if holds_no_larger_watermark(oldest, seen.watermark):
            break
    return seen


def _topics_without_watermarks(seen: Mapping[TopicPartition, _Seen]) -> set[str]:
    """Return the topics without a watermark since a DDL event ended a table, while other topics went on."""
    newest = max((facts.watermark for facts in seen.values()), default=0)
    inactive = set()
    for topic in {topic_partition.topic for topic_partition in seen}:
        parts = [facts for topic_partition, facts in seen.items() if topic_partition.topic == topic]
        last = max(facts.last_ddl for facts in parts)
        ended = any(last in facts.ends for facts in parts)
        if ended and all(facts.watermark <= last for facts in parts) and newest > last + _INACTIVITY:
            inactive.add(topic)
    return inactive


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What is known after a micro-batch.

    Attributes:
        batch_id: -1 before the first micro-batch.
        watermarks: the largest watermark of each topic partition with records so far; None before its first.
        partitions: how many topic partitions the stream reads; None if unknown.
        resolved_ts: all events up to and including it have been read; None while a topic partition has had no
            watermark. It never decreases.
        skipped: the tables left out because they could not be read: since which micro-batch, and why.
        column_types: the types that messages have shown, by table and column.
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

        If a watermark is smaller than an earlier one, the larger one counts (docs/wire.md, item 99). All events up to
        the smallest over all topic partitions have been read (docs/wire.md, item 100).

        Args:
            watermarks: the topic partitions with records, with their largest watermark, None for none.
            partitions: how many topic partitions the stream reads now; None if unknown.
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
        """Say why there is no resolved ts yet."""
        if self.partitions is None:
            return "the number of topic partitions is unknown: set SyncState(…, partitions=…)"
        marks = sum(mark is not None for mark in self.watermarks.values())
        return f"{marks} of {max(self.partitions, len(self.watermarks))} topic partitions have had a watermark"

    def laggard(self) -> str | None:
        """Say which topic partition has held the resolved ts back for long; None if none has."""
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
        """Parse what `as_json` wrote.

        Raises:
            CheckpointError: the text is something else.
        """
        try:
            saved = loads(text)
            if saved["version"] != _VERSION:
                raise CheckpointError(f"It has version {saved['version']}, and this release writes version {_VERSION}")
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
            raise CheckpointError(f"It is not what a SyncState writes: {type(error).__name__}: {error}") from None
