"""What the rest of the package asks of Kafka, beside look-ups (`KafkaCluster`): to read records, and to write them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["ClientFacts", "WrittenRecord"]


class ClientFacts(NamedTuple):
    """Which client library reads, for `metricsPath`.

    Attributes:
        client: its name and version; None before the first connection.
        fallback: which of its private parts are not built as expected, so that a slower way is taken; None if all are.
    """

    client: str | None = None
    fallback: str | None = None


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
