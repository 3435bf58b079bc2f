"""Which source a read has, and which one tells its schema: decided only here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Literal

from ticdc_source.errors import CheckpointError, DataLossError, OptionError, warn
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.options.topics import listed
from ticdc_source.schema.tso import utc
from ticdc_source.sources.kafka.source import KafkaSource
from ticdc_source.sources.record_source import OffsetMembers, RecordSource, StreamPlanner, WireFormats
from ticdc_source.sources.storage.source import FileSource
from ticdc_source.sources.stream_offsets import (
    INITIAL,
    SNAPSHOT,
    OffsetJSON,
    Offsets,
    StreamLimits,
    offsets_of,
    topic_ids_of,
)
from ticdc_source.sources.tidb.progress import SnapshotProgress
from ticdc_source.sources.tidb.source import SnapshotSource

_BEGIN_AGAIN = "Nothing has been skipped. Start again with a new checkpoint and an empty output"


class SnapshotFirstSource(KafkaSource):
    """The topics, and before them the tables of TiDB as of the start of a stream (`snapshot=initial`).

    At the start of a stream, the ends of the topics (K0) are looked up, then a TSO of TiDB, rounded up to the end of
    its millisecond (T). So the rows as of T have each change before K0, and each change after T comes after K0. Kafka's
    part of the offset stays at K0 until all rows are planned. Changes up to T are always dropped by their commit-ts,
    because TiCDC may send them again. Each micro-batch belongs to one of the two sources, with its options.
    """

    def __init__(self, options: Options, formats: WireFormats) -> None:
        super().__init__(replace(options, snapshot="off"), formats)
        self._planner: _Planner | None = None
        self.rows_at("now")  # refuses options

    def rows_at(self, tso: int | Literal["now"]) -> SnapshotSource:
        options = replace(self._options, snapshot="only", snapshot_at=tso, protocol="auto")
        return SnapshotSource(options, self._formats)

    def check_protocol(self, protocol: str) -> None:
        super().check_protocol(protocol)
        self.check_detected(protocol)

    def check_detected(self, protocol: str | None) -> None:
        if protocol in self._formats.lacking_commit_ts:
            raise OptionError(
                f"snapshot=initial cannot be used with protocol={protocol}: its deletes have no commit-ts, so it is "
                "unknown whether the snapshot already has them. Create the changefeed with another protocol"
            )

    def reading(self) -> tuple[RecordSource, Options]:
        if self._planner is None:
            return super().reading()
        if self._planner.rows is not None:
            return self._planner.rows.reading()
        return self, replace(self._options, starting_commit_ts=self._planner.after_rows)

    def stream(self, limits: StreamLimits, members: OffsetMembers | None = None) -> StreamPlanner:
        changes = super().stream(limits, members)
        self._planner = _Planner(self, changes, self._options.snapshot_max_ranges_per_trigger)
        return self._planner


class _Planner(StreamPlanner):
    """Plans rows, holding Kafka's part of the offset, and then changes."""

    def __init__(self, source: SnapshotFirstSource, changes: StreamPlanner, most: int) -> None:
        self.rows: SnapshotSource | None = None  # of the last planned micro-batch; None if it has changes
        self.after_rows: int | None = None  # the commit-ts at which changes begin; None if nothing was planned
        self._source = source
        self._changes = changes
        self._most = most
        self._start: OffsetJSON | None = None
        self._ready: tuple[SnapshotProgress, SnapshotProgress, SnapshotSource, list[OffsetRange]] | None = None
        self._first_seen: Offsets = {}  # where the topics began when this process first looked

    def initial(self) -> OffsetJSON:
        """Look up the ends of the topics, then TiDB's time.

        Raises:
            OptionError: no topic exists, TiDB lacks a table, or the user may not read it.
        """
        if self._start is None:
            changes = self._changes.initial()
            held = offsets_of(changes)
            if not held:
                raise OptionError(
                    "snapshot=initial needs a changefeed, but none of its topics exists: changes between the snapshot "
                    "and the changefeed's start would be missing. Create the changefeed first"
                )
            if not any(self._source.latest(held).values()):
                topics = listed(sorted({tp.topic for tp in held}))
                warn(
                    f"snapshot=initial: nothing was ever written to {topics}, so it is unknown whether the changefeed "
                    "began before the snapshot. If it begins later, the changes in between will be missing. If in "
                    "doubt, create it, wait for its first message or watermark, and start again with a new checkpoint "
                    "and an empty output"
                )
            with closing(self._source.rows_at("now")) as rows:
                self._start = {**changes, SNAPSHOT: rows.begin().as_json()}
        return self._start

    def next(self, start: OffsetJSON, max_offsets: int | None = None, min_offsets: int | None = None) -> OffsetJSON:
        progress, changes = _parts(start)
        if progress.is_done:
            end = self._changes.next(changes, max_offsets, min_offsets)
            if end == changes:
                return dict(start)
            if progress.tables:
                self._check_held(changes, end, progress)
            return {**end, SNAPSHOT: SnapshotProgress(progress.tso).as_json()}
        held = self._changes.next(changes, 0)
        self._check_held(changes, held, progress)
        rows = self._source.rows_at(progress.tso)
        with rows, _not_finished():
            after, ranges = rows.advance(progress, self._most)
        self._ready = progress, after, rows, ranges
        return {**held, SNAPSHOT: after.as_json()}

    def ranges(self, start: OffsetJSON, end: OffsetJSON) -> list[OffsetRange]:
        (before, changes), (after, changes_end) = _parts(start), _parts(end)
        self.rows, self.after_rows = None, after.tso + 1
        if start.get(INITIAL):  # after a crash in the first micro-batch, `initial` has found another TSO
            before = after.beginning
        if not after.tables or before.tables == after.tables:
            return self._changes.ranges(changes, changes_end)
        if self._ready is not None and self._ready[:2] == (before, after):
            *_, self.rows, ranges = self._ready
            return ranges
        self.rows = rows = self._source.rows_at(after.tso)
        with rows, _not_finished():
            return rows.between(before, after)

    def behind(self, offset_range: OffsetRange) -> int | None:
        return None if self.rows is not None else self._changes.behind(offset_range)

    def newest(self) -> OffsetJSON:
        return self._changes.newest()

    def stop_at_latest(self) -> None:
        self._changes.stop_at_latest()

    def _check_held(self, before: OffsetJSON, after: OffsetJSON, progress: SnapshotProgress) -> None:
        """Raise an error if changes after the rows are lost, whatever `failOnDataLoss` says."""
        held, ends, ids = offsets_of(before), offsets_of(after), topic_ids_of(after)
        replaced = {topic for topic, old in topic_ids_of(before).items() if ids.get(topic, old) != old}
        moved = [tp for tp, offset in held.items() if tp.topic in replaced or ends.get(tp, -1) < offset]
        if moved:
            raise DataLossError(
                f"Changes that come after the snapshot as of TSO {progress.tso} are gone: {listed(moved)} was deleted, "
                f"created again or truncated. {_BEGIN_AGAIN}"
            )
        earliest = self._source.earliest(held)
        gone = [f"{tp} (offset {held[tp]}, but the first is {earliest[tp]})" for tp in held if earliest[tp] > held[tp]]
        if gone:
            raise DataLossError(
                f"Kafka has deleted changes that come after the snapshot as of TSO {progress.tso} "
                f"({utc(progress.tso)}): {listed(gone)}. {_BEGIN_AGAIN}, and let the topics keep records for longer "
                "than the snapshot takes (retention.ms)"
            )
        first = self._first_seen = {**earliest, **self._first_seen}
        near = [tp for tp in held if 2 * (held[tp] - earliest[tp]) < held[tp] - first[tp]]
        if near:
            warn(
                "Kafka has deleted more than half of the records before the changes that follow the snapshot: "
                f"{listed(near)}. Let the topics keep records for longer (retention.ms): the query fails once these "
                "changes are deleted, too"
            )


