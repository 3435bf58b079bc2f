"""Topic IDs: a topic that is deleted and created again has another one, and its offsets refer to other records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

__all__ = ["TopicIds", "changed_ids"]


class TopicIds:
    """The current and former IDs of a stream's topics. Kafka never reuses an ID.

    A lagging broker may return a former ID, so `StreamPlanner` looks several times before it accepts a change:
    `is_explained` says whether none is left to explain, and `accept` records what is new.
    """

    def __init__(self) -> None:
        self._current: dict[str, str] = {}
        self._accepted: dict[str, str] = {}  # the last accepted ID of each topic, deleted topics included
        self._retired: set[str] = set()
        self._not_in_offset: dict[str, str] = {}  # the IDs of topics whose checkpointed offset has no ID
        self._target: dict[str, str] = {}

    @property
    def current(self) -> Mapping[str, str]:
        """The IDs by topic as of the last look-up, where brokers report them."""
        return self._current

    def learn(self, answer: Mapping[str, str], topics: Iterable[str]) -> None:
        """Take the result of a look-up; `topics` are those that exist."""
        ids: dict[str, str] = {}
        for topic in topics:
            topic_id = answer.get(topic)
            if topic_id in self._retired:  # from a lagging broker
                topic_id = self._accepted.get(topic)
            if topic_id is not None and topic_id not in self._retired:
                ids[topic] = topic_id
        self._current = ids

    def ids_of_offset(self, written: Mapping[str, str], topics: Collection[str]) -> dict[str, str]:
        """Return the IDs that belong to an offset: those written in it, else those that this process saw."""
        return {**{topic: each for topic, each in self._not_in_offset.items() if topic in topics}, **written}

    def keep_unwritten(self, ids: Mapping[str, str], topics: Collection[str]) -> None:
        """Remember the IDs of topics whose offset was written without them."""
        self._not_in_offset = {topic: each for topic, each in {**self._current, **ids}.items() if topic in topics}

    def add_unwritten(self, ids: Mapping[str, str]) -> None:
        """Remember more IDs that no offset has."""
        self._not_in_offset.update(ids)

    def is_explained(self, ids: Mapping[str, str]) -> bool:
        """Return whether each ID is current or retired, or its topic has no current ID."""
        return all(old in self._retired for old, _ in changed_ids(ids, self._current).values())

    def accept(self, ids: Mapping[str, str]) -> Mapping[str, tuple[str, str]]:
        """Accept the current IDs; return the topics whose ID changed, with the old and the new one.

        Args:
            ids: the previous IDs.
        """
        changed = changed_ids(ids, self._current)
        replaced = changed_ids(self._accepted, self._current)  # also of a topic that was away in between
        self.retire(old for old, _ in [*changed.values(), *replaced.values()])
        self._accepted.update(self._current)
        return changed

    def retire(self, ids: Iterable[str]) -> None:
        """Mark IDs as retired: their topics were deleted."""
        self._retired.update(ids)

    def record_target(self) -> None:
        """Record the current IDs together with the fixed end of a stream."""
        self._target = dict(self._current)

    def changed_since_target(self) -> Collection[str]:
        """Return the topics whose ID differs from the one at the fixed end."""
        return changed_ids(self._target, self._current)


def changed_ids(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the topics that have another ID now, with both IDs."""
    return {topic: (old, now[topic]) for topic, old in sorted(before.items()) if topic in now and now[topic] != old}
