"""Leader epochs: they tell that a log was truncated, also when it has grown past the offset that was read since.

A partition's leader has a number, its epoch, which rises with each election, and writes it into each record batch. The
leader of epoch 5 that says "the log ends at 42" has written none of these 42 offsets in an epoch after 5. If a later
leader says that epoch 5 ends at 40 in its log, it has written offsets 40 and 41 itself: what was read there is gone.
Only an election of a replica that lacked records (an unclean one) does that. Kafka's own consumer looks in this way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from ticdc_source.options.topics import TopicPartition

__all__ = ["LeaderEpochs"]

_log = logging.getLogger(__name__)


class LeaderEpochs:
    """The epochs of the leaders as of the last look-up, and where earlier epochs end in their logs.

    Args:
        ends_of: asks the leaders where the given epoch of each partition ends in their log; -1 for what they do not
            know.
    """

    def __init__(self, ends_of: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]]) -> None:
        self._ends_of = ends_of
        self._current: dict[TopicPartition, int] = {}
        # Ends in the logs of the current leaders. They do not move: a stream that is idle asks once for each election.
        self._ends: dict[tuple[TopicPartition, int], int] = {}

    @property
    def current(self) -> Mapping[TopicPartition, int]:
        """The epochs of the leaders as of the last look-up of ends, where they tell them."""
        return self._current

    def learn(self, answer: Mapping[TopicPartition, int], topic_partitions: Iterable[TopicPartition]) -> None:
        """Take the epochs that came with a look-up of ends."""
        before = self._current
        self._current = {tp: answer[tp] for tp in topic_partitions if tp in answer}
        self._ends = {key: end for key, end in self._ends.items() if self._current.get(key[0]) == before.get(key[0])}

    def truncated(
        self, offsets: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the partitions that lack offsets which they had, with the first offset that they lack.

        This asks the brokers only about partitions that have had an election since.

        Args:
            offsets: the ends of the logs, or offsets before them, as they were.
            epochs: the epochs of the leaders that said so, as far as they are known.
        """
        elected = {tp: epochs[tp] for tp in offsets if tp in epochs and self._current.get(tp, -1) > epochs[tp]}
        unknown = {tp: epoch for tp, epoch in elected.items() if (tp, epoch) not in self._ends}
        if unknown:
            answer = self._ends_of(unknown)
            self._ends.update({(tp, epoch): answer.get(tp, -1) for tp, epoch in unknown.items()})
            _log.debug("New leaders since epochs %s: those end at %s in their logs", unknown, answer)
        ends = {tp: self._ends[tp, epoch] for tp, epoch in elected.items()}
        return {tp: end for tp, end in ends.items() if 0 <= end < offsets[tp]}
