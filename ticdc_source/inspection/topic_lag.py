"""The lag of topics, and of a reader behind them (`ticdc-source lag`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field

import pyarrow as pa
from pyarrow import fs

from ticdc_source.errors import CheckpointError
from ticdc_source.inspection.progress import SnapshotPace, snapshot_of
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.topics import TopicPartition
from ticdc_source.pipeline.metric_files import file_system, hidden_location
from ticdc_source.planning.fetchers import driver_fetcher, windows_from_end
from ticdc_source.planning.inference import find_protocol
from ticdc_source.planning.load import batch_options
from ticdc_source.planning.watermarks import holds_no_larger_watermark
from ticdc_source.protocols import decoder_of, with_likely_protocol
from ticdc_source.protocols.decoding import Decoder, commit_versions_of, splits_of
from ticdc_source.protocols.events import Split
from ticdc_source.schema.json_text import loads
from ticdc_source.schema.tso import age, of_ms, utc
from ticdc_source.sources.chunk import Chunk
from ticdc_source.sources.kafka import KafkaCluster
from ticdc_source.sources.storage.files import redacted
from ticdc_source.sources.stream_offsets import OffsetJSON, offsets_of
from ticdc_source.sources.tidb.progress import SnapshotProgress

_FIRST_WINDOW = 64  # offsets to read first, from the end
_ENOUGH = 4096  # records to read back for a watermark larger than the one found
_MOST = 50_000  # records to read back for the first commit-ts or watermark
_LAST_EVENTS = 16  # of each table in a chunk: commit-ts rise, nearly always


@dataclass(slots=True, kw_only=True)
class PartitionLag:
    """A topic partition. Times are None if no record near the end of the topic partition tells them.

    Attributes:
        start, end: the offsets that Kafka has; `end` is exclusive.
        last_commit_ts: the largest commit-ts of rows and DDL near the end.
        age_s: seconds since `last_commit_ts`. It rises while nothing is changed.
        watermark: the largest one near the end.
        watermark_lag_s: seconds since `watermark`: how late TiCDC is.
        position: the next offset of the reader; None if it has none here.
        behind: how many offsets the reader still has to read.
        lost: how many of these are gone.
        read_commit_ts: the largest commit-ts or watermark among the last events read.
        commit_lag_s: seconds since the commit of the first unread event; 0 if all are read.
    """

    topic: str
    partition: int
    start: int
    end: int
    last_commit_ts: int | None = None
    last_time: str | None = None
    age_s: float | None = None
    watermark: int | None = None
    watermark_time: str | None = None
    watermark_lag_s: float | None = None
    position: int | None = None
    behind: int | None = None
    lost: int | None = None
    read_commit_ts: int | None = None
    read_time: str | None = None
    commit_lag_s: float | None = None

    @property
    def late_s(self) -> float | None:
        """The larger of watermark lag and commit lag; the age if both are unknown."""
        lags = [lag for lag in (self.watermark_lag_s, self.commit_lag_s) if lag is not None]
        return max(lags, default=self.age_s)


@dataclass(slots=True, kw_only=True)
class SnapshotLag:
    """Progress of a stream's snapshot; `left_s` is the estimated time left, None in the first look."""

    tso: int
    ranges: int
    expected_ranges: int
    rows: int
    left_s: float | None


@dataclass(slots=True, kw_only=True)
class LagReport:
    """One look.

    Attributes:
        other_protocol: the error of the first message that looks like another protocol; None if there is none.
        no_position: why the reader has no position in any topic partition; None if it has one.
        snapshot: progress of the snapshot that the stream began with; None without one, and when it is complete.
    """

    time: str
    protocol: str | None = None
    partitions: list[PartitionLag] = field(default_factory=list)
    other_protocol: str | None = None
    no_position: str | None = None
    snapshot: SnapshotLag | None = None

    @property
    def late_s(self) -> float | None:
        """The largest lag of all topic partitions; None if unknown."""
        return max((each.late_s for each in self.partitions if each.late_s is not None), default=None)

    def as_json(self) -> dict[str, object]:
        return {"version": 1, "late_s": self.late_s, **asdict(self)}


@dataclass(slots=True)
class _Newest:
    commit_ts: int | None = None
    watermark: int | None = None

    def add(self, other: _Newest) -> None:
        self.commit_ts = _largest(self.commit_ts, other.commit_ts)
        self.watermark = _largest(self.watermark, other.watermark)


