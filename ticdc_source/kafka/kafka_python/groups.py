"""Consumer groups: the offsets that they have committed. Nothing here joins a group."""

from __future__ import annotations

import time
from collections.abc import Iterable

import kafka.errors
from kafka import TopicPartition as KafkaTopicPartition

from ticdc_source.kafka.kafka_python import library
from ticdc_source.options.topics import TopicPartition

__all__ = ["committed_offsets"]


def committed_offsets(
    consumer: library.Consumer, topic_partitions: Iterable[TopicPartition], timeout_ms: float
) -> dict[TopicPartition, int]:
    """Return the offsets that a consumer's group has committed, without partitions of which it has none.

    Args:
        consumer: a consumer with the group's id.
        topic_partitions: which ones.
        timeout_ms: how long all look-ups may take.

    Raises:
        kafka.errors.KafkaError: the brokers refuse, or do not answer in time.
    """
    deadline = time.monotonic() + timeout_ms / 1000
    found = {}
    for topic_partition in topic_partitions:
        left_ms = (deadline - time.monotonic()) * 1000
        if left_ms <= 0:
            msg = "no answer"
            raise kafka.errors.KafkaTimeoutError(msg)
        offset = consumer.committed(KafkaTopicPartition(*topic_partition), timeout_ms=left_ms)
        if offset is not None and offset >= 0:
            found[topic_partition] = offset
    return found
