"""Plans a stream of topics: where the next micro-batch ends, and which ranges lie between two offsets.

Offsets in a checkpoint may mean other records by now, which two numbers show. A recreated topic has another id: Kafka
never reuses one. And a partition's leader has an epoch, which rises with each election and is in each record batch. If
the leader of epoch 5 says "the log ends at 42", no record before offset 42 has a later epoch. If a later leader then
says "epoch 5 ends at 40", its log has other records at offsets 40 and 41, or none: those read there are lost. Only an
unclean election, of a replica that lacks records, causes that. Kafka's own consumer detects truncation in the same way.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from ticdc_source.errors import CheckpointError, DataLossError
from ticdc_source.options.offsets import OffsetRange, from_json_dict, shares, to_json_dict
from ticdc_source.options.topics import TopicPartition, listed
from ticdc_source.sources.kafka.lookup import LOOKS_UNTIL_RECREATED, KafkaCluster
from ticdc_source.sources.record_source import OffsetMembers
from ticdc_source.sources.stream_offsets import (
    EPOCHS,
    IDS,
    INITIAL,
    SNAPSHOT,
    MinimumWait,
    OffsetJSON,
    Offsets,
    StreamLimits,
    end_offset,
    initial_offset,
    offsets_of,
    start_offsets,
    topic_ids_of,
)

_log = logging.getLogger(__name__)

# The maximum age of the list of topics and partitions. New ones start at their first record, so nothing is missed.
_LIST_EVERY_S = 10.0
# A broker may lag behind the others. Listed partitions have no offsets after so many looks.
_PAUSE_S = 0.5
_LOOKS_UNTIL_WITHOUT_OFFSETS = 10


class _TopicIds:
    """The current and former ids of a stream's topics.

    A lagging broker may return a former id, so `TopicPlanner` looks several times before it accepts a change.

    Attributes:
        current: by topic, as of the last look-up, if brokers report them.
        retired: ids of deleted topics.
        unwritten: by topic, ids of topics whose checkpointed offset has none.
        target: by topic, ids at the fixed end of a stream.
    """

    def __init__(self) -> None:
        self.current: dict[str, str] = {}
        self.retired: set[str] = set()
        self.unwritten: dict[str, str] = {}
        self.target: dict[str, str] = {}
        self._accepted: dict[str, str] = {}  # the last accepted id of each topic, deleted topics included

    def learn(self, answer: Mapping[str, str], topics: Iterable[str]) -> None:
        self.current = {}
        for topic in topics:
            topic_id = answer.get(topic)
            if topic_id in self.retired:  # from a lagging broker
                topic_id = self._accepted.get(topic)
            if topic_id is not None and topic_id not in self.retired:
                self.current[topic] = topic_id

    def of_offset(self, written: Mapping[str, str], topics: Collection[str]) -> dict[str, str]:
        """The ids of an offset: those written in it, else those that this process saw."""
        return {**{topic: each for topic, each in self.unwritten.items() if topic in topics}, **written}

    def is_explained(self, ids: Mapping[str, str]) -> bool:
        """Whether each id is current or retired, or its topic has no current id."""
        return all(old in self.retired for old, _ in _changed(ids, self.current).values())

    def accept(self, ids: Mapping[str, str]) -> Mapping[str, tuple[str, str]]:
        """Accept the current ids after these; return changed ids by topic, as (old, new)."""
        changed = _changed(ids, self.current)
        replaced = _changed(self._accepted, self.current)  # also of a topic that was away in between
        self.retired.update(old for old, _ in [*changed.values(), *replaced.values()])
        self._accepted.update(self.current)
        return changed


def _changed(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The changed ids by topic, as (old, new)."""
    return {topic: (old, now[topic]) for topic, old in sorted(before.items()) if topic in now and now[topic] != old}


