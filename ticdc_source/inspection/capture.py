"""Records with their exact bytes: from a topic to a file, and back (`ticdc-source capture`, `replay`).

The file is JSON Lines, compressed by gzip. Its first line says what it is. Each other line is a record: topic,
partition, offset, timestamp, key, value and headers, with bytes in base64.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import os
import time
import uuid
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from ticdc_source.errors import OptionError, counted, warn
from ticdc_source.options.kafka_client import client_settings
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.parsers import LARGEST_INT, LARGEST_LONG
from ticdc_source.options.registry import RegistrySettings
from ticdc_source.options.topics import TopicPartition
from ticdc_source.planning.fetchers import driver_fetcher
from ticdc_source.planning.load import batch_options
from ticdc_source.protocols import INSPECTIONS, recognized
from ticdc_source.protocols.redaction import Redactor
from ticdc_source.schema.json_text import loads
from ticdc_source.schema.tso import duration
from ticdc_source.sources.chunk import Chunk
from ticdc_source.sources.kafka import KafkaCluster
from ticdc_source.sources.kafka.api import WrittenRecord
from ticdc_source.sources.kafka.kafka_python.connect import writer

__all__ = [
    "CaptureProgress",
    "CapturedRecord",
    "Selection",
    "capture",
    "read_capture",
    "redacted",
    "replay",
    "write_capture",
]

_FORMAT, _VERSION = "ticdc-source capture", 1
_MOST_PARTITIONS = 10_000  # of a topic to create: Kafka's own limit of one request


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedRecord(WrittenRecord):
    """A record that can be written again.

    Attributes:
        topic, offset: where it was, with `partition`.
    """

    topic: str
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which records to capture.

    Attributes:
        partitions: the partitions; None for all.
        start, end: their offsets, `end` exclusive; None for the first and the last that Kafka has.
        most: the number of records at most, of all topic partitions together. They share it evenly: those that have
            fewer records than their share leave the rest to the others.
    """

    partitions: frozenset[int] | None = None
    start: int | None = None
    end: int | None = None
    most: int = 10_000

    def of(self, offset_range: OffsetRange) -> OffsetRange:
        """Return the part of all offsets of a topic partition that is selected."""
        if self.partitions is not None and offset_range.partition not in self.partitions:
            return offset_range._replace(end=offset_range.start)
        start = offset_range.start if self.start is None else max(self.start, offset_range.start)
        end = offset_range.end if self.end is None else min(self.end, offset_range.end)
        return offset_range._replace(start=start, end=max(start, end))

    def shares(self, ranges: Sequence[OffsetRange]) -> dict[OffsetRange, int]:
        """Return how many records of each range there may be, as far as offsets tell."""
        left, shares = self.most, {}
        for number, smallest in enumerate(sorted(ranges, key=lambda each: each.size)):
            shares[smallest] = min(smallest.size, left // (len(ranges) - number))
            left -= shares[smallest]
        return shares

    def check(self, ranges: Sequence[OffsetRange]) -> None:
        """Refuse what selects nothing of the topic partitions.

        Raises:
            OptionError: a partition does not exist, or no partition has one of the offsets.
        """
        existing = {each.partition for each in ranges}
        absent = sorted((self.partitions or frozenset()) - existing)
        if absent:
            numbers = ", ".join(map(str, absent))
            msg = f"{_topics_of(ranges)} has no partition {numbers}: there are {min(existing)} to {max(existing)}"
            raise OptionError(msg)
        if (self.start, self.end) != (None, None) and not any(self.of(each).size for each in ranges):
            selected = [each for each in ranges if self.partitions is None or each.partition in self.partitions]
            wanted = f"{'' if self.start is None else self.start}:{'' if self.end is None else self.end}"
            msg = f"No partition has one of the offsets {wanted}; there are {', '.join(map(str, selected))}"
            raise OptionError(msg)


def _topics_of(ranges: Iterable[OffsetRange]) -> str:
    return ", ".join(dict.fromkeys(f"Topic '{each.topic}'" for each in ranges))


@dataclass(frozen=True, slots=True)
class CaptureProgress:
    """How far a capture is.

    Attributes:
        done: the number of records so far.
        total: the number of records that it has at most.
        left: how many selected offsets are left out so far because of `Selection.most`.
        without: the topic partitions of which no record is captured because of it.
    """

    done: int
    total: int
    left: int = 0
    without: tuple[TopicPartition, ...] = ()


def capture(
    given: Mapping[str, str],
    selection: Selection,
    on_progress: Callable[[CaptureProgress], object] = lambda _: None,
) -> Iterator[CapturedRecord]:
    """Yield records, those of each topic partition in order.

    Args:
        given: the options, as `spark.read.format("ticdc")` takes them.
        selection: which records.
        on_progress: called for each chunk.

    Raises:
        TiCDCSourceError: as reads do.
    """
    options = batch_options({**given, "outputFormat": "record"})  # with headers
    with KafkaCluster(options) as cluster:
        everything = cluster.everything()
    selection.check(everything)
    ranges = [selection.of(each) for each in everything]
    progress = CaptureProgress(0, min(selection.most, sum(each.size for each in ranges)))
    shares, spare = selection.shares(ranges), 0  # a range with gaps has fewer records than offsets
    with driver_fetcher(options) as fetcher:
        for offset_range in filter(lambda each: each.size, ranges):
            wanted = shares[offset_range] + spare
            if not wanted:
                without = (*progress.without, offset_range.topic_partition)
                progress = replace(progress, left=progress.left + offset_range.size, without=without)
                on_progress(progress)
                continue
            for chunk in fetcher.fetch(offset_range):
                if chunk.failure is not None:
                    msg = f"{chunk.address(0)} cannot be captured: {chunk.failure}"
                    raise OptionError(msg)
                part = chunk.part(0, min(len(chunk), wanted))
                yield from _records(part)
                wanted -= len(part)
                later = 0 if wanted else offset_range.end - part.offsets[-1] - 1
                progress = replace(progress, done=progress.done + len(part), left=progress.left + later)
                on_progress(progress)
                if not wanted:
                    break
            spare = wanted


def _records(chunk: Chunk) -> Iterator[CapturedRecord]:
    headers = chunk.headers or [[]] * len(chunk)
    for offset, stamp, key, value, some in zip(
        chunk.offsets, chunk.timestamps, chunk.keys, chunk.values, headers, strict=True
    ):
        yield CapturedRecord(
            topic=chunk.topic,
            partition=chunk.partition,
            offset=offset,
            timestamp=stamp,
            key=key,
            value=value,
            headers=tuple(some),
        )


def redacted(
    records: Iterable[CapturedRecord], salt: bytes, registry: RegistrySettings | None = None
) -> Iterator[CapturedRecord]:
    """Yield records with nonsense in place of the values of columns; names, types, kinds and lengths stay.

    Args:
        records: the records.
        salt: whoever does not know it cannot find the values by trying.
        registry: where the schemas of Avro messages are.
    """
    redactor = Redactor(salt, registry)
    protocol = ""
    for record in records:
        protocol = recognized(record.key, record.value) or protocol  # a tombstone is of the protocol before it
        if protocol not in INSPECTIONS:
            key, value = (data and redactor.unknown(data) for data in (record.key, record.value))
        else:
            key, value = INSPECTIONS[protocol].redacted(record.key, record.value, redactor)
        headers = tuple((name, data and redactor.unknown(data)) for name, data in record.headers)
        yield replace(record, key=key, value=value, headers=headers)


def write_capture(path: Path, records: Iterable[CapturedRecord], *, is_redacted: bool = False) -> int:
    """Write records to a file, and return their number. Until it is whole, it has another name, and an older one stays.

    Only the user who writes it can read it, as it has the data of tables.

    Raises:
        OptionError: the file cannot be written.
    """
    count = 0
    head = {"format": _FORMAT, "version": _VERSION, "redacted": is_redacted}
    try:
        with _whole(path) as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
            file.write(json.dumps(head).encode() + b"\n")
            for record in records:
                line = {
                    "topic": record.topic,
                    "partition": record.partition,
                    "offset": record.offset,
                    "timestamp": record.timestamp,
                    "key": _text(record.key),
                    "value": _text(record.value),
                    "headers": [[name, _text(value)] for name, value in record.headers],
                }
                file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
                count += 1
    except OSError as error:
        msg = f"{path} cannot be written: {error.strerror}"
        raise OptionError(msg) from None
    return count


@contextmanager
def _whole(path: Path) -> Iterator[BinaryIO]:
    """Open a file to write, which takes the place of an older one when the block has ended without an error."""
    if path.exists() and not path.is_file():  # /dev/stdout
        with path.open("wb") as file:
            yield file
        return
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with open(draft, "xb", opener=_for_this_user) as file:  # Path.open has no opener
            yield file
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _for_this_user(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def read_capture(path: Path) -> Iterator[CapturedRecord]:
    """Yield the records of a file.

    Raises:
        OptionError: it cannot be read, or it is no capture.
    """
    number = 1
    try:
        with gzip.open(path, "rb") as file:
            head: object = loads(file.readline() or b"null")
            _check_head(head, path)
            for number, text in enumerate(file, 2):  # noqa: B007 (for the error)
                yield _record(loads(text))
    except OptionError:
        raise
    except OSError as error:  # gzip.BadGzipFile is one
        msg = f"{path} cannot be read: {error.strerror or error}"
        raise OptionError(msg) from None
    except (EOFError, KeyError, TypeError, ValueError, binascii.Error, zlib.error) as error:
        msg = f"{path}, line {number}: it is no record of a capture, or the file is not whole ({type(error).__name__})"
        raise OptionError(msg) from None


def _record(line: Mapping[str, object]) -> CapturedRecord:
    """Return a record.

    Raises:
        KeyError, TypeError, ValueError: it is none that Kafka can have.
    """
    headers = line["headers"]
    if not isinstance(headers, list):
        raise TypeError
    return CapturedRecord(
        topic=_words(line["topic"]),
        partition=_number(line["partition"], 0, LARGEST_INT),
        offset=_number(line["offset"], 0, LARGEST_LONG),
        timestamp=_number(line["timestamp"], -1, LARGEST_LONG),  # -1: it has none
        key=_bytes(line["key"]),
        value=_bytes(line["value"]),
        headers=tuple((_words(name), _bytes(value)) for name, value in headers),
    )


def _number(value: object, minimum: int, maximum: int) -> int:
    if type(value) is not int or not minimum <= value <= maximum:  # to Python, a bool is an int
        raise ValueError
    return value


def _words(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    value.encode()  # half of a surrogate pair has no UTF-8
    return value


def _check_head(head: object, path: Path) -> None:
    if not isinstance(head, dict) or head.get("format") != _FORMAT or head.get("version") != _VERSION:
        msg = f"{path} is no capture of this release"
        raise OptionError(msg)


def replay(
    given: Mapping[str, str],
    path: Path,
    *,
    topic: str,
    create: bool = False,
    append: bool = False,
    now: Callable[[], float] = time.time,
) -> int:
    """Write the records of a capture to a topic: to the same partitions, in their order, with their timestamps.

    Args:
        given: the options: brokers and logins.
        path: the capture.
        topic: the topic.
        create: whether to create the topic if it does not exist.
        append: whether the topic may have records.
        now: the clock that retention refers to, in seconds since the epoch.

    Returns:
        the number of records.

    Raises:
        OptionError: the file is no capture, or has records of several topics; or the topic does not fit.
        TiCDCSourceError: the brokers do not answer, or refuse.
    """
    names, most, stamps = set(), -1, array("q")
    for record in read_capture(path):  # all of it, before anything is written
        names.add(record.topic)
        most = max(most, record.partition)
        stamps.append(record.timestamp)
    if len(names) > 1:
        msg = f"{path} has records of several topics ({', '.join(sorted(names))}): capture each of them into a file"
        raise OptionError(msg)
    options = batch_options({**given, "subscribe": topic})
    with KafkaCluster(options) as cluster:
        existing = {each.partition for each in cluster.partitions(missing=True)}
        if not existing and not create:
            msg = f"Topic '{topic}' does not exist: --create creates it, with {counted(most + 1, 'partition')}"
            raise OptionError(msg)
        if not existing and most >= _MOST_PARTITIONS:
            needed = counted(most + 1, "partition")
            msg = f"The records need a topic with {needed}: --create creates at most {_MOST_PARTITIONS:,}"
            raise OptionError(msg)
        if existing and most not in existing and most >= 0:
            msg = f"Topic '{topic}' has {counted(len(existing), 'partition')}, and the records need {most + 1:,}"
            raise OptionError(msg)
        used = sum(each.end for each in cluster.everything()) if existing else 0
        if used and not append:
            msg = f"Topic '{topic}' has, or had, {counted(used, 'record')}: --append writes behind them"
            raise OptionError(msg)
    with writer(client_settings(options, driver=True)) as target:
        if not existing:
            target.create_topic(topic, max(1, most + 1))
        retention_ms = target.retention_ms(topic)
        if retention_ms is not None:
            _warn_of_retention(topic, retention_ms, stamps, now())
        return target.write(topic, read_capture(path))


def _warn_of_retention(topic: str, retention_ms: int, stamps: Iterable[int], now: float) -> None:
    """Warn if records are older than what a topic keeps: they keep their timestamps, so Kafka deletes them soon."""
    first_kept = now * 1000 - retention_ms
    old = sum(0 <= stamp < first_kept for stamp in stamps)
    if old:
        warn(
            f"{counted(old, 'record')} of the file will soon be deleted: older than {duration(retention_ms / 1000)}, "
            f"which is retention.ms of the topic '{topic}'. To keep them: kafka-configs --alter --topic {topic} "
            "--add-config retention.ms=-1"
        )


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: object) -> bytes | None:
    return None if text is None else base64.b64decode(_words(text), validate=True)
