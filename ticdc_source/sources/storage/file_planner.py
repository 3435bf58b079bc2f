"""Which files of a storage sink a batch, a sample, an input partition and a micro-batch of a stream read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ticdc_source.errors import warn
from ticdc_source.options.offsets import OffsetRange, to_json_dict
from ticdc_source.options.topics import TableFilter, TopicPartition
from ticdc_source.schema.table_name import TableName
from ticdc_source.sources.storage.changefeed import CHECKPOINT, Changefeed, Look
from ticdc_source.sources.storage.paths import directory_of, index_of, is_schema_file, order_of
from ticdc_source.sources.stream_offsets import (
    INITIAL,
    MinimumWait,
    OffsetJSON,
    Offsets,
    StreamLimits,
    end_offset,
    initial_offset,
    offsets_of,
    start_offsets,
)

_LOOKS_UNTIL_GONE = 3
_WHO_REMOVED = "Has file-expiration-days of the sink, or a lifecycle rule of the bucket, removed them?"
_PAUSE_FACTOR = 2.0  # the pause after a look, in multiples of how long the look took


@dataclass
class FilePlanner:
    """The `StreamPlanner` of files.

    Files are read by table version, across all tables, as TiCDC writes them; a checkpoint-ts after all files of the
    same look. `report_loss` raises unless `failOnDataLoss` is off.

    Attributes:
        begins_at_end: whether a new stream skips existing files.
        waits_for_data_file: whether to plan nothing before the first data file, whose name tells the protocol.
    """

    changefeed: Changefeed
    limits: StreamLimits
    report_loss: Callable[[str], None]
    tables: TableFilter = field(default_factory=TableFilter)
    begins_at_end: bool = False
    waits_for_data_file: bool = False
    clock: Callable[[], float] = time.monotonic
    _start: Offsets | None = None
    _last_look: Look | None = None
    _next_look_at: float = 0.0
    _last_ends: Offsets = field(default_factory=dict)  # from all looks: also of directories that are gone since
    _stops_at_target: bool = False
    _target: Look | None = None
    _unread: Look | None = None  # a look cut short by a limit: its other files come next
    _looks_without: dict[TopicPartition, int] = field(default_factory=dict)  # by directory: how many in a row lacked it
    _last_checked: Look | None = None
    _minimum: MinimumWait = field(default_factory=MinimumWait)

    def initial(self) -> OffsetJSON:
        if self._start is None:
            look = self._current_look()
            if look.is_empty:
                warn(self.changefeed.why_empty(look))
            self.changefeed.warn_of_no_checkpoint(look)
            self._start = _ends(look) if self.begins_at_end else {place: at for place, at in look.starts.items() if at}
        return initial_offset(self._start)

    def stop_at_latest(self) -> None:
        self._stops_at_target = True

    def newest(self) -> OffsetJSON:
        return to_json_dict(_ends(self._current_look()))

    def next(self, start: OffsetJSON, max_offsets: int | None = None, min_offsets: int | None = None) -> OffsetJSON:
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
        if not start.get(INITIAL) and ends == offsets_of(start):
            return dict(start)
        return end_offset(start, to_json_dict(ends))

    def _look_to_read(self, started: Mapping[TopicPartition, int]) -> Look:
        """The look to read from. All its files come before those of the next look, so that no table starves."""
        if self._stops_at_target:
            self._target = self._target or self._current_look()
            return self._target
        before = self._unread
        if before is not None and any(end > started.get(place, 0) for place, end in before.ends.items()):
            return before
        return self._current_look()

    def ranges(self, start: OffsetJSON, end: OffsetJSON) -> list[OffsetRange]:
        begins = start_offsets(start, end)
        ranges = []
        for place, last in sorted(offsets_of(end).items(), key=lambda item: in_order(item[0])):
            begin = begins.get(place, 0)
            if last > begin:
                # Only the newest checkpoint-ts is a record; the offsets before it hold nothing.
                ranges.append(OffsetRange(*place, last - 1 if place == CHECKPOINT else begin, last))
        return wanted_of(ranges, self.tables)

    def behind(self, offset_range: OffsetRange) -> None:
        """None, because the number of rows in files is unknown."""

    def _checked(self, begins: Offsets, look: Look) -> Offsets:
        """Return where to begin in each directory; report unread files that are gone."""
        is_new_look, self._last_checked = look is not self._last_checked, look
        kept: Offsets = {}
        for place, begin in begins.items():
            if place == CHECKPOINT or is_schema_file(place.topic):
                kept[place] = begin  # without them, DDL and watermarks would be read again
            elif place in look.ends:
                self._looks_without.pop(place, None)
                kept[place] = begin  # compared with the look below
            elif self._last_ends.get(place) != begin and not _has_later(place, begins):
                # Otherwise all its files were read: up to its last known end, or a later directory was begun.
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

    def _may_drop(self, place: TopicPartition, begins: Mapping[TopicPartition, int], *, is_new_look: bool) -> bool:
        """Whether to forget the offset of a missing directory whose files were all read.

        Storages may hide a folder briefly, so several looks in a row must miss it. And TiCDC must be done with it: it
        has a date, or a later directory was begun.
        """
        self._looks_without[place] = self._looks_without.get(place, 0) + is_new_look
        own = directory_of(place.topic)
        is_over = own is not None and (bool(own.date) or _has_later(place, begins))
        return is_over and self._looks_without[place] >= _LOOKS_UNTIL_GONE

    def _current_look(self) -> Look:
        """The existing files; the answer is reused until the pause after it is over."""
        began = self.clock()
        if self._last_look is None or began >= self._next_look_at:
            self._last_look = self.changefeed.look()
            self._last_ends.update(self._last_look.ends)
            ended = self.clock()
            self._next_look_at = ended + max(self.limits.min_interval, _PAUSE_FACTOR * (ended - began))
        return self._last_look


def _has_later(place: TopicPartition, begins: Mapping[TopicPartition, int]) -> bool:
    """Whether the stream has begun later files of the same table, partition and writer."""
    own, writer = directory_of(place.topic), index_of(place.topic).stem
    begun = [other.topic for other, begin in begins.items() if begin > 0]
    same_writer = [directory_of(topic) for topic in begun if index_of(topic).stem == writer]
    return own is not None and any(
        other is not None and other.owner == own.owner and (other.version, other.date) > (own.version, own.date)
        for other in same_writer
    )


def _ends_after(begins: Offsets, look: Look, max_files: int | None) -> Offsets:
    """The end of a micro-batch of at most `max_files` new files, oldest table versions first."""
    ends, left = dict(begins), max_files
    for place in sorted(look.ends, key=in_order):
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


def _ends(look: Look) -> Offsets:
    return look.ends | ({} if look.checkpoint is None else {CHECKPOINT: look.checkpoint + 1})


_TASK_BYTES = 32 << 20  # the most bytes of files in an input partition of several files
_MOST_SAMPLED = 30  # at most so many directories of a table are sampled, the newest


def ranges_of(look: Look, tables: TableFilter) -> list[OffsetRange]:
    """The ranges of a batch: finished files of wanted tables, and the checkpoint-ts."""
    ranges = [OffsetRange(*place, look.starts[place], end) for place, end in look.ends.items()]
    if look.checkpoint is not None:
        ranges.append(OffsetRange(*CHECKPOINT, look.checkpoint, look.checkpoint + 1))
    return sorted(wanted_of(ranges, tables), key=in_order)


def tables_of(look: Look) -> set[TableName]:
    """The tables with data files, past or present, as far as paths tell."""
    directories = (directory_of(pattern) for pattern in {*look.sizes, *(place.topic for place in look.ends)})
    return {TableName(*each.table) for each in directories if each is not None and each.table is not None}


def wanted_of(ranges: Iterable[OffsetRange], tables: TableFilter) -> list[OffsetRange]:
    return [each for each in ranges if _may_be_wanted(each.topic, tables)]


def _may_be_wanted(topic: str, wanted: TableFilter) -> bool:
    place = directory_of(topic)
    if not wanted.patterns or place is None or place.table is None or "/" in place.table[1]:
        return True  # the path does not tell the table; a slash may belong to the database or to the table
    return wanted.matches(TableName(*place.table))


def sampled(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """The ranges to sample: all schema files, and the first and last file of each table's newest directories."""
    by_owner: dict[str, list[OffsetRange]] = {}
    chosen = []
    for each in ranges:
        place = directory_of(each.topic)
        if place is not None and each.size:
            by_owner.setdefault(place.owner, []).append(each)
        elif place is None and each.topic_partition != CHECKPOINT:
            chosen.append(each)
    for directories in by_owner.values():
        for each in sorted(directories, key=in_order)[-_MOST_SAMPLED:]:
            chosen.append(each._replace(end=each.start + 1))
            if each.size > 1:  # partition 1 is made up: the sampler takes one range of each topic partition
                chosen.append(each._replace(partition=1, start=each.end - 1))
    return chosen


def packed_files(
    ranges: Iterable[OffsetRange], sizes: Mapping[str, Mapping[int, int]], min_partitions: int | None = None
) -> list[list[OffsetRange]]:
    """The files of each input partition, in order: up to 32 MiB together, or one larger file. No file is split.

    `min_partitions` lowers the 32 MiB, which is also the assumed size of a data file if unknown. Schema files and
    `metadata` count as 0.
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


def in_order(files: OffsetRange | TopicPartition) -> tuple[int, int, str, str]:
    return order_of(files.topic)