class _LeaderEpochs:
    """The leaders' epochs as of the last look-up (`current`), and where earlier ones end in these leaders' logs.

    `ends_of` asks each partition's leader where an epoch ends in its log; -1 if unknown to it.
    """

    def __init__(self, ends_of: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]]) -> None:
        self._ends_of = ends_of
        self.current: Offsets = {}
        # Where epochs end in the logs of the current leaders. This never changes, so no leader is asked twice.
        self._ends: dict[tuple[TopicPartition, int], int] = {}

    def learn(self, answer: Mapping[TopicPartition, int], topic_partitions: Iterable[TopicPartition]) -> None:
        before = self.current
        self.current = {tp: answer[tp] for tp in topic_partitions if tp in answer}
        self._ends = {key: end for key, end in self._ends.items() if self.current.get(key[0]) == before.get(key[0])}

    def truncated(self, offsets: Offsets, epochs: Offsets) -> Offsets:
        """The partitions whose logs were truncated, with the first lost offset.

        Brokers are asked only about partitions with an election since.

        Args:
            offsets: an offset that each partition's log had reached.
            epochs: the known epochs of the leaders at that time.
        """
        elected = {tp: epochs[tp] for tp in offsets if tp in epochs and self.current.get(tp, -1) > epochs[tp]}
        to_ask = {tp: epoch for tp, epoch in elected.items() if (tp, epoch) not in self._ends}
        if to_ask:
            answer = self._ends_of(to_ask)
            self._ends.update({(tp, epoch): answer.get(tp, -1) for tp, epoch in to_ask.items()})
            _log.debug("New leaders since epochs %s: those end at %s in their logs", to_ask, answer)
        ends = {tp: self._ends[tp, epoch] for tp, epoch in elected.items()}
        return {tp: end for tp, end in ends.items() if 0 <= end < offsets[tp]}


