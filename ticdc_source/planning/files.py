"""Reads of a storage sink's files: which files a batch, a sample or a micro-batch reads.

The offset of a data directory is the number of the last file that was read. The one record of the file `metadata` has
the checkpoint-ts as its offset, so the offset after it is checkpoint-ts + 1. Everything else is as for topics: offset
ranges, the JSON of a checkpoint, input partitions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from ticdc_source.errors import OptionError, warn
from ticdc_source.options.fetching import FetchSettings
from ticdc_source.options.offsets import OffsetRange, to_json_dict
from ticdc_source.options.options import Options
from ticdc_source.options.table_filter import TableFilter
from ticdc_source.options.topics import TopicPartition
from ticdc_source.planning.streaming import (
    INITIAL,
    START,
    MinimumWait,
    OffsetJSON,
    StreamLimits,
    offsets_of,
    start_offsets,
)
from ticdc_source.protocols import FILE_FORMATS
from ticdc_source.protocols.base import Decoder, splits_of
from ticdc_source.schema.model import Definitions
from ticdc_source.schema.table_name import TableName
from ticdc_source.sources.storage import CHECKPOINT, Changefeed, FileFetcher, Look
from ticdc_source.sources.storage.file_format import FileSettings
from ticdc_source.sources.storage.paths import (
    directory_of,
    directory_of_topic,
    extension_of,
    is_schema_file,
    order_of,
    stem_of,
)

__all__ = [
    "FILE_LOSS",
    "FilePlanner",
    "VersionSearch",
    "file_fetcher",
    "packed_files",
    "ranges_of",
    "sampled",
    "schema_ranges",
    "tables_of",
    "wanted_of",
    "with_protocol",
]

_TASK_BYTES = 32 << 20  # the most bytes of files in an input partition of several files
_MOST_SAMPLED = 30  # at most so many directories of a table are sampled, the newest
_LOOKS_UNTIL_GONE = 3
FILE_LOSS = (
    "Some data may have been lost because files of the storage sink are gone before they were read. If you don't want "
    "your query to fail on such cases, set the source option failOnDataLoss to false. Reason: "
)
_WHO_REMOVED = "Has file-expiration-days of the sink, or a lifecycle rule of the bucket, removed them?"
_PAUSE_FACTOR = 2.0  # the pause after a look, in multiples of how long the look took

Offsets = dict[TopicPartition, int]


def file_fetcher(
    options: Options, settings: FetchSettings, *, protocol: str | None, max_rows: int | None
) -> FileFetcher:
    """Return a fetcher for files.

    Args:
        options: the options.
        settings: how to read.
        protocol: the wire format; None if it is not known.
        max_rows: how many rows of each file to read; None for all.
    """
    assert options.path is not None  # noqa: S101 (for mypy)
    files = FileSettings.of(options)
    return FileFetcher(options.path, files, settings, formats=FILE_FORMATS, protocol=protocol, max_rows=max_rows)


def with_protocol(options: Options, look: Look, offsets_read: Iterable[TopicPartition] = ()) -> Options:
    """Return the options with the protocol that the names of data files tell; unchanged if there is no data file.

    Args:
        options: the options.
        look: the files that are there.
        offsets_read: the topic partitions of a stream's offset. They tell the protocol when all data files are gone.

    Raises:
        OptionError: the option `protocol` contradicts the file names, the files have several protocols, or an extension
            is unknown.
    """
    of_files = sorted(FILE_FORMATS)
    formats = {each.extension: name for name, each in FILE_FORMATS.items()}
    if options.protocol not in {"auto", *of_files}:
        msg = f"protocol={options.protocol} has no files: a storage sink writes {', '.join(of_files)}"
        raise OptionError(msg)
    patterns = {*look.sizes, *(place.topic for place in offsets_read if directory_of(place.topic) is not None)}
    extensions = sorted({extension_of(pattern) for pattern in patterns})
    unknown = [extension for extension in extensions if extension not in formats]
    if unknown:
        msg = f"'path' has data files with the extension {unknown[0]}, and a storage sink writes {', '.join(formats)}"
        raise OptionError(msg)
    names = [formats[extension] for extension in extensions]
    if not names:
        return options
    if len(names) > 1:
        msg = f"'path' has files of {' and '.join(names)}: give the folder of one changefeed"
        raise OptionError(msg)
    if options.protocol not in {"auto", names[0]}:
        msg = f"'path' has files of {names[0]}, and protocol is {options.protocol}: leave 'protocol' out"
        raise OptionError(msg)
    return replace(options, protocol=names[0])


def ranges_of(look: Look, options: Options) -> list[OffsetRange]:
    """Return what a batch reads: the finished files of wanted tables, and the checkpoint-ts."""
    ranges = [OffsetRange(*place, look.starts[place], end) for place, end in look.ends.items()]
    if look.checkpoint is not None:
        ranges.append(OffsetRange(*CHECKPOINT, look.checkpoint, look.checkpoint + 1))
    return sorted(wanted_of(ranges, options), key=_order)


def tables_of(look: Look) -> set[TableName]:
    """Return the tables of which there are data files, or were; their paths tell them."""
    directories = (directory_of(pattern) for pattern in {*look.sizes, *(place.topic for place in look.ends)})
    return {TableName(*each.table) for each in directories if each is not None and each.table is not None}


def wanted_of(ranges: Iterable[OffsetRange], options: Options) -> list[OffsetRange]:
    """Return the ranges whose files may be of tables that the option `tables` names; all if it is not set."""
    wanted = TableFilter(options.tables or ())
    return [each for each in ranges if _may_be_wanted(each.topic, wanted)]


def _may_be_wanted(topic: str, wanted: TableFilter) -> bool:
    """Return whether files may be of a wanted table."""
    place = directory_of(topic)
    if not wanted.patterns or place is None or place.table is None or "/" in place.table[1]:
        return True  # the path does not tell the table; a slash may belong to the database or to the table
    return wanted.matches(TableName(*place.table))


def sampled(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the ranges to sample: all schema files, and the first and last file of a table's newest directories."""
    by_owner: dict[str, list[OffsetRange]] = {}
    chosen = []
    for each in ranges:
        place = directory_of(each.topic)
        if place is not None and each.size:
            by_owner.setdefault(place.owner, []).append(each)
        elif place is None and each.topic_partition != CHECKPOINT:
            chosen.append(each)
    for directories in by_owner.values():
        for each in sorted(directories, key=_order)[-_MOST_SAMPLED:]:
            chosen.append(each._replace(end=each.start + 1))
            if each.size > 1:  # partition 1 is made up: the sampler takes one range of each topic partition
                chosen.append(each._replace(partition=1, start=each.end - 1))
    return chosen


