"""Rows of TiDB first, then the changes from topics: `snapshot=initial`, made of `SnapshotSource` and `KafkaSource`.

The start of a stream is looked up in this order: where the topics end (K0), then a TSO of TiDB, rounded up to the end
of its millisecond (T). So each change before K0 is in the rows as of T, and each change after T is behind K0. Kafka's
part of the offset stays at K0 until all rows are planned; changes up to T are dropped by their commit-ts, for ever,
because TiCDC may send them again. Each micro-batch is one of the two sources', and its input partitions have the
options that this source would have on its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from typing import Literal

from ticdc_source.errors import CheckpointError, DataLossError, OptionError, warn
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.options.topics import TopicPartition, listed
from ticdc_source.schema.tso import utc
from ticdc_source.sources.chunk import FetchSettings
from ticdc_source.sources.kafka.source import KafkaSource
from ticdc_source.sources.record_source import Fetcher, OffsetMembers, RecordSource, StreamPlanner, WireFormats
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


class SnapshotFirstSource(RecordSource):
    """The tables of TiDB as of the start of a stream, then what the topics say of later commits."""

    is_one_log = False
    loss = KafkaSource.loss

    def __init__(self, options: Options, formats: WireFormats) -> None:
        super().__init__(options, formats)
        self.changes = KafkaSource(replace(options, snapshot="off"), formats)
        self._planner: _Planner | None = None
        self.rows_at("now")  # refuses options

    def close(self) -> None:
        self.changes.close()

    def rows_at(self, tso: int | Literal["now"]) -> SnapshotSource:
        """Return the tables as of a TSO."""
        options = replace(self._options, snapshot="only", snapshot_at=tso, protocol="auto")
        return SnapshotSource(options, self._formats)

    def described(self, ranges: Iterable[OffsetRange]) -> str:
        return self.changes.described(ranges)

    def check_protocol(self, protocol: str) -> None:
        self.changes.check_protocol(protocol)
        self.check_detected(protocol)

    def check_detected(self, protocol: str | None) -> None:
        """Refuse a wire format whose changes cannot be told from those that the rows already have."""
        if protocol in self._formats.lacking_commit_ts:
            msg = (
                f"snapshot=initial does not go with protocol={protocol}: its deletes have no commit-ts, so nobody "
                "knows whether the snapshot already has them. Create the changefeed with another protocol"
            )
            raise OptionError(msg)

    def reading(self) -> tuple[RecordSource, Options]:
        return self.changes.reading() if self._planner is None else self._planner.reading()

    def batch_ranges(self) -> list[OffsetRange]:
        """Refuse: `options.ranges.validate` has, before."""
        raise NotImplementedError

    def ranges_to_infer_from(self, *, batch: bool) -> list[OffsetRange]:
        return self.changes.ranges_to_infer_from(batch=batch)

    def earliest(self, topic_partitions: Iterable[TopicPartition]) -> Offsets:
        return self.changes.earliest(topic_partitions)

    def latest(self, topic_partitions: Iterable[TopicPartition]) -> Offsets:
        return self.changes.latest(topic_partitions)

    def existing(self) -> Iterable[TopicPartition]:
        return self.changes.existing()

    def pieces(self, ranges: Sequence[OffsetRange]) -> list[list[OffsetRange]]:
        return self.changes.pieces(ranges)

    def fetcher(
        self, settings: FetchSettings, *, protocol: str | None = None, max_rows: int | None = None, driver: bool = True
    ) -> Fetcher:
        """Return a fetcher of the topics: rows are read with options of their own."""
        return self.changes.fetcher(settings, protocol=protocol, max_rows=max_rows, driver=driver)

    def task_fetcher(self, settings: FetchSettings, protocol: str, *, fresh: bool) -> AbstractContextManager[Fetcher]:
        """Return a fetcher of the topics; see `fetcher`."""
        return self.changes.task_fetcher(settings, protocol, fresh=fresh)

    def stream(self, limits: StreamLimits, members: OffsetMembers | None = None) -> StreamPlanner:
        most = self._options.snapshot_max_ranges_per_trigger
        changes = self.changes.stream(limits, members)
        self._planner = _Planner(self, changes, self._options, most)
        return self._planner

    def commit(self, offsets: Offsets) -> None:
        self.changes.commit(offsets)


class _Planner(StreamPlanner):
    """Plans rows, while it holds Kafka's part of the offset, and then changes."""

    def __init__(self, source: SnapshotFirstSource, changes: StreamPlanner, options: Options, most: int) -> None:
        self._source = source
        self._changes = changes
        self._options = options
        self._most = most
        self._start: OffsetJSON | None = None
        self._ready: tuple[SnapshotProgress, SnapshotProgress, SnapshotSource, list[OffsetRange]] | None = None
        self._rows: SnapshotSource | None = None  # of the micro-batch that was planned last; None if it has changes
        self._tso: int | None = None
        self._first_seen: Offsets = {}  # where the topics began when this process first looked

    def initial(self) -> OffsetJSON:
        """Return where a new stream starts: first the ends of the topics, then TiDB's time.

        Raises:
            OptionError: no topic is there, or TiDB lacks a table, or the user may not read it.
        """
        if self._start is None:
            changes = self._changes.initial()
            held = offsets_of(changes)
            if not held:
                msg = (
                    "snapshot=initial begins when the changefeed is there, and no topic of it exists: changes between "
                    "the snapshot and the changefeed's start would be missing. Create the changefeed first"
                )
                raise OptionError(msg)
            if not any(self._source.latest(held).values()):
                topics = listed(sorted({tp.topic for tp in held}))
                warn(
                    f"snapshot=initial: nothing was ever written to {topics}, so it is not known whether the "
                    "changefeed began before the snapshot. If it begins later, the changes in between will be missing. "
                    "If in doubt, create it, wait for its first message or watermark, and start again with a new "
                    "checkpoint and an empty output"
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
        self._rows, self._tso = None, after.tso
        if start.get(INITIAL):  # after a crash in the first micro-batch, `initial` has found another moment
            before = after.beginning
        if not after.tables or before.tables == after.tables:
            return self._changes.ranges(changes, changes_end)
        if self._ready is not None and self._ready[:2] == (before, after):
            *_, self._rows, ranges = self._ready
            return ranges
        self._rows = rows = self._source.rows_at(after.tso)
        with rows, _not_finished():
            return rows.between(before, after)

    def behind(self, offset_range: OffsetRange) -> int | None:
        return None if self._rows is not None else self._changes.behind(offset_range)

    def newest(self) -> OffsetJSON:
        return self._changes.newest()

    def stop_at_latest(self) -> None:
        """Read all rows, and then up to what topics have now."""
        self._changes.stop_at_latest()

    def reading(self) -> tuple[RecordSource, Options]:
        if self._rows is not None:
            return self._rows.reading()
        start = None if self._tso is None else self._tso + 1
        return self._source.changes, replace(self._options, snapshot="off", starting_commit_ts=start)

    def _check_held(self, before: OffsetJSON, after: OffsetJSON, progress: SnapshotProgress) -> None:
        """Raise an error if changes that come after the rows are gone, whatever `failOnDataLoss` says."""
        held, ends, ids = offsets_of(before), offsets_of(after), topic_ids_of(after)
        replaced = {topic for topic, old in topic_ids_of(before).items() if ids.get(topic, old) != old}
        moved = [tp for tp, offset in held.items() if tp.topic in replaced or ends.get(tp, -1) < offset]
        if moved:
            msg = (
                f"Changes that come after the snapshot as of TSO {progress.tso} are gone: {listed(moved)} was deleted, "
                f"created again or truncated. {_BEGIN_AGAIN}"
            )
            raise DataLossError(msg)
        earliest = self._source.earliest(held)
        gone = [f"{tp} (offset {held[tp]}, and the first is {earliest[tp]})" for tp in held if earliest[tp] > held[tp]]
        if gone:
            msg = (
                f"Kafka has deleted changes that come after the snapshot as of TSO {progress.tso} "
                f"({utc(progress.tso)}): {listed(gone)}. {_BEGIN_AGAIN}, and let the topics keep records for longer "
                "than the snapshot takes (retention.ms)"
            )
            raise DataLossError(msg)
        first = self._first_seen = {**earliest, **self._first_seen}
        near = [tp for tp in held if 2 * (held[tp] - earliest[tp]) < held[tp] - first[tp]]
        if near:
            warn(
                "Kafka has deleted more than half of the records before the changes that follow the snapshot: "
                f"{listed(near)}. The query fails once these changes are deleted, too: let the topics keep records for "
                "longer (retention.ms)"
            )


@contextmanager
def _not_finished() -> Iterator[None]:
    """Say of a moment that TiDB no longer keeps what it means for the stream."""
    try:
        yield
    except DataLossError as error:
        msg = f"The snapshot cannot be finished. {error}. {_BEGIN_AGAIN}"
        raise DataLossError(msg) from None


def _parts(offset: OffsetJSON) -> tuple[SnapshotProgress, OffsetJSON]:
    """Return how far the snapshot is, and Kafka's part of an offset.

    Raises:
        CheckpointError: the stream did not begin with a snapshot.
    """
    if SNAPSHOT not in offset:
        msg = (
            "The checkpoint is of a stream that did not begin with a snapshot: leave snapshot=initial out, or start "
            "with a new checkpoint and an empty output"
        )
        raise CheckpointError(msg)
    changes = {name: value for name, value in offset.items() if name != SNAPSHOT}
    return SnapshotProgress.of_json(offset[SNAPSHOT]), changes