@dataclass
class TopicPlanner:
    """The `StreamPlanner` of topics; `report_loss` raises unless `failOnDataLoss` is off."""

    lookup: KafkaCluster
    limits: StreamLimits
    report_loss: Callable[[str], None]
    members: OffsetMembers | None = field(default=None, kw_only=True)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _start: Offsets | None = None
    _latest: Offsets = field(default_factory=dict)
    _ids: _TopicIds = field(default_factory=_TopicIds)
    _epochs: _LeaderEpochs = field(init=False)
    _partitions: list[TopicPartition] = field(default_factory=list)
    _looked_at: float | None = None
    _listed_at: float | None = None
    _idle: bool = False
    _stops_at_target: bool = False
    _target: Offsets | None = None
    _minimum: MinimumWait = field(default_factory=MinimumWait)

    def __post_init__(self) -> None:
        """Look up ends of epochs at the same brokers."""
        self._epochs = _LeaderEpochs(self.lookup.ends_of_epochs)

    def initial(self) -> OffsetJSON:
        if self._start is None:
            self._start = self.lookup.starts(self.lookup.partitions(missing=True))
        return initial_offset(self._start)

    def stop_at_latest(self) -> None:
        self._stops_at_target = True

    def newest(self) -> OffsetJSON:
        return to_json_dict(self._look())

    def behind(self, offset_range: OffsetRange) -> int:
        return max(0, self._latest.get(offset_range.topic_partition, offset_range.end) - offset_range.end)

    def next(self, start: OffsetJSON, max_offsets: int | None = None, min_offsets: int | None = None) -> OffsetJSON:
        begins = started = offsets_of(start)
        _refuse_snapshot(start)
        ids = self._ids.of_offset(topic_ids_of(start), _topics(begins))
        epochs = _epochs_of(start)
        first = bool(start.get(INITIAL))
        self._look(begins)
        recreated = self._recreated(ids)
        unwritten, known = _topics(begins) - topic_ids_of(start).keys(), {**self._ids.current, **ids}
        self._ids.unwritten = {topic: known[topic] for topic in unwritten if topic in known}
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
            granted = shares(behind, max_offsets) if max_offsets else dict.fromkeys(behind, 0)
            ends = {tp: begins[tp] + granted[tp] if behind[tp] > 0 else ends[tp] for tp in ends}
        if not first and not recreated and not truncated and ends == started:
            return dict(start)
        more = {} if self.members is None else self.members(start, begins, self._latest, recreated)
        return end_offset(start, {**more, **self._written(ends, {**ids, **self._ids.current})})

    def ranges(self, start: OffsetJSON, end: OffsetJSON) -> list[OffsetRange]:
        ends, begins = offsets_of(end), start_offsets(start, end)
        _refuse_snapshot(end)
        planned, planned_epochs = topic_ids_of(end), _epochs_of(end)
        started = self._ids.of_offset(topic_ids_of(start), _topics(begins))
        carried = {topic: started[topic] for topic in sorted(_topics(ends) - planned.keys()) if topic in started}
        self._ids.unwritten.update(carried)
        if (planned or carried or planned_epochs) and self._looked_at is None:  # planned before a restart
            self._look(ends)
        # Topics recreated since the batch was planned: its records are gone, and the next batch reads the new topic.
        gone = self._recreated({**carried, **planned})
        ends = {tp: offset for tp, offset in ends.items() if tp.topic not in gone}
        begins = {tp: offset for tp, offset in begins.items() if tp.topic not in gone}
        recreated = {topic: ids for topic, ids in _changed(started, planned).items() if topic not in gone}
        self._ids.retired.update(old for old, _ in recreated.values())
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
        """Return the ends of all topic partitions; look them up, with topic ids, if the last answer is too old.

        Spark asks about 90 times a second while a stream is idle. `checkpointed` are included in the first listing.
        """
        now = self.clock()
        interval = self.limits.min_interval * (2.5 if self._idle else 1)
        if self._looked_at is None or now - self._looked_at >= interval:
            if self._listed_at is None or now - self._listed_at >= _LIST_EVERY_S:
                self._list(now, () if self._partitions else checkpointed)
            ends = self._ends_of_listed(now)
            self._idle = ends == self._latest
            self._latest = ends
            self._ids.learn(self.lookup.topic_ids(), _topics(ends))
            self._epochs.learn(self.lookup.leader_epochs(), ends)
            self._looked_at = self.clock()
        return self._latest

    def _ends_of_listed(self, now: float) -> Offsets:
        """The ends of the listed partitions, without deleted ones: the caller decides whether that is a loss."""
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

    def _recreated(self, ids: Mapping[str, str]) -> Mapping[str, tuple[str, str]]:
        """Report and return changed ids by topic, as (old, new)."""
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
                "failOnDataLoss=false the stream continues at the earliest offset of the new one. If that has the same "
                "records at the same offsets, such as a copy that was restored, start the query with a new checkpoint "
                "and a new output, and with the last offset of the old checkpoint as 'startingOffsets'"
            )

    def _truncated(self, offsets: Offsets, epochs: Offsets) -> Offsets:
        """Report and return the partitions that lost offsets, with the first lost one."""
        truncated = self._truncated_of_existing(offsets, epochs)
        if truncated:
            texts = (
                f"{tp} at offset {truncated[tp]}, where epoch {epochs[tp]} ends in the log of the leader of epoch "
                f"{self._epochs.current[tp]}, and offset {offsets[tp]} had been reached"
                for tp in sorted(truncated)
            )
            self.report_loss(
                f"Truncated by the election of a leader that lacked records: {'; '.join(texts)}. From there "
                "on, offsets now belong to other records. With failOnDataLoss=false the stream continues where the log "
                "was truncated. Such elections need unclean.leader.election.enable=true, or a disk that lost records"
            )
        return truncated

    def _truncated_of_existing(self, offsets: Offsets, epochs: Offsets) -> Offsets:
        """As `_LeaderEpochs.truncated`; partitions deleted meanwhile are dropped from `_latest`."""
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
        """The fixed end of the stream, checked against the current ends."""
        now = self._latest
        if self._target is None:
            self._target = now
            self._ids.target = dict(self._ids.current)
            return now
        recreated = _changed(self._ids.target, self._ids.current)
        moved = {tp for tp in self._target if tp.topic in recreated or (tp in now and now[tp] < self._target[tp])}
        changed = sorted((set(now) ^ set(self._target)) | moved)
        if changed:
            raise DataLossError(
                f"Trigger.AvailableNow: {listed(changed)} changed while the query ran (partitions added "
                "or deleted, or offsets that went back). This could be transient: restart your query"
            )
        return {tp: max(end, begins.get(tp, end)) for tp, end in self._target.items()}

    def _with_new_partitions(self, begins: Offsets, ends: Offsets) -> Offsets:
        """Add new partitions from their earliest record on; report those whose earliest offset is not 0."""
        new = sorted(set(ends) - set(begins))
        if not new:
            return begins
        earliest = self.lookup.earliest(new)
        late = [f"{tp} at {earliest[tp]}" for tp in new if earliest[tp] != 0]
        if late:
            self.report_loss(f"Added partitions do not start from offset 0: {listed(late)}. Some data may be missed.")
        return {**begins, **{tp: min(earliest[tp], ends[tp]) for tp in new}}

    def _checked(self, begins: Offsets, ends: Offsets) -> Offsets:
        """Report data loss since `begins`; return the ends, looked up again if they seem to have gone back."""
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
        """Ends as checkpoint JSON, with known topic ids and leader epochs."""
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


def _refuse_snapshot(offset: OffsetJSON) -> None:
    """Refuse an offset of a stream that began with a snapshot: rows may be missing, and its TSO still matters."""
    if SNAPSHOT in offset:
        raise CheckpointError(
            "The checkpoint is of a stream with snapshot=initial: keep the option, even after all rows are read"
        )


def _epochs_of(offset: OffsetJSON) -> Offsets:
    """The leader epochs of an offset; offsets of earlier releases have none."""
    return from_json_dict(offset.get(EPOCHS, {}))


def _topics(topic_partitions: Iterable[TopicPartition]) -> set[str]:
    return {topic_partition.topic for topic_partition in topic_partitions}
