"""`endingCommitTs=resolved`: up to which commit-ts a range of offsets holds every transaction whole."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ticdc_source.errors import SchemaError
from ticdc_source.events import Chunk, Split
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.topics import TopicPartition
from ticdc_source.protocols.base import Decoder

__all__ = ["resolved_end"]

_log = logging.getLogger(__name__)

_WINDOW = 4096  # offsets to look at together, from the end backwards
_LOGICAL_BITS = 18
# A watermark is behind the clock of the record that brings it. Records older than the best watermark by more than
# this hold no larger one, unless clocks differ by as much (then an older watermark is taken: less is read, all whole).
_CLOCKS_DIFFER_MS = 60_000
# TiCDC writes watermarks to all topics at once, every few seconds at most: a topic that lacks them for so long is
# silent, and not one whose range ends just behind a DDL.
_SILENCE = 60_000 << _LOGICAL_BITS
_KEPT = frozenset({"COLUMN", "INDEX", "KEY"})  # RENAME of these leaves the table where it is

Fetch = Callable[[OffsetRange], Iterable[Chunk]]


@dataclass
class _Seen:
    """What was found of one topic partition."""

    watermark: int | None = None
    last_ddl: int = 0
    ends: set[int] = field(default_factory=set)  # commit-ts of the DDL that end a table


def resolved_end(ranges: Sequence[OffsetRange], fetch: Fetch, decoder: Decoder) -> int:
    """Return the smallest, over the topic partitions, of each one's largest watermark in its range.

    A read of what is strictly below cuts no transaction: all events up to a watermark were written before it
    (pingcap/ticdc cmd/kafka-consumer/writer.go, the global watermark). A topic whose tables were all dropped or
    renamed away gets no more watermarks, and would hold back all others for ever: it does not count where a DROP or
    RENAME of a table is the last that it holds (event_router.go, active topics).

    Raises:
        SchemaError: a topic partition has no watermark in its range.
    """
    seen = {one.topic_partition: _look(one, fetch, decoder) for one in ranges}
    silent = _silent_topics(seen)
    if silent and len(silent) < len({place.topic for place in seen}):
        _log.warning("endingCommitTs=resolved: %s has gone silent after its last DDL, and is not waited for",
                     ", ".join(sorted(silent)))  # fmt: skip
        seen = {place: found for place, found in seen.items() if place.topic not in silent}
    marks = {place: found.watermark for place, found in seen.items()}
    missing = sorted(place for place, mark in marks.items() if mark is None)
    if missing or not marks:
        where = ", ".join(map(str, missing)) or "the topics"
        help_ = (
            "wait for the first one, or widen the range" if decoder.watermarks_need is None
            else f"TiCDC writes them only with {decoder.watermarks_need}"
        )  # fmt: skip
        msg = f"endingCommitTs=resolved: no watermark in the range of {where}; {help_}"
        raise SchemaError(msg)
    place, end = min(((place, mark) for place, mark in marks.items() if mark is not None), key=lambda item: item[1])
    _log.info("endingCommitTs=resolved is %d, the watermark of %s", end, place)
    return end


def _look(one: OffsetRange, fetch: Fetch, decoder: Decoder) -> _Seen:
    """Walk one range backwards until no larger watermark can come; watermarks fall back after a restart of TiCDC."""
    seen, end = _Seen(), one.end
    while end > one.start:
        start = max(one.start, end - _WINDOW)
        oldest: int | None = None
        for chunk in fetch(OffsetRange(one.topic, one.partition, start, end)):
            _note(decoder.split(chunk), seen)
            if chunk.timestamps and oldest is None:
                oldest = chunk.timestamps[0]
        if seen.watermark is not None and oldest is not None:
            best_ms = seen.watermark >> _LOGICAL_BITS
            if 0 <= oldest < best_ms - _CLOCKS_DIFFER_MS:
                break
        end = start
    return seen


def _note(split: Split, seen: _Seen) -> None:
    for mark in split.watermarks:
        seen.watermark = mark.ts if seen.watermark is None else max(seen.watermark, mark.ts)
    for event in split.ddl:
        seen.last_ddl = max(seen.last_ddl, event.commit_ts or 0)
        if _ends_table(event.query):
            seen.ends.add(event.commit_ts or 0)


def _ends_table(query: str) -> bool:
    words = query.upper().split()
    return words[:2] in (["DROP", "TABLE"], ["RENAME", "TABLE"], ["DROP", "DATABASE"], ["DROP", "SCHEMA"]) or (
        words[:2] == ["ALTER", "TABLE"] and "RENAME" in words[3:4] and not _KEPT.intersection(words[4:5])
    )


def _silent_topics(seen: dict[TopicPartition, _Seen]) -> set[str]:
    """Return the topics without watermarks since the DDL that ended a table, while others went on for long."""
    newest = max((found.watermark or 0 for found in seen.values()), default=0)
    silent = set()
    for topic in {place.topic for place in seen}:
        parts = [found for place, found in seen.items() if place.topic == topic]
        last = max(found.last_ddl for found in parts)
        ended = any(last in found.ends for found in parts)
        if ended and all((found.watermark or 0) <= last for found in parts) and newest > last + _SILENCE:
            silent.add(topic)
    return silent