class VersionSearch:
    """Reads the schema file of the version of a table that a row names.

    Args:
        fetcher: reads schema files.
        decoder: the decoder of the protocol.

    Attributes:
        around: the offset range that is being read, or one file of it; it tells the table. None before the first.
    """

    def __init__(self, fetcher: FileFetcher, decoder: Decoder) -> None:
        self._fetcher = fetcher
        self._decoder = decoder
        self._missing: set[tuple[str, int]] = set()  # not asked again: storages answer slowly
        self.around: OffsetRange | None = None

    def __call__(self, table: TableName, version: int) -> Definitions:  # noqa: ARG002 (the path of the rows says it)
        """Return what the schema file of a version defines; nothing if there is none.

        Raises:
            DecodeError: the schema file is broken.
            StorageUnavailableError: the folder cannot be read.
        """
        place = None if self.around is None else directory_of_topic(self.around.topic)
        definitions = self._decoder.facts.definitions
        if place is None or definitions is None or (place.owner, version) in self._missing:
            return {}
        defined: Definitions = {}
        for path in self._fetcher.schema_files(place, version):
            for chunk in self._fetcher.fetch(OffsetRange(path, 0, 0, 1)):
                for split in splits_of(self._decoder, chunk):
                    if split.corrupt:
                        raise split.corrupt[0].error
                    defined.update(definitions([*split.ddl, *split.bootstraps]))
        if not defined:
            self._missing.add((place.owner, version))
        return defined


