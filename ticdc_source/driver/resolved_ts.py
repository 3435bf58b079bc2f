"""`endingCommitTs=resolved`: the commit-ts below which offset ranges hold every transaction whole."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from ticdc_source.driver.from_end import Fetch, holds_no_larger_watermark, windows_from_end
from ticdc_source.errors import SchemaError
from ticdc_source.events import Split
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.topics import TopicPartition
from ticdc_source.protocols.base import Decoder, splits_of
from ticdc_source.schema.ddl_kinds import ddl_kind

__all__ = ["resolved_end"]

_log = logging.getLogger(__name__)

_LOGICAL_BITS = 18
# TiCDC writes watermarks to all topics at once, every few seconds. A topic that lacks them for so long gets no more;
# its range does not merely end just behind a DDL event.
_INACTIVITY = 60_000 << _LOGICAL_BITS
_ENDS_TABLE = frozenset({"drop_table", "rename_table", "drop_database"})


@dataclass
class _Seen:
    """What was found in one topic partition."""

    watermark: int | None = None
    last_ddl: int = 0
    ends: set[int] = field(default_factory=set)  # commit-ts of the DDL that end a table


def resolved_end(ranges: Sequence[OffsetRange], fetch: Fetch, decoder: Decoder) -> int:
    """Return the smallest, over the topic partitions, of each one's largest watermark in its range.

    A read of everything strictly below it cuts no transaction, because all events up to a watermark are written before
    it (pingcap/ticdc cmd/kafka-consumer/writer.go, the global watermark). A topic whose tables were all dropped or
    renamed gets no more watermarks and would hold back all others for ever. It does not count if a DROP or RENAME of a
    table is the last event that it holds (event_router.go, active topics).

    Raises:
        SchemaError: a topic partition has no watermark in its range.
    """
    seen = {offset_range.topic_partition: _look(offset_range, fetch, decoder) for offset_range in ranges}
    inactive = _topics_without_watermarks(seen)
    if inactive and len(inactive) < len({topic_partition.topic for topic_partition in seen}):
        _log.warning("endingCommitTs=resolved: %s has had no watermark since its last DDL, and is left out",
                     ", ".join(sorted(inactive)))  # fmt: skip
        seen = {
            topic_partition: found for topic_partition, found in seen.items() if topic_partition.topic not in inactive
        }
    marks = {topic_partition: found.watermark for topic_partition, found in seen.items()}
    missing = sorted(topic_partition for topic_partition, mark in marks.items() if mark is None)
    if missing or not marks:
        where = ", ".join(map(str, missing)) or "the topics"
        help_ = (
            "wait for the first one, or widen the range" if decoder.watermarks_need is None
            else f"TiCDC writes them only with {decoder.watermarks_need}"
        )  # fmt: skip
        msg = f"endingCommitTs=resolved: no watermark in the range of {where}; {help_}"
        raise SchemaError(msg)
    topic_partition, end = min(
        ((topic_partition, mark) for topic_partition, mark in marks.items() if mark is not None),
        key=lambda item: item[1],
    )
    _log.info("endingCommitTs=resolved is %d, the watermark of %s", end, topic_partition)
    return end


def _look(offset_range: OffsetRange, fetch: Fetch, decoder: Decoder) -> _Seen:
    """Read one range backwards until no larger watermark can come; they go back when TiCDC restarts."""
    seen = _Seen()
    for window in windows_from_end(offset_range, fetch):
        oldest: int | None = None
        for chunk in window:
            for split in splits_of(decoder, chunk):
                _note(split, seen)
            if chunk.timestamps and oldest is None:
                oldest = chunk.timestamps[0]
        if holds_no_larger_watermark(oldest, seen.watermark):
            break
    return seen


def _note(split: Split, seen: _Seen) -> None:
    for mark in split.watermarks:
        seen.watermark = mark.ts if seen.watermark is None else max(seen.watermark, mark.ts)
    for event in split.ddl:
        seen.last_ddl = max(seen.last_ddl, event.commit_ts or 0)
        if ddl_kind(event) in _ENDS_TABLE:
            seen.ends.add(event.commit_ts or 0)


def _topics_without_watermarks(seen: dict[TopicPartition, _Seen]) -> set[str]:
    """Return the topics without a watermark since the DDL event that ended a table, while other topics went on."""
    newest = max((found.watermark or 0 for found in seen.values()), default=0)
    inactive = set()
    for topic in {topic_partition.topic for topic_partition in seen}:
        parts = [found for topic_partition, found in seen.items() if topic_partition.topic == topic]
        last = max(found.last_ddl for found in parts)
        ended = any(last in found.ends for found in parts)
        if ended and all((found.watermark or 0) <= last for found in parts) and newest > last + _INACTIVITY:
            inactive.add(topic)
    return inactive
