"""Messages before format v2, which topics may still hold: kafka-python reads them."""

from __future__ import annotations

from collections.abc import Iterator

import kafka.errors
from kafka.record.legacy_records import LegacyRecordBatch

from ticdc_source.errors import DecodeError
from ticdc_source.kafka.batches.record_batches import LegacyRecord

__all__ = ["legacy_records"]

_MAGIC = 16  # where the message format is written


def legacy_records(message: memoryview, check_crcs: bool) -> Iterator[LegacyRecord]:  # noqa: FBT001 (`ReadLegacy`)
    """Yield the records of a message, which may be a compressed set of messages; see `ReadLegacy`.

    Raises:
        DecodeError: a checksum is wrong, or kafka-python lacks the library for the codec.
    """
    try:
        for record in LegacyRecordBatch(message, message[_MAGIC]):
            if check_crcs and not record.validate_crc():
                msg = f"Record at offset {record.offset} failed crc check"
                raise DecodeError(msg)
            timestamp = -1 if record.timestamp is None else record.timestamp
            yield LegacyRecord(record.offset, timestamp, record.key, record.value)
    except (kafka.errors.CorruptRecordError, kafka.errors.UnsupportedCodecError) as error:
        raise DecodeError(str(error)) from error