def schema_ranges(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the ranges that are schema files."""
    return [each for each in ranges if is_schema_file(each.topic)]


def packed_files(
    ranges: Iterable[OffsetRange], sizes: Mapping[str, Mapping[int, int]], min_partitions: int | None = None
) -> list[list[OffsetRange]]:
    """Return the files of each input partition, in order: up to 32 MiB together, or one larger file. No file is split.

    Args:
        ranges: the files.
        sizes: see `Look.sizes`. A data file of unknown size counts as 32 MiB; schema files and `metadata` as 0.
        min_partitions: the option `minPartitions`; it lowers the 32 MiB.
    """
    files = [
        (each._replace(start=start, end=start + 1), _size_of(each.topic, start + 1, sizes))
        for each in ranges
        for start in range(each.start, each.end)
    ]
    max_bytes = _TASK_BYTES
    if min_partitions is not None:
        max_bytes = min(max_bytes, sum(size for _, size in files) // min_partitions)
    packed: list[list[OffsetRange]] = []
    free = -1  # bytes left in the last input partition; -1 opens the first one, also for a file of 0 bytes
    for file, size in files:
        if size > free:
            packed.append([])
            free = max_bytes
        free -= size
        last = packed[-1][-1] if packed[-1] else None
        if last is not None and last.topic_partition == file.topic_partition and last.end == file.start:
            packed[-1][-1] = last._replace(end=file.end)
        else:
            packed[-1].append(file)
    return packed


def _size_of(topic: str, number: int, sizes: Mapping[str, Mapping[int, int]]) -> int:
    return 0 if directory_of(topic) is None else sizes.get(topic, {}).get(number, _TASK_BYTES)


@dataclass
class FilePlanner:
    """Plans the micro-batches of one query, as `StreamPlanner` does for topics.

    Files are read in the order of their table versions, across all tables, as TiCDC writes them. A checkpoint-ts is
    read after all files that the same look found.

    Attributes:
        lookup: the changefeed; named as in `StreamPlanner`.
        limits: how long to wait.
        report_loss: called with a reason if files are gone; it raises unless `failOnDataLoss` is off.
        begins_at_end: whether a new stream skips the files that exist.
        waits_for_data_file: whether to plan no file until there is a data file, whose name tells the protocol.
        clock: a monotonic clock, in seconds.
    """

    lookup: Changefeed
    limits: StreamLimits
    report_loss: Callable[[str], None]
    begins_at_end: bool = False
    waits_for_data_file: bool = False
    clock: Callable[[], float] = time.monotonic
    _start: Offsets | None = None
    _last_look: Look | None = None
    _next_look_at: float = 0.0
    _last_ends: Offsets = field(
        default_factory=dict
    )  # by directory, from all looks: also of directories that are gone since
    _stops_at_target: bool = False
    _target: Look | None = None
    _unread: Look | None = None  # the look that a limit cut short: its other files come next
    _looks_without: dict[TopicPartition, int] = field(default_factory=dict)  # by directory: how many in a row lacked it
    _last_checked: Look | None = None
    _minimum: MinimumWait = field(default_factory=MinimumWait)

    def initial(self) -> OffsetJSON:
        """Return where a new stream starts. It is resolved once."""
        if self._start is None:
            look = self._current_look()
            if look.is_empty:
                warn(self.lookup.why_empty(look))
            self.lookup.warn_of_no_checkpoint(look)
            self._start = _ends(look) if self.begins_at_end else {place: at for place, at in look.starts.items() if at}
        return {INITIAL: True, **to_json_dict(self._start)}

    def stop_at_latest(self) -> None:
        """Fix the end of the stream at the files of the next look (Trigger.AvailableNow)."""
        self._stops_at_target = True

    def newest(self) -> OffsetJSON:
        """Return the ends of all directories, for Spark's report."""
        return to_json_dict(_ends(self._current_look()))

    def last_look(self) -> Look:
        """Return the last look; make one if this process has none yet, as after a restart."""
        return self._last_look or self._current_look()

    def next(self, start: OffsetJSON, max_offsets: int | None = None, min_offsets: int | None = None) -> OffsetJSON:
        """Return where the micro-batch that begins at `start` ends: `start` itself if nothing is new, except at first.

        Args:
            start: the offset of the previous batch, as `initial()` or this method returned it (through JSON).
            max_offsets: the maximum number of files to read; None for all.
            min_offsets: the number of files to wait for; None for none.

        Raises:
            DataLossError: files are gone that were not read.
        """
        started, is_first = offsets_of(start), bool(start.get(INITIAL))
        look = self._look_to_read(started)
        if self.waits_for_data_file and not look.sizes and not any(map(_is_data, started)):
            return self._end_json(start, started)
        begins = self._checked(started, look)
        backlog = sum(max(0, end - begins.get(place, 0)) for place, end in look.ends.items())
        checkpoint_end = 0 if look.checkpoint is None else look.checkpoint + 1
        if min_offsets is not None and not is_first and not self._stops_at_target:
            # A new checkpoint-ts alone counts as one file, so that watermarks do not wait for rows.
            waiting = max(backlog, int(checkpoint_end > begins.get(CHECKPOINT, 0)))
            if self._minimum.must_wait(waiting, min_offsets, self.limits.max_delay, self.clock()):
                return dict(start)
        ends = _ends_after(begins, look, max_offsets)
        if all(ends.get(place, 0) >= end for place, end in look.ends.items()):
            self._unread = None
            if checkpoint_end:
                ends[CHECKPOINT] = max(checkpoint_end, begins.get(CHECKPOINT, 0))
        else:
            self._unread = look
        return self._end_json(start, ends)

    def _end_json(self, start: OffsetJSON, ends: Offsets) -> OffsetJSON:
        """Return an end as checkpoint JSON; the first one also holds where the stream started."""
        if start.get(INITIAL):
            return {START: {name: start[name] for name in start if name != INITIAL}, **to_json_dict(ends)}
        return dict(start) if ends == offsets_of(start) else to_json_dict(ends)

    def _look_to_read(self, started: Mapping[TopicPartition, int]) -> Look:
        """Return the look to read from: all files of one come before those of the next, or a busy table starves others.

        Args:
            started: what has been read.
        """
        if self._stops_at_target:
            self._target = self._target or self._current_look()
            return self._target
        before = self._unread
        if before is not None and any(end > started.get(place, 0) for place, end in before.ends.items()):
            return before
        return self._current_look()

    def ranges(self, start: OffsetJSON, end: OffsetJSON) -> list[OffsetRange]:
        """Return the files between two offsets, in order."""
        begins = start_offsets(start, end)
        ranges = []
        for place, last in sorted(offsets_of(end).items(), key=lambda item: _order(item[0])):
            begin = begins.get(place, 0)
            if last > begin:
                # Only the newest checkpoint-ts is a record; the offsets before it hold nothing.
                ranges.append(OffsetRange(*place, last - 1 if place == CHECKPOINT else begin, last))
        return ranges

    def _checked(self, begins: Offsets, look: Look) -> Offsets:
        """Return where to begin in each directory; report files that are gone and were not read.

        Raises:
            DataLossError: there are such files, and `failOnDataLoss` is on.
        """
        is_new_look, self._last_checked = look is not self._last_checked, look
        kept: Offsets = {}
        for place, begin in begins.items():
            if place == CHECKPOINT or is_schema_file(place.topic):
                kept[place] = begin  # without them, DDL and watermarks would be read again
            elif place in look.ends:
                self._looks_without.pop(place, None)
                kept[place] = begin  # compared with the look below
            elif not self._is_read(place, begin, begins):
                self.report_loss(
                    f"The files {place.topic} (%d is the number) are gone. The stream had read {begin} of them, and "
                    f"cannot tell whether there were more. {_WHO_REMOVED}"
                )
            elif not self._may_drop(place, begins, is_new_look=is_new_look):
                kept[place] = begin
        for place, first in look.starts.items():
            if first > kept.get(place, 0):
                self.report_loss(
                    f"The files {kept.get(place, 0) + 1} to {first} of {place.topic} (%d is the number) were removed "
                    f"before the stream read them. {_WHO_REMOVED}"
                )
                kept[place] = first
            elif look.ends[place] < kept.get(place, 0):
                self.report_loss(
                    f"{place.topic}: the last finished file is number {look.ends[place]}, and the stream had read up "
                    f"to number {kept[place]}. So another changefeed has written to this folder: start the query with "
                    "a new checkpoint and a new output"
                )
                kept[place] = look.ends[place]
        return kept

    def _is_read(self, place: TopicPartition, begin: int, begins: Mapping[TopicPartition, int]) -> bool:
        """Return whether all files of a missing directory were read.

        They were if the offset is its last known end, or if a later directory was begun.
        """
        return self._last_ends.get(place) == begin or self._has_later(place, begins)

    def _may_drop(self, place: TopicPartition, begins: Mapping[TopicPartition, int], *, is_new_look: bool) -> bool:
        """Return whether to forget the offset of a missing directory whose files were all read.

        A storage may hide a folder for a moment, so several looks in a row must miss it.
        """
        self._looks_without[place] = self._looks_without.get(place, 0) + is_new_look
        return self._looks_without[place] >= _LOOKS_UNTIL_GONE and self._gets_no_more_files(place, begins)

    def _gets_no_more_files(self, place: TopicPartition, begins: Mapping[TopicPartition, int]) -> bool:
        """Return whether TiCDC writes no more files to a directory: it has a date, or a later directory was begun."""
        own = directory_of(place.topic)
        return own is not None and (bool(own.date) or self._has_later(place, begins))

    def _has_later(self, place: TopicPartition, begins: Mapping[TopicPartition, int]) -> bool:
        """Return whether later files have been begun of the same table, partition and writer."""
        own = directory_of(place.topic)
        begun = [other.topic for other, begin in begins.items() if begin > 0]
        same_writer = [directory_of(topic) for topic in begun if stem_of(topic) == stem_of(place.topic)]
        return own is not None and any(
            other is not None and other.owner == own.owner and (other.version, other.date) > (own.version, own.date)
            for other in same_writer
        )

    def _current_look(self) -> Look:
        """Return the files that are there. The answer is reused until the pause after it is over."""
        began = self.clock()
        if self._last_look is None or began >= self._next_look_at:
            self._last_look = self.lookup.look()
            self._last_ends.update(self._last_look.ends)
            ended = self.clock()
            self._next_look_at = ended + max(self.limits.min_interval, _PAUSE_FACTOR * (ended - began))
        return self._last_look


def _ends_after(begins: Offsets, look: Look, max_files: int | None) -> Offsets:
    """Return where a micro-batch of at most `max_files` new files ends, files of the oldest table versions first."""
    ends, left = dict(begins), max_files
    for place in sorted(look.ends, key=_order):
        begin = begins.get(place, 0)
        granted = max(0, look.ends[place] - begin)
        if left is not None:
            granted = min(granted, left)
            left -= granted
        if granted:
            ends[place] = begin + granted
    return ends


def _is_data(place: TopicPartition) -> bool:
    return directory_of(place.topic) is not None


def _order(files: OffsetRange | TopicPartition) -> tuple[int, int, str, str]:
    return order_of(files.topic)


def _ends(look: Look) -> Offsets:
    return look.ends | ({} if look.checkpoint is None else {CHECKPOINT: look.checkpoint + 1})
