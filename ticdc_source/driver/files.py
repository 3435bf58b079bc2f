"""Reads of a storage sink's files: which files a batch, a sample or a micro-batch reads.

An offset of a data directory is a number of files: those that have been read. The offset of the file `metadata` is its
checkpoint-ts and 1. Everything else is as for topics: offset ranges, the JSON of a checkpoint, input partitions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from ticdc_source.driver.ddl_copies import Coverage
from ticdc_source.driver.streaming import INITIAL, START, OffsetJSON, StreamLimits, offsets_of
from ticdc_source.errors import OptionError
from ticdc_source.events import Chunk, TableName
from ticdc_source.kafka import FetchSettings
from ticdc_source.options.offsets import OffsetRange, to_json_dict
from ticdc_source.options.options import Options
from ticdc_source.options.table_filter import TableFilter
from ticdc_source.options.topics import TopicPartition
from ticdc_source.protocols.base import Decoder, splits_of
from ticdc_source.protocols.file_format import FileSettings
from ticdc_source.protocols.messages import parse_object
from ticdc_source.schema.model import Definitions
from ticdc_source.storage import CHECKPOINT, FORMATS, Changefeed, FileFetcher, Look, ReadSettings
from ticdc_source.storage.changefeed import schema_files_of
from ticdc_source.storage.files import Folder
from ticdc_source.storage.paths import DataFile, directory_of, is_schema_file, order_of, parse_path

__all__ = [
    "FilePlanner",
    "VersionSearch",
    "file_fetcher",
    "of_ddl",
    "packed_files",
    "ranges_of",
    "sampled",
    "wanted_of",
    "with_protocol",
]

_WORTH_A_TASK = 32 << 20  # bytes
_MOST_SAMPLED = 30  # directories of a table, the newest
_IDLE = 2.0  # looks take no more than half of the time

Offsets = dict[TopicPartition, int]


def file_fetcher(options: Options, settings: FetchSettings, *, protocol: str | None, most: int | None) -> FileFetcher:
    """Return a fetcher for files.

    Args:
        options: the options.
        settings: how to read.
        protocol: the wire format; None if it is not known.
        most: how many rows of each file to read; None for all.
    """
    assert options.path is not None  # noqa: S101 (for mypy)
    reading = ReadSettings(
        max_records=settings.max_records,
        max_bytes=settings.max_bytes,
        include_headers=settings.include_headers,
        fail_on_data_loss=settings.fail_on_data_loss,
    )
    return FileFetcher(options.path, FileSettings.of(options), reading, protocol=protocol, most=most)


def with_protocol(options: Options, look: Look) -> Options:
    """Return the options with the protocol that the names of files tell.

    Raises:
        OptionError: `protocol` says another one, or there are several.
    """
    known = {name for name, _ in FORMATS.values()}
    if options.protocol not in {"auto", *known}:
        msg = f"protocol={options.protocol} has no files: a storage sink writes {', '.join(sorted(known))}"
        raise OptionError(msg)
    found = {"." + pattern.rpartition(".")[2] for pattern in look.sizes}
    names = sorted({FORMATS[extension][0] for extension in found if extension in FORMATS})
    if not names and options.protocol == "auto":
        return options if not look.last else replace(options, protocol=next(iter(FORMATS.values()))[0])
    if options.protocol == "auto" and len(names) == 1:
        return replace(options, protocol=names[0])
    if names and names != [options.protocol]:
        msg = f"'path' has files of {' and '.join(names)}, and protocol is {options.protocol}"
        raise OptionError(msg)
    return options


def ranges_of(look: Look, options: Options) -> list[OffsetRange]:
    """Return all files that are whole, and the checkpoint-ts: what a batch reads."""
    ranges = [OffsetRange(*place, look.first[place], end) for place, end in look.last.items()]
    if look.checkpoint is not None:
        ranges.append(OffsetRange(*CHECKPOINT, look.checkpoint, look.checkpoint + 1))
    return sorted(wanted_of(ranges, options), key=lambda each: order_of(each.topic))


def wanted_of(ranges: Iterable[OffsetRange], options: Options) -> list[OffsetRange]:
    """Return the ranges without the rows of tables that the option `tables` leaves out."""
    wanted = TableFilter(options.tables or ())
    return [each for each in ranges if _may_have(each.topic, wanted)]


def _may_have(topic: str, wanted: TableFilter) -> bool:
    """Return whether files may have rows or DDL of wanted tables."""
    place = directory_of(topic)
    return not wanted.patterns or place is None or place.table is None or wanted.matches(TableName(*place.table))


def sampled(ranges: Iterable[OffsetRange], options: Options) -> list[OffsetRange]:
    """Return what to sample of files: of each directory the first and the last, and all versions of tables."""
    wanted = TableFilter(options.tables or ())
    by_owner: dict[str, list[OffsetRange]] = {}
    chosen = []
    for each in ranges:
        place = directory_of(each.topic)
        if place is None:
            if each.topic_partition != CHECKPOINT:
                chosen.append(each)
        elif each.size:
            by_owner.setdefault(place.owner, []).append(each)
    mine = {owner: some for owner, some in by_owner.items() if _may_have(some[0].topic, wanted)} or by_owner
    for some in mine.values():
        for each in sorted(some, key=lambda one: order_of(one.topic))[-_MOST_SAMPLED:]:
            chosen.append(each._replace(end=each.start + 1))
            if each.size > 1:  # as of another partition: the sampler takes one range of each
                chosen.append(each._replace(partition=1, start=each.end - 1))
    return chosen


class VersionSearch:
    """Looks in the folder of a changefeed for the version of a table that a row names.

    Args:
        options: the options.
        decoder: the decoder of the protocol.
    """

    def __init__(self, options: Options, decoder: Decoder) -> None:
        assert options.path is not None  # noqa: S101 (for mypy)
        self._folder = Folder(options.path)
        self._decoder = decoder
        self.around: OffsetRange | None = None

    def __call__(self, table: TableName, version: int) -> Definitions:  # noqa: ARG002 (the path of the rows says it)
        """Return what the file with a version defines; nothing if there is none."""
        file = None if self.around is None else parse_path(self.around.topic)
        place = directory_of(
            file.pattern if isinstance(file, DataFile) else "" if self.around is None else self.around.topic
        )
        definitions = self._decoder.facts.definitions
        files = self._decoder.facts.files
        if place is None or definitions is None or files is None:
            return {}
        found: Definitions = {}
        for path in schema_files_of(self._folder, place, version):
            data = self._folder.text(path)
            message = None if data is None else files.of_schema(parse_object(data))
            chunk = Chunk(path, 0, [0], [-1], [None], [message])
            for split in splits_of(self._decoder, chunk):
                if split.corrupt:
                    raise split.corrupt[0].error
                found.update(definitions([*split.ddl, *split.bootstraps]))
        return found


def of_ddl(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the files with versions of tables."""
    return [each for each in ranges if is_schema_file(each.topic)]