class LagWatch(AbstractContextManager["LagWatch"]):
    """Looks at topics repeatedly, on the same connections. Later looks read only new records.

    Args:
        checkpoint: the `checkpointLocation` of a stream, to show its lag.
        group: instead, a consumer group that commits its offsets, as streams do with `commitGroupOffsets`.
        now: the clock for lags, in seconds since the epoch.
    """

    def __init__(
        self,
        given: Mapping[str, str],
        *,
        checkpoint: str | None = None,
        group: str | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._options = batch_options(given)
        self._checkpoint = checkpoint
        self._group = group
        self._now = now
        self._cluster = KafkaCluster(self._options)
        self._fetcher = driver_fetcher(self._options)
        self._decoder: Decoder | None = None
        self._other_protocol: str | None = None
        self._pace = SnapshotPace()
        self._ends: dict[TopicPartition, tuple[int, _Newest]] = {}
        self._read: dict[TopicPartition, tuple[int, _Newest]] = {}

    def __exit__(self, *_: object) -> None:
        self._fetcher.close()
        self._cluster.close()

    def look(self) -> LagReport:
        """Look once.

        Raises:
            TiCDCSourceError: the brokers do not answer, or refuse; or the checkpoint cannot be read.
        """
        positions, snapshot = self._positions()  # first: what arrives meanwhile counts as unread
        ranges = self._cluster.everything()
        if self._decoder is None and (protocol := find_protocol(ranges, self._fetcher.fetch, self._options)):
            self._decoder = decoder_of(protocol, self._options, reads_files=False)
        now = self._now()
        moment = utc(of_ms(round(now * 1000))) or ""
        report = LagReport(time=moment, protocol=None if self._decoder is None else self._decoder.facts.name)
        if snapshot is not None:
            report.snapshot = SnapshotLag(
                tso=snapshot.tso,
                ranges=snapshot.ranges,
                expected_ranges=snapshot.expected_ranges,
                rows=snapshot.rows,
                left_s=self._pace.left_s(snapshot, now),
            )
        for offset_range in ranges:
            newest = self._newest(offset_range, self._ends)
            lag = PartitionLag(
                **offset_range._asdict(),
                last_commit_ts=newest.commit_ts,
                last_time=utc(newest.commit_ts),
                age_s=age(newest.commit_ts, now),
                watermark=newest.watermark,
                watermark_time=utc(newest.watermark),
                watermark_lag_s=age(newest.watermark, now),
            )
            position = positions.get(offset_range.topic_partition)
            if position is not None:
                self._add_reader(lag, offset_range, position, now)
            report.partitions.append(lag)
        report.other_protocol = self._other_protocol
        if all(lag.position is None for lag in report.partitions):
            report.no_position = self._why_unknown(sorted({lag.topic for lag in report.partitions}))
        return report

    def _positions(self) -> tuple[Mapping[TopicPartition, int], SnapshotProgress | None]:
        if self._group is not None:
            return self._cluster.committed(self._group, self._cluster.partitions()), None
        if self._checkpoint is None:
            return {}, None
        offset = committed_in_checkpoint(self._checkpoint, {key.topic for key in self._cluster.partitions()})
        return offsets_of(offset), snapshot_of(offset)

    def _why_unknown(self, topics: Sequence[str]) -> str | None:
        """Say why the reader has no position in any partition of the topics; None if there is no reader."""
        if self._group is not None:
            return (
                f"The consumer group '{self._group}' has committed no offset of {', '.join(topics)}: check its name. "
                "A stream commits its offsets only with commitGroupOffsets=true"
            )
        if self._checkpoint is not None:
            return f"The stream of the checkpoint {redacted(self._checkpoint)} has not finished a micro-batch yet"
        return None

    def _newest(self, offset_range: OffsetRange, looks: dict[TopicPartition, tuple[int, _Newest]]) -> _Newest:
        """Return the newest events of a range. `looks` has where earlier looks ended, and what they found."""
        decoder, read = self._decoder, _Newest()
        if decoder is None:
            return read
        key = offset_range.topic_partition
        before, newest = looks.get(key, (offset_range.start, _Newest()))
        if before > offset_range.end:  # the topic was created again
            before, newest = offset_range.start, _Newest()
        scanned = 0
        new = offset_range._replace(start=max(before, offset_range.start))
        for window in windows_from_end(new, self._fetcher.fetch, _FIRST_WINDOW):
            oldest: int | None = None
            for chunk in window:
                for split in splits_of(decoder, chunk):
                    read.add(_newest_of(split, decoder))
                    self._other_protocol = self._other_protocol or _of_other_protocol(split, chunk, decoder)
                scanned += len(chunk)
                oldest = chunk.timestamps[0] if oldest is None and chunk.timestamps else oldest
            has_both = read.commit_ts is not None and read.watermark is not None
            is_enough = scanned >= _ENOUGH or holds_no_larger_watermark(oldest, read.watermark)
            if (has_both and is_enough) or scanned >= _MOST:
                break
        newest.add(read)
        looks[key] = (offset_range.end, newest)
        return newest

    def _add_reader(self, lag: PartitionLag, offset_range: OffsetRange, position: int, now: float) -> None:
        lag.position = position
        lag.behind = max(0, offset_range.end - position)
        lag.lost = max(0, min(offset_range.start, offset_range.end) - position)
        next_ = min(max(position, offset_range.start), offset_range.end)
        read = self._newest(offset_range._replace(end=next_), self._read)
        lag.read_commit_ts = _largest(read.commit_ts, read.watermark)
        lag.read_time = utc(lag.read_commit_ts)
        lag.commit_lag_s = self._unread_for(offset_range._replace(start=next_), now)

    def _unread_for(self, unread: OffsetRange, now: float) -> float | None:
        """Return how many seconds ago the first unread event was committed; 0 without any."""
        if self._decoder is None or not unread.size:
            return 0.0
        first = unread._replace(end=min(unread.end, unread.start + _FIRST_WINDOW))
        committed: list[int] = []
        arrived: list[int] = []
        for chunk in self._fetcher.fetch(first):
            committed += _commits_of(chunk, self._decoder)
            arrived += [stamp for stamp in chunk.timestamps if stamp >= 0]
        if committed:
            return age(min(committed), now)
        return round(max(0.0, now - min(arrived) / 1000), 3) if arrived else None


def _commits_of(chunk: Chunk, decoder: Decoder) -> list[int]:
    """Return commit-ts and watermarks of a chunk, including the smallest."""
    commits: list[int | None] = []
    for split in splits_of(decoder, chunk):
        commits += [mark.ts for mark in split.watermarks]
        commits += [event.commit_ts for event in split.ddl]
        for events in split.tables.values():
            commits += commit_versions_of(events, decoder).to_pylist()
    return [commit_ts for commit_ts in commits if commit_ts is not None]


def _of_other_protocol(split: Split, chunk: Chunk, decoder: Decoder) -> str | None:
    """Return the error of the first bad record that looks like another protocol; None if there is none."""
    likely = ((each, with_likely_protocol(each, chunk, decoder)) for each in split.corrupt)
    return next((str(named.error) for each, named in likely if named is not each), None)


def _newest_of(split: Split, decoder: Decoder) -> _Newest:
    commits = [event.commit_ts for event in split.ddl]
    for events in split.tables.values():
        last = events.picked(range(max(0, len(events) - _LAST_EVENTS), len(events)))
        commits += commit_versions_of(last, decoder).to_pylist()
    marks = [mark.ts for mark in split.watermarks]
    return _Newest(_largest(*commits), _largest(*marks))


def _largest(*numbers: int | None) -> int | None:
    return max((number for number in numbers if number is not None), default=None)


def committed_in_checkpoint(location: str, topics: Collection[str]) -> OffsetJSON:
    """Return the offset up to which a stream has written its output; empty before its first micro-batch.

    It is that of the newest file in `offsets` that is also in `commits` (Spark's OffsetSeqLog and CommitLog), as other
    micro-batches may be repeated. Sources of the stream without any of the topics are ignored.

    Args:
        location: a path, or a URI that pyarrow knows.

    Raises:
        CheckpointError: it cannot be read, is not a checkpoint, or no source of it reads one of the topics.
    """
    try:
        system, folder = _opened(location)
        offsets = _batches(system, f"{folder}/offsets")
        newest = max(offsets & _batches(system, f"{folder}/commits"), default=None)
        if newest is None:
            return {}
        with system.open_input_stream(f"{folder}/offsets/{newest}") as file:
            lines = file.read().decode().splitlines()
    except (OSError, ValueError, pa.ArrowException) as error:
        msg = f"The checkpoint {location} cannot be read: {error}"
        raise CheckpointError(hidden_location(msg, location)) from None
    sources = [offset for offset in _sources(lines) if any(key.topic in topics for key in offsets_of(offset))]
    if not sources:
        raise CheckpointError(f"No source of the checkpoint {redacted(location)} reads {', '.join(sorted(topics))}")
    return sources[0]


def _opened(location: str) -> tuple[fs.FileSystem, str]:
    system, folder = file_system(location)
    if not _has_offsets(system, folder):
        inner = sorted(
            item.base_name
            for item in system.get_file_info(fs.FileSelector(folder, allow_not_found=True))
            if item.type == fs.FileType.Directory and _has_offsets(system, item.path)
        )
        meant = ", ".join(f"{redacted(location).rstrip('/')}/{name}" for name in inner)
        hint = f"; {meant} {'has' if len(inner) == 1 else 'have'} one: use the stream's" if inner else ""
        if system.get_file_info(folder).type == fs.FileType.NotFound:
            msg = "there is no such folder"
        else:
            msg = f"it has no folder 'offsets', so it is not a stream's checkpointLocation{hint}"
        raise ValueError(msg)
    return system, folder.rstrip("/")


def _has_offsets(system: fs.FileSystem, folder: str) -> bool:
    return bool(system.get_file_info(f"{folder}/offsets").type == fs.FileType.Directory)


def _batches(system: fs.FileSystem, folder: str) -> set[int]:
    """Return the numbers of the micro-batches with a file in a folder. Other files are temporary, or checksums."""
    files = system.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return {int(file.base_name) for file in files if file.base_name.isdigit()}


def _sources(lines: list[str]) -> Iterator[OffsetJSON]:
    """Yield the offset of each source that has offsets of Kafka: line 1 is the version, line 2 is Spark's."""
    for line in lines[2:]:
        try:
            offset = loads(line)
            offsets_of(offset)
        # "-" (no offset yet), or another kind of source
        except (ValueError, CheckpointError):
            continue
        yield offset
