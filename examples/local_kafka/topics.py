"""Topics to write to: create them, delete them, and fill them with exact records."""

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Literal, TypeAlias

from kafka import KafkaAdminClient, KafkaProducer, Serializer
from kafka.errors import KafkaTimeoutError, UnknownTopicOrPartitionError

Record: TypeAlias = tuple[int, bytes | None, bytes | None, Sequence[tuple[str, bytes]], int | None]
"""Partition, key, value, headers, and timestamp in milliseconds (None: now)."""

Compression: TypeAlias = Literal["gzip", "snappy", "lz4", "zstd"]

_MAX_REQUEST_BYTES = 20 * 2**20  # as the broker's message.max.bytes
_BATCH_BYTES = 512 * 2**10
_SLICE_RECORDS = 10_000  # the producer keeps in memory what it has not sent, so it gets no more than this at a time,
_SLICE_BYTES = 32 * 2**20  # or this
_NULL = object()


class _NullSerializer(Serializer):  # type: ignore[misc]  # kafka-python has no types
    """Turns a stand-in into None: `send()` refuses a record without key and value, which Kafka accepts."""

    def serialize(self, _topic: str, _headers: Sequence[tuple[str, bytes]], data: object) -> bytes | None:
        return data if isinstance(data, bytes) else None


def create_topic(
    bootstrap: str, name: str, partitions: int = 1, config: Mapping[str, object] | None = None, *, replicas: int = 1
) -> None:
    """Create a topic, and return when each of its partitions has a leader."""
    settings = {key: str(value) for key, value in (config or {}).items()}
    with _admin(bootstrap) as admin:
        admin.create_topics({name: {"num_partitions": partitions, "replication_factor": replicas, "configs": settings}})
        admin.wait_for_topics([name])


def delete_topic(bootstrap: str, name: str, seconds: float = 10.0) -> None:
    """Delete a topic if it exists, and return when the broker no longer lists it."""
    deadline = time.monotonic() + seconds
    with _admin(bootstrap) as admin:
        try:
            admin.delete_topics([name])
        except UnknownTopicOrPartitionError:
            return
        while name in admin.list_topics():
            if time.monotonic() > deadline:
                raise KafkaTimeoutError(f"topic {name} is still listed {seconds} s after its deletion")
            time.sleep(0.02)


def produce(
    bootstrap: str,
    topic: str,
    records: Iterable[Record],
    *,
    compression_type: Compression | None = None,
    transaction: Literal["commit", "abort"] | None = None,
    batch_bytes: int = _BATCH_BYTES,
) -> list[int]:
    """Write records, those of each partition in the given order, and return when the broker has them all.

    Args:
        bootstrap: The broker's address.
        topic: The topic; if it does not exist, the broker creates it.
        records: What to write.
        compression_type: How to compress the record batches. All but gzip need a library of their own.
        transaction: Write all records in one transaction and end it so, which takes one more offset per partition.
        batch_bytes: How large a record batch is at most, in bytes; a larger record gets a batch of its own.

    Returns:
        The offset of each record, in the given order.
    """
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        key_serializer=_NullSerializer(),
        value_serializer=_NullSerializer(),
        compression_type=compression_type,
        transactional_id=f"local-{uuid.uuid4()}" if transaction else None,
        batch_size=batch_bytes,
        linger_ms=100,  # a slice is flushed at its end: until then, full batches only
        max_request_size=_MAX_REQUEST_BYTES,
        metrics_enabled=False,
    )
    offsets: list[int] = []
    with closing(producer):
        if transaction:
            producer.init_transactions()
            producer.begin_transaction()
        for slice_ in _slices(records):
            futures = [
                producer.send(topic, _or_null(value), _or_null(key), list(headers), partition, timestamp)
                for partition, key, value, headers, timestamp in slice_
            ]
            producer.flush()
            offsets += [future.get(timeout=0).offset for future in futures]
        if transaction == "commit":
            producer.commit_transaction()
        elif transaction == "abort":
            producer.abort_transaction()
    return offsets


def _admin(bootstrap: str) -> closing[Any]:  # kafka-python has no types
    return closing(KafkaAdminClient(bootstrap_servers=bootstrap))


def _or_null(data: bytes | None) -> object:
    return _NULL if data is None else data


def _slices(records: Iterable[Record]) -> Iterator[list[Record]]:
    slice_: list[Record] = []
    size = 0
    for record in records:
        slice_.append(record)
        size += len(record[1] or b"") + len(record[2] or b"")
        if len(slice_) == _SLICE_RECORDS or size >= _SLICE_BYTES:
            yield slice_
            slice_, size = [], 0
    if slice_:
        yield slice_
