"""Plans a stream of topics: where the next micro-batch ends, and which ranges lie between two offsets."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ticdc_source.errors import DataLossError
from ticdc_source.options.offsets import OffsetRange, from_json_dict, shares, to_json_dict
from ticdc_source.options.topics import TopicPartition, listed
from ticdc_source.sources.kafka.leader_epochs import LeaderEpochs
from ticdc_source.sources.kafka.lookup import LOOKS_UNTIL_RECREATED
from ticdc_source.sources.kafka.topic_ids import TopicIds, changed_ids
from ticdc_source.sources.record_source import OffsetMembers
from ticdc_source.sources.stream_offsets import (
    EPOCHS,
    IDS,
    INITIAL,
    START,
    MinimumWait,
    OffsetJSON,
    Offsets,
    StreamLimits,
    offsets_of,
    start_offsets,
    topic_ids_of,
)

__all__ = ["Lookup", "TopicPlanner"]

_log = logging.getLogger(__name__)

# The maximum age of the list of topics and partitions. New ones start at their first record, so none is missed.
_LIST_EVERY_S = 10.0
# A broker may lag behind the others. Listed partitions have no offsets after so many looks.
_PAUSE_S = 0.5
_LOOKS_UNTIL_WITHOUT_OFFSETS = 10


class Lookup(Protocol):
    """The look-ups that a stream needs from the brokers; `sources.kafka.KafkaCluster` implements them."""

    def partitions(self, *, missing: bool = False, known: Iterable[TopicPartition] = ()) -> list[TopicPartition]:
        """Return the topic partitions that exist; one that was known is gone only after several looks."""

    def starts(self, topic_partitions: Iterable[TopicPartition]) -> Offsets:
        """Return where a new stream starts in each partition."""

    def earliest(self, topic_partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the log start offset of each partition."""

    def latest(self, topic_partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the end offset of each partition."""

    def topic_ids(self) -> Mapping[str, str]:
        """Return the topic IDs from the last look-up, for the topics that have one."""

    def leader_epochs(self) -> Mapping[TopicPartition, int]:
        """Return the epochs of the leaders that answered the last look-ups of end offsets, where they tell them."""

    def ends_of_epochs(self, epochs: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return where a leader epoch of each partition ends in its leader's log; -1 where that is not known."""


@dataclass
class TopicPlanner:
    """The `StreamPlanner` of topics.

    Attributes:
        lookup: the brokers.
        limits: how long to wait.
        report_loss: called with a reason if records or partitions are gone; it raises unless `failOnDataLoss` is off.
        members: returns more members of the end of a micro-batch; see `OffsetMembers`.
        clock: a monotonic clock, in seconds.
        sleep: waits for so many seconds.
    """

    lookup: Lookup
    limits: StreamLimits
    report_loss: Callable[[str], None]
    members: OffsetMembers | None = field(default=None, kw_only=True)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _start: Offsets | None = None
    _latest: Offsets = field(default_factory=dict)
    _ids: TopicIds = field(default_factory=TopicIds)
    _epochs: LeaderEpochs = field(init=False)
    _has_told_of_ids: bool = False
    _partitions: list[TopicPartition] = field(default_factory=list)
    _looked_at: float | None = None
    _listed_at: float | None = None
    _idle: bool = False
    _stops_at_target: bool = False
    _target: Offsets | None = None
    _minimum: MinimumWait = field(default_factory=MinimumWait)

    def __post_init__(self) -> None:
        """Ask the same brokers for the ends of epochs."""
        self._epochs = LeaderEpochs(self.lookup.ends_of_epochs)

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

    def behind(self, offset_range: OffsetRange) -> int:
        """Return how many offsets the last look-up has seen after the end of a range."""
        return max(0, self._latest.get(offset_range.topic_partition, offset_range.end) - offset_range.end)

    def next(self, start: OffsetJSON, max_offsets: int | None = None, min_offsets: int | None = None) -> OffsetJSON:
        """Return where the micro-batch that begins at `start` ends; `start` itself if there is nothing to do.

        Args:
            start: the offset of the previous batch, as `initial()` or this method returned it (through JSON).
            max_offsets: the maximum number of offsets to read; None for all.
            min_offsets: the number of offsets to wait for; None for none.

        Raises:
            DataLossError: partitions are gone, or their logs were truncated, or a topic was deleted and created again.
        """
        begins = started = offsets_of(start)
        ids = self._ids.ids_of_offset(topic_ids_of(start), _topics(begins))
        epochs = _epochs_of(start)
        first = bool(start.get(INITIAL))
        self._look(begins)
        recreated = self._recreated(ids)
        self._ids.keep_unwritten(ids, _topics(begins) - topic_ids_of(start).keys())
        # Partitions of a recreated topic count as added: they start at their earliest record.
        begins = {tp: offset for tp, offset in begins.items() if tp.topic not in recreated}
        truncated = self._truncated(begins, epochs)
        begins.update(truncated)  # the offsets from there on are those of other records
        ends = self._target_of(begins) if self._stops_at_target else self._latest
        # Data loss is reported at once, without waiting for the minimum.
        intact = not recreated and not truncated and all(tp in ends and ends[tp] >= begins[tp] for tp in begins)
        if min_offsets is not None and intact and not first and not self._stops_at_target:
            new = sum(ends[tp] - begins.get(tp, 0) for tp in ends)
            if self._minimum.must_wait(new, min_offsets, self.limits.max_delay, self.clock()):
                return dict(start)
        begins = self._with_new_partitions(begins, ends)
        ends = self._checked(begins, ends)
        behind = {tp: ends[tp] - begins[tp] for tp in ends}
        backlog = sum(size for size in behind.values() if size > 0)
        if max_offsets is not None and backlog > max_offsets:
            granted = shares(behind, max_offsets)
            ends = {tp: begins[tp] + granted[tp] if behind[tp] > 0 else ends[tp] for tp in ends}
        if not first and not recreated and not truncated and ends == started:
            return dict(start)
        more = {} if self.members is None else self.members(start, begins, self._latest, recreated)
        end = {**more, **self._written(ends, {**ids, **self._ids.current})}
        return {START: {name: start[name] for name in start if name != INITIAL}, **end} if first else end

    def ranges(self, start: OffsetJSON, end: OffsetJSON) -> list[OffsetRange]:
        """Return the offset ranges between two offsets, by topic and partition, without empty ones.

        Raises:
            DataLossError: partitions are gone, or their logs were truncated, or a topic was deleted and created again.
        """
        ends, begins = offsets_of(end), start_offsets(start, end)
        planned, planned_epochs = topic_ids_of(end), _epochs_of(end)
        started = self._ids.ids_of_offset(topic_ids_of(start), _topics(begins))
        carried = {topic: started[topic] for topic in sorted(_topics(ends) - planned.keys()) if topic in started}
        self._ids.add_unwritten(carried)
        if (planned or carried or planned_epochs) and self._looked_at is None:  # planned before a restart
            self._look(ends)
        # Topics recreated since the batch was planned: its records are gone, and the next batch reads the new topic.
        gone = self._recreated({**carried, **planned})
        ends = {tp: offset for tp, offset in ends.items() if tp.topic not in gone}
        begins = {tp: offset for tp, offset in begins.items() if tp.topic not in gone}
        recreated = {topic: ids for topic, ids in changed_ids(started, planned).items() if topic not in gone}
        self._ids.retire(old for old, _ in recreated.values())
        self._report_recreated(recreated)
        begins = {tp: offset for tp, offset in begins.items() if tp.topic not in recreated}
        looked = self._latest
        begins.update(self._truncated(begins, _epochs_of(start)))
        # Logs truncated since the batch was planned: it reads up to there, and the next batch reads on from there.
        truncated = self._truncated(ends, planned_epochs)
        ends.update({tp: max(offset, begins.get(tp, 0)) for tp, offset in truncated.items()})
        if self._latest is not looked:  # a partition was deleted meanwhile
            ends = {tp: offset for tp, offset in ends.items() if tp in self._latest}
        begins = self._with_new_partitions(begins, ends)
        self._report_gone(begins, ends)
        self._report_went_back(begins, ends)
        return [OffsetRange(*tp, begins[tp], ends[tp]) for tp in sorted(ends) if ends[tp] > begins[tp]]

    def _look(self, checkpointed: Iterable[TopicPartition] = ()) -> Offsets:
        """Return the ends of all topic partitions; look them up if the last answer is too old.

        Topic IDs come with the same look-up. Spark asks some 90 times a second while a stream is idle.

        Args:
            checkpointed: partitions in the checkpoint, which a process looks for when it first lists partitions.
        """
        now = self.clock()
        interval = self.limits.min_interval * (2.5 if self._idle else 1)
        if self._looked_at is None or now - self._looked_at >= interval:
            if self._listed_at is None or now - self._listed_at >= _LIST_EVERY_S:
                self._list(now, () if self._partitions else checkpointed)
            ends = self._ends_of_listed(now)
            self._idle = ends == self._latest
            self._latest = ends
            self._learn_ids()
            self._epochs.learn(self.lookup.leader_epochs(), ends)
            self._looked_at = self.clock()
        return self._latest

    def _ends_of_listed(self, now: float) -> Offsets:
        """Return the ends of the listed partitions, and drop deleted ones from the list: the caller judges the loss."""
        for look in range(_LOOKS_UNTIL_WITHOUT_OFFSETS):
            try:
                return self.lookup.latest(self._partitions) if self._partitions else {}
            except DataLossError:
                if look:  # the list has a partition that the look-up of offsets does not know
                    self.sleep(_PAUSE_S)
                self._list(now)
        ends: Offsets = {}
        for topic in sorted(_topics(self._partitions)):
            try:
                ends.update(self.lookup.latest([tp for tp in self._partitions if tp.topic == topic]))
            except DataLossError:
                _log.warning("Topic %s is listed, but brokers return no offsets for it: it counts as deleted", topic)
        self._partitions = sorted(ends)
        return ends

    def _learn_ids(self) -> None:
        topics = _topics(self._latest)
        self._ids.learn(self.lookup.topic_ids(), topics)
        if len(self._ids.current) < len(topics) and not self._has_told_of_ids:
            self._has_told_of_ids = True
            _log.debug("The brokers or the client library tell no topic ids: a recreated topic is known by its offsets")

    def _recreated(self, ids: Mapping[str, str]) -> Mapping[str, tuple[str, str]]:
        """Return the topics that now have other ids, with the old and the new id, and report them."""
        for _ in range(LOOKS_UNTIL_RECREATED - 1):
            if self._ids.is_explained(ids):
                break
            self.sleep(_PAUSE_S)  # a broker that lags behind may have answered with the former ID
            self._looked_at = None
            self._look()
        changed = self._ids.accept(ids)
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

    def _truncated(self, offsets: Offsets, epochs: Offsets) -> Offsets:
        """Return the partitions that lack offsets which they had, with the first that they lack, and report them."""
        truncated = self._truncated_of_existing(offsets, epochs)
        if truncated:
            texts = (
                f"{tp} at offset {truncated[tp]}, where epoch {epochs[tp]} ends in the log of the leader of epoch "
                f"{self._epochs.current[tp]}, and offset {offsets[tp]} had been reached"
                for tp in sorted(truncated)
            )
            self.report_loss(
                f"Truncated by the election of a leader that lacked records: {'; '.join(texts)}. The offsets from "
                "there on are those of other records now. With failOnDataLoss=false the stream goes on where the log "
                "was truncated. Such elections need unclean.leader.election.enable=true, or a disk that lost records"
            )
        return truncated

    def _truncated_of_existing(self, offsets: Offsets, epochs: Offsets) -> Offsets:
        """Return what `LeaderEpochs.truncated` does, and drop partitions that are deleted meanwhile from `_latest`."""
        for _ in range(_LOOKS_UNTIL_WITHOUT_OFFSETS - 1):
            try:
                return self._epochs.truncated(offsets, epochs)
            except DataLossError:  # the caller judges the loss
                self.sleep(_PAUSE_S)  # a broker that lags behind may still list the partition
                self._looked_at = self._listed_at = None
                self._look()
                offsets = {tp: offset for tp, offset in offsets.items() if tp in self._latest}
        return self._epochs.truncated(offsets, epochs)

    def _list(self, now: float, checkpointed: Iterable[TopicPartition] = ()) -> None:
        self._partitions = self.lookup.partitions(missing=True, known=checkpointed)
        self._listed_at = now if self._partitions else None

    def _target_of(self, begins: Offsets) -> Offsets:
        """Return the fixed end of the stream, checked against the current ends."""
        now = self._latest
        if self._target is None:
            self._target = now
            self._ids.record_target()
            return now
        recreated = self._ids.changed_since_target()
        moved = {tp for tp in self._target if tp.topic in recreated or (tp in now and now[tp] < self._target[tp])}
        changed = sorted((set(now) ^ set(self._target)) | moved)
        if changed:
            msg = (
                f"Trigger.AvailableNow: {listed(changed)} changed while the query ran (partitions added "
                "or deleted, or offsets that went back). This could be transient: restart your query"
            )
            raise DataLossError(msg)
        return {tp: max(end, begins.get(tp, end)) for tp, end in self._target.items()}

    def _with_new_partitions(self, begins: Offsets, ends: Offsets) -> Offsets:
        """Add new partitions, which start at their earliest record; report those whose earliest offset is not 0."""
        new = sorted(set(ends) - set(begins))
        if not new:
            return begins
        earliest = self.lookup.earliest(new)
        late = [f"{tp} at {earliest[tp]}" for tp in new if earliest[tp] != 0]
        if late:
            self.report_loss(f"Added partitions do not start from offset 0: {listed(late)}. Some data may be missed.")
        return {**begins, **{tp: min(earliest[tp], ends[tp]) for tp in new}}

    def _checked(self, begins: Offsets, ends: Offsets) -> Offsets:
        """Report data loss since `begins`; return the ends, looked up again where they seem to have gone back."""
        self._report_gone(begins, ends)
        back = sorted(tp for tp in ends if ends[tp] < begins[tp])
        if back:
            # A follower may not know the newest records yet (KAFKA-7703): look again before believing it.
            ends = {**ends, **self.lookup.latest(back)}
            # A new connection knows only the epochs of those that were looked up again.
            others = {tp: epoch for tp, epoch in self._epochs.current.items() if tp not in back}
            self._epochs.learn({**others, **self.lookup.leader_epochs()}, self._latest)
        self._report_went_back(begins, ends)
        return ends

    def _written(self, ends: Offsets, ids: Mapping[str, str]) -> OffsetJSON:
        """Return ends as checkpoint JSON, with the ids of their topics and the epochs of their leaders, where known."""
        by_topic = {topic: ids[topic] for topic in sorted(_topics(ends)) if topic in ids}
        epochs = to_json_dict({tp: epoch for tp, epoch in self._epochs.current.items() if tp in ends})
        return {**({IDS: by_topic} if by_topic else {}), **({EPOCHS: epochs} if epochs else {}), **to_json_dict(ends)}

    def _report_gone(self, begins: Offsets, ends: Offsets) -> None:
        gone = sorted(set(begins) - set(ends))
        if gone:
            self.report_loss(f"Partitions {', '.join(map(str, gone))} have been deleted.")

    def _report_went_back(self, begins: Offsets, ends: Offsets) -> None:
        for tp in sorted(tp for tp in ends if ends[tp] < begins[tp]):
            self.report_loss(
                f"Partition {tp}'s offset was changed from {begins[tp]} to {ends[tp]}: the topic may have been deleted "
                "and created again."
            )


def _epochs_of(offset: OffsetJSON) -> Offsets:
    """Return the leader epochs of an offset; none for an offset of an earlier release."""
    return from_json_dict(offset.get(EPOCHS, {}))


def _topics(topic_partitions: Iterable[TopicPartition]) -> set[str]:
    return {topic_partition.topic for topic_partition in topic_partitions}