@contextmanager
def _not_finished() -> Iterator[None]:
    """Explain to the stream that TiDB no longer has the rows as of the TSO."""
    try:
        yield
    except DataLossError as error:
        raise DataLossError(f"The snapshot cannot be finished. {error}. {_BEGIN_AGAIN}") from None


def _parts(offset: OffsetJSON) -> tuple[SnapshotProgress, OffsetJSON]:
    """Split an offset into the snapshot's and Kafka's part."""
    if SNAPSHOT not in offset:
        raise CheckpointError(
            "The checkpoint is of a stream that did not begin with a snapshot: leave snapshot=initial out, or start "
            "with a new checkpoint and an empty output"
        )
    changes = {name: value for name, value in offset.items() if name != SNAPSHOT}
    return SnapshotProgress.of_json(offset[SNAPSHOT]), changes


def source_of(options: Options, formats: WireFormats) -> RecordSource:
    """The source that the options name; it does not connect yet."""
    if options.is_snapshot:
        return SnapshotSource(options, formats)
    if options.has_initial_snapshot:
        return SnapshotFirstSource(options, formats)
    return KafkaSource(options, formats) if options.path is None else FileSource(options, formats)


def telling_schema(options: Options, formats: WireFormats) -> tuple[RecordSource, Options]:
    """The source that tells a read's schema (TiDB, if the options name one), and its options."""
    told = options
    if options.tidb_url is not None and not options.is_snapshot:
        told = replace(options, snapshot="only", protocol="auto")
    return source_of(told, formats), told
