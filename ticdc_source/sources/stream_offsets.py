"""The offsets of streams, as Spark keeps them in a checkpoint.

An offset has the JSON layout of Spark's Kafka source, `{"topic": {"0": 42}}`; each number is the next offset to read.
Six more members, with names that no topic can have, hold what that layout lacks (docs/design/0005-streams.md):

    "$initial": true        marks what `initialOffset()` returned; Spark does not checkpoint it
    "$init": {"topic": …}   in the first end offset: where the stream started. After a crash in batch 0, or a restart
                            before any data, the stream starts there again, not at a newer "latest".
    "$ids": {"topic": "…"}  the known topic ids: a recreated topic has another one, and its offsets mean other records
    "$epochs": {"topic": …} the known epochs of the leaders that returned the ends: with them, a later leader tells
                            whether its log was truncated before these offsets
    "$ddl": {"topic": {"0": …}}   which DDL events the stream has from a partition, if it starts after records that
                            may have some (`planning.ddl_copies`)
    "$snapshot": {"tso": …} the TSO of the snapshot that the stream began with, and its progress (`sources.tidb`)
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from ticdc_source.options.offsets import from_json_dict, to_json_dict, unreadable
from ticdc_source.options.topics import TopicPartition

INITIAL, START, IDS, EPOCHS, SNAPSHOT = "$initial", "$init", "$ids", "$epochs", "$snapshot"

Offsets = dict[TopicPartition, int]
# An offset as Spark keeps it in a checkpoint: offsets by partition number by topic, and the members above.
OffsetJSON = dict[str, Any]


class StreamLimits(NamedTuple):
    """Two time limits of a stream, in seconds."""

    max_delay: float = 900.0  # to wait for the minimum number of offsets (`maxTriggerDelay`)
    min_interval: float = 0.2  # while a look-up stays valid (`fetchOffset.minIntervalMs`)


class MinimumWait:
    """Waits until there are enough offsets for a micro-batch (`minOffsetsPerTrigger`)."""

    def __init__(self) -> None:
        self._since: float | None = None

    def must_wait(self, backlog: int, least: int, max_delay: float, now: float) -> bool:
        """Whether to wait for `least` offsets; with any backlog, for at most `max_delay` seconds (monotonic)."""
        if self._since is None:
            self._since = now
        if backlog >= least or (backlog > 0 and now - self._since >= max_delay):
            self._since = now
            return False
        return True


def initial_offset(offsets: Offsets) -> OffsetJSON:
    return {INITIAL: True, **to_json_dict(offsets)}


def end_offset(start: OffsetJSON, end: OffsetJSON) -> OffsetJSON:
    """An end that follows `start`; the first one also holds where the stream started."""
    if not start.get(INITIAL):
        return end
    return {START: {name: start[name] for name in start if name != INITIAL}, **end}


def offsets_of(offset: OffsetJSON) -> Offsets:
    """The offsets in a checkpoint's JSON, without `$` members, which later releases may add.

    Raises:
        CheckpointError: it is not an offset of a checkpoint.
    """
    if isinstance(offset, dict):  # other JSON is refused by `from_json_dict`
        offset = {name: value for name, value in offset.items() if not name.startswith("$")}
    return from_json_dict(offset)


def start_offsets(start: OffsetJSON, end: OffsetJSON) -> Offsets:
    """The start of a batch; for an initial offset, the start in the end offset."""
    offsets = offsets_of(start)  # refuses what is no offset
    return offsets_of(end[START]) if start.get(INITIAL) and START in end else offsets


def topic_ids_of(offset: OffsetJSON) -> dict[str, str]:
    """The topic ids of an offset, by topic; empty for an earlier release's offset.

    Raises:
        CheckpointError: it is not an offset of a checkpoint.
    """
    ids = offset.get(IDS, {})
    if not isinstance(ids, dict) or not all(isinstance(topic_id, str) for topic_id in ids.values()):
        raise unreadable(json.dumps(ids))
    return ids
