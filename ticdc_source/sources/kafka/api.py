"""What the rest of the package asks of Kafka, beside look-ups (`KafkaCluster`): to read records, and to write them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["WrittenRecord"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRecord:
    """A record to write.

    Attributes:
        partition: the partition.
        timestamp: Kafka's timestamp, in milliseconds since the epoch; -1 for the time when it is written.
        key, value: None is Kafka's null.
        headers: names and values.
    """

    partition: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