def packed_files(
    ranges: Iterable[OffsetRange], sizes: Mapping[str, Mapping[int, int]], at_least: int | None = None
) -> list[list[OffsetRange]]:
    """Pack files together, in order, so that each input partition is worth its task; a file is not cut.

    Args:
        ranges: the files.
        sizes: see `Look.sizes`; a file whose size is not known counts as large.
        at_least: `minPartitions`.
    """
    files = [
        (each._replace(start=start, end=start + 1), _size_of(each, start, sizes))
        for each in ranges
        for start in range(each.start, each.end)
    ]
    most = _WORTH_A_TASK
    if at_least is not None:
        most = min(most, sum(size for _, size in files) // at_least)
    packed: list[list[OffsetRange]] = []
    free = -1
    for file, size in files:
        if size > free:
            packed.append([])
            free = most
        free -= size
        last = packed[-1][-1] if packed[-1] else None
        if last is not None and last.topic_partition == file.topic_partition and last.end == file.start:
            packed[-1][-1] = last._replace(end=file.end)
        else:
            packed[-1].append(file)
    return packed


def _size_of(each: OffsetRange, start: int, sizes: Mapping[str, Mapping[int, int]]) -> int:
    if directory_of(each.topic) is None:
        return 0
    return sizes.get(each.topic, {}).get(start + 1, _WORTH_A_TASK)


@dataclass
class FilePlanner:
    """Plans the micro-batches of one query, as `StreamPlanner` does for topics.

    Files are read in the order in which TiCDC writes them: those of an old version of a table before those of a new
    one, of all tables. The checkpoint-ts is read when all files are that were there before it.

    Attributes:
        lookup: the changefeed.
        limits: how long to wait.
        report_loss: called with a reason if files are gone; it raises unless `failOnDataLoss` is off.
        begins_at_end: whether a new stream starts behind the files that are there.
        clock: a monotonic clock, in seconds.
    """

    lookup: Changefeed
    limits: StreamLimits
    report_loss: Callable[[str], None]
    begins_at_end: bool = False
    clock: Callable[[], float] = time.monotonic
    _start: Offsets | None = None
    _seen: Look = field(default_factory=Look)
    _known: Offsets = field(default_factory=dict)  # the ends of all directories, also of those that are gone
    _looks_at: float | None = None  # when the next look is due
    _stops_at_target: bool = False
    _target: Look | None = None
    _waiting_since: float | None = None

    def initial(self) -> OffsetJSON:
        """Return where a new stream starts. It is resolved once."""
        if self._start is None:
            look = self._look()
            self._start = _ends(look) if self.begins_at_end else {place: at for place, at in look.first.items() if at}
        return {INITIAL: True, **to_json_dict(self._start)}

    def stop_at_latest(self) -> None:
        """Fix the end of the stream at the files of the next look (Trigger.AvailableNow)."""
        self._stops_at_target = True

    def newest(self) -> OffsetJSON:
        """Return the ends of all directories, for Spark's report."""
        return to_json_dict(_ends(self._look()))

    def newest_end(self) -> OffsetJSON:
        """Return the ends of all directories as the end of a micro-batch whose start is not known."""
        return self.newest()

    def ends(self) -> Offsets:
        """Return the ends of all directories as of the last look."""
        return _ends(self._seen)

    def look(self) -> Look:
        """Return the last look; a first one if there was none, as after a restart."""
        return self._seen if self._looks_at is not None else self._look()

    def next(self, start: OffsetJSON, max_offsets: int | None = None, min_offsets: int | None = None) -> OffsetJSON:
        """Return where the micro-batch that begins at `start` ends; `start` itself if there is nothing to do.

        Args:
            start: the offset of the previous batch, as `initial()` or this method returned it (through JSON).
            max_offsets: the maximum number of files to read; None for all.
            min_offsets: the number of files to wait for; None for none.

        Raises:
            DataLossError: files are gone that were not read.
        """
        started, first = offsets_of(start), bool(start.get(INITIAL))
        look = self._look()
        if self._stops_at_target:
            self._target = look = self._target or look
        begins = self._still_there(started, look)
        new = sorted((place for place, end in look.last.items() if end > begins.get(place, 0)), key=_order)
        backlog = sum(look.last[place] - begins.get(place, 0) for place in new)
        if (
            min_offsets is not None
            and not first
            and not self._stops_at_target
            and self._must_wait(backlog, min_offsets)
        ):
            return dict(start)
        ends, left = dict(begins), backlog if max_offsets is None else max_offsets
        for place in new:
            granted = min(look.last[place] - begins.get(place, 0), left)
            if granted <= 0:
                break
            ends[place] = begins.get(place, 0) + granted
            left -= granted
        if look.checkpoint is not None and all(ends.get(place, 0) == look.last[place] for place in new):
            ends[CHECKPOINT] = max(look.checkpoint + 1, begins.get(CHECKPOINT, 0))
        if not first and ends == started:
            return dict(start)
        end = to_json_dict(ends)
        return {START: {name: start[name] for name in start if name != INITIAL}, **end} if first else end

    def coverage_between(self, start: OffsetJSON, end: OffsetJSON) -> Coverage:  # noqa: ARG002 (as `StreamPlanner`)
        """Return that DDL has no copies."""
        return {}

    def ranges(self, start: OffsetJSON, end: OffsetJSON) -> list[OffsetRange]:
        """Return the files between two offsets, in order."""
        begins = offsets_of(end[START] if start.get(INITIAL) and START in end else start)
        ranges = []
        for place, last in sorted(offsets_of(end).items(), key=lambda item: _order(item[0])):
            begin = begins.get(place, 0)
            if last > begin:
                ranges.append(OffsetRange(*place, last - 1 if place == CHECKPOINT else begin, last))
        return ranges

    def _still_there(self, begins: Offsets, look: Look) -> Offsets:
        """Return the offsets of directories that are still there; report files that are gone and were not read."""
        kept = {}
        for place, begin in begins.items():
            if place == CHECKPOINT or place in look.last:
                kept[place] = begin
            elif not (is_schema_file(place.topic) or self._is_read(place, begin, begins)):
                self.report_loss(
                    f"The directory of {place.topic} is gone, and whether all of its files had been read is not known: "
                    f"{begin} had. Has file-expiration-days of the sink, or a rule of the bucket, removed it?"
                )
        for place, first in look.first.items():
            if first > kept.get(place, 0):
                self.report_loss(
                    f"The files {kept.get(place, 0) + 1} to {first} of {place.topic} are gone and were not read. Has "
                    "file-expiration-days of the sink, or a rule of the bucket, removed them?"
                )
                kept[place] = first
            elif look.last[place] < kept.get(place, 0):
                self.report_loss(
                    f"{place.topic} has {look.last[place]} files, and {kept[place]} had been read: another changefeed "
                    "has been written to this folder. Start the query with a new checkpoint and a new output"
                )
                kept[place] = look.last[place]
        return kept

    def _is_read(self, place: TopicPartition, begin: int, begins: Mapping[TopicPartition, int]) -> bool:
        """Return whether all files of a directory had been read: its end is known, or later ones have been begun."""
        own = directory_of(place.topic)
        if own is None or self._known.get(place) == begin:
            return True
        others = ((directory_of(other.topic), at) for other, at in begins.items())
        return any(
            other is not None and at > 0 and other.owner == own.owner and (other.version, other.date) > own[2:]
            for other, at in others
        )

    def _look(self) -> Look:
        """Return what the changefeed has written; look again if the last look is too old."""
        now = self.clock()
        if self._looks_at is None or now >= self._looks_at:
            self._seen = self.lookup.look()
            self._known.update(self._seen.last)
            took = self.clock() - now
            self._looks_at = self.clock() + max(self.limits.min_interval, _IDLE * took)
        return self._seen

    def _must_wait(self, backlog: int, min_offsets: int) -> bool:
        now = self.clock()
        if self._waiting_since is None:
            self._waiting_since = now
        if backlog >= min_offsets or (backlog > 0 and now - self._waiting_since >= self.limits.max_delay):
            self._waiting_since = now
            return False
        return True


def _order(place: TopicPartition) -> tuple[int, int, str, str]:
    return order_of(place.topic)


def _ends(look: Look) -> Offsets:
    return look.last | ({} if look.checkpoint is None else {CHECKPOINT: look.checkpoint + 1})
