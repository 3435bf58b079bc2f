"""Planning a stream: where the next micro-batch ends, and which ranges lie between two offsets.

The offset has the layout of Spark's Kafka source, `{"topic": {"0": 42}}`: the next offset to read. Three members, whose
names no topic can have, carry what has no place in it (docs/design/0005-streams.md):

    "$initial": true        the offset that `initialOffset()` resolved; Spark does not keep it
    "$init": {"topic": …}   in the first end offset: where the stream started. After a crash in batch 0, or a restart
                            before any data, the stream starts there again and not at a "latest" that has moved.
    "$ids": {"topic": "…"}  the ids of the topics, as far as they are known: a topic that is deleted and created again
                            has another one, and its offsets are those of other records.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ticdc_source.errors import DataLossError
from ticdc_source.options.offsets import OffsetRange, from_json_dict, ids_from_json, shares, to_json_dict
from ticdc_source.options.topics import TopicPartition

__all__ = ["IDS", "INITIAL", "Lookup", "OffsetJSON", "StreamLimits", "StreamPlanner", "offsets_of"]

_log = logging.getLogger(__name__)

INITIAL, START, IDS = "$initial", "$init", "$ids"

# The maximum age of the list of topics and partitions. New ones start at their first record, so none is missed.
_LIST_EVERY_S = 10.0
# A broker may lag behind the others. A topic has a new id, or listed partitions have no offsets, after so many looks.
_PAUSE_S = 0.5
_LOOKS_UNTIL_RECREATED = 5
_LOOKS_UNTIL_WITHOUT_OFFSETS = 10

Offsets = dict[TopicPartition, int]
# An offset as Spark keeps it in a checkpoint: offsets by partition number by topic, and the members above.
OffsetJSON = dict[str, Any]


class Lookup(Protocol):
    """What a stream asks the brokers; `kafka.KafkaCluster` answers."""

    def partitions(self, *, missing: bool = False, known: Iterable[TopicPartition] = ()) -> list[TopicPartition]:
        """Return the topic partitions that exist; one that was known is gone only after several looks."""

    def starts(self, topic_partitions: Iterable[TopicPartition]) -> Offsets:
        """Return where a new stream starts in each partition."""

    def earliest(self, topic_partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the log start of each partition."""

    def latest(self, topic_partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the end of each partition."""

    def topic_ids(self) -> Mapping[str, str]:
        """Return the topics' ids as the last look-up had them, as far as there are any."""


class StreamLimits(NamedTuple):
    """How long a stream waits, in seconds.

    Attributes:
        max_delay: how long to wait for the minimum number of offsets (`maxTriggerDelay`).
        min_interval: how long a look-up stays valid (`fetchOffset.minIntervalMs`).
    """

    max_delay: float = 900.0
    min_interval: float = 0.2


@dataclass
class StreamPlanner:
    """Plans the micro-batches of one query. It lives in the driver's Python process and is never pickled.

    Attributes:
        lookup: the brokers.
        limits: how long to wait.
        report_loss: called with a reason if records or partitions are gone; it raises unless `failOnDataLoss` is off.
        clock: a monotonic clock, in seconds.
        sleep: waits for so many seconds.
    """

    lookup: Lookup
    limits: StreamLimits
    report_loss: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _start: Offsets | None = None
    _latest: Offsets = field(default_factory=dict)
    _ids: dict[str, str] = field(default_factory=dict)
    _believed_ids: dict[str, str] = field(default_factory=dict)  # the last id of each topic, gone ones too
    _old_ids: set[str] = field(default_factory=set)
    _unwritten_ids: dict[str, str] = field(default_factory=dict)  # of topics to whose offset no id was written
    _has_told_of_ids: bool = False
    _partitions: list[TopicPartition] = field(default_factory=list)
    _looked_at: float | None = None
    _listed_at: float | None = None
    _idle: bool = False
    _stops_at_target: bool = False
    _target: Offsets | None = None
    _target_ids: dict[str, str] = field(default_factory=dict)
    _waiting_since: float | None = None

    def initial(self) -> OffsetJSON:
        """Return where a new stream starts. It is resolved once."""
        if self._start is None:
            self._start = self.lookup.starts(self.lookup.partitions(missing=True))
        return {INITIAL: True, **to_json_dict(self._start)}

    def stop_at_latest(self) -> None:
        """Fix the end of the stream at the ends of the next look-up (Trigger.AvailableNow)."""
        self._stops_at_target = True

    def newest(self) -> OffsetJSON:
        """Return the ends of all partitions, for Spark's report."""
        return to_json_dict(self._look())

    def newest_end(self) -> OffsetJSON:
        """Return the ends of all partitions as the end of a micro-batch whose start is not known."""
        return _with_ids(self._look(), self._ids)

    def ends(self) -> Offsets:
        """Return the ends of all topic partitions as of the last look-up."""
        return self._latest

    def next(self, start: OffsetJSON, max_offsets: int | None = None, min_offsets: int | None = None) -> OffsetJSON:
        """Return where the micro-batch that begins at `start` ends; `start` itself if there is nothing to do.

        Args:
            start: the offset of the previous batch, as `initial()` or this method returned it (through JSON).
            max_offsets: the maximum number of offsets to read; None for all.
            min_offsets: the number of offsets to wait for; None for none.

        Raises:
            DataLossError: partitions are gone, or their offsets went back, or a topic was deleted and created again.
        """
        begins = self._offsets(start)
        ids = self._known_ids(start, begins)
        first = bool(start.get(INITIAL))
        self._look(begins)
        recreated = self._recreated(ids)
        without = _topics(begins) - _ids_of(start).keys()
        self._unwritten_ids = {topic: each for topic, each in {**self._ids, **ids}.items() if topic in without}
        # Its partitions are like added ones: they start at their earliest record.
        begins = {tp: offset for tp, offset in begins.items() if tp.topic not in recreated}
        ends = self._target_of(begins) if self._stops_at_target else self._latest
        # A loss is reported at once, without waiting.
        intact = not recreated and all(tp in ends and ends[tp] >= begins[tp] for tp in begins)
        if min_offsets is not None and intact and not first and not self._stops_at_target:
            new = sum(ends[tp] - begins.get(tp, 0) for tp in ends)
            if self._must_wait(new, min_offsets):
                return dict(start)
        begins = self._with_new_partitions(begins, ends)
        ends = self._checked(begins, ends)
        behind = {tp: ends[tp] - begins[tp] for tp in ends}
        backlog = sum(size for size in behind.values() if size > 0)
        if max_offsets is not None and backlog > max_offsets:
            granted = shares(behind, max_offsets)
            ends = {tp: begins[tp] + granted[tp] if behind[tp] > 0 else ends[tp] for tp in ends}
        if not first and not recreated and ends == self._offsets(start):
            return dict(start)
        end = _with_ids(ends, {**ids, **self._ids})
        return {START: {name: start[name] for name in start if name != INITIAL}, **end} if first else end

    def ranges(self, start: OffsetJSON, end: OffsetJSON) -> list[OffsetRange]:
        """Return the offset ranges between two offsets, by topic and partition, without empty ones.

        Raises:
            DataLossError: partitions are gone, or their offsets went back, or a topic was deleted and created again.
        """
        ends = self._offsets(end)
        begins = self._offsets(start, end)
        planned = _ids_of(end)
        started = self._known_ids(start, begins)
        carried = {topic: started[topic] for topic in sorted(_topics(ends) - planned.keys()) if topic in started}
        self._unwritten_ids.update(carried)
        if (planned or carried) and self._looked_at is None:  # a batch that was planned before a restart
            self._look(ends)
        # The records of the batch are gone, and the next one reads the new topic from its earliest offset.
        gone = self._recreated({**carried, **planned})
        ends = {tp: offset for tp, offset in ends.items() if tp.topic not in gone}
        begins = {tp: offset for tp, offset in begins.items() if tp.topic not in gone}
        recreated = {topic: ids for topic, ids in _changed(started, planned).items() if topic not in gone}
        self._old_ids.update(old for old, _ in recreated.values())
        self._report_recreated(recreated)
        begins = {tp: offset for tp, offset in begins.items() if tp.topic not in recreated}
        begins = self._with_new_partitions(begins, ends)
        self._report_gone(begins, ends)
        for tp in sorted(ends):
            if ends[tp] < begins[tp]:
                self._report_went_back(tp, begins[tp], ends[tp])
        return [OffsetRange(*tp, begins[tp], ends[tp]) for tp in sorted(ends) if ends[tp] > begins[tp]]

    def _offsets(self, offset: OffsetJSON, end: OffsetJSON | None = None) -> Offsets:
        """Return an offset by topic partition; for an initial one, the start that its end offset carries."""
        found = offsets_of(offset)
        return offsets_of(end[START]) if end is not None and offset.get(INITIAL) and START in end else found

    def _look(self, known: Iterable[TopicPartition] = ()) -> Offsets:
        """Return the ends of all topic partitions, from a look-up if the last one is too old.

        The same look-up tells the topics' ids. Spark asks some 90 times a second while a stream is idle.

        Args:
            known: partitions of the checkpoint, which the first listing of a process looks for.
        """
        now = self.clock()
        interval = self.limits.min_interval * (2.5 if self._idle else 1)
        if self._looked_at is None or now - self._looked_at >= interval:
            if self._listed_at is None or now - self._listed_at >= _LIST_EVERY_S:
                self._list(now, () if self._partitions else known)
            found = self._ends_of_listed(now)
            self._idle = found == self._latest
            self._latest = found
            self._learn_ids()
            self._looked_at = self.clock()
        return self._latest

    def _ends_of_listed(self, now: float) -> Offsets:
        """Return the ends of the listed partitions, without those that are gone: the caller decides what that means."""
        for look in range(_LOOKS_UNTIL_WITHOUT_OFFSETS):
            try:
                return self.lookup.latest(self._partitions) if self._partitions else {}
            except DataLossError:
                if look:  # the list has a partition that the look-up of offsets does not know
                    self.sleep(_PAUSE_S)
                self._list(now)
        found: Offsets = {}
        for topic in sorted(_topics(self._partitions)):
            try:
                found.update(self.lookup.latest([tp for tp in self._partitions if tp.topic == topic]))
            except DataLossError:
                _log.warning("Topic %s is listed, but the brokers tell no offsets: it counts as deleted", topic)
        self._partitions = sorted(found)
        return found

    def _learn_ids(self) -> None:
        found = self.lookup.topic_ids()
        topics = _topics(self._latest)
        ids = {topic: found[topic] for topic in sorted(topics) if topic in found}
        for topic in [topic for topic in ids if ids[topic] in self._old_ids]:
            # From a broker that lags behind: no id ever comes back.
            del ids[topic]
            if self._believed_ids.get(topic, "") not in {"", *self._old_ids}:
                ids[topic] = self._believed_ids[topic]
        self._ids = ids
        if len(ids) < len(topics) and not self._has_told_of_ids:
            self._has_told_of_ids = True
            _log.debug("The brokers or the client library tell no topic ids: a recreated topic is known by its offsets")

    def _known_ids(self, offset: OffsetJSON, offsets: Offsets) -> dict[str, str]:
        """Return the ids of an offset's topics, also those that this process saw and nobody has written yet."""
        topics = _topics(offsets)
        return {**{topic: each for topic, each in self._unwritten_ids.items() if topic in topics}, **_ids_of(offset)}

    def _recreated(self, ids: Mapping[str, str]) -> Mapping[str, tuple[str, str]]:
        """Return the topics that now have other ids, with the old and the new id, and report them."""
        for _ in range(_LOOKS_UNTIL_RECREATED - 1):
            if all(old in self._old_ids for old, _ in _changed(ids, self._ids).values()):
                break
            self.sleep(_PAUSE_S)  # a broker that lags behind may have answered with the id of before
            self._looked_at = None
            self._look()
        changed = _changed(ids, self._ids)
        replaced = _changed(self._believed_ids, self._ids)  # also of a topic that was away in between
        self._old_ids.update(old for old, _ in [*changed.values(), *replaced.values()])
        self._believed_ids.update(self._ids)
        self._report_recreated(changed)
        return changed

    def _report_recreated(self, changed: Mapping[str, tuple[str, str]]) -> None:
        if changed:
            topics = ", ".join(f"{topic} (its id was {old} and is {new})" for topic, (old, new) in changed.items())
            self.report_loss(
                f"Deleted and created again: topic {topics}. The checkpoint's offsets are those of the old topic. With "
                "failOnDataLoss=false the stream goes on at the earliest offset of the new one. If that has the same "
                "records at the same offsets, such as a copy that was restored, start the query with a new checkpoint "
                "and a new output, and with the last offset of the old checkpoint as 'startingOffsets'"
            )

    def _list(self, now: float, known: Iterable[TopicPartition] = ()) -> None:
        self._partitions = self.lookup.partitions(missing=True, known=known)
        self._listed_at = now if self._partitions else None

    def _target_of(self, begins: Offsets) -> Offsets:
        """Return the fixed end of the stream, checked against the present ends."""
        now = self._latest
        if self._target is None:
            self._target, self._target_ids = now, self._ids
            return now
        recreated = _changed(self._target_ids, self._ids)
        moved = {tp for tp in self._target if tp.topic in recreated or (tp in now and now[tp] < self._target[tp])}
        changed = sorted((set(now) ^ set(self._target)) | moved)
        if changed:
            msg = (
                f"Trigger.AvailableNow: {', '.join(map(str, changed))} changed while the query ran (partitions added "
                "or deleted, or offsets that went back). This could be transient: restart your query"
            )
            raise DataLossError(msg)
        return {tp: max(end, begins.get(tp, end)) for tp, end in self._target.items()}

    def _with_new_partitions(self, begins: Offsets, ends: Offsets) -> Offsets:
        """Add the partitions that are new: they start at their earliest record, which must be the first."""
        new = sorted(set(ends) - set(begins))
        if not new:
            return begins
        earliest = self.lookup.earliest(new)
        late = [f"{tp} at {earliest[tp]}" for tp in new if earliest[tp] != 0]
        if late:
            self.report_loss(
                f"Added partitions do not start from offset 0: {', '.join(late)}. Some data may be missed."
            )
        return {
            **begins,
            **{tp: min(earliest[tp], ends[tp]) for tp in new},
        }

    def _checked(self, begins: Offsets, ends: Offsets) -> Offsets:
        """Report what was lost since `begins`; return the ends."""
        self._report_gone(begins, ends)
        back = sorted(tp for tp in ends if ends[tp] < begins[tp])
        if back:
            # A follower may not know the newest records yet (KAFKA-7703): look again before believing it.
            ends = {**ends, **self.lookup.latest(back)}
        for tp in back:
            if ends[tp] < begins[tp]:
                self._report_went_back(tp, begins[tp], ends[tp])
        return ends

    def _report_gone(self, begins: Offsets, ends: Offsets) -> None:
        gone = sorted(set(begins) - set(ends))
        if gone:
            self.report_loss(f"Partitions {', '.join(map(str, gone))} have been deleted.")

    def _report_went_back(self, tp: TopicPartition, begin: int, end: int) -> None:
        self.report_loss(
            f"Partition {tp}'s offset was changed from {begin} to {end}: the topic may have been deleted "
            "and created again."
        )

    def _must_wait(self, backlog: int, min_offsets: int) -> bool:
        now = self.clock()
        if self._waiting_since is None:
            self._waiting_since = now
        if backlog >= min_offsets or (backlog > 0 and now - self._waiting_since >= self.limits.max_delay):
            self._waiting_since = now
            return False
        return True


def offsets_of(offset: OffsetJSON) -> Offsets:
    """Return an offset of Spark's checkpoint by topic partition, without what a later release may add to it.

    Raises:
        CheckpointError: it is none.
    """
    if isinstance(offset, dict):  # it may be other JSON: `from_json_dict` says so
        offset = {name: value for name, value in offset.items() if not name.startswith("$")}
    return from_json_dict(offset)


def _ids_of(offset: OffsetJSON) -> dict[str, str]:
    """Return the topic ids of an offset, by topic; none for an offset of an earlier release."""
    return ids_from_json(offset.get(IDS, {}))


def _with_ids(offsets: Offsets, ids: Mapping[str, str]) -> OffsetJSON:
    """Return offsets as a checkpoint has them, with the ids of their topics as far as they are known."""
    known = {topic: ids[topic] for topic in sorted(_topics(offsets)) if topic in ids}
    return {**({IDS: known} if known else {}), **to_json_dict(offsets)}


def _changed(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the topics that have another id now, with both ids."""
    return {topic: (old, now[topic]) for topic, old in sorted(before.items()) if topic in now and now[topic] != old}


def _topics(topic_partitions: Iterable[TopicPartition]) -> set[str]:
    return {topic_partition.topic for topic_partition in topic_partitions}
