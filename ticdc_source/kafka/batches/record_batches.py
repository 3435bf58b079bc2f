"""The record batches of a fetch: where they lie, whether they are whole, and which of them are there for us.

The layout is that of Kafka's protocol guide ("Record Batch", message format v2); kafka-python has the same in
`kafka.record.default_records`, and what is done about transactions in `kafka.consumer.fetcher.PartitionRecords`.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafka.errors import CorruptRecordError
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.legacy_records import LegacyRecordBatch
from kafka.record.util import calc_crc32c

__all__ = ["LOG_APPEND_TIME", "Fetched", "RecordBatch", "record_batches", "visible"]

_V2 = struct.Struct(">qiibIhiqqqhii")
_OVERHEAD = 12  # offset and length, which every format begins with
_LENGTH, _MAGIC, _ATTRIBUTES = 8, 16, 21  # where they are
_SHORTEST = _OVERHEAD + 14  # a message of format v0 without key and value
LOG_APPEND_TIME = 0x08  # of the attributes, as these
_TRANSACTIONAL, _CONTROL = 0x10, 0x20


class RecordBatch(NamedTuple):
    """Where a record batch lies in a fetch, and what its first bytes say.

    Attributes:
        start: where it begins.
        body: where its records begin.
        end: where it ends.
        offset: its first offset; a legacy one's last.
        next_offset: the offset behind it, also where its last records were compacted away.
        leader_epoch: of the leader that wrote it.
        crc: what its checksum should be.
        attributes: codec and flags.
        first_timestamp: what the records' timestamps are counted from.
        max_timestamp: the broker's own time, where that is what the topic keeps.
        producer_id: -1 for none.
        records: how many records it holds.
        is_legacy: whether it is a message of format v0 or v1, of which nothing else is read here.
    """

    start: int
    body: int
    end: int
    offset: int
    next_offset: int
    leader_epoch: int = -1
    crc: int = 0
    attributes: int = 0
    first_timestamp: int = -1
    max_timestamp: int = -1
    producer_id: int = -1
    records: int = 0
    is_legacy: bool = False


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one fetch has brought of a topic partition.

    Attributes:
        topic: the topic.
        partition: the topic partition.
        start: the offset that was asked for.
        data: the record batches, one behind the other; the last may be cut off.
        check_crcs: whether checksums are compared.
        aborted: aborted transactions (`producer_id`, `first_offset`), or None where all records are wanted.
    """

    topic: str
    partition: int
    start: int
    data: bytes
    check_crcs: bool = True
    aborted: Iterable[Any] | None = None


def record_batches(data: bytes) -> tuple[list[RecordBatch], str | None]:
    """Find the record batches of a fetch; the last of them, cut off, is left out.

    Returns:
        the batches, and what is wrong with the first that cannot be one (None where all can).
    """
    found: list[RecordBatch] = []
    size, start = len(data), 0
    while start + _OVERHEAD <= size:
        end = start + _OVERHEAD + int.from_bytes(data[start + _LENGTH : start + _OVERHEAD], "big", signed=True)
        if end > size:
            break
        if end - start < _SHORTEST:
            return found, f"a record batch of {end - start} bytes"
        magic = data[start + _MAGIC]
        body = start + _V2.size
        if magic < 2:  # noqa: PLR2004 (the format's number)
            offset = int.from_bytes(data[start : start + _LENGTH], "big", signed=True)
            found.append(RecordBatch(start, body, end, offset, offset + 1, is_legacy=True))
        elif magic > 2 or body > end:  # noqa: PLR2004
            return found, f"a record batch of {end - start} bytes in message format {magic}"
        else:
            offset, _, epoch, _, crc, flags, last, first_time, max_time, producer, _, _, records = _V2.unpack_from(
                data, start
            )
            found.append(
                RecordBatch(
                    start,
                    body,
                    end,
                    offset,
                    offset + last + 1,
                    epoch,
                    crc,
                    flags,
                    first_time,
                    max_time,
                    producer,
                    records,
                )
            )
        start = end
    return found, None


def visible(fetched: Fetched, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """Leave out the markers of transactions and, for a read of committed records, those of aborted ones.

    Raises:
        CorruptRecordError: a checksum is wrong.
    """
    aborted = None if fetched.aborted is None else deque(sorted(fetched.aborted, key=lambda one: one.first_offset))
    producers: set[int] = set()  # with an aborted transaction under way
    view = memoryview(fetched.data)
    for batch in batches:
        if fetched.check_crcs and not _is_sound(view, batch):
            place = f"partition {fetched.topic}-{fetched.partition} at offset {batch.offset}"
            msg = f"Record batch for {place} failed crc check"
            raise CorruptRecordError(msg)
        is_control = batch.attributes & _CONTROL
        if aborted is not None and batch.producer_id >= 0:
            while aborted and aborted[0].first_offset < batch.next_offset:
                producers.add(aborted.popleft().producer_id)
            if is_control:
                if next(DefaultRecordBatch(view[batch.start : batch.end])).abort:
                    producers.discard(batch.producer_id)
            elif batch.attributes & _TRANSACTIONAL and batch.producer_id in producers:
                continue
        if not is_control:
            yield batch


def _is_sound(view: memoryview, batch: RecordBatch) -> bool:
    if batch.is_legacy:
        return bool(LegacyRecordBatch(view[batch.start : batch.end], view[batch.start + _MAGIC]).validate_crc())
    return bool(calc_crc32c(view[batch.start + _ATTRIBUTES : batch.end]) == batch.crc)
