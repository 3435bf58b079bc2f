"""Plans a stream of a storage sink's files: which files a micro-batch reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ticdc_source.errors import warn
from ticdc_source.options.offsets import OffsetRange, to_json_dict
from ticdc_source.options.topics import TableFilter, TopicPartition
from ticdc_source.sources.storage.changefeed import CHECKPOINT, Changefeed, Look
from ticdc_source.sources.storage.paths import directory_of, is_schema_file, stem_of
from ticdc_source.sources.storage.selection import in_order, wanted_of
from ticdc_source.sources.stream_offsets import (
    INITIAL,
    START,
    MinimumWait,
    OffsetJSON,
    Offsets,
    StreamLimits,
    offsets_of,
    start_offsets,
)

__all__ = ["FilePlanner"]

_LOOKS_UNTIL_GONE = 3
_WHO_REMOVED = "Has file-expiration-days of the sink, or a lifecycle rule of the bucket, removed them?"
_PAUSE_FACTOR = 2.0  # the pause after a look, in multiples of how long the look took


@dataclass
class FilePlanner:
    """The `StreamPlanner` of files.

    Files are read in the order of their table versions, across all tables, as TiCDC writes them. A checkpoint-ts is
    read after all files that the same look found.

    Attributes:
        changefeed: the changefeed.
        limits: how long to wait.
        report_loss: called with a reason if files are gone; it raises unless `failOnDataLoss` is off.
        tables: which tables are wanted.
        begins_at_end: whether a new stream skips the files that exist.
        waits_for_data_file: whether to plan no file until there is a data file, whose name tells the protocol.
        clock: a monotonic clock, in seconds.
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
                warn(self.changefeed.why_empty(look))
            self.changefeed.warn_of_no_checkpoint(look)
            self._start = _ends(look) if self.begins_at_end else {place: at for place, at in look.starts.items() if at}
        return {INITIAL: True, **to_json_dict(self._start)}

    def stop_at_latest(self) -> None:
        """Fix the end of the stream at the files of the next look (Trigger.AvailableNow)."""
        self._stops_at_target = True

    def newest(self) -> OffsetJSON:
        """Return the ends of all directories, for Spark's report."""
        return to_json_dict(_ends(self._current_look()))

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
        """Return the files of wanted tables between two offsets, in order."""
        begins = start_offsets(start, end)
        ranges = []
        for place, last in sorted(offsets_of(end).items(), key=lambda item: in_order(item[0])):
            begin = begins.get(place, 0)
            if last > begin:
                # Only the newest checkpoint-ts is a record; the offsets before it hold nothing.
                ranges.append(OffsetRange(*place, last - 1 if place == CHECKPOINT else begin, last))
        return wanted_of(ranges, self.tables)

    def behind(self, offset_range: OffsetRange) -> None:
        """Return None: nothing tells how many rows a file has."""

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
            self._last_look = self.changefeed.look()
            self._last_ends.update(self._last_look.ends)
            ended = self.clock()
            self._next_look_at = ended + max(self.limits.min_interval, _PAUSE_FACTOR * (ended - began))
        return self._last_look


def _ends_after(begins: Offsets, look: Look, max_files: int | None) -> Offsets:
    """Return where a micro-batch of at most `max_files` new files ends, files of the oldest table versions first."""
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
