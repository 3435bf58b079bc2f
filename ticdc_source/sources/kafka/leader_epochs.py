"""Leader epochs show that a log was truncated, even if it has since grown past the offset that was read.

A partition's leader has a number, its epoch. It rises with each election, and the leader writes it into each record
batch. If the leader of epoch 5 says "the log ends at 42", no record before offset 42 is of a later epoch. If a later
leader then says "epoch 5 ends at 40", its log has other records at offsets 40 and 41, or none: those that were read
there are gone. Only the election of a replica that lacks records, an unclean one, does that. Kafka's own consumer
detects truncation in the same way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from ticdc_source.options.topics import TopicPartition

__all__ = ["LeaderEpochs"]

_log = logging.getLogger(__name__)


class LeaderEpochs:
    """The epochs of the leaders as of the last look-up, and where earlier epochs end in the logs of these leaders.

    Args:
        ends_of: asks the leader of each partition where the given epoch ends in its log; -1 if it does not know.
    """

    def __init__(self, ends_of: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]]) -> None:
        self._ends_of = ends_of
        self._current: dict[TopicPartition, int] = {}
        # Where epochs end in the logs of the current leaders. This never changes, so no leader is asked twice.
        self._ends: dict[tuple[TopicPartition, int], int] = {}

    @property
    def current(self) -> Mapping[TopicPartition, int]:
        """The epochs of the leaders as of the last look-up of ends, as far as they are known."""
        return self._current

    def learn(self, answer: Mapping[TopicPartition, int], topic_partitions: Iterable[TopicPartition]) -> None:
        """Remember the epochs that came with a look-up of ends, and forget what former leaders said.

        Args:
            answer: the epochs, as far as they are known.
            topic_partitions: the topic partitions whose ends were looked up.
        """
        before = self._current
        self._current = {tp: answer[tp] for tp in topic_partitions if tp in answer}
        self._ends = {key: end for key, end in self._ends.items() if self._current.get(key[0]) == before.get(key[0])}

    def truncated(
        self, offsets: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the partitions whose logs were truncated, with the first offset that was lost.

        This asks the brokers only about partitions that have had an election since.

        Args:
            offsets: an offset in each partition that its log had reached.
            epochs: the epochs of the leaders at that time, as far as they are known.
        """
        elected = {tp: epochs[tp] for tp in offsets if tp in epochs and self._current.get(tp, -1) > epochs[tp]}
        to_ask = {tp: epoch for tp, epoch in elected.items() if (tp, epoch) not in self._ends}
        if to_ask:
            answer = self._ends_of(to_ask)
            self._ends.update({(tp, epoch): answer.get(tp, -1) for tp, epoch in to_ask.items()})
            _log.debug("New leaders since epochs %s: those end at %s in their logs", to_ask, answer)
        ends = {tp: self._ends[tp, epoch] for tp, epoch in elected.items()}
        return {tp: end for tp, end in ends.items() if 0 <= end < offsets[tp]}
